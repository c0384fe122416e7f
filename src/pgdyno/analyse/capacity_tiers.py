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
    """In TPS."""
    usd_per_month: Estimate | None = None
    """None where nobody knows it."""


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """A machine and the loads for which it is the one to take."""

    host: HostCapacity
    above_tps: float
    """0 for the first."""
    up_to_tps: float
    """The low end of what it carries."""
    rivals: tuple[str, ...]
    """Machines that carry as much and may be cheaper: their prices' intervals overlap."""


class Tiers(msgspec.Struct, frozen=True, kw_only=True):
    """All tiers from below, and the machines that are in none."""

    tiers: tuple[Tier, ...]
    left_out: dict[str, str]
    """By a machine's name, why nobody should take it, or nobody can tell."""

    def choose(self, tps: float) -> Tier | None:
        """The tier of a load; None above all of them."""
        return next((tier for tier in self.tiers if tps <= tier.up_to_tps), None)


def make_tiers(hosts: Sequence[HostCapacity]) -> Tiers:
    """The tiers of a load over several machines.

    Args:
        hosts: Each with what it carries of the same load, measured in the same way.
    """
    left_out: dict[str, str] = {}
    known = [host for host in hosts if not _note(host, left_out, is_priced=_any_price(hosts))]
    known.sort(key=lambda host: (_price(host), -_surely(host)) if _any_price(hosts) else (_surely(host), 0.0))
    tiers: list[Tier] = []
    for host in known:
        above = tiers[-1].up_to_tps if tiers else 0.0
        if _surely(host) <= above:
            before = next(tier.host.name for tier in tiers if _surely(tier.host) >= _surely(host))
            left_out[host.name] = f"{before} carries as much for no more" if _any_price(hosts) else f"as {before}"
            continue
        tiers.append(Tier(host=host, above_tps=above, up_to_tps=_surely(host), rivals=_rivals(host, known)))
    return Tiers(tiers=tuple(tiers), left_out=left_out)


def _note(host: HostCapacity, left_out: dict[str, str], *, is_priced: bool) -> bool:
    """Whether a machine cannot be placed."""
    if host.capacity.low is None:
        left_out[host.name] = host.capacity.reason or "what it carries has no interval"
    elif is_priced and (host.usd_per_month is None or host.usd_per_month.value is None):
        left_out[host.name] = "its price is not known"
    return host.name in left_out


def _any_price(hosts: Sequence[HostCapacity]) -> bool:
    return any(host.usd_per_month is not None and host.usd_per_month.value is not None for host in hosts)


def _surely(host: HostCapacity) -> float:
    return host.capacity.low or 0.0


def _price(host: HostCapacity) -> float:
    return 0.0 if host.usd_per_month is None else host.usd_per_month.value or 0.0


def _rivals(host: HostCapacity, hosts: Sequence[HostCapacity]) -> tuple[str, ...]:
    """Machines of a price that is not surely higher, which carry at least as much."""
    if host.usd_per_month is None:
        return ()
    most = host.usd_per_month.high if host.usd_per_month.high is not None else _price(host)

    def least(other: HostCapacity) -> float:
        price = other.usd_per_month
        return _price(other) if price is None or price.low is None else price.low

    return tuple(
        other.name
        for other in hosts
        if other is not host
        and _surely(other) >= _surely(host)
        and least(other) <= most
        and _price(other) >= _price(host)
    )
