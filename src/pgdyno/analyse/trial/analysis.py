"""Analyse one trial by itself: its figures, and what explains them.

The code that runs trials needs the figures alone, right after each trial, to decide whether another is wanted. Charts,
episodes and explanations are computed for reports only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pgdyno.analyse.disk.demand import DiskLimits, measure_disk_demand
from pgdyno.analyse.episodes.causes import find_causes
from pgdyno.analyse.episodes.detection import DetectedEpisodes, describe_episodes, find_trial_episodes
from pgdyno.analyse.failover import measure_failover
from pgdyno.analyse.health.assessment import assess_health
from pgdyno.analyse.poolers import measure_pooler
from pgdyno.analyse.prediction import judge_predictions
from pgdyno.analyse.series import ChartKind, Series
from pgdyno.analyse.standbys import measure_standby_cpus, measure_standbys
from pgdyno.analyse.throughput import PgbenchClaim, TrialThroughput, measure_throughput, throughput_from_claim
from pgdyno.analyse.transaction_time.model import measure_time
from pgdyno.analyse.transaction_time.network import NetworkTime, measure_network
from pgdyno.analyse.trial.charts import chart_slices, chart_trial, list_events, list_memory_events
from pgdyno.analyse.trial.generators import measure_generators
from pgdyno.analyse.trial.latency import PERCENTILES, measure_mean_ms, measure_percentiles
from pgdyno.analyse.trial.others import OthersUse, measure_others_beside_load, measure_others_beside_server
from pgdyno.analyse.trial.parts import measure_parts
from pgdyno.analyse.trial.quoted import list_waiting_sessions, measure_quoted
from pgdyno.analyse.trial.slices import measure_slices
from pgdyno.analyse.types import Percentile, StatementTime, TrialAnalysis
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.pgbench.output import PgbenchSummary
from pgdyno.record.samples import os_series as series
from pgdyno.record.samples.files import OsSamples
from pgdyno.record.samples.series import Sampled
from pgdyno.record.trial_data import TRANSACTION_LOG, TrialData
from pgdyno.record.types import StudyRecord, TrialStatus, why_missing
from pgdyno.units import sum_if_known

# While a server is frozen, time goes on for its sessions, waits and flushes: every counter of milliseconds holds the pauses.
_TIME_SUFFIX = "_ms"
# pgbench names a script file by the path of the copy that it read, as `run/load/pgbench.py` and `host_run.py` name them.
_COPY = re.compile(r".*/script-\d+-", re.DOTALL)


def analyse_trial(
    record: StudyRecord, workload: PlannedWorkload, data: TrialData, *, limits: DiskLimits | None = None
) -> TrialAnalysis:
    """Analyse one trial under its load.

    Args:
        record: The study's record.
        workload: The trial's load.
        data: The data that the trial left.
        limits: Limits of the disk that holds the data, from its disk card; None without a card.
    """
    if data.is_sliced:
        return msgspec.structs.replace(
            measure_trial(record, workload, data),
            charts=chart_slices(data),
            events=list_memory_events(data),
            statements=tuple(_statements(data.warm_up)),
            episodes_absent="its load ran in slices, with pauses between them",
        )
    if data.init is not None:
        return msgspec.structs.replace(
            measure_trial(record, workload, data),
            charts=chart_trial(data, disk=record.data_device, wal_disk=record.wal_device),
            events=list_events(data),
            waiting=list_waiting_sessions(data),
            episodes_absent="its load was `pgbench -i`, whose steps differ",
        )
    throughput = _measure_throughput(workload, data)
    figures = _make_figures(record, workload, data, throughput)
    device = record.data_device
    charts = chart_trial(data, disk=device, wal_disk=record.wal_device)
    course = _detect_episodes(workload, data, charts)
    # Variants that alternate have different rates and times, and those of the whole trial describe none of them.
    is_mixed = data.record.planned.is_block
    tps = None if is_mixed else figures.tps
    is_finished = data.record.status is TrialStatus.FINISHED
    disk = (
        None
        if limits is None or not is_finished
        else measure_disk_demand(data, workload, limits, device=device, wal_device=record.wal_device, tps=tps)
    )
    pooler = measure_pooler(data, record.plan.find_pooler_of(workload))
    network = None if is_mixed else _measure_network(record, workload, data, figures)
    return msgspec.structs.replace(
        figures,
        charts=charts,
        events=(*list_events(data), *describe_episodes(course.episodes)),
        statements=tuple(_statements(data.warm_up)),
        predictions=judge_predictions(
            data.predictions, data, tps=tps, counts_per_transaction=figures.counts_per_transaction
        ),
        time=None if is_mixed else measure_time(data, workload, network, pooler),
        quoted={} if is_mixed or not is_finished else measure_quoted(data, tps=tps, charts=charts, device=device),
        waiting=() if is_mixed else list_waiting_sessions(data),
        network=network,
        pooler=pooler,
        standbys=measure_standbys(data, count=len(record.study.server.readers), is_given=record.given is not None),
        disk=disk,
        health=assess_health(record, data, shares=figures.shares, throughput=throughput, disk=disk),
        episodes=course.episodes,
        episodes_absent=course.reason,
        episode_causes=find_causes(data, course.episodes, device=device, wal_device=record.wal_device),
    )


def measure_trial(record: StudyRecord, workload: PlannedWorkload, data: TrialData) -> TrialAnalysis:
    """Measure the figures of one trial under its load, without what explains them.

    Args:
        record: The study's record.
        workload: The trial's load.
        data: The data that the trial left.
    """
    if data.is_sliced:
        return _make_sliced_figures(record, workload, data)
    return _make_figures(record, workload, data, _measure_throughput(workload, data))


def _make_sliced_figures(record: StudyRecord, workload: PlannedWorkload, data: TrialData) -> TrialAnalysis:
    """Measure a trial of a live round by its slices; pgbench's own figures hold the time in which it was frozen, except in turns."""
    sliced = measure_slices(data.slices, data.slice_loads, sampling_rate=data.record.log_sampling_rate)
    figures = _make_figures(record, workload, data, None)
    return msgspec.structs.replace(
        figures,
        tps=sliced.tps,
        latency_mean_ms=sliced.latency_mean_ms,
        percentiles=sliced.percentiles,
        counts_per_transaction={
            **sliced.counts_per_transaction,
            **{
                name: count for name, count in figures.counts_per_transaction.items() if not name.endswith(_TIME_SUFFIX)
            },
        },
        pgbench_tps=figures.pgbench_tps if record.plan.takes_turns else None,
        schedule_lag_ms=None,
    )


