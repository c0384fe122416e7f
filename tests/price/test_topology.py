"""What a topology costs: every machine once, on terms that all have, and what of it was measured."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.facts.prices import Term
from pgdyno.plan.types import PlannedPooler
from pgdyno.price.book import PriceBook
from pgdyno.price.cost import price_host
from pgdyno.price.study import PriceOptions, StudyPrice, price_machine, price_study
from pgdyno.price.topology import Surroundings
from pgdyno.price.worth import Load
from pgdyno.report.forms.markdown import print_markdown
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.price.section import build_prices
from pgdyno.report.sections.price.tables import load_table
from pgdyno.report.sections.price.words import PricedRecord
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.spec.pooler import PoolMode
from pgdyno.spec.prices import parse_prices
from pgdyno.spec.topology import TopologySpec
from tests.report.build import build_report
from tests.report.build_comparison import build_paired

HOST = HostSpec(instance="r8g.large", disk=DiskSpec(volume="gp3", size="100GB"))
POOLER = HostSpec(instance="c7g.large")


def price(host: HostSpec, report: ReportInput | None = None, **around: object) -> StudyPrice:
    options = PriceOptions(host=host, around=Surroundings(**around))  # type: ignore[arg-type]
    if report is None:
        return price_machine(host, 1000.0, options)
    return price_study(report.record, report.analysis, options, losses={})


def alone(host: HostSpec) -> float:
    cost = price_host(host, PriceBook()).find(Term.ON_DEMAND)
    assert cost is not None
    return cost.per_month


def whole(found: StudyPrice) -> float:
    cost = found.cost.find(Term.ON_DEMAND)
    assert cost is not None
    assert cost.per_month == pytest.approx(sum(part.per_month for part in cost.parts))
    return cost.per_month


def with_standbys(report: ReportInput, count: int) -> ReportInput:
    record = report.record
    study = msgspec.structs.replace(record.study, server=msgspec.structs.replace(record.study.server, standbys=count))
    return msgspec.structs.replace(report, record=msgspec.structs.replace(record, study=study))


def with_pooler(report: ReportInput, *endpoints: str) -> ReportInput:
    pool = PlannedPooler(name="pool", mode=PoolMode.TRANSACTION, size=5, most_clients=8)
    plan = msgspec.structs.replace(report.record.plan, poolers=(pool,))
    workloads = tuple(
        msgspec.structs.replace(one, load=msgspec.structs.replace(one.load, endpoint=endpoint))
        for one, endpoint in zip(report.analysis.workloads, endpoints, strict=True)
    )
    return msgspec.structs.replace(
        report,
        record=msgspec.structs.replace(report.record, plan=plan),
        analysis=msgspec.structs.replace(report.analysis, workloads=workloads),
    )


def show(found: StudyPrice) -> str:
    return print_markdown(build_prices((PricedRecord(record_dir="", name="x", price=found),)))


def test_every_machine_is_counted_once_and_its_part_shown() -> None:
    found = price(HOST, standbys=2, pooler_host=POOLER)
    assert whole(found) == pytest.approx(3 * alone(HOST) + alone(POOLER))
    assert found.topology is not None
    assert [(group.role, group.count) for group in found.topology.groups] == [
        ("server", 1),
        ("2 standbys", 2),
        ("pooler", 1),
    ]
    (workload,) = found.workloads
    assert workload.worths[0].per_million.value == pytest.approx(whole(found) / (1000 * 2.628))
    assert found.alternatives.next_size is not None
    larger = msgspec.structs.replace(HOST, instance=found.alternatives.next_size.instance)
    assert found.alternatives.next_size.per_month == pytest.approx(3 * alone(larger) + alone(POOLER))
    text = show(found)
    assert "r8g.large with 2 standbys and a pooler (c7g.large) costs" in text
    assert "for 4 machines" in text
    assert "| 2 standbys: together |" in text
    assert "The machines that a load comes from are not counted." in text


def test_standbys_of_another_instance_have_the_volumes_of_the_server_unless_they_declare_their_own() -> None:
    other = HostSpec(instance="r8g.xlarge")
    assert whole(price(HOST, standbys=1, standby_host=other)) == pytest.approx(
        alone(HOST) + alone(msgspec.structs.replace(HOST, instance="r8g.xlarge"))
    )
    small = price(HostSpec(instance="r8g.xlarge"), standbys=1, standby_host=HostSpec(instance="r8g.large")).topology
    assert small is not None
    assert any("A standby of 2 CPUs beside a server of 4" in one for one in small.remarks)
    own = HostSpec(instance="r8g.xlarge", disk=DiskSpec(volume="gp3", size="500GB"))
    assert whole(price(HOST, standbys=1, standby_host=own)) == pytest.approx(alone(HOST) + alone(own))
    with pytest.raises(SpecError, match="--standby-host names a machine, and there are no standbys"):
        price(HOST, standby_host=other)


def test_a_host_file_declares_it_and_options_stand_before_that() -> None:
    topology = TopologySpec(standbys=2, standby_instance="r8g.xlarge", pooler_instance="c7g.large")
    declared = msgspec.structs.replace(HOST, topology=topology)
    standby = msgspec.structs.replace(HOST, instance="r8g.xlarge")
    assert whole(price(declared)) == pytest.approx(alone(HOST) + 2 * alone(standby) + alone(POOLER))
    assert whole(price(declared, standbys=1)) == pytest.approx(alone(HOST) + alone(standby) + alone(POOLER))
    assert price(HOST).topology is None
    assert whole(price(HOST)) == pytest.approx(alone(HOST))


def test_a_record_of_standbys_stands_for_their_machines_and_says_that_they_were_one() -> None:
    report = with_standbys(build_report(), 2)
    found = price(HOST, report)
    assert whole(found) == pytest.approx(3 * alone(HOST))
    assert found.topology is not None
    assert "This record stands for 3 machines, the server and 2 standbys, which ran on one" in found.topology.remarks[0]
    fewer = price(HOST, report, standbys=0)
    assert whole(fewer) == pytest.approx(alone(HOST))
    assert fewer.topology is not None
    assert any("measured with 2 standbys, and priced with none" in one for one in fewer.topology.remarks)
    more = price(HOST, build_report(), standbys=1)
    assert more.topology is not None
    assert any("measured with no standby, and priced with 1" in one for one in more.topology.remarks)


def test_loads_that_need_no_pooler_do_not_pay_for_its_machine() -> None:
    report = build_paired()
    count = len(report.analysis.workloads)
    both = with_pooler(report, "primary", *["pool"] * (count - 1))
    direct, pooled, *_ = price(HOST, both, pooler_host=POOLER).workloads
    for one, month in ((direct, alone(HOST)), (pooled, alone(HOST) + alone(POOLER))):
        assert one.worths[0].per_million.value == pytest.approx(month / ((one.tps.value or 0.0) * 2.628))
    assert "are priced without the pooler's machine." in show(price(HOST, both, pooler_host=POOLER))
    apart = with_pooler(report, "primary", *["replicas"] * (count - 1))
    for one in price(HOST, apart, pooler_host=POOLER).workloads:
        paid = (one.worths[0].per_million.value or 0.0) * (one.tps.value or 0.0) * 2.628
        assert paid == pytest.approx(alone(HOST) + alone(POOLER)), (
            "no load is through a pooler: all are compared with one"
        )
    beside = price(HOST, both)
    assert whole(beside) == pytest.approx(alone(HOST))
    assert beside.topology is not None
    assert any("adds none" in one for one in beside.topology.remarks)


def test_a_machine_without_a_price_leaves_the_whole_without_one() -> None:
    own = parse_prices('date = 2026-11-01\nsource = "bill"\n[[machine]]\nname = "mine"\nper_month = 87.6\n', source="p")
    mine = HostSpec(name="mine", cpus=2, memory="8GB", disk=DiskSpec(kind="local-ssd"))
    around = Surroundings(standbys=1)
    found = price_machine(mine, None, PriceOptions(host=mine, book=PriceBook(own=own), around=around))
    assert [one.per_month for one in found.cost.costs] == [pytest.approx(2 * 87.6)]
    mixed = Surroundings(standbys=1, pooler_host=POOLER)
    found = price_machine(mine, None, PriceOptions(host=mine, book=PriceBook(own=own), around=mixed))
    assert found.cost.costs == ()
    assert "The cost is not known" in show(found)


def test_machines_beside_a_server_are_in_its_region_unless_they_declare_their_own() -> None:
    abroad = msgspec.structs.replace(HOST, region="eu-central-1")
    own = HostSpec(instance="r8g.xlarge", disk=DiskSpec(volume="gp3", size="500GB"))
    found = price(abroad, standbys=1, standby_host=own, pooler_host=POOLER).topology
    assert found is not None
    assert [group.cost.region for group in found.groups] == ["eu-central-1"] * 3
    elsewhere = msgspec.structs.replace(own, region="us-east-1")
    away = msgspec.structs.replace(POOLER, region="us-east-1")
    found = price(abroad, standbys=1, standby_host=elsewhere, pooler_host=away).topology
    assert found is not None
    assert [group.cost.region for group in found.groups] == ["eu-central-1", "us-east-1", "us-east-1"]


def test_direct_loads_have_no_terms_that_the_pooler_lacks() -> None:
    report = build_paired()
    loads = ("primary", *["pool"] * (len(report.analysis.workloads) - 1))
    around = Surroundings(pooler_host=HostSpec(instance="c8gb.medium"))
    options = PriceOptions(host=HOST, around=around, load=Load(utilisation_ratio=0.3))
    both = with_pooler(report, *loads)
    found = price_study(both.record, both.analysis, options, losses={})
    assert 0 < len(found.cost.costs) < len(price_host(HOST, PriceBook()).costs)
    terms = {one.term for one in found.cost.costs}
    assert all({worth.term for worth in workload.worths} <= terms for workload in found.workloads)
    table = load_table(found)
    assert table is not None
    assert {len(row) for row in table.rows} == {len(table.columns)}
