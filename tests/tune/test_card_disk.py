"""A disk with its card: what was measured stands before what was taken for it, and says so."""

from __future__ import annotations

import pytest

from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.tune.disk.card import clock_of, with_card
from pgdyno.tune.types import Origin
from tests.disk_cards import BYTES_PER_S, FLUSH_S, IOPS, PAGE, make_card, make_runs, planted_iops
from tests.report.build_tuning import build_subject

TAKEN = build_subject().disk


def test_every_figure_is_the_cards() -> None:
    disk = with_card(TAKEN, make_card(runs=make_runs(noise=0)), file="a.json")
    assert disk.flush_s.value == pytest.approx(FLUSH_S + PAGE / BYTES_PER_S)
    assert disk.random_read_iops.value == disk.random_write_iops.value == pytest.approx(IOPS)
    assert disk.read_bytes_per_s.value == disk.write_bytes_per_s.value == pytest.approx(BYTES_PER_S)
    assert disk.read_s
    assert disk.read_s.value == pytest.approx(0.0005)
    assert disk.read_s.how == "disk card of 2026-11-21, a.json, mean of one at a time"
    figures = (disk.flush_s, disk.random_read_iops, disk.random_write_iops, disk.read_bytes_per_s)
    assert {known.origin for known in figures} == {Origin.MEASURED}
    assert disk.flush_s.how == "disk card of 2026-11-21, a.json, sequential pages"
    assert disk.random_read_iops.name == TAKEN.random_read_iops.name
    assert disk.card == "disk card of 2026-11-21, a.json"
    assert (disk.kind, disk.free_bytes, disk.devices) == (TAKEN.kind, TAKEN.free_bytes, TAKEN.devices)


def test_what_was_not_measured_stays() -> None:
    disk = with_card(TAKEN, make_card(runs=()), file="a.json")
    assert disk.flush_s.value == pytest.approx(1 / 540)
    assert disk.random_read_iops == TAKEN.random_read_iops
    assert disk.read_s is None
    assert with_card(TAKEN, make_card(runs=(), flush_tests=()), file="a.json") == TAKEN


def test_a_burst_is_said() -> None:
    def level(one: DiskJob, number: int) -> float:
        is_spent = number > 0 and planted_iops(one) * one.block_bytes > 60e6 and one.pattern is not Pattern.WAL
        return 0.4 if is_spent else 1.0

    disk = with_card(TAKEN, make_card(runs=make_runs(level=level)), file="a.json")
    assert disk.random_read_iops.how.endswith(", which fell meanwhile: less may last")


def test_a_card_without_a_clock() -> None:
    assert clock_of(make_card(), file="a.json") is None