def _make_figures(
    record: StudyRecord, workload: PlannedWorkload, data: TrialData, throughput: TrialThroughput | None
) -> TrialAnalysis:
    latency = None if throughput is None else throughput.latency
    others = _find_others(record, data)
    start_s = data.load_start_epoch_s
    from_s = None if throughput is None or start_s is None else throughput.from_epoch_s
    return TrialAnalysis(
        record=data.record,
        tps=None if throughput is None else throughput.tps,
        latency_mean_ms=None if latency is None else measure_mean_ms(latency),
        percentiles=_no_percentiles(data, throughput) if latency is None else measure_percentiles(latency),
        transactions_count=_count(data, "transaction_count"),
        failed_count=_count(data, "failed_count"),
        skipped_count=_count(data, "skipped_count"),
        late_count=_count(data, "above_limit_count"),
        # A steady part that begins with the first whole second leaves nothing out.
        steady_from_s=None if from_s is None or start_s is None else max(0.0, from_s - start_s),
        charts={},
        events=(),
        counts_per_transaction=_counts_per_transaction(data),
        shares=_shares(record, data, others),
        resolutions={name: use.resolution_ratio for name, use in others.items()},
        statements=(),
        unknown_lines=() if data.pgbench is None else data.pgbench.unknown_lines,
        gaps=data.gaps,
        failures=data.failures,
        init_s=_list_init_times(data),
        failover=measure_failover(data),
        pgbench_tps=None if data.pgbench is None else data.pgbench.tps,
        pgbench_latency_ms=None if data.pgbench is None else data.pgbench.latency_average_ms,
        doubts=() if throughput is None else throughput.doubts,
        schedule_lag_ms=None if data.pgbench is None else data.pgbench.schedule_lag_average_ms,
        server_clock=data.server_clock,
        generators=measure_generators(record, workload, data),
        parts=measure_parts(data, throughput),
        cpus_seen_count=None if data.os is None else len(series.list_cpus(data.os)) or None,
    )


def _measure_throughput(workload: PlannedWorkload, data: TrialData) -> TrialThroughput | None:
    if data.record.status is not TrialStatus.FINISHED or data.init is not None:
        return None
    claim = PgbenchClaim(
        clients=workload.clients,
        is_closed_loop=not workload.is_scheduled,
        # Clients that a failover ends one by one count for pgbench until the last has gone.
        # In what pgbench divides by, it waits until the clients of all pgbenches are connected.
        tps=None if data.pgbench is None or data.failover is not None or data.generators else data.pgbench.tps,
        transactions_count=_count(data, "transaction_count"),
    )
    if data.transactions is None:
        return throughput_from_claim(claim)
    # Some clients are scheduled, or the server went away before the end.
    is_other = workload.is_scheduled or data.failover is not None
    return measure_throughput(data.transactions, claim, data.whole_seconds, None if is_other else data.long_load)


def _measure_network(
    record: StudyRecord, workload: PlannedWorkload, data: TrialData, figures: TrialAnalysis
) -> NetworkTime | None:
    if record.given is None and not record.load_hosts:
        return None
    latency_ms, lag_ms = figures.latency_mean_ms, figures.schedule_lag_ms
    if latency_ms is not None and lag_ms is not None:
        # The lag is known over the whole load only.
        latency_ms = None if figures.pgbench_latency_ms is None else figures.pgbench_latency_ms - lag_ms
    # From load hosts no pings come beside the load.
    earlier_s = record.find_round_trip_s(workload, {one.part.host for one in data.generators})
    return measure_network(
        data,
        workload,
        latency_ms=latency_ms,
        is_local=record.given is not None and all(one.is_local for one in record.list_given(workload)),
        earlier_ms=None if earlier_s is None else earlier_s * 1000.0,
    )


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
    # If no transaction succeeded, pgbench prints their count and little else.
    if data.pgbench is None or not (data.pgbench.is_complete or data.pgbench.transaction_count == 0):
        return None
    count: int | None = getattr(data.pgbench, field)
    return count


