"""Detect what happens to throughput or latency within a trial: cliffs, stalls, cycles, declines, warm-ups, recoveries.

A mean over two levels describes neither, so levels are detected before a mean is quoted. Stalls are detected second by
second. All other episodes are detected in means of two seconds or more, which separate fast noise from slow noise, and
in logarithms, so that sizes are shares of the level. A change is reported only if autocorrelated noise does not explain
it, at a known rate of false alarms (docs/how-we-know.md), and if it is large enough to matter.

Less than 20 seconds or 8 observations are not judged, with a reason. Causes are not named here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from pgdyno.analyse.episodes.dips import Dips, find_dips, measure_chance
from pgdyno.analyse.episodes.fit import (
    MIN_CYCLES,
    MIN_OBSERVATIONS,
    Fit,
    Floats,
    Shape,
    ShapeTemplate,
    find_shapes,
    fit_curves,
    fit_jointly,
    measure_strength,
)
from pgdyno.analyse.episodes.stalls import MIN_COUNT, STALL_RATIO, Line, bridge, cut_out, find_stalls, is_long
from pgdyno.analyse.episodes.types import AGAIN_RATIO, WORSE, Episode, EpisodeKind
from pgdyno.analyse.series import ChartKind, Event, Series

_MIN_S = 20.0
_MIN_KNOWN_RATIO = 0.8
_BIN_S = 3.0
_SHORT_BIN_S = 2.0
_SHORT_S = 45.0
_MAX_BINS = 30
# Values below this share of the level are raised to it.
_FLOOR_RATIO = 0.05
_MIN_CHANGE = {"tps": 0.05}
_MIN_CHANGE_OF_LATENCY = 0.25
# Shares of the trial: a change that takes longer is a slope, and one that begins earlier belongs to the beginning.
_SLOW_RATIO = 0.5
_BEGINNING_RATIO = 0.25


class DetectedEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """The episodes of one metric, by time; `reason` says why nothing could be judged, and is None if it could."""

    episodes: tuple[Episode, ...]
    reason: str | None = None


def find_episodes(t_s: Sequence[float], values: Sequence[float | None], *, metric: str = "tps") -> DetectedEpisodes:
    """Detect the episodes of a metric.

    Args:
        t_s: The middle of each observation, evenly spaced, in seconds since the load began.
        values: The observed values; None for a missing one.
        metric: Name of the metric; only for `tps` is a low value a stall, and for others a rise is for the worse.
    """
    times = np.asarray(t_s, dtype=np.float64)
    # None becomes NaN.
    raw = np.array(values, dtype=np.float64)
    if len(times) < 2:
        return DetectedEpisodes(episodes=(), reason="fewer than two whole seconds were seen")
    step_s = float(np.median(np.diff(times)))
    if _is_too_short(len(times), step_s):
        return DetectedEpisodes(
            episodes=(), reason=f"{len(times) * step_s:.0f} s are too short to tell a change from noise"
        )
    known = np.isfinite(raw) if metric == "tps" else np.isfinite(raw) & (raw > 0.0)
    if known.mean() < _MIN_KNOWN_RATIO:
        return DetectedEpisodes(episodes=(), reason=f"{metric} has too few observations above 0")
    line = Line(
        metric=metric,
        first_s=float(times[0]) - step_s / 2,
        step_s=step_s,
        values=np.interp(times, times[known], raw[known]),
        numbers=np.arange(len(times)),
    )
    stalls = tuple(find_stalls(line)) if metric == "tps" else ()
    return _find_beside(line, stalls)


def find_trial_episodes(
    charts: Mapping[ChartKind, Sequence[Series]], *, is_mixed: bool, is_scheduled: bool
) -> DetectedEpisodes:
    """Detect the episodes of a trial's TPS, and those of its p99 that are for the worse.

    Args:
        charts: Charts of the trial.
        is_mixed: Whether variants alternate in the trial, and its levels with them.
        is_scheduled: Whether its rate was scheduled: then only stalls are the server's own.
    """
    if is_mixed:
        return DetectedEpisodes(episodes=(), reason="variants alternate within it, and its levels with them")
    lines = {line.metric: line for kind in (ChartKind.TPS, ChartKind.LATENCY) for line in charts.get(kind, ())}
    if "tps" not in lines:
        return DetectedEpisodes(episodes=(), reason="there are no seconds to look at")
    course = find_episodes(lines["tps"].t_s, lines["tps"].values)
    if is_scheduled:
        stalls = tuple(one for one in course.episodes if one.kind is EpisodeKind.STALL)
        return DetectedEpisodes(episodes=stalls, reason=course.reason or "the rate was given: only stalls are told")
    p99 = lines.get("latency_p99_ms")
    latency = () if p99 is None else find_episodes(p99.t_s, p99.values, metric=p99.metric).episodes
    worse = (one for one in latency if one.kind in WORSE)
    return DetectedEpisodes(episodes=tuple(sorted((*course.episodes, *worse), key=_start_time)), reason=course.reason)


def describe_episodes(episodes: Sequence[Episode]) -> Iterator[Event]:
    """Yield changes of the level of TPS as events, for the charts and the list of events."""
    for one in episodes:
        if one.metric == "tps" and one.kind not in {EpisodeKind.WARM_UP, EpisodeKind.SAWTOOTH}:
            change = f"{one.before:,.0f} to {one.after:,.0f} TPS ({one.change_ratio * 100:+.0f} %)"
            text = f"{one.kind.value}: {change} from {one.from_s:.0f} s"
            yield Event(kind="level shift", t_s=one.from_s, until_s=one.until_s, text=text)


def _start_time(one: Episode) -> float:
    return one.from_s


def _is_too_short(count: int, step_s: float) -> bool:
    return count * step_s < _MIN_S or count < MIN_OBSERVATIONS


def _find_beside(line: Line, stalls: tuple[Episode, ...]) -> DetectedEpisodes:
    """Find what happened beside stalls; a cycle is looked for before long stalls are cut out, since a cut shifts its phase."""
    long = tuple(one for one in stalls if is_long(one, line))
    if len(long) >= MIN_CYCLES:
        # Long stalls at equal distances are the low parts of a cycle.
        found = _judge(bridge(line, tuple(one for one in stalls if one not in long)), stalls)
        if any(one.change_ratio <= STALL_RATIO - 1 for one in found.episodes if one.kind is EpisodeKind.SAWTOOTH):
            return found
    if reason := _why_unjudged(cut_out(line, stalls)):
        # Bridges alone show nothing.
        return DetectedEpisodes(episodes=stalls, reason=reason)
    bridged = bridge(line, stalls)
    found = _judge(bridged, stalls)
    if not long or any(one.kind is EpisodeKind.SAWTOOTH for one in found.episodes):
        return found
    # A long straight bridge is smoother than the noise around it, and makes the noise look like a change.
    return _judge(cut_out(bridged, long), stalls)


def _judge(line: Line, stalls: tuple[Episode, ...]) -> DetectedEpisodes:
    if reason := _why_unjudged(line):
        return DetectedEpisodes(episodes=stalls, reason=reason)
    return DetectedEpisodes(episodes=tuple(sorted((*stalls, *_find_changes(line)), key=_start_time)))


def _why_unjudged(line: Line) -> str | None:
    """Say why no change can be told in what is left beside long stalls; None if it can."""
    count = len(line.values)
    if _is_too_short(count, line.step_s):
        return f"{count * line.step_s:.0f} s beside its stalls are too short to tell a change from noise"
    if not np.median(line.values) > 0.0:
        return f"{line.metric} has too few observations above 0"
    if count // _choose_width(line) < MIN_OBSERVATIONS:
        return "too few transactions to tell a change from the noise of counting"
    return None


def _choose_width(line: Line) -> int:
    """Choose how many observations to average, more in a long trial or at low TPS."""
    count = len(line.values)
    bin_s = _BIN_S if count * line.step_s >= _SHORT_S else _SHORT_BIN_S
    width = max(math.ceil(bin_s / line.step_s), math.ceil(count / _MAX_BINS))
    if line.metric == "tps":
        width = max(width, math.ceil(MIN_COUNT / (float(np.median(line.values)) * line.step_s)))
    return width


def _find_changes(line: Line) -> Iterator[Episode]:
    width = _choose_width(line)
    count = len(line.values) // width
    # Surplus observations are dropped at the beginning, where clients connect.
    lead = len(line.values) - count * width
    floor = _FLOOR_RATIO * float(np.median(line.values))

    def average(logs: Floats) -> Floats:
        means = np.exp(logs).reshape(count, width).mean(axis=1)
        return np.asarray(np.log(np.maximum(means, floor)))

    # Logarithms of seconds of 0 need a floor far below that of the means, which they hardly change.
    seconds = np.log(np.maximum(line.values[lead:], _FLOOR_RATIO * floor))
    logs = average(seconds)
    fits = _find_shapes(find_dips(seconds, step_s=line.step_s), logs, average)
    fitted = fit_curves(fits, count)
    base = float((logs - fitted.sum(axis=1)).mean())
    binned = _Binned(line=line, lead=lead, width=width, count=count, base=base, fitted=fitted)
    found = [one for i, fit in enumerate(fits) for one in _describe_shape(binned, fit, i)]
    yield from _join_recoveries(found)


def _find_shapes(dips: Dips, means: Floats, average: Callable[[Floats], Floats]) -> tuple[Fit, ...]:
    """Find shapes; what only single seconds that stand out show must be stronger than these are at random moments."""
    if dips.is_empty:
        return find_shapes(means)
    beside = fit_jointly(means, [fit.template for fit in find_shapes(average(dips.rest))])
    curve = fit_curves(beside, len(means)).sum(axis=1)
    left = means - curve
    shown = find_shapes(left)
    if not shown or measure_strength(left) <= measure_chance(dips, lambda logs: average(logs) - curve):
        return beside
    if any(fit.template.period is not None for fit in beside):
        # What is left is of the same cycle.
        return find_shapes(means) or beside
    templates = [fit.template for fit in (*beside, *shown)]
    return fit_jointly(means, sorted(templates, key=lambda one: (one.start, one.stop)))


class _Binned(msgspec.Struct, frozen=True, kw_only=True):
    """A line in means of `width` observations, and the shapes fitted to their logarithms, one column for each."""

    line: Line
    lead: int
    width: int
    count: int
    base: float
    fitted: Floats

    def at_s(self, index: float) -> float:
        """Return the time of an index among the means."""
        return self.line.at_s(self.lead + index * self.width)


def _describe_shape(binned: _Binned, fit: Fit, which: int) -> Iterator[Episode]:
    """Turn a fitted shape into an episode."""
    template, curve, metric = fit.template, binned.fitted[:, which], binned.line.metric
    end = float(curve[np.argmax(np.abs(curve))])
    scale = end / fit.size if fit.size else 1.0
    low, high = sorted((math.expm1(fit.low * scale), math.expm1(fit.high * scale)))
    if abs(math.expm1(end)) < _MIN_CHANGE.get(metric, _MIN_CHANGE_OF_LATENCY):
        return
    others = binned.base + binned.fitted.sum(axis=1) - curve
    start = 0 if template.shape is Shape.CYCLE else max(int(template.start) - 1, 0)
    before = math.exp(float(others[start]))
    is_worse = (end < 0) == (metric == "tps")
    # A rise after a drop is no warm-up.
    is_first = all((sizes.sum() < 0) != (metric == "tps") for sizes in binned.fitted[:, :which].T)
    yield msgspec.structs.replace(
        _classify_shape(binned, template, is_worse=is_worse, is_first=is_first),
        before=before,
        after=before * math.exp(end),
        change_ratio=math.expm1(end),
        change_low_ratio=low,
        change_high_ratio=high,
    )


def _classify_shape(binned: _Binned, template: ShapeTemplate, *, is_worse: bool, is_first: bool) -> Episode:
    """Determine kind and times of a shape, without its sizes."""
    step_s = binned.width * binned.line.step_s
    place = functools.partial(
        Episode,
        metric=binned.line.metric,
        from_s=binned.at_s(template.start),
        until_s=None,
        before=math.nan,
        after=math.nan,
        change_ratio=math.nan,
    )
    if template.period is not None:
        # Of a cycle's high and low parts, the low ones are reported.
        low_s, period_s = template.width * step_s, template.period * step_s
        return place(kind=EpisodeKind.SAWTOOTH, period_s=period_s, recovery_s=low_s)
    is_slow = template.shape is Shape.SLOPE or template.settled > _SLOW_RATIO * binned.count
    settled_s = None if template.shape is Shape.SLOPE else template.settled * step_s
    if is_worse:
        return place(kind=EpisodeKind.DECLINE if is_slow else EpisodeKind.CLIFF, settled_s=settled_s)
    if is_first and template.start <= _BEGINNING_RATIO * binned.count:
        # The rise ends where it has levelled off; if it has not, it has no end.
        until_s = None if settled_s is None or is_slow else binned.at_s(template.start) + settled_s
        return place(kind=EpisodeKind.WARM_UP, until_s=until_s, settled_s=settled_s)
    return place(kind=EpisodeKind.RECOVERY, settled_s=settled_s)


def _join_recoveries(found: Sequence[Episode]) -> Iterator[Episode]:
    """End a drop where the level before it is reached again."""
    for one in found:
        back = None if one.kind is not EpisodeKind.CLIFF else _find_recovery(one, found)
        if back is None:
            yield one
        else:
            yield msgspec.structs.replace(one, until_s=back.from_s, recovery_s=back.from_s - one.from_s)


def _find_recovery(drop: Episode, found: Sequence[Episode]) -> Episode | None:
    def is_back(one: Episode) -> bool:
        level = one.after / drop.before
        return level >= AGAIN_RATIO if drop.metric == "tps" else level <= 1 / AGAIN_RATIO

    later = [one for one in found if one.kind is EpisodeKind.RECOVERY and one.from_s > drop.from_s and is_back(one)]
    return min(later, key=_start_time, default=None)
