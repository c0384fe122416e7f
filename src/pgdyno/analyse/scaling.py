"""How TPS follows the number of clients: a status for each load, the knee, the peak, the Universal Scalability Law.

Two readings of one sweep, side by side. The *points* need no model: each load is compared with the best one, and is
given a status only where its interval leaves no other. The *law* borrows strength from all loads, but only if there
are enough of them and its curve passes the points; knee and peak come from it then, and from the points otherwise.

Noise is multiplicative, so all is done on ln TPS, one number for each trial. A round that was slow as a whole is no
difference between loads: rounds are blocks, and loads that only some rounds repeated are compared inside those.

Both readings stand in this one, longer module because they share how trials are laid out over loads and rounds.

It refuses to see beyond twice the largest load, to fit fewer than six loads or none at one client, and to name a
status, a knee or a peak end that the trials leave open.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.estimate import CONFIDENCE, Estimate, estimate_geometric_mean

Floats = NDArray[np.float64]

# Our reasoning: a lone client's TPS times the clients, less a fifth, is still what a DBA calls linear.
LINEAR_RATIO = 0.8
# Our reasoning: twice the coefficient of variation of pgbench on cloud machines, 4.7 %, is no longer weather.
# Source of the 4.7 %: Freischuetz et al. 2025, "TUNA: Tuning Unstable and Noisy Cloud Applications", EuroSys.
COLLAPSE_RATIO = 0.9
# Source: Gunther 2007, Guerrilla Capacity Planning, doi:10.1007/978-3-540-31010-5: half a dozen loads.
_LEAST_LOADS = 6
# Our reasoning: what was tried doubled once is as far as a curve through it is worth a DBA's trust.
_HORIZON = 2.0
# At this many the ends of an interval lie within 1.5 % of its width of where forty thousand put them.
_DIRECTIONS = 400
_NO_NOISE = "too few loads were repeated in common rounds: noise cannot be told from scaling"
_NOT_LINKED = "no chain of rounds links all loads with each other"


class LoadStatus(enum.Enum):
    """Where a load stands on the curve; each excludes the others."""

    UNDER_USED = "under-used"
    """Below the peak: a larger load has more than delta more TPS, or TPS still climbs at the largest load. Also where
    linear growth is likely but not shown."""
    LINEAR = "linear"
    """Under-used, and every client still brings at least 80 % of what a lone one does."""
    PEAK = "peak"
    """Within delta of the best."""
    CONTENDED = "contended"
    """Past the peak: a smaller load has more than delta more TPS, but at most 10 % are lost."""
    COLLAPSE = "collapse"
    """Past the peak, with more than 10 % of the best TPS lost."""


class ClientTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial of a sweep: so many clients, in this round, gave this TPS."""

    clients: int
    round_index: int
    tps: float


class LoadPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One load of the sweep.

    `status` is the only one of `possible`, or None with the reason. The intervals of `to_best` and `efficiency` hold
    for all loads together, which load is the best being itself in doubt; `tps` is by itself.
    """

    clients: int
    tps: Estimate
    to_best: Estimate
    """TPS as a share of the best load's, differences between rounds removed."""
    efficiency: Estimate
    """TPS of each client as a share of a lone client's."""
    status: LoadStatus | None
    possible: tuple[LoadStatus, ...]
    reason: str | None = None


class LackOfFit(msgspec.Struct, frozen=True, kw_only=True):
    """How far the points lie off the law's curve. `p_value` is None, with the reason, when no load was repeated."""

    p_value: float | None
    largest_ratio: float
    """The furthest point's TPS over the curve's, minus 1."""
    largest_clients: int
    reason: str | None = None


class UslFit(msgspec.Struct, frozen=True, kw_only=True):
    """The Universal Scalability Law X(N) = lambda N / (1 + alpha (N-1) + beta N (N-1)) through the trials.

    Intervals are by profile likelihood. `describes` says whether the law may speak for the points.

    Source: Gunther 2007, Guerrilla Capacity Planning, doi:10.1007/978-3-540-31010-5.
    """

    lambda_tps: Estimate
    """TPS of one client, by the curve; its interval holds the spread between rounds, too."""
    alpha: Estimate
    """Contention: the share of the work that is done one at a time."""
    beta: Estimate
    """Coherency: what each pair of clients costs; 0 never turns down."""
    knee: Estimate
    peak: Estimate
    lack_of_fit: LackOfFit
    describes: bool
    largest_clients: int

    def predict_tps(self, clients: float) -> float | None:
        """TPS on the curve; None below one client and past twice the largest load that was tried."""
        lambda_tps, alpha, beta = self.lambda_tps.value, self.alpha.value, self.beta.value
        if lambda_tps is None or alpha is None or beta is None:
            return None
        if not 1 <= clients <= _HORIZON * self.largest_clients:
            return None
        return lambda_tps * clients / (1 + alpha * (clients - 1) + beta * clients * (clients - 1))


