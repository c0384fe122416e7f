"""One trial: from a restored cluster to outputs, samples and counters on disk. It measures and never judges.

The order is the method: restore, start, warm or cold caches, warm-up, checkpoint, counters, load with samplers and log
reader beside it, counters, plans, end. The next trial begins with the data as they were loaded. In a switchback's block the
settings of several variants alternate under the measured load: see `switchback`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.plan.plan import PlannedTrial
from pgdyno.record.generators.parts import LOADS_DIR
from pgdyno.record.pgbench.output import Progress
from pgdyno.record.samples.files import pack_samples
from pgdyno.record.samples.server_machine import SERVER_LOG
from pgdyno.record.transactions import pack as txpack
from pgdyno.record.types import ErrorFact, Gap, TrialRecord, TrialStatus
from pgdyno.run import statements
from pgdyno.run.change.changes import UndoOutcome
from pgdyno.run.change.kernel import KernelSettings, changed_sysctls
from pgdyno.run.host.clock import monotonic_s, wall_clock_offset_s
from pgdyno.run.host.log import LOG
from pgdyno.run.load_division import divide_load, read_counters, warm_readers
from pgdyno.run.measured_failover import measure_failover
from pgdyno.run.measured_load import measure_load, warm_up
from pgdyno.run.measured_loading import measure_loading, time_checkpoint
from pgdyno.run.plans import ask_plans
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.hints import hint_for
from pgdyno.run.switchback import SliceSchedule, Switchback
from pgdyno.run.trial_stage import Observed, TrialStage
from pgdyno.run.under_test import LoadServer, ServerUnderTest, find_session_address
from pgdyno.spec.table import CacheState


class TrialOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's record, with the error that ended it if one did."""

    record: TrialRecord
    error: PgdynoError | None
    tps: float | None
    """As pgbench printed it; for the progress display only."""
    latency_ms: float | None
    loading_s: float | None = None
    failover_s: float | None = None
    """From the end of the primary to the first session on its successor that could write."""


def run_trial(
    stage: TrialStage,
    trial: PlannedTrial,
    *,
    folder: Path,
    on_activity: Callable[[str], None],
    on_load: Callable[[Progress], None],
    schedule: SliceSchedule | None = None,
) -> TrialOutcome:
    """Run one trial into an empty folder of the record. Use it from the main thread.

    Args:
        stage: What the trial shares with others; in a block, with the settings of the first variant.
        trial: What to run.
        folder: Where the trial's files go.
        on_activity: Receives what is being done.
        on_load: Receives every second of the measured load.
        schedule: Of a block, in which several variants alternate; None for every other trial.

    Returns:
        The trial's record, also when the trial failed; an interruption by the user is not caught.
    """
    seen = Observed(gaps=stage.server.unseen)
    error: PgdynoError | None = None
    try:
        with _kernel_settings(stage, trial, seen) as kernel:
            on_activity("restoring")
            seen.restore_s = stage.server.reset(on_activity)
            LOG.info("trial %d: data restored in %.2f s", trial.number, seen.restore_s)
            block = None if schedule is None else _Block(stage, trial, kernel, schedule)
            stage = stage if block is None else block.stage
            _measure(stage, trial, seen, folder=folder, on_activity=on_activity, on_load=on_load, block=block)
        _pack(folder, seen)
    except (PgdynoError, OSError) as caught:
        error = to_trial_error(caught)
        LOG.warning("trial %d fails: %s", trial.number, error.reason, exc_info=caught)
    return make_outcome(trial, seen, error)


def make_outcome(trial: PlannedTrial, seen: Observed, error: PgdynoError | None) -> TrialOutcome:
    """Return the outcome of a trial: what was observed until it ended, with the error if one ended it."""
    summary = seen.load.summary if seen.load is not None else None
    return TrialOutcome(
        record=_make_record(trial, seen, error),
        error=error,
        tps=summary.tps if summary is not None else None,
        latency_ms=summary.latency_average_ms if summary is not None else None,
        loading_s=None if seen.init is None else seen.init.total_s,
        failover_s=None if seen.failover is None else seen.failover.connected_s - seen.failover.told_s,
    )


