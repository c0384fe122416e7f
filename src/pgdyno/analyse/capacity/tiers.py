"""Which of several machines for how much load: up to here the cheapest that surely carries it, above that the next.

A machine is counted on for the low end of its interval, never for its best estimate: the tiers of a purchase must hold.
Machines are compared by what they cost; where no prices are known, by what they carry, since less of a machine is
rarely dearer. It refuses to place a machine without an interval, or one without a price among those that have one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.analyse.estimate import Estimate


class HostCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine carries of a load, and what it costs."""

    name: str
    capacity: Estimate
    """In TPS, as measured: a bound is no promise."""
    per_month: Estimate | None = None
    """Its price, whose unit is the currency; None where nobody knows it."""


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """A machine and the loads for which it is the one to take."""

    host: HostCapacity
    above_tps: float
    """0 for the first."""
    up_to_tps: float
    """The low end of what it carries."""
    rivals: tuple[str, ...]
    """Machines that carry as much and may be no dearer: their prices' intervals overlap."""


class Tiers(msgspec.Struct, frozen=True, kw_only=True):
    """All tiers from below, and the machines that are in none."""

    tiers: tuple[Tier, ...]
    left_out: dict[str, str]
    """By a machine's name, why nobody should take it, or nobody can tell."""


def make_tiers(hosts: Sequence[HostCapacity]) -> Tiers:
    """The tiers of a load over several machines.

    Args:
        hosts: Each with what it carries of the same load, measured in the same way.
    """
    currency = next((host.per_month.unit for host in hosts if host.per_month is not None), None)
    left_out = {host.name: reason for host in hosts if (reason := _why_not(host, currency)) is not None}
    known = [host for host in hosts if host.name not in left_out]
    known.sort(key=lambda host: (_price(host), -_surely(host)) if currency else (_surely(host), 0.0))
    tiers: list[Tier] = []
    for host in known:
        above = tiers[-1].up_to_tps if tiers else 0.0
        if _surely(host) > above:
            tiers.append(Tier(host=host, above_tps=above, up_to_tps=_surely(host), rivals=_rivals(host, known)))
        else:
            before = next(tier.host.name for tier in tiers if tier.up_to_tps >= _surely(host))
            left_out[host.name] = f"{before} carries as much{' for no more' if currency else ''}"
    return Tiers(tiers=tuple(tiers), left_out=left_out)


def _why_not(host: HostCapacity, currency: str | None) -> str | None:
    """Why a machine cannot be placed; None where it can."""
    if host.capacity.low is None:
        return host.capacity.reason or "what it carries has no interval"
    if currency is None:
        return None
    if host.per_month is None or host.per_month.value is None:
        return "its price is not known"
    return (
        None
        if host.per_month.unit == currency
        else f"its price is in {host.per_month.unit}, the first one's in {currency}"
    )


def _surely(host: HostCapacity) -> float:
    return host.capacity.low or 0.0


def _price(host: HostCapacity) -> float:
    return 0.0 if host.per_month is None else host.per_month.value or 0.0


def _least_price(host: HostCapacity) -> float:
    return _price(host) if host.per_month is None or host.per_month.low is None else host.per_month.low


def _rivals(host: HostCapacity, hosts: Sequence[HostCapacity]) -> tuple[str, ...]:
    """Dearer machines that carry at least as much, and whose price is not surely higher."""
    if host.per_month is None:
        return ()
    most = host.per_month.high if host.per_month.high is not None else _price(host)
    return tuple(
        other.name
        for other in hosts
        if other is not host
        and _surely(other) >= _surely(host)
        and _least_price(other) <= most
        and _price(other) >= _price(host)
    )