class ClientSweep(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep over clients. `points` go by clients."""

    points: tuple[LoadPoint, ...]
    knee: Estimate
    """The smallest load from which on more clients, up to twice as many as tried, buy less than delta."""
    peak: Estimate
    """The load of the highest TPS."""
    usl: UslFit | None
    points_alone_reason: str | None
    """Why knee and peak come from the points alone; None when they come from the law."""


class _Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The trials as arrays, and what was asked of them.

    `of_load` and `of_round` hold each trial's place among the sorted loads and rounds.
    """

    loads: Floats
    of_load: NDArray[np.intp]
    of_round: NDArray[np.intp]
    log_tps: Floats
    blocks: Floats
    """An orthonormal basis of all effects of rounds that add up to zero; shape (trials, rounds - 1)."""
    delta_ratio: float
    confidence: float

    @property
    def trials_count(self) -> int:
        return len(self.log_tps)

    @property
    def rounds_count(self) -> int:
        return int(self.blocks.shape[1]) + 1

    @property
    def clients(self) -> Floats:
        return self.loads[self.of_load]

    def within_rounds(self, values: Floats) -> Floats:
        """What is left of `values`, shape (..., trials), when the rounds' effects are taken out by least squares."""
        result: Floats = values - values @ self.blocks @ self.blocks.T
        return result

    def estimate(self, value: float, low: float | None, high: float | None, unit: str, reason: str | None) -> Estimate:
        return Estimate(
            value=value,
            low=low,
            high=high,
            n=self.trials_count,
            unit=unit,
            confidence=self.confidence,
            reason=reason,
        )


class _Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Every load against every other: ln TPS of row minus column, with half-widths that hold for all together.

    A half-width is infinite where nothing tells the noise, and a ratio means nothing where no chain of rounds links
    two loads. `rss` are the residuals of loads plus rounds.
    """

    log_ratio: Floats
    is_linked: NDArray[np.bool_]
    half: Floats
    degrees: int
    rss: float

    @property
    def best(self) -> int:
        return int(np.argmax(self.log_ratio[:, 0]))

    @property
    def candidates(self) -> list[int]:
        """The loads that may be the best: those that no other is shown to beat."""
        return [int(i) for i in np.flatnonzero((self.log_ratio + self.half >= 0).all(axis=1))]


def analyse_client_sweep(
    trials: Sequence[ClientTrial], *, delta_ratio: float, confidence: float = CONFIDENCE
) -> ClientSweep:
    """Statuses, knee, peak and the law's fit of a sweep over clients.

    The knee is the load beyond which "the gain in throughput is small", with delta for small. It does not depend on
    how far the axis was drawn, as the largest curvature of a scaled curve does (Kneedle), and it speaks of TPS alone,
    where the largest power X/R stops far below it.

    Args:
        trials: Those that finished, in any order; loads may be repeated unequally often.
        delta_ratio: What a DBA would not miss: loads whose TPS differ by no more are the same. In (0, 1).
        confidence: Of all intervals, and that all statuses of the sweep are right together. Simulated with a look after
            each of nine rounds and loads that lie right beside the thresholds: 1 to 2 % of sweeps hold a wrong one.

    Raises:
        ValueError: No trials, a TPS that is not positive and finite, fewer than one client, or a delta out of range.

    Sources: Jain 1991, The Art of Computer Systems Performance Analysis, 3.3, for the knee; against Satopaa et al.
    2011, "Finding a Kneedle in a haystack", doi:10.1109/ICDCSW.2011.20, and Kleinrock 1979, "Power and deterministic
    rules of thumb for probabilistic problems in computer communications", ICC.
    """
    sweep = _arrange(trials, delta_ratio, confidence)
    compared = _compare_loads(sweep)
    possible = _possible_statuses(sweep, compared)
    points = _describe_points(sweep, compared, possible)
    usl, reason = _fit_usl(sweep, compared)
    if usl is not None and usl.describes:
        return ClientSweep(points=points, knee=usl.knee, peak=usl.peak, usl=usl, points_alone_reason=None)
    knee, peak = _read_points(sweep, compared, possible)
    return ClientSweep(points=points, knee=knee, peak=peak, usl=usl, points_alone_reason=reason)


def points_undecided(sweep: ClientSweep) -> tuple[int, ...]:
    """The clients of the loads that another round should repeat; none when the curve is decided.

    Undecided is a load whose interval leaves more than one status: it cannot be told from the best and is not shown
    to be within delta of it either, or it is too wide to tell contention from collapse. A wide interval that decides
    is left alone. The best load runs along, because the others are compared with it inside the round.
    """
    undecided = {point.clients for point in sweep.points if point.status is None}
    if len(sweep.points) == 1 or not undecided:
        return ()
    best = max(sweep.points, key=lambda point: point.to_best.value or 0.0)
    return tuple(sorted({*undecided, best.clients}))


def _arrange(trials: Sequence[ClientTrial], delta_ratio: float, confidence: float) -> _Sweep:
    if not trials:
        raise ValueError("a sweep without trials has no curve")
    if not 0 < delta_ratio < 1:
        raise ValueError(f"delta must lie between 0 and 1, not at {delta_ratio:g}")
    wrong = [t for t in trials if not (t.clients >= 1 and t.tps > 0 and math.isfinite(t.tps))]
    if wrong:
        raise ValueError(f"a trial needs a client and a positive finite TPS, not {wrong[0]}")
    loads, of_load = np.unique([float(trial.clients) for trial in trials], return_inverse=True)
    rounds, of_round = np.unique([trial.round_index for trial in trials], return_inverse=True)
    is_in = np.eye(len(rounds))[of_round]
    return _Sweep(
        loads=loads,
        of_load=of_load,
        of_round=of_round,
        log_tps=np.log([trial.tps for trial in trials]),
        blocks=np.linalg.qr(is_in[:, :-1] - is_in[:, -1:])[0],
        delta_ratio=delta_ratio,
        confidence=confidence,
    )


def _compare_loads(sweep: _Sweep) -> _Comparison:
    """Least squares of ln TPS on loads plus rounds, and all differences between loads.

    Sources: Scheffe 1959, The Analysis of Variance, 5.2, for incomplete blocks; Hayter 1984, "A proof of the
    conjecture that the Tukey-Kramer multiple comparisons procedure is conservative", Annals of Statistics 12,
    doi:10.1214/aos/1176346392, for all differences together: which load is the best is seen only afterwards.
    """
    count = len(sweep.loads)
    design = np.hstack([np.eye(count)[sweep.of_load], sweep.blocks])
    inverse = np.linalg.pinv(design)
    effects = inverse @ sweep.log_tps
    rss = float(np.square(sweep.log_tps - design @ effects).sum())
    degrees = sweep.trials_count - int(np.linalg.matrix_rank(design))
    unseen = (np.eye(len(effects)) - inverse @ design)[:count]
    is_linked = np.abs(unseen[:, None] - unseen).max(axis=2) < 1e-9
    half = np.full((count, count), math.inf)
    if degrees:
        spread = (inverse @ inverse.T)[:count, :count]
        variance = np.maximum(np.diag(spread)[:, None] + np.diag(spread) - 2 * spread, 0.0) * rss / degrees
        quantile = _range_quantile(max(2, count), degrees, sweep.confidence) / math.sqrt(2)
        half[is_linked] = quantile * np.sqrt(variance[is_linked])
    np.fill_diagonal(half, 0.0)
    log_ratio = effects[:count, None] - effects[:count]
    return _Comparison(log_ratio=log_ratio, is_linked=is_linked, half=half, degrees=degrees, rss=rss)


class _Ratios(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of ln TPS against the best: `low` of row minus column, if that is the best; `high` whichever it is."""

    low: Floats
    high: Floats
    is_linear: NDArray[np.bool_]
    floor: float
    """The least ln ratio that is within delta."""

    def statuses(self, i: int, best: int) -> set[LoadStatus]:
        """What load `i` may be if `best` is the best."""
        last = len(self.low) - 1
        low, high = self.low[i, best], self.high[i]
        if best == last and self.is_linear[last] and self.is_linear[i]:
            return {LoadStatus.LINEAR}
        if i == best == last:
            # The best is no peak while the curve still climbs to it: the load before it must be as good.
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


def _possible_statuses(sweep: _Sweep, compared: _Comparison) -> list[tuple[LoadStatus, ...]]:
    """All statuses that each load may have, over all loads that may be the best."""
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
    sweep: _Sweep, compared: _Comparison, possible: list[tuple[LoadStatus, ...]]
) -> tuple[LoadPoint, ...]:
    low, high = compared.log_ratio - compared.half, compared.log_ratio + compared.half
    points = []
    for i, clients in enumerate(sweep.loads.astype(int).tolist()):
        tps = np.exp(sweep.log_tps[sweep.of_load == i]).tolist()
        log_to_best = float(compared.log_ratio[i, compared.best])
        is_linked = bool(compared.is_linked[i, compared.best])
        least, most = float(low[i, compared.candidates].min()), float(high[i].min())
        status = possible[i][0] if len(possible[i]) == 1 else None
        points.append(
            LoadPoint(
                clients=clients,
                tps=estimate_geometric_mean(tps, unit="tps", confidence=sweep.confidence),
                to_best=_estimate_ratio(sweep, i, log_to_best if is_linked else None, least, most),
                efficiency=_estimate_efficiency(sweep, compared, i),
                status=status,
                possible=possible[i],
                reason=None if status is not None else _why_undecided(sweep, compared, possible[i]),
            )
        )
    return tuple(points)


