"""One trial: from a restored cluster to outputs, samples and counters on disk. It measures and never judges.

The order is the method: copy, start, checkpoint, warm or cold, warm-up, checkpoint, counters, load with samplers and
log reader beside it, counters, end. The cluster is thrown away; the next trial begins with a new copy. In a switchback's
block the settings of several variants alternate under the measured load: see `switchback`.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.plan.experiment import Variant
from pgdyno.plan.plan import Plan, PlannedTrial, PlannedWorkload
from pgdyno.record.pgbench.output import PgbenchSummary, Progress
from pgdyno.record.samples.files import pack_samples
from pgdyno.record.transactions import pack as txpack
from pgdyno.record.transactions.parse import LogColumns
from pgdyno.record.trial_data import SERVER_LOG, TRANSACTION_LOG, TRANSACTIONS_DIR, WARM_UP_DIR
from pgdyno.record.types import ErrorFact, Gap, SettingFact, TableState, TrialRecord, TrialStatus
from pgdyno.run.change.journal import UndoOutcome
from pgdyno.run.change.kernel import KernelSettings, changed_sysctls
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.server import DATABASE, Server
from pgdyno.run.cluster.template import Template, drop_file_cache, restore_template
from pgdyno.run.cluster.variant_settings import VariantFiles
from pgdyno.run.host.clock import monotonic_s, wall_clock_offset_s
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.log_stream import LogOutcome, LogStream, start_log_stream
from pgdyno.run.load.pgbench import LoadOutcome, Pgbench
from pgdyno.run.load.watch import LoadWatch
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.hints import hint_for
from pgdyno.run.postgres.installation import Installation
from pgdyno.run.sample.samplers import LOAD_LABEL, Samplers
from pgdyno.run.switchback import SliceSchedule, Switchback
from pgdyno.spec.study import CacheState, Study
from pgdyno.spec.table import SettingValue

# Source: benchmarks/observer.py: a logged transaction costs pgbench and the reader about 1 us of CPU time.
_LOGGED_PER_CPU_S = 10_000
_DYING_S = 0.5
# In a block the transactions are looked at while the load runs.
_LIVE_PERIOD_S = 1.0
LOG_READER_LABEL = "log_reader"


class TrialStage(msgspec.Struct, frozen=True, kw_only=True):
    """What all trials of a study share, or in a comparison those of one variant."""

    installation: Installation
    home: Home
    template: Template
    study: Study
    plan: Plan
    settings: Mapping[str, SettingValue]
    """That the server is started with."""
    cpu_count: float
    """That this process may use."""
    scripts: Mapping[str, Path] = {}
    """Script files, by their names in the plan, to the copies to run; others are read where they lie."""


class TrialOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's record, with the error that ended it if one did."""

    record: TrialRecord
    error: PgdynoError | None
    tps: float | None
    """As pgbench printed it; for the progress display only."""
    latency_ms: float | None


class _Seen(msgspec.Struct):
    """What a trial has seen so far; becomes its record however it ends."""

    restore_s: float = 0.0
    log_sampling_rate: float = 1.0
    settings: tuple[SettingFact, ...] = ()
    counters_before: dict[str, float | None] = {}
    counters_after: dict[str, float | None] = {}
    tables_before: tuple[TableState, ...] = ()
    tables_after: tuple[TableState, ...] = ()
    gaps: tuple[Gap, ...] = ()
    load: LoadOutcome | None = None
    clock_offset_s: float | None = None
    warm_up_latency_s: float | None = None
    switchback: Switchback | None = None


def run_trial(
    stage: TrialStage,
    trial: PlannedTrial,
    *,
    folder: Path,
    on_activity: Callable[[str], None],
    on_load: Callable[[Progress], None],
    steering: SliceSchedule | None = None,
) -> TrialOutcome:
    """Run one trial into an empty folder of the record. Use it from the main thread.

    Args:
        stage: What it shares with others; in a block the settings are those of the first of its variants.
        trial: What to run.
        folder: Where to.
        on_activity: Told what is being done.
        on_load: Told every second of the measured load.
        steering: For a block, in which several variants alternate; None for every other trial.

    Returns:
        Its record, also when it failed; interruption by the user is not caught.
    """
    seen = _Seen()
    error: PgdynoError | None = None
    try:
        with _kernel_settings(stage, trial, seen) as kernel:
            on_activity("restoring")
            seen.restore_s = restore_template(stage.template, stage.home)
            block = None if steering is None else _Block(stage, trial, kernel, steering)
            stage = stage if block is None else block.stage
            _measure(stage, trial, seen, folder=folder, on_activity=on_activity, on_load=on_load, block=block)
        _pack(folder, seen)
    except PgdynoError as caught:
        error = caught
    except OSError as caught:
        error = StepFailedError(
            "a file of the trial cannot be read or written", detail=str(caught), hint=hint_for(str(caught))
        )
    summary = seen.load.summary if seen.load is not None else None
    return TrialOutcome(
        record=_make_record(trial, seen, error),
        error=error,
        tps=summary.tps if summary is not None else None,
        latency_ms=summary.latency_average_ms if summary is not None else None,
    )


