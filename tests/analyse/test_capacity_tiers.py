from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.capacity.tiers import HostCapacity, Tier, Tiers, make_tiers
from pgdyno.analyse.estimate import Estimate, estimate_over_trials, exact_estimate


def host(name: str, low: float | None, usd: float | Estimate | None = None) -> HostCapacity:
    reason = "one trial has no interval" if low is None else None
    high = None if low is None else 1.2 * low
    capacity = Estimate(value=1.1 * (low or 1000.0), low=low, high=high, n=4, unit="tps", reason=reason)
    price = exact_estimate(usd, unit="USD") if isinstance(usd, int | float) else usd
    return HostCapacity(name=name, capacity=capacity, per_month=price)


def choose(found: Tiers, tps: float) -> Tier | None:
    return next((tier for tier in found.tiers if tps <= tier.up_to_tps), None)


def test_each_load_has_the_cheapest_machine_that_surely_carries_it() -> None:
    found = make_tiers(
        [
            host("large", 31_000, 400.0),
            host("small", 15_000, 200.0),
            host("old", 9000, 210.0),
            host("dear", 31_000, 500.0),
        ]
    )
    assert [(tier.host.name, tier.above_tps, tier.up_to_tps) for tier in found.tiers] == [
        ("small", 0.0, 15_000),
        ("large", 15_000, 31_000),
    ]
    assert found.left_out == {
        "old": "small carries as much for no more",
        "dear": "large carries as much for no more",
    }
    assert [choose(found, tps).host.name for tps in (1, 15_000, 15_001)] == ["small", "small", "large"]  # type: ignore[union-attr]
    assert choose(found, 31_001) is None


def test_without_prices_less_of_a_machine_comes_first() -> None:
    found = make_tiers([host("large", 31_000), host("small", 15_000), host("twin", 15_000)])
    assert [tier.host.name for tier in found.tiers] == ["small", "large"]
    assert found.left_out == {"twin": "small carries as much"}


def test_who_cannot_be_placed_is_left_out_with_the_reason() -> None:
    # One of its trials stalled.
    stalled = HostCapacity(name="stalled", capacity=estimate_over_trials([0.0, 4650.0], unit="tps"))
    priced = msgspec.structs.replace(stalled, per_month=exact_estimate(100.0, unit="USD"))
    found = make_tiers([host("once", None, 10.0), priced, host("priceless", 20_000), host("known", 15_000, 200.0)])
    assert [tier.host.name for tier in found.tiers] == ["known"]
    nothing = "what it carries is not certain to be above 0"
    assert found.left_out == {
        "once": "one trial has no interval",
        "stalled": nothing,
        "priceless": "its price is not known",
    }
    assert make_tiers([stalled, host("known", 15_000)]).left_out == {"stalled": nothing}
    assert make_tiers([stalled]).tiers == ()
    assert make_tiers([]).tiers == ()


def test_prices_that_overlap_have_rivals() -> None:
    def spot(value: float) -> Estimate:
        return Estimate(value=value, low=0.8 * value, high=1.3 * value, n=30, unit="USD")

    found = make_tiers(
        [host("one", 15_000, spot(100.0)), host("other", 16_000, spot(110.0)), host("far", 20_000, spot(300.0))]
    )
    assert [(tier.host.name, tier.rivals) for tier in found.tiers] == [("one", ("other",)), ("other", ()), ("far", ())]


hosts = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=8)


@given(hosts, st.integers(1, 20))
def test_a_choice_is_never_dearer_than_any_machine_that_would_do(rows: list[tuple[int, int]], tps: int) -> None:
    known = [host(str(number), float(low), float(usd)) for number, (low, usd) in enumerate(rows)]
    tier = choose(make_tiers(known), tps)
    would_do = [usd for low, usd in rows if low >= tps]
    assert (tier is None) == (not would_do)
    if tier is not None:
        assert tier.host.per_month is not None
        assert tier.host.per_month.value == min(would_do)
        assert tier.above_tps < tier.up_to_tps