def _estimate_efficiency(sweep: _Sweep, compared: _Comparison, i: int) -> Estimate:
    if sweep.loads[0] != 1:
        return _nothing(sweep, "ratio", "no trial with one client")
    value, half = float(compared.log_ratio[i, 0] - np.log(sweep.loads[i])), float(compared.half[i, 0])
    return _estimate_ratio(sweep, i, value if compared.is_linked[i, 0] else None, value - half, value + half)


def _estimate_ratio(sweep: _Sweep, i: int, value: float | None, low: float, high: float) -> Estimate:
    """Of load `i`, from logarithms; without an interval when the lower end is unknown."""
    is_known = value is not None and math.isfinite(low)
    reason = _NOT_LINKED if value is None else None if is_known else _NO_NOISE
    return Estimate(
        value=None if value is None else math.exp(value),
        low=math.exp(low) if is_known else None,
        high=math.exp(high) if is_known else None,
        n=int((sweep.of_load == i).sum()),
        unit="ratio",
        confidence=sweep.confidence,
        reason=reason,
    )


def _why_undecided(sweep: _Sweep, compared: _Comparison, possible: tuple[LoadStatus, ...]) -> str:
    if len(sweep.loads) == 1:
        return "one load has nothing to be compared with"
    if not compared.degrees or not compared.is_linked.all():
        return _NOT_LINKED if compared.degrees else _NO_NOISE
    return f"the interval allows {' and '.join(status.value for status in possible)}"


