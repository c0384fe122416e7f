"""Analyse how TPS follows the number of clients: a status for each load, the knee, the peak.

There are two readings of one sweep, side by side. The *points* need no model: loads are compared with each other, and get a
status (`statuses`) where tests exclude all others; the knee (`knee`) comes from them, too. The *law* (`usl`) fits a
curve to all points; if the fit is good, the peak comes from the law, otherwise from the points.

A status, a knee or an end of the peak that the trials leave open stays open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from pgdyno.analyse.estimate import (
    CONFIDENCE,
    Estimate,
    estimate_geometric_means,
    estimate_mean_of_trials,
    exponentiate,
    map_estimate,
)
from pgdyno.analyse.sweep.client_trials import (
    NO_NOISE,
    ONE_ROUND,
    ClientTrial,
    LoadContrasts,
    SweepTrials,
    arrange_trials,
    contrast_loads,
)
from pgdyno.analyse.sweep.knee import find_knee
from pgdyno.analyse.sweep.pairs import LoadPairs, pair_loads
from pgdyno.analyse.sweep.statuses import CLIMBING, LoadStatus, list_possible_statuses
from pgdyno.analyse.sweep.usl import UslFit, fit_usl
from pgdyno.errors import join_choices

# Our reasoning: loads that are as far apart as steps of a curve over clients, a third or more, do not overlap then.
PRECISE_RATIO = 0.08
# Our reasoning: a load that ends its rounds once its interval is narrow has one that is too narrow by chance, the more so the fewer
# rounds they are: with these, 5 to 8 of 100 such intervals miss the truth in simulations. A thirteenth round would narrow one by a twentieth at most.
LEAST_ROUNDS, ENOUGH_ROUNDS = 5, 12
_OF_ONE_ROUND = "one round has this load: its spread is not known"
_NOT_LINKED = "no chain of rounds links all loads with each other"


class LoadPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One load of the sweep.

    `status` is the only member of `possible`, or None with a reason. Each interval holds by itself. That of `tps` rests on the
    load's rounds; those of `to_best` and `efficiency` rest on the rounds that it shares with the other load, and no
    doubt about which load is best is in them.
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
        confidence: Confidence level of all intervals, and of all statuses of the sweep being right together, as simulated by
            `benchmarks/statuses.py` with a look after every round and loads right beside the limits.

    Raises:
        ValueError: There are no trials, a TPS is not positive and finite, clients are fewer than one, or delta is out
            of range.

    Sources: Jain 1991, The Art of Computer Systems Performance Analysis, 3.3, for the knee; against Satopaa et al.
    2011, "Finding a Kneedle in a haystack", doi:10.1109/ICDCSW.2011.20, and Kleinrock 1979, "Power and deterministic
    rules of thumb for probabilistic problems in computer communications", ICC.
    """
    sweep = arrange_trials(trials, delta_ratio, confidence)
    compared, pairs = contrast_loads(sweep), pair_loads(sweep)
    points = describe_points(sweep, compared, pairs)
    usl, reason = fit_usl(sweep, compared)
    knee, peak = _read_points(sweep, compared, pairs, points[-1])
    if usl is not None and usl.describes:
        peak, reason = usl.peak, None
    return ClientSweep(points=points, knee=knee, peak=peak, usl=usl, points_alone_reason=reason)


def list_open_clients(points: Sequence[LoadPoint]) -> tuple[int, ...]:
    """List the clients of the loads that another round should repeat; empty once the curve is decided and precise enough.

    A load is undecided if more than one status is possible: it is neither shown to differ from the best nor to
    be within delta of it, or it cannot be told whether contention is collapse. A load with a status is repeated
    until five rounds have it and its TPS is known within ±8 %, but no more after twelve. The best load is repeated, too,
    because the others are compared with it inside the round.
    """
    wanted = {point.clients for point in points if point.status is None or not _is_precise(point)}
    if len(points) == 1 or not wanted:
        return ()
    best = max(points, key=lambda point: point.to_best.value or 0.0)
    return tuple(sorted({*wanted, best.clients}))


def _is_precise(point: LoadPoint) -> bool:
    low, high = point.tps.low, point.tps.high
    is_narrow = low is not None and high is not None and math.sqrt(high / low) - 1.0 <= PRECISE_RATIO
    return point.rounds >= (LEAST_ROUNDS if is_narrow else ENOUGH_ROUNDS)


def _list_possible(sweep: SweepTrials, compared: LoadContrasts, pairs: LoadPairs) -> list[tuple[LoadStatus, ...]]:
    if not compared.is_noise_known:
        return [tuple(LoadStatus)] * len(sweep.loads)
    return list_possible_statuses(sweep, pairs, compared.best)


def describe_points(sweep: SweepTrials, compared: LoadContrasts, pairs: LoadPairs) -> tuple[LoadPoint, ...]:
    """Describe each load: its TPS, its place against the best load and against one client, and its status."""
    possible = _list_possible(sweep, compared, pairs)
    tps, rounds = estimate_levels(sweep, compared), np.isfinite(sweep.average_in_rounds()).sum(axis=0)
    points = []
    for i, clients in enumerate(sweep.loads.astype(int).tolist()):
        status = possible[i][0] if len(possible[i]) == 1 else None
        points.append(
            LoadPoint(
                clients=clients,
                tps=tps[i],
                rounds=int(rounds[i]),
                to_best=_estimate_ratio(sweep, compared, pairs, i, compared.best),
                efficiency=_estimate_efficiency(sweep, compared, pairs, i),
                status=status,
                possible=possible[i],
                reason=None if status is not None else _why_undecided(sweep, compared, possible[i]),
            )
        )
    return tuple(points)


