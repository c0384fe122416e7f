"""Make a server of the user's ready for a study: look at it, refuse what must not be loaded, and keep other pgdynos away."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec

from pgdyno.conduct.given.refusal import tell_or_refuse
from pgdyno.conduct.given.replicas import check_ways, reach_replicas
from pgdyno.conduct.load.hosts import (
    ReadyLoad,
    check_pooler_ways,
    find_local_pgbench,
    measure_load_hosts,
    reach_load_hosts,
)
from pgdyno.conduct.study import PlannedStudy
from pgdyno.conduct.ui import Ui
from pgdyno.errors import SpecError
from pgdyno.explain.preflight.given import LeftSettings, find_given_obstacles
from pgdyno.plan.minutes import Budget, split_minutes
from pgdyno.plan.plan import CHECK_S, Machine, plan_study
from pgdyno.plan.scaling import plan_scaling, with_scaling
from pgdyno.plan.variants import most_clients_each, most_connections
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.types import ServerFacts, WatchedHost
from pgdyno.run.change.given.target import restore_words
from pgdyno.run.change.given.undo import find_left
from pgdyno.run.change.journal import own_journal
from pgdyno.run.given.access import open_access
from pgdyno.run.given.bounds import Bound, bound_data, bound_wal
from pgdyno.run.given.conninfo import has_password
from pgdyno.run.given.database import check_named
from pgdyno.run.given.lock import StudyLock, refuse_second_study
from pgdyno.run.given.machine import ServerMachine, find_machine
from pgdyno.run.given.poolers import open_poolers
from pgdyno.run.given.probe import watch_server
from pgdyno.run.given_server import GivenServerUnderTest
from pgdyno.run.host.facts import read_host_facts
from pgdyno.run.host.log import pending_log
from pgdyno.run.link.ssh import open_link
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.named_database import NamedDatabaseUnderTest
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.preflight import watch_machine
from pgdyno.spec.allowed import Allowed
from pgdyno.spec.hosts import HostEntry
from pgdyno.spec.study import DataSpec, Study
from pgdyno.spec.variant import DesignKind
from pgdyno.units import format_bytes, format_cpus

DEFAULT_CLIENTS = 8
DEFAULT_SCALE = 50
# The sweep gets its own rounds; the trials before it keep theirs.
_SWEEP_BUDGET = Budget(minutes=0.0, more_rounds=0, load_s=20.0)
_POOLED = (
    "a frozen client would keep a session of the pooler within its transaction, and other clients might wait for it"
)

NamedHost = tuple[str, HostEntry]


class ReadyServer(msgspec.Struct, frozen=True, kw_only=True):
    """A given server that was looked at, and that no other pgdyno loads while a study runs."""

    seen: GivenServer
    facts: ServerFacts
    address: Address
    load_host: HostFacts
    """The machine that makes the load: this one, or the load host with the fewest CPUs."""
    host: HostFacts | None
    """The server's machine; None unless it is watched."""
    server_host: WatchedHost | None
    under_test: GivenServerUnderTest
    generator: Pgbench
    """Loads the data and tries scripts, on this machine."""
    load: ReadyLoad | None
    """Load hosts, from which the trials' loads come; None if they come from this machine."""
    shared_buffers_bytes: int
    replicas: tuple[GivenServer, ...] = ()
    """What was seen of each replica that the study reads from, in its order."""

    @property
    def machine(self) -> Machine:
        """Return what a plan needs to know; it takes the server's memory and disk to suffice."""
        return Machine(
            version_major=self.seen.major,
            cpu_count=self.load_host.usable_cpu_count,
            memory_bytes=sys.maxsize,
            disk_free_bytes=sys.maxsize,
            withheld_settings=self.under_test.find_withheld(),
            live_obstacle=_POOLED if self.seen.has_pooled_transactions else None,
            shared_buffers_bytes=self.shared_buffers_bytes,
            free_connections=self._find_free_connections(),
            has_pooled_sessions=self.seen.pooler is not None and not self.seen.has_pooled_transactions,
        )

    def _find_free_connections(self) -> int | None:
        """Return the smallest number of free connections of the server and its replicas; None if none is known."""
        each = (self.seen.connections_for_clients, *(one.free_connections for one in self.replicas))
        return min((one for one in each if one is not None), default=None)


