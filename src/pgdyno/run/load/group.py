"""Make one load from load hosts: the clients of all are connected, and then let go at one instant.

Each host has its share of the clients, and of a scheduled rate; of a load in parts, its share of each, made by a pgbench of its
own. Their files are kept pgbench by pgbench, with the times of each host's own clock. When one pgbench fails, all end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import StepFailedError
from pgdyno.record.generators.merge import merge_progress
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import LOADS_DIR, find_clock_offset_s, find_window_s
from pgdyno.record.pgbench.failure import is_client_abort
from pgdyno.record.pgbench.output import Progress, parse_progress
from pgdyno.record.samples.clock import fit_clock
from pgdyno.record.trial_data import STDERR_FILE, STDOUT_FILE
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.process import ServerUser
from pgdyno.run.link.boot import ENDS_WITHIN_S
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.generator import RunningLoad
from pgdyno.run.load.host_run import CONNECTS_WITHIN_S, HostRun, LoadHost
from pgdyno.run.load.joined import JoinedOutcome, JoinedPgbenches, join_outcome, share_clients, step_seed
from pgdyno.run.load.part_run import PartRun
from pgdyno.run.load.pgbench import Pgbench, load_failure
from pgdyno.run.load.process import ShouldAbort

FRAMED_LOG = "framed"
# The word reaches every host before the instant that it names.
_RELEASE_AFTER_S = 0.05
# A last exchange with a clock that does not answer takes 5 s of it.
_ENDS_WITHIN_S = 5.0 + ENDS_WITHIN_S


class PgbenchGroup(JoinedPgbenches):
    """Makes loads from load hosts; implements `LoadGenerator`. Use it from the main thread.

    Args:
        hosts: The load hosts.
        local: What is not a load runs with it, on this machine.
        user: This account.
        parts: What each of several pgbenches on a host does; empty: there is one on each.
    """

    def __init__(
        self, hosts: Sequence[LoadHost], local: Pgbench, user: ServerUser, parts: Sequence[PartRun] = ()
    ) -> None:
        named = [(_name_folder(host, part), part) for part in parts or (None,) for host in hosts]
        super().__init__(
            local,
            [name for name, _ in named],
            user=user,
            is_framed=True,
            lagging=[name for name, part in named if part is not None and part.rate_tps is not None],
        )
        self._hosts = tuple(hosts)
        self._parts = tuple(parts)
        self._pids: dict[str, tuple[int, ...]] = {}

    def beside(self, local: Pgbench) -> PgbenchGroup:
        """Return the same load hosts beside another pgbench on this machine."""
        return PgbenchGroup(self._hosts, local, self._user)

    def alone(self, name: str) -> PgbenchGroup:
        """Return one of the load hosts, without the others."""
        return PgbenchGroup([self.hosts[name]], self._local, self._user)

    def in_parts(self, parts: Sequence[PartRun]) -> PgbenchGroup:
        """Return the same load hosts for a load in parts, of which each host makes its share."""
        return PgbenchGroup(self._hosts, self._local, self._user, parts)

    @property
    def hosts(self) -> Mapping[str, LoadHost]:
        """The load hosts, by name."""
        return {host.name: host for host in self._hosts}

    @property
    def far_pids(self) -> Mapping[str, tuple[int, ...]]:
        """The process ids of the running pgbenches, by load host."""
        return self._pids

    @contextlib.contextmanager
    def start_load(
        self,
        run: LoadRun,
        *,
        directory: Path,
        on_progress: Callable[[Progress], None] = lambda _: None,
        should_abort: ShouldAbort = lambda: None,
    ) -> Iterator[RunningLoad]:
        """Begin one load; see `LoadGenerator`."""
        with contextlib.ExitStack() as stack:
            members: list[HostRun] = []
            stack.callback(_close, members)
            for number, (host, part, share) in enumerate(self._share(run)):
                folder = _name_folder(host, part)
                prefix = self._find_prefix(run, folder)
                log = None if prefix is None else prefix.with_name(FRAMED_LOG)
                # Each draws random numbers of its own.
                own = msgspec.structs.replace(share, random_seed=step_seed(run.random_seed, number))
                member = HostRun(host, own, directory / LOADS_DIR / folder, log=log, part=part)
                members.append(member)
            load = _GroupLoad(members, on_progress, should_abort)
            load.release()
            if run.log_prefix is not None:
                for member in members:
                    self._logs[run.log_prefix].add_notes(member.name, member.notes)
            for member in members:
                if member.pid is not None:
                    self._pids[member.host.name] = (*self._pids.get(member.host.name, ()), member.pid)
            stack.callback(self._pids.clear)
            yield load

    def _share(self, run: LoadRun) -> Iterator[tuple[LoadHost, PartRun | None, LoadRun]]:
        """Yield what each pgbench does.

        Clients are dealt to hosts part after part: no host has more than one client more than another.
        """
        hosts, dealt = self._hosts[: run.load_hosts], 0
        for part in self._parts or (None,):
            whole = run if part is None else part.aim(run)
            for place, share in share_load(whole, len(hosts), first=dealt % len(hosts)):
                yield hosts[place], part, share
            dealt += whole.clients


class _GroupLoad:
    """A load that runs on load hosts; implements `RunningLoad`."""

    def __init__(
        self, members: Sequence[HostRun], on_progress: Callable[[Progress], None], should_abort: ShouldAbort
    ) -> None:
        self._members = members
        self._on_progress = on_progress
        self._should_abort = should_abort
        self._rests = [""] * len(members)
        self._seconds: list[list[Progress]] = [[] for _ in members]
        self._outcome: JoinedOutcome | None = None

    @property
    def pid(self) -> int:
        """The process id of the first pgbench, on its machine."""
        return self._members[0].pid or 0

    def release(self) -> None:
        """Wait until all clients are connected, and let all go at one instant.

        Raises:
            StepFailedError: A pgbench failed before, or connects too slowly.
        """
        for member in self._members:
            member.begin()
        deadline_s = monotonic_s() + CONNECTS_WITHIN_S
        while not all(member.is_connected and member.exchanges for member in self._members):
            self._take()
            if monotonic_s() > deadline_s:
                late = ", ".join(member.name for member in self._members if not member.is_connected)
                raise StepFailedError(f"the clients of {late} did not connect within {CONNECTS_WITHIN_S:g} s")
            for member in self._members:
                if not member.is_connected:
                    member.wait()
        release_s = monotonic_s() + _RELEASE_AFTER_S + max(member.round_trip_s for member in self._members)
        for member in self._members:
            member.release(release_s)
        # Files may take their time once the word is on its way to all hosts.
        for member in self._members:
            member.note_release()

    def poll(self) -> JoinedOutcome | None:
        """Take what has come; return the outcome once all have ended."""
        if self._outcome is not None:
            return self._outcome
        self._take()
        if not all(member.is_done for member in self._members):
            return None
        parts = _close(self._members)
        if len(parts) < len(self._members):
            raise RuntimeError("a pgbench that has ended was started")
        self._outcome = _conclude(self._members, parts)
        return self._outcome

    def end(self) -> None:
        """End all in order; see `Running`."""
        for member in self._members:
            member.end()

    def _take(self) -> None:
        for number, member in enumerate(self._members):
            if member.is_done:
                continue
            *lines, self._rests[number] = (self._rests[number] + member.poll()).split("\n")
            seconds = [second for line in lines if (second := parse_progress(line)) is not None]
            self._seconds[number] += seconds
            if member.exit_code != 0 or any(is_client_abort(line) for line in lines):
                error = load_failure(member.run, (member.directory / STDERR_FILE).read_bytes(), member.exit_code)
                error.fact = f"{member.name}: {error.fact}"
                raise self._should_abort() or error
        while all(self._seconds):
            self._on_progress(merge_progress([seconds.pop(0) for seconds in self._seconds]))


def _close(members: Sequence[HostRun]) -> list[LoadPart]:
    """End all at the same time, and return the parts of those that were started."""
    by_s = monotonic_s() + _ENDS_WITHIN_S
    with contextlib.ExitStack() as stack:
        for member in members:
            member.begin_close(by_s)
            # Each is closed, whatever becomes of the others.
            stack.callback(member.close)
    return [part for member in members if (part := member.close()) is not None]


def share_load(run: LoadRun, count: int, *, first: int = 0) -> tuple[tuple[int, LoadRun], ...]:
    """Divide a load among hosts as evenly as clients can be; fewer hosts take part than there are if it has fewer clients.

    Args:
        run: The load.
        count: The number of hosts.
        first: The place of the host that gets the first client.

    Returns:
        The places of hosts that take part, and the load of each.
    """
    shares = {(first + place) % count: n for place, n in enumerate(share_clients(run.clients, count))}
    return tuple(
        (
            place,
            msgspec.structs.replace(
                run,
                clients=n,
                threads=min(run.threads, n),
                rate_tps=None if run.rate_tps is None else run.rate_tps * n / run.clients,
            ),
        )
        for place, n in sorted(shares.items())
    )


def _name_folder(host: LoadHost, part: PartRun | None) -> str:
    """Name the folder of a pgbench in the record. No host's name has the sign between: its own folder has its samples."""
    return host.name if part is None else f"{part.name}+{host.name}"


def _conclude(members: Sequence[HostRun], parts: Sequence[LoadPart]) -> JoinedOutcome:
    clock_offset_s = find_clock_offset_s(parts[0], fit_clock(members[0].exchanges))
    pairs = [(part, member.exchanges) for part, member in zip(parts, members, strict=True)]
    start_s, end_s = find_window_s(pairs)
    stdouts = [(member.directory / STDOUT_FILE).read_bytes() for member in members]
    return join_outcome(parts, stdouts, start_s=start_s, end_s=end_s, clock_offset_s=clock_offset_s)
