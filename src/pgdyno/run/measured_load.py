"""Run the loads of a trial: the warm-up, and the measured load with samplers, log reader and switchback beside it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.plan.plan import PlannedTrial, PlannedWorkload
from pgdyno.record.pgbench.output import PgbenchSummary, Progress
from pgdyno.record.samples.pings import PING
from pgdyno.record.samples.pooler import POOLER
from pgdyno.record.transactions.pack import TRANSACTIONS_DIR
from pgdyno.record.transactions.parse import LogColumns
from pgdyno.record.trial_data import TRANSACTION_LOG, WARM_UP_DIR
from pgdyno.record.types import Gap
from pgdyno.run.host.clock import wall_clock_offset_s
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.generator import TransactionLog
from pgdyno.run.load.log_stream import LogOutcome, LogRequest
from pgdyno.run.load.watch import LoadWatch
from pgdyno.run.sample.samplers import LOAD_LABEL, Samplers
from pgdyno.run.trial_stage import Observed, TrialStage
from pgdyno.spec.pooler import REPLICAS

# Source: benchmarks/observer.py: a logged transaction costs pgbench and the reader about 1 us of CPU time.
_LOGGED_PER_CPU_S = 10_000
# In a switchback the transactions are read while the load runs.
_LIVE_PERIOD_S = 1.0
LOG_READER_LABEL = "log_reader"


def warm_up(stage: TrialStage, trial: PlannedTrial, seen: Observed, *, folder: Path) -> PgbenchSummary:
    """Load the server before anything counts, and choose from it the share of transactions to log. Return what pgbench printed."""
    workload = stage.plan.find_load(trial)
    run = _load_run(stage, workload, trial, duration_s=trial.warm_up_s, reports_statements=True)
    # With the measured load's own seed it would bring in just the rows that the measured load asks for first.
    run = msgspec.structs.replace(run, random_seed=trial.seed + 1)
    watch = LoadWatch(stage.server, duration_s=trial.warm_up_s, find_stall=stage.server.find_stall)
    warmed = stage.generator.run_load(
        run,
        directory=folder / WARM_UP_DIR,
        on_progress=watch.see,
        on_start=lambda _: None,
        should_abort=watch.find_failure,
        should_end=lambda: False,
    )
    seen.log_sampling_rate = choose_sampling_rate(warmed.summary.tps, stage.cpu_count)
    seen.warm_up_latency_s = _served_s(warmed.summary)
    return warmed.summary


def measure_load(
    stage: TrialStage,
    trial: PlannedTrial,
    seen: Observed,
    *,
    folder: Path,
    on_load: Callable[[Progress], None],
) -> None:
    """Run the measured load with everything that observes it.

    Raises:
        StepFailedError: The load, the server, or in a switchback the log reader failed.
    """
    stream = start_log(stage, trial, seen, folder=folder)
    with contextlib.closing(stream):
        run = make_measured_run(stage, trial, seen, stream, duration_s=trial.duration_s)
        unseen = (*stage.server.unseen, *find_unpinged(stage, trial))
        hosts = stage.plan.find_load(trial).count_hosts(len(stage.load_links))
        samplers = Samplers(
            directory=folder,
            address=stage.server.address,
            loaded=[one.address for one in stage.servers_of(trial)],
            left_out=frozenset(gap.source for gap in unseen),
            # Between a server of pgdyno's own and its load there is no network, and one machine has both.
            is_elsewhere=stage.server.pid is None,
            watches_standbys=stage.server.shows_standbys,
            watched=stage.server.watched,
            # One without a client has no pgbench to look at.
            load_links=dict(itertools.islice(stage.load_links.items(), hosts)),
            shared_hosts=stage.shared_hosts,
            console=None if stage.server.pooler is None else stage.server.pooler.console,
        )
        watch = LoadWatch(stage.server, duration_s=trial.duration_s, find_stall=stage.server.find_stall)
        observers = _Observers(seen, stream, samplers, watch, stage=stage, trial=trial, on_load=on_load)
        log_gaps: tuple[Gap, ...] = ()
        try:
            with samplers, seen.switchback or contextlib.nullcontext():
                seen.load = stage.generator.run_load(
                    run,
                    directory=folder,
                    on_progress=observers.see,
                    on_start=observers.follow,
                    should_abort=observers.find_failure,
                    should_end=observers.is_enough,
                )
            if seen.load.clock_offset_s is not None:
                seen.clock_offset_s = seen.load.clock_offset_s
            outcome = stream.finish()
            log_gaps = find_log_gaps(outcome)
            if seen.switchback is not None and outcome.packed is None:
                raise LostLogError(outcome.reason or "")
        finally:
            sampled = (Gap(source=gap.source, reason=gap.reason) for gap in samplers.gaps)
            # The sampler and who reads counters before and after may be refused the same.
            seen.gaps = tuple(dict.fromkeys([*seen.gaps, *unseen, *sampled, *log_gaps]))


def start_log(stage: TrialStage, trial: PlannedTrial, seen: Observed, *, folder: Path) -> TransactionLog:
    """Start to follow the transaction log of a trial's measured load."""
    (log,) = _start_logs(stage, trial, seen, folders=[folder])
    return log