@contextmanager
def ready_server(dsn: str, *, study: Study, allowed: Allowed, ui: Ui) -> Iterator[ReadyServer]:
    """Connect, look at the server, and tell what would spoil a measurement.

    Args:
        dsn: The connection string.
        study: What is meant, with all its numbers of clients.
        allowed: Whether to load it although others use it, and which database may be written to.
        ui: Shows the progress.

    Raises:
        SpecError: It is no connection string, or the database that the study names cannot be measured.
        HostError: The server must not be loaded, or another pgdyno is at work there.
        StepFailedError: There is no connection.
    """
    data, host = study.data, study.server_host
    may_write = _read_writes(data, allowed)
    with pending_log():
        ui.begin_step("check", predicted_s=CHECK_S)
        seen, activity = watch_machine(lambda: watch_server(dsn))
        with open_access(dsn) as address, ExitStack() as stack:
            found = find_given_obstacles(
                seen,
                clients=most_connections(study),
                has_password=has_password(dsn),
                left=name_left_settings(seen),
                makes_database=data.database is None,
                may_write=may_write,
                is_live=study.experiment.design is DesignKind.LIVE,
                named_replicas=len(study.server.replicas),
                activity=None if study.load_hosts else activity,
            )
            load_host = read_host_facts(Path.cwd())
            machine = None if host is None else find_machine(stack.enter_context(open_link(host[1])), address)
            ui.end_step(
                f"PostgreSQL {seen.version} at {seen.address}, as {seen.role}{describe_watched(machine, None if study.load_hosts else load_host)}"
            )
            tell_or_refuse(found, is_busy_allowed=allowed.is_busy, ui=ui)
            if data.init is not None and seen.is_superuser:
                ui.say(f"{seen.role} is a superuser: {Path(data.init).name} may change anything in this server")
            if data.database is not None:
                clients = 0 if seen.has_pooled_transactions else most_connections(study)
                check_named(address, data.database, clients=clients)
            refuse_second_study(address)
            # Where transactions share sessions, its name would stay with a session that others use.
            lock = None if seen.has_pooled_transactions else stack.enter_context(closing(StudyLock(address)))
            wal_bound = bound_wal(address, allowed.most_wal_bytes)
            if not wal_bound.is_known:
                ui.say(
                    "this role may not know how much WAL the server writes: the study does not end at any amount of it"
                )
            bounds = (
                [wal_bound] if data.database is not None else [wal_bound, bound_data(address, allowed.most_data_bytes)]
            )
            ready = _make_ready(
                seen, address, lock, load_host, bounds, data=data, may_write=may_write, host=host, machine=machine
            )
            if isinstance(ready.under_test, NamedDatabaseUnderTest):
                ready.under_test.check_guard()
                ui.say(_describe_use(data, may_write=may_write))
            if study.load_hosts:
                load = measure_load_hosts(
                    reach_load_hosts(study.load_hosts, stack=stack, ui=ui),
                    address,
                    seen_at=address,
                    clients_each=most_clients_each(study),
                    place=None if machine is None else machine.look.place,
                    local=ready.generator,
                    user=ready.generator.user,
                    ui=ui,
                )
                ready = msgspec.structs.replace(ready, load=load, load_host=load.least)
            ways = stack.enter_context(open_poolers(study.poolers, address))
            if ready.load is not None:
                if data.database is not None:
                    # A pooler may have each database in another server.
                    ways = {name: msgspec.structs.replace(way, dbname=data.database) for name, way in ways.items()}
                check_pooler_ways(ready.load, ways, server=address, ui=ui)
            ready.under_test.poolers = ways
            replicas = stack.enter_context(reach_replicas(study, seen, address, is_busy_allowed=allowed.is_busy, ui=ui))
            ready.under_test.replicas = replicas
            if ready.load is not None:
                ready = msgspec.structs.replace(ready, load=check_ways(ready.load, replicas, ui))
            yield msgspec.structs.replace(ready, replicas=tuple(one.seen for one in replicas))


