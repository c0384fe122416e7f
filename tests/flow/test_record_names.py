"""Records that the user does not name: none is in the way of another."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from pgdyno.conduct import workspace


def test_records_that_begin_within_one_second_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = dt.datetime(2026, 11, 28, 8, 8, 29, tzinfo=dt.UTC)
    monkeypatch.setattr(workspace, "local_now", lambda: now)
    made = []
    for name in ("bench", "bench", "compare", "bench"):
        made.append(workspace.choose_record(name, folder=tmp_path))
        made[-1].mkdir()
    assert [path.name for path in made] == [
        "20261128-080829-bench",
        "20261128-080829-2-bench",
        "20261128-080829-compare",
        "20261128-080829-3-bench",
    ]
