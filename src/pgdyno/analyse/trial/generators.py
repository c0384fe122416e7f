"""Measure what each load host did in a trial, and how much of what it can send that was.

Before the trials each pgbench sent empty statements as fast as it could, alone. The nearer the rate of a load's exchanges is to
the rate of those empty statements, the less room is left in the load host and on its way to the server.
"""

from __future__ import annotations

from pgdyno.analyse.threads import measure_threads
from pgdyno.analyse.transaction_time.exchanges import UncountableError, count_exchanges
from pgdyno.analyse.trial.latency import measure_percentiles
from pgdyno.analyse.types import GeneratorFigures
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.samples import os_series as series
from pgdyno.record.trial_data import GeneratorData, TrialData
from pgdyno.record.types import StudyRecord


def measure_generators(record: StudyRecord, workload: PlannedWorkload, data: TrialData) -> tuple[GeneratorFigures, ...]:
    """Measure each load host's part; none if the load came from the machine that pgdyno ran on."""
    hosts = data.far_generators
    if not hosts:
        return ()
    try:
        exchanges = count_exchanges(workload, data.warm_up, data.pgbench)
    except UncountableError:
        exchanges = None
    return tuple(_measure(record, data, one, exchanges) for one in hosts)


def _measure(
    record: StudyRecord, data: TrialData, generator: GeneratorData, exchanges: float | None
) -> GeneratorFigures:
    part, load_s = generator.part, data.record.load_s
    count = None if generator.pgbench is None else generator.pgbench.transaction_count
    tps = None if count is None or not load_s else count / load_s
    known = next((host for host in record.load_hosts if host.name == part.host), None)
    sent_per_s = None if tps is None or exchanges is None else tps * exchanges
    start_s, end_s = data.record.load_start_monotonic_s, data.record.load_end_monotonic_s
    thread_ratio = None
    if generator.os is not None and start_s is not None and end_s is not None:
        # Waits for a CPU are the thread's time, too.
        thread_ratio = max(map(sum, measure_threads(generator.os, start_s, end_s)), default=None)
    latency = None if generator.transactions is None else generator.transactions.latency()
    p99 = None if latency is None else next(one for one in measure_percentiles(latency) if one.name == "p99")
    return GeneratorFigures(
        host=part.host,
        clients=part.clients,
        threads=part.threads,
        tps=tps,
        p99_ms=None if p99 is None else p99.value_ms,
        cpu_s=part.cpu_s,
        stream_cpu_s=part.stream_cpu_s,
        thread_ratio=thread_ratio,
        machine_cpu_ratio=None if generator.os is None else data.mean_within_load(series.cpu_busy(generator.os)),
        sent_per_s=sent_per_s,
        empty_per_s=None if known is None else known.empty_tps,
        clock=generator.clock,
    )
