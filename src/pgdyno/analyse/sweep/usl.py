"""Fit the Universal Scalability Law to the trials of a sweep over clients: its parameters, its knee, its peak.

The law uses the data of all loads, but only if there are enough loads and the fit is good.

It is not fitted to fewer than six loads or without a load of one client, not extrapolated beyond twice the largest
load, and not used for points that lie clearly off its curve.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.estimate import Estimate, t_quantile
from pgdyno.analyse.sweep.client_trials import NO_NOISE, Floats, LoadContrasts, SweepTrials
from pgdyno.analyse.sweep.knee import KNEE_RATIO

# Source: Gunther 2007, Guerrilla Capacity Planning, doi:10.1007/978-3-540-31010-5: half a dozen loads.
_MIN_LOADS = 6
# Our reasoning: a DBA should not trust the curve beyond twice the largest load that was tried.
_HORIZON = 2.0
# Our reasoning: a curve that is a tenth off at a load puts its knee and its peak elsewhere, whatever difference the user detects.
_SMALL_MISFIT_RATIO = 0.03
# With this many directions, the ends of an interval lie within 1.5 % of its width of those from forty thousand.
_DIRECTIONS = 400


class LackOfFit(msgspec.Struct, frozen=True, kw_only=True):
    """The distance of the points from the law's curve. `p_value` is None, with a reason, if no load was repeated."""

    p_value: float | None
    largest_ratio: float
    """TPS of the farthest point over that of the curve, minus 1."""
    largest_clients: int
    reason: str | None = None


class UslFit(msgspec.Struct, frozen=True, kw_only=True):
    """The Universal Scalability Law X(N) = lambda N / (1 + alpha (N-1) + beta N (N-1)) through the trials.

    Intervals are by profile likelihood. `describes` says whether the fit is good enough to use.

    Source: Gunther 2007, Guerrilla Capacity Planning, doi:10.1007/978-3-540-31010-5.
    """

    lambda_tps: Estimate
    """TPS of one client on the curve; its interval includes the spread between rounds."""
    alpha: Estimate
    """Contention: the share of the work that is serialised."""
    beta: Estimate
    """Coherency: the cost of each pair of clients; with 0, the curve never turns down."""
    knee: Estimate
    peak: Estimate
    most_tps: Estimate
    """The highest TPS on the curve up to twice the largest load; its interval is as for `lambda_tps`."""
    lack_of_fit: LackOfFit
    describes: bool
    largest_clients: int

    @property
    def horizon_clients(self) -> int:
        """The largest number of clients for which the law is used."""
        return int(_HORIZON * self.largest_clients)

    def predict_tps(self, clients: float) -> float | None:
        """Predict TPS from the curve; None below one client and beyond twice the largest load that was tried."""
        lambda_tps, alpha, beta = self.lambda_tps.value, self.alpha.value, self.beta.value
        if lambda_tps is None or alpha is None or beta is None:
            return None
        if not 1 <= clients <= self.horizon_clients:
            return None
        return lambda_tps * clients / (1 + alpha * (clients - 1) + beta * clients * (clients - 1))


def fit_usl(sweep: SweepTrials, compared: LoadContrasts) -> tuple[UslFit | None, str | None]:
    """Fit the law, and return the fit and the reason why it must not be used, if there is one."""
    degrees = sweep.trials_count - sweep.rounds_count - 2
    if len(sweep.loads) < _MIN_LOADS:
        return None, f"{len(sweep.loads)} loads are too few for the law: it takes {_MIN_LOADS}"
    if sweep.loads[0] != 1:
        return None, "no trial with one client, from which the law starts"
    # Contrasts between loads that rounds link: the rank of the two-way model, minus one level for each round.
    if degrees < 1 or sweep.trials_count - compared.degrees - sweep.rounds_count < _MIN_LOADS - 1:
        return None, f"the rounds do not link {_MIN_LOADS} loads with each other"
    theta = _least_squares(sweep)
    rss = float(np.square(_residuals(sweep, theta)).sum())
    # A parameter at its bound was not free to follow the noise.
    degrees += int((theta[1:] == 0).sum())
    excess = rss / degrees * t_quantile(degrees, (1 + sweep.confidence) / 2) ** 2
    misfit = _test_lack_of_fit(sweep, compared, theta, degrees)
    try:
        region = _profile_region(sweep, theta, excess)
    except np.linalg.LinAlgError:
        return None, "the trials do not tell the law's contention from its coherency"
    usl = _estimate_usl(sweep, np.vstack([theta, region]), rss / degrees, misfit)
    if usl.describes:
        return usl, None
    return (
        usl,
        f"at {misfit.largest_clients} clients the trials lie clearly {_side(misfit.largest_ratio)} the law's curve",
    )


def _side(ratio: float) -> str:
    return "above" if ratio > 0 else "below"


def _shape(clients: Floats, alpha: Floats, beta: Floats) -> Floats:
    """Compute the logarithm of X(N) / lambda; `alpha` and `beta` broadcast against `clients`."""
    more = clients - 1
    result: Floats = np.log(clients) - np.log1p(alpha * more + beta * clients * more)
    return result


