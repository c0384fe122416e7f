"""Records that the user does not name: none is in the way of another."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from pathlib import Path

import pytest

from pgdyno.cli.terminal.display import Display
from pgdyno.errors import SpecError
from pgdyno.flow.records.find import find_record
from pgdyno.record.new_record import choose_record
from tests.cli.program import Bench
from tests.records import copy_record


def test_records_that_begin_within_one_second_have_names_of_their_own(tmp_path: Path) -> None:
    now = dt.datetime(2026, 11, 28, 8, 8, 29, tzinfo=dt.UTC)
    made = []
    for name in ("bench", "bench", "compare", "bench"):
        made.append(choose_record(name, at=now, folder=tmp_path))
        made[-1].mkdir()
    assert [path.name for path in made] == [
        "20261128-080829-bench",
        "20261128-080829-2-bench",
        "20261128-080829-compare",
        "20261128-080829-3-bench",
    ]


def test_the_newest_record_is_the_one_that_began_last_wherever_that_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # In Berlin the hour from 2 to 3 comes twice on this day.
    times = {
        "a": "2026-10-25T02:50:00+02:00",
        "b": "2026-10-25T02:10:00+01:00",
        "c": "2026-10-25T07:00:00+09:00",
        "d": "not a time",
    }
    for name, at in times.items():
        copy_record(tmp_path / name, at=at)
    assert find_record(None, tmp_path, ui=Display(quiet=True)).path.name == "b"
    assert capsys.readouterr().err == ""


def test_a_record_that_cannot_be_read_is_left_out_with_a_remark(tmp_path: Path) -> None:
    folder = tmp_path / "pgdyno-records"
    copy_record(folder / "good")
    copy_record(folder / "bad")
    (folder / "bad" / "record.json").write_text("{")
    copy_record(Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")))
    done = Bench(tmp_path).read("show")
    assert done.returncode == 0
    assert "report: pgdyno-records/good/report.html" in done.stdout
    first, second = done.stderr.splitlines()
    assert first.startswith("note: left out: pgdyno-records/bad/record.json is damaged: ")
    assert second == "note: left out: pgdyno-records/caf\\xe9 has a name that is not UTF-8"
    shutil.rmtree(folder / "good")
    with pytest.raises(SpecError, match="is damaged"):
        find_record(None, folder, ui=Display(quiet=True))