def _read_points(
    sweep: _Sweep, compared: _Comparison, possible: list[tuple[LoadStatus, ...]]
) -> tuple[Estimate, Estimate]:
    """Knee and peak among the loads that were tried; the ends of their intervals are loads, too."""
    loads = sweep.loads.tolist()
    seen = _possible_statuses(sweep, msgspec.structs.replace(compared, half=np.zeros_like(compared.half)))
    at_peak = [load for load, statuses in zip(loads, seen, strict=True) if LoadStatus.PEAK in statuses]
    if len(loads) == 1 or not at_peak or not compared.is_linked.all():
        why = _NOT_LINKED if not compared.is_linked.all() else "TPS still grows at the largest load"
        why = "only one load was tried" if len(loads) == 1 else why
        return _nothing(sweep, "clients", why), _nothing(sweep, "clients", why)
    knee, peak = at_peak[0], loads[compared.best]
    if not compared.degrees:
        return (
            sweep.estimate(knee, None, None, "clients", _NO_NOISE),
            sweep.estimate(peak, None, None, "clients", _NO_NOISE),
        )
    may = [load for load, statuses in zip(loads, possible, strict=True) if LoadStatus.PEAK in statuses]
    surely = [load for load, statuses in zip(loads, possible, strict=True) if statuses == (LoadStatus.PEAK,)]
    best = [loads[i] for i in compared.candidates]
    is_open = best[-1] == loads[-1] and loads[-1] not in surely
    why_open = "TPS may still grow at the largest load" if is_open else None
    return (
        sweep.estimate(knee, may[0], None if is_open else min([*surely, best[-1]]), "clients", why_open),
        sweep.estimate(peak, best[0], None if is_open else best[-1], "clients", why_open),
    )