def _residuals(sweep: SweepTrials, theta: Floats) -> Floats:
    """Compute the residuals of the trials at (ln lambda, alpha, beta), with the rounds' effects removed."""
    return sweep.within_rounds(sweep.log_tps - theta[0] - _shape(sweep.clients, theta[1], theta[2]))


def _slopes(sweep: SweepTrials, theta: Floats) -> Floats:
    """Compute derivatives of the curve by (ln lambda, alpha, beta), with the rounds' effects removed; shape (3, trials)."""
    n, more = sweep.clients, sweep.clients - 1
    fall = -1 / (1 + theta[1] * more + theta[2] * n * more)
    return sweep.within_rounds(np.stack([np.ones_like(n), more * fall, n * more * fall]))


def _least_squares(sweep: SweepTrials) -> Floats:
    """Fit (ln lambda, alpha, beta) by least squares with alpha and beta at least 0, every trial with the same weight.

    The start values come from the law's linear form N / X = (1 + alpha (N-1) + beta N (N-1)) / lambda, weighted for
    equal relative errors. Source: Gunther 2007, 5.2.3, for that form.
    """
    from scipy.optimize import least_squares, nnls  # noqa: PLC0415  # only some commands analyse

    n = sweep.clients
    per_client = np.exp(sweep.log_tps) / n
    terms = np.stack([np.ones_like(n), (n - 1) / n.max(), n * (n - 1) / n.max() ** 2], axis=1)
    base, *costs = np.maximum(nnls(per_client[:, None] / per_client.mean() * terms, np.ones_like(n))[0], 1e-6)
    start = [math.log(per_client.mean() / base), costs[0] / base / n.max(), costs[1] / base / n.max() ** 2]

    def residuals(theta: Floats) -> Floats:
        return _residuals(sweep, theta)

    def slopes(theta: Floats) -> Floats:
        return -_slopes(sweep, theta).T

    bounds = ([-np.inf, 0.0, 0.0], np.inf)
    fit = least_squares(
        residuals, start, slopes, bounds, method="dogbox", x_scale="jac", xtol=1e-12, ftol=1e-14, gtol=1e-14
    )
    return np.asarray(fit.x, dtype=np.float64)


def _profile_region(sweep: SweepTrials, theta: Floats, excess: float) -> Floats:
    """Find the edge of the region where the residual sum of squares is at most `excess` more than at `theta`, in such rows.

    The range of any function over that region is its profile likelihood interval, whatever the curvature; with few
    trials a bootstrap would be too narrow. The edge is searched along rays, and along the bounds alpha = 0 and beta =
    0.

    Source: Bates & Watts 1988, Nonlinear Regression Analysis and Its Applications, doi:10.1002/9780470316757, 6.1.
    """
    slopes = _slopes(sweep, theta)
    scale = 1 / np.sqrt(np.square(slopes).sum(axis=1))
    unit = slopes * scale[:, None]
    axes = np.linalg.cholesky(np.linalg.inv(unit @ unit.T)) * scale[:, None] * math.sqrt(excess)
    rays = _directions() @ axes.T

    # In terms of loads, which are fewer than trials.
    of_loads = np.eye(len(sweep.loads))[sweep.of_load]
    pull, bend = _residuals(sweep, theta) @ of_loads, sweep.within_rounds(of_loads.T) @ of_loads
    best = theta[0] + _shape(sweep.loads, theta[1], theta[2])

    def ends(radius: Floats) -> Floats:
        clipped: Floats = np.maximum(theta + radius[:, None] * rays, [-np.inf, 0.0, 0.0])
        return clipped

    def is_inside(radius: Floats) -> NDArray[np.bool_]:
        level, alpha, beta = (column[:, None] for column in ends(radius).T)
        moved = level + _shape(sweep.loads, alpha, beta) - best
        result: NDArray[np.bool_] = ((moved @ bend - 2 * pull) * moved).sum(axis=1) <= excess
        return result

    inside, outside = np.zeros(_DIRECTIONS), np.ones(_DIRECTIONS)
    for _ in range(20):
        is_in = is_inside(outside)
        if not is_in.any():
            break
        inside, outside = np.where(is_in, outside, inside), np.where(is_in, 2 * outside, outside)
    # Down to a ten-thousandth of the way to the edge: the directions are a hundred times coarser.
    for _ in range(13):
        middle = (inside + outside) / 2
        is_in = is_inside(middle)
        inside, outside = np.where(is_in, middle, inside), np.where(is_in, outside, middle)
    return ends(inside)


def _directions() -> Floats:
    """Return unit vectors spread evenly over the sphere. Source: Gonzalez 2010, doi:10.1007/s11004-009-9257-x (Fibonacci)."""
    place = np.arange(_DIRECTIONS) + 0.5
    height, turn = 1 - 2 * place / _DIRECTIONS, math.pi * (1 + math.sqrt(5)) * place
    radius = np.sqrt(1 - height**2)
    return np.stack([radius * np.cos(turn), radius * np.sin(turn), height], axis=1)


