from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgdyno.analyse.capacity.tiers import make_tiers
from pgdyno.analyse.disk.demand import UseKind
from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.explain.capacity import CEILING, find_capacity_findings
from pgdyno.flow.report import compose_report
from pgdyno.record.store import open_record
from pgdyno.report.sections.capacity import (
    bounds_table,
    describe_capacity,
    describe_tiers,
    projections_table,
    tiers_table,
)
from pgdyno.report.table import Table
from tests.analyse.loads import Nature, draw_load, make_analysis
from tests.analyse.test_capacity import RECORDS, WRITING, reckon, reckon_turns, sweep_of
from tests.analyse.test_capacity_tiers import host

FULL = msgspec.structs.replace(WRITING, tps=1900.0, shares={Resource.CPU: 0.5, Resource.WAL_FLUSH: 0.3})


def show(table: Table | None) -> list[list[str]]:
    assert table is not None
    return [[" ".join(filter(None, (cell.text, cell.detail))) for cell in row] for row in table.rows]


def test_no_ceiling_stands_without_its_interval() -> None:
    ceiling, following, clients = describe_capacity(reckon(FULL, sd=0.01))
    assert ceiling.startswith(("This machine can carry 2,0", "This machine can carry 1,9"))
    assert "[1," in ceiling
    assert "calculated" in ceiling
    assert ceiling.endswith("was in use, so little is left.")
    assert following.startswith("Without the limit of the CPUs, TPS could rise by +")
    assert "up to the limit of WAL flushes at 6,0" in following or "at 5,9" in following
    assert clients.startswith("A rough guide for clients or a connection pool: ")


def test_a_bound_below_the_ceiling_is_told_beside_it() -> None:
    nature = msgspec.structs.replace(WRITING, tps=550.0, clients=4, limits={**WRITING.limits, UseKind.FLUSHES: 300.0})
    ceiling, *_ = describe_capacity(reckon(nature, sd=0.001))
    assert "use of resources: the limit of the CPUs. With 4 clients, WAL flushes" in ceiling
    assert "less, 600" in ceiling


def test_one_trial_says_that_it_has_no_interval() -> None:
    ceiling, following, _ = describe_capacity(reckon(FULL, trials=1))
    assert "(n = 1: no interval)" in ceiling
    assert "by an unknown amount" in following


def test_a_measured_peak_is_told_before_what_was_worked_out() -> None:
    capacity = reckon(WRITING, sweep=sweep_of({n: min(300.0 * n, 600.0) for n in (1, 2, 4, 8, 16, 32)}, sd=0.004))
    ceiling, _, clients = describe_capacity(capacity)
    assert "tpcb-like peaks at 60" in ceiling
    assert "the highest point of the sweep over clients, whichever number of them reaches it" in ceiling
    assert clients.startswith("2 active sessions [2 – 2] reach 90 % of the full throughput")


@pytest.mark.parametrize("flushes", [5000.0, 300.0], ids=["of CPUs", "of flushes"])
def test_other_programs_on_the_cpus_come_before_more_clients(flushes: float) -> None:
    limits = {**WRITING.limits, UseKind.FLUSHES: flushes}
    nature = msgspec.structs.replace(WRITING, tps=438.0, others_ratio=0.76, limits=limits)
    ceiling, *_ = describe_capacity(reckon(nature))
    assert ceiling.endswith(
        " was in use; other programs used up to 76.0 % of the CPUs, and without them the load may come closer to it."
    )


def test_what_is_not_known_is_said() -> None:
    (ceiling, clients) = describe_capacity(reckon(Nature(cpu_s=None, generator_s=None)))
    assert ceiling == "The ceiling of tpcb-like on this machine is not known: no bound is known that holds."
    assert clients.startswith("The best number of clients is not known")
    _, following, _ = describe_capacity(reckon(Nature(tps=1900.0)))
    assert following == "The limit after the CPUs is not known: the disk has no card."


def test_bounds_stand_with_what_they_come_from() -> None:
    table = bounds_table(reckon(FULL, sd=0.01))
    rows = {row[0]: row[1:] for row in show(table)}
    assert list(rows) == ["CPUs", "WAL flushes", "bytes written", "load generator", "random reads", "bytes read"]
    assert rows["CPUs"][0].startswith(("1.00 ms", "0.99", "1.01 ms"))
    assert rows["CPUs"][1] == "2.00"
    assert "MB/s" in rows["bytes written"][1]
    assert rows["WAL flushes"][1].startswith("1,")
    assert table is not None
    assert table.caption == "Capacity of each resource, with 8 clients"
    assert "random writes: the disk's card does not have it." in table.remark


def test_no_interval_of_use_ends_beyond_all_cpus() -> None:
    capacity = reckon(FULL, sd=0.01)
    for value, shown in ((0.9, "90.0 % [41.9 % – 100 %]"), (1.02, "102 % [41.9 % – 102 %]")):
        used = Estimate(value=value, low=0.419, high=1.6, n=3, unit="ratio")
        bounds = tuple(msgspec.structs.replace(bound, used=used) for bound in capacity.bounds)
        rows = {row[0]: row[4] for row in show(bounds_table(msgspec.structs.replace(capacity, bounds=bounds)))}
        assert rows["CPUs"] == rows["load generator"] == shown
        assert rows["WAL flushes"] != shown


