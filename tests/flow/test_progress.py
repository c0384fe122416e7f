"""What is said of records that are still to grow: by who holds them, how many trials they have, and whether they ended."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console, RenderableType

from pgdyno.conduct.progress import Stage, note_end, read_progress
from pgdyno.errors import SpecError
from pgdyno.flow.live.record import LiveRecord
from pgdyno.flow.records.journal import read_journal
from pgdyno.flow.records.list import view_records
from pgdyno.flow.report import compose_report
from pgdyno.record.store import RecordStore
from pgdyno.record.types import StudyRecord
from tests.cli.program import Bench
from tests.records import copy_record
from tests.report.build_comparison import build_paired


@contextmanager
def measuring(path: Path) -> Iterator[None]:
    """Another process holds the record as one that measures does."""
    program = f"""
from pathlib import Path
from pgdyno.record.store import RecordStore
with RecordStore(Path({str(path)!r})).locked():
    print("locked", flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        yield
        other.communicate("\n", timeout=600)


def shown(what: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200, no_color=True)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def broken_off(tmp_path: Path) -> RecordStore:
    """A study of two trials that has one."""
    path = copy_record(tmp_path / "pgdyno-records" / "one")
    shutil.rmtree(path / "trials" / "0002")
    return RecordStore(path)


def test_of_a_whole_record_nothing_is_said(tmp_path: Path) -> None:
    store = RecordStore(copy_record(tmp_path / "whole"))
    progress = read_progress(store)
    assert (progress.stage, progress.describe(store.path)) == (Stage.ENDED, "")
    assert view_records(tmp_path).records[0].status == "2/2"
    assert read_journal(tmp_path).journal.entries[0].progress == ""


def test_a_record_that_was_broken_off_says_how_to_go_on(broken_off: RecordStore) -> None:
    words = f"unfinished: 1 of 2 trials are finished; `pgdyno resume {broken_off.path}` continues"
    assert read_progress(broken_off).describe(broken_off.path) == words
    assert "1/2 unfinished" in shown(view_records(broken_off.path.parent).to_terminal())
    assert words in shown(read_journal(broken_off.path.parent).to_terminal())


def test_who_measures_is_seen_for_as_long_as_that_lasts(broken_off: RecordStore) -> None:
    with measuring(broken_off.path):
        assert read_progress(broken_off).describe(broken_off.path) == "being measured: 1 of 2 trials are finished"
        assert "1/2 being measured" in shown(view_records(broken_off.path.parent).to_terminal())
        (entry,) = read_journal(broken_off.path.parent).journal.entries
        assert entry.progress == "being measured: 1 of 2 trials are finished"
        shutil.rmtree(broken_off.path / "trials")
        with pytest.raises(SpecError, match="no trial that ended") as raised:
            compose_report(broken_off)
        assert raised.value.hint == "wait for the first: it is being measured"
    assert read_progress(broken_off).stage is Stage.UNFINISHED
    # To look is not to hold: the one that measures may begin at once.
    with broken_off.locked():
        assert broken_off.is_locked


@pytest.mark.parametrize("command", ["show", "report", "price", "explain"])
def test_whoever_reads_a_record_is_told_on_stderr(broken_off: RecordStore, command: str) -> None:
    bench = Bench(broken_off.path.parents[1])
    with measuring(broken_off.path):
        done = bench.run(command, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "note: pgdyno-records/one is being measured: 1 of 2 trials are finished\n"
    assert done.stdout.startswith("{")


def make_comparison(folder: Path, *, is_ended: bool | None) -> RecordStore:
    record: StudyRecord = msgspec.structs.replace(build_paired().record, is_ended=is_ended)
    store = RecordStore(folder)
    store.create(record, study_toml="")
    return store


def test_a_comparison_that_ended_before_its_plan_is_whole(tmp_path: Path) -> None:
    store = make_comparison(tmp_path / "c", is_ended=False)
    planned = len(store.read_record().plan.trials)
    told = read_progress(store).describe("c")
    assert told == f"unfinished: 0 of at most {planned} trials are finished; `pgdyno resume c` continues"
    note_end(store, is_ended=True)
    assert read_progress(store).describe("c") == ""
    assert view_records(tmp_path).records[0].status == "0"
    note_end(store, is_ended=False)
    assert view_records(tmp_path).records[0].status == f"0/{planned} unfinished"


def test_a_sweep_that_follows_counts_before_it_has_begun(tmp_path: Path) -> None:
    sweep = {"predicted_s": 120.0, "trial_count": 16}
    study = {"clients": [1, 2]}

    def change(record: dict[str, Any]) -> None:
        record.update(is_ended=False)
        record["study"]["scaling"] = study
        record["plan"]["sweep"] = sweep

    store = RecordStore(copy_record(tmp_path / "one", study=change))
    words = "unfinished: 2 of at most 18 trials are finished; `pgdyno resume one` continues"
    assert read_progress(store).describe("one") == words
    (course,) = json.loads(dict(LiveRecord(store).read())["course"])
    assert (course["finished_count"], course["planned_count"], course["left_s"]) == (2, 18, 120.0)
    # From then on its own trials count.
    begun = copy_record(store.scaling.path, study=lambda record: record.update(is_ended=False))
    shutil.rmtree(begun / "trials" / "0002")
    assert read_progress(store).counted == "3 of at most 4 trials are finished"
    courses = json.loads(dict(LiveRecord(store).read())["course"])
    assert [one["planned_count"] for one in courses] == [2, 2]
    assert sum(one["left_s"] for one in courses) == courses[1]["left_s"] > 0


def test_an_older_comparison_has_ended_where_it_has_a_report(tmp_path: Path) -> None:
    store = make_comparison(tmp_path / "c", is_ended=None)
    assert read_progress(store).stage is Stage.UNFINISHED
    (store.path / "report.json").write_text("{}")
    assert read_progress(store).stage is Stage.ENDED
