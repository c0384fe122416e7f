"""Work out the balance of burst credits over a study's trials, by what they asked of the disk."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.analyse.disk.ceiling import TRANSFERS
from pgdyno.analyse.disk.credits import Credits, DiskUseRate, find_credits, sequential_use, use_of
from pgdyno.analyse.disk.demand import DiskRates
from pgdyno.analyse.disk.layout_ceiling import compute_ceilings, limits_of
from pgdyno.analyse.disk.raid import times_of
from pgdyno.analyse.models.credits import spend
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.spec.host import HostSpec


class BalancePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The balance at a moment."""

    at_s: float
    """Seconds since the first trial's load began, without loads whose use was not seen."""
    left_ratio: float
    """Share of a full bucket."""
    trial: int | None
    """Number of the trial that has led to it; None at the beginning."""


class CreditBalance(msgspec.Struct, frozen=True, kw_only=True):
    """The balance of a bucket over a study, full at first."""

    credits: Credits
    points: tuple[BalancePoint, ...]

    @property
    def lowest(self) -> BalancePoint:
        """The lowest balance, the earliest of several."""
        return min(self.points, key=lambda point: point.left_ratio)

    @property
    def end(self) -> BalancePoint | None:
        """The moment at which the credits end; None if they last."""
        return next((point for point in self.points if point.left_ratio <= 0.0), None)


def trace_balances(host: HostSpec, analysis: StudyAnalysis) -> tuple[CreditBalance, ...]:
    """Work out the balance of each bucket of a declared machine over a study's trials; nothing where no use was seen."""
    credits_ = find_credits(host)
    uses = measure_uses(analysis, host) if credits_ else ()
    return tuple(_trace(one, uses) for one in credits_) if uses else ()


def measure_uses(analysis: StudyAnalysis, host: HostSpec) -> tuple[DiskUseRate, ...]:
    """Return what the trials asked of the disk, in the order of running, from the first load on.

    Restoring asks for all that the disk gives, a warm-up for what its trial does. A load whose use was not seen, as that of a
    failed trial, counts neither as use nor as rest.

    Nothing is returned where no trial shows its use of the disk, or where trials are in slices, as those of live rounds: a
    balance without that use would be too good.
    """
    trials = analysis.trials
    is_seen = any(trial.disk is not None and trial.disk.rates is not None for trial in trials)
    if host.disk is None or not is_seen or any(trial.record.is_in_slices for trial in trials):
        return ()
    copies = times_of(host.disk).copies_of(TRANSFERS["random_write_iops"])
    read = compute_ceilings(host.disk, limits_of(host)).read_bytes_per_s
    most = 0.0 if read is None else read.burst_value or read.value
    uses: list[DiskUseRate] = []
    ended_s = None
    for trial in sorted(trials, key=lambda one: one.record.load_start_monotonic_s or 0.0):
        record, planned = trial.record, trial.record.planned
        begin_s, end_s = record.load_start_monotonic_s, record.load_end_monotonic_s
        if begin_s is None or end_s is None:
            continue
        warm_up_s = 0.0
        if ended_s is not None:
            between_s = max(0.0, begin_s - ended_s - record.restore_s)
            warm_up_s = min(planned.warm_up_s, between_s)
            uses += [
                DiskUseRate(seconds=between_s - warm_up_s, trial=planned.number),
                sequential_use(record.restore_s, most, trial=planned.number),
            ]
        if trial.disk is not None and trial.disk.rates is not None:
            uses.append(_ask(trial.disk.rates, warm_up_s + end_s - begin_s, copies, trial=planned.number))
        ended_s = end_s
    return tuple(uses)


def _ask(rates: DiskRates, seconds: float, copies: float, *, trial: int) -> DiskUseRate:
    return DiskUseRate(
        seconds=seconds,
        iops=rates.read_iops + copies * rates.write_iops,
        bytes_per_s=rates.read_bytes_per_s + copies * rates.write_bytes_per_s,
        trial=trial,
    )


def _trace(credits_: Credits, uses: Sequence[DiskUseRate]) -> CreditBalance:
    bucket = credits_.bucket
    left, passed_s = bucket.capacity, 0.0
    points = [BalancePoint(at_s=0.0, left_ratio=1.0, trial=None)]
    for one in uses:
        use = use_of(credits_, one)
        if not use.seconds:
            continue
        balance = spend(bucket, left, use)
        if balance.ended_s is not None and left:
            points.append(BalancePoint(at_s=passed_s + balance.ended_s, left_ratio=0.0, trial=one.trial))
        left, passed_s = balance.credits, passed_s + use.seconds
        points.append(BalancePoint(at_s=passed_s, left_ratio=left / bucket.capacity, trial=one.trial))
    return CreditBalance(credits=credits_, points=tuple(points))