def _fit_usl(sweep: _Sweep, compared: _Comparison) -> tuple[UslFit | None, str | None]:
    """The law's fit, and why it may not speak for the points."""
    degrees = sweep.trials_count - sweep.rounds_count - 2
    if len(sweep.loads) < _LEAST_LOADS:
        return None, f"{len(sweep.loads)} loads are too few for the law: it takes {_LEAST_LOADS}"
    if sweep.loads[0] != 1:
        return None, "no trial with one client, from which the law starts"
    # Differences between loads that rounds link: the rank of the two-way model, less a level for each round.
    if degrees < 1 or sweep.trials_count - compared.degrees - sweep.rounds_count < _LEAST_LOADS - 1:
        return None, f"the rounds do not link {_LEAST_LOADS} loads with each other"
    theta = _least_squares(sweep)
    rss = float(_rss(sweep, theta[None])[0])
    # A parameter that rests on its bound was not free to follow the noise.
    degrees += int((theta[1:] == 0).sum())
    limit = rss + rss / degrees * _t_quantile(degrees, (1 + sweep.confidence) / 2) ** 2
    misfit = _test_lack_of_fit(sweep, compared, theta, degrees)
    usl = _estimate_usl(sweep, np.vstack([theta, _profile_region(sweep, theta, limit)]), rss / degrees, misfit)
    if usl.describes:
        return usl, None
    return (
        usl,
        f"at {misfit.largest_clients} clients the trials lie clearly {_side(misfit.largest_ratio)} the law's curve",
    )


def _side(ratio: float) -> str:
    return "above" if ratio > 0 else "below"


def _shape(clients: Floats, alpha: Floats, beta: Floats) -> Floats:
    """The logarithm of X(N) / lambda; `alpha` and `beta` broadcast against `clients`."""
    more = clients - 1
    result: Floats = np.log(clients) - np.log1p(alpha * more + beta * clients * more)
    return result


def _rss(sweep: _Sweep, thetas: Floats) -> Floats:
    """Residual sums of squares at rows of (ln lambda, alpha, beta), the rounds' effects taken out."""
    level, alpha, beta = (column[:, None] for column in thetas.T)
    residuals = sweep.within_rounds(sweep.log_tps - level - _shape(sweep.clients, alpha, beta))
    result: Floats = np.square(residuals).sum(axis=1)
    return result


def _slopes(sweep: _Sweep, theta: Floats) -> Floats:
    """Derivatives of the curve by (ln lambda, alpha, beta), the rounds' effects taken out; shape (3, trials)."""
    n, more = sweep.clients, sweep.clients - 1
    fall = -1 / (1 + theta[1] * more + theta[2] * n * more)
    return sweep.within_rounds(np.stack([np.ones_like(n), more * fall, n * more * fall]))


def _least_squares(sweep: _Sweep) -> Floats:
    """(ln lambda, alpha, beta) of the closest curve with alpha and beta at least 0, every trial weighing the same.

    It starts from the law's linear form N / X = (1 + alpha (N-1) + beta N (N-1)) / lambda, weighted for equal
    relative errors. Source: Gunther 2007, 5.2.3, for that form.
    """
    from scipy.optimize import least_squares, nnls  # noqa: PLC0415  # only some commands analyse

    n = sweep.clients
    per_client = np.exp(sweep.log_tps) / n
    terms = np.stack([np.ones_like(n), (n - 1) / n.max(), n * (n - 1) / n.max() ** 2], axis=1)
    base, *costs = np.maximum(nnls(per_client[:, None] / per_client.mean() * terms, np.ones_like(n))[0], 1e-6)
    start = [math.log(per_client.mean() / base), costs[0] / base / n.max(), costs[1] / base / n.max() ** 2]

    def residuals(theta: Floats) -> Floats:
        return sweep.within_rounds(sweep.log_tps - theta[0] - _shape(n, theta[1], theta[2]))

    def slopes(theta: Floats) -> Floats:
        return -_slopes(sweep, theta).T

    bounds = ([-np.inf, 0.0, 0.0], np.inf)
    fit = least_squares(
        residuals, start, slopes, bounds, method="dogbox", x_scale="jac", xtol=1e-12, ftol=1e-14, gtol=1e-14
    )
    return np.asarray(fit.x, dtype=np.float64)


