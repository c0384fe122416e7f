"""Turn slices and trials into rounds: the values of each variant in each round, in one form for both designs.

A round holds the reference twice, and once every other variant that was still undecided. A variant that is missing from
a round is missing from that round only; `answers.py` decides what a round compares.

Whether a value is left out must not depend on the value, or a variant's worst moments would be forgiven. So a slice or
trial without a completed transaction is a stall and not a gap, and a percentile that many of them lack the transactions for
is left out of all. The exception is a value of 0, which has no logarithm (`_leave_out_zeros`).

What is left out of all may well depend on how variants differ, and biases no verdict: wherever a metric is compared, each slice
or trial gives it the value that it would always give. The pairs are the same as if nothing was left out, so that their
verdicts have the same error rates, at every look; leaving a metric out can only hide a verdict.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from pgdyno.analyse.comparison.answers import INIT_METRICS, SPEED_METRICS, Round, Values
from pgdyno.analyse.comparison.rounding import COUNTED, LOGGED, Rounding
from pgdyno.analyse.failover import RESOLUTIONS_S, list_metrics
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.plan import PlannedTrial
from pgdyno.record.transactions.slices import Slice, SliceLoad, SlicePhase
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialRecord, TrialStatus

# Quantile of each percentile, and the transactions in the median slice of a block below which it rests on too few of them.
_PERCENTILES = {"latency_p50_ms": (0.5, 20), "latency_p95_ms": (0.95, 100), "latency_p99_ms": (0.99, 500)}
NO_TRANSACTION = 0.5
"""Count for a slice or trial without a completed transaction, because 0 has no logarithm: half of the smallest possible count.

Source: Anscombe 1948, "The transformation of Poisson, binomial and negative-binomial data", doi:10.1093/biomet/35.3-4.246.
"""
# A value of 0, such as the reads of a fully cached dataset, has no logarithm and so no ratio. A count that is 0 more
# often than this is not compared at all.
_MAX_ZEROS_RATIO = 0.05
# pgbench prints the times of its steps to 10 ms; those of tables are the sum of two. A step that takes less than this in the
# median trial is not compared: rounding would make two that are alike differ by up to 5 %. The whole always is, and so is the
# checkpoint, which pgdyno times itself.
_LEAST_STEP_S = 0.2
_INIT_ROUNDING = {**dict.fromkeys(INIT_METRICS[:-1], Rounding(step=0.01)), "init_tables_s": Rounding(step=0.02)}
_SLICE_ROUNDING = dict.fromkeys(SPEED_METRICS[1:], LOGGED)
_TRIAL_ROUNDING = {
    **_INIT_ROUNDING,
    "promotion_s": Rounding(step=RESOLUTIONS_S["promotion_s"]),
    **dict.fromkeys(SPEED_METRICS[1:], COUNTED),
}
_SLICE_COUNTS = ("wal_bytes", "device_flush_count", "device_read_bytes", "device_write_bytes")
_TRIAL_COUNTS = ("wal_bytes", "wal_sync_count", "wal_fpi_count", "blks_read_pages")
_TRIAL_PERCENTILES = {"p50": "latency_p50_ms", "p95": "latency_p95_ms", "p99": "latency_p99_ms"}
# The share of trials that must support a percentile: of one variant's at least, because the slow ones complete fewer
# transactions. Of trials in slices, whose percentiles above half a slice are too small, nearly all.
_LEAST_SUPPORTED_RATIO, _LEAST_SUPPORTED_IN_SLICES_RATIO = 0.5, 0.95


def rounds_of_block(data: TrialData) -> tuple[Round, ...]:
    """Return the complete rounds of a switchback block from the trial's record."""
    return rounds_of_slices(
        data.slices,
        data.slice_loads,
        trial=data.record.planned.number,
        sampling_rate=data.record.log_sampling_rate,
        failures=data.failures,
    )


