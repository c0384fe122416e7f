"""Reach the load hosts of a study, make sure that each reaches the server, and measure what each can send at the most."""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError, PgdynoError, StepFailedError
from pgdyno.record.machine.host_facts import HostFacts, match_known
from pgdyno.record.types import LoadHostFacts
from pgdyno.run.given.libpq import find_libpq
from pgdyno.run.host.process import ServerUser, find_own_user
from pgdyno.run.link.look import FarLook, look_at
from pgdyno.run.link.relayed import open_load_link
from pgdyno.run.link.ssh import SshLink
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.generator import run_logged_load
from pgdyno.run.load.group import PgbenchGroup
from pgdyno.run.load.host_run import LoadHost, ask_pgbench
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.installation import find_installation
from pgdyno.spec.hosts import HostEntry
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.table import QueryMode
from pgdyno.units import format_cpus

EMPTY_S = 3.0
_ELSEWHERE = "pgdyno-elsewhere"
_REACH_S = 1.0
# On a busy machine nobody may look at the server within the first.
_LONG_REACH_S = 5.0
Hints = Sequence[tuple[str, str]]
"""What to try by a part of what pgbench says; the last one, with an empty part, holds for everything else."""
_REACHES: Hints = (
    ("pg_hba.conf", "let it in there, as the role of --dsn"),
    ("could not translate host name", "name the server by an address that the load host knows, too"),
    ("No such file or directory", "a socket is on one machine only: name the server by an address that both reach"),
    ("", "the server must be reached from there by the same connection string as from here"),
)

_HINT_ELSEWHERE = "an address such as localhost is another machine there: name one that means the same everywhere"


def find_local_pgbench() -> Pgbench:
    """Return the pgbench that loads data and tries scripts of given servers on this machine, as this account.

    Raises:
        HostError: There is none.
    """
    me = find_own_user()
    # The newest pgbench works with servers of all versions, and as this account it needs no copy.
    installation = find_installation(ServerSpec(), user=me, software_dir=Path("/nonexistent"))
    return Pgbench(installation=installation, user=me, libpq=find_libpq())


class ReachedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A load host that is reached by ssh, and what was seen of it."""

    host: LoadHost
    look: FarLook


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """How a load host reaches the server."""

    round_trip_s: float
    """Median of an empty statement."""
    clients: frozenset[str]
    """The IP addresses from which it came to the server, as far as they are known."""


class ReadyLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load hosts that are reached, and that reach the server."""

    hosts: tuple[LoadHostFacts, ...]
    links: Mapping[str, SshLink]
    generator: PgbenchGroup
    clients: frozenset[str] = frozenset()
    """The IP addresses from which they came to the server, as far as they are known."""

    @property
    def least(self) -> HostFacts:
        """The machine with the fewest CPUs, which decides how many threads each pgbench has."""
        return min((host.facts for host in self.hosts), key=lambda facts: facts.usable_cpu_count)

    @property
    def shared(self) -> frozenset[str]:
        """Names of those that are the server's machine, too."""
        return frozenset(host.name for host in self.hosts if host.is_server_host)


def reach_load_hosts(entries: Mapping[str, HostEntry], *, stack: ExitStack, ui: Ui) -> tuple[ReachedHost, ...]:
    """Reach load hosts; `measure_load_hosts` ends the step that this begins.

    Args:
        entries: The load hosts, by name.
        stack: Keeps the connections.
        ui: Shows the progress.

    Raises:
        HostError: A load host is not reached, or has no pgbench of one major version with the others.
        StepFailedError: A load host does not answer.
    """
    ui.begin_step("load hosts", predicted_s=len(entries) * (EMPTY_S + _REACH_S + 1.0))
    found: list[ReachedHost] = []
    for name, entry in entries.items():
        ui.show_activity(f"looking at {name}")
        link = stack.enter_context(open_load_link(entry))
        look, pgbench = look_at(link), ask_pgbench(link, name)
        if found and found[0].host.pgbench.major != pgbench.major:
            raise HostError(
                f"{found[0].host.name} and {name} have different versions of pgbench",
                detail=f"{found[0].host.pgbench.version} and {pgbench.version}",
                hint="one load comes from one version: name it with pgbench = in the [hosts] tables",
            )
        found.append(ReachedHost(host=LoadHost(name=name, link=link, pgbench=pgbench), look=look))
    return tuple(found)


