"""State the answers of a sweep over clients: where TPS is highest, how many clients come near it, and what is open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pgdyno.analyse.sweep.knee import KNEE_RATIO
from pgdyno.analyse.sweep.scaling import ClientSweep, LoadPoint
from pgdyno.analyse.sweep.statuses import CLIMBING
from pgdyno.plan.experiment import Experiment, list_crossed_levels
from pgdyno.report.format import format_clients, format_estimate, format_more_time
from pgdyno.report.lists import join_names
from pgdyno.report.verdict_words import name_status
from pgdyno.units import count_things, with_capital

_UNKNOWN = "how much longer that takes is not known yet"
_TOO_NEAR = ", too near to a limit between two statuses"
# What takes longer is told in hours, and apart: one load must not hide that the others would be decided in minutes.
_LONG_S = 99 * 60.0
# A curve may have its peak between two loads, or at another one than the best: the reader must know whose it is.
_NO_CURVE = "Nothing has been compared yet: no round has ended that measured two numbers of clients."


class LevelCurve(msgspec.Struct, frozen=True, kw_only=True):
    """How TPS follow the number of clients at one level of the axis that was swept beside it."""

    level: str
    """Such as `mode=prepared`."""
    sweep: ClientSweep
    variants: dict[int, str]
    """The variant of each number of clients."""


class SweepOutlook(msgspec.Struct, frozen=True, kw_only=True):
    """How much longer a sweep over clients would take to decide what is open."""

    words: str = ""
    """A sentence on all of it; empty where nothing is open."""
    loads: dict[int, str] = {}
    """A clause on each open load, by clients."""


def list_levels(experiment: Experiment, sweeps: Mapping[str, ClientSweep]) -> tuple[LevelCurve, ...]:
    """List the curves of a sweep over clients and something else, by its level."""
    variants = list_crossed_levels(experiment)
    return tuple(LevelCurve(level=level, sweep=sweep, variants=variants[level]) for level, sweep in sweeps.items())


def describe_levels(levels: Sequence[LevelCurve]) -> tuple[str, ...]:
    """Describe the curves of a sweep over clients and something else: a sentence on the best load, and one on each curve."""
    if not levels:
        return (_NO_CURVE,)
    points = [(one.level, point) for one in levels for point in one.sweep.points]
    level, best = max(points, key=lambda at: at[1].tps.value or 0.0)
    # The interval of one load would not hold for the one that was chosen for its value: that is too high by what favoured it.
    shown, clients = format_estimate(best.tps).value, count_things(best.clients, "client")
    return (
        f"Highest TPS of the {len(points)} loads measured: {shown}, with {level} and {clients}.",
        *(f"{one.level}: {' '.join((*describe_curve(one.sweep), *_tell_rest(one)))}" for one in levels),
    )


def _tell_rest(level: LevelCurve) -> Iterator[str]:
    """Say what would decide the loads of a level that are open: the study ends by its verdicts, and not by its curves."""
    if any(point.status is None for point in level.sweep.points):
        yield f"A sweep over clients alone, with {level.level}, would decide the rest."


def describe_curve(sweep: ClientSweep | None) -> tuple[str, ...]:
    """Describe the answers of a sweep over clients in sentences: its peak, its knee, and the status of each load."""
    if sweep is None:
        return (_NO_CURVE,)
    standings: dict[str, list[str]] = {}
    for point in sweep.points:
        standings.setdefault(name_status(point.status), []).append(f"{point.clients:,}")
    stands = "; ".join(f"{', '.join(clients)} {status}" for status, clients in standings.items())
    return (_describe_peak(sweep), _describe_knee(sweep), f"Status by number of clients: {stands}.")


def describe_sweep_outlook(sweep: ClientSweep, needed: Mapping[int, int | None], round_s: float | None) -> SweepOutlook:
    """Describe how much longer the sweep would take to decide what is open.

    Args:
        sweep: The sweep.
        needed: The further rounds that decide each open load, as `predict_rounds` returns them.
        round_s: The duration of a round.
    """
    opens = [point for point in sweep.points if point.status is None]
    if not opens:
        return SweepOutlook()
    if round_s is None or not needed:
        words = f"How much longer it takes to decide {_name_loads(opens)} is not known yet: {opens[0].reason}."
        return SweepOutlook(words=words, loads=dict.fromkeys((point.clients for point in opens), _UNKNOWN))
    seconds = {clients: rounds * round_s for clients, rounds in needed.items() if rounds is not None}
    timed = [point for point in opens if point.clients in seconds]
    soon = [point for point in timed if seconds[point.clients] <= _LONG_S]
    late = [point for point in timed if point not in soon]
    parts = []
    if first := soon or late:
        parts.append(f"about {_longest(first, seconds)} of this sweep would decide the status of {_name_loads(first)}")
    if soon and late:
        parts.append(f"{_name_loads(late)} would take about {_longest(late, seconds)}")
    if near := _name_loads([point for point in opens if point.clients not in seconds]):
        parts.append(f"no affordable number of rounds would decide the status of {near}{_TOO_NEAR}")
    return SweepOutlook(
        words=f"{with_capital('; '.join(parts))}.",
        loads={
            clients: f"about {format_more_time(seconds[clients])} of this sweep would decide it"
            if clients in seconds
            else f"no affordable number of rounds would decide it{_TOO_NEAR}"
            for clients in needed
        },
    )


def _longest(points: Sequence[LoadPoint], seconds: Mapping[int, float]) -> str:
    return format_more_time(max(seconds[point.clients] for point in points))


def _name_loads(points: Sequence[LoadPoint]) -> str:
    """Name loads: `4, 8 and 16 clients`."""
    if not points:
        return ""
    *others, last = points
    return join_names([*(f"{one.clients:,}" for one in others), count_things(last.clients, "client")])


def describe_missing_knee(sweep: ClientSweep, outlook: str) -> str:
    """Say that a sweep over clients has found no knee, why, and what would find it; empty where it has found one.

    Args:
        sweep: The sweep.
        outlook: The words of its outlook.
    """
    if sweep.knee.value is not None and sweep.knee.high is not None:
        return ""
    last = sweep.points[-1]
    is_climbing = CLIMBING.issuperset(last.possible)
    advice = f"Sweep more clients than {last.clients:,}." if is_climbing else outlook or "A longer sweep would tell."
    return f"No knee was found: {sweep.knee.reason}. {advice}"


def _describe_peak(sweep: ClientSweep) -> str:
    """Describe where TPS is highest; also which load was measured to have most, where that is the fitted curve's or not settled."""
    peak = sweep.peak
    if peak.value is None or peak.low is None:
        return f"Where TPS is highest: {format_clients(peak)}."
    best = max(sweep.points, key=lambda point: point.tps.value or 0.0)
    measured = f"measured highest: {format_estimate(best.tps).value} TPS at {count_things(best.clients, 'client')}"
    is_of_curve = sweep.points_alone_reason is None
    if peak.high is None:
        by_curve = "by the fitted curve " if is_of_curve else ""
        least = count_things(round(peak.low), "client")
        return f"Where TPS is highest is not settled: {by_curve}at {least} or more; {measured}."
    if is_of_curve:
        return f"By the fitted curve, TPS is highest at {format_clients(peak)}; {measured}."
    return f"TPS is highest at {format_clients(peak)}."


def _describe_knee(sweep: ClientSweep) -> str:
    """Describe from how many clients on TPS is near the highest."""
    knee, near = sweep.knee, f"{KNEE_RATIO * 100:g} % of the highest"
    if knee.value is None or knee.low is None:
        return f"Where TPS reaches {near}: {format_clients(knee)}."
    if knee.high is not None:
        return f"TPS reaches {near} at {format_clients(knee)}."
    return f"Where TPS reaches {near} is not settled: at {count_things(round(knee.low), 'client')} or more."