def estimate_levels(sweep: SweepTrials, compared: LoadContrasts) -> tuple[Estimate, ...]:
    """Estimate the TPS of each load, in the order of the loads; without intervals if the noise is not known.

    Each interval holds for its load alone, and is a t interval over its rounds: TPS of few clients scatter several times as
    much as those of many do, so that a noise pooled over loads would be too small for some. After a single round it says
    nothing of other rounds.
    """
    if compared.is_noise_known and sweep.rounds_count > 1:
        of_loads = zip(sweep.average_in_rounds().T.tolist(), np.bincount(sweep.of_load).tolist(), strict=True)
        return tuple(_estimate_level(of_rounds, trials, sweep.confidence) for of_rounds, trials in of_loads)
    trials_of_loads = [np.exp(sweep.log_tps[sweep.of_load == i]).tolist() for i in range(len(sweep.loads))]
    levels = estimate_geometric_means(trials_of_loads, confidence=sweep.confidence)
    if compared.is_noise_known:
        return levels
    return tuple(msgspec.structs.replace(one, low=None, high=None, reason=NO_NOISE) for one in levels)


def _estimate_level(of_rounds: Sequence[float], trials: int, confidence: float) -> Estimate:
    """Estimate the TPS of a load from its mean ln TPS in each round, NaN where a round lacks it."""
    seen = [value for value in of_rounds if math.isfinite(value)]
    of_log = estimate_mean_of_trials(seen, unit="tps", confidence=confidence)
    reason = _OF_ONE_ROUND if len(seen) < 2 else None
    return exponentiate(msgspec.structs.replace(of_log, n=trials, reason=reason))


def _estimate_efficiency(sweep: SweepTrials, compared: LoadContrasts, pairs: LoadPairs, i: int) -> Estimate:
    if sweep.loads[0] != 1:
        return sweep.unknown("ratio", "no trial with one client")
    return map_estimate(_estimate_ratio(sweep, compared, pairs, i, 0), lambda ratio: ratio / float(sweep.loads[i]))


def _estimate_ratio(sweep: SweepTrials, compared: LoadContrasts, pairs: LoadPairs, i: int, other: int) -> Estimate:
    """Estimate the TPS of load `i` as a share of another's, from their common rounds; without an interval from one round or none."""
    is_known = compared.is_noise_known and (i == other or bool(pairs.rounds[i, other] > 1))
    alpha = (1.0 - sweep.confidence) / 2.0
    low, high = (find(other, i, alpha) for find in (pairs.find_least, pairs.find_most)) if i != other else (0.0, 0.0)
    is_linked = bool(compared.is_linked[i, other])
    value = float(pairs.means[other, i] if is_known else compared.log_ratio[i, other])
    why = None if is_known else compared.why_no_interval
    return exponentiate(
        Estimate(
            value=value if is_linked else None,
            low=low if is_known else None,
            high=high if is_known else None,
            n=int((sweep.of_load == i).sum()),
            unit="ratio",
            confidence=sweep.confidence,
            reason=why if is_linked else _NOT_LINKED,
        )
    )


def _why_undecided(sweep: SweepTrials, compared: LoadContrasts, possible: tuple[LoadStatus, ...]) -> str:
    if len(sweep.loads) == 1:
        return "one load has nothing to be compared with"
    if not compared.is_noise_known:
        return NO_NOISE
    if not compared.is_linked.all():
        return _NOT_LINKED
    if sweep.rounds_count < 2:
        return ONE_ROUND
    return f"could be {join_choices([status.word for status in possible])}"


def _read_points(
    sweep: SweepTrials, compared: LoadContrasts, pairs: LoadPairs, largest: LoadPoint
) -> tuple[Estimate, Estimate]:
    """Read knee and peak from the loads that were tried; the ends of their intervals are loads, too."""
    loads = sweep.loads.tolist()
    if len(loads) == 1 or not compared.is_linked.all():
        nothing = sweep.unknown("clients", "only one load was tried" if len(loads) == 1 else _NOT_LINKED)
        return nothing, nothing
    is_shown = CLIMBING.issuperset(largest.possible)
    why_open = f"TPS {'still grows' if is_shown else 'may still grow'} at the largest load"
    return find_knee(sweep, compared, pairs, why_open=why_open), _read_peak(sweep, compared, pairs, why_open)


def _read_peak(sweep: SweepTrials, compared: LoadContrasts, pairs: LoadPairs, why_open: str) -> Estimate:
    """Read the load with the most TPS. Each end has half of the error rate: beyond it, each load is shown to be exceeded.

    The largest load is the upper end only if TPS is shown to climb to it by delta at most.
    """
    loads, last, best = sweep.loads.tolist(), pairs.last, compared.best
    delta = -math.log1p(-sweep.delta_ratio)
    if best == last and compared.log_ratio[last, last - 1] > delta:
        return sweep.unknown("clients", why_open)
    if not compared.is_noise_known or sweep.rounds_count < 2:
        return sweep.estimate(loads[best], None, None, "clients", compared.why_no_interval)
    alpha = (1.0 - sweep.confidence) / 2.0
    low = min(pairs.count_exceeded(0.0, alpha), best)
    high = max(last - pairs.count_exceeded_from_last(0.0, alpha), best)
    is_open = high == last and pairs.find_most(last - 1, last, alpha) > delta
    return sweep.estimate(
        loads[best], loads[low], None if is_open else loads[high], "clients", why_open if is_open else None
    )