def _profile_region(sweep: _Sweep, theta: Floats, limit: float) -> Floats:
    """Rows of (ln lambda, alpha, beta) all around the edge of where the residual sum of squares is at most `limit`.

    The range of any function over that region is its profile likelihood interval, whatever its curvature; with few
    trials a bootstrap would be too narrow. The edge is sought along rays, and along the walls alpha = 0 and beta = 0.

    Source: Bates & Watts 1988, Nonlinear Regression Analysis and Its Applications, doi:10.1002/9780470316757, 6.1.
    """
    slopes = _slopes(sweep, theta)
    excess = max(limit - float(_rss(sweep, theta[None])[0]), 0.0)
    scale = 1 / np.sqrt(np.square(slopes).sum(axis=1))
    unit = slopes * scale[:, None]
    axes = np.linalg.cholesky(np.linalg.inv(unit @ unit.T)) * scale[:, None] * math.sqrt(excess)
    rays = _directions() @ axes.T

    def ends(radius: Floats) -> Floats:
        clipped: Floats = np.maximum(theta + radius[:, None] * rays, [-np.inf, 0.0, 0.0])
        return clipped

    inside, outside = np.zeros(_DIRECTIONS), np.ones(_DIRECTIONS)
    for _ in range(20):
        is_in = _rss(sweep, ends(outside)) <= limit
        inside, outside = np.where(is_in, outside, inside), np.where(is_in, 2 * outside, outside)
    for _ in range(20):
        middle = (inside + outside) / 2
        is_in = _rss(sweep, ends(middle)) <= limit
        inside, outside = np.where(is_in, middle, inside), np.where(is_in, outside, middle)
    return ends(inside)


def _directions() -> Floats:
    """Unit vectors spread evenly over the sphere. Source: Gonzalez 2010, doi:10.1007/s11004-009-9257-x (Fibonacci)."""
    place = np.arange(_DIRECTIONS) + 0.5
    height, turn = 1 - 2 * place / _DIRECTIONS, math.pi * (1 + math.sqrt(5)) * place
    radius = np.sqrt(1 - height**2)
    return np.stack([radius * np.cos(turn), radius * np.sin(turn), height], axis=1)


def _test_lack_of_fit(sweep: _Sweep, compared: _Comparison, theta: Floats, degrees: int) -> LackOfFit:
    """Whether the points lie further off the curve than repeated trials lie apart: the F test on trials.

    Source: Draper & Smith 1998, Applied Regression Analysis, doi:10.1002/9781118625590, 2.1.
    """
    from scipy.special import fdtrc  # noqa: PLC0415  # only some commands analyse

    residuals = sweep.within_rounds(sweep.log_tps - theta[0] - _shape(sweep.clients, theta[1], theta[2]))
    off = np.bincount(sweep.of_load, residuals) / np.bincount(sweep.of_load)
    furthest = int(np.argmax(np.abs(off)))
    p_value = None
    if compared.degrees:
        between = degrees - compared.degrees
        # Trials that repeat exactly leave no noise to blame.
        within = max(compared.rss / compared.degrees, np.finfo(float).tiny)
        excess = max(float(np.square(residuals).sum()) - compared.rss, 0.0) / between
        p_value = float(fdtrc(between, compared.degrees, excess / within))
    return LackOfFit(
        p_value=p_value,
        largest_ratio=math.expm1(off[furthest]),
        largest_clients=int(sweep.loads[furthest]),
        reason=None if compared.degrees else _NO_NOISE,
    )


