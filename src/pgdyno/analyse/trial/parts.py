"""Measure what each part of a load did; of a load without parts that is divided among standbys, what each standby served.

A part on load hosts has a pgbench on each; seconds of their own clocks are those that they merge into.

All are measured over the same steady part, that of the whole load, so that their TPS add up to the whole's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pgdyno.analyse.estimate import estimate_over_trials
from pgdyno.analyse.throughput import TrialThroughput
from pgdyno.analyse.trial.latency import PERCENTILES, estimate_latencies, measure_mean_ms, measure_percentiles
from pgdyno.analyse.types import PartAnalysis, PartFigures, Percentile, TrialAnalysis
from pgdyno.record.transactions.histogram import LatencyHistogram
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.trial_data import TRANSACTION_LOG, GeneratorData, TrialData
from pgdyno.record.types import TrialRecord, why_missing
from pgdyno.units import sum_if_known


def measure_parts(data: TrialData, throughput: TrialThroughput | None) -> tuple[PartFigures, ...]:
    """Measure each part of a load; nothing of a load that one pgbench made, or of a trial that failed.

    Args:
        data: The data that the trial left.
        throughput: That of the whole load.
    """
    if throughput is None:
        return ()
    return tuple(_measure_each([one for one in data.generators if one.part.endpoint is not None], data, throughput))


def _measure_each(
    members: Sequence[GeneratorData], data: TrialData, throughput: TrialThroughput
) -> Iterator[PartFigures]:
    steady = _find_steady_part(throughput)
    length_s = _find_length_s(throughput, data.record)
    for name, group in itertools.groupby(members, key=lambda one: one.part.part or one.part.endpoint or ""):
        of = list(group)
        seen = [_find_latency(one, steady, throughput.latency_until_epoch_s, data) for one in of]
        known = [one for one in seen if one is not None]
        latency = LatencyHistogram.merged(known) if len(known) == len(seen) else None
        yield PartFigures(
            name=name,
            endpoints=tuple(dict.fromkeys(one.part.endpoint or "" for one in of)),
            clients=sum(one.part.clients for one in of),
            tps=_find_tps(of, steady, data, length_s=length_s),
            latency_mean_ms=None if latency is None else measure_mean_ms(latency),
            percentiles=_lack_percentiles(data) if latency is None else measure_percentiles(latency),
            failed_count=sum_if_known([None if one.pgbench is None else one.pgbench.failed_count for one in of]),
        )


def _lack_percentiles(data: TrialData) -> tuple[Percentile, ...]:
    """Return the percentiles of a part of which a pgbench's transactions are not known, with the reason."""
    reason = why_missing(data.gaps, TRANSACTION_LOG) or "a transaction log is missing"
    return tuple(Percentile(name=name, value_ms=None, reason=reason) for name in PERCENTILES)


def _find_steady_part(throughput: TrialThroughput) -> tuple[int, int] | None:
    """Return from when until when the whole load was steady; None if the run is too short for that, and all of it counts."""
    if throughput.from_epoch_s is None or throughput.until_epoch_s is None:
        return None
    return throughput.from_epoch_s, throughput.until_epoch_s


def _find_length_s(throughput: TrialThroughput, record: TrialRecord) -> float | None:
    """Return the seconds over which transactions count in the whole load's TPS; None if it has no TPS."""
    steady = _find_steady_part(throughput)
    if steady is not None:
        return steady[1] - steady[0]
    if not throughput.tps or throughput.latency is None:
        return None
    return throughput.latency.count / record.log_sampling_rate / throughput.tps


def _find_tps(
    members: Sequence[GeneratorData], steady: tuple[int, int] | None, data: TrialData, *, length_s: float | None
) -> float | None:
    """Return the TPS of a part; long transactions count by the share of their time, as in `measure_throughput`."""
    rates = []
    for one in members:
        if one.transactions is None or not length_s:
            return None
        if (long := one.long_load) is None:
            ended = (
                one.transactions.latency() if steady is None else _take_seconds(one, one.transactions, *steady, data)
            )
            rates.append(ended.count / length_s)
            continue
        from_s, until_s = (long.from_epoch_s, long.until_epoch_s) if steady is None else steady
        rates.append(long.count(from_s, until_s) / (until_s - from_s))
    return sum(rates) / data.record.log_sampling_rate


def _find_latency(
    member: GeneratorData, steady: tuple[int, int] | None, until_epoch_s: int | None, data: TrialData
) -> LatencyHistogram | None:
    if member.transactions is None:
        return None
    if steady is None:
        return member.transactions.latency()
    # Of long transactions, those of the log's last second count as well.
    until_s = until_epoch_s if member.long_load is None else None
    return _take_seconds(member, member.transactions, steady[0], until_s, data)


def _take_seconds(
    member: GeneratorData,
    transactions: TransactionSummary,
    from_epoch_s: int,
    until_epoch_s: int | None,
    data: TrialData,
) -> LatencyHistogram:
    """Return the latencies within seconds of the trial's clock, which its own seconds have merged into; see `TransactionSummary.window`."""
    behind_s = round(data.find_behind_s(member))
    return transactions.window(from_epoch_s - behind_s, None if until_epoch_s is None else until_epoch_s - behind_s)


def estimate_parts(trials: Sequence[TrialAnalysis]) -> tuple[PartAnalysis, ...]:
    """Estimate what each part of a load did, over the trials of one variant."""
    seen: dict[str, list[tuple[int, PartFigures]]] = {}
    for trial in trials:
        for part in trial.parts:
            seen.setdefault(part.name, []).append((trial.record.planned.round, part))
    return tuple(_estimate_part(of) for of in seen.values())


def _estimate_part(in_rounds: Sequence[tuple[int, PartFigures]]) -> PartAnalysis:
    of = [part for _, part in in_rounds]
    rounds = [number for number, _ in in_rounds]
    return PartAnalysis(
        name=of[0].name,
        endpoints=of[0].endpoints,
        clients=of[0].clients,
        tps=estimate_over_trials([part.tps for part in of], unit="tps", rounds=rounds),
        latency_ms=estimate_latencies(
            [part.percentiles for part in of], [part.latency_mean_ms for part in of], rounds=rounds
        ),
        failed_count=sum_if_known([part.failed_count for part in of]),
    )
