"""Published costs follow from their inputs: in the author's month of 720 hours to the cent, in ours as far as they can."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from pgdyno.analyse.estimate import Estimate
from pgdyno.facts.prices import Term
from pgdyno.price.book import PriceBook
from pgdyno.price.cost import MONTH_H, Cost, price_host
from pgdyno.price.worth import cost_of_load, cost_per_million, tps_per_money
from pgdyno.spec.host import read_host
from pgdyno.spec.prices import OwnPrices, parse_prices

TOP = Path(__file__).parents[2]
PUBLISHED = tomllib.loads((TOP / "tests/data/published_prices.toml").read_text(encoding="utf-8"))["cost"]
each_case = pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case["source"])
TERMS = {Term.ON_DEMAND: "on_demand", Term.SPOT: "spot"}


def one_run(case: dict[str, Any]) -> Estimate:
    return Estimate(value=case["tps"], low=None, high=None, n=1, unit="tps", reason="one trial has no interval")


def own_prices(case: dict[str, Any]) -> OwnPrices:
    return parse_prices(
        f"""
        date = 2025-01-01
        source = "the write-up"
        [[instance]]
        name = "c7g.2xlarge"
        on_demand_per_hour = {case["instance_on_demand_per_hour"]}
        spot_per_hour = {case["instance_spot_per_hour"]}
        [[volume]]
        name = "gp3"
        per_gib_month = {case["volume_per_gib_month"]}
        """,
        source="published",
    )


def priced(case: dict[str, Any], book: PriceBook) -> dict[Term, Cost]:
    return {cost.term: cost for cost in price_host(read_host(TOP / case["host"]), book).costs}


@each_case
def test_totals_are_the_sums_of_their_parts(case: dict[str, Any]) -> None:
    volumes = case["data_volumes"] + case["wal_volumes"]
    for name in TERMS.values():
        assert round(case[f"instance_{name}"] + volumes, 2) == case[f"total_{name}"]


@each_case
def test_the_published_figures_follow_in_a_month_of_720_hours(case: dict[str, Any]) -> None:
    tps = one_run(case)
    for name in TERMS.values():
        assert round(case[f"instance_{name}_per_hour"] * case["month_h"], 2) == case[f"instance_{name}"]
        in_our_month = case[f"total_{name}"] * MONTH_H / case["month_h"]
        found = cost_per_million(in_our_month, tps, currency="USD")
        assert found.value is not None
        assert round(found.value, 4) == case[f"per_million_{name}"]
    assert tps_per_money(tps, case["total_spot"], currency="USD").value == pytest.approx(
        case["tps_per_usd_spot"], abs=0.05
    )


@each_case
def test_in_our_month_the_same_hourly_prices_give_the_same_per_million_and_other_totals(case: dict[str, Any]) -> None:
    found, own = priced(case, PriceBook(own=own_prices(case))), case
    for term, name in TERMS.items():
        instance, data, wal = found[term].parts
        assert instance.per_month == pytest.approx(own[f"instance_{name}"] * MONTH_H / own["month_h"])
        assert (data.per_month, wal.per_month) == pytest.approx((own["data_volumes"], own["wal_volumes"]))
        # Ten hours more of the instance; volumes are paid by the month.
        more = own[f"instance_{name}_per_hour"] * (MONTH_H - own["month_h"])
        assert found[term].per_month == pytest.approx(own[f"total_{name}"] + more, abs=0.005)
        per_million = cost_per_million(found[term].per_month, one_run(case), currency="USD").value
        assert per_million is not None
        assert round(per_million, 4) == own[f"per_million_{name}"]
    assert [round(found[term].per_month, 2) for term in TERMS] == [251.93, 104.47]
    # A month's dollars for the same TPS: this one does depend on how long a month is.
    per_dollar = tps_per_money(one_run(case), found[Term.SPOT].per_month, currency="USD").value
    assert per_dollar == pytest.approx(109.8, abs=0.05)
    assert per_dollar != pytest.approx(own["tps_per_usd_spot"], abs=0.5)


@each_case
def test_list_prices_are_above_what_was_published(case: dict[str, Any]) -> None:
    # A GiB of gp3 has the list price of 0.08 in us-east-1, not 0.064, and the instance 0.29 an hour.
    host = price_host(read_host(TOP / case["host"]), PriceBook())
    demand = host.find(Term.ON_DEMAND)
    assert demand is not None
    assert [round(part.per_month, 2) for part in demand.parts] == [211.70, 32.00, 19.20]
    worth = cost_of_load(one_run(case), host, None)[0]
    assert worth.per_million.value == pytest.approx(0.00872, abs=5e-6)
    assert worth.per_million.value > case["per_million_on_demand"]
    assert (worth.per_million.low, worth.per_million.reason) == (None, "one trial has no interval")
