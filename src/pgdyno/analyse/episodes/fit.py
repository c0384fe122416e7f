"""Fit shapes to a series with autocorrelated noise: a step, a dent, a slope, a cycle.

Seconds of throughput are autocorrelated, and an autocorrelated series drifts: a test for independent values finds
cliffs everywhere. So each shape is fitted by generalised least squares together with a first-order autoregression,
whose correlation is estimated with and without the shape: a series that merely drifts needs no shape. The result is one
number, twice the logarithm of the likelihood ratio of the best shape against none.

Fewer than 8 observations are not judged, and what caused a shape is not decided here.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.estimate import t_quantile

Floats = NDArray[np.float64]

MIN_OBSERVATIONS = 8
_EDGE = 2
MIN_CYCLES = 3
_MIN_PERIOD = 3
_CORRELATIONS = (0.0, 0.2, 0.4, 0.6, 0.75, 0.85, 0.92, 0.95)
_DEEPEST = 4
# An edge may lie at this fraction of an observation.
_FINENESS = 4
# Residual sums of squares below this are rounding errors.
_EXACT = 1e-9
# Half of the 95 % quantile of chi-squared with one degree of freedom.
_AS_LIKELY = 1.920729410347062
_SETTLED = 3.0
"""Time constants until 95 % of a change is done."""


class Shape(enum.Enum):
    """The family of shapes that a template belongs to."""

    STEP = "step"
    """A change that stays, at once or gradually."""
    DENT = "dent"
    """Another level for a while."""
    SLOPE = "slope"
    CYCLE = "cycle"


class ShapeTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """One shape at one position. Positions and lengths are in observations, and need not be whole."""

    shape: Shape
    start: float = 0.0
    """Position at which the change begins; for a cycle, its first low part."""
    stop: float
    """Position at which it ends."""
    tail: float = 0.0
    """Time constant of its approach to the new level; 0 means at once."""
    period: float | None = None
    width: float = 0.0
    """Length of a cycle's low part."""

    @property
    def settled(self) -> float:
        """Observations from its start until 95 % of the change was done."""
        return _SETTLED * self.tail

    def draw(self, count: int) -> Floats:
        """Return the mean of the shape, which goes from 0 to 1, over each of `count` observations."""
        edges = np.arange(count + 1, dtype=np.float64)
        if self.shape is Shape.SLOPE:
            return edges[:-1] / max(count - 1, 1)
        if self.period is not None:
            cycles, rest = np.divmod(edges - self.start, self.period)
            return np.diff(cycles * self.width + np.minimum(rest, self.width))
        inside = np.minimum(np.maximum(edges, self.start), self.stop) - self.start
        return np.diff(inside - self.tail * -np.expm1(-inside / self.tail)) if self.tail else np.diff(inside)


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The fitted size of a template, beside the other templates, with its 95 % interval."""

    template: ShapeTemplate
    size: float
    low: float
    high: float


def find_shapes(values: Floats) -> tuple[Fit, ...]:
    """Find every shape of a series that its noise does not explain, by time.

    The strongest shape is found first, then those in the residuals on either side of it (binary segmentation).

    Args:
        values: Evenly spaced, finite; shape (n,).
    """
    searched = _search(values, offset=0, total=len(values), depth=0)
    found = [one for each in searched for one in _split_dent(each, len(values))]
    return fit_jointly(values, sorted(found, key=lambda one: (one.start, one.stop)))


def fit_jointly(values: Floats, templates: Sequence[ShapeTemplate]) -> tuple[Fit, ...]:
    """Fit the sizes of all templates together. Each interval is the union over all correlations that fit about as well.

    Source: profile likelihood, with chi-squared(1) / 2 = 1.92 below the best correlation.
    """
    if not templates:
        return ()
    design = np.column_stack([np.ones(len(values)), *(one.draw(len(values)) for one in templates)])
    freedom = max(len(values) - design.shape[1] - 1, 1)
    fits = []
    for correlation in _CORRELATIONS:
        whitened, rest = _whiten(design.T, correlation).T, _whiten(values, correlation)
        inverse = np.linalg.pinv(whitened.T @ whitened)
        sizes = inverse @ whitened.T @ rest
        left = float(np.square(rest - whitened @ sizes).sum())
        spreads = np.sqrt(np.diag(inverse) * left / freedom)
        fits.append((_likelihood(left, len(values), correlation), sizes[1:], spreads[1:]))
    best = max(fits, key=lambda fit: fit[0])
    factor = t_quantile(freedom, 0.975)
    near = [fit for fit in fits if fit[0] >= best[0] - _AS_LIKELY]
    low = np.min([sizes - factor * spreads for _, sizes, spreads in near], axis=0)
    high = np.max([sizes + factor * spreads for _, sizes, spreads in near], axis=0)
    return tuple(
        Fit(template=one, size=float(best[1][i]), low=float(low[i]), high=float(high[i]))
        for i, one in enumerate(templates)
    )


def fit_curves(fits: Sequence[Fit], count: int) -> Floats:
    """Draw fitted shapes at their sizes; shape (count, number of fits)."""
    return np.column_stack([np.zeros((count, 0)), *(fit.size * fit.template.draw(count) for fit in fits)])


def measure_strength(values: Floats) -> float:
    """Compute twice the logarithm of the likelihood ratio of the best template against none."""
    return _find_strongest(values)[0]


def _find_strongest(values: Floats) -> tuple[float, ShapeTemplate]:
    """Compute twice the logarithm of the likelihood ratio of the best template against none, and return that template, too."""
    return _measure(values, _family(len(values)), _whiten_family(len(values)))


def _critical_strength(count: int) -> float:
    """Return the strength that this many observations of pure noise rarely exceed.

    Source: simulated, benchmarks/episodes.py; see docs/how-we-know.md.
    """
    return 19.0 + 0.1 * count


def _search(values: Floats, *, offset: float, total: int, depth: int) -> Iterator[ShapeTemplate]:
    if len(values) < MIN_OBSERVATIONS or depth == _DEEPEST or not np.ptp(values) > 0.0:
        return
    strength, coarse = _find_strongest(values)
    if strength <= _critical_strength(len(values)):
        return
    template = _refine(values, coarse)
    yield _shift(template, offset, total)
    # A slope or a cycle covers the whole series; a second one would only fit the first one's residuals.
    if template.shape in {Shape.STEP, Shape.DENT}:
        rest = values - fit_jointly(values, [template])[0].size * template.draw(len(values))
        edges = sorted({0, round(template.start), round(template.stop), len(values)})
        for begin, end in itertools.pairwise(edges):
            yield from _search(rest[begin:end], offset=offset + begin, total=total, depth=depth + 1)


def _split_dent(template: ShapeTemplate, count: int) -> Iterator[ShapeTemplate]:
    """Split a dent into a step and a step back; their fitted sizes show whether it leads back to the same level."""
    if template.shape is not Shape.DENT:
        yield template
        return
    for start in (template.start, template.stop):
        yield msgspec.structs.replace(template, shape=Shape.STEP, start=start, stop=count)


def _shift(template: ShapeTemplate, offset: float, total: int) -> ShapeTemplate:
    stop = total if template.shape is Shape.STEP else template.stop + offset
    return msgspec.structs.replace(template, start=template.start + offset, stop=stop)


def _refine(values: Floats, coarse: ShapeTemplate) -> ShapeTemplate:
    """Return the best of the nearby templates whose edges lie within observations."""
    nearby = [coarse, *_neighbours(coarse, len(values))]
    return _measure(values, nearby, _normalise(nearby, len(values)))[1]


def _neighbours(coarse: ShapeTemplate, count: int) -> Iterator[ShapeTemplate]:
    moves = [move / _FINENESS for move in range(-_FINENESS, _FINENESS + 1)]
    replace = functools.partial(msgspec.structs.replace, coarse)
    if coarse.shape is Shape.STEP:
        starts = [coarse.start + move for move in moves if 1 <= coarse.start + move <= count - 1] or [coarse.start]
        for start, factor in itertools.product(starts, (0.0, 0.5, 0.7, 1.0, 1.4)):
            if start or coarse.tail * factor:
                yield replace(start=start, tail=coarse.tail * factor)
    elif coarse.shape is Shape.DENT:
        for start, stop in itertools.product(moves, moves):
            moved = replace(start=coarse.start + start, stop=coarse.stop + stop)
            # Only observations wholly inside a dent show its depth: a shallow dent as long as two observations, and a
            # deep one in the middle of them, have the same means.
            if math.ceil(moved.start) + 1 <= math.floor(moved.stop):
                yield moved
    elif coarse.period is not None:
        for start, width, period in itertools.product(moves[::2], moves[::2], moves[::2]):
            if coarse.width + width > 0:
                yield replace(start=coarse.start + start, width=coarse.width + width, period=coarse.period + period / 2)


@functools.lru_cache(maxsize=64)
def _family(count: int) -> tuple[ShapeTemplate, ...]:
    return (ShapeTemplate(shape=Shape.SLOPE, stop=count), *_steps(count), *_dents(count), *_cycles(count))


def _steps(count: int) -> Iterator[ShapeTemplate]:
    tails = [float(tail) for tail in (1, 2, 4, 8) if tail <= count / 4]
    yield from (ShapeTemplate(shape=Shape.STEP, stop=count, tail=tail) for tail in tails)
    for halves in range(2 * _EDGE, 2 * (count - _EDGE) + 1):
        yield from (ShapeTemplate(shape=Shape.STEP, start=halves / 2, stop=count, tail=tail) for tail in (0.0, *tails))


def _dents(count: int) -> Iterator[ShapeTemplate]:
    for start in range(_EDGE, count - 2 * _EDGE + 1):
        for stop in range(start + _EDGE, count - _EDGE + 1):
            yield ShapeTemplate(shape=Shape.DENT, start=start, stop=stop)


def _cycles(count: int) -> Iterator[ShapeTemplate]:
    for halves in range(2 * _MIN_PERIOD, 2 * count // MIN_CYCLES + 1):
        period = halves / 2
        for start in range(math.ceil(period)):
            for width in range(1, int(period) // 2 + 1):
                yield ShapeTemplate(shape=Shape.CYCLE, start=start, stop=count, period=period, width=width)


@functools.lru_cache(maxsize=16)
def _whiten_family(count: int) -> list[tuple[Floats, Floats]]:
    return _normalise(_family(count), count)


def _normalise(templates: Sequence[ShapeTemplate], count: int) -> list[tuple[Floats, Floats]]:
    """Whiten the templates, one a row, for each correlation; return them orthogonal to the constant and of length 1, with the constant."""
    # To draw takes longest.
    drawn = np.array([one.draw(count) for one in templates])
    return [_normalise_whitened(drawn, correlation) for correlation in _CORRELATIONS]


def _normalise_whitened(drawn: Floats, correlation: float) -> tuple[Floats, Floats]:
    constant = _whiten(np.ones(drawn.shape[1]), correlation)
    constant /= np.linalg.norm(constant)
    white = _whiten(drawn, correlation)
    white -= np.outer(white @ constant, constant)
    return white / np.linalg.norm(white, axis=1, keepdims=True), constant


def _measure(
    values: Floats, templates: Sequence[ShapeTemplate], whitened: Sequence[tuple[Floats, Floats]]
) -> tuple[float, ShapeTemplate]:
    count, none, best, which = len(values), -np.inf, -np.inf, 0
    for correlation, (drawn, constant) in zip(_CORRELATIONS, whitened, strict=True):
        rest = _whiten(values, correlation)
        rest = rest - constant * (constant @ rest)
        around = float(rest @ rest)
        explained = np.square(drawn @ rest)
        top = int(np.argmax(explained))
        none = max(none, _likelihood(around, count, correlation))
        likelihood = _likelihood(around - float(explained[top]), count, correlation)
        if likelihood > best:
            best, which = likelihood, top
    return 2 * (best - none), templates[which]


def _whiten(values: Floats, correlation: float) -> Floats:
    """Whiten a series by its first-order correlation. Source: Prais & Winsten 1954, Cowles Commission discussion paper 383."""
    white = values.astype(np.float64, copy=True)
    white[..., 1:] -= correlation * values[..., :-1]
    white[..., 0] *= np.sqrt(1 - correlation**2)
    return white


def _likelihood(left: float, count: int, correlation: float) -> float:
    return -count / 2 * float(np.log(max(left, _EXACT))) + float(np.log1p(-(correlation**2))) / 2
