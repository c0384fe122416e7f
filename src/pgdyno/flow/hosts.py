"""`pgdyno hosts`: whether machines are reached by ssh, what they are, and how their clocks differ from this one's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType

from pgdyno.conduct.load.hosts import check_reach, find_local_pgbench
from pgdyno.conduct.ui import Ui
from pgdyno.errors import ExitCode, PgdynoError, SpecError, with_program
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.samples.clock import ClockFit, fit_clock
from pgdyno.record.types import ErrorFact
from pgdyno.report.clock_words import format_offset
from pgdyno.report.format import format_bytes, format_count, format_seconds
from pgdyno.report.forms.plain import Heading, render_headed, render_rows
from pgdyno.run.given.access import open_access
from pgdyno.run.given.conninfo import name_whole_paths, split_hosts
from pgdyno.run.given.replicas import open_ways
from pgdyno.run.host.program import program_name
from pgdyno.run.link.look import FarLook, look_at
from pgdyno.run.link.ssh import SshLink, open_link
from pgdyno.run.load.group import PgbenchGroup
from pgdyno.run.load.host_run import FoundPgbench, LoadHost, ask_pgbench
from pgdyno.run.postgres.address import Address
from pgdyno.spec.hosts import HostEntry, HostRole, make_named_hosts, read_hosts, read_server_dsns
from pgdyno.spec.study import name_replicas

_UNTRIED = (
    "note: The way to the server was not tried: no server of yours is named."
    " One of pgdyno's own listens when the study runs, and each load host must reach it before data are loaded."
)


class HostLine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine; `problem` says why nothing else is known of it."""

    name: str
    ssh: str
    role: HostRole
    python: str | None = None
    boot_id: str | None = None
    """Changes with each boot; equal ones are one machine."""
    facts: HostFacts | None = None
    round_trip_s: float | None = None
    """Median of the exchanges with its clock, through ssh."""
    clock: ClockFit | None = None
    """How far its clock since boot is ahead of this machine's."""
    pgbench: FoundPgbench | None = None
    """Of a load host."""
    reach_s: float | None = None
    """Median time of an empty statement from a load host to the study's server; None without a server."""
    replica_reach_s: tuple[float, ...] = ()
    """The same to each replica of it, in the study's order."""
    problem: ErrorFact | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the machine's row of the table."""
        if self.facts is None or self.clock is None:
            return (self.name, self.role.value, "no link")
        return (
            self.name,
            self.role.value,
            self.facts.host_name or "",
            format_count(self.facts.cpu_count),
            format_bytes(self.facts.memory_bytes),
            self.facts.kernel,
            (self.boot_id or "")[:8],
            self.python or "",
            "" if self.round_trip_s is None else format_seconds(self.round_trip_s),
            format_offset(self.clock),
            *(
                ()
                if self.pgbench is None
                else (self.pgbench.version, format_bytes(self.pgbench.memory_folder_bytes), *self._show_reach())
            ),
        )

    def _show_reach(self) -> tuple[str, ...]:
        return (
            ("not tried",)
            if self.reach_s is None
            else tuple(map(format_seconds, (self.reach_s, *self.replica_reach_s)))
        )


