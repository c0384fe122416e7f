"""Describe what a machine can carry of each load. Everything that is calculated and not measured is marked as such.

Bounds, ranges and reasons come from analysis; this module only rounds and names them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from pgdyno.analyse.capacity.clients import describe_pool
from pgdyno.analyse.capacity.tiers import Tier, Tiers
from pgdyno.analyse.capacity.types import Bound, BoundKind, BoundState, Capacity, ClientAdvice, NextLimit, Projection
from pgdyno.analyse.estimate import Estimate, is_too_wide
from pgdyno.analyse.sweep.knee import KNEE_RATIO
from pgdyno.report.format import (
    NO_USEFUL_INTERVAL,
    EffectText,
    format_bytes,
    format_effect,
    format_estimate,
    format_number,
    format_percent,
    format_seconds,
    is_useless,
)
from pgdyno.report.lists import join_names
from pgdyno.report.sections.disk.card import format_rate
from pgdyno.report.sections.price.words import format_money
from pgdyno.report.table import Cell, Table, absent, columns, text
from pgdyno.units import count_things, with_capital

PROJECTION_REMARK = (
    "Projections are calculated, not measured. Each range begins at the measured TPS, since more of one resource may"
    " not help, and ends at the lowest of the bounds that would then apply. No projection goes beyond twice a resource."
)
BOUNDS_REMARK = (
    "Each bound is the capacity of a resource divided by a transaction's use of it: the most that this resource alone"
    " allows, not a promise. The limits of a disk are measured one at a time; a disk does less of each under mixed"
    " load."
)
# Of a hint with ends further apart than this factor, only the upper end is shown.
_WIDE_FACTOR = 8
_STANDINGS = {
    BoundState.AT_BOUND: ", so little is left",
    BoundState.HELD: "; something without a bound here, such as locks or latency, keeps the load below it",
    BoundState.BELOW: "; more clients may come closer to it, unless locks or latency prevent that",
    BoundState.UNKNOWN: "",
}


def describe_capacity(capacity: Capacity, *, place: str = "this machine") -> tuple[str, ...]:
    """Describe the ceiling, the next limit and the best number of clients, in a sentence each.

    Args:
        capacity: The capacity.
        place: What carries the load.
    """
    found = [_describe_ceiling(capacity, place), _describe_clients(capacity.advice)]
    if capacity.next is not None:
        found.insert(1, _describe_next(capacity.next))
    elif capacity.binding is not None:
        found.insert(1, f"The limit after {capacity.binding.kind.noun} is not known: {capacity.absent['next']}.")
    return tuple(found)


def _describe_clients(advice: ClientAdvice) -> str:
    """Describe the best number of clients: `16 active sessions [8 – 24] reach 90 % of the full throughput, …`; a hint is called a hint."""
    near = f"{KNEE_RATIO * 100:g} % of the full throughput, by the {advice.how}"
    if advice.clients is not None and advice.low is not None and advice.high is not None:
        ends = f"[{advice.low:,} – {advice.high:,}]"
        return (
            f"{count_things(advice.clients, 'active session')} {ends} reach {near}: a connection pool needs"
            f" {describe_pool(advice.clients)}."
        )
    if advice.clients is not None:
        end = "" if advice.low is None else f" [{advice.low:,} or more]"
        return f"{count_things(advice.clients, 'active session')}{end} may reach {near}: {advice.reason}."
    if advice.low is None:
        return f"The best number of clients is not known: {advice.reason}."
    if advice.high is None:
        return f"More clients than {advice.low:,} may raise TPS: {advice.reason}."
    is_wide = advice.high > _WIDE_FACTOR * advice.low
    sessions = (
        f"no more than {count_things(advice.high, 'active session')}"
        if is_wide
        else f"{advice.low:,} to {count_things(advice.high, 'active session')}"
    )
    return f"A rough guide for clients or a connection pool: {sessions}, by {advice.how}; {advice.reason}."


def bounds_table(capacity: Capacity) -> Table | None:
    """Build the table of bounds with their sources, the lowest first; None without a bound."""
    if not capacity.bounds:
        return None
    rows = tuple(
        (
            Cell(text=bound.kind.value, note=_note(bound)),
            _cell(bound.demand, _amount(bound.demand)),
            _cell(bound.limit, _rate(bound)),
            _tps_cell(bound.tps),
            _cell(_end_at_whole(bound), format_percent),
            text(bound.how),
        )
        for bound in capacity.bounds
    )
    counts = {bound.demand.n for bound in capacity.bounds} - {0}
    unless = ", where the source names no others" if len(counts) > 1 else ""
    watched = f" Uses are those of trials that samplers watched, n = {min(counts)}{unless}." if counts else ""
    reasons: dict[str, list[str]] = {}
    for kind in BoundKind:
        if kind.value in capacity.absent:
            reasons.setdefault(capacity.absent[kind.value], []).append(kind.value)
    missing = "; ".join(f"{join_names(kinds)}: {reason}" for reason, kinds in reasons.items())
    titles = columns("", "use per transaction", "capacity", "TPS at most", "used", numbers_from=1)
    return Table(
        caption=f"Capacity of each resource, with {count_things(capacity.clients, 'client')}",
        columns=(*titles, *columns("source")),
        rows=rows,
        remark=f"{BOUNDS_REMARK}{watched}{f' No bound is known for {missing}.' if missing else ''}",
    )


def projections_table(capacity: Capacity) -> Table | None:
    """Build the table of projections to other machines; None without one."""
    if not capacity.projections:
        return None
    return Table(
        caption="Projected capacity of other machines, not measured",
        columns=(
            *columns("change", "TPS from", "to at most", numbers_from=1)[:3],
            *columns("then limited by", "basis"),
        ),
        rows=tuple(_projection_row(one) for one in capacity.projections),
        remark=PROJECTION_REMARK,
    )


def describe_projection(capacity: Capacity, change: str) -> str:
    """Describe the projected TPS of a load with a change; empty where it was not calculated."""
    found = next((one for one in capacity.projections if one.change == change), None)
    if found is None:
        return ""
    if found.low_tps is None or found.high_tps is None:
        return f"{capacity.workload}: not known: {found.reason}."
    binds = "" if found.binds is None else f", where {found.binds.noun} would be the limit"
    return (
        f"{capacity.workload}: {format_number(found.low_tps)} TPS, as here, to {format_number(found.high_tps)} TPS at"
        f" most{binds} ({found.how})."
    )


def describe_tiers(tiers: Tiers) -> tuple[str, ...]:
    """Describe tiers, as `Up to 15,000 TPS: c7g.large.`, and name the machines in no tier."""
    said = [_describe_tier(tier) for tier in tiers.tiers]
    return (*said, *(f"Not {name}: {reason}." for name, reason in tiers.left_out.items()))


def tiers_table(tiers: Tiers) -> Table | None:
    """Build the table of machines by the loads for which each is recommended; None without one."""
    if not tiers.tiers:
        return None
    rows = tuple(
        (
            text(tier.host.name),
            text(_floor(tier.up_to_tps)),
            _tps_cell(tier.host.capacity),
            absent("its price is not known")
            if tier.host.per_month is None
            else _cell(tier.host.per_month, partial(format_money, currency=tier.host.per_month.unit)),
            text(", ".join(tier.rivals) or "none"),
        )
        for tier in tiers.tiers
    )
    titles = columns("Machine", "up to TPS", "capacity, TPS", "per month", numbers_from=1)
    remark = (
        "A machine is recommended up to the low end of its capacity's interval. An alternative has a similar capacity"
        " and may be cheaper."
    )
    return Table(
        caption="Recommended machine by load", columns=(*titles, *columns("alternatives")), rows=rows, remark=remark
    )


def _describe_ceiling(capacity: Capacity, place: str) -> str:
    ceiling, binding = capacity.ceiling, capacity.binding
    if ceiling.value is None:
        return f"The ceiling of {capacity.workload} on {place} is not known: {ceiling.reason}."
    if capacity.peak.value is not None:
        is_open = capacity.peak.high is None and capacity.peak.reason
        why = f" ({capacity.peak.reason})" if is_open else ""
        first = (
            f"{capacity.workload} peaks at {_say(ceiling)} on {place}, the highest point of the sweep over clients, whichever"
            f" number of them reaches it{why}"
        )
    else:
        # What one of the trials was above is no limit.
        about, end = ("about ", "") if is_too_wide(ceiling) else ("", " at most")
        first = (
            f"{with_capital(place)} can carry {about}{_say(ceiling)} of {capacity.workload}{end}, calculated from a"
            " transaction's use of resources"
        )
    if binding is None:
        return f"{first}."
    if capacity.peak.value is None and binding is not capacity.lowest and capacity.lowest is not None:
        return f"{first}: the limit of {capacity.lowest.kind.noun}. {_describe_earlier(capacity, binding)}"
    allowed = "" if capacity.peak.value is None else f", at {_say(binding.tps)}"
    used = format_percent(binding.used.value or 0.0)
    return (
        f"{first}. The lowest bound is that of {binding.kind.noun}{allowed}: {used} was in"
        f" use{_describe_standing(capacity)}."
    )


def _describe_earlier(capacity: Capacity, binding: Bound) -> str:
    """Describe a bound below the ceiling, which other clients or another machine for pgbench would move."""
    is_sure = binding.tps.low is not None and not is_too_wide(binding.tps)
    allow = "may allow" if not is_sure else "allows" if binding.kind is BoundKind.LOAD_GENERATOR else "allow"
    used = format_percent(binding.used.value or 0.0)
    return (
        f"With {count_things(capacity.clients, 'client')}, {binding.kind.noun} {allow} less, {_say(binding.tps)}: {used}"
        f" was in use{_describe_standing(capacity)}."
    )


def _describe_standing(capacity: Capacity) -> str:
    """Describe what may bring the load closer to its lowest bound: first an end of the other programs that use the CPUs."""
    if capacity.standing is BoundState.BELOW and capacity.others_ratio:
        others = format_percent(capacity.others_ratio)
        return f"; other programs used up to {others} of the CPUs, and without them the load may come closer to it"
    return _STANDINGS[capacity.standing]


def _describe_next(following: NextLimit) -> str:
    rise = f"by {_effect(following.gain)} at most" if following.gain.low is not None else "by an unknown amount"
    as_many = following.gain_at_clients
    more = "" if as_many.low is None else f" The present number of clients would gain {_effect(as_many)} at most."
    return (
        f"Without the limit of {following.removed}, TPS could rise {rise}, up to the limit of {following.binds.noun}"
        f" at {_say(following.tps)}.{more}"
    )


def _effect(ratio: Estimate) -> EffectText:
    return format_effect(ratio.value, ratio.low, ratio.high)


def _describe_tier(tier: Tier) -> str:
    price = tier.host.per_month
    cost = "" if price is None or price.value is None else f", {format_money(price.value, price.unit)} a month"
    rivals = f" ({', '.join(tier.rivals)} may be cheaper)" if tier.rivals else ""
    begin = "Up to" if not tier.above_tps else f"Above {_floor(tier.above_tps)}, up to"
    return f"{begin} {_floor(tier.up_to_tps)} TPS: {tier.host.name}{cost}{rivals}."


def _projection_row(one: Projection) -> tuple[Cell, ...]:
    if one.low_tps is None or one.high_tps is None:
        return text(one.change), absent(one.reason), absent(one.reason), absent(one.reason), text(one.how)
    binds = text("by the fitted law") if one.binds is None else text(one.binds.value)
    return text(one.change), text(format_number(one.low_tps)), text(format_number(one.high_tps)), binds, text(one.how)


def _end_at_whole(bound: Bound) -> Estimate:
    """Return the used share of a bound: no more than all CPUs, or all of pgbench's threads, can be used."""
    used = bound.used
    if bound.kind not in {BoundKind.CPU, BoundKind.LOAD_GENERATOR} or used.value is None or used.high is None:
        return used
    return msgspec.structs.replace(used, high=min(used.high, max(1.0, used.value)))


