"""What transactions cost: a month's price over a month's transactions, with the interval of the TPS carried through.

At full load, all month long, it is the least that a transaction can cost on that machine; whoever has less load divides
the same price by fewer. Prices are taken as exact: what is in doubt is how fast the machine is.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.estimate import Estimate, absent_estimate, scale_estimate
from pgdyno.facts.prices import Term
from pgdyno.price.cost import MONTH_H, HostCost

_MILLION = 1e6
_MONTH_S = MONTH_H * 3600.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the user's load is on average, over days, nights and weekends: one of the two."""

    tps: float | None = None
    utilisation_ratio: float | None = None
    """Of full load, above 0 and at most 1."""


class Worth(msgspec.Struct, frozen=True, kw_only=True):
    """What one gets for one's money on some terms."""

    term: Term
    per_million: Estimate
    """Transactions, at full load."""
    tps_per_money: Estimate
    """TPS for each unit of the currency a month."""
    per_million_at_load: Estimate | None
    """At the user's own load; None where none is said, or the machine cannot do it."""


def weigh(tps: Estimate, cost: HostCost, load: Load | None) -> tuple[Worth, ...]:
    """What a workload's transactions cost on each of the terms that are known.

    Args:
        tps: Of the workload, at full load.
        cost: Of the machine that did it.
        load: The user's own; None: none is said.
    """
    return tuple(
        Worth(
            term=one.term,
            per_million=cost_per_million(one.per_month, tps, currency=cost.currency),
            tps_per_money=tps_per_money(tps, one.per_month, currency=cost.currency),
            per_million_at_load=None if load is None else _at_load(one.per_month, tps, load, currency=cost.currency),
        )
        for one in cost.costs
    )


def cost_per_million(per_month: float, tps: Estimate, *, currency: str) -> Estimate:
    """What a million transactions cost where a machine does nothing else all month."""
    return _invert(tps, per_month * _MILLION / _MONTH_S, unit=currency)


def tps_per_money(tps: Estimate, per_month: float, *, currency: str) -> Estimate:
    """TPS for each unit of the currency that is paid a month."""
    return scale_estimate(tps, 1.0 / per_month, unit=f"tps/{currency}")


def share_of_full(tps: Estimate, load: Load) -> Estimate:
    """How much of what the machine can do the user's load is; above 1 where it is more."""
    if load.tps is not None:
        return _invert(tps, load.tps, unit="ratio")
    return Estimate(
        value=load.utilisation_ratio, low=load.utilisation_ratio, high=load.utilisation_ratio, n=tps.n, unit="ratio"
    )


def _at_load(per_month: float, tps: Estimate, load: Load, *, currency: str) -> Estimate | None:
    share = share_of_full(tps, load)
    if share.value is None or share.value > 1.0:
        return None
    if load.tps is None:
        return scale_estimate(cost_per_million(per_month, tps, currency=currency), 1.0 / share.value, unit=currency)
    # What is done is said, and so is the price: nothing of it is in doubt.
    value = per_month * _MILLION / _MONTH_S / load.tps
    return Estimate(value=value, low=value, high=value, n=tps.n, unit=currency)


def _invert(estimate: Estimate, numerator: float, *, unit: str) -> Estimate:
    """A number that is exact over an estimate above 0; the ends of its interval change places."""
    if estimate.value is not None and estimate.value <= 0:
        return absent_estimate("no transaction was done", unit=unit, n=estimate.n)
    ends = {
        end: None if (at := getattr(estimate, of)) is None or at <= 0 else numerator / at
        for end, of in (("value", "value"), ("low", "high"), ("high", "low"))
    }
    return msgspec.structs.replace(estimate, **ends, unit=unit)
