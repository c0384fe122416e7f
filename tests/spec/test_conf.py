from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import SpecError
from pgdyno.spec.conf import read_conf


def read(folder: Path, text: str) -> dict[str, object]:
    (folder / "tuned.conf").write_text(text)
    return dict(read_conf("tuned.conf", folder))


def test_lines_as_postgresql_reads_them(tmp_path: Path) -> None:
    text = """
# a comment
shared_buffers = 2GB            # memory
  work_mem 64MB
max_wal_size='8GB'
random_page_cost=1.1#near
search_path = '"$user", public, it''s \\'mine\\' \\\\ \\061\\t'
pg_stat_statements.track = none
Work_Mem = 4MB
commit_delay = -1
track_io_timing on
empty = ''
"""
    assert read(tmp_path, text) == {
        "shared_buffers": "2GB",
        "work_mem": "4MB",
        "max_wal_size": "8GB",
        "random_page_cost": "1.1",
        "search_path": "\"$user\", public, it's 'mine' \\ 1\t",
        "pg_stat_statements.track": "none",
        "commit_delay": "-1",
        "track_io_timing": "on",
        "empty": "",
    }


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "\n# nothing\n") == {}


@pytest.mark.parametrize(
    "line",
    ["work_mem", "work_mem =", "work_mem = 4 MB", "= 4MB", "work_mem = 'open", "8kb = 3", "a == b", "a = 'b' c", "\\q"],
)
def test_a_line_that_is_no_setting_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(SpecError, match=r"tuned\.conf, line 2: not a setting") as caught:
        read(tmp_path, f"fsync = on\n{line}\n")
    assert caught.value.detail == line


def test_all_that_a_variant_cannot_have_is_said_at_once(tmp_path: Path) -> None:
    text = "data_directory = '/var/lib'\nwork_mem = 4MB\nPORT = 5433\ninclude_dir 'conf.d'\nprimary_conninfo = 'x'\n"
    with pytest.raises(SpecError, match="has lines that a variant cannot have") as caught:
        read(tmp_path, text)
    lines = caught.value.detail.splitlines()
    assert [line.split(":")[0] for line in lines] == ["line 1", "line 3", "line 4", "line 5"]
    assert "included files are not read" in lines[2]
    assert "password" in lines[3]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot read the variant none\.conf") as caught:
        read_conf("none.conf", tmp_path)
    (tmp_path / "marked.conf").write_text("work_mem = 8MB\n", encoding="utf-8-sig")
    assert read_conf("marked.conf", tmp_path) == {"work_mem": "8MB"}
    assert caught.value.detail == "No such file or directory"
    (tmp_path / "binary.conf").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match=r"cannot read the variant binary\.conf"):
        read_conf("binary.conf", tmp_path)
    with pytest.raises(SpecError, match="cannot read the variant"):
        read_conf(".", tmp_path)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Zl", "Zp"])))
def test_what_is_quoted_comes_back(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace("'", "''")
    folder = tmp_path_factory.getbasetemp()
    assert read(folder, f"application_name = '{quoted}' # said\n") == {"application_name": value}
