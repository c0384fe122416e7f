"""Scripts for a database that is only read: what they must not say, wherever a comment seems to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.run.given.writing_words import refuse_writing
from tests.rows import check_rows

WRITING = (
    "BEGIN READ WRITE",
    "begin isolation level read committed, read\n write",
    "SET default_transaction_read_only = off",
    "ALTER /* x */ SYSTEM SET work_mem = '5MB'",
    "ALTER -- x\nSYSTEM SET work_mem = '5MB'",
    "BEGIN READ/* /* x */ */WRITE",
    "BEGIN READ /* a /* b */ c */ WRITE",
    "BEGIN READ -- /*\n/* -- */ WRITE",
    "BEGIN READ /* READ -- */\n/* READ */ -- READ\nWRITE",
    "/* READ -- */\nBEGIN READ WRITE",
    f"{'READ /* ' * 3000} {'*/' * 3000} WRITE",
    "SELECT $$--$$; BEGIN READ WRITE",
    "SELECT E'it\\'s', '--'; ALTER SYSTEM SET work_mem = '5MB'",
    "SELECT $$/*$$; BEGIN READ WRITE; SELECT $$*/$$",
    "-- not READ WRITE",
)
READING = (
    "SELECT 1 AS read, 2 AS write",
    "-- reads, and writes nothing",
    "BEGIN READ ONLY; SELECT 'write'",
    f"-- READ {'-' * 200}",
    "READ /* " * 3000,
    "SELECT 1 AS read /* a /* b */ c */, 2 AS write",
    "SELECT 1 AS read; -- WRITE",
    "-- what it may read */ write",
)


def test_scripts_that_may_write(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"

    def check(row: tuple[str, bool]) -> None:
        text, is_refused = row
        script.write_text(f"{text};\n")
        if not is_refused:
            refuse_writing(str(script), "app")
            return
        with pytest.raises(SpecError, match="may write") as caught:
            refuse_writing(str(script), "app")
        assert "comments count, too" in caught.value.detail

    check_rows([*((text, True) for text in WRITING), *((text, False) for text in READING)], check)
