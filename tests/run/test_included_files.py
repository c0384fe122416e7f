"""Which settings a server's files name, whatever way they include each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.run.given.state import _find_names


@pytest.mark.parametrize(
    "line",
    ["include_dir = confd", "include_dir 'confd'", "include_dir confd # more", "include = confd/own.conf"],
)
def test_files_that_are_included_are_read(tmp_path: Path, line: str) -> None:
    (tmp_path / "confd").mkdir()
    (tmp_path / "confd/own.conf").write_text("work_mem = 64MB\n")
    (main := tmp_path / "postgresql.conf").write_text(f"{line}\nwal_level = replica\n")
    assert {"wal_level", "work_mem"} <= _find_names([main])