def _pack(folder: Path, seen: _Seen) -> None:
    """Samples that cannot be packed stay as they are: the trial's own figures do not depend on them."""
    try:
        pack_samples(folder)
    except PgdynoError as exc:
        seen.gaps = (*seen.gaps, Gap(source="samples", reason=f"not packed: {exc.reason}"))


def choose_sampling_rate(tps: float | None, cpu_count: float) -> float:
    """The share of transactions to log, so that writing and reading the log stays below 1 % of the CPUs.

    Args:
        tps: Of the warm-up; None where there was none, and everything is logged.
        cpu_count: CPUs that load, server and log reader share.
    """
    if not tps:
        return 1.0
    # Below 1 in 100 a second would hold too few for its percentiles.
    return min(1.0, max(0.01, round(_LOGGED_PER_CPU_S * cpu_count / tps, 2)))


def _measure(
    stage: TrialStage,
    trial: PlannedTrial,
    seen: _Seen,
    *,
    folder: Path,
    on_activity: Callable[[str], None],
    on_load: Callable[[Progress], None],
    block: _Block | None,
) -> None:
    workload = stage.plan.find_load(trial)
    with _running_server(stage, folder) as server:
        on_activity("preparing caches")
        _prepare_caches(server, stage)
        if trial.warm_up_s > 0:
            on_activity("warming up")
            warm_up = _load_run(server, workload, trial, stage, duration_s=trial.warm_up_s, reports_statements=True)
            # With the load's own seed it would bring in just the rows that the load asks for first.
            warm_up = msgspec.structs.replace(warm_up, random_seed=trial.seed + 1)
            watch = LoadWatch(server, duration_s=trial.warm_up_s)
            with _pgbench(stage) as pgbench:
                warmed = pgbench.run_load(
                    warm_up, directory=folder / WARM_UP_DIR, on_progress=watch.see, should_abort=watch.find_failure
                )
            seen.log_sampling_rate = choose_sampling_rate(warmed.summary.tps, stage.cpu_count)
            seen.warm_up_latency_s = _served_s(warmed.summary)
        with server.connect() as connection:
            sql.checkpoint(connection)
            seen.settings = sql.read_settings(connection)
            seen.counters_before = sql.read_counters(connection, watched_database=DATABASE)
            seen.tables_before = sql.read_table_states(connection)
        on_activity("measuring")
        if block is not None:
            seen.switchback = block.make(server, folder=folder, latency_s=seen.warm_up_latency_s)
        _load_observed(server, workload, trial, stage, seen, folder=folder, on_load=on_load)
        with server.connect() as connection:
            seen.counters_after = sql.read_counters(connection, watched_database=DATABASE)
            seen.tables_after = sql.read_table_states(connection)


def _load_observed(
    server: Server,
    workload: PlannedWorkload,
    trial: PlannedTrial,
    stage: TrialStage,
    seen: _Seen,
    *,
    folder: Path,
    on_load: Callable[[Progress], None],
) -> None:
    limit_ms = workload.latency_limit_ms
    stream = start_log_stream(
        folder / TRANSACTIONS_DIR,
        user=stage.home.user,
        columns=_log_columns(workload),
        sampling_rate=seen.log_sampling_rate,
        latency_limit_us=None if limit_ms is None else round(limit_ms * 1000),
        flush_period_s=None if seen.switchback is None else _LIVE_PERIOD_S,
    )
    with contextlib.closing(stream):
        # Timing statements makes pgbench stamp quick transactions before their answers come: see ADR 0006.
        run = _load_run(server, workload, trial, stage, duration_s=trial.duration_s, reports_statements=False)
        run = msgspec.structs.replace(run, log_prefix=stream.log_prefix, sampling_rate=seen.log_sampling_rate)
        samplers = Samplers(directory=folder, address=server.address)
        watch = LoadWatch(server, duration_s=trial.duration_s)
        observers = _Observers(seen, stream, samplers, watch, server_pid=server.pid, on_load=on_load)
        log_gaps: tuple[Gap, ...] = ()
        try:
            with samplers, _pgbench(stage) as pgbench, seen.switchback or contextlib.nullcontext():
                seen.load = pgbench.run_load(
                    run,
                    directory=folder,
                    on_progress=observers.see,
                    on_start=observers.follow,
                    should_abort=observers.find_failure,
                    should_end=observers.is_enough,
                )
            outcome = stream.finish()
            log_gaps = _log_gaps(outcome)
            if seen.switchback is not None and outcome.packed is None:
                raise _lost_log(outcome.reason or "")
        finally:
            seen.gaps = (
                *seen.gaps,
                *(Gap(source=gap.source, reason=gap.reason) for gap in samplers.gaps),
                *log_gaps,
            )


