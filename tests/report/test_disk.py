"""Disk cards as people and programs read them: golden texts, what they mean, and no line that is too wide."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from pgdyno.analyse.comparison.disk_cards import compare_entries
from pgdyno.analyse.disk.entries import DiskFigureKey
from pgdyno.analyse.estimate import estimate_geometric_mean
from pgdyno.flow.disk_view import view_card
from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.record.device.disk_card import ClockTest, DiskCard, add_declared_disk
from pgdyno.record.device.pg_tests import parse_flush_tests
from pgdyno.record.machine.preflight import Unseen
from pgdyno.report.documents.disk import DiskComparisonDocument, DiskDocument, comparison_document, disk_document
from pgdyno.report.forms.markdown import print_markdown
from pgdyno.report.forms.terminal import print_terminal
from pgdyno.report.input import CardView
from pgdyno.report.level import Level
from pgdyno.report.sections.disk.card import explain_for_postgresql, show_figure
from pgdyno.report.sections.disk.section import build_card as build_card_document
from pgdyno.report.sections.disk.section import build_card_comparison, build_cards
from pgdyno.report.sections.disk.tables import flush_table
from pgdyno.spec.host import DiskSpec, HostSpec
from tests.disk_cards import MADE_AT, make_card, make_look, make_runs

GOLDEN = Path(__file__).parent / "golden"
HOST = HostSpec(
    instance="c7g.2xlarge", disk=DiskSpec(volume="gp3", count=8, size="50GB", raid=10, volume_latency_ms=1.85)
)


def burst(one: DiskJob, number: int) -> float:
    return 1.6 if one.pattern is Pattern.RANDOM_READ and one.depth > 4 else 1.0


def build_card(**others: Any) -> DiskCard:
    facts: dict[str, Any] = {
        "runs": make_runs(level=burst),
        "clock": ClockTest(read_ns=24.5, counts={"1": 962, "2": 37, "1024": 1, "2048": 0}, unit="us"),
        "unseen": (Unseen(what="more than one I/O at once", reason="this fio has none of the engines"),),
        **others,
    }
    return add_declared_disk(make_card(**facts), HOST, 0)


def view_of(card: DiskCard) -> CardView:
    return view_card(card, file=Path("pgdyno-disks/20261121-093000-db1-data.json"))


def printed(renderable: object, *, width: int = 80) -> str:
    console = Console(width=width, no_color=True, highlight=False, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_a_card_on_the_terminal(golden: Callable[[Path, str], None]) -> None:
    text = printed(print_terminal(build_cards([view_of(build_card())]), level=Level.STANDARD))
    golden(GOLDEN / "disk.txt", text)
    assert all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())


def test_a_card_as_markdown(golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / "disk.md", print_markdown(build_card_document(view_of(build_card()))))


def test_all_tests_of_pg_test_fsync_are_shown() -> None:
    text = (GOLDEN.parents[1] / "data/disk/pg_test_fsync-18.txt").read_text(encoding="utf-8")
    table = flush_table(view_of(build_card(flush_tests=parse_flush_tests(text))))
    assert table is not None
    assert [row[0].text for row in table.rows][1] == "fdatasync (default)"
    assert table.remark == (
        "open_sync with different write sizes, operations a second: 1 * 16kB open_sync write: 4,230;"
        " 2 * 8kB open_sync writes: 1,410; 4 * 4kB open_sync writes: 392; 8 * 2kB open_sync writes: 299; 16 * 1kB open_sync writes: 74.6."
        " fsync on non-write file descriptor, operations a second: write, fsync, close: 795; write, close, fsync: 708."
        " Non-sync'ed 8kB writes, operations a second: write: 586,000."
    )


def test_all_of_a_card_is_in_its_document() -> None:
    view = view_of(build_card())
    raw = msgspec.json.encode(disk_document([view]))
    document = msgspec.json.decode(raw, type=DiskDocument)
    assert (document.format, document.version) == ("pgdyno-disk", 1)
    assert document.cards[0].card == view.card
    assert {entry["key"] for entry in json.loads(raw)["cards"][0]["entries"]} == {key.value for key in DiskFigureKey}
    assert [one.rule for one in document.cards[0].findings] == [one.rule for one in view.findings]


def compared() -> list[CardView]:
    half = make_card(
        runs=make_runs(seed=7, level=lambda one, _: 0.5 if one.is_flushed else 1.0),
        name="/wal",
        look=make_look(path="/wal", device="/dev/nvme2n1", block_device="nvme2n1"),
        made_at=MADE_AT.replace(hour=10),
    )
    return [
        view_card(card) for card in (make_card(), half, make_card(runs=(), name="/other", tools={}, file_bytes=None))
    ]


def test_cards_side_by_side(golden: Callable[[Path, str], None]) -> None:
    views = compared()
    differences = compare_entries([view.entries for view in views])
    text = printed(print_terminal(build_card_comparison(views, differences), level=Level.STANDARD))
    golden(GOLDEN / "disk-comparison.txt", text)
    golden(GOLDEN / "disk-comparison.md", print_markdown(build_card_comparison(views, differences)))
    assert all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())
    document = msgspec.json.decode(
        msgspec.json.encode(comparison_document(views, differences)), type=DiskComparisonDocument
    )
    assert document.differences == differences
    assert len(document.cards) == 3


def test_another_size_or_time_is_said_beside_the_figures() -> None:
    def said(**others: Any) -> str:
        views = [view_of(make_card()), view_of(make_card(**others))]
        shown = build_card_comparison(views, compare_entries([view.entries for view in views]))
        return printed(print_terminal(shown, level=Level.STANDARD), width=400)

    long = tuple(
        msgspec.structs.replace(run, job=msgspec.structs.replace(run.job, runtime_s=60.0)) for run in make_runs()
    )
    assert "B was measured with a file of 64 GB and runs of 3 s, A with a file of 4 GB and runs of 3 s" in said(
        file_bytes=64 * 2**30
    )
    assert "B was measured with a file of 4 GB and runs of 60 s" in said(runs=long)
    assert "was measured with" not in said(file_bytes=int(3.9 * 2**30)), "cut by little"
    assert "was measured with" not in said(runs=(), file_bytes=None), "nothing to compare"


def test_processes_that_share_a_job_are_shown() -> None:
    def share(one: DiskJob) -> DiskJob:
        is_shared = one.pattern is Pattern.RANDOM_READ and one.depth == 64
        return msgspec.structs.replace(one, processes=2) if is_shared else one

    card = make_card(runs=tuple(msgspec.structs.replace(run, job=share(run.job)) for run in make_runs()))
    text = printed(print_terminal(build_cards([view_of(card)]), level=Level.STANDARD), width=80)
    assert "64 /2: 2 processes of fio" in " ".join(text.split())
    (row,) = [line for line in text.splitlines() if "random read 8kB" in line and " 64 " in line]
    assert " 64 /2 " in row
    assert max(map(len, text.splitlines())) <= 80


def test_many_cards_fit_the_screen() -> None:
    views = [view_card(make_card(runs=make_runs(seed=seed))) for seed in range(6)]
    text = printed(
        print_terminal(
            build_card_comparison(views, compare_entries([view.entries for view in views])), level=Level.STANDARD
        )
    )
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.count("random reads, 8 kB") == 2 + 5, "two tables of figures, and one of ratios for each other card"


def test_what_it_means_for_postgresql() -> None:
    said = " ".join(explain_for_postgresql(view_of(make_card(runs=(), flush_tests=make_card().flush_tests))))
    assert said.startswith("One flush at a time: 540/s, so one client commits at most 540 times a second.")
    assert "page" not in said, "nothing was read"
    assert not explain_for_postgresql(view_of(make_card(runs=(), flush_tests=())))


@pytest.mark.parametrize(
    ("values", "unit", "is_count", "value", "interval"),
    [
        ([12_000.0, 12_100.0, 11_900.0], "1/s", False, "12,000 IOPS", "[11,750 – 12,250]"),
        ([540.0, 541.0, 539.0], "1/s", True, "540.0 /s", "[537.5 – 542.5]"),
        ([250e6, 251e6, 249e6], "bytes/s", False, "250.0 MB/s", "[247.5 – 252.5]"),
        ([140.0, 141.0, 139.0], "us", False, "140.0 µs", "[137.5 – 142.5]"),
        ([1850.0, 1860.0, 1840.0], "us", False, "1.850 ms", "[1.825 – 1.875]"),
        ([10.0, 100.0, 1000.0], "1/s", False, "100 IOPS", "3 rounds differ too much"),
        ([540.0], "1/s", True, "540 /s", "measured once"),
    ],
)
def test_figures_with_their_units(values: list[float], unit: str, is_count: bool, value: str, interval: str) -> None:
    shown = show_figure(estimate_geometric_mean(values, unit=unit), is_count=is_count)
    assert (shown.value, shown.interval) == (value, interval)


def test_a_card_without_a_disk_below_it() -> None:
    card = make_card(look=make_look(filesystem="tmpfs", device="tmpfs", block_device=None), clock=None)
    text = printed(print_terminal(build_cards([view_of(msgspec.structs.replace(card, runs=()))]), level=Level.STANDARD))
    assert "critical: This is memory, not a disk" in text


def test_the_tail_of_the_clocks_histogram() -> None:
    """In microseconds, and in nanoseconds, as version 19 counts."""
    rows = [
        ({"1": 962, "2": 37, "1024": 1, "2048": 0}, "us", "; 3.80 % of 1,000 readings took longer than 1 µs, and none longer than 1.02 ms"),
        ({"31": 999, "1023": 0, "2047": 1}, "ns", "; 0.10 % of 1,000 readings took longer than 1 µs, and none longer than 2.05 µs"),
        ({"511": 10, "1023": 990, "2047": 0}, "ns", "; 0 % of 1,000 readings took longer than 1 µs, and none longer than 1.02 µs"),
        ({}, "us", ""),
    ]  # fmt: skip
    for counts, unit, tail in rows:
        document = build_card_document(view_of(build_card(clock=ClockTest(read_ns=24.5, counts=counts, unit=unit))))
        words = " ".join(printed(print_terminal(document, level=Level.DETAIL)).split())
        assert f"reading the clock takes 24.5 ns{tail}" in words
        assert bool(tail) == ("longer than 1 µs" in words)
