"""See what trials used of a machine: the trials that the samplers watched, and those of live rounds, which none watches.

One watched trial shows no spread. Of what the slices of the rounds count themselves, the rounds show it. What the kernel
writes in a slice is no part of that: it may be of other loads.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from pgdyno.analyse.disk.demand import UseKind
from pgdyno.analyse.estimate import Estimate, estimate_over_trials
from pgdyno.analyse.types import OTHERS_RATIO, TrialAnalysis
from pgdyno.record.samples import os_series

_T = TypeVar("_T")
COUNTED_IN_ROUNDS = {UseKind.WAL: "wal_bytes", UseKind.READ_BYTES: "device_read_bytes"}
"""The count per transaction that shows a use of the disk in live rounds."""


class Usage(NamedTuple):
    """The use of a resource per second in one trial, the trial's TPS and round, and the share of the resource left to it."""

    amount: float
    rate_tps: float
    round: int
    left_ratio: float = 1.0


class FinishedTrial(NamedTuple):
    """A finished trial and its TPS."""

    seen: TrialAnalysis
    rate_tps: float

    @property
    def is_of_round(self) -> bool:
        """Whether it is a trial of a live round, which no sampler watched."""
        return self.seen.record.slice_s is not None

    def use(self, amount: float, *, left_ratio: float = 1.0) -> Usage:
        """Return this trial's use of a resource, `amount` a second."""
        return Usage(amount, self.rate_tps, self.seen.record.planned.round, left_ratio)


class CpuUse(NamedTuple):
    """The use of the CPUs in one trial."""

    usage: Usage
    cpus: int
    """How many CPUs there are."""
    idle_ratio: float
    """Idle share of the CPUs that the study may use."""
    others_ratio: float | None
    """What other programs used of them; None if that is not known."""


def choose_uses(watched: Sequence[_T], rounds: Sequence[_T]) -> tuple[Sequence[_T], str]:
    """Choose the trials that show a use: those of live rounds where these are more; return also a clause that names them.

    Args:
        watched: The uses of the trials that the samplers watched.
        rounds: The uses of those of live rounds, as far as they counted them.

    Returns:
        The clause is empty for watched trials.
    """
    if len(rounds) > len(watched) > 0:
        return rounds, f"; its use in n = {len(rounds)} trials of the rounds"
    return watched, ""


def count_in_rounds(trials: Sequence[FinishedTrial], metric: str) -> list[Usage]:
    """Return what each trial of live rounds used a second, by a count per transaction."""
    found = [(trial.seen.counts_per_transaction.get(metric), trial) for trial in trials if trial.is_of_round]
    return [trial.use(each * trial.rate_tps) for each, trial in found if each is not None]


def estimate_uses(amounts: Sequence[float], taken: Sequence[Usage], *, unit: str) -> Estimate:
    """Estimate the geometric mean of positive amounts, one for each use; the uses of one round count as one."""
    return estimate_over_trials(amounts, unit=unit, rounds=[one.round for one in taken])


def watch_cpus(trial: FinishedTrial, usable: float) -> CpuUse | None:
    """Return the use of the CPUs in a trial that the samplers watched; None if they did not."""
    shares, count = trial.seen.shares, trial.seen.cpus_seen_count
    busy, told = shares.get("cpu_busy_ratio"), shares.get("cpu_others_ratio")
    if busy is None or not count:
        return None
    # If the study may use only some CPUs, the use of these by other programs is unknown.
    is_narrowed, others = usable < count, told or 0.0
    if is_narrowed:
        # Those threads serve the load, but may run on the other CPUs.
        others += shares.get("cpu_emulation_ratio") or 0.0
    own = busy - others if is_narrowed or others > OTHERS_RATIO else busy
    stolen = 0.0 if is_narrowed else shares.get("cpu_steal_ratio") or 0.0
    used = max(0.0, own) * count
    idle = 1.0 - used / usable if is_narrowed else 1.0 - busy - stolen
    return CpuUse(
        usage=trial.use(used, left_ratio=os_series.left_ratio(stolen)),
        cpus=count,
        idle_ratio=max(0.0, idle),
        others_ratio=told,
    )


def count_cpus_in_rounds(trials: Sequence[FinishedTrial], watched: Sequence[CpuUse]) -> list[CpuUse]:
    """Return the use of the CPUs in each trial of live rounds, of which as much is stolen as of the watched trials."""
    if not watched:
        return []
    count, left_ratio = watched[0].cpus, statistics.fmean(one.usage.left_ratio for one in watched)
    return [
        CpuUse(
            usage=one._replace(amount=one.amount / 1e3, left_ratio=left_ratio),
            cpus=count,
            idle_ratio=max(0.0, left_ratio - one.amount / 1e3 / count),
            others_ratio=None,
        )
        for one in count_in_rounds(trials, "cpu_ms")
    ]
