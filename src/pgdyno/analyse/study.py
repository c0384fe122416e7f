"""A whole study: each trial by itself, then each workload over its trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pgdyno.analyse.bottleneck import judge_workload
from pgdyno.analyse.charts import chart_trial, list_events
from pgdyno.analyse.comparison import Round, compare, primary_metric
from pgdyno.analyse.disk_join import DiskLimits, join_trial
from pgdyno.analyse.episode_causes import find_causes
from pgdyno.analyse.episodes import Course, describe_episodes, find_trial_episodes
from pgdyno.analyse.health import assess_health
from pgdyno.analyse.latency import PERCENTILES, estimate_latencies, measure_mean_ms, measure_percentiles
from pgdyno.analyse.pilot import SliceChoice, choose_from_slices
from pgdyno.analyse.predictions import judge_predictions
from pgdyno.analyse.rate_search import WorkloadSearch
from pgdyno.analyse.rounds import rounds_of_block, rounds_of_trials
from pgdyno.analyse.sweep import analyse_clients
from pgdyno.analyse.throughput import (
    PgbenchClaim,
    TrialThroughput,
    claim_throughput,
    estimate_tps,
    measure_throughput,
)
from pgdyno.analyse.time_model import measure_time
from pgdyno.analyse.types import (
    ChartKind,
    Percentile,
    Series,
    StatementTime,
    StudyAnalysis,
    TrialAnalysis,
    WorkloadAnalysis,
)
from pgdyno.plan.experiment import is_client_sweep
from pgdyno.plan.plan import PlannedWorkload, apply_arm
from pgdyno.plan.search import Search
from pgdyno.record import series
from pgdyno.record.pgbench import PgbenchSummary
from pgdyno.record.trial_data import TRANSACTION_LOG, TrialData
from pgdyno.record.types import StudyRecord, TrialStatus, why_missing


def analyse_study(
    record: StudyRecord, trials: Sequence[TrialData], *, limits: DiskLimits | None = None
) -> StudyAnalysis:
    """Analyse all trials of a study that ended, in the order of the study's workloads.

    Args:
        record: Of the study.
        trials: Of it.
        limits: Of the data's disk; None without a card.
    """
    if record.plan.search is not None:
        return _analyse_search(record, record.plan.search, trials, limits)
    loads = list(_list_loads(record))
    analysed = tuple(_analyse_load(record, load, trials, limits) for load in loads)
    experiment = record.plan.experiment
    if experiment is None:
        return StudyAnalysis(workloads=analysed)
    blocks = [data for data in trials if data.slices and data.record.status is TrialStatus.FINISHED]
    by_workload = {
        workload.name: [trial for one in analysed if one.load.name == workload.name for trial in one.trials]
        for workload in record.plan.workloads
    }
    sweeps = {name: analyse_clients(of, experiment) for name, of in by_workload.items() if is_client_sweep(experiment)}
    return StudyAnalysis(
        workloads=tuple(one for one in analysed if one.trials),
        comparisons=compare(
            _gather_rounds(record, by_workload, blocks),
            experiment,
            primary={workload.name: primary_metric(workload) for workload in record.plan.workloads},
        ),
        sweeps={name: sweep for name, sweep in sweeps.items() if sweep is not None},
        pilots=_find_pilots(blocks),
    )


def _analyse_search(
    record: StudyRecord, search: Search, trials: Sequence[TrialData], limits: DiskLimits | None
) -> StudyAnalysis:
    """Trials in a closed loop and at each rate by themselves, and what they tell together."""
    workloads, searches = [], []
    for workload in record.plan.workloads:
        own = [data for data in trials if data.record.planned.workload == workload.name]
        by_rate: dict[float, list[TrialData]] = {}
        for data in own:
            by_rate.setdefault(data.record.planned.rate_tps or 0.0, []).append(data)
        for rate_tps, of in sorted(by_rate.items()):
            load = workload if not rate_tps else msgspec.structs.replace(workload, rate_tps=rate_tps)
            name = f"{workload.name}, {f'{rate_tps:,g} TPS scheduled' if rate_tps else 'closed loop'}"
            analysed_of = tuple(analyse_trial(record, load, data, limits=limits) for data in of)
            workloads.append(_estimate_load(record, name, load, analysed_of))
        seen = WorkloadSearch(workload.name, search, planned_s=record.plan.trials[0].duration_s)
        # A trial too short for a whole second has pgbench's own TPS, which is enough to bracket with.
        analysed = {t.record.planned.number: t.tps or t.pgbench_tps for one in workloads for t in one.trials}
        for data in own:
            if data.record.status is TrialStatus.FINISHED:
                seen.take(data, tps=analysed[data.record.planned.number])
        searches.append(seen.stand())
    return StudyAnalysis(workloads=tuple(workloads), searches=tuple(searches))


def _gather_rounds(
    record: StudyRecord, by_workload: Mapping[str, Sequence[TrialAnalysis]], blocks: Sequence[TrialData]
) -> dict[str, tuple[Round, ...]]:
    cpu_count = record.host.usable_cpu_count
    return {
        name: (
            *(one for data in blocks if data.record.planned.workload == name for one in rounds_of_block(data)),
            *rounds_of_trials(trials, cpu_count=cpu_count),
        )
        for name, trials in by_workload.items()
    }


def _find_pilots(blocks: Sequence[TrialData]) -> dict[str, SliceChoice]:
    """By workload, what its pilot chose; none where the slice length was given."""
    chosen = [(data.record.planned.workload, choose_from_slices(data.slices, data.slice_loads)) for data in blocks]
    return {name: choice for name, choice in chosen if choice is not None}


def _list_loads(record: StudyRecord) -> Iterator[tuple[str, PlannedWorkload, tuple[str, ...]]]:
    """Name, load and arms of all that the trials' own figures are grouped by."""
    for workload in record.plan.workloads:
        arms = sorted({t.arms for t in record.plan.trials if t.workload == workload.name and len(t.arms) == 1})
        if record.plan.experiment is None or not arms:
            yield workload.name, workload, ()
            continue
        for arm in record.plan.experiment.arms:
            yield f"{workload.name}, {arm.name}", apply_arm(workload, arm), (arm.name,)