def _test_lack_of_fit(sweep: SweepTrials, compared: LoadContrasts, theta: Floats, degrees: int) -> LackOfFit:
    """Test whether the points lie farther off the curve than repeated trials lie apart: the lack-of-fit F test on trials.

    Source: Draper & Smith 1998, Applied Regression Analysis, doi:10.1002/9781118625590, 2.1.
    """
    from scipy.special import fdtrc  # noqa: PLC0415  # only some commands analyse

    residuals = _residuals(sweep, theta)
    off = np.bincount(sweep.of_load, residuals) / np.bincount(sweep.of_load)
    furthest = int(np.argmax(np.abs(off)))
    p_value = None
    if compared.is_noise_known:
        between = degrees - compared.degrees
        # Trials that repeat exactly have no noise to explain a distance.
        within = max(compared.rss / compared.degrees, np.finfo(float).tiny)
        excess = max(float(np.square(residuals).sum()) - compared.rss, 0.0) / between
        p_value = float(fdtrc(between, compared.degrees, excess / within))
    return LackOfFit(
        p_value=p_value,
        largest_ratio=math.expm1(off[furthest]),
        largest_clients=int(sweep.loads[furthest]),
        reason=None if compared.is_noise_known else NO_NOISE,
    )


def _estimate_usl(sweep: SweepTrials, thetas: Floats, noise: float, misfit: LackOfFit) -> UslFit:
    """Build the estimates from the best (ln lambda, alpha, beta), the first row of `thetas`, and the region around it."""
    largest = float(sweep.loads[-1])
    alpha, beta = thetas[:, 1], thetas[:, 2]
    peaks = _peak_clients(alpha, beta)
    bests = np.minimum(peaks, _HORIZON * largest)
    knees = _knee_clients(alpha, beta, bests)
    most = np.exp(thetas[:, 0] + _shape(bests, alpha, beta))

    def estimate(values: Floats, unit: str) -> Estimate:
        return sweep.estimate(float(values[0]), float(values.min()), float(values.max()), unit, None)

    return UslFit(
        lambda_tps=_widen_by_rounds(sweep, thetas[0], noise, estimate(np.exp(thetas[:, 0]), "tps")),
        alpha=estimate(alpha, "ratio"),
        beta=estimate(beta, "ratio"),
        knee=_cut(sweep, estimate(knees, "clients"), largest, "the largest load"),
        peak=_cut(sweep, estimate(peaks, "clients"), _HORIZON * largest, "twice the largest load"),
        most_tps=_widen_by_rounds(sweep, thetas[0], noise, estimate(most, "tps")),
        lack_of_fit=misfit,
        describes=abs(misfit.largest_ratio) <= min(sweep.delta_ratio, _SMALL_MISFIT_RATIO)
        or (misfit.p_value or 0.0) >= 1 - sweep.confidence,
        largest_clients=int(largest),
    )


def _peak_clients(alpha: Floats, beta: Floats) -> Floats:
    """Compute the peak of the law's curve: sqrt((1 - alpha) / beta), at least 1; infinite if beta is 0."""
    idle = np.maximum(1 - alpha, 0.0)
    result: Floats = np.maximum(1.0, np.sqrt(idle / np.maximum(beta, np.finfo(float).tiny)))
    return result


def _knee_clients(alpha: Floats, beta: Floats, best: Floats) -> Floats:
    """Compute the smallest N, at least 1, with X(N) >= KNEE_RATIO X(best): the smaller root of a quadratic."""
    most = KNEE_RATIO * np.exp(_shape(best, alpha, beta))
    square, slope, rest = most * beta, 1 - most * (alpha - beta), most * (1 - alpha)
    root = np.sqrt(np.maximum(slope**2 - 4 * square * rest, 0.0))
    # If alpha is 1 or more, one client is the best, and the quadratic may have no positive root.
    falls = alpha >= 1
    result: Floats = np.where(falls, 1.0, np.maximum(1.0, 2 * rest / np.where(falls, 1.0, slope + root)))
    return result


def _cut(sweep: SweepTrials, estimate: Estimate, limit: float, where: str) -> Estimate:
    """Drop the part of an estimate that lies beyond `limit`."""
    value, high = estimate.value, estimate.high
    if value is None or high is None or high <= limit:
        return estimate
    if value > limit:
        return sweep.unknown(estimate.unit, f"by the Universal Scalability Law it lies beyond {limit:g}, {where}")
    return msgspec.structs.replace(estimate, high=None, reason=f"it may lie beyond {limit:g}, {where}")


def _widen_by_rounds(sweep: SweepTrials, theta: Floats, noise: float, of_curve: Estimate) -> Estimate:
    """Widen the interval of a TPS on the curve by the variation of its level between rounds."""
    count, value, low, high = sweep.rounds_count, of_curve.value, of_curve.low, of_curve.high
    if count < 2 or value is None or low is None or high is None:
        return of_curve
    variance = sweep.find_round_variance(_shape(sweep.clients, theta[1], theta[2]), noise)
    below, above = (
        sweep.widen_by_rounds(half, variance, count) for half in (math.log(value / low), math.log(high / value))
    )
    return msgspec.structs.replace(of_curve, low=value * math.exp(-below), high=value * math.exp(above))
