"""The SQL file that makes the data of a study: what of it psql is to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.spec.init_file import hash_init_file, read_init_lines
from tests.rows import each_row

DUMP = """--
-- PostgreSQL database dump
--

\\restrict {key}

CREATE TABLE public.paths (path text);
COPY public.paths (path) FROM stdin;
\\\\server\\share
\\N
\\connect is a row here
\\.

CREATE FUNCTION public.one() RETURNS text LANGUAGE sql AS $$ SELECT E'\\\\' $$;
\\unrestrict {key}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "schema.sql"
    path.write_text(text)
    return path


def test_a_dump_is_taken_with_its_rows_whatever_its_key(tmp_path: Path) -> None:
    one = write(tmp_path, DUMP.format(key="one"))
    lines = b"".join(read_init_lines(one))
    assert lines.decode() == DUMP.replace("\\restrict {key}", "--").replace("\\unrestrict {key}", "--")
    first = hash_init_file(one)
    assert hash_init_file(write(tmp_path, lines.decode())) == first
    assert hash_init_file(write(tmp_path, DUMP.format(key="two"))) == first
    assert hash_init_file(write(tmp_path, DUMP.replace("\\N", "N").format(key="one"))) != first


# Only a pair around everything else is pg_dump's.
KEPT = (
    "INSERT INTO t VALUES ('\n\\restrict x\n');\n\\unrestrict x\n",
    "\\restrict x\nSELECT 1;\n",
    "\\restrict x\nSELECT 1;\n\\unrestrict y\n",
    "\\restrict x\nSELECT 1;\n\\unrestrict x\nSELECT 2;\n",
    "\\restrict x\nSELECT 1; \\unrestrict x\n",
    "SELECT 1;\n\\unrestrict x\n",
)


def test_other_lines_stay_as_they_are(tmp_path: Path) -> None:
    @each_row(KEPT)
    def keep(text: str) -> None:
        assert b"".join(read_init_lines(write(tmp_path, text))).decode() == text

    keep()


def test_a_file_that_cannot_be_read_or_is_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is empty"):
        list(read_init_lines(write(tmp_path, "")))
    with pytest.raises(SpecError, match="cannot read the SQL file") as caught:
        hash_init_file(tmp_path / "none.sql")
    assert "--init" in caught.value.hint
