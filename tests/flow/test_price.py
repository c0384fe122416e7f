"""`pgdyno price` without its command line: records of real runs, machines and prices that users name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.flow.price import Priced, price_records
from pgdyno.flow.report import write_reports
from pgdyno.price.worth import Load
from pgdyno.record.store import RecordStore, open_record

TOP = Path(__file__).parents[2]
RECORDS = TOP / "tests" / "data" / "records"
HOST = str(TOP / "studies" / "hosts" / "c7g.2xlarge-gp3-raid10.toml")
OWN = 'date = 2026-11-01\nsource = "our bill"\n'


def price(*names: str, hosts: tuple[str, ...] = (), prices: Path | None = None, load: Load | None = None) -> Priced:
    stores = [open_record(RECORDS / name) for name in names]
    return price_records(stores, hosts=hosts, prices=prices, load=load)


def test_a_record_at_the_price_of_a_host_file() -> None:
    (one,) = price("v1-pg18", hosts=(HOST,), load=Load(tps=100)).records
    assert one.price.cost.costs[0].per_month == pytest.approx(262.9)
    (workload,) = one.price.workloads
    demand = workload.worths[0]
    assert workload.tps.value is not None
    assert demand.per_million.value == pytest.approx(262.9 / (workload.tps.value * 2.628))
    assert demand.per_million_at_load is not None
    assert demand.per_million_at_load.value == pytest.approx(262.9 / (100 * 2.628))
    # It was made on a machine of 2 CPUs.
    assert one.price.mismatch is not None
    assert one.alarm == ""


def test_a_record_on_a_pair_that_nobody_sells(tmp_path: Path) -> None:
    host = tmp_path / "host.toml"
    host.write_text('instance = "c7g.2xlarge"\n[disk]\nvolume = "local-nvme"\nsize = "100GB"\n')
    (one,) = price("v1-pg18", hosts=(str(host),)).records
    assert one.alarm == "No such pair is sold: c7g.2xlarge has no local disks, and local-nvme is one."


def test_durability_given_up_stands_beside_the_price(tmp_path: Path) -> None:
    shutil.copytree(RECORDS / "v1-pg18", tmp_path / "record")
    file = tmp_path / "record" / "record.json"
    record = json.loads(file.read_text())
    record["study"]["server"]["settings"] = {"fsync": False}
    file.write_text(json.dumps(record))
    (one,) = price_records([open_record(tmp_path / "record")], hosts=("c7g.large",), prices=None, load=None).records
    assert one.price.workloads[0].durability_given_up == ("fsync = off",)


def test_a_record_of_a_machine_without_a_price_and_with_one_of_the_user_s_own(tmp_path: Path) -> None:
    (one,) = price("v1-pg15").records
    assert one.price.cost.costs == ()
    mine = tmp_path / "mine.toml"
    mine.write_text(f"{OWN}[[machine]]\nper_month = 26.28\n")
    priced = price("v1-pg15", prices=mine)
    assert priced.records[0].price.cost.costs[0].per_month == 26.28
    document = json.loads(priced.to_json())
    assert document["records"][0]["price"]["cost"]["costs"][0]["term"] == "your own"


def test_several_records_at_one_machine_or_at_one_each() -> None:
    one, two = price("v1-pg15", "v1-pg18", hosts=("c7g.large",)).records
    assert one.price.cost.name == two.price.cost.name == "c7g.large"
    one, two = price("v1-pg15", "v1-pg18", hosts=("c7g.large", "c7i.large")).records
    assert (one.price.cost.name, two.price.cost.name) == ("c7g.large", "c7i.large")
    with pytest.raises(SpecError, match="--host is given 3 times for 2 records"):
        price("v1-pg15", "v1-pg18", hosts=("c7g.large",) * 3)


@pytest.mark.parametrize(
    ("hosts", "fact"),
    [
        (("c7g.2xlrge",), r"no instance is known as c7g\.2xlrge"),
        (("nowhere.toml",), "cannot read the host file"),
    ],
)
def test_machines_that_nobody_knows(hosts: tuple[str, ...], fact: str) -> None:
    with pytest.raises(SpecError, match=fact) as caught:
        price("v1-pg18", hosts=hosts)
    assert caught.value.hint


def test_a_shipped_host_file_without_its_folder_is_proposed_with_it() -> None:
    with pytest.raises(SpecError) as caught:
        price("v1-pg18", hosts=("ecs-essd-array",))
    assert caught.value.hint == "did you mean hosts/ecs-essd-array?"


def test_prices_that_are_not_understood(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(f'{OWN}[[instance]]\nname = "c7g.large"\non_demand_per_hour = "much"\n')
    with pytest.raises(SpecError, match=r"mine\.toml, line 5: [a-z_]+: expected a number"):
        price("v1-pg18", prices=mine)


def test_a_record_without_a_trial_has_nothing_to_price(tmp_path: Path) -> None:
    shutil.copytree(RECORDS / "v1-pg18", tmp_path / "empty", ignore=shutil.ignore_patterns("0*"))
    with pytest.raises(SpecError, match="has no trial that ended"):
        price_records([open_record(tmp_path / "empty")], hosts=(), prices=None, load=None)


def declare_host(folder: Path, tables: str) -> RecordStore:
    """A record whose study declares its machine."""
    shutil.copytree(RECORDS / "v1-pg18", folder / "record")
    file = folder / "record" / "record.json"
    record = json.loads(file.read_text())
    record["study"]["host"] = json.loads(tables)
    file.write_text(json.dumps(record))
    return open_record(folder / "record")


def test_every_form_of_a_report_whose_machine_is_declared_says_what_it_costs(tmp_path: Path) -> None:
    store = declare_host(tmp_path, '{"instance": "c7g.large", "root_disk": {"volume": "gp3", "size": "20GB"}}')
    report = write_reports(store)
    shown = "c7g.large costs $54.5"
    assert report.report.price is not None
    assert shown in (store.path / "report.md").read_text().replace("\\", "")
    assert shown in (store.path / "report.html").read_text()
    document = json.loads((store.path / "report.json").read_text())
    assert document["price"]["cost"]["costs"][0]["per_month"] == pytest.approx(0.0725 * 730 + 20 * 0.08)
    assert document["study"]["host"]["root_disk"]["volume"] == "gp3"