@contextlib.contextmanager
def following_logs(
    stage: TrialStage, trial: PlannedTrial, seen: Sequence[Observed], *, folders: Sequence[Path]
) -> Iterator[tuple[TransactionLog, ...]]:
    """Follow the transaction logs of all trials of a round with one reader, at the lowest of their sampling rates, in a `with` block.

    A reader for each would take 36 MB of the machine that is measured, though one load runs at a time.

    Args:
        stage: The stage of a trial; that of the others logs the same columns.
        trial: That trial.
        seen: What was observed of each trial; gets the sampling rate.
        folders: Each trial's folder.
    """
    rate = min(one.log_sampling_rate for one in seen)
    for one in seen:
        one.log_sampling_rate = rate
    with contextlib.ExitStack() as stack:
        logs = _start_logs(stage, trial, seen[0], folders=folders)
        for log in logs:
            stack.enter_context(contextlib.closing(log))
        yield logs


def _start_logs(
    stage: TrialStage, trial: PlannedTrial, seen: Observed, *, folders: Sequence[Path]
) -> tuple[TransactionLog, ...]:
    workload = stage.plan.find_load(trial)
    limit_ms = workload.latency_limit_ms
    return stage.generator.start_logs(
        [folder / TRANSACTIONS_DIR for folder in folders],
        LogRequest(
            columns=_log_columns(workload),
            sampling_rate=seen.log_sampling_rate,
            latency_limit_us=None if limit_ms is None else round(limit_ms * 1000),
            flush_period_s=None if seen.switchback is None else _LIVE_PERIOD_S,
        ),
    )


def make_measured_run(
    stage: TrialStage, trial: PlannedTrial, seen: Observed, stream: TransactionLog, *, duration_s: float
) -> LoadRun:
    """Return the run of pgbench that makes a trial's measured load."""
    # Timing statements makes pgbench stamp quick transactions before their answers come: see ADR 0006.
    run = _load_run(stage, stage.plan.find_load(trial), trial, duration_s=duration_s, reports_statements=False)
    return msgspec.structs.replace(run, log_prefix=stream.log_prefix, sampling_rate=seen.log_sampling_rate)


def choose_sampling_rate(tps: float | None, cpu_count: float) -> float:
    """Choose the share of transactions to log, so that writing and reading the log stays below 1 % of the CPUs.

    Args:
        tps: Of the warm-up; None where there was none, and everything is logged.
        cpu_count: CPUs that load, server and log reader share.
    """
    if not tps:
        return 1.0
    # Below 1 in 100 a second would hold too few for its percentiles.
    return min(1.0, max(0.01, round(_LOGGED_PER_CPU_S * cpu_count / tps, 2)))


