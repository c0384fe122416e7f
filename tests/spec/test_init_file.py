"""The SQL file that makes the data of a study: what of it psql is to run, and what is refused."""

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


REFUSED = (
    ("SELECT 1;\n\\connect other\n", "line 2: backslash commands are not run"),
    ("  \\i more.sql\n", "line 1: backslash commands are not run"),
    ("COPY t FROM stdin;\n1\n\\.\n\\! rm file\n", "line 4: backslash commands are not run"),
    ("COPY t FROM '/tmp/rows';\n\\c other\n", "line 2: backslash commands are not run"),
    ("\\restricted\n", "line 1: backslash commands are not run"),
    ("", "is empty"),
)


def test_what_is_refused_is_named_with_its_line(tmp_path: Path) -> None:
    @each_row(REFUSED)
    def refuse(text: str, said: str) -> None:
        with pytest.raises(SpecError) as caught:
            list(read_init_lines(write(tmp_path, text)))
        assert said in caught.value.fact

    refuse()
    with pytest.raises(SpecError, match="cannot read the SQL file"):
        hash_init_file(tmp_path / "none.sql")
