"""The protocol of a load generator, the program that makes a trial's load."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from pgdyno.record.generators.part import LoadPart
from pgdyno.record.pgbench.output import PgbenchSummary, Progress, parse_summary
from pgdyno.record.transactions.pack import TRANSACTIONS_DIR
from pgdyno.run.load.argv import InitRun, LoadRun
from pgdyno.run.load.log_stream import LogOutcome, LogRequest
from pgdyno.run.load.process import Invocation, Running, ShouldAbort, ShouldEnd, poll_until_done
from pgdyno.run.postgres.address import Address


class LoadOutcome(Invocation, frozen=True, kw_only=True):
    """A load that ran to its end."""

    stdout: bytes
    parts: tuple[LoadPart, ...] = ()
    """Of each load host, or each part on this machine; empty if one pgbench ran on this machine."""
    clock_offset_s: float | None = None
    """From this machine's CLOCK_MONOTONIC to the stamps of the transactions; None if pgbench ran on this machine."""

    @property
    def summary(self) -> PgbenchSummary:
        """The summary that pgbench printed."""
        return parse_summary(self.stdout.decode(errors="replace"))


class InitOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of loading data, with the seconds of pgbench's steps under pgbench's names."""

    invocation: Invocation
    total_s: float
    steps_s: dict[str, float]

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line."""
        return self.invocation.argv


class RunningLoad(Running[LoadOutcome], Protocol):
    """A load that has been started. Its `poll` raises StepFailedError if pgbench or a client of it has failed."""

    @property
    def pid(self) -> int:
        """The process id of pgbench."""
        ...


class TransactionLog(Protocol):
    """The transaction log of a load, which is followed; see `LogStream`."""

    @property
    def log_prefix(self) -> Path:
        """The value of pgbench's `--log-prefix`."""
        ...

    @property
    def pid(self) -> int:
        """The reader's process id."""
        ...

    def poll(self) -> bool:
        """Return whether the reader lives; if it does not, empty the log."""
        ...

    def finish(self) -> LogOutcome:
        """Let the reader take the rest, stop it and delete the log."""
        ...

    def close(self) -> None:
        """Stop the reader if it still runs, and delete the log."""
        ...


class LoadGenerator(Protocol):
    """Makes a load and keeps its transactions."""

    @property
    def far_pids(self) -> Mapping[str, tuple[int, ...]]:
        """The process ids of the running pgbenches by load host; none if pgbench runs on this machine."""
        ...

    @property
    def part_pids(self) -> tuple[int, ...]:
        """The process ids of the running pgbenches of a load in parts on this machine; none of any other load."""
        ...

    def start_logs(self, directories: Sequence[Path], asked: LogRequest) -> tuple[TransactionLog, ...]:
        """Start to follow the transaction logs of loads to come with one reader; see `start_log_streams`.

        Args:
            directories: For the packed transactions of each load.
            asked: What each of them logs.
        """
        ...

    def run_load(
        self,
        run: LoadRun,
        *,
        directory: Path,
        on_progress: Callable[[Progress], None],
        on_start: Callable[[int], None],
        should_abort: ShouldAbort,
        should_end: ShouldEnd,
    ) -> LoadOutcome:
        """Make one load and keep what pgbench says in `directory`.

        Args:
            run: What to run.
            directory: Made if missing; gets both outputs, `pgbench.json` and copies of the script files.
            on_progress: Told every progress line.
            on_start: Told pgbench's process id as soon as it has one.
            should_abort: Asked four times a second; the error it returns ends the load at once and is raised.
            should_end: Asked as often; True ends the load in order before its time. Not to be said before the first
                progress line.

        Raises:
            SpecError: A script file cannot be read.
            StepFailedError: pgbench failed, or a client of it; `detail` has its own words.
            PgdynoError: What `should_abort` returned.
        """
        ...

    def start_load(
        self,
        run: LoadRun,
        *,
        directory: Path,
        on_progress: Callable[[Progress], None],
        should_abort: ShouldAbort,
    ) -> AbstractContextManager[RunningLoad]:
        """Begin one load and end it with the `with` block at the latest, so that several can run at once.

        Args:
            run: What to run.
            directory: As in `run_load`.
            on_progress: Told every progress line, within `poll`.
            should_abort: Asked when pgbench has failed; an error that it returns is raised in the failure's place.

        Raises:
            SpecError: A script file cannot be read.
            HostError: pgbench cannot be started.
        """
        ...

    def run_init(
        self,
        run: InitRun,
        *,
        directory: Path,
        on_activity: Callable[[str], None],
        on_start: Callable[[int], None],
        should_abort: ShouldAbort,
    ) -> InitOutcome:
        """Load pgbench's tables.

        Args:
            run: The data to load.
            directory: Made if missing; gets both outputs and `pgbench.json`.
            on_activity: Called with the present step, and the percentage of rows sent if pgbench reports it.
            on_start: Told pgbench's process id as soon as it has one.
            should_abort: As in `run_load`.

        Raises:
            StepFailedError: pgbench failed; `detail` has its own words. Or a file cannot be written.
            PgdynoError: What `should_abort` returned.
        """
        ...

    def ask(self, options: Sequence[str], *, script: str = "", address: Address | None = None) -> str:
        """Run pgbench for what it prints on stderr, whatever its exit code.

        Args:
            options: Its options but those of the connection.
            script: Its standard input.
            address: Where it connects; None: nowhere.

        Raises:
            HostError: pgbench cannot be started.
            StepFailedError: It did not end in time.
        """
        ...


class RunsOneLoad:
    """Makes a load by beginning it and waiting for its end; a base of load generators."""

    __slots__ = ()

    @property
    def far_pids(self) -> Mapping[str, tuple[int, ...]]:
        """Return no process ids: pgbench runs on this machine."""
        return {}

    @property
    def part_pids(self) -> tuple[int, ...]:
        """Return no process ids: no load of it is in parts on this machine."""
        return ()

    def run_load(
        self: LoadGenerator,
        run: LoadRun,
        *,
        directory: Path,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_start: Callable[[int], None] = lambda _: None,
        should_abort: ShouldAbort = lambda: None,
        should_end: ShouldEnd = lambda: False,
    ) -> LoadOutcome:
        """Make one load; see `LoadGenerator`."""
        with self.start_load(run, directory=directory, on_progress=on_progress, should_abort=should_abort) as load:
            on_start(load.pid)
            return poll_until_done(load, should_abort=should_abort, should_end=should_end)


def run_logged_load(
    generator: LoadGenerator,
    run: LoadRun,
    *,
    directory: Path,
    should_abort: ShouldAbort = lambda: None,
) -> tuple[LoadOutcome, LogOutcome]:
    """Make one load of which each transaction is logged, and keep its log in `directory`, too; raises as `run_load`."""
    (log,) = generator.start_logs([directory / TRANSACTIONS_DIR], LogRequest())
    with contextlib.closing(log):
        outcome = generator.run_load(
            msgspec.structs.replace(run, log_prefix=log.log_prefix),
            directory=directory,
            on_progress=lambda _: None,
            on_start=lambda _: None,
            should_abort=should_abort,
            should_end=lambda: False,
        )
        return outcome, log.finish()