def _read_writes(data: DataSpec, allowed: Allowed) -> bool:
    """Return whether the load may write.

    Raises:
        SpecError: Writes are allowed to a database that the study does not name.
    """
    if allowed.writes is not None and allowed.writes != data.database:
        named = "the study names none" if data.database is None else f"the study names {data.database}"
        raise SpecError(
            f"--allow writes={allowed.writes}: {named}", hint="it goes with --database, and has the same name"
        )
    return data.database is None or allowed.writes is not None


def _describe_use(data: DataSpec, *, may_write: bool) -> str:
    if may_write:
        return f"the load may write to the database {data.database}, and nothing puts it back"
    return f"the database {data.database} is only read: sessions there begin read-only, and nothing is copied"


def name_left_settings(seen: GivenServer) -> LeftSettings | None:
    """Return the settings of a server that a pgdyno of this account has left changed, or changes now; None if there are none."""
    left = find_left(own_journal().read_settings(), seen.system_identifier)
    if not left:
        return None
    return LeftSettings(names=tuple(one.what for one in left), restore=restore_words(left[0].dsn))


def plan_given(study: Study, ready: ReadyServer) -> PlannedStudy:
    """Plan a study for a given server.

    Raises:
        SpecError: The study cannot be run as it stands.
    """
    plan = plan_study(study, ready.machine)
    return PlannedStudy(study=study, plan=plan, scaling=plan_scaling(study, plan, ready.machine))


def with_given_sweep(study: Study, ready: ReadyServer) -> Study:
    """Add a sweep over clients to a study that compares nothing; add none where it would have fewer than two loads.

    Raises:
        SpecError: The study cannot be run as it stands.
    """
    machine = ready.machine
    study = with_scaling(study, plan_study(study, machine), machine)
    return study if study.scaling is None else split_minutes(study, machine, _SWEEP_BUDGET)


def _make_ready(
    seen: GivenServer,
    address: Address,
    lock: StudyLock | None,
    load_host: HostFacts,
    bounds: list[Bound],
    *,
    data: DataSpec,
    may_write: bool,
    host: NamedHost | None,
    machine: ServerMachine | None,
) -> ReadyServer:
    generator = find_local_pgbench()
    # ServerFacts name the programs' folder, which is not known of this server.
    with sql.connect(address) as connection:
        version_num = connection.info.server_version
        shared_buffers_bytes = sql.read_shared_buffers(connection)
    facts = ServerFacts(version=seen.version, version_num=version_num, bindir="")
    under_test: GivenServerUnderTest
    if data.database is None:
        may_checkpoint = any(one.name == "CHECKPOINT" and one.refusal is None for one in seen.capabilities)
        under_test = GivenServerUnderTest(
            address=address,
            facts=facts,
            generator=generator,
            may_checkpoint=may_checkpoint,
            lock=lock,
            bounds=bounds,
            machine=machine,
        )
    else:
        under_test = NamedDatabaseUnderTest(
            database=data.database,
            may_write=may_write,
            address=address,
            facts=facts,
            generator=generator,
            lock=lock,
            bounds=bounds,
            machine=machine,
        )
    return ReadyServer(
        seen=seen,
        facts=facts,
        address=address,
        load_host=load_host,
        host=None if machine is None else machine.look.facts,
        server_host=None if machine is None or host is None else _describe_host(*host, machine),
        under_test=under_test,
        generator=generator,
        load=None,
        shared_buffers_bytes=shared_buffers_bytes,
    )


def describe_watched(machine: ServerMachine | None, load_host: HostFacts | None) -> str:
    """Describe the server's machine, if it is watched, and where the load comes from, unless that is None."""
    if machine is None:
        return ""
    facts = machine.look.facts
    size = f"{format_cpus(facts.usable_cpu_count)}, {format_bytes(facts.usable_memory_bytes)}"
    if load_host is None:
        return f"; on {facts.host_name}, watched by ssh: {size}"
    is_same = "; the load comes from there, too" if machine.is_here else f"; the load comes from {load_host.host_name}"
    return f"; on {facts.host_name}, watched by ssh: {size}{is_same}"


def _describe_host(name: str, entry: HostEntry, machine: ServerMachine) -> WatchedHost:
    return WatchedHost(
        name=name,
        ssh=entry.ssh,
        python=machine.look.python,
        boot_id=machine.look.boot_id,
        is_load_host=machine.is_here,
    )