def _analyse_load(
    record: StudyRecord,
    load: tuple[str, PlannedWorkload, tuple[str, ...]],
    trials: Sequence[TrialData],
    limits: DiskLimits | None,
) -> WorkloadAnalysis:
    name, workload, arms = load
    own = [t for t in trials if t.record.planned.workload == workload.name and arms in {(), t.record.planned.arms}]
    analysed = tuple(analyse_trial(record, workload, data, limits=limits) for data in own)
    return _estimate_load(record, name, workload, analysed)


def _estimate_load(
    record: StudyRecord, name: str, workload: PlannedWorkload, analysed: tuple[TrialAnalysis, ...]
) -> WorkloadAnalysis:
    finished = [trial for trial in analysed if trial.record.status is TrialStatus.FINISHED]
    return WorkloadAnalysis(
        name=name,
        load=workload,
        tps=estimate_tps([trial.tps for trial in finished]),
        latency_ms=estimate_latencies(
            [trial.percentiles for trial in finished], [trial.latency_mean_ms for trial in finished]
        ),
        trials=analysed,
        bottleneck=judge_workload(record, workload, analysed),
    )


def analyse_trial(
    record: StudyRecord, workload: PlannedWorkload, data: TrialData, *, limits: DiskLimits | None = None
) -> TrialAnalysis:
    """Analyse one trial under its load."""
    is_finished = data.record.status is TrialStatus.FINISHED
    throughput = _throughput(workload, data) if is_finished else None
    latency = None if throughput is None else throughput.latency
    start_s = data.load_start_epoch_s
    from_s = None if throughput is None or start_s is None else throughput.from_epoch_s
    device = record.host.data_disk.block_device
    counts = _counts_per_transaction(data)
    charts = chart_trial(data, disk=device)
    course = _find_course(workload, data, charts)
    # Variants that alternate have rates of their own, and those of the whole trial are nobody's.
    tps = None if throughput is None or len(data.record.planned.arms) > 1 else throughput.tps
    disk = None if limits is None or not is_finished else join_trial(data, workload, limits, device=device, tps=tps)
    return TrialAnalysis(
        record=data.record,
        tps=None if throughput is None else throughput.tps,
        latency_mean_ms=None if latency is None else measure_mean_ms(latency),
        percentiles=_no_percentiles(data, throughput) if latency is None else measure_percentiles(latency),
        transactions_count=_count(data, "transaction_count"),
        failed_count=_count(data, "failed_count"),
        skipped_count=_count(data, "skipped_count"),
        late_count=_count(data, "above_limit_count"),
        # A steady part that begins with the first whole second has nothing before it.
        steady_from_s=None if from_s is None or start_s is None else max(0.0, from_s - start_s),
        charts=charts,
        events=(*list_events(data), *describe_episodes(course.episodes)),
        counts_per_transaction=counts,
        shares=_shares(record, data),
        statements=tuple(_statements(data.warm_up)),
        unknown_lines=() if data.pgbench is None else data.pgbench.unknown_lines,
        gaps=data.gaps,
        pgbench_tps=None if data.pgbench is None else data.pgbench.tps,
        doubts=() if throughput is None else throughput.doubts,
        predictions=judge_predictions(data.predictions, data, tps=tps, counts_per_transaction=counts),
        # Variants that alternate have times of their own, too.
        time=None if len(data.record.planned.arms) > 1 else measure_time(data, workload),
        disk=disk,
        schedule_lag_ms=None if data.pgbench is None else data.pgbench.schedule_lag_average_ms,
        cpus_seen_count=None if data.os is None else len(series.list_cpus(data.os)) or None,
        health=assess_health(record, data, throughput=throughput, disk=disk),
        episodes=course.episodes,
        episodes_absent=course.reason,
        episode_causes=find_causes(data, course.episodes, device=device),
    )


