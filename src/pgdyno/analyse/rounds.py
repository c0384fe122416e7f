"""From slices and trials to rounds: what each arm showed in each, in one form for both designs.

A round holds the reference twice and every other arm that was still undecided once. A round that lacks one of its
references compares nothing and is left out; an arm that is missing from a round is missing only there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pgdyno.analyse.comparison import Round, Values
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.slices import Slice, SliceLoad, SlicePhase
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialStatus

# Fewer transactions than these in a slice, and its percentile is the latency of a handful of them.
_LEAST_COUNT = {"latency_p50_ms": (0.5, 20), "latency_p95_ms": (0.95, 100), "latency_p99_ms": (0.99, 500)}
_SLICE_COUNTS = ("wal_bytes", "device_flush_count", "device_read_bytes", "device_write_bytes")
_TRIAL_COUNTS = ("wal_bytes", "wal_sync_count", "wal_fpi_count", "blks_read_pages")
_TRIAL_PERCENTILES = {"p50": "latency_p50_ms", "p95": "latency_p95_ms", "p99": "latency_p99_ms"}


def rounds_of_block(data: TrialData) -> tuple[Round, ...]:
    """The whole rounds of a switchback block as its record has them."""
    return rounds_of_slices(
        data.slices,
        data.slice_loads,
        trial=data.record.planned.number,
        sampling_rate=data.record.log_sampling_rate,
    )


def rounds_of_slices(
    slices: Sequence[Slice], loads: Sequence[SliceLoad], *, trial: int, sampling_rate: float
) -> tuple[Round, ...]:
    """The whole rounds of one switchback block.

    Args:
        slices: Of the block, pilot included, in their order.
        loads: For each slice.
        trial: The block's number.
        sampling_rate: pgbench's `--sampling-rate`.
    """
    pairs = [(s, load) for s, load in zip(slices, loads, strict=True) if s.phase is SlicePhase.ROUND]
    rounds = []
    for _, group in itertools.groupby(pairs, key=lambda pair: pair[0].round):
        members = list(group)
        values: dict[str, tuple[Values, ...]] = {}
        for one, load in members:
            values[one.arm] = (*values.get(one.arm, ()), _values_of_slice(one, load, sampling_rate))
        rounds.append(
            Round(
                trial=trial,
                at_s=members[-1][0].end_monotonic_s,
                length_s=members[-1][0].end_monotonic_s - members[0][0].begin_monotonic_s,
                values=values,
            )
        )
    return tuple(rounds)


def rounds_of_trials(trials: Iterable[TrialAnalysis], *, cpu_count: float) -> tuple[Round, ...]:
    """The rounds of one workload's paired trials; trials that failed are missing from theirs.

    Args:
        trials: Of one workload.
        cpu_count: CPUs of the machine, of which `cpu_busy_ratio` is a share.
    """
    finished = [t for t in trials if t.record.status is TrialStatus.FINISHED and t.record.planned.arms]
    finished.sort(key=lambda t: t.record.planned.number)
    rounds = []
    for _, group in itertools.groupby(finished, key=lambda t: t.record.planned.round):
        members = list(group)
        values: dict[str, tuple[Values, ...]] = {}
        for one in members:
            arm = one.record.planned.arms[0]
            values[arm] = (*values.get(arm, ()), values_of_trial(one, cpu_count=cpu_count))
        rounds.append(
            Round(
                trial=members[0].record.planned.number,
                at_s=members[-1].record.load_end_monotonic_s or 0.0,
                length_s=sum(_length_s(member) for member in members),
                values=values,
            )
        )
    return tuple(rounds)


def values_of_trial(trial: TrialAnalysis, *, cpu_count: float) -> Values:
    """What one paired trial gives to its round."""
    values: dict[str, float | None] = {"tps": trial.tps}
    for percentile in trial.percentiles:
        if percentile.name in _TRIAL_PERCENTILES:
            values[_TRIAL_PERCENTILES[percentile.name]] = percentile.value_ms
    values |= {name: trial.counts_per_transaction.get(name) for name in _TRIAL_COUNTS}
    busy = trial.shares.get("cpu_busy_ratio")
    if busy is not None and trial.tps:
        values["cpu_ms"] = busy * cpu_count * 1e3 / trial.tps
    return _positive(values)


def _values_of_slice(one: Slice, load: SliceLoad, sampling_rate: float) -> Values:
    counted_s = one.end_monotonic_s - one.settled_monotonic_s
    count = load.ok_count / sampling_rate
    values: dict[str, float | None] = {"tps": count / counted_s if counted_s > 0 else None}
    for name, (quantile, least) in _LEAST_COUNT.items():
        if len(load.latency_us) >= least:
            values[name] = float(np.quantile(load.latency_us, quantile)) / 1e3
    if count:
        values |= {name: _per(one.counts.get(name), count) for name in _SLICE_COUNTS}
        cpu_s = one.counts.get("cpu_s")
        values["cpu_ms"] = None if cpu_s is None else cpu_s * 1e3 / count
    return _positive(values)


def _per(total: float | None, count: float) -> float | None:
    return None if total is None else total / count


def _positive(values: Mapping[str, float | None]) -> Values:
    # What is 0 has no logarithm and so no ratio: such as reads of a dataset that is cached whole.
    return {name: value for name, value in values.items() if value is not None and value > 0}


def _length_s(trial: TrialAnalysis) -> float:
    record = trial.record
    if record.load_start_monotonic_s is None or record.load_end_monotonic_s is None:
        return 0.0
    return record.restore_s + record.planned.warm_up_s + record.load_end_monotonic_s - record.load_start_monotonic_s
