"""Analyse how TPS follows the number of clients: a status for each load, the knee, the peak.

There are two readings of one sweep, side by side. The *points* need no model: each load is compared with the best one,
and gets a status only if its interval excludes all others; the knee (`knee`) comes from them, too. The *law* (`usl`) fits a
curve to all points; if the fit is good, the peak comes from the law, otherwise from the points.

A status, a knee or an end of the peak that the trials leave open stays open.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.estimate import CONFIDENCE, Estimate
from pgdyno.analyse.sweep.client_trials import (
    NO_NOISE,
    ClientTrial,
    Floats,
    LoadContrasts,
    SweepTrials,
    arrange_trials,
    contrast_loads,
)
from pgdyno.analyse.sweep.knee import find_knee
from pgdyno.analyse.sweep.levels import estimate_levels
from pgdyno.analyse.sweep.usl import UslFit, fit_usl

# Our reasoning: 80 % of a single client's TPS times the number of clients is still what a DBA calls linear.
LINEAR_RATIO = 0.8
# Our reasoning: twice the coefficient of variation of pgbench on cloud machines, 4.7 %, is more than noise.
# Source of the 4.7 %: Freischuetz et al. 2025, "TUNA: Tuning Unstable and Noisy Cloud Applications", EuroSys.
COLLAPSE_RATIO = 0.9
# Our reasoning: loads that are as far apart as steps of a curve over clients, a third or more, do not overlap then.
PRECISE_RATIO = 0.08
# Our reasoning: a load that ends its rounds once its interval is narrow has one that is too narrow by chance, the more so the fewer
# rounds they are: with these, 5 to 8 of 100 such intervals miss the truth in simulations. A thirteenth round would narrow one by a twentieth at most.
LEAST_ROUNDS, ENOUGH_ROUNDS = 5, 12
_NOT_LINKED = "no chain of rounds links all loads with each other"


class LoadStatus(enum.Enum):
    """The status of a load on the curve; each excludes the others."""

    UNDER_USED = "under-used"
    """Below the peak: a larger load has more TPS by more than delta, or TPS still climbs at the largest load. Also used
    if linear growth is likely but not shown."""
    LINEAR = "linear"
    """Under-used, and every client still brings at least 80 % of what a single client does."""
    PEAK = "peak"
    """Within delta of the best load."""
    CONTENDED = "contended"
    """Past the peak: a smaller load has more TPS by more than delta, but the loss is at most 10 %."""
    COLLAPSE = "collapse"
    """Past the peak, with a loss of more than 10 % of the best TPS."""

    @property
    def word(self) -> str:
        """Its name in sentences and tables."""
        return self.value.replace("-", "")


CLIMBING = frozenset({LoadStatus.UNDER_USED, LoadStatus.LINEAR})
"""The statuses of loads with fewer clients than the peak."""


class LoadPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One load of the sweep.

    `status` is the only member of `possible`, or None with a reason. The intervals of `to_best` and `efficiency` hold
    for all loads together, and allow for doubt about which load is best; that of `tps` holds by itself, and rests on
    its own rounds.
    """

    clients: int
    tps: Estimate
    rounds: int
    """The number of rounds that have it."""
    to_best: Estimate
    """TPS as a share of the best load's, with differences between rounds removed."""
    efficiency: Estimate
    """TPS per client as a share of a single client's."""
    status: LoadStatus | None
    possible: tuple[LoadStatus, ...]
    reason: str | None = None


class ClientSweep(msgspec.Struct, frozen=True, kw_only=True):
    """The analysis of a sweep over clients. `points` are ordered by clients.

    `knee` is the smallest load that was tried with at least 90 % of the highest TPS; `peak` is the load with the highest.
    """

    points: tuple[LoadPoint, ...]
    knee: Estimate
    """From the points alone."""
    peak: Estimate
    usl: UslFit | None
    points_alone_reason: str | None
    """Why the peak comes from the points alone; None if it comes from the law."""


