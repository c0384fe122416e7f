"""What a machine costs a month: whose price counts, what a total needs, what is absent and why."""

from __future__ import annotations

import pytest

from pgdyno.facts.instances import find_instance, list_instances
from pgdyno.facts.prices import REGION, Term
from pgdyno.price.book import PriceBook
from pgdyno.price.cost import MONTH_H, HostCost, price_host
from pgdyno.spec.host import HostSpec, parse_host
from pgdyno.spec.prices import parse_prices
from tests.rows import each_row

HEAD = 'date = 2026-11-01\nsource = "ours"\n'
DISK = '[disk]\nvolume = "gp3"\nsize = "500GB"\nvolume_iops = 6_000\nvolume_mb_s = 250\n'
ROOT = '[root_disk]\nvolume = "gp3"\nsize = "20GB"\n'


def price(host: str, own: str | None = None) -> HostCost:
    book = PriceBook(own=None if own is None else parse_prices(HEAD + own, source="p"))
    return price_host(parse_host(host, source="h"), book)


def demand(host: str, own: str | None = None) -> float:
    found = price(host, own).find(Term.ON_DEMAND)
    assert found is not None
    return found.per_month


def test_instance_and_volumes_make_a_month() -> None:
    found = price(f'instance = "c7g.2xlarge"\nregion = "us-east-1"\n{DISK}{ROOT}')
    cost = found.find(Term.ON_DEMAND)
    assert cost is not None
    assert {part.what: part.per_month for part in cost.parts} == pytest.approx(
        {"c7g.2xlarge": 0.29 * 730, "data": 500 * 0.08 + 3_000 * 0.005 + 125 * 0.04, "system": 20 * 0.08}
    )
    assert cost.per_month == pytest.approx(sum(part.per_month for part in cost.parts))
    assert all(part.date and part.source for part in cost.parts)
    assert (found.left_out, found.is_region_declared, found.currency) == ((), True, "USD")
    # Volumes cost the same on all terms.
    spot = found.find(Term.SPOT)
    assert spot is not None
    assert spot.parts[1:] == cost.parts[1:]
    assert spot.parts[0].per_month == pytest.approx(0.31 * 0.29 * MONTH_H)
    assert set(found.absent) == {"reserved 1 year", "reserved 3 years"}
    assert all("no source says" in reason for reason in found.absent.values())


@each_row(list_instances())
def test_every_instance_has_a_price_or_a_reason(instance: object) -> None:
    name = getattr(instance, "name")  # noqa: B009 - what pytest hands over has no type
    found = price_host(HostSpec(instance=name), PriceBook())
    assert {cost.term.value for cost in found.costs} | set(found.absent) == {
        term.value for term in Term if term is not Term.OWN
    }
    assert not {cost.term.value for cost in found.costs} & set(found.absent)
    hourly = find_instance(name).usd_per_hour
    cost = found.find(Term.ON_DEMAND)
    assert (cost is None) == (hourly is None)
    spot = found.find(Term.SPOT)
    assert spot is None or (cost is not None and 0 < spot.per_month < cost.per_month)


def test_what_nobody_declared_is_named_beside_the_total() -> None:
    alone = price('instance = "c7g.2xlarge"')
    assert [part.what for part in alone.costs[0].parts] == ["c7g.2xlarge"]
    assert alone.left_out == (
        "the data's volume (not declared)",
        "the system's disk (not declared)",
    )
    network = price(f'instance = "c7g.2xlarge"\n[disk]\nkind = "network-ssd"\n{ROOT}')
    assert network.left_out == ("the disks of data (declared as no volume that has a price)",)
    # Disks in the machine come with it.
    local = price(f'instance = "i4i.2xlarge"\n[disk]\nkind = "local-ssd"\n{ROOT}')
    assert local.left_out == ()
    assert [part.what for part in local.costs[0].parts] == ["i4i.2xlarge", "system"]


def test_a_total_that_lacks_a_part_is_none() -> None:
    found = price('instance = "c7g.2xlarge"\n[disk]\nvolume = "essd-pl1"\nsize = "500GB"\n')
    assert found.costs == ()
    assert "what a GiB costs" in found.absent["on demand"]
    assert found.absent["on demand"].startswith("data on essd-pl1, in us-east-1, in USD")


@pytest.mark.parametrize(
    ("disks", "keys"),
    [
        # An own price replaces a volume's as a whole, so all that these volumes are paid for is named.
        (
            'region = "eu-central-1"\n[disk]\nvolume = "io2"\nsize = "500GB"\nvolume_iops = 40_000\n',
            {"io2": "per_gib_month, per_iops_month"},
        ),
        (f'region = "eu-central-1"\n{ROOT}', {"gp3": "per_gib_month"}),
        (f'region = "eu-central-1"\n{DISK}{ROOT}', {"gp3": "per_gib_month, per_iops_month, per_mb_month"}),
    ],
)
def test_the_keys_that_are_named_make_a_price(disks: str, keys: dict[str, str]) -> None:
    host = f'instance = "r8g.48xlarge"\n{disks}'
    look_up = price(host).look_up
    own = '[[instance]]\nname = "r8g.48xlarge"\non_demand_per_hour = 11\n'
    for volume, names in keys.items():
        assert f'for {names} of a `[[volume]]` with `name = "{volume}"` (' in look_up
        own += f'[[volume]]\nname = "{volume}"\n' + "".join(f"{name} = 0.1\n" for name in names.split(", "))
    assert look_up.count("[[volume]]") == len(keys)
    regional = own if "region" not in disks else f'region = "eu-central-1"\n{own}'
    assert price(host, regional).find(Term.ON_DEMAND) is not None