def fact_of(error: PgdynoError) -> ErrorFact:
    """Return an error as the record has it."""
    return ErrorFact(fact=error.fact, detail=error.detail, hint=error.hint)


def to_trial_error(caught: PgdynoError | OSError) -> PgdynoError:
    """Return the error to report for a trial: one of the operating system is of a file that could not be read or written."""
    if isinstance(caught, PgdynoError):
        return caught
    return StepFailedError(
        "a file of the trial cannot be read or written", detail=str(caught), hint=hint_for(str(caught))
    )


def _pack(folder: Path, seen: Observed) -> None:
    """Pack the samples. Samples that cannot be packed stay as they are: the trial's own figures do not depend on them."""
    try:
        for place in (folder, *(folder / LOADS_DIR).glob("*")):
            pack_samples(place)
    except PgdynoError as exc:
        seen.gaps = (*seen.gaps, Gap(source="samples", reason=f"not packed: {exc.reason}"))


def _measure(
    stage: TrialStage,
    trial: PlannedTrial,
    seen: Observed,
    *,
    folder: Path,
    on_activity: Callable[[str], None],
    on_load: Callable[[Progress], None],
    block: _Block | None,
) -> None:
    server = stage.server
    with server.running(stage.settings, log_path=folder / SERVER_LOG, pooler=stage.pooler_of(trial)):
        on_activity("preparing caches")
        server.prepare_cache(stage.cache_of(trial))
        # A database of the user's begins with the caches as they are.
        if stage.cache_of(trial) is CacheState.WARM and stage.study.data.database is None:
            warm_readers(server, stage.servers_of(trial))
        stage = divide_load(stage, trial)
        loaded = stage.servers_of(trial)
        if trial.warm_up_s > 0:
            on_activity("warming up")
            warm_up(stage, trial, seen, folder=folder)
        read_before(server, seen, loaded)
        on_activity("measuring")
        LOG.info(
            "trial %d: the measured load begins, %g %% of its transactions logged",
            trial.number,
            100 * seen.log_sampling_rate,
        )
        if block is not None:
            seen.switchback = block.make(folder=folder, latency_s=seen.warm_up_latency_s)
        load = stage.plan.find_load(trial)
        if load.failover is not None:
            # Counters of two servers have no difference, and plans were asked of neither.
            measure_failover(stage, trial, seen, folder=folder, on_activity=on_activity, on_load=on_load)
            seen.counters_before, seen.tables_before = {}, ()
            return
        if load.is_loading:
            measure_loading(stage, seen, folder=folder, on_activity=on_activity)
        else:
            measure_load(stage, trial, seen, folder=folder, on_load=on_load)
        read_after(server, seen, loaded)
        if load.is_loading:
            on_activity("writing what loading left")
            seen.checkpoint_s = time_checkpoint(server)
        ask_plans(stage, trial, seen, switch=None if block is None else block.switch)


def read_before(server: ServerUnderTest, seen: Observed, loaded: Sequence[LoadServer]) -> None:
    """Checkpoint, and read what is in force and counted before the measured load.

    Args:
        server: The server.
        seen: Gets what is read.
        loaded: The servers that the load connects to, whose counters are added up.
    """
    with sql.connect(find_session_address(server)) as session:
        seen.settings = sql.read_settings(session)
    with server.connect() as connection:
        server.checkpoint(connection)
        seen.tables_before = sql.read_table_states(connection)
    # What a session does counts for its own database, and some of it is rolled back: in the load's it would seem the load's.
    with server.connect(database="postgres") as connection:
        seen.counters_before = read_counters(server, connection, loaded)
        seen.gaps = (*seen.gaps, *sql.find_gaps(connection))
    statements.look_before(server, seen, loaded)