def analyse_client_sweep(
    trials: Sequence[ClientTrial], *, delta_ratio: float, confidence: float = CONFIDENCE
) -> ClientSweep:
    """Analyse a sweep over clients: statuses, knee, peak and the fit of the law.

    The knee is the load beyond which "the gain in throughput is small", with a tenth for small. Unlike the point of
    largest curvature of a scaled curve (Kneedle), it does not depend on the range of the axis. It uses TPS alone; the
    point of largest power X/R lies far below it.

    Args:
        trials: The finished trials, in any order; loads may be repeated unequally often.
        delta_ratio: The largest difference that a DBA would not miss: loads whose TPS differ by less are equal. In (0,
            1).
        confidence: Confidence level of all intervals, and of all statuses of the sweep being right together. Simulated
            at 95 % with up to eight looks and loads right beside the thresholds, 15 of 1,200 sweeps hold a wrong
            status.

    Raises:
        ValueError: There are no trials, a TPS is not positive and finite, clients are fewer than one, or delta is out
            of range.

    Sources: Jain 1991, The Art of Computer Systems Performance Analysis, 3.3, for the knee; against Satopaa et al.
    2011, "Finding a Kneedle in a haystack", doi:10.1109/ICDCSW.2011.20, and Kleinrock 1979, "Power and deterministic
    rules of thumb for probabilistic problems in computer communications", ICC.
    """
    sweep = arrange_trials(trials, delta_ratio, confidence)
    compared = contrast_loads(sweep)
    possible = list_possible_statuses(sweep, compared)
    points = _describe_points(sweep, compared, possible)
    usl, reason = fit_usl(sweep, compared)
    knee, peak = _read_points(sweep, compared, possible)
    if usl is not None and usl.describes:
        peak, reason = usl.peak, None
    return ClientSweep(points=points, knee=knee, peak=peak, usl=usl, points_alone_reason=reason)


def list_open_clients(sweep: ClientSweep) -> tuple[int, ...]:
    """List the clients of the loads that another round should repeat; empty once the curve is decided and precise enough.

    A load is undecided if its interval allows more than one status: it is neither shown to differ from the best nor to
    be within delta of it, or the interval is too wide to tell contention from collapse. A load with a status is repeated
    until five rounds have it and its TPS is known within ±8 %, but no more after twelve. The best load is repeated, too,
    because the others are compared with it inside the round.
    """
    wanted = {point.clients for point in sweep.points if point.status is None or not _is_precise(point)}
    if len(sweep.points) == 1 or not wanted:
        return ()
    best = max(sweep.points, key=lambda point: point.to_best.value or 0.0)
    return tuple(sorted({*wanted, best.clients}))


def _is_precise(point: LoadPoint) -> bool:
    low, high = point.tps.low, point.tps.high
    is_narrow = low is not None and high is not None and math.sqrt(high / low) - 1.0 <= PRECISE_RATIO
    return point.rounds >= (LEAST_ROUNDS if is_narrow else ENOUGH_ROUNDS)


