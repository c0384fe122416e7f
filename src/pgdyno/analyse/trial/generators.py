"""Measure what each load host did in a trial, and how much of what it can send that was.

Before the trials each pgbench sent empty statements as fast as it could, alone. The nearer the rate of a load's exchanges is to
the rate of those empty statements, the less room is left in the load host and on its way to the server.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.analyse.threads import measure_threads
from pgdyno.analyse.transaction_time.exchanges import UncountableError, count_exchanges
from pgdyno.analyse.trial.latency import measure_percentiles
from pgdyno.analyse.types import GeneratorFigures
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.samples import os_series as series
from pgdyno.record.transactions.histogram import LatencyHistogram
from pgdyno.record.trial_data import GeneratorData, TrialData
from pgdyno.record.types import StudyRecord
from pgdyno.units import sum_if_known


def measure_generators(record: StudyRecord, workload: PlannedWorkload, data: TrialData) -> tuple[GeneratorFigures, ...]:
    """Measure each load host's part; none if the load came from the machine that pgdyno ran on."""
    by_host: dict[str, list[GeneratorData]] = {}
    for one in data.far_generators:
        by_host.setdefault(one.part.host, []).append(one)
    return tuple(_measure(record, workload, data, of) for of in by_host.values())


def _measure(
    record: StudyRecord, workload: PlannedWorkload, data: TrialData, of: Sequence[GeneratorData]
) -> GeneratorFigures:
    """Measure what a load host did, with all of its pgbenches: each part of a load has one there."""
    first, load_s = of[0], data.record.load_s
    known = next((host for host in record.load_hosts if host.name == first.part.host), None)
    start_s, end_s = data.record.load_start_monotonic_s, data.record.load_end_monotonic_s
    thread_ratio = None
    if first.os is not None and start_s is not None and end_s is not None:
        # Waits for a CPU are the thread's time, too.
        thread_ratio = max(map(sum, measure_threads(first.os, start_s, end_s)), default=None)
    return GeneratorFigures(
        host=first.part.host,
        clients=sum(one.part.clients for one in of),
        threads=sum(one.part.threads for one in of),
        tps=_divide(sum_if_known([_count(one) for one in of]), load_s),
        p99_ms=_find_p99_ms(of),
        cpu_s=sum_if_known([one.part.cpu_s for one in of]),
        stream_cpu_s=sum_if_known([one.part.stream_cpu_s for one in of]),
        thread_ratio=thread_ratio,
        machine_cpu_ratio=None if first.os is None else data.mean_within_load(series.cpu_busy(first.os)),
        sent_per_s=_divide(sum_if_known([_count_sent(workload, data, one) for one in of]), load_s),
        empty_per_s=None if known is None else known.empty_tps,
        clock=first.clock,
    )


def _count(generator: GeneratorData) -> int | None:
    return None if generator.pgbench is None else generator.pgbench.transaction_count


def _count_sent(workload: PlannedWorkload, data: TrialData, generator: GeneratorData) -> float | None:
    """Count the exchanges of a pgbench; of a load without parts, an average transaction is that of all load hosts."""
    count, part = _count(generator), generator.part.part
    try:
        each = count_exchanges(workload, data.warm_up, generator.pgbench if part else data.pgbench, part=part)
    except UncountableError:
        return None
    return None if count is None else count * each


def _find_p99_ms(of: Sequence[GeneratorData]) -> float | None:
    known = [one.transactions.latency() for one in of if one.transactions is not None]
    if len(known) < len(of):
        return None
    return next(one.value_ms for one in measure_percentiles(LatencyHistogram.merged(known)) if one.name == "p99")


def _divide(count: float | None, load_s: float | None) -> float | None:
    return None if count is None or not load_s else count / load_s
