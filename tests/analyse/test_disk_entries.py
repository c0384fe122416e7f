"""The figures that people ask of a disk."""

from __future__ import annotations

import pytest

from pgdyno.analyse.disk.card import estimate_card
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey, list_entries
from pgdyno.plan.disk import Pattern
from pgdyno.record.device.disk_card import DiskCard
from tests.disk_cards import BYTES_PER_S, FLUSH_S, IOPS, JOBS, PAGE, make_card, make_runs


def entries_of(card: DiskCard) -> dict[DiskFigureKey, DiskFigure]:
    return {entry.key: entry for entry in list_entries(card, estimate_card(card))}


def test_the_names_that_people_know() -> None:
    found = entries_of(make_card(runs=make_runs(noise=0)))
    assert list(found) == list(DiskFigureKey)
    assert found[DiskFigureKey.RANDOM_READ].estimate.value == pytest.approx(IOPS)
    assert found[DiskFigureKey.RANDOM_READ].how == "from depth 16 on"
    assert found[DiskFigureKey.SEQUENTIAL_WRITE].estimate.value == pytest.approx(BYTES_PER_S)
    assert found[DiskFigureKey.FLUSHES].estimate.value == pytest.approx(1 / (FLUSH_S + PAGE / BYTES_PER_S))
    assert found[DiskFigureKey.FLUSH_TEST].estimate.value == 540.0
    assert found[DiskFigureKey.FLUSH_TEST].estimate.low is None
    assert found[DiskFigureKey.READ_P99].estimate.value == pytest.approx(500 * 4)


def test_without_fio_pg_test_fsync_says_how_fast_flushes_are() -> None:
    found = entries_of(make_card(runs=()))
    assert set(found) == {DiskFigureKey.FLUSHES, DiskFigureKey.FLUSH_TEST}
    assert found[DiskFigureKey.FLUSHES].estimate.value == 540.0
    assert found[DiskFigureKey.FLUSHES].how == "pg_test_fsync, fdatasync"
    assert not entries_of(make_card(runs=(), flush_tests=()))


def test_without_wal_random_pages_stand_for_it() -> None:
    jobs = [one for one in JOBS if one.pattern is not Pattern.WAL]
    found = entries_of(make_card(runs=make_runs(jobs=jobs)))
    assert found[DiskFigureKey.FLUSHES].how == "random pages"
    assert DiskFigureKey.WAL not in found
