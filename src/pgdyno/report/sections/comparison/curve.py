"""State the answers of a sweep over clients: where TPS is highest, from how many clients on more of them gain little, and what is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pgdyno.analyse.sweep.scaling import ClientSweep, LoadStatus
from pgdyno.plan.experiment import Experiment, find_crossed_axis
from pgdyno.report.format import count_things, format_clients, format_estimate
from pgdyno.report.verdict_words import name_status

_NO_CURVE = "There is no curve yet: no round has measured two numbers of clients."


class LevelCurve(msgspec.Struct, frozen=True, kw_only=True):
    """How TPS follow the number of clients at one level of the axis that was swept beside it."""

    level: str
    """Such as `mode=prepared`."""
    sweep: ClientSweep
    variants: dict[int, str]
    """The variant of each number of clients."""


def list_levels(experiment: Experiment, sweeps: Mapping[str, ClientSweep]) -> tuple[LevelCurve, ...]:
    """List the curves of a sweep over clients and something else, by its level."""
    axis = find_crossed_axis(experiment)
    if axis is None:
        return ()
    return tuple(
        LevelCurve(
            level=f"{axis}={level}",
            sweep=sweep,
            variants={
                one.clients: one.name for one in experiment.variants if one.clients and one.levels[axis] == level
            },
        )
        for level, sweep in sweeps.items()
    )


def describe_levels(levels: Sequence[LevelCurve], delta_ratio: float) -> tuple[str, ...]:
    """Describe the curves of a sweep over clients and something else: a sentence on the best load, and one on each curve."""
    if not levels:
        return (_NO_CURVE,)
    level, best = max(
        ((one.level, point) for one in levels for point in one.sweep.points), key=lambda at: at[1].tps.value or 0.0
    )
    shown = format_estimate(best.tps)
    return (
        f"Highest TPS measured: {shown.value} {shown.beside} with {level} and {count_things(best.clients, 'client')}.",
        *(f"{one.level}: {' '.join(describe_curve(one.sweep, delta_ratio))}" for one in levels),
    )


def describe_curve(sweep: ClientSweep | None, delta_ratio: float) -> tuple[str, ...]:
    """Describe the answers of a sweep over clients in sentences: its peak, its knee, and the status of each load."""
    if sweep is None:
        return (_NO_CURVE,)
    standings: dict[str, list[str]] = {}
    for point in sweep.points:
        standings.setdefault(name_status(point.status), []).append(f"{point.clients:,}")
    stands = "; ".join(f"{', '.join(clients)} {status}" for status, clients in standings.items())
    return (_describe_peak(sweep), _describe_knee(sweep, delta_ratio), f"Status by number of clients: {stands}.")


def describe_missing_knee(sweep: ClientSweep) -> str:
    """Say that a sweep over clients has found no knee, why, and what would find it; empty where it has found one."""
    if sweep.knee.value is not None and sweep.knee.high is not None:
        return ""
    return f"No knee was found: {sweep.knee.reason}. {_find_knee(sweep)}"


def _find_knee(sweep: ClientSweep) -> str:
    last = sweep.points[-1]
    if set(last.possible) <= {LoadStatus.UNDER_USED, LoadStatus.LINEAR} or all(one.status for one in sweep.points):
        return f"Sweep more clients than {last.clients:,}."
    return "More rounds of this sweep would tell."


def _describe_peak(sweep: ClientSweep) -> str:
    """Describe where TPS is highest. Without an upper end of the interval nothing is settled: then name the best load, too."""
    peak = sweep.peak
    if peak.value is None or peak.low is None:
        return f"Where TPS is highest: {format_clients(peak)}."
    if peak.high is not None:
        return f"TPS is highest at {format_clients(peak)}."
    best = max(sweep.points, key=lambda point: point.tps.value or 0.0)
    by_curve = "by the fitted curve " if sweep.points_alone_reason is None else ""
    return (
        f"Where TPS is highest is not settled: {by_curve}at {count_things(round(peak.low), 'client')} or more;"
        f" measured highest: {format_estimate(best.tps).value} TPS at {count_things(best.clients, 'client')}."
    )


def _describe_knee(sweep: ClientSweep, delta_ratio: float) -> str:
    """Describe from how many clients on more of them gain little."""
    knee, little = sweep.knee, f"{delta_ratio * 100:g} %"
    if knee.value is None or knee.low is None:
        return f"Where more clients begin to raise TPS by less than {little}: {format_clients(knee)}."
    if knee.high is not None:
        return f"From {format_clients(knee)} on, more clients raise TPS by less than {little}."
    return (
        f"Where more clients begin to raise TPS by less than {little} is not settled:"
        f" at {count_things(round(knee.low), 'client')} or more."
    )
