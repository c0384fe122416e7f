"""What a report says of an emulated machine: how near it came, by its disk cards, and what it cannot show."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.analyse.disk.ceiling import TRANSFERS
from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.study import without_emulation
from pgdyno.facts.volumes import DiskKindName
from pgdyno.flow.disk_view import view_card
from pgdyno.record.device.disk_card import add_declared_disk
from pgdyno.report.document import Prose
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.conditions.emulated import build_emulated, emulation_table
from pgdyno.report.sections.disk.layout import explain_layout
from pgdyno.report.sections.disk.tables import layout_of
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.tune.hosts import ceilings_of_emulation, make_shape
from tests.disk_cards import make_card
from tests.report.build import build_report

GP3 = DiskSpec(volume="gp3", count=4, size="100GB", raid=0, volume_latency_ms=1.8)
HOST = HostSpec(name="db1", cpus=64, memory="8TB", instance_iops=12_000, disk=GP3, wal_disk=GP3, emulate=True)


def report_of(host: HostSpec) -> ReportInput:
    plain = build_report(names=("tpcb-like",), rounds=1, duration_s=20)
    study = msgspec.structs.replace(plain.record.study, host=host)
    record = msgspec.structs.replace(plain.record, study=study)
    cards = [view_card(add_declared_disk(make_card(), host, place)) for place in (0, 1)]
    return msgspec.structs.replace(plain, record=record, disk=cards[0], wal=cards[1])


def test_an_emulation_is_named_with_its_nearness_and_limits() -> None:
    report = report_of(HOST)
    (said,) = build_emulated(report)
    assert isinstance(said, Prose)
    assert said.strong == "Emulated:"
    for part in ("of db1", "data: ", "WAL: ", "of the time of a flush", "its 64 CPUs", "its 8 TB", "bursts"):
        assert part in said.words, part
    table = emulation_table(report)
    assert table is not None
    rows = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in table.rows}
    # The card's disk does 12,000 IOPS, and a median flush of 0.9 times 1.8 ms and its transfer.
    assert rows["data", "random reads, 8 kB"][0] == "12,000 IOPS"
    assert rows["WAL", "a flush"][0] == "1.80 ms"
    assert len(rows) == 10


def test_what_the_emulated_disks_took_of_the_cpus_is_said_once() -> None:
    report = report_of(HOST)
    (workload,) = report.analysis.workloads
    trials = [
        msgspec.structs.replace(trial, shares={**trial.shares, "cpu_emulation_ratio": 0.1}) for trial in workload.trials
    ]
    analysis = msgspec.structs.replace(
        report.analysis, workloads=(msgspec.structs.replace(workload, trials=tuple(trials)),)
    )
    (said,) = build_emulated(msgspec.structs.replace(report, analysis=analysis))
    assert isinstance(said, Prose)
    assert " The kernel's threads of its disks used at most 10.0 % of the CPUs." in said.words
    assert "kernel" not in (said.brief or "")


@pytest.mark.parametrize(("kind", "is_said"), [("hdd", True), ("network-ssd", False)])
def test_that_seeks_are_not_told_from_pages_in_a_row_is_said(kind: DiskKindName, is_said: bool) -> None:
    host = msgspec.structs.replace(HOST, wal_disk=DiskSpec(kind=kind, size="100GB"))
    (said,) = build_emulated(report_of(host))
    assert isinstance(said, Prose)
    assert ("pages in a row" in said.words) is is_said


def test_an_emulation_is_held_against_the_disks_that_it_made() -> None:
    """What the machine lets through is not declared, and is assumed: the disks are made so, and not as fast as eight gp3."""
    disk = DiskSpec(volume="gp3", count=8, size="50GB", raid=0)
    host = HostSpec(name="db1", cpus=2, memory="4GB", disk=disk, wal_disk=disk, emulate=True)
    report = report_of(host)
    made = make_shape(host).disk
    assert made.random_read_iops.value < 0.5 * 24_000
    table = emulation_table(report)
    assert table is not None
    rows = {row[1].text: row[2:] for row in table.rows if row[0].text == "data"}
    declared, *_ = rows["random reads, 8 kB"]
    assert declared.text == f"{made.random_read_iops.value:,.0f} IOPS"
    assert "assumed: the machine's own limit is not known; by another's: a usual instance with 2 CPUs" in (
        declared.note or ""
    )
    assert "assumed: typical of network-ssd" in (rows["a flush"][0].note or "")
    view = report.disk
    assert view is not None
    assert {one.ceiling.value for one in view.efficiencies} >= {
        made.random_read_iops.value,
        made.write_bytes_per_s.value,
    }
    # The card's disk does more than the emulated one would, which the report says, but no doubt of the card.
    assert not {one.rule for one in view.findings} & {"above-declared", "above-lasting", "below-ceiling"}


@pytest.mark.parametrize(
    "disk", [DiskSpec(volume="local-nvme", size="15TB"), DiskSpec(volume="gp3", size="50GB"), DiskSpec(kind="hdd")]
)
def test_an_emulation_is_judged_by_the_figures_that_it_is_made_with(disk: DiskSpec) -> None:
    """Also where a bandwidth is assumed, which is no less than what the random pages take."""
    host = HostSpec(name="db1", cpus=16, memory="64GB", disk=disk, emulate=True)
    made, ceilings = make_shape(host).disk, ceilings_of_emulation(host, disk)
    for name in TRANSFERS:
        ceiling, known = getattr(ceilings, name), getattr(made, name)
        assert (ceiling.value, ceiling.how, ceiling.burst_value) == (known.value, known.how, None), name


def test_no_array_is_looked_for_below_an_emulated_disk() -> None:
    for host in (HOST, msgspec.structs.replace(HOST, emulate=False)):
        view = report_of(host).disk
        layout = None if view is None else layout_of(view)
        assert layout is not None
        assert ("An array is declared" in " ".join(explain_layout(layout))) is not host.emulate


@pytest.mark.parametrize("host", [None, msgspec.structs.replace(HOST, emulate=False)])
def test_nothing_is_said_of_a_real_machine(host: HostSpec | None) -> None:
    report = report_of(HOST)
    study = msgspec.structs.replace(report.record.study, host=host)
    report = msgspec.structs.replace(report, record=msgspec.structs.replace(report.record, study=study))
    assert list(build_emulated(report)) == []
    assert emulation_table(report) is None


def test_the_means_of_an_emulation_are_no_obstacles() -> None:
    found = tuple(
        Finding(rule=rule, severity=Severity.WARNING, claim="", evidence="") for rule in ("loop-device", "steal")
    )
    study = report_of(HOST).record.study
    assert [one.rule for one in without_emulation(found, study)] == ["steal"]
    real = msgspec.structs.replace(study, host=None)
    assert without_emulation(found, real) == found
