"""Choose between several machines by load: up to which TPS the cheapest is certain to carry it, and above that the next.

A machine counts with the low end of its interval, never with its best estimate: the tiers of a purchase must hold.
Machines are ordered by price; if no prices are known, by capacity, because a smaller machine is rarely more expensive.
A machine without an interval, or with one that reaches 0 because it stalled, is in no tier, and neither is one without a
price if others have one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.analyse.estimate import Estimate


class HostCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """The capacity of a machine for a load, and its price."""

    name: str
    capacity: Estimate
    """Measured capacity in TPS: a bound would promise too much."""
    per_month: Estimate | None = None
    """Price per month, in the unit of its currency; None if it is unknown."""


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """A machine and the range of loads for which it is the best choice."""

    host: HostCapacity
    above_tps: float
    """Lower end of the range; 0 for the first tier."""
    up_to_tps: float
    """Upper end of the range: the low end of the machine's capacity."""
    rivals: tuple[str, ...]
    """Machines that carry as much and may cost no more: their price intervals overlap."""


class Tiers(msgspec.Struct, frozen=True, kw_only=True):
    """All tiers in increasing order, and the machines that are in none."""

    tiers: tuple[Tier, ...]
    left_out: dict[str, str]
    """Why a machine is in no tier, by its name."""


def make_tiers(hosts: Sequence[HostCapacity]) -> Tiers:
    """Build the tiers of a load over several machines.

    Args:
        hosts: Machines with their capacities for the same load, measured in the same way.
    """
    currency = next((host.per_month.unit for host in hosts if host.per_month is not None), None)
    left_out = {host.name: reason for host in hosts if (reason := _explain_exclusion(host, currency)) is not None}
    known = [host for host in hosts if host.name not in left_out]
    known.sort(key=lambda host: (_price(host), -_certain_tps(host)) if currency else (_certain_tps(host), 0.0))
    tiers: list[Tier] = []
    for host in known:
        above = tiers[-1].up_to_tps if tiers else 0.0
        if _certain_tps(host) > above:
            tiers.append(Tier(host=host, above_tps=above, up_to_tps=_certain_tps(host), rivals=_rivals(host, known)))
        else:
            before = next(tier.host.name for tier in tiers if tier.up_to_tps >= _certain_tps(host))
            left_out[host.name] = f"{before} carries as much{' for no more' if currency else ''}"
    return Tiers(tiers=tuple(tiers), left_out=left_out)


def _explain_exclusion(host: HostCapacity, currency: str | None) -> str | None:
    """Return why a machine can be in no tier; None if it can."""
    if host.capacity.low is None:
        return host.capacity.reason or "what it carries has no interval"
    if host.capacity.low <= 0:
        return "what it carries is not certain to be above 0"
    if currency is None:
        return None
    if host.per_month is None or host.per_month.value is None:
        return "its price is not known"
    return (
        None
        if host.per_month.unit == currency
        else f"its price is in {host.per_month.unit}, the first one's in {currency}"
    )


def _certain_tps(host: HostCapacity) -> float:
    return host.capacity.low or 0.0


def _price(host: HostCapacity) -> float:
    return 0.0 if host.per_month is None else host.per_month.value or 0.0


def _least_price(host: HostCapacity) -> float:
    return _price(host) if host.per_month is None or host.per_month.low is None else host.per_month.low


def _rivals(host: HostCapacity, hosts: Sequence[HostCapacity]) -> tuple[str, ...]:
    """List more expensive machines that carry at least as much and whose price is not certain to be higher."""
    if host.per_month is None:
        return ()
    most = host.per_month.high if host.per_month.high is not None else _price(host)
    return tuple(
        other.name
        for other in hosts
        if other is not host
        and _certain_tps(other) >= _certain_tps(host)
        and _least_price(other) <= most
        and _price(other) >= _price(host)
    )