def rounds_of_slices(
    slices: Sequence[Slice], loads: Sequence[SliceLoad], *, trial: int, sampling_rate: float, failures: int = 0
) -> tuple[Round, ...]:
    """Return the complete rounds of one switchback block.

    Args:
        slices: Slices of the block, pilot included, in their order.
        loads: The load of each slice.
        trial: The block's number.
        sampling_rate: pgbench's `--sampling-rate`.
        failures: How often the block failed before. As many of its first rounds stand for those in which it did.
    """
    in_rounds = [(one, load) for one, load in zip(slices, loads, strict=True) if one.phase is SlicePhase.ROUND]
    percentiles = _list_percentiles([load for _, load in in_rounds])
    seen = _leave_out_zeros([_values_of_slice(*each, percentiles, sampling_rate) for each in in_rounds])
    rounds: list[Round] = []
    for _, group in itertools.groupby(zip(in_rounds, seen, strict=True), key=lambda each: each[0][0].round):
        members = list(group)
        values: dict[str, tuple[Values, ...]] = {}
        for (one, _), of_slice in members:
            values[one.variant] = (*values.get(one.variant, ()), of_slice)
        (first, _), (last, _) = members[0][0], members[-1][0]
        once = tuple(name for name, of in values.items() if len(of) == 1)
        rounds.append(
            Round(
                trial=trial,
                at_s=last.end_monotonic_s,
                length_s=last.end_monotonic_s - first.begin_monotonic_s,
                values=values,
                rounding=_SLICE_ROUNDING,
                # A block fails in one variant, and its record does not say in which. Counted as of each but the reference, it bounds
                # at least as much as a failure of the reference would.
                repeated=once if len(rounds) < failures else (),
            )
        )
    return tuple(rounds)


def rounds_of_trials(trials: Iterable[TrialAnalysis], *, cpu_count: float | None) -> tuple[Round, ...]:
    """Return the rounds of one workload's paired or live trials; trials that failed are missing from their rounds.

    Args:
        trials: Trials of one workload.
        cpu_count: Number of CPUs that `cpu_busy_ratio` refers to, for trials that do not say how many they saw;
            None if not known.
    """
    finished = [t for t in trials if t.record.status is TrialStatus.FINISHED and _is_in_round(t.record.planned)]
    finished.sort(key=lambda t: t.record.planned.number)
    percentiles = _list_supported(finished)
    values_of = [_values_of_trial(one, percentiles, cpu_count) for one in finished]
    seen = _leave_out_zeros(_leave_out_short_steps(values_of))
    rounds, between_s = [], _find_between_s([one.record for one in finished])
    for _, group in itertools.groupby(zip(finished, seen, strict=True), key=lambda each: each[0].record.planned.round):
        pairs = list(group)
        members = [one for one, _ in pairs]
        values: dict[str, tuple[Values, ...]] = {}
        for one, of_trial in pairs:
            variant = one.record.planned.variants[0]
            values[variant] = (*values.get(variant, ()), of_trial)
        rounds.append(
            Round(
                trial=members[0].record.planned.number,
                at_s=members[-1].record.load_end_monotonic_s or 0.0,
                length_s=_length_s([one.record for one in members], between_s),
                values=values,
                # Percentiles of slices come from the transactions themselves, others from histograms.
                rounding=_SLICE_ROUNDING if members[0].record.is_in_slices else _TRIAL_ROUNDING,
                repeated=tuple(one.record.planned.variants[0] for one in members if one.failures),
            )
        )
    return tuple(rounds)


def tps_of_trial(trial: TrialAnalysis) -> float | None:
    """Return TPS of the steady part, or of the whole load if no transaction ended in the steady part; None if the count is unknown."""
    if _is_stalled(trial):
        return NO_TRANSACTION / trial.record.planned.duration_s
    return trial.tps or trial.pgbench_tps


def _is_stalled(trial: TrialAnalysis) -> bool:
    return not (trial.tps or trial.pgbench_tps) and (trial.tps == 0 or trial.transactions_count == 0)


def _is_in_round(planned: PlannedTrial) -> bool:
    return len(planned.variants) == 1 and not planned.is_observed


def _list_supported(trials: Sequence[TrialAnalysis]) -> frozenset[str]:
    """Return the names of the percentiles for which the trials hold enough transactions."""
    by_variant: dict[str, list[frozenset[str]]] = {}
    for one in trials:
        names = frozenset(each.name for each in one.percentiles if each.value_ms is not None)
        by_variant.setdefault(one.record.planned.variants[0], []).append(names)
    groups, least = list(by_variant.values()), _LEAST_SUPPORTED_RATIO
    if any(one.record.is_in_slices for one in trials):
        groups, least = [[each for of in groups for each in of]], _LEAST_SUPPORTED_IN_SLICES_RATIO
    return frozenset(
        name for name in _TRIAL_PERCENTILES if any(sum(name in each for each in of) >= least * len(of) for of in groups)
    )


