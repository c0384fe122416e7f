"""Our own prices: each with date and source, none of what is not known, no fact in two places."""

from __future__ import annotations

import importlib.resources
import tomllib

import pytest

from pgdyno.errors import SpecError
from pgdyno.facts.instances import find_instance, list_instances
from pgdyno.facts.prices import REGION, Term, find_rate

_FILE = importlib.resources.files("pgdyno.facts") / "prices.toml"
SPOT = tomllib.loads(_FILE.read_text(encoding="utf-8"))["spot"]["instances"]


def test_spot_is_for_instances_that_are_known() -> None:
    known = {instance.name for instance in list_instances()}
    assert set(SPOT) <= known
    assert len(SPOT) > 100
    for advice in SPOT.values():
        assert 0 < advice["saving_percent"] < 95
        assert advice["reclaimed"].endswith("%")


def test_a_rate_on_demand_is_that_of_the_instances() -> None:
    rate = find_rate("C7G.2xlarge", REGION, Term.ON_DEMAND)
    assert rate is not None
    sheet = find_instance("c7g.2xlarge")
    assert (rate.per_hour, rate.date, rate.source) == (sheet.usd_per_hour, sheet.price_date, sheet.source)


def test_a_spot_rate_is_the_saving_taken_off() -> None:
    rate = find_rate("c7g.2xlarge", REGION, Term.SPOT)
    assert rate is not None
    saving = SPOT["c7g.2xlarge"]["saving_percent"]
    assert rate.per_hour == pytest.approx(0.29 * (100 - saving) / 100)
    assert f"{saving} % less" in rate.how
    assert rate.date is not None
    assert "Spot Instance Advisor" in rate.source


@pytest.mark.parametrize("term", [Term.RESERVED_1Y, Term.RESERVED_3Y, Term.OWN])
def test_what_no_source_says_is_none(term: Term) -> None:
    assert find_rate("c7g.2xlarge", REGION, term) is None


def test_no_other_region_and_no_other_provider() -> None:
    for term in Term:
        assert find_rate("c7g.2xlarge", "eu-central-1", term) is None
        assert find_rate("ecs.g8i.large", REGION, term) is None
    # A spot price without a saving is not guessed from the others.
    assert find_rate("c8gb.large", REGION, Term.SPOT) is None
    assert find_rate("c8gb.large", REGION, Term.ON_DEMAND) is not None


def test_an_unknown_instance_is_refused() -> None:
    with pytest.raises(SpecError, match=r"no instance is known as c7g\.2xlrge"):
        find_rate("c7g.2xlrge", REGION, Term.ON_DEMAND)