def read_after(server: ServerUnderTest, seen: Observed, loaded: Sequence[LoadServer]) -> None:
    """Read what is counted after the measured load; see `read_before`."""
    statements.look_after(server, seen)
    with server.connect(database="postgres") as connection:
        seen.counters_after = read_counters(server, connection, loaded)
    with server.connect() as connection:
        seen.tables_after = sql.read_table_states(connection)


class _Block:
    """Several variants under one load. It is made from the restored data, before the server starts."""

    def __init__(self, stage: TrialStage, trial: PlannedTrial, kernel: KernelSettings, schedule: SliceSchedule) -> None:
        txpack.prepare()
        self._variants = stage.variants_of(trial)
        self.switch = stage.server.prepare_switch(self._variants)
        self._kernel = kernel
        self._schedule = schedule
        self._duration_s = trial.duration_s
        # The switch sets what the variants change; in the common settings, values of the first would stay for all.
        self.stage = msgspec.structs.replace(stage, settings=self.switch.common(stage.settings))

    def make(self, *, folder: Path, latency_s: float | None) -> Switchback:
        return Switchback(
            server=self.stage.server,
            switch=self.switch,
            variants=self._variants,
            kernel=self._kernel,
            schedule=self._schedule,
            folder=folder,
            duration_s=self._duration_s,
            latency_s=latency_s,
        )


@contextlib.contextmanager
def _kernel_settings(stage: TrialStage, trial: PlannedTrial, seen: Observed) -> Iterator[KernelSettings]:
    """Put the kernel settings of the trial's first variant in force, and put them back at the end.

    Raises:
        HostError: A setting cannot be changed or put back, or another program has changed it during the trial.
    """
    variants = stage.variants_of(trial)
    with changed_sysctls(variants[0].sysctl if variants else {}) as kernel:
        yield kernel
        # Else the trial was not of its variant, and nothing else in the record would tell.
        kernel.check()
    seen.gaps = (*seen.gaps, *find_left_settings(kernel))


def find_left_settings(kernel: KernelSettings) -> tuple[Gap, ...]:
    """Return the kernel settings that were not put back, because another program has changed them."""
    left = [undo for undo in kernel.undone if undo.outcome is UndoOutcome.LEFT]
    return tuple(Gap(source=undo.change.what, reason=undo.reason) for undo in left)


def _make_record(trial: PlannedTrial, seen: Observed, error: PgdynoError | None) -> TrialRecord:
    load = seen.load if seen.init is None else seen.init.invocation
    return TrialRecord(
        planned=trial,
        status=TrialStatus.FINISHED if error is None else TrialStatus.FAILED,
        error=None if error is None else fact_of(error),
        argv=() if load is None else load.argv,
        clock_offset_s=wall_clock_offset_s() if seen.clock_offset_s is None else seen.clock_offset_s,
        restore_s=seen.restore_s,
        load_start_monotonic_s=None if load is None else load.start_monotonic_s,
        load_end_monotonic_s=None if load is None else load.end_monotonic_s,
        load_cpu_s=None if load is None else load.cpu_s,
        log_sampling_rate=seen.log_sampling_rate,
        checkpoint_s=seen.checkpoint_s,
        settings=seen.settings,
        counters_before=seen.counters_before,
        counters_after=seen.counters_after,
        tables_before=seen.tables_before,
        tables_after=seen.tables_after,
        statements=seen.statements,
        plans=seen.plans,
        gaps=seen.gaps,
        generators=() if seen.load is None else seen.load.parts,
        slice_s=None if seen.switchback is None else seen.switchback.slice_s,
        washout_s=None if seen.switchback is None else seen.switchback.washout_s,
        began_monotonic_s=seen.began_monotonic_s,
        ended_monotonic_s=monotonic_s(),
    )
