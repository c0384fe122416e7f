"""What loads of several pgbenches have in common, wherever these run."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from pgdyno.record.pgbench.output import Progress
from pgdyno.run.load.argv import InitRun, LoadRun
from pgdyno.run.load.generator import InitOutcome, LoadOutcome, RunningLoad
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.load.process import ShouldAbort, ShouldEnd, poll_until_done
from pgdyno.run.postgres.address import Address


class JoinedPgbenches(abc.ABC):
    """Makes loads by several pgbenches. Use it from the main thread.

    Args:
        local: What is not a load runs with it, on this machine.
    """

    def __init__(self, local: Pgbench) -> None:
        self._local = local

    @abc.abstractmethod
    def start_load(
        self,
        run: LoadRun,
        *,
        directory: Path,
        on_progress: Callable[[Progress], None] = lambda _: None,
        should_abort: ShouldAbort = lambda: None,
    ) -> AbstractContextManager[RunningLoad]:
        """Begin one load; see `LoadGenerator`."""

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
        """Make one load; see `LoadGenerator`."""
        with self.start_load(run, directory=directory, on_progress=on_progress, should_abort=should_abort) as load:
            on_start(load.pid)
            return poll_until_done(load, should_abort=should_abort, should_end=should_end)

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