def measure_load_hosts(
    reached: Sequence[ReachedHost],
    way: Address,
    *,
    seen_at: Address,
    hints: Hints = _REACHES,
    clients_each: int,
    place: tuple[str, str] | None,
    local: Pgbench,
    user: ServerUser,
    ui: Ui,
) -> ReadyLoad:
    """Make sure that load hosts reach the server, and time empty statements from each.

    Args:
        reached: From `reach_load_hosts`.
        way: Where load hosts reach the server, in a database that exists.
        seen_at: Where pgdyno itself reaches it.
        hints: What to try if one does not reach it.
        clients_each: The most clients that one of them has.
        place: Boot id and process id namespace of the server's machine, if it is known.
        local: pgbench on this machine.
        user: This account.
        ui: Shows the progress.

    Raises:
        HostError: A load host does not reach the server.
        StepFailedError: A load host or the server does not answer.
    """
    found: list[LoadHostFacts] = []
    came_from: frozenset[str] = frozenset()
    for one in reached:
        host, look, pgbench = one.host, one.look, one.host.pgbench
        alone = PgbenchGroup([host], local, user)
        reach = check_reach(alone, host, way, seen_at=seen_at, hints=hints)
        came_from |= reach.clients
        ui.show_activity(f"timing empty statements from {host.name}")
        threads = max(1, min(clients_each, int(look.facts.usable_cpu_count)))
        found.append(
            LoadHostFacts(
                name=host.name,
                ssh=host.entry.ssh,
                python=look.python,
                boot_id=look.boot_id,
                is_server_host=look.place == place,
                facts=look.facts,
                pgbench=pgbench.program,
                version=pgbench.version,
                empty_tps=_time_empty(alone, host.link, way, clients=clients_each, threads=threads),
                empty_clients=clients_each,
                round_trip_s=reach.round_trip_s,
            )
        )
    ui.end_step("; ".join(_describe(one) for one in found))
    hosts = [one.host for one in reached]
    return ReadyLoad(
        hosts=tuple(found),
        links={host.name: host.link for host in hosts},
        generator=PgbenchGroup(hosts, local, user),
        clients=came_from,
    )


def check_pooler_ways(
    load: ReadyLoad,
    ways: Mapping[str, Address],
    *,
    server: Address,
    hints: Hints = _REACHES,
    ui: Ui,
) -> None:
    """Make sure that each load host reaches the server through each pooler.

    Args:
        load: The load hosts.
        ways: Where poolers are reached, by name, with a database that they know.
        server: Where the server itself is reached.
        hints: What to try if one does not reach it.
        ui: Shows the progress.

    Raises:
        HostError: A load host does not reach a pooler, or another one that leads to another server.
    """
    if not ways:
        return
    with sql.connect(server) as connection:
        started_at = sql.read_start_time(connection)
    text = sql.format_start_check(started_at, _ELSEWHERE)
    hosts = load.generator.hosts.values()
    ui.begin_step("load hosts to poolers", predicted_s=predict_ways_s(len(hosts), len(ways)))
    for host, (name, way) in itertools.product(hosts, ways.items()):
        ui.show_activity(f"from {host.name} through {name}")
        run = _make_run(host.link, way, clients=1, threads=1, duration_s=_REACH_S, text=text)
        try:
            load.generator.alone(host.name).run_load(run, directory=host.link.folder / "pooler")
        except PgdynoError as exc:
            if _ELSEWHERE in exc.reason:
                fact, hint = f"{host.name} reaches another server through the pooler {name}", _HINT_ELSEWHERE
            else:
                fact = f"{host.name} does not reach the server through the pooler {name}"
                hint = next(hint for words, hint in hints if words in exc.reason)
            raise HostError(fact, detail=exc.reason, hint=hint) from exc
    ui.end_step("all lead to the server")


def predict_ways_s(load_hosts: int, ways: int) -> float:
    """Predict the seconds that it takes to try each of so many ways from each load host."""
    return load_hosts * ways * (_REACH_S + 1.0)


def reach_from_each(
    load: ReadyLoad, server: str, way: Address, *, seen_at: Address, hints: Hints = _REACHES, ui: Ui
) -> dict[str, Reach]:
    """Make sure that each load host reaches a standby that it reads from.

    Args:
        load: The load hosts.
        server: What messages call the standby.
        way: Where load hosts reach it, in a database that exists.
        seen_at: Where pgdyno itself reaches it.
        hints: What to try if one does not reach it.
        ui: Shows the progress.

    Returns:
        How each load host reaches it, by name.

    Raises:
        HostError: A load host does not reach it, or reaches another server.
        StepFailedError: A load host or the standby does not answer.
    """
    found = {}
    for name, host in load.generator.hosts.items():
        ui.show_activity(f"from {name} to {server}")
        group = load.generator.alone(name)
        found[name] = check_reach(group, host, way, seen_at=seen_at, hints=hints, server=server)
    return found


