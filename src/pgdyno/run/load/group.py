"""Make one load from load hosts: the clients of all are connected, and then let go at one instant.

Each host has its share of the clients, and of a scheduled rate. Their files are kept host by host, with the times of each
host's own clock. When one pgbench fails, all end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import StepFailedError
from pgdyno.record.generators.merge import merge_load, merge_progress
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import LOADS_DIR, find_clock_offset_s, find_window_s
from pgdyno.record.pgbench.failure import is_client_abort
from pgdyno.record.pgbench.output import PgbenchSummary, Progress, parse_progress, parse_summary
from pgdyno.record.samples.clock import fit_clock
from pgdyno.record.transactions.parse import LogColumns
from pgdyno.record.trial_data import STDERR_FILE, STDOUT_FILE
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.process import ServerUser
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.far_run import CONNECTS_WITHIN_S, FarRun, LoadHost
from pgdyno.run.load.generator import LoadOutcome, RunningLoad
from pgdyno.run.load.joined import JoinedPgbenches
from pgdyno.run.load.log_stream import LogOutcome, LogStream, start_log_stream
from pgdyno.run.load.pgbench import Pgbench, load_failure
from pgdyno.run.load.process import ShouldAbort

FRAMED_LOG = "framed"
# The word reaches every host before the instant that it names.
_RELEASE_AFTER_S = 0.05


class GroupOutcome(LoadOutcome, frozen=True, kw_only=True):
    """A load from load hosts that ran to its end. Its times are of this machine, while all hosts ran."""

    stdouts: tuple[bytes, ...]

    @property
    def summary(self) -> PgbenchSummary:
        """What the pgbenches printed, merged."""
        printed = [parse_summary(stdout.decode(errors="replace")) for stdout in self.stdouts]
        return merge_load(list(zip(self.parts, printed, strict=True)))


class GroupLog:
    """The transaction logs of all hosts; like a `LogStream`."""

    def __init__(self, streams: Mapping[str, LogStream]) -> None:
        self._streams = streams

    @property
    def log_prefix(self) -> Path:
        """Return where the first log lies; load hosts choose places of their own."""
        return next(iter(self._streams.values())).log_prefix

    @property
    def pid(self) -> int:
        """Return the process id of the first reader."""
        return next(iter(self._streams.values())).pid

    def find_file(self, host: str) -> Path:
        """Return the file that gets the log of a host."""
        return self._streams[host].log_prefix.with_name(FRAMED_LOG)

    def poll(self) -> bool:
        """Return whether all readers live; empty the log of one that does not."""
        lives = [stream.poll() for stream in self._streams.values()]
        return all(lives)

    def finish(self) -> LogOutcome:
        """Finish all readers; return what the first of them says that failed, else what the first one says."""
        outcomes = {name: stream.finish() for name, stream in self._streams.items()}
        failed = {name: one for name, one in outcomes.items() if one.reason is not None or one.packed is None}
        name, outcome = next(iter((failed or outcomes).items()))
        reason = None if outcome.reason is None else f"{name}: {outcome.reason}"
        notes = tuple(dict.fromkeys(note for one in outcomes.values() for note in one.notes))
        return msgspec.structs.replace(outcome, reason=reason, notes=notes)

    def close(self) -> None:
        """Stop all readers and delete the logs."""
        for stream in self._streams.values():
            stream.close()


class PgbenchGroup(JoinedPgbenches):
    """Makes loads from load hosts; implements `LoadGenerator`. Use it from the main thread.

    Args:
        hosts: The load hosts.
        local: What is not a load runs with it, on this machine.
        user: This account.
    """

    def __init__(self, hosts: Sequence[LoadHost], local: Pgbench, user: ServerUser) -> None:
        self._hosts = tuple(hosts)
        super().__init__(local)
        self._user = user
        self._log: GroupLog | None = None
        self._pids: dict[str, int] = {}

    @property
    def hosts(self) -> Mapping[str, LoadHost]:
        """The load hosts, by name."""
        return {host.name: host for host in self._hosts}

    @property
    def far_pids(self) -> Mapping[str, int]:
        """The process ids of the running pgbenches, by load host."""
        return self._pids

    @property
    def part_pids(self) -> tuple[int, ...]:
        """None: no load of it is in parts on this machine."""
        return ()

    def start_log(
        self,
        directory: Path,
        *,
        columns: LogColumns,
        sampling_rate: float,
        latency_limit_us: int | None,
        flush_period_s: float | None,
    ) -> GroupLog:
        """Start to follow the transaction logs of the next load; see `LoadGenerator`."""
        with contextlib.ExitStack() as stack:
            streams = {}
            for host in self._hosts:
                streams[host.name] = stack.enter_context(
                    contextlib.closing(
                        start_log_stream(
                            directory.parent / LOADS_DIR / host.name / directory.name,
                            user=self._user,
                            columns=columns,
                            sampling_rate=sampling_rate,
                            latency_limit_us=latency_limit_us,
                            flush_period_s=flush_period_s,
                            is_framed=True,
                        )
                    )
                )
            stack.pop_all()
        self._log = GroupLog(streams)
        return self._log

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
            members = []
            for host, share in zip(self._hosts, share_load(run, len(self._hosts)), strict=False):
                log = None if run.log_prefix is None or self._log is None else self._log.find_file(host.name)
                member = FarRun(host, share, directory / LOADS_DIR / host.name, log=log)
                stack.callback(member.close)
                members.append(member)
            load = _GroupLoad(members, on_progress, should_abort)
            load.release()
            self._pids = {member.host.name: member.pid for member in members if member.pid is not None}
            stack.callback(self._pids.clear)
            yield load


class _GroupLoad:
    """A load that runs on load hosts; implements `RunningLoad`."""

    def __init__(
        self, members: Sequence[FarRun], on_progress: Callable[[Progress], None], should_abort: ShouldAbort
    ) -> None:
        self._members = members
        self._on_progress = on_progress
        self._should_abort = should_abort
        self._rests = [""] * len(members)
        self._seconds: list[list[Progress]] = [[] for _ in members]
        self._outcome: GroupOutcome | None = None

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
                late = ", ".join(member.host.name for member in self._members if not member.is_connected)
                raise StepFailedError(f"the clients of {late} did not connect within {CONNECTS_WITHIN_S:g} s")
            for member in self._members:
                if not member.is_connected:
                    member.wait()
        release_s = monotonic_s() + _RELEASE_AFTER_S + max(member.round_trip_s for member in self._members)
        for member in self._members:
            member.release(release_s)

    def poll(self) -> GroupOutcome | None:
        """Take what has come; return the outcome once all have ended."""
        if self._outcome is not None:
            return self._outcome
        self._take()
        if not all(member.is_done for member in self._members):
            return None
        parts = []
        for member in self._members:
            if (part := member.close()) is None:
                raise RuntimeError("a pgbench that has ended was started")
            parts.append(part)
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
                error.fact = f"{member.host.name}: {error.fact}"
                raise self._should_abort() or error
        while all(self._seconds):
            self._on_progress(merge_progress([seconds.pop(0) for seconds in self._seconds]))


def share_load(run: LoadRun, count: int) -> tuple[LoadRun, ...]:
    """Divide a load among hosts as evenly as clients can be; fewer hosts take part than there are if it has fewer clients.

    Each draws random numbers of its own.
    """
    each, more = divmod(run.clients, count)
    clients = [n for n in (each + (place < more) for place in range(count)) if n]
    return tuple(
        msgspec.structs.replace(
            run,
            clients=n,
            threads=min(run.threads, n),
            rate_tps=None if run.rate_tps is None else run.rate_tps * n / run.clients,
            random_seed=None if run.random_seed is None else (run.random_seed + 7919 * place) % (1 << 32),
        )
        for place, n in enumerate(clients)
    )


def _conclude(members: Sequence[FarRun], parts: Sequence[LoadPart]) -> GroupOutcome:
    clock_offset_s = find_clock_offset_s(parts[0], fit_clock(members[0].exchanges))
    pairs = [(part, member.exchanges) for part, member in zip(parts, members, strict=True)]
    start_s, end_s = find_window_s(pairs)
    spent = [part.cpu_s for part in parts]
    return GroupOutcome(
        argv=parts[0].argv,
        pid=parts[0].pid,
        exit_code=0,
        start_monotonic_s=start_s,
        end_monotonic_s=end_s,
        cpu_s=None if None in spent else sum(filter(None, spent)),
        stdout=b"",
        stderr=b"",
        clock_offset_s=clock_offset_s,
        parts=tuple(parts),
        stdouts=tuple((member.directory / STDOUT_FILE).read_bytes() for member in members),
    )