class _Observers:
    """Everything that observes the measured load in the main thread."""

    def __init__(
        self,
        seen: Observed,
        stream: TransactionLog,
        samplers: Samplers,
        watch: LoadWatch,
        *,
        stage: TrialStage,
        trial: PlannedTrial,
        on_load: Callable[[Progress], None],
    ) -> None:
        self._seen = seen
        self._postmasters = [one.pid for one in stage.servers_of(trial) if one.pid is not None]
        self._server = stage.server
        self._generator = stage.generator
        self._stream = stream
        self._samplers = samplers
        self._watch = watch
        self._on_load = on_load

    def follow(self, pid: int) -> None:
        # pgbench reads the time of day once, as it starts, and its log counts on from there.
        self._seen.clock_offset_s = wall_clock_offset_s()
        if far_pids := self._generator.far_pids:
            for name, pids in far_pids.items():
                self._samplers.follow_far(name, LOAD_LABEL, *pids)
        else:
            self._samplers.follow(LOAD_LABEL, *(self._generator.part_pids or (pid,)))
        self._samplers.follow(LOG_READER_LABEL, self._stream.pid)
        if self._postmasters:
            self._samplers.follow_backends(*self._postmasters)
        for process in self._server.standby_processes:
            follow = self._samplers.follow_tree if process.has_descendants else self._samplers.follow
            follow(process.label, process.pid)
        if (pooler := self._server.pooler) is not None and pooler.pid is not None:
            self._samplers.follow(POOLER, pooler.pid)
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
        return self._seen.switchback.find_failure() or (None if is_log_read else LostLogError("its reader has ended"))

    def is_enough(self) -> bool:
        return self._seen.switchback is not None and self._seen.switchback.review_if_due()


def find_unpinged(stage: TrialStage, trial: PlannedTrial) -> tuple[Gap, ...]:
    """Return the gap of pings where the load's clients take ways to several given servers, of which one cannot stand for all."""
    if stage.server.pid is not None or len(stage.servers_of(trial)) == 1:
        return ()
    return (Gap(source=PING, reason="the load's clients connect to several servers, over ways of their own"),)


def _load_run(
    stage: TrialStage, workload: PlannedWorkload, trial: PlannedTrial, *, duration_s: float, reports_statements: bool
) -> LoadRun:
    return LoadRun(
        # Of a load in several parts, each has its own.
        address=stage.servers_of(trial)[0].load_address if workload.endpoint == REPLICAS else stage.server.load_address,
        scripts=tuple((str(stage.scripts.get(name, name)), weight) for name, weight in workload.scripts),
        mode=workload.mode,
        clients=workload.clients,
        threads=workload.threads,
        load_hosts=workload.load_hosts,
        duration_s=duration_s,
        rate_tps=workload.rate_tps,
        latency_limit_ms=workload.latency_limit_ms,
        max_tries=workload.max_tries,
        random_seed=trial.seed,
        scale=stage.dataset.scale,
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


def _served_s(summary: PgbenchSummary) -> float | None:
    """Return the mean latency in seconds without the wait for a scheduled start that came late."""
    if summary.latency_average_ms is None:
        return None
    return (summary.latency_average_ms - (summary.schedule_lag_average_ms or 0.0)) / 1e3


class LostLogError(StepFailedError):
    """pgbench's log is lost, so that slices cannot be counted. One process reads the logs of a whole round: no load of it is to blame."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "pgbench's log of transactions is lost, from which slices are counted",
            detail=why,
            hint="`dmesg` tells whether the kernel ended its reader because memory was short",
        )


def finish_log(log: TransactionLog, seen: Observed) -> None:
    """Read the rest of a log from which slices are counted, once its load has ended.

    Raises:
        LostLogError: It is lost.
    """
    outcome = log.finish()
    seen.gaps = (*seen.gaps, *find_log_gaps(outcome))
    if outcome.packed is None:
        raise LostLogError(outcome.reason or "")


def find_log_gaps(outcome: LogOutcome) -> tuple[Gap, ...]:
    """Return what the log's reader missed, and what a report should mention of it."""
    reasons = (*(() if outcome.reason is None else (outcome.reason,)), *outcome.notes)
    return tuple(Gap(source=TRANSACTION_LOG, reason=reason) for reason in reasons)
