"""Let load hosts reach servers of pgdyno's own, which otherwise have a private socket only."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from pgdyno.conduct.load.hosts import (
    Hints,
    ReachedHost,
    ReadyLoad,
    check_pooler_ways,
    measure_load_hosts,
    predict_ways_s,
    reach_from_each,
    reach_load_hosts,
)
from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError, StepFailedError
from pgdyno.plan.loads import DEFAULT_MAX_CONNECTIONS, RESERVED_CONNECTIONS, default_clients
from pgdyno.plan.types import PlannedPooler
from pgdyno.plan.variants import most_clients, most_clients_each
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.load_access import LoadAccess, is_own_address, open_load_access
from pgdyno.run.cluster.server import Server
from pgdyno.run.host.process import find_own_user
from pgdyno.run.host.process_id import read_place
from pgdyno.run.host.program import machine_name, reached_address
from pgdyno.run.load.group import PgbenchGroup
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.pooler.pgbouncer import Pgbouncer
from pgdyno.run.pooler.program import find_pgbouncer
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.installation import Installation
from pgdyno.spec.pooler import REPLICAS, PoolerSpec
from pgdyno.spec.study import Study

_MAINTENANCE_DATABASE = "postgres"


class OwnLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load hosts, and how they reach servers of pgdyno's own."""

    ready: ReadyLoad
    access: LoadAccess

    def make_generator(self, local: Pgbench) -> PgbenchGroup:
        """Return what makes their loads, beside the pgbench of a server's own installation."""
        return self.ready.generator.beside(local)


def ready_own_load(
    study: Study, *, home: Home, installation: Installation, cpu_count: float, stack: ExitStack, ui: Ui
) -> OwnLoad:
    """Reach the load hosts of a study, and make sure that each reaches an empty server of pgdyno's own.

    Args:
        study: What is going to run.
        home: Where its servers run.
        installation: The PostgreSQL of its reference.
        cpu_count: CPUs of this machine.
        stack: Keeps the connections, and the password.
        ui: Shows the progress.

    Raises:
        HostError: A load host is not reached, or does not reach the server.
        StepFailedError: A load host or the server does not answer.
    """
    reached = reach_load_hosts(study.load_hosts, stack=stack, ui=ui)
    address = study.server.address or _find_address(reached)
    read = study.server.readers if REPLICAS in study.endpoints else ()
    access = stack.enter_context(open_load_access(address, study.server.port, standbys=len(read)))
    asked = _with_clients(study, cpu_count)
    clients = most_clients(asked)
    folder = home.work / "load-hosts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)
    server = Server(installation=installation, home=home, log_path=folder / "server.log", access=access)
    local = Pgbench(installation=installation, user=home.user)
    try:
        ui.show_activity("starting a server for them to reach")
        server.initdb()
        server.start({"max_connections": max(DEFAULT_MAX_CONNECTIONS, clients + 2 * RESERVED_CONNECTIONS)})
        with server.connect(database=_MAINTENANCE_DATABASE) as connection:
            access.make_role(connection)
        load = measure_load_hosts(
            reached,
            access.reach(_MAINTENANCE_DATABASE),
            seen_at=_reach_here(server),
            hints=_list_hints(access.port),
            clients_each=most_clients_each(asked),
            place=read_place(),
            local=local,
            user=find_own_user(),
            ui=ui,
        )
        # All have one port, and a trial runs one of them.
        if study.poolers:
            name, pooler = next(iter(study.poolers.items()))
            _check_pooler(name, pooler, server=server, access=access, load=load, folder=folder, ui=ui)
        if read:
            server.stop()
            seen_there = _check_standbys(read, server=server, access=access, load=load, ui=ui)
            load = msgspec.structs.replace(load, clients=load.clients | seen_there)
    finally:
        server.abandon()
        home.clear_data()
        shutil.rmtree(folder, ignore_errors=True)
    access.admit_only(load.clients)
    return OwnLoad(ready=load, access=access)


