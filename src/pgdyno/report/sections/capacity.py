"""What a machine can carry of each load: sentences and tables for every form. What is worked out is called so each time.

Nothing is concluded here: bounds, ranges and reasons come from analysis, and are only rounded and named.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pgdyno.analyse.capacity.tiers import Tier, Tiers
from pgdyno.analyse.capacity.types import Bound, BoundKind, BoundState, Capacity, ClientAdvice, NextLimit, Projection
from pgdyno.analyse.estimate import Estimate, is_too_wide
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
from pgdyno.report.sections.comparison.experiment import join_names
from pgdyno.report.sections.disk.card import format_rate
from pgdyno.report.sections.price.words import format_money
from pgdyno.report.table import Cell, Table, absent, columns, text

PROJECTION_REMARK = (
    "Projections: worked out and not measured. Each begins at what was measured, since more of one resource need not help,"
    " and ends at the least of the bounds that it would then have; none speaks of more than twice."
)
BOUNDS_REMARK = (
    "What there is of a resource over what a transaction takes of it: the most that it alone allows, and no promise. Each is"
    " of its own kind; a disk does less of each when it does all at once."
)
# A hint whose ends are further apart is told by its upper end alone.
_WIDE_FACTOR = 8
_STANDINGS = {
    BoundState.AT_BOUND: ", so that little is left",
    BoundState.HELD: "; something holds the load below it that has no bound here, such as locks or latencies",
    BoundState.BELOW: "; more clients may bring it nearer, unless locks or latencies hold it",
    BoundState.UNKNOWN: "",
}


def describe_capacity(capacity: Capacity) -> tuple[str, ...]:
    """Its ceiling, what binds next, and how many clients are best, each in a sentence."""
    found = [_describe_ceiling(capacity), _describe_clients(capacity.advice)]
    if capacity.next is not None:
        found.insert(1, _describe_next(capacity.next))
    elif capacity.binding is not None:
        found.insert(1, f"What would bind after {capacity.binding.kind.noun} is not known: {capacity.absent['next']}.")
    return tuple(found)


def _describe_clients(advice: ClientAdvice) -> str:
    """`16 sessions at work [8 – 24] give all that can be had, by the knee of …`; a hint is called one."""
    if advice.clients is not None and advice.low is not None and advice.high is not None:
        ends = f"[{advice.low:,} – {advice.high:,}]"
        return f"{_sessions(advice.clients)} {ends} give all that can be had, by the {advice.how}: let a pool open so many."
    if advice.clients is not None:
        end = "" if advice.low is None else f" [{advice.low:,} or more]"
        return f"{_sessions(advice.clients)}{end} may give all that can be had, by the {advice.how}: {advice.reason}."
    if advice.low is None:
        return f"How many clients are best is not known: {advice.reason}."
    if advice.high is None:
        return f"More clients than {advice.low:,} may bring more: {advice.reason}."
    is_wide = advice.high > _WIDE_FACTOR * advice.low
    sessions = f"no more than {_sessions(advice.high)}" if is_wide else f"{advice.low:,} to {_sessions(advice.high)}"
    return f"A hint for clients, or a pool: {sessions}, by {advice.how}; {advice.reason}."


def bounds_table(capacity: Capacity) -> Table | None:
    """Each bound with what it comes from, the lowest first; None without one."""
    if not capacity.bounds:
        return None
    rows = tuple(
        (
            Cell(text=bound.kind.value, note=_note(bound)),
            _cell(bound.demand, _amount(bound.demand)),
            _cell(bound.limit, _rate(bound)),
            _tps_cell(bound.tps),
            _cell(bound.used, format_percent),
            text(bound.how),
        )
        for bound in capacity.bounds
    )
    reasons: dict[str, list[str]] = {}
    for kind in BoundKind:
        if kind.value in capacity.absent:
            reasons.setdefault(capacity.absent[kind.value], []).append(kind.value)
    missing = "; ".join(f"{join_names(kinds)}: {reason}" for reason, kinds in reasons.items())
    titles = columns("", "a transaction takes", "there is", "TPS at most", "used", numbers_from=1)
    return Table(
        caption=f"What each resource allows, with {_count(capacity.clients)}",
        columns=(*titles, *columns("limit of")),
        rows=rows,
        remark=f"{BOUNDS_REMARK}{f' No bound is known of {missing}.' if missing else ''}",
    )


def projections_table(capacity: Capacity) -> Table | None:
    """Ranges on other machines; None without one."""
    if not capacity.projections:
        return None
    return Table(
        caption="On another machine: projected, not measured",
        columns=(
            *columns("with", "TPS from", "to at most", numbers_from=1)[:3],
            *columns("then binds", "reckoned with"),
        ),
        rows=tuple(_projection_row(one) for one in capacity.projections),
        remark=PROJECTION_REMARK,
    )


def describe_projection(capacity: Capacity, change: str) -> str:
    """Where the most TPS of a load would lie with a change; empty where that was not reckoned."""
    found = next((one for one in capacity.projections if one.change == change), None)
    if found is None:
        return ""
    if found.low_tps is None or found.high_tps is None:
        return f"{capacity.workload}: not known, for {found.reason}."
    binds = "" if found.binds is None else f", the limit of {found.binds.noun} then"
    return (
        f"{capacity.workload}: {format_number(found.low_tps)} TPS, as here, to {format_number(found.high_tps)} TPS at"
        f" most{binds} ({found.how})."
    )


def describe_tiers(tiers: Tiers) -> tuple[str, ...]:
    """`Up to 15,000 TPS: c7g.large. Above that, up to 31,000: c7g.xlarge.` and who is in no tier."""
    said = [_describe_tier(tier) for tier in tiers.tiers]
    return (*said, *(f"Not {name}: {reason}." for name, reason in tiers.left_out.items()))


def tiers_table(tiers: Tiers) -> Table | None:
    """Machines by the loads for which each is the one to take; None without one."""
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
    titles = columns("Machine", "up to TPS", "carries", "a month", numbers_from=1)
    remark = "A machine is counted on for the low end of what it carries. A rival carries as much, and may be cheaper."
    return Table(caption="Which machine for how much", columns=(*titles, *columns("rivals")), rows=rows, remark=remark)


def _describe_ceiling(capacity: Capacity) -> str:
    ceiling, binding = capacity.ceiling, capacity.binding
    if ceiling.value is None:
        return f"The ceiling of {capacity.workload} on this machine is not known: {ceiling.reason}."
    if capacity.peak.value is not None:
        is_open = capacity.peak.high is None and capacity.peak.reason
        why = f" ({capacity.peak.reason})" if is_open else ""
        first = f"{capacity.workload} peaks at {_say(ceiling)} on this machine, by the sweep over clients{why}"
    else:
        first = f"This machine can carry {_say(ceiling)} of {capacity.workload} at most, worked out from what a transaction takes"
    if binding is None:
        return f"{first}."
    is_told = capacity.peak.value is None and binding is capacity.lowest
    allowed = "" if is_told else f", at {_say(binding.tps)}"
    used = format_percent(binding.used.value or 0.0)
    return f"{first}. The first limit is that of {binding.kind.noun}{allowed}: {used} of it was used{_STANDINGS[capacity.standing]}."


def _describe_next(following: NextLimit) -> str:
    rise = f"by {_effect(following.gain)} at most" if following.gain.low is not None else "by nobody knows how much"
    as_many = following.gain_at_clients
    more = "" if as_many.low is None else f" As many clients as now would gain {_effect(as_many)} at most."
    return f"Were {following.removed} no limit, it could rise {rise}, up to the limit of {following.binds.noun} at {_say(following.tps)}.{more}"


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
    binds = text("as the law has it") if one.binds is None else text(one.binds.value)
    return text(one.change), text(format_number(one.low_tps)), text(format_number(one.high_tps)), binds, text(one.how)


def _note(bound: Bound) -> str | None:
    if bound.is_refuted:
        return "the load took more than that: it is no bound"
    if bound.kind is BoundKind.FLUSHES:
        return "more clients share each flush, and would move it"
    if bound.kind is BoundKind.LOAD_GENERATOR:
        return "no limit of the server: pgbench may run elsewhere"
    return bound.tps.reason


def _tps_cell(estimate: Estimate) -> Cell:
    shown = format_estimate(estimate)
    return Cell(text=shown.value, detail=shown.interval, note=shown.reason, is_strong=True)


def _cell(estimate: Estimate, shown: Callable[[float], str]) -> Cell:
    """A figure with its interval in the unit that people read; nothing behind it where it is exact."""
    if estimate.value is None:
        return absent(estimate.reason)
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return text(shown(estimate.value))
    if is_useless(estimate):
        return Cell(text=shown(estimate.value), detail=NO_USEFUL_INTERVAL)
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
    """A TPS with its interval: in a sentence no number stands alone."""
    shown = format_estimate(estimate)
    if estimate.low is not None and estimate.high is None:
        return f"{shown.value} TPS [{format_number(estimate.low)} or more]"
    is_open = estimate.low is None or is_too_wide(estimate)
    return f"{shown.value} TPS {f'({shown.interval})' if is_open else shown.interval}"


def _floor(tps: float) -> str:
    """To two digits, downwards: what a machine is counted on for is never rounded up."""
    digits = len(f"{int(tps)}") - 2
    step = 10 ** max(0, digits)
    return f"{int(tps // step * step):,}"


def _count(clients: int) -> str:
    return "1 client" if clients == 1 else f"{clients:,} clients"


def _sessions(count: int) -> str:
    return "1 session at work" if count == 1 else f"{count:,} sessions at work"