class HostsView(msgspec.Struct, frozen=True, kw_only=True):
    """The machines that were looked at."""

    hosts: tuple[HostLine, ...]

    @property
    def exit_code(self) -> ExitCode:
        """Return PROBLEM_FOUND if one of them is not reached."""
        return ExitCode.PROBLEM_FOUND if any(one.problem for one in self.hosts) else ExitCode.OK

    @property
    def has_loads(self) -> bool:
        """True if one of them is a load host."""
        return any(one.role is HostRole.LOAD for one in self.hosts)

    def to_json(self) -> bytes:
        """Return the machines as JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """Return the machines as a table, with what is wrong below it."""
        whole = (
            "host",
            "role",
            "name there",
            "CPUs",
            "memory",
            "kernel",
            "boot",
            "Python",
            "round trip",
            "clock ahead",
            *(("pgbench", "free in /dev/shm", "to the server") if self.has_loads else ()),
            *(f"to {name}" for name in name_replicas(max((len(one.replica_reach_s) for one in self.hosts), default=0))),
        )
        headings = [Heading(title, is_whole=title == "host") for title in whole]
        rows = [(*line.cells, *[""] * (len(whole) - len(line.cells))) for line in self.hosts]
        problems = [
            (
                f"{line.name}: {line.problem.fact}",
                "\n".join(filter(None, (line.problem.detail, with_program(line.problem.hint, program_name())))),
            )
            for line in self.hosts
            if line.problem is not None
        ]
        is_untried = any(line.pgbench is not None and line.reach_s is None for line in self.hosts)
        notes = [_UNTRIED] if is_untried else []
        return Group(render_rows(headings, rows), *notes, *([render_headed(problems)] if problems else []))


def read_named(named: str) -> Mapping[str, HostEntry]:
    """Return the machines of a hosts file or a study, or the machine that is named as for ssh.

    Raises:
        SpecError: The file cannot be used, or the name is no ssh destination.
    """
    if Path(named).is_file() or named.endswith(".toml"):
        hosts = read_hosts(Path(named))
        if not hosts:
            raise SpecError(f"{named} names no machine", hint="a study names them in [hosts.NAME], with role and ssh")
        return hosts
    return make_named_hosts(named)


def find_dsns(named: str) -> tuple[str, ...]:
    """Return the connection strings of the server of a study and of its replicas, to which its load hosts must find their way."""
    path = Path(named)
    dsns = read_server_dsns(path) if path.is_file() else ()
    return tuple(name_whole_paths(dsn, path.parent, of=f"what {path} names") for dsn in dsns)


def view_hosts(hosts: Mapping[str, HostEntry], *, dsns: Sequence[str] = (), ui: Ui) -> HostsView:
    """Look at machines one after the other; one that is not reached stops nothing.

    Args:
        hosts: The machines, by name.
        dsns: The server that load hosts must reach, and then its replicas; empty: no way is tried.
        ui: Shows the progress.

    Raises:
        SpecError, StepFailedError: One of them is not reached from here.
    """
    if dsns and any(entry.role is HostRole.LOAD for entry in hosts.values()):
        replicas = [one for dsn in dsns[1:] for one in split_hosts(dsn)]
        with open_access(dsns[0]) as address, open_ways(replicas, address) as ways:
            return _view(hosts, {"the server": address, **ways}, ui)
    return _view(hosts, {}, ui)


def _view(hosts: Mapping[str, HostEntry], ways: Mapping[str, Address], ui: Ui) -> HostsView:
    lines = []
    for name, entry in hosts.items():
        ui.show_activity(f"looking at {name}")
        try:
            with open_link(entry) as link:
                line = _describe(name, entry, look_at(link))
                lines.append(_look_at_load(line, link, ways) if entry.role is HostRole.LOAD else line)
        except PgdynoError as error:
            problem = ErrorFact(fact=error.fact.removeprefix(f"{name}: "), detail=error.detail, hint=error.hint)
            lines.append(HostLine(name=name, ssh=entry.ssh, role=entry.role, problem=problem))
    return HostsView(hosts=tuple(lines))


def _look_at_load(line: HostLine, link: SshLink, ways: Mapping[str, Address]) -> HostLine:
    line = msgspec.structs.replace(line, pgbench=(pgbench := ask_pgbench(link, line.name)))
    if not ways:
        return line
    host, local = LoadHost(name=line.name, link=link, pgbench=pgbench), find_local_pgbench()
    group = PgbenchGroup([host], local, local.user)
    reach_s, *others = (check_reach(group, host, way, server=name).round_trip_s for name, way in ways.items())
    return msgspec.structs.replace(line, reach_s=reach_s, replica_reach_s=tuple(others))


def _describe(name: str, entry: HostEntry, look: FarLook) -> HostLine:
    return HostLine(
        name=name,
        ssh=entry.ssh,
        role=entry.role,
        python=look.python,
        boot_id=look.boot_id,
        facts=look.facts,
        round_trip_s=statistics.median(one.round_trip_s for one in look.exchanges),
        clock=fit_clock(look.exchanges),
    )
