"""What a record tells of its price: of which machine, of which workloads, and what of it is no capacity."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.facts.prices import Term
from pgdyno.flow.report import price_report
from pgdyno.price.book import PriceBook
from pgdyno.price.study import PriceOptions, StudyPrice, find_host, price_study
from pgdyno.price.worth import Load
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import CpuFacts, PreflightFacts
from pgdyno.record.types import TableState
from pgdyno.report.forms.markdown import print_markdown
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.price.section import build_prices
from pgdyno.report.sections.price.words import PricedRecord
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.spec.prices import parse_prices
from tests.analyse.test_loading import load_in
from tests.report.build import GB, build_report
from tests.report.build_comparison import build_paired, build_split, build_switchback
from tests.report.build_search import build_search

# 2 CPUs and 24 GB of x86_64, as the built reports have, are no instance; this one is as near as any.
INSTANCE = HostSpec(instance="r7i.large")


def price(report: ReportInput, **asked: object) -> StudyPrice:
    return price_study(report.record, report.analysis, PriceOptions(**asked), losses={})  # type: ignore[arg-type]


def on(report: ReportInput, **facts: object) -> ReportInput:
    host = msgspec.structs.replace(report.record.host, **facts)
    return msgspec.structs.replace(report, record=msgspec.structs.replace(report.record, host=host))


def declared(report: ReportInput, host: HostSpec | None, product: str | None) -> ReportInput:
    study = msgspec.structs.replace(report.record.study, host=host)
    cpu = CpuFacts(
        online_count=2,
        governors=(),
        frequency_driver=None,
        is_boosting=None,
        is_virtual=True,
        mitigations=(),
        steal_since_boot_ratio=None,
        product=product,
    )
    seen = PreflightFacts(cpu=cpu)
    return msgspec.structs.replace(report, record=msgspec.structs.replace(report.record, study=study, preflight=seen))


def test_every_workload_on_all_terms() -> None:
    found = price(build_report(), host=INSTANCE)
    assert [one.name for one in found.workloads] == ["tpcb-like", "simple-update", "select-only"]
    for one in found.workloads:
        assert [worth.term for worth in one.worths] == [Term.ON_DEMAND, Term.SPOT]
        assert one.reason is None
        assert one.tps.value is not None
        assert one.tps_per_cpu.value == pytest.approx(one.tps.value / 2)
        per_million = one.worths[0].per_million
        assert None not in (per_million.low, per_million.high)
        assert per_million.value == pytest.approx(found.cost.costs[0].per_month / (one.tps.value * 2.628))
    assert (found.cpu_count, found.memory_bytes) == (2, 24 * GB)
    assert found.data_to_memory_ratio == pytest.approx((found.data_bytes or 0) / (24 * GB))


def test_a_machine_without_a_price_has_no_worth_but_its_figures() -> None:
    found = price(build_report())
    assert (found.cost.costs, found.mismatch, found.alternatives.next_size) == ((), None, None)
    assert found.cost.absent == {"your own": "this machine is no cloud instance that pgdyno knows"}
    assert all(one.worths == () and one.tps_per_cpu.value for one in found.workloads)
    own = parse_prices('date = 2026-11-01\nsource = "bill"\n[[machine]]\nper_month = 87.6\n', source="p")
    (worth,) = price(build_report(names=("tpcb-like",)), book=PriceBook(own=own)).workloads[0].worths
    assert worth.term is Term.OWN
    assert worth.per_million.value is not None


@pytest.mark.parametrize(
    ("facts", "instance", "is_alike"),
    [
        ({"memory_bytes": int(15.4 * GB)}, "r7i.large", True),
        ({"memory_bytes": 16 * GB}, "r7i.large", True),
        ({}, "r7i.large", False),
        ({"memory_bytes": 8 * GB}, "r7i.large", False),
        ({"memory_bytes": int(15.4 * GB), "cpu_count": 4}, "r7i.large", False),
        ({"memory_bytes": int(15.4 * GB)}, "r7g.large", False),
        ({"memory_bytes": int(15.4 * GB), "architecture": "aarch64"}, "r7g.large", True),
    ],
)
def test_a_price_of_another_machine_than_was_measured_says_so(
    facts: dict[str, object], instance: str, is_alike: bool
) -> None:
    found = price(on(build_report(), **facts), host=HostSpec(instance=instance))
    assert (found.mismatch is None) == is_alike
    if found.mismatch is not None:
        assert found.mismatch.startswith("measured was a machine of ")
        assert f"and {instance} has 2 CPUs" in found.mismatch


@pytest.mark.parametrize(
    ("limits", "usable"),
    [
        ({"cpu_limit": 0.5}, "0.5 CPUs and 15.5 GB"),
        ({"memory_limit_bytes": 4 * GB}, "2 CPUs and 4 GB"),
        # A control group of the size of an instance leaves another machine another machine.
        ({"cpu_count": 8, "cpu_limit": 2.0}, "2 CPUs and 15.5 GB"),
        ({"memory_bytes": 64 * GB, "memory_limit_bytes": 16 * GB}, "2 CPUs and 16 GB"),
        # Kubernetes leaves the system some of a node's memory.
        ({"memory_limit_bytes": 15 * GB}, None),
    ],
)
def test_a_price_of_a_machine_of_which_a_part_was_measured_says_so(
    limits: dict[str, object], usable: str | None
) -> None:
    found = price(on(build_report(), **{"memory_bytes": int(15.5 * GB)} | limits), host=INSTANCE).mismatch
    if usable is None:
        assert found is None
    else:
        assert found is not None
        assert f", of which {usable} could be used, and r7i.large has 2 CPUs" in found


def test_the_machine_is_the_declared_one_with_the_instance_that_it_calls_itself() -> None:
    report, disk = build_report(), DiskSpec(volume="gp3", size="50GB")
    own = parse_prices(
        'date = 2026-11-21\nsource = "a bill"\n[[machine]]\nname = "db1"\nper_month = 120', source="own.toml"
    )
    of = lambda host, product: find_host(declared(report, host, product).record, PriceBook(own=own))  # noqa: E731
    assert of(None, "c7g.2xlarge") == HostSpec(instance="c7g.2xlarge")
    assert of(None, "Standard PC (Q35 + ICH9, 2009)") == HostSpec()
    assert of(None, None) == HostSpec()
    # What is declared of disks goes with what was seen of the instance, and what is declared of that stands first.
    assert of(HostSpec(disk=disk), "c7g.2xlarge") == HostSpec(instance="c7g.2xlarge", disk=disk)
    assert of(HostSpec(instance="c7i.2xlarge"), "c7g.2xlarge").instance == "c7i.2xlarge"
    assert find_host(build_report(is_bare=True).record, PriceBook()) == HostSpec()
    # A machine that is described by itself, emulated or not, is not the one that the study ran on; nor is one that the user prices.
    for host in (
        HostSpec(cpus=64, memory="512GB", disk=disk),
        HostSpec(cpus=64, memory="512GB", disk=disk, emulate=True),
        HostSpec(name="db1", disk=disk),
    ):
        assert of(host, "c7g.2xlarge") == host
    assert of(HostSpec(name="db2", disk=disk), "c7g.2xlarge").instance == "c7g.2xlarge"


def test_a_scheduled_rate_is_no_capacity() -> None:
    found = price(build_report(names=("pay",)), host=INSTANCE)
    (one,) = found.workloads
    assert (one.worths, one.tps.value) == ((), None)
    assert one.reason == "900 tps were scheduled, which is not what it can do"


def test_parts_of_a_load_are_not_priced_as_one() -> None:
    found = price(build_split(), host=INSTANCE).workloads
    assert found
    for one in found:
        assert (one.worths, one.tps.value, one.tps_per_cpu.value, one.share_of_full) == ((), None, None, None)
        assert one.reason is not None
        assert "its parts (tpcb-like and select-only) are unlike" in one.reason


def test_a_search_is_priced_by_its_closed_loop_and_by_the_rate_that_holds_its_limit() -> None:
    report = build_search("settled")
    loop, limit = price(report, host=INSTANCE).workloads
    assert (loop.name, limit.name) == ("tpcb-like, closed loop", "tpcb-like, p99 < 20 ms")
    answer = report.analysis.searches[0].answer
    assert answer is not None
    assert (limit.tps.value, limit.tps.low, limit.tps.high) == (answer.estimate_tps, answer.holds_tps, answer.fails_tps)
    assert limit.tps.n == answer.n
    losses = {"tpcb-like, closed loop": ("fsync = off",)}
    lossy = price_study(report.record, report.analysis, PriceOptions(host=INSTANCE), losses=losses)
    assert [one.durability_given_up for one in lossy.workloads] == [("fsync = off",)] * 2
    # Who must be quick pays more for each.
    assert (limit.worths[0].per_million.value or 0) > (loop.worths[0].per_million.value or 0)
    for missing in (None, msgspec.structs.replace(answer, holds_tps=None)):
        nothing = msgspec.structs.replace(report.analysis.searches[0], answer=missing)
        analysis = msgspec.structs.replace(report.analysis, searches=(nothing,))
        *_, absent = price(msgspec.structs.replace(report, analysis=analysis), host=INSTANCE).workloads
        assert (absent.worths, absent.reason) == ((), "it is not known which rate holds the limit")


def test_variants_that_take_turns_are_priced_by_their_own_slices() -> None:
    report = build_switchback(workloads=("tpcb-like",))
    (compared,) = report.analysis.comparisons
    found = price_report(report, PriceOptions(host=INSTANCE)).workloads
    assert [one.name for one in found] == [f"tpcb-like, {figures.variant}" for figures in compared.figures]
    for one, figures in zip(found, compared.figures, strict=True):
        if figures.variant == "wal_sync_method=open_datasync":
            assert (one.worths, one.reason) == ((), "it has no round that ended")
            continue
        assert one.tps == figures.estimates["tps"]
        assert None not in (one.tps.low, one.worths[0].per_million.low, one.worths[0].per_million.high)
    given_up = {one.name: one.durability_given_up for one in found}
    assert given_up["tpcb-like, asynchronous"] == ("synchronous_commit = off",)
    assert given_up["tpcb-like, commit_delay=50"] == ()
    paired = price(build_paired(), host=INSTANCE).workloads
    assert any(one.worths for one in paired)


def test_no_trial_that_ended_well_has_no_tps() -> None:
    found = price(build_report(names=("tpcb-like",), rounds=2, failed=(1, 2)), host=INSTANCE, load=Load(tps=10))
    (one,) = found.workloads
    assert (one.worths, one.share_of_full, one.reason) == ((), None, "no finished trial")


def test_one_trial_has_no_interval() -> None:
    (one,) = price(build_report(names=("tpcb-like",), rounds=1), host=INSTANCE).workloads
    assert one.worths[0].per_million.value is not None
    assert one.worths[0].per_million.low is None
    assert one.worths[0].per_million.reason


def test_losses_stand_beside_the_workload() -> None:
    report = build_report(is_hard=True)
    losses = {"tpcb-like": ("fsync = off",)}
    found = price_study(report.record, report.analysis, PriceOptions(host=INSTANCE), losses=losses)
    assert [one.durability_given_up for one in found.workloads] == [("fsync = off",), (), ()]


def test_cpus_are_those_that_could_be_used() -> None:
    report = build_report(is_hard=True)
    facts: HostFacts = report.record.host
    assert (facts.cpu_count, facts.usable_cpu_count) == (8, 2)
    found = price(report, host=INSTANCE)
    assert (found.cpu_count, found.memory_bytes) == (2, 8 * GB)


def loading_report(*, sizes: bool = True) -> ReportInput:
    """A comparison of two variants of loading: 4 and 2 seconds, twice each."""
    report = build_paired()
    first = report.analysis.workloads[0]
    load = msgspec.structs.replace(first.load, name="init", scripts=())
    tables = (TableState(name="pgbench_accounts", bytes=3 * 10**9, live_rows=1, dead_rows=0),) if sizes else ()
    workloads = []
    for name, seconds in (("init, a", 4.0), ("init, b", 2.0)):
        trials = [load_in(number, name[-1], seconds / 4.21) for number in (1, 4)]
        loaded = tuple(
            msgspec.structs.replace(one, record=msgspec.structs.replace(one.record, tables_after=tables))
            for one in trials
        )
        workloads.append(msgspec.structs.replace(first, name=name, load=load, trials=loaded))
    plan = msgspec.structs.replace(report.record.plan, workloads=(load,))
    return msgspec.structs.replace(
        report,
        record=msgspec.structs.replace(report.record, plan=plan),
        analysis=msgspec.structs.replace(report.analysis, workloads=tuple(workloads)),
    )


def test_loading_costs_its_share_of_the_month() -> None:
    report = loading_report()
    found = price(report, host=INSTANCE)
    assert found.workloads == ()
    assert [one.name for one in found.loadings] == ["init, a", "init, b"]
    for one, seconds in zip(found.loadings, (4.0, 2.0), strict=True):
        assert one.load_s.value == pytest.approx(seconds)
        assert (one.load_s.n, one.loaded_bytes) == (2, 3e9)
        assert [worth.term for worth in one.worths] == [Term.ON_DEMAND, Term.SPOT]
        per_load, per_gb = one.worths[0].per_load, one.worths[0].per_gb
        assert per_load.value == pytest.approx(found.cost.costs[0].per_month * seconds / (730 * 3600))
        assert per_gb is not None
        assert per_gb.value == pytest.approx((per_load.value or 0) / 3e9 * 2**30)
    assert found.data_to_memory_ratio == pytest.approx(3e9 / (24 * GB))
    assert (
        price(loading_report(sizes=False), host=INSTANCE).loadings[0].loaded_bytes == report.record.plan.dataset_bytes
    )
    assert price(report).loadings[0].worths == (), "this machine has no price"


def test_what_loading_costs_is_printed_alone_and_side_by_side() -> None:
    one = PricedRecord(record_dir="records/one", name="one", price=price(loading_report(), host=INSTANCE))
    other = msgspec.structs.replace(one, record_dir="records/other")
    text = print_markdown(build_prices([one, other]))
    assert "; a load costs on demand $0.000" in text
    for words in (
        "Cost of loading",
        "a GB loaded",
        "seconds of a load",
        "2.79 GB",
        "| 4.00 s",
        "cheaper per load only if it reaches more than 2.00 times the speed",
    ):
        assert words in text, words
    assert "million" not in text
    assert "full load" not in text
