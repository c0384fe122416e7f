"""What transactions cost: intervals are carried through, ends change places where they must, and nothing divides by zero."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.estimate import Estimate, estimate_geometric_mean
from pgdyno.facts.prices import Term
from pgdyno.price.cost import Cost, HostCost, Part
from pgdyno.price.worth import Load, Worth, cost_of_load, cost_per_million, share_of_full, tps_per_money

TPS = Estimate(value=1000.0, low=800.0, high=1250.0, n=5, unit="tps")
# 2,628,000 seconds of 730 hours.
MONTH_S = 2_628_000.0


def cost_of(per_month: float = 262.8) -> HostCost:
    part = Part(what="a machine", per_month=per_month, how="", date=None, source="made up")
    return HostCost(
        name="a machine",
        region="us-east-1",
        is_region_declared=True,
        currency="USD",
        costs=(Cost(term=Term.OWN, parts=(part,), per_month=per_month),),
        absent={},
        left_out=(),
    )


def weigh_one(load: Load | None, tps: Estimate = TPS) -> Worth:
    (worth,) = cost_of_load(tps, cost_of(), load)
    return worth


def test_a_month_s_price_over_a_month_s_transactions() -> None:
    worth = weigh_one(None)
    assert worth.per_million.value == pytest.approx(262.8 / (1000 * MONTH_S) * 1e6)
    # The fast end of TPS is the cheap end of a transaction.
    assert worth.per_million.low == pytest.approx(0.1 / 1.25)
    assert worth.per_million.high == pytest.approx(0.1 / 0.8)
    assert (worth.per_million.n, worth.per_million.unit) == (5, "USD")
    money = worth.tps_per_money
    assert (money.value, money.low, money.high) == pytest.approx((1000 / 262.8, 800 / 262.8, 1250 / 262.8))
    assert money.unit == "tps/USD"
    assert worth.per_million_at_load is None


@given(
    st.lists(st.floats(min_value=1.0, max_value=1e6), min_size=2, max_size=8), st.floats(min_value=0.01, max_value=1e6)
)
def test_cost_and_worth_are_two_sides_of_one_ratio(trials: list[float], per_month: float) -> None:
    tps = estimate_geometric_mean(trials, unit="tps")
    cost = cost_per_million(per_month, tps, currency="USD")
    worth = tps_per_money(tps, per_month, currency="USD")
    for end, other in (("value", "value"), ("low", "high"), ("high", "low")):
        assert math.isclose(getattr(cost, end) * getattr(worth, other) * MONTH_S, 1e6, rel_tol=1e-9)
    assert cost.low <= cost.value * (1 + 1e-9)
    assert cost.value <= cost.high * (1 + 1e-9)


def test_at_a_load_of_one_s_own_the_same_price_is_shared_by_fewer() -> None:
    at_rate = weigh_one(Load(tps=250)).per_million_at_load
    assert at_rate is not None
    # Both are said: nothing of it is in doubt.
    assert (at_rate.value, at_rate.low, at_rate.high) == pytest.approx((0.4, 0.4, 0.4))
    at_share = weigh_one(Load(utilisation_ratio=0.25)).per_million_at_load
    assert at_share is not None
    assert (at_share.value, at_share.low, at_share.high) == pytest.approx((0.4, 0.32, 0.5))


def test_more_than_full_load_has_no_cost() -> None:
    assert weigh_one(Load(tps=1001)).per_million_at_load is None
    share = share_of_full(TPS, Load(tps=1001))
    assert (share.value, share.low, share.high) == pytest.approx((1.001, 1001 / 1250, 1001 / 800))
    assert weigh_one(Load(tps=1000)).per_million_at_load is not None


def test_one_trial_and_no_trial_keep_their_reasons() -> None:
    lone = Estimate(value=1000.0, low=None, high=None, n=1, unit="tps", reason="one trial has no interval")
    found = weigh_one(Load(utilisation_ratio=0.5), lone)
    assert (found.per_million.value, found.per_million.low, found.per_million.high) == (pytest.approx(0.1), None, None)
    assert found.per_million.reason == found.tps_per_money.reason == "one trial has no interval"
    none = Estimate(value=None, low=None, high=None, n=0, unit="tps", reason="no trials")
    absent = weigh_one(Load(tps=10), none)
    assert (absent.per_million.value, absent.per_million.reason) == (None, "no trials")
    assert (absent.tps_per_money.value, absent.per_million_at_load) == (None, None)


def test_where_no_transaction_was_done_none_has_a_price() -> None:
    still = Estimate(value=0.0, low=0.0, high=0.0, n=3, unit="tps")
    found = weigh_one(Load(tps=10), still)
    assert (found.per_million.value, found.per_million.reason) == (None, "no transaction was done")
    assert found.per_million_at_load is None
    # An interval that reaches down to nothing has no upper end of cost.
    wide = Estimate(value=10.0, low=0.0, high=20.0, n=2, unit="tps")
    cost = cost_per_million(1.0, wide, currency="USD")
    assert cost.high is None
    assert cost.low is not None