def test_bounds_of_turns_say_how_many_trials_each_is_from() -> None:
    table = bounds_table(reckon_turns(FULL))
    rows = {row[0]: row[1:] for row in show(table)}
    assert rows["CPUs"][-1] == "2 CPUs; its use in n = 4 trials of the rounds"
    assert rows["CPUs"][2].endswith("]")
    assert "its use" not in rows["bytes written"][-1]
    assert table is not None
    assert "those of trials that samplers watched, n = 1, where the source names no others." in table.remark
    assert rows["bytes written"][2].endswith("(n = 1: no interval)")


def test_a_bound_that_was_passed_is_noted() -> None:
    table = bounds_table(reckon(msgspec.structs.replace(WRITING, limits={**WRITING.limits, UseKind.READS: 100.0})))
    assert table is not None
    assert table.notes[0] == "the load used more than that, so it is no bound"


def test_projections_are_called_so() -> None:
    table = projections_table(reckon(FULL, sd=0.01))
    assert table is not None
    assert "Projected capacity of other machines, not measured" in table.caption
    assert table.remark.startswith("Projections are calculated, not measured.")
    cpus, memory, disk = show(table)
    assert cpus[0] == "twice the CPUs"
    assert cpus[3] == "CPUs"
    assert memory[1:4] == ["—"] * 3
    assert table.rows[1][1].note == "the pages that these transactions touch are not known"
    assert disk[2] < cpus[2]


@pytest.mark.parametrize(("low", "shown"), [(15_432.0, "15,000"), (987.0, "980"), (99.9, "99"), (7.6, "7")])
def test_what_a_machine_is_counted_on_for_is_never_rounded_up(low: float, shown: str) -> None:
    (said,) = describe_tiers(make_tiers([host("m", low, 200.0)]))
    assert said == f"Up to {shown} TPS: m, $200.00 a month."


def test_tiers_are_told_from_below() -> None:
    tiers = make_tiers([host("c7g.large", 15_432, 60.0), host("c7g.xlarge", 31_000, 120.0), host("once", None, 9.0)])
    assert describe_tiers(tiers) == (
        "Up to 15,000 TPS: c7g.large, $60.00 a month.",
        "Above 15,000, up to 31,000 TPS: c7g.xlarge, $120.00 a month.",
        "Not once: one trial has no interval.",
    )
    assert [row[0] for row in show(tiers_table(tiers))] == ["c7g.large", "c7g.xlarge"]
    assert tiers_table(make_tiers([])) is None


@pytest.mark.parametrize("name", ["v1-pg15", "v1-pg18"])
def test_a_report_of_a_stored_record_tells_its_ceiling_and_what_lacks(name: str) -> None:
    report = compose_report(open_record(RECORDS / name)).report
    (capacity,) = report.analysis.capacities
    (finding,) = (one for one in report.explanations if one.rule == CEILING)
    assert finding.workload == capacity.workload
    assert "CPUs" in finding.evidence
    said = " ".join(describe_capacity(capacity))
    assert ("no interval" in said) or ("no useful interval" in said)
    assert "The limit after the CPUs is not known: the disk has no card." in said


amounts = st.sampled_from([0.0, 1e-9, 0.3, 5.0, 1e6])
natures = st.builds(
    Nature,
    tps=st.sampled_from([0.01, 3.0, 900.0, 1e6]),
    clients=st.sampled_from([1, 2, 33]),
    cpu_s=st.sampled_from([None, 0.0, 1e-6, 1e-3, 0.5]),
    others_ratio=st.sampled_from([-0.01, 0.0, 0.3, 1.0]),
    stolen_ratio=st.sampled_from([0.0, 1.0]),
    generator_s=st.sampled_from([None, 0.0, 1e-4]),
    demands=st.dictionaries(st.sampled_from(list(WRITING.limits)), amounts),
    limits=st.dictionaries(st.sampled_from(list(WRITING.limits)), st.sampled_from([1e-3, 100.0, 1e9])),
    shares=st.dictionaries(st.sampled_from(list(Resource)), st.sampled_from([0.0, 0.5, 1.0])),
)


@settings(max_examples=60, deadline=None)
@given(
    natures,
    st.integers(1, 3),
    st.sampled_from([None, {1: 5.0, 8: 5.0}, {1: 10.0, 2: 20.0, 4: 30.0, 8: 31.0, 16: 20.0, 32: 9.0}]),
)
def test_whatever_is_seen_is_told_without_a_number_that_nobody_has(
    nature: Nature, trials: int, curve: dict[int, float] | None
) -> None:
    capacity = reckon(nature, trials=trials, sd=0.01, sweep=None if curve is None else sweep_of(curve))
    record, workload = draw_load(nature, trials=trials)
    tables = [table for table in (bounds_table(capacity), projections_table(capacity)) if table is not None]
    found = find_capacity_findings(record, make_analysis(workload, capacities=(capacity,)))
    words = [*describe_capacity(capacity), *(one.claim + one.evidence + one.gain for one in found)]
    words += [cell.text + cell.detail + (cell.note or "") for table in tables for row in table.rows for cell in row]
    said = " ".join(words)
    assert not {"None", "nan", "inf"} & set(said.replace("[", " ").replace("]", " ").split())
    for bound in capacity.bounds:
        if bound.tps.low is not None and bound.tps.high is not None and bound.tps.value is not None:
            assert bound.tps.low <= bound.tps.value * (1 + 1e-9)
            assert bound.tps.value <= bound.tps.high * (1 + 1e-9)
    for one in capacity.projections:
        assert (one.high_tps is None) == (one.reason is not None)
