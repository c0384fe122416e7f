"""What loads of several pgbenches have in common, wherever these run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.record.generators.merge import merge_load
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import LOADS_DIR
from pgdyno.record.pgbench.output import PgbenchSummary, parse_summary
from pgdyno.run.host.process import ServerUser
from pgdyno.run.load.argv import InitRun, LoadRun
from pgdyno.run.load.generator import InitOutcome, LoadOutcome, RunsOneLoad
from pgdyno.run.load.log_stream import LogOutcome, LogRequest, LogStream, start_log_streams
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.load.process import ShouldAbort
from pgdyno.run.postgres.address import Address
from pgdyno.units import sum_if_known

_SEED_STEP = 7919


class JoinedOutcome(LoadOutcome, frozen=True, kw_only=True):
    """A load by several pgbenches that ran to its end. Its times are of this machine, while all of them ran."""

    stdouts: tuple[bytes, ...]

    @property
    def summary(self) -> PgbenchSummary:
        """What the pgbenches printed, merged."""
        printed = [parse_summary(stdout.decode(errors="replace")) for stdout in self.stdouts]
        return merge_load(list(zip(self.parts, printed, strict=True)))


class JoinedLog:
    """The transaction logs of all pgbenches of a load; like a `LogStream`."""

    def __init__(self, streams: Mapping[str, LogStream]) -> None:
        self._streams = streams
        self._notes: list[str] = []

    @property
    def log_prefix(self) -> Path:
        """Return where the first log lies; load hosts choose places of their own."""
        return next(iter(self._streams.values())).log_prefix

    @property
    def pid(self) -> int:
        """Return the process id of the reader."""
        return next(iter(self._streams.values())).pid

    def find_prefix(self, name: str) -> Path:
        """Return where the log of a load host, or of a part on this machine, is read."""
        return self._streams[name].log_prefix

    def add_notes(self, name: str, notes: Sequence[str]) -> None:
        """Add what a load host says of its log."""
        self._notes += (f"{name}: {note}" for note in notes)

    def poll(self) -> bool:
        """Return whether the reader lives; if it does not, empty the logs."""
        lives = [stream.poll() for stream in self._streams.values()]
        return all(lives)

    def finish(self) -> LogOutcome:
        """Finish all logs; return what is said of the first of them that failed, else of the first one."""
        outcomes = {name: stream.finish() for name, stream in self._streams.items()}
        failed = {name: one for name, one in outcomes.items() if one.reason is not None or one.packed is None}
        name, outcome = next(iter((failed or outcomes).items()))
        reason = None if outcome.reason is None else f"{_name_pgbench(name)}: {outcome.reason}"
        notes = [note for one in outcomes.values() for note in one.notes]
        return msgspec.structs.replace(outcome, reason=reason, notes=tuple(dict.fromkeys([*notes, *self._notes])))

    def close(self) -> None:
        """Stop the reader and delete the logs."""
        for stream in self._streams.values():
            stream.close()


def _name_pgbench(folder: str) -> str:
    """Name a pgbench as its errors do: that of a part on a load host is in the folder `PART+HOST`."""
    return folder.replace("+", " on ")


class JoinedPgbenches(RunsOneLoad):
    """Makes loads by several pgbenches; a base of load generators. Use it from the main thread.

    Args:
        local: What is not a load runs with it, on this machine.
        names: Of the load hosts, or of the parts on this machine: each has a folder of that name in the record.
        user: The account that writes the logs on this machine.
        is_framed: Whether the logs come from load hosts.
        lagging: Names of those that alone have a rate, whose logs have the schedule lag.
    """

    def __init__(
        self,
        local: Pgbench,
        names: Sequence[str],
        *,
        user: ServerUser,
        is_framed: bool,
        lagging: Collection[str] = (),
    ) -> None:
        self._local = local
        self._names = tuple(names)
        self._user = user
        self._is_framed = is_framed
        self._lagging = frozenset(lagging)
        self._logs: dict[Path, JoinedLog] = {}

    def start_logs(self, directories: Sequence[Path], asked: LogRequest) -> tuple[JoinedLog, ...]:
        """Start to follow the transaction logs of loads to come; see `LoadGenerator`."""
        lagging = msgspec.structs.replace(asked, columns=asked.columns.with_lag)
        wanted = {
            directory.parent / LOADS_DIR / name / directory.name: lagging if name in self._lagging else asked
            for directory in directories
            for name in self._names
        }
        streams = iter(start_log_streams(wanted, user=self._user, is_framed=self._is_framed, is_held=True))
        logs = tuple(JoinedLog({name: next(streams) for name in self._names}) for _ in directories)
        self._logs = {log.log_prefix: log for log in logs}
        return logs

    def _find_prefix(self, run: LoadRun, name: str) -> Path | None:
        """Return where the log of one pgbench of a load is read; None if the load has no log."""
        return None if run.log_prefix is None else self._logs[run.log_prefix].find_prefix(name)

    def run_init(
        self,
        run: InitRun,
        *,
        directory: Path,
        on_activity: Callable[[str], None] = lambda _: None,
        on_start: Callable[[int], None] = lambda _: None,
        should_abort: ShouldAbort = lambda: None,
    ) -> InitOutcome:
        """Load pgbench's tables by one pgbench, from this machine; see `LoadGenerator`."""
        return self._local.run_init(
            run, directory=directory, on_activity=on_activity, on_start=on_start, should_abort=should_abort
        )

    def ask(self, options: Sequence[str], *, script: str = "", address: Address | None = None) -> str:
        """Run pgbench on this machine for what it prints on stderr; see `LoadGenerator`."""
        return self._local.ask(options, script=script, address=address)


def share_clients(clients: int, count: int) -> tuple[int, ...]:
    """Divide clients among so many places as evenly as they can be; fewer places get some if there are fewer clients."""
    each, more = divmod(clients, count)
    return tuple(n for n in (each + (place < more) for place in range(count)) if n)


def step_seed(seed: int | None, place: int) -> int | None:
    """Return the seed of one of several pgbenches, which each draw random numbers of their own; None without a seed."""
    return None if seed is None else (seed + _SEED_STEP * place) % (1 << 32)


def join_outcome(
    parts: Sequence[LoadPart], stdouts: Sequence[bytes], *, start_s: float, end_s: float, clock_offset_s: float
) -> JoinedOutcome:
    """Return the outcome of a load whose pgbenches have all ended.

    Args:
        parts: Of all pgbenches.
        stdouts: What each of them printed.
        start_s: When all of them had begun, on this machine's clock.
        end_s: When the first of them ended.
        clock_offset_s: From this machine's CLOCK_MONOTONIC to the stamps of the first one's transactions.
    """
    return JoinedOutcome(
        argv=parts[0].argv,
        pid=parts[0].pid,
        exit_code=0,
        start_monotonic_s=start_s,
        end_monotonic_s=end_s,
        cpu_s=sum_if_known([part.cpu_s for part in parts]),
        stdout=b"",
        clock_offset_s=clock_offset_s,
        parts=tuple(parts),
        stdouts=tuple(stdouts),
    )