def check_same_load(then: Sequence[LoadHostFacts], now: Sequence[LoadHostFacts]) -> None:
    """Raise a HostError unless the load comes from the machines and the pgbench of a record."""
    of_then, of_now = ([_identify(host) for host in hosts] for hosts in (then, now))
    # Older records do not know the cores of an Arm machine.
    if len(then) != len(now) or not all(itertools.starmap(match_known, zip(of_then, of_now, strict=True))):
        raise HostError(
            "the load came from other load hosts, or from another pgbench",
            detail=f"then {of_then}\nnow  {of_now}",
            hint="trials of two machines do not belong in one estimate: begin a new study",
        )


def _identify(host: LoadHostFacts) -> tuple[str | int | None, ...]:
    return host.name, host.facts.host_name, *host.facts.cpu_identity, host.version


def _describe(host: LoadHostFacts) -> str:
    cpus = format_cpus(host.facts.usable_cpu_count)
    return f"{host.name}: pgbench {host.version}, {cpus}, {host.empty_tps:,.0f} empty statements a second"


def check_reach(
    group: PgbenchGroup,
    host: LoadHost,
    way: Address,
    *,
    seen_at: Address | None = None,
    hints: Hints = _REACHES,
    server: str = "the server",
) -> Reach:
    """Run empty statements with one client, and make sure that they come to the same server.

    Args:
        group: Of this host alone.
        host: The load host.
        way: Where load hosts reach the server.
        seen_at: Where pgdyno itself reaches it; None: in the same way.
        hints: What to try if the host does not reach it.
        server: What messages call it.

    Raises:
        HostError: The host does not reach the server, or reaches another one.
        StepFailedError: It gets next to no answers.
    """
    token = f"pgdyno-{uuid.uuid4().hex[:12]}"
    named = msgspec.structs.replace(way, parameters={**way.parameters, "application_name": token})
    seen: set[str] = set()
    with sql.connect(way if seen_at is None else seen_at) as connection:

        def look() -> None:
            seen.update(sql.list_named_clients(connection, token))

        for duration_s in (_REACH_S, _LONG_REACH_S):
            run = _make_run(host.link, named, clients=1, threads=1, duration_s=duration_s)
            folder = host.link.folder / "reach"
            shutil.rmtree(folder, ignore_errors=True)
            try:
                _, log = run_logged_load(group, run, directory=folder, should_abort=look)
            except PgdynoError as exc:
                if isinstance(exc, HostError):
                    raise
                hint = next(hint for words, hint in hints if words in exc.reason)
                raise HostError(f"{host.name} does not reach {server}", detail=exc.reason, hint=hint) from exc
            if seen:
                break
        else:
            raise HostError(
                f"{host.name} reaches another server",
                detail=f"its session was not seen in {server} at {way.host}:{way.port}",
                hint=_HINT_ELSEWHERE,
            )
    # Stale stamps make some of them look as if they took no time: see ADR 6.
    median_us = None if log.summary is None else log.summary.latency().quantile(0.5).value_us
    if median_us is None:
        raise StepFailedError(f"too few empty statements came back to {host.name} in {duration_s:g} s")
    return Reach(round_trip_s=median_us / 1e6, clients=frozenset(seen - {""}))


def _time_empty(group: PgbenchGroup, link: SshLink, address: Address, *, clients: int, threads: int) -> float:
    run = _make_run(link, address, clients=clients, threads=threads, duration_s=EMPTY_S)
    return group.run_load(run, directory=link.folder / "empty").summary.tps or 0.0


def _make_run(
    link: SshLink, address: Address, *, clients: int, threads: int, duration_s: float, text: str = "SELECT;\n"
) -> LoadRun:
    script = Path(link.folder) / "script.sql"
    script.write_text(text, encoding="utf-8")
    return LoadRun(
        address=address,
        scripts=((str(script), 1),),
        mode=QueryMode.SIMPLE,
        clients=clients,
        threads=threads,
        duration_s=duration_s,
        reports_statements=False,
    )