def _estimate_usl(sweep: _Sweep, thetas: Floats, noise: float, misfit: LackOfFit) -> UslFit:
    """From the best (ln lambda, alpha, beta), the first row of `thetas`, and those all around it."""
    largest = float(sweep.loads[-1])
    alpha, beta = thetas[:, 1], thetas[:, 2]
    peaks = _peak_clients(alpha, beta)
    knees = _knee_clients(alpha, beta, np.minimum(peaks, _HORIZON * largest), sweep.delta_ratio)

    def estimate(values: Floats, unit: str) -> Estimate:
        return sweep.estimate(float(values[0]), float(values.min()), float(values.max()), unit, None)

    return UslFit(
        lambda_tps=_widen_by_rounds(sweep, thetas[0], noise, estimate(np.exp(thetas[:, 0]), "tps")),
        alpha=estimate(alpha, "ratio"),
        beta=estimate(beta, "ratio"),
        knee=_cut(sweep, estimate(knees, "clients"), largest, "the largest load"),
        peak=_cut(sweep, estimate(peaks, "clients"), _HORIZON * largest, "twice the largest load"),
        lack_of_fit=misfit,
        describes=abs(misfit.largest_ratio) <= sweep.delta_ratio or (misfit.p_value or 0.0) >= 1 - sweep.confidence,
        largest_clients=int(largest),
    )


def _peak_clients(alpha: Floats, beta: Floats) -> Floats:
    """Where the law's curve turns down: sqrt((1 - alpha) / beta), at least 1; endless where beta is 0."""
    idle = np.maximum(1 - alpha, 0.0)
    result: Floats = np.maximum(1.0, np.sqrt(idle / np.maximum(beta, np.finfo(float).tiny)))
    return result


def _knee_clients(alpha: Floats, beta: Floats, best: Floats, delta_ratio: float) -> Floats:
    """The smallest N, at least 1, with X(N) >= (1 - delta) X(best): the lesser root of a quadratic."""
    most = (1 - delta_ratio) * np.exp(_shape(best, alpha, beta))
    square, slope, rest = most * beta, 1 - most * (alpha - beta), most * (1 - alpha)
    root = np.sqrt(np.maximum(slope**2 - 4 * square * rest, 0.0))
    # From alpha = 1 on, one client is the best, and the quadratic may have no positive root.
    falls = alpha >= 1
    result: Floats = np.where(falls, 1.0, np.maximum(1.0, 2 * rest / np.where(falls, 1.0, slope + root)))
    return result


def _cut(sweep: _Sweep, estimate: Estimate, limit: float, where: str) -> Estimate:
    """Without what lies beyond `limit`."""
    value, high = estimate.value, estimate.high
    if value is None or high is None or high <= limit:
        return estimate
    if value > limit:
        return _nothing(sweep, estimate.unit, f"by the law it lies beyond {where}, {limit:g}")
    return msgspec.structs.replace(estimate, high=None, reason=f"it may lie beyond {where}, {limit:g}")


def _widen_by_rounds(sweep: _Sweep, theta: Floats, noise: float, of_curve: Estimate) -> Estimate:
    """Add to lambda's interval how much the level differs between rounds, beyond the trials' own noise.

    Source: Zou & Donner 2008, "Construction of confidence limits about effect measures", Statistics in Medicine 27,
    doi:10.1002/sim.3095 (MOVER): half-widths of independent parts add in quadrature.
    """
    count, value, low, high = sweep.rounds_count, of_curve.value, of_curve.low, of_curve.high
    if count < 2 or value is None or low is None or high is None:
        return of_curve
    per_round = np.bincount(sweep.of_round)
    levels = np.bincount(sweep.of_round, sweep.log_tps - _shape(sweep.clients, theta[1], theta[2])) / per_round
    spread = max(float(levels.var(ddof=1)) - noise * float((1 / per_round).mean()), 0.0)
    of_rounds = _t_quantile(count - 1, (1 + of_curve.confidence) / 2) * math.sqrt(spread / count)
    return msgspec.structs.replace(
        of_curve,
        low=value * math.exp(-math.hypot(math.log(value / low), of_rounds)),
        high=value * math.exp(math.hypot(math.log(high / value), of_rounds)),
    )


def _nothing(sweep: _Sweep, unit: str, reason: str) -> Estimate:
    return Estimate(
        value=None,
        low=None,
        high=None,
        n=sweep.trials_count,
        unit=unit,
        confidence=sweep.confidence,
        reason=reason,
    )


@functools.lru_cache
def _range_quantile(count: int, degrees: int, probability: float) -> float:
    from scipy.stats import studentized_range  # noqa: PLC0415  # a second to load, and only sweeps ask for it

    return float(studentized_range.ppf(probability, count, degrees))


def _t_quantile(degrees: int, probability: float) -> float:
    from scipy.special import stdtrit  # noqa: PLC0415  # only some commands analyse

    return float(stdtrit(degrees, probability))
