"""Compute the cost of transactions: a month's price divided by a month's transactions, with confidence intervals.

Full load during the whole month gives the least cost of a transaction on that machine; a lower load divides the same
price by fewer transactions. Prices are exact; the uncertainty is that of the TPS.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.estimate import Estimate, absent_estimate, scale_estimate
from pgdyno.facts.prices import Term
from pgdyno.price.cost import MONTH_H, HostCost

_MILLION = 1e6
_MONTH_S = MONTH_H * 3600.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The user's average load over days, nights and weekends, as one of the two figures."""

    tps: float | None = None
    utilisation_ratio: float | None = None
    """Share of full load, above 0 and at most 1."""


class Worth(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of transactions under one payment term."""

    term: Term
    per_million: Estimate
    """Cost of a million transactions at full load."""
    tps_per_money: Estimate
    """TPS for each unit of the currency per month."""
    per_million_at_load: Estimate | None
    """Cost of a million transactions at the user's load; None without one, or if it exceeds the machine's capacity."""


def make_exact(tps: float) -> Estimate:
    """Make the estimate of TPS that the user gives."""
    return Estimate(value=tps, low=tps, high=tps, n=0, unit="tps", reason="as you say")


def cost_of_load(tps: Estimate, cost: HostCost, load: Load | None) -> tuple[Worth, ...]:
    """Compute what a workload's transactions cost on each known term.

    Args:
        tps: TPS of the workload at full load.
        cost: Cost of the machine.
        load: The user's load, if any.
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
    """Compute the cost of a million transactions on a machine that does nothing else all month."""
    return _invert(tps, per_month * _MILLION / _MONTH_S, unit=currency)


def tps_per_money(tps: Estimate, per_month: float, *, currency: str) -> Estimate:
    """Compute the TPS for each unit of the currency per month."""
    return scale_estimate(tps, 1.0 / per_month, unit=f"tps/{currency}")


def share_of_full(tps: Estimate, load: Load) -> Estimate:
    """Compute the user's load as a share of the machine's capacity; above 1 if the load exceeds it."""
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
    # Load and price are given, so that the result is exact.
    value = per_month * _MILLION / _MONTH_S / load.tps
    return Estimate(value=value, low=value, high=value, n=tps.n, unit=currency)


def _invert(estimate: Estimate, numerator: float, *, unit: str) -> Estimate:
    """Divide an exact number by an estimate above 0, which swaps the ends of its interval."""
    if estimate.value is not None and estimate.value <= 0:
        return absent_estimate("no transaction was done", unit=unit, n=estimate.n)
    ends = {
        end: None if (at := getattr(estimate, of)) is None or at <= 0 else numerator / at
        for end, of in (("value", "value"), ("low", "high"), ("high", "low"))
    }
    return msgspec.structs.replace(estimate, **ends, unit=unit)