class _Observers:
    """All that look on while the measured load runs, in the main thread."""

    def __init__(
        self,
        seen: _Seen,
        stream: LogStream,
        samplers: Samplers,
        watch: LoadWatch,
        *,
        server_pid: int,
        on_load: Callable[[Progress], None],
    ) -> None:
        self._seen = seen
        self._server_pid = server_pid
        self._stream = stream
        self._samplers = samplers
        self._watch = watch
        self._on_load = on_load

    def follow(self, pid: int) -> None:
        # pgbench reads the time of day once, as it starts, and its log counts on from there.
        self._seen.clock_offset_s = wall_clock_offset_s()
        self._samplers.follow(LOAD_LABEL, pid)
        self._samplers.follow(LOG_READER_LABEL, self._stream.pid)
        self._samplers.follow_backends(self._server_pid)
        if self._seen.switchback is not None:
            self._seen.switchback.note_start()

    def see(self, second: Progress) -> None:
        self._watch.see(second)
        if self._seen.switchback is not None:
            self._seen.switchback.see(second)
        self._on_load(second)

    def find_failure(self) -> PgdynoError | None:
        is_log_read = self._stream.poll()
        if (failure := self._watch.find_failure()) is not None or self._seen.switchback is None:
            return failure
        return self._seen.switchback.find_failure() or (None if is_log_read else _lost_log("its reader has ended"))

    def is_enough(self) -> bool:
        return self._seen.switchback is not None and self._seen.switchback.look()


class _Block:
    """What several variants under one load need: made of the restored cluster, before its start."""

    def __init__(self, stage: TrialStage, trial: PlannedTrial, kernel: KernelSettings, steering: SliceSchedule) -> None:
        txpack.prepare()
        self._variants = _variants_of(stage, trial)
        self._files = VariantFiles(stage.home, self._variants)
        self._kernel = kernel
        self._steering = steering
        self._duration_s = trial.duration_s
        # What the variants change is in their own files: without it, none of them stays under the influence of the first.
        self.stage = msgspec.structs.replace(stage, settings=self._files.common(stage.settings))

    def make(self, server: Server, *, folder: Path, latency_s: float | None) -> Switchback:
        return Switchback(
            server=server,
            files=self._files,
            variants=self._variants,
            kernel=self._kernel,
            steering=self._steering,
            folder=folder,
            duration_s=self._duration_s,
            latency_s=latency_s,
        )


def _variants_of(stage: TrialStage, trial: PlannedTrial) -> tuple[Variant, ...]:
    experiment = stage.plan.experiment
    return () if experiment is None else tuple(experiment.find_variant(name) for name in trial.variants)


@contextlib.contextmanager
def _kernel_settings(stage: TrialStage, trial: PlannedTrial, seen: _Seen) -> Iterator[KernelSettings]:
    """The kernel settings of the trial's first variant, put back at the end."""
    variants = _variants_of(stage, trial)
    with changed_sysctls(variants[0].sysctl if variants else {}) as kernel:
        yield kernel
    left = [undo for undo in kernel.undone if undo.outcome is UndoOutcome.LEFT]
    seen.gaps = (*seen.gaps, *(Gap(source=undo.change.what, reason=undo.reason) for undo in left))


def _lost_log(why: str) -> StepFailedError:
    return StepFailedError("the transaction log is lost, from which slices are counted", detail=why)


def _served_s(summary: PgbenchSummary) -> float | None:
    """Mean latency in seconds, without the wait for a scheduled start that came late."""
    if summary.latency_average_ms is None:
        return None
    return (summary.latency_average_ms - (summary.schedule_lag_average_ms or 0.0)) / 1e3