class _Ratios(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of ln TPS against the best: `low` of row minus column, if the column is the best; `high` for any best."""

    low: Floats
    high: Floats
    is_linear: NDArray[np.bool_]
    floor: float
    """The smallest log ratio that is within delta."""

    def statuses(self, i: int, best: int) -> set[LoadStatus]:
        """Return the statuses that load `i` may have if `best` is the best load."""
        last = len(self.low) - 1
        low, high = self.low[i, best], self.high[i]
        if best == last and self.is_linear[last] and self.is_linear[i]:
            return {LoadStatus.LINEAR}
        if i == best == last:
            # The best load is no peak while the curve still climbs to it: the load before it must be as good.
            low, high = self.low[last - 1, last], self.high[last - 1]
        collapse = min(math.log(COLLAPSE_RATIO), self.floor)
        possible = {LoadStatus.PEAK} if high >= self.floor else set()
        if low < self.floor and i <= best:
            possible.add(LoadStatus.LINEAR if self.is_linear[i] else LoadStatus.UNDER_USED)
        if low < self.floor and i > best and high >= collapse and collapse < self.floor:
            possible.add(LoadStatus.CONTENDED)
        if low < collapse and i > best:
            possible.add(LoadStatus.COLLAPSE)
        return possible


def list_possible_statuses(sweep: SweepTrials, compared: LoadContrasts) -> list[tuple[LoadStatus, ...]]:
    """Return all statuses that each load may have, over all loads that may be the best."""
    if len(sweep.loads) == 1:
        return [tuple(LoadStatus)]
    low, high = compared.log_ratio - compared.half, (compared.log_ratio + compared.half).min(axis=1)
    has_alone = sweep.loads[0] == 1
    ratios = _Ratios(
        low=low,
        high=high,
        is_linear=has_alone & (low[:, 0] - np.log(sweep.loads) >= math.log(LINEAR_RATIO)),
        floor=math.log1p(-sweep.delta_ratio),
    )
    found = [
        set[LoadStatus]().union(*(ratios.statuses(i, best) for best in compared.candidates))
        for i in range(len(sweep.loads))
    ]
    return [tuple(status for status in LoadStatus if status in statuses) for statuses in found]


def _describe_points(
    sweep: SweepTrials, compared: LoadContrasts, possible: list[tuple[LoadStatus, ...]]
) -> tuple[LoadPoint, ...]:
    low, high = compared.log_ratio - compared.half, compared.log_ratio + compared.half
    tps, rounds = estimate_levels(sweep, compared), np.isfinite(sweep.average_in_rounds()).sum(axis=0)
    points = []
    for i, clients in enumerate(sweep.loads.astype(int).tolist()):
        log_to_best = float(compared.log_ratio[i, compared.best])
        is_linked = bool(compared.is_linked[i, compared.best])
        least, most = float(low[i, compared.candidates].min()), float(high[i].min())
        status = possible[i][0] if len(possible[i]) == 1 else None
        points.append(
            LoadPoint(
                clients=clients,
                tps=tps[i],
                rounds=int(rounds[i]),
                to_best=_estimate_ratio(sweep, i, log_to_best if is_linked else None, least, most),
                efficiency=_estimate_efficiency(sweep, compared, i),
                status=status,
                possible=possible[i],
                reason=None if status is not None else _why_undecided(sweep, compared, possible[i]),
            )
        )
    return tuple(points)


def _estimate_efficiency(sweep: SweepTrials, compared: LoadContrasts, i: int) -> Estimate:
    if sweep.loads[0] != 1:
        return sweep.unknown("ratio", "no trial with one client")
    value, half = float(compared.log_ratio[i, 0] - np.log(sweep.loads[i])), float(compared.half[i, 0])
    return _estimate_ratio(sweep, i, value if compared.is_linked[i, 0] else None, value - half, value + half)


def _estimate_ratio(sweep: SweepTrials, i: int, value: float | None, low: float, high: float) -> Estimate:
    """Estimate the ratio of load `i` from logarithms; without an interval if the lower end is unknown."""
    is_known = value is not None and math.isfinite(low)
    reason = _NOT_LINKED if value is None else None if is_known else NO_NOISE
    return Estimate(
        value=None if value is None else math.exp(value),
        low=math.exp(low) if is_known else None,
        high=math.exp(high) if is_known else None,
        n=int((sweep.of_load == i).sum()),
        unit="ratio",
        confidence=sweep.confidence,
        reason=reason,
    )


def _why_undecided(sweep: SweepTrials, compared: LoadContrasts, possible: tuple[LoadStatus, ...]) -> str:
    if len(sweep.loads) == 1:
        return "one load has nothing to be compared with"
    if not compared.is_noise_known or not compared.is_linked.all():
        return _NOT_LINKED if compared.is_noise_known else NO_NOISE
    names = [status.word for status in possible]
    return f"could be {', '.join(names[:-1])} or {names[-1]}"


def _read_points(
    sweep: SweepTrials, compared: LoadContrasts, possible: list[tuple[LoadStatus, ...]]
) -> tuple[Estimate, Estimate]:
    """Read knee and peak from the loads that were tried; the ends of their intervals are loads, too."""
    loads = sweep.loads.tolist()
    if len(loads) == 1 or not compared.is_linked.all():
        nothing = sweep.unknown("clients", "only one load was tried" if len(loads) == 1 else _NOT_LINKED)
        return nothing, nothing
    is_shown = compared.is_noise_known and CLIMBING.issuperset(possible[-1])
    why_open = f"TPS {'still grows' if is_shown else 'may still grow'} at the largest load"
    return find_knee(sweep, compared, why_open=why_open), _read_peak(sweep, compared, possible, why_open)


def _read_peak(
    sweep: SweepTrials, compared: LoadContrasts, possible: list[tuple[LoadStatus, ...]], why_open: str
) -> Estimate:
    loads = sweep.loads.tolist()
    seen = list_possible_statuses(sweep, msgspec.structs.replace(compared, half=np.zeros_like(compared.half)))
    if not any(LoadStatus.PEAK in statuses for statuses in seen):
        return sweep.unknown("clients", why_open)
    peak = loads[compared.best]
    if not compared.is_noise_known:
        return sweep.estimate(peak, None, None, "clients", NO_NOISE)
    best = [loads[i] for i in compared.candidates]
    is_open = best[-1] == loads[-1] and possible[-1] != (LoadStatus.PEAK,)
    return sweep.estimate(peak, best[0], None if is_open else best[-1], "clients", why_open if is_open else None)