def test_nothing_is_known_of_another_region_or_provider() -> None:
    away = price('instance = "c7g.2xlarge"\nregion = "eu-central-1"')
    assert away.costs == ()
    assert away.region == "eu-central-1"
    assert "c7g.2xlarge costs in eu-central-1, in USD" in away.absent["on demand"]
    assert price('instance = "ecs.g8i.large"').costs == ()


def test_own_prices_stand_before_ours() -> None:
    own = '[[instance]]\nname = "C7G.2xlarge"\non_demand_per_hour = 0.2\nreserved_3y_per_hour = 0.1\n'
    found = price(f'instance = "c7g.2xlarge"\n{ROOT}', own)
    assert {cost.term: round(cost.parts[0].per_month, 2) for cost in found.costs} == {
        Term.ON_DEMAND: 146.0,
        Term.RESERVED_3Y: 73.0,
        # Of what it leaves out ours count.
        Term.SPOT: 65.63,
    }
    assert (found.costs[0].parts[0].source, str(found.costs[0].parts[0].date)) == ("ours", "2026-11-01")
    # A volume's price is one formula, and theirs is whole: IOPS that it leaves out have no price.
    cheap = '[[volume]]\nname = "gp3"\nper_gib_month = 0.05\n'
    assert demand(f'instance = "c7g.2xlarge"\n{ROOT}', cheap) == pytest.approx(211.7 + 1.0)
    assert "IOPS cost" in price(f'instance = "c7g.2xlarge"\n{DISK}', cheap).absent["on demand"]
    free = f"{cheap}per_iops_month = 0\nper_mb_month = 0\n"
    assert demand(f'instance = "c7g.2xlarge"\n{DISK}', free) == pytest.approx(211.7 + 25.0)


def test_own_prices_are_of_their_region() -> None:
    own = (
        'region = "eu-central-1"\n[[instance]]\nname = "c7g.2xlarge"\non_demand_per_hour = 0.35\n'
        '[[instance]]\nname = "c7g.2xlarge"\nregion = "us-east-1"\non_demand_per_hour = 0.25\nsource = "other"\n'
        '[[volume]]\nname = "gp3"\nper_gib_month = 0.1\n'
    )
    # A host that names no region is where its prices are of.
    here = price(f'instance = "c7g.2xlarge"\n{ROOT}', own)
    assert (here.region, here.is_region_declared) == ("eu-central-1", False)
    assert [part.per_month for part in here.costs[0].parts] == pytest.approx([0.35 * 730, 2.0])
    there = price(f'instance = "c7g.2xlarge"\nregion = "{REGION}"\n{ROOT}', own)
    assert [part.per_month for part in there.costs[0].parts] == pytest.approx([0.25 * 730, 1.6])
    assert there.costs[0].parts[0].source == "other"


def test_currencies_do_not_mix() -> None:
    own = 'currency = "EUR"\n[[instance]]\nname = "c7g.2xlarge"\non_demand_per_hour = 0.27\n'
    alone = price('instance = "c7g.2xlarge"', own)
    assert (alone.currency, [cost.term for cost in alone.costs]) == ("EUR", [Term.ON_DEMAND])
    assert "in EUR" in alone.absent["spot"]
    # Dollars of gp3 are no part of a sum of euros.
    assert price(f'instance = "c7g.2xlarge"\n{ROOT}', own).costs == ()


def test_machines_of_one_s_own() -> None:
    iron = 'cpus = 8\nmemory = "64GB"\n[disk]\nkind = "local-ssd"\n'
    assert price(iron).absent == {"your own": "this machine is no cloud instance that pgdyno knows"}
    own = '[[machine]]\nper_month = 120.0\n[[machine]]\nname = "db1"\nper_month = 300\n'
    for host, per_month in ((iron, 120.0), (f'name = "db1"\n{iron}', 300.0), (f'name = "db2"\n{iron}', 120.0)):
        found = price(host, own)
        assert [(cost.term, cost.per_month) for cost in found.costs] == [(Term.OWN, per_month)]
        assert (found.left_out, found.absent) == ((), {})
    # An instance has its own price.
    assert demand('instance = "c7g.2xlarge"', own) == pytest.approx(211.7)


def test_each_page_of_prices_is_named_once_for_each_price_that_it_has() -> None:
    essd = 'volume = "essd-pl1"\nsize = "500GB"\n'
    found = price(f'instance = "ecs.c8i.large"\n[disk]\n{essd}[wal_disk]\n{essd}')
    assert found.look_up == (
        "https://www.alibabacloud.com/pricing for on_demand_per_hour, reserved_1y_per_hour, reserved_3y_per_hour, spot_per_hour"
        ' of an `[[instance]]` with `name = "ecs.c8i.large"` and per_gib_month of a `[[volume]]` with `name = "essd-pl1"`'
        " (us-east-1, USD)"
    )