def _log_gaps(outcome: LogOutcome) -> tuple[Gap, ...]:
    reasons = (*(() if outcome.reason is None else (outcome.reason,)), *outcome.notes)
    return tuple(Gap(source=TRANSACTION_LOG, reason=reason) for reason in reasons)


@contextlib.contextmanager
def _running_server(stage: TrialStage, folder: Path) -> Iterator[Server]:
    server = Server(
        installation=stage.installation,
        home=stage.home,
        log_path=folder / SERVER_LOG,
        port=stage.study.server.port,
    )
    try:
        server.start(stage.settings)
        yield server
        if (failure := server.find_failure()) is not None:
            raise failure
    except PgdynoError as exc:
        # A dead server explains whatever failed; its log has the reason.
        if (failure := _await_failure(server)) is None:
            raise
        raise failure from exc
    finally:
        # Nobody reads this cluster again: no checkpoint, no waiting.
        server.abandon()


def _await_failure(server: Server) -> StepFailedError | None:
    """The server's failure, if it is dead or dying: its connections break a moment before its end can be seen."""
    deadline_s = monotonic_s() + _DYING_S
    while (failure := server.find_failure()) is None and monotonic_s() < deadline_s:
        time.sleep(0.02)
    return failure


def _prepare_caches(server: Server, stage: TrialStage) -> None:
    with server.connect() as connection:
        if stage.study.trials.cache is CacheState.WARM:
            sql.warm_dataset(connection)
            return
        sql.checkpoint(connection)
    # Its own buffers are empty after a start; what the start has read into the kernel's cache goes too.
    server.stop()
    drop_file_cache(stage.home.data)
    server.start(stage.settings)


@contextlib.contextmanager
def _pgbench(stage: TrialStage) -> Iterator[Pgbench]:
    """pgbench, with a folder for copies of scripts that its account can read."""
    copies = stage.home.work / "scripts"
    copies.mkdir(exist_ok=True)
    copies.chmod(0o755)
    try:
        yield Pgbench(installation=stage.installation, user=stage.home.user, script_directory=copies)
    finally:
        shutil.rmtree(copies, ignore_errors=True)


def _load_run(
    server: Server,
    workload: PlannedWorkload,
    trial: PlannedTrial,
    stage: TrialStage,
    *,
    duration_s: float,
    reports_statements: bool,
) -> LoadRun:
    return LoadRun(
        address=server.address,
        scripts=tuple((str(stage.scripts.get(name, name)), weight) for name, weight in workload.scripts),
        mode=workload.mode,
        clients=workload.clients,
        threads=workload.threads,
        duration_s=duration_s,
        rate_tps=workload.rate_tps,
        latency_limit_ms=workload.latency_limit_ms,
        max_tries=workload.max_tries,
        random_seed=trial.seed,
        scale=stage.template.dataset.scale,
        reports_statements=reports_statements,
    )


def _log_columns(workload: PlannedWorkload) -> LogColumns:
    match workload.rate_tps is not None, workload.max_tries != 1:
        case True, True:
            return LogColumns.LAG_AND_RETRIES
        case True, False:
            return LogColumns.LAG
        case False, True:
            return LogColumns.RETRIES
        case _:
            return LogColumns.PLAIN


def _make_record(trial: PlannedTrial, seen: _Seen, error: PgdynoError | None) -> TrialRecord:
    load = seen.load
    return TrialRecord(
        planned=trial,
        status=TrialStatus.FINISHED if error is None else TrialStatus.FAILED,
        error=None if error is None else ErrorFact(fact=error.fact, detail=error.detail, hint=error.hint),
        argv=() if load is None else load.argv,
        clock_offset_s=wall_clock_offset_s() if seen.clock_offset_s is None else seen.clock_offset_s,
        restore_s=seen.restore_s,
        load_start_monotonic_s=None if load is None else load.start_monotonic_s,
        load_end_monotonic_s=None if load is None else load.end_monotonic_s,
        load_cpu_s=None if load is None else load.cpu_s,
        log_sampling_rate=seen.log_sampling_rate,
        settings=seen.settings,
        counters_before=seen.counters_before,
        counters_after=seen.counters_after,
        tables_before=seen.tables_before,
        tables_after=seen.tables_after,
        gaps=seen.gaps,
        slice_s=None if seen.switchback is None else seen.switchback.slice_s,
        washout_s=None if seen.switchback is None else seen.switchback.washout_s,
    )
