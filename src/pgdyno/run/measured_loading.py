"""Load the data as the measured load of a trial: one `pgbench -i` into an empty database, with samplers beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pgdyno.record.types import Gap
from pgdyno.run.host.clock import monotonic_s, wall_clock_offset_s
from pgdyno.run.load.argv import make_init_run
from pgdyno.run.load.watch import LoadWatch
from pgdyno.run.sample.samplers import LOAD_LABEL, Samplers
from pgdyno.run.trial_stage import Observed, TrialStage
from pgdyno.run.under_test import ServerUnderTest


def measure_loading(stage: TrialStage, seen: Observed, *, folder: Path, on_activity: Callable[[str], None]) -> None:
    """Load the data into the server's empty database.

    Raises:
        StepFailedError: pgbench or the server failed.
    """
    server = stage.server
    samplers = Samplers(directory=folder, address=server.address)
    watch = LoadWatch(server)

    def follow(pid: int) -> None:
        samplers.follow(LOAD_LABEL, pid)
        if server.pid is not None:
            samplers.follow_backends(server.pid)

    seen.clock_offset_s = wall_clock_offset_s()
    try:
        with samplers:
            seen.init = stage.generator.run_init(
                make_init_run(server.load_address, stage.study.data, stage.plan.scale),
                directory=folder,
                on_activity=on_activity,
                on_start=follow,
                should_abort=watch.find_failure,
            )
    finally:
        seen.gaps = (*seen.gaps, *(Gap(source=gap.source, reason=gap.reason) for gap in samplers.gaps))


def time_checkpoint(server: ServerUnderTest) -> float:
    """Checkpoint, which writes what loading left in memory, and return the seconds that it took."""
    with server.connect() as connection:
        began_s = monotonic_s()
        server.checkpoint(connection)
        return monotonic_s() - began_s