def _values_of_trial(trial: TrialAnalysis, percentiles: Collection[str], cpu_count: float | None) -> dict[str, float]:
    values: dict[str, float | None] = dict(trial.init_s) or {"tps": tps_of_trial(trial), **list_metrics(trial.failover)}
    # Where nothing ended, every transaction took at least as long as the load.
    stalled_ms = trial.record.planned.duration_s * 1e3 if _is_stalled(trial) else None
    values |= {
        _TRIAL_PERCENTILES[one.name]: stalled_ms or one.own_ms for one in trial.percentiles if one.name in percentiles
    }
    counts = trial.counts_per_transaction
    values |= {name: counts.get(name) for name in (*_TRIAL_COUNTS, *_SLICE_COUNTS, "cpu_ms")}
    busy = trial.shares.get("cpu_busy_ratio")
    cpus = trial.cpus_seen_count or cpu_count
    if busy is not None and cpus is not None and (trial.tps or trial.init_s):
        values["cpu_ms"] = busy * cpus * 1e3 * (trial.init_s["init_s"] if trial.init_s else 1 / (trial.tps or math.inf))
    return _known(values)


def _list_percentiles(loads: Sequence[SliceLoad]) -> dict[str, float]:
    """Return the percentiles for which the median slice holds enough transactions."""
    median = float(np.median([load.ok_count for load in loads])) if loads else 0.0
    return {name: quantile for name, (quantile, least) in _PERCENTILES.items() if median >= least}


def _values_of_slice(
    one: Slice, load: SliceLoad, percentiles: Mapping[str, float], sampling_rate: float
) -> dict[str, float]:
    values: dict[str, float | None] = {}
    if one.counted_s > 0:
        values["tps"] = max(load.ok_count, NO_TRANSACTION) / sampling_rate / one.counted_s
    if load.ok_count:
        quantiles = np.quantile(load.latency_us, list(percentiles.values())) / 1e3
        values |= dict(zip(percentiles, quantiles.tolist(), strict=True))
        count = load.ok_count / sampling_rate
        values |= {name: _per(one.counts.get(name), count) for name in _SLICE_COUNTS}
        cpu_s = one.counts.get("cpu_s")
        values["cpu_ms"] = None if cpu_s is None else cpu_s * 1e3 / count
    elif one.counted_s > 0:
        # Nothing ended: every transaction took at least as long as the slice.
        values |= dict.fromkeys(percentiles, one.counted_s * 1e3)
    return _known(values)


def _per(total: float | None, count: float) -> float | None:
    return None if total is None else total / count


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _leave_out_short_steps(seen: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Drop the steps of loading that are too short for the resolution of their times from all trials."""
    short = {
        name
        for name in INIT_METRICS[1:-1]
        if (times := [values[name] for values in seen if name in values]) and float(np.median(times)) < _LEAST_STEP_S
    }
    return [{name: value for name, value in values.items() if name not in short} for values in seen]


def _leave_out_zeros(seen: Sequence[Mapping[str, float]]) -> list[Values]:
    """Drop values of 0, which have no logarithm; drop a metric that is often 0 from all."""
    names = {name for values in seen for name in values}
    often_zero = {
        name
        for name in names
        if sum(values.get(name) == 0 for values in seen) > _MAX_ZEROS_RATIO * sum(name in values for values in seen)
    }
    return [{name: value for name, value in values.items() if value > 0 and name not in often_zero} for values in seen]


def _find_between_s(records: Sequence[TrialRecord]) -> float | None:
    """Return the median seconds from the start of a load to that of the next of its round; None where they ran together or alone."""
    steps_s = [
        two.load_start_monotonic_s - one.load_start_monotonic_s
        for one, two in itertools.pairwise(records)
        if one.planned.round == two.planned.round and not one.is_in_slices
        if one.load_start_monotonic_s is not None and two.load_start_monotonic_s is not None
    ]
    # The clock of another boot may be behind.
    ahead_s = [step_s for step_s in steps_s if step_s > 0]
    return float(np.median(ahead_s)) if ahead_s else None


def _length_s(records: Sequence[TrialRecord], between_s: float | None) -> float:
    """Return the seconds of a round with everything that its trials took.

    Args:
        records: Of its trials.
        between_s: As `_find_between_s` returns it, for trials of older records: how long one took is not in them.
    """
    begins_s = [one.began_monotonic_s for one in records if one.began_monotonic_s is not None]
    ends_s = [one.ended_monotonic_s for one in records if one.ended_monotonic_s is not None]
    if len(begins_s) == len(ends_s) == len(records):
        return max(ends_s) - min(begins_s)
    if between_s is not None:
        return between_s * len(records)
    # Loads of a live round run at the same time.
    loads = sorted((one.load_start_monotonic_s or 0.0, one.load_end_monotonic_s or 0.0) for one in records)
    loads_s, until_s = 0.0, 0.0
    for start_s, end_s in loads:
        loads_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return loads_s + sum(one.restore_s + one.planned.warm_up_s for one in records)