def _note(bound: Bound) -> str | None:
    if bound.is_refuted:
        return "the load used more than that, so it is no bound"
    if bound.kind is BoundKind.FLUSHES:
        return "more clients would share each flush and raise this bound"
    if bound.kind is BoundKind.LOAD_GENERATOR:
        return "not a limit of the server: pgbench may run on another machine"
    return bound.tps.reason


def _tps_cell(estimate: Estimate) -> Cell:
    shown = format_estimate(estimate)
    return Cell(text=shown.value, detail=shown.beside, note=shown.reason, is_strong=True)


def _cell(estimate: Estimate, shown: Callable[[float], str]) -> Cell:
    """Return a figure with its interval in a unit that is easy to read; no interval where it is exact."""
    if estimate.value is None:
        return absent(estimate.reason)
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return text(shown(estimate.value))
    if is_useless(estimate):
        return Cell(text=shown(estimate.value), detail=f"({NO_USEFUL_INTERVAL})")
    return Cell(text=shown(estimate.value), detail=f"[{shown(estimate.low)} – {shown(estimate.high)}]")


def _amount(estimate: Estimate) -> Callable[[float], str]:
    if estimate.unit == "s":
        return format_seconds
    return format_bytes if estimate.unit == "bytes" else format_number


def _rate(bound: Bound) -> Callable[[float], str]:
    if bound.limit.unit == "bytes/s":
        return format_rate
    return format_number if bound.limit.unit == "s/s" else lambda value: f"{format_number(value)}/s"


def _say(estimate: Estimate) -> str:
    """Format TPS with its interval: in a sentence no number appears alone."""
    shown = format_estimate(estimate)
    if estimate.low is not None and estimate.high is None:
        return f"{shown.value} TPS [{format_number(estimate.low)} or more]"
    return f"{shown.value} TPS {shown.beside}"


def _floor(tps: float) -> str:
    """Round down to two digits: the load that a machine is trusted with is never rounded up."""
    digits = len(f"{int(tps)}") - 2
    step = 10 ** max(0, digits)
    return f"{int(tps // step * step):,}"