def _check_pooler(
    name: str,
    asked: PoolerSpec,
    *,
    server: Server,
    access: LoadAccess,
    load: ReadyLoad,
    folder: Path,
    ui: Ui,
) -> None:
    """Make sure that each load host reaches a server through a pooler of pgdyno's own, before data are loaded.

    Raises:
        HostError: A load host does not, or PgBouncer is not installed.
        StepFailedError: The pooler does not start.
    """
    planned = PlannedPooler(
        name=name, mode=asked.mode, size=1, most_clients=len(load.hosts), program=find_pgbouncer(server.home.user)
    )
    pooler = Pgbouncer(planned, server, log_folder=folder, dbname=_MAINTENANCE_DATABASE)
    try:
        pooler.start()
    except StepFailedError as error:
        error.hint = f"it listens at {access.listens_on}, port {access.pooler_port}: the one after `port` in [server]"
        raise
    try:
        way = access.reach(_MAINTENANCE_DATABASE, is_pooled=True)
        check_pooler_ways(
            load,
            {name: way},
            server=_reach_here(server),
            hints=_list_hints(access.pooler_port),
            ui=ui,
        )
    finally:
        pooler.abandon()


def _check_standbys(
    names: Sequence[str], *, server: Server, access: LoadAccess, load: ReadyLoad, ui: Ui
) -> frozenset[str]:
    """Make sure that each load host gets to the port of each standby, where the stopped server listens in its place.

    Returns:
        The IP addresses from which they came.

    Raises:
        HostError: A load host does not, or a port is in use.
        StepFailedError: A load host or the server does not answer.
    """
    ui.begin_step("load hosts to standbys", predicted_s=predict_ways_s(len(load.hosts), len(names)))
    came_from: frozenset[str] = frozenset()
    for number, name in enumerate(names, start=1):
        there = access.of_standby(number)
        standing_in = Server(installation=server.installation, home=server.home, log_path=server.log_path, access=there)
        try:
            standing_in.start({})
            way, seen_at = there.reach(_MAINTENANCE_DATABASE), _reach_here(standing_in)
            reached = reach_from_each(load, name, way, seen_at=seen_at, hints=_list_hints(there.port), ui=ui)
            came_from = came_from.union(*(one.clients for one in reached.values()))
        finally:
            standing_in.abandon()
    ui.end_step(f"all get to {', '.join(names)}")
    return came_from


def _reach_here(server: Server) -> Address:
    """Return where pgdyno itself reaches a server that has no data yet."""
    return msgspec.structs.replace(server.address, dbname=_MAINTENANCE_DATABASE)


def _with_clients(study: Study, cpu_count: float) -> Study:
    """Return a study with the clients that the plan will choose."""
    loads = (
        one if one.asked_clients else msgspec.structs.replace(one, clients=default_clients(cpu_count))
        for one in study.workload
    )
    return msgspec.structs.replace(study, workload=tuple(loads))


def _find_address(reached: Sequence[ReachedHost]) -> str:
    """Return the address of this machine that ssh shows: to the first load host, or where pgdyno was carried here by ssh.

    Raises:
        HostError: It shows none of this machine.
    """
    first = reached[0]
    if machine_name() is None:
        shown, who = first.look.client_address, f"{first.host.name} sees"
    else:
        shown, who = reached_address(), "ssh led to"
    if shown is not None and is_own_address(shown):
        return shown
    raise HostError(
        "pgdyno does not know by which address load hosts reach this machine",
        detail=f"{who} {shown or 'no address'}, which is not this machine's",
        hint='name it: --server-address, or address = "10.0.0.5" in the [server] table of a study',
    )


def _list_hints(port: int) -> Hints:
    named = 'another address of the server\'s machine is named with --server-address, or with address = "10.0.0.5" in [server]'
    return (
        ("could not translate host name", f"the load host does not know that name; {named}"),
        ("", f"does a firewall let it reach port {port} there? `port` in [server] names another port; {named}"),
    )
