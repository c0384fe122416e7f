"""What it costs in words, tables and JSON: of a machine with volumes, of one without a price, of several side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from pgdyno.explain.finding import Finding, Severity
from pgdyno.facts.prices import Term
from pgdyno.price.book import PriceBook
from pgdyno.price.study import PriceOptions, StudyPrice, price_machine, price_study
from pgdyno.price.worth import Load
from pgdyno.report.documents.price import price_document
from pgdyno.report.forms.terminal import print_terminal
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.price.hosts import hosts_table
from pgdyno.report.sections.price.section import build_prices
from pgdyno.report.sections.price.tables import alternatives_table, cost_table, load_table, worth_table
from pgdyno.report.sections.price.words import (
    PricedRecord,
    describe_alarm,
    describe_costs,
    describe_price,
    explain_price,
    format_money,
)
from pgdyno.report.table import Cell
from pgdyno.spec.host import DiskSpec, HostSpec, read_host
from pgdyno.spec.prices import parse_prices
from tests.report.build import GB, build_report
from tests.report.build_comparison import build_client_sweep
from tests.report.build_derived import build_derived

GOLDEN = Path(__file__).parent / "golden"
HOST = read_host(Path(__file__).parents[2] / "studies" / "hosts" / "c7g.2xlarge-gp3-raid10.toml")


def on_c7g(report: ReportInput) -> ReportInput:
    host = msgspec.structs.replace(
        report.record.host, cpu_count=8, architecture="aarch64", memory_bytes=int(15.4 * GB), memory_limit_bytes=None
    )
    return msgspec.structs.replace(report, record=msgspec.structs.replace(report.record, host=host))


def price(
    report: ReportInput, host: HostSpec | None = HOST, own: str | None = None, load: Load | None = None
) -> StudyPrice:
    book = PriceBook(
        own=None if own is None else parse_prices(f'date = 2026-11-01\nsource = "ours"\n{own}', source="p")
    )
    losses = {
        one.name: ("fsync = off",)
        for one in report.analysis.workloads
        if report.record.study.server.settings.get("fsync") is False
    }
    return price_study(report.record, report.analysis, PriceOptions(host=host, book=book, load=load), losses=losses)


def named(price: StudyPrice, name: str = "graviton") -> PricedRecord:
    return PricedRecord(record_dir=f"results/{name}", name="bench", price=price)


def printed(*priced: PricedRecord, width: int = 80) -> str:
    console = Console(width=width, no_color=True, highlight=False, force_terminal=False)
    with console.capture() as capture:
        console.print(print_terminal(build_prices(priced), level=Level.STANDARD))
    return capture.get()


def test_a_machine_with_volumes(golden: Callable[[Path, str], None]) -> None:
    text = printed(named(price(on_c7g(build_report()), load=Load(tps=800))))
    golden(GOLDEN / "price.txt", text)
    # No line but those of wide tables is longer than the screen, and no interval is broken.
    assert max(map(len, text.splitlines())) <= 80
    assert "$262.90 a month on demand" in text
    assert "Your load is 800 TPS on average over the month:" in text
    million = printed(named(price(on_c7g(build_report()), load=Load(tps=1_234_567.5))))
    assert "Your load is 1,234,567.5 TPS on average over the month:" in million


def test_machines_side_by_side(golden: Callable[[Path, str], None]) -> None:
    small = price(build_report(names=("tpcb-like",)), HostSpec(instance="r7i.large"))
    text = printed(named(price(on_c7g(build_report(names=("tpcb-like",))))), named(small, "intel"), width=200)
    golden(GOLDEN / "price-two.txt", text)
    text = " ".join(text.split())
    assert "these are differences, not verdicts" in text
    assert "Priced as a machine other than the measured one: intel." in text


def test_a_machine_without_a_price_says_in_a_line_how_to_give_one() -> None:
    report = build_report()
    unknown = price(report, None)
    assert describe_price(unknown, program="./pgdyno", record="my records/1") == (
        "The cost is not known (this machine is no cloud instance that pgdyno knows): `./pgdyno price 'my records/1' --host"
        " c7g.2xlarge` says what it would be on an instance, and with `--prices FILE` at a price of your own, as `./pgdyno studies"
        " prices/template` explains."
    )
    # Without a record there is no folder to name.
    assert "`pgdyno price --host c7g.2xlarge` says" in describe_price(unknown, record="")
    assert [cost_table(unknown), worth_table(unknown), alternatives_table(unknown)] == [None] * 3
    assert tuple(explain_price(unknown)) == ()
    assert describe_costs(msgspec.structs.replace(report, price=unknown)) == (
        describe_price(unknown, record=report.record_dir),
    )
    assert describe_costs(report) == ()


def test_each_reason_for_a_missing_price_names_its_terms() -> None:
    essd = DiskSpec(volume="essd-pl1", size="500GB")
    words = describe_price(price(build_report(), HostSpec(instance="r8g.48xlarge", disk=essd)))
    assert words.startswith(
        "The cost on demand and on the spot market is not known: data on essd-pl1, in us-east-1, in USD: no source says"
        " what a GiB costs. The cost reserved 1 year and reserved 3 years is not known: no source says what an hour"
        " of r8g.48xlarge costs in us-east-1, in USD. Look at https://aws.amazon.com/ec2/pricing/ for reserved_1y_per_hour, "
    )


def test_the_same_volume_with_fewer_iops_is_told_apart_and_no_unknown_flush_is_promised() -> None:
    gp3 = DiskSpec(volume="gp3", size="500GB", volume_iops=16_000, volume_mb_s=1_000)
    table = alternatives_table(price(build_report(), HostSpec(instance="r8g.large", disk=gp3)))
    assert table is not None
    assert [tuple(cell.text for cell in row) for row in table.rows[:2]] == [
        ("data now: gp3 of 500GB, 16,000 IOPS, 1,000 MB/s", "$140.00", "—"),
        ("data: 1 × gp3 of 500GB, 3,600 IOPS", "$43.00", "—"),
    ]
    assert table.remark is not None
    assert "otherwise flushes are not compared" in table.remark


def test_a_missing_price_says_where_it_is_published_and_how_to_write_it() -> None:
    alibaba = describe_price(price(build_report(), HostSpec(instance="ecs.g8i.large")))
    assert "look at https://www.alibabacloud.com/pricing for on_demand_per_hour, " in alibaba
    assert (
        '`[[instance]]` with `name = "ecs.g8i.large"` (us-east-1, USD), and write them into a file for `pgdyno price'
        in alibaba
    )
    (elsewhere,) = [
        words
        for words in explain_price(price(build_report(), msgspec.structs.replace(HOST, root_disk=HOST.disk)))
        if words.startswith("Look at")
    ]
    assert "aws.amazon.com/ec2/pricing/ for reserved_1y_per_hour, reserved_3y_per_hour of an" in elsewhere
    abroad = describe_price(price(build_report(), msgspec.structs.replace(HOST, region="eu-central-1")))
    assert "; https://aws.amazon.com/ebs/pricing/ for per_gib_month of a `[[volume]]`" in abroad
    assert "(eu-central-1, USD)" in abroad


def test_machines_without_a_record_side_by_side() -> None:
    one = price_machine(HostSpec(instance="c7g.2xlarge"), 15000.0, PriceOptions())
    other = price_machine(HostSpec(instance="c7i.2xlarge"), 17000.0, PriceOptions())
    bare = price_machine(HostSpec(instance="c7i.large"), None, PriceOptions())
    # Without TPS no transaction has a cost that full load would be the condition of.
    assert "A month is 730 hours." in explain_price(bare)
    assert any("a machine at full load for the whole month" in words for words in explain_price(one))
    priced = [PricedRecord(record_dir="", name=each.cost.name, price=each) for each in (one, other, bare)]
    text = printed(*priced, width=200)
    rows = {line[:31].strip(): line[31:].split() for line in text.partition("Side by side")[2].splitlines()}
    months = [each.cost.costs[0].per_month for each in (one, other)]
    assert rows["TPS"] == ["15,000", "17,000", "—"]
    assert rows["TPS per $ against c7g.2xlarge"] == [
        "1",
        "×",
        f"{17000 / months[1] / (15000 / months[0]):.3f}",
        "×",
        "—",
    ]
    assert "TPS are as you say, and prices are exact" in " ".join(text.split())
    # What was said has no interval.
    assert "[" not in text.partition("Side by side")[2]
    assert "no interval" not in text


def test_a_ratio_of_two_machines_has_the_farthest_ends_of_both() -> None:
    report = build_report(names=("tpcb-like",))
    ours, theirs = price(report), price(report, HostSpec(instance="r7i.large"))
    table = hosts_table([named(ours), named(theirs, "intel")])
    (row,) = [row for row in table.rows if row[0].text == "TPS per $ against graviton"]
    first, second = (each.workloads[0].worths[0].tps_per_money for each in (ours, theirs))
    assert None not in (first.low, first.high, second.low, second.high)
    low, high = second.low / first.high, second.high / first.low  # type: ignore[operator]
    assert row[1].text == "1 ×"
    shown = [float(part) for part in re.findall(r"[\d.]+", row[2].detail)]
    assert shown == pytest.approx([low, high], rel=0.02)


def test_machines_are_compared_on_terms_that_both_have() -> None:
    report = build_report(names=("tpcb-like",))
    ours, theirs = price(report), price(report, HostSpec(instance="r7i.large"))

    def on(found: StudyPrice, *places: int) -> StudyPrice:
        (workload,) = found.workloads
        worths = tuple(workload.worths[place] for place in places)
        return msgspec.structs.replace(found, workloads=(msgspec.structs.replace(workload, worths=worths),))

    def compare(other: StudyPrice, own: StudyPrice = ours) -> Cell:
        rows = hosts_table([named(own), named(other, "intel")]).rows
        return next(row[2] for row in rows if row[0].text == "TPS per $ against graviton")

    assert "on demand" not in (compare(theirs).note or "")
    (last,) = (workload.worths[-1] for workload in ours.workloads)
    apart = compare(on(theirs, len(theirs.workloads[0].worths) - 1))
    other = theirs.workloads[0].worths[-1]
    assert (last.term, other.term) == (Term.SPOT, Term.SPOT)
    wanted = (other.tps_per_money.value or 0.0) / (last.tps_per_money.value or 1.0)
    assert float(apart.text.removesuffix(" ×")) == pytest.approx(wanted, rel=0.02)
    assert (apart.note or "").endswith("on the spot market")
    none = compare(on(theirs, len(theirs.workloads[0].worths) - 1), on(ours, 0))
    assert (none.text, none.note) == ("—", "both have no price on the same terms")


def test_figures_side_by_side_are_on_the_first_terms_that_all_machines_have() -> None:
    book = PriceBook(
        own=parse_prices(
            'date = 2026-11-01\nsource = "ours"\n[[instance]]\nname = "ecs.g8i.large"\nspot_per_hour = 0.03\n'
            "[[machine]]\nper_month = 120.0\n",
            source="p",
        )
    )

    def rows_of(*hosts: HostSpec) -> tuple[dict[str, list[str]], str]:
        priced = (price_machine(host, 1000.0, PriceOptions(book=book)) for host in hosts)
        table = hosts_table([PricedRecord(record_dir="", name=each.cost.name, price=each) for each in priced])
        return {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}, table.remark or ""

    spot, aws = HostSpec(instance="ecs.g8i.large"), HostSpec(instance="c7g.2xlarge")
    rows, remark = rows_of(aws, spot)
    assert [month.partition(" ")[2] for month in rows["a month"]] == ["on the spot market"] * 2
    first, second = (float(each) for each in rows["TPS per $ a month"])
    ratio = float(rows["TPS per $ against c7g.2xlarge"][1].removesuffix(" ×"))
    assert ratio == pytest.approx(second / first, rel=0.01)
    assert "unlike terms" not in remark
    rows, remark = rows_of(aws, spot, HostSpec())
    assert [month.partition(" ")[2] for month in rows["a month"]] == ["on demand", "on the spot market", "as you say"]
    assert "Machines are on unlike terms" in remark


def test_only_spot_instances_of_aws_have_two_minutes() -> None:
    for name, notice in (("r8g.large", True), ("ecs.g8i.large", False)):
        own = f'[[instance]]\nname = "{name}"\nspot_per_hour = 0.03\n'
        said = " ".join(explain_price(price(build_report(), HostSpec(instance=name), own=own)))
        assert "Spot instances may be terminated at any time" in said
        assert ("two minutes" in said) is notice


def test_the_sentence_of_the_first_page() -> None:
    report = on_c7g(build_report(names=("tpcb-like",)))
    found = msgspec.structs.replace(report, price=price(report))
    (sentence,) = describe_costs(found)
    assert sentence.startswith(
        "c7g.2xlarge, gp3 in RAID 10 costs $262.90 a month on demand and $116.83 on the spot market"
    )
    assert "without the system's disk (not declared); a million transactions at full load cost on demand $" in sentence
    assert sentence.endswith("] of tpcb-like.")
    lone = on_c7g(build_report(names=("tpcb-like",), rounds=1))
    assert "(n = 1: no interval) of tpcb-like." in describe_price(price(lone))


def test_figures_that_should_not_be_used_are_not_priced_without_a_word() -> None:
    report = build_report()
    for sound in (report, build_derived(is_hard=True)):
        assert describe_alarm(sound) == ""
    spoiled = Finding(severity=Severity.CRITICAL, claim="The disk lies.", evidence="fsync in 0.1 µs")
    alarm = describe_alarm(msgspec.structs.replace(report, findings=(*report.findings, spoiled)))
    assert alarm.startswith("The figures of this record should not be used as they are: `pgdyno show pgdyno-records/")
    loud = msgspec.structs.replace(named(price(report)), alarm=alarm)
    assert printed(loud, width=200).splitlines()[1].strip() == alarm


def test_loads_that_cost_the_same_are_all_named() -> None:
    found = price(on_c7g(build_report(names=("tpcb-like",))))
    (one,) = found.workloads
    twins = msgspec.structs.replace(found, workloads=(one, msgspec.structs.replace(one, name="twin")))
    assert "of tpcb-like and $" in describe_price(twins)
    assert "of twin." in describe_price(twins)


def test_of_many_loads_the_cheapest_and_the_dearest_are_named() -> None:
    sweep = on_c7g(build_client_sweep(rounds=2))
    assert len(sweep.analysis.workloads) > 4
    sentence = describe_price(price(sweep))
    assert "cost on demand from $" in sentence
    assert sentence.count(" of tpcb-like") == 2


def test_a_machine_that_was_not_measured_is_called_so() -> None:
    found = describe_price(price(build_report()))
    assert found.endswith(
        "But measured was a machine of 2 CPUs (x86_64) with 24 GB, and c7g.2xlarge has 8 CPUs (arm64) with 16 GB: the cost"
        " applies only if that machine performs the same."
    )


def test_durability_given_up_stands_beside_every_figure_won_by_it() -> None:
    found = price(on_c7g(build_report(names=("tpcb-like",), is_hard=True)))
    assert "of tpcb-like (durability given up)" in describe_price(found)
    table = worth_table(found)
    assert table is not None
    assert table.rows[0][0].tag == "durability given up"
    rows = {row[0].text: row[1] for row in hosts_table([named(found)]).rows}
    assert rows["tpcb-like"].tag == "durability given up"


def test_more_than_full_load_is_no_cost() -> None:
    found = price(on_c7g(build_report(names=("tpcb-like", "select-only"))), load=Load(tps=10_000))
    words = " ".join(explain_price(found))
    assert "The cost of a load above full load is not known." in words
    table = load_table(found)
    assert table is not None
    assert [[cell.text == "—" for cell in row[1:]] for row in table.rows] == [[True, True], [False, False]]
    share = " ".join(explain_price(price(on_c7g(build_report()), load=Load(utilisation_ratio=0.3))))
    assert "Your load is 30.0 % of full load on average over the month." in share


def test_failed_trials_leave_a_reason() -> None:
    found = price(on_c7g(build_report(names=("tpcb-like",), rounds=2, failed=(1, 2))), load=Load(tps=10))
    table = worth_table(found)
    assert table is not None
    at_load = load_table(found)
    assert at_load is not None
    for one in (table, at_load):
        assert one.notes == ("no finished trial",)
        assert {len(row) for row in one.rows} == {len(one.columns)}
    assert describe_price(found).endswith("(not declared).")


def test_own_prices_in_their_currency() -> None:
    own = 'currency = "EUR"\n[[machine]]\nper_month = 120.0\n'
    found = price(build_report(names=("tpcb-like",)), None, own)
    assert describe_price(found).startswith("This machine costs €120.00 a month as you say; a million transactions")
    francs = price(build_report(), None, own.replace("EUR", "CHF"))
    assert describe_price(francs).startswith("This machine costs CHF 120.00 a month as you say; a million")
    assert "us-east-1" not in " ".join(explain_price(found))
    table = cost_table(found)
    assert table is not None
    assert table.notes == ("with its disks, as you say; 2026-11-01: ours",)


@pytest.mark.parametrize(
    ("amount", "currency", "text"), [(1262.9, "USD", "$1,262.90"), (3, "EUR", "€3.00"), (0.5, "CHF", "CHF 0.50")]
)
def test_money(amount: float, currency: str, text: str) -> None:
    assert format_money(amount, currency) == text


def test_the_document_has_everything_at_full_precision() -> None:
    document = json.loads(msgspec.json.encode(price_document([named(price(on_c7g(build_report())))])))
    assert (document["format"], document["version"]) == ("pgdyno-price", 1)
    (record,) = document["records"]
    demand, _ = record["price"]["cost"]["costs"]
    assert demand["per_month"] == pytest.approx(262.9)
    assert all(part["source"] and part["date"] for part in demand["parts"])
    worth = record["price"]["workloads"][0]["worths"][0]
    assert worth["term"] == "on demand"
    assert worth["per_million"]["low"] < worth["per_million"]["value"] < worth["per_million"]["high"]
    assert record["price"]["alternatives"]["next_size"]["instance"] == "c7g.4xlarge"
