"""A load generator that replays the outputs of a real pgbench."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from pgdyno.record.pgbench.output import Progress, parse_progress
from pgdyno.record.trial_data import STDERR_FILE, STDOUT_FILE
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.generator import LoadOutcome
from pgdyno.run.load.pgbench import conclude
from pgdyno.run.load.process import INVOCATION_FILE, Invocation, ShouldAbort, ShouldEnd


class ReplayedPgbench(msgspec.Struct, frozen=True, kw_only=True):
    """Repeats at once what a real pgbench printed.

    Attributes:
        source: A folder with the three files that `Pgbench` leaves.
    """

    source: Path

    def run_load(
        self,
        run: LoadRun,
        *,
        directory: Path,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_start: Callable[[int], None] = lambda _: None,
        should_abort: ShouldAbort = lambda: None,
        should_end: ShouldEnd = lambda: False,
    ) -> LoadOutcome:
        """Replay one load; see `LoadGenerator.run_load`."""
        del should_end
        directory.mkdir(parents=True, exist_ok=True)
        for name in (STDOUT_FILE, STDERR_FILE, INVOCATION_FILE):
            shutil.copyfile(self.source / name, directory / name)
        done = msgspec.json.decode((directory / INVOCATION_FILE).read_bytes(), type=Invocation)
        on_start(done.pid)
        for line in (directory / STDERR_FILE).read_bytes().decode(errors="replace").split("\n"):
            if (progress := parse_progress(line)) is not None:
                on_progress(progress)
        return conclude(run, done, directory, should_abort)
