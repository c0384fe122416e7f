"""The test of the clock is run once while the machine is up. What it says was captured, since each run takes a second."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.record.device.pg_tests import parse_clock_test
from pgdyno.run.device.clock_test import TimedClock, time_clock

SAID = Path(__file__).parents[1] / "data/disk/pg_test_timing-18.txt"
TEST = parse_clock_test(SAID.read_text(encoding="utf-8"))


class Replay:
    """A home's file, and a folder with a program that says the captured words and counts how often."""

    def __init__(self, folder: Path) -> None:
        self.kept, self._runs, self.program = folder / "clock.json", folder / "runs", folder / "pg_test_timing"
        self._runs.touch()
        self.program.write_text(f"#!/bin/sh\necho run >>{self._runs}\ncat {SAID}\n", encoding="utf-8")
        self.program.chmod(0o755)

    @property
    def run_count(self) -> int:
        return self._runs.read_text(encoding="utf-8").count("run\n")

    def time(self, *, source: str | None = "tsc", keeps: bool = True) -> TimedClock:
        return time_clock(self.program.parent, source=source, user=None, kept_in=self.kept if keeps else None)


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    return Replay(tmp_path)


def test_a_later_command_takes_what_an_earlier_one_measured(replay: Replay) -> None:
    first, later = replay.time(), replay.time()
    assert first.test == later.test == TEST
    assert (first.is_kept, later.is_kept, replay.run_count) == (False, True, 1)
    assert later == msgspec.structs.replace(first, is_kept=True)


def test_it_is_measured_anew_once_anything_is_not_as_it_was(replay: Replay) -> None:
    replay.time()
    replay.time(source="hpet")
    assert replay.run_count == 2, "another clock source"
    replay.program.write_text(f"{replay.program.read_text(encoding='utf-8')}# newer\n", encoding="utf-8")
    replay.time(source="hpet")
    assert replay.run_count == 3, "another program"
    kept = msgspec.json.decode(replay.kept.read_bytes())
    kept["subject"]["boot_id"] = "another"
    replay.kept.write_bytes(msgspec.json.encode(kept))
    replay.time(source="hpet")
    assert replay.run_count == 4, "before the machine was started"
    for damaged in (b"", b"\xff", b"{}"):
        replay.kept.write_bytes(damaged)
        assert not replay.time().is_kept
        assert replay.time().is_kept


def test_who_keeps_nothing_measures_each_time(replay: Replay) -> None:
    replay.time(keeps=False)
    replay.time(keeps=False)
    assert (replay.run_count, replay.kept.exists()) == (2, False)


def test_where_it_cannot_be_kept_it_is_measured_each_time(replay: Replay) -> None:
    replay.kept = replay.kept.parent / "absent" / "clock.json"
    assert [replay.time().is_kept for _ in range(2)] == [False, False]