def _detect_episodes(
    workload: PlannedWorkload, data: TrialData, charts: Mapping[ChartKind, Sequence[Series]]
) -> DetectedEpisodes:
    if data.record.status is not TrialStatus.FINISHED:
        return DetectedEpisodes(episodes=(), reason="the trial failed")
    is_mixed = data.record.planned.is_block
    return find_trial_episodes(charts, is_mixed=is_mixed, is_scheduled=workload.is_scheduled)


def _list_init_times(data: TrialData) -> dict[str, float]:
    """Return the seconds of loading by metric; nothing of a trial that did not load."""
    if data.init is None or data.record.status is not TrialStatus.FINISHED:
        return {}
    checkpoint_s = data.record.checkpoint_s
    return {**data.init.metrics_s, **({} if checkpoint_s is None else {"init_checkpoint_s": checkpoint_s})}


def _counts_per_transaction(data: TrialData) -> dict[str, float | None]:
    count = 1 if data.init is not None else _count(data, "transaction_count")
    grown = {name: data.record.growth(name) for name in data.record.counters_after}
    return {name: by / count if by is not None and count else None for name, by in grown.items()}


def _find_others(record: StudyRecord, data: TrialData) -> dict[str, OthersUse]:
    """Return what other programs used of the CPUs, by the name of the share; nothing where that is not known."""
    found = {
        **measure_others_beside_server(record, data),
        "load_generator_others_ratio": measure_others_beside_load(record, data),
    }
    return {name: use for name, use in found.items() if use is not None}


def _shares(record: StudyRecord, data: TrialData, others: Mapping[str, OthersUse]) -> dict[str, float | None]:
    shares: dict[str, float | None] = {"cache_hit_ratio": _cache_hit_ratio(data)}
    observed: dict[str, Sampled] = {}
    if data.os is not None:
        observed = _list_machine_shares(record, data.os)
    if data.generator is not None:
        observed |= {
            "load_generator_thread_ratio": series.busiest_thread(data.generator),
            "load_generator_cpu_ratio": series.cpu_busy(data.generator),
        }
    shares |= {name: data.mean_within_load(line) for name, line in observed.items()}
    shares |= {name: use.share for name, use in others.items()}
    return {**shares, **_divide_cpus(record, data, shares)}


def _divide_cpus(record: StudyRecord, data: TrialData, shares: Mapping[str, float | None]) -> dict[str, float | None]:
    """Divide the use of the CPUs between standbys and all else of the study; nothing without standbys."""
    cpus = measure_standby_cpus(data, count=record.study.server.standbys)
    busy, others = shares.get("cpu_busy_ratio"), shares.get("cpu_others_ratio")
    count = None if data.os is None else len(series.list_cpus(data.os))
    if not cpus or busy is None or others is None or not count:
        return {}
    others += shares.get("cpu_emulation_ratio") or 0.0
    used = sum_if_known([one.cpus for one in cpus])
    if used is None:
        return {"cpu_server_ratio": None, "cpu_standbys_ratio": None}
    return {"cpu_server_ratio": max(0.0, busy - others - used / count), "cpu_standbys_ratio": used / count}


def _list_machine_shares(record: StudyRecord, samples: OsSamples) -> dict[str, Sampled]:
    observed = {
        "cpu_busy_ratio": series.cpu_busy(samples),
        "cpu_busiest_core_ratio": series.busiest_core(samples),
        "cpu_steal_ratio": series.steal(samples),
        "load_generator_thread_ratio": series.busiest_thread(samples),
    }
    for name, disk in (("disk_util_ratio", record.data_device), ("wal_disk_util_ratio", record.wal_device)):
        if disk is not None and disk in series.list_disks(samples):
            observed[name] = series.disk_series(samples, disk)["disk_util_ratio"]
    return observed


def _cache_hit_ratio(data: TrialData) -> float | None:
    hits, reads = data.record.growth("blks_hit_pages"), data.record.growth("blks_read_pages")
    if hits is None or reads is None:
        return None
    return hits / (hits + reads) if hits + reads else None


def _statements(summary: PgbenchSummary | None) -> Iterator[StatementTime]:
    if summary is None:
        return
    sections = [(script.name, script.statements) for script in summary.scripts]
    sections = sections or [(summary.transaction_type or "", summary.statements)]
    names = [_COPY.sub("", script) for script, _ in sections]
    for number, (name, (_, statements)) in enumerate(zip(names, sections, strict=True), start=1):
        for statement in statements:
            if statement.latency_average_ms is not None:
                yield StatementTime(
                    # Two files in different folders may have the same name.
                    script=name if names.count(name) == 1 else f"{name} ({number})",
                    statement=statement.text,
                    latency_ms=statement.latency_average_ms,
                    failures=statement.failure_count,
                )