def _throughput(workload: PlannedWorkload, data: TrialData) -> TrialThroughput | None:
    claim = PgbenchClaim(
        clients=workload.clients,
        is_closed_loop=workload.rate_tps is None,
        tps=None if data.pgbench is None else data.pgbench.tps,
        transactions_count=_count(data, "transaction_count"),
    )
    return claim_throughput(claim) if data.transactions is None else measure_throughput(data.transactions, claim)


def _no_percentiles(data: TrialData, throughput: TrialThroughput | None) -> tuple[Percentile, ...]:
    reasons = (
        None if data.record.error is None else data.record.error.fact,
        None if throughput is None else throughput.reason,
        why_missing(data.gaps, TRANSACTION_LOG),
        "no transactions",
    )
    reason = next(filter(None, reasons))
    return tuple(Percentile(name=name, value_ms=None, reason=reason) for name in PERCENTILES)


def _count(data: TrialData, field: str) -> int | None:
    # Where no transaction succeeded, pgbench says that much and no more.
    if data.pgbench is None or not (data.pgbench.is_complete or data.pgbench.transaction_count == 0):
        return None
    count: int | None = getattr(data.pgbench, field)
    return count


def _find_course(workload: PlannedWorkload, data: TrialData, charts: Mapping[ChartKind, Sequence[Series]]) -> Course:
    if data.record.status is not TrialStatus.FINISHED:
        return Course(episodes=(), reason="the trial failed")
    is_mixed = len(data.record.planned.arms) > 1
    return find_trial_episodes(charts, is_mixed=is_mixed, is_scheduled=workload.rate_tps is not None)


def _counts_per_transaction(data: TrialData) -> dict[str, float | None]:
    count = _count(data, "transaction_count")
    before, after = data.record.counters_before, data.record.counters_after
    per_transaction: dict[str, float | None] = {}
    for name, later in after.items():
        earlier = before.get(name)
        has_both = later is not None and earlier is not None and bool(count)
        per_transaction[name] = (later - earlier) / count if has_both else None  # type: ignore[operator]
    return per_transaction


def _shares(record: StudyRecord, data: TrialData) -> dict[str, float | None]:
    shares: dict[str, float | None] = {"cache_hit_ratio": _cache_hit_ratio(data)}
    if data.os is None:
        return shares
    disk = record.host.data_disk.block_device
    observed = {
        "cpu_busy_ratio": series.cpu_busy(data.os),
        "cpu_busiest_core_ratio": series.busiest_core(data.os),
        "cpu_steal_ratio": series.steal(data.os),
        "load_generator_thread_ratio": series.busiest_thread(data.os),
    }
    others = series.cpu_of_others(data.os)
    # Earlier records do not have it.
    if others.absent is None:
        observed["cpu_others_ratio"] = others
    if disk is not None and disk in series.list_disks(data.os):
        observed["disk_util_ratio"] = series.disk_series(data.os, disk)["disk_util_ratio"]
    return {**shares, **{name: data.mean_within_load(line) for name, line in observed.items()}}


def _cache_hit_ratio(data: TrialData) -> float | None:
    grown = []
    for name in ("blks_hit_pages", "blks_read_pages"):
        before, after = data.record.counters_before.get(name), data.record.counters_after.get(name)
        if before is None or after is None:
            return None
        grown.append(after - before)
    total = sum(grown)
    return grown[0] / total if total else None


def _statements(summary: PgbenchSummary | None) -> Iterator[StatementTime]:
    if summary is None:
        return
    sections = [(script.name, script.statements) for script in summary.scripts]
    for script, statements in sections or [(summary.transaction_type or "", summary.statements)]:
        for statement in statements:
            if statement.latency_average_ms is not None:
                yield StatementTime(
                    script=script,
                    statement=statement.text,
                    latency_ms=statement.latency_average_ms,
                    failures=statement.failure_count,
                )
