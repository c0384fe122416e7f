"""Files that connection strings name: what uses them may work in another folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.flow.given.bench import _with_whole_paths
from pgdyno.flow.hosts import find_dsns
from pgdyno.run.given.conninfo import check_files, name_whole_paths
from pgdyno.spec.read import read_study
from tests.rows import check_rows

NO_STRINGS = (
    ("hots=db1", "did you mean host?"),
    ("postgresql://db1/x?sslmod=require", "did you mean sslmode?"),
    ("postgresq://db1/x", "for example"),
    ("password=half other=half", "for example"),
    ("host='db1", "for example"),
)
STUDY = """
[server]
kind = "given"
dsn = "passfile=pw"
replicas = ["passfile=pw host=db2,db3"]

[poolers.pool]
dsn = "passfile=../pw port=6432"

[poolers.other]
dsn = "port=1"

[[workload]]
name = "tpcb-like"
endpoint = "pool"
"""


def test_relative_ones_start_at_a_folder() -> None:
    def name(row: tuple[str, str]) -> None:
        assert name_whole_paths(row[0], Path("/studies")) == row[1]

    whole = (
        ("host=db1 sslrootcert=ca.crt", "host=db1 sslrootcert=/studies/ca.crt"),
        ("postgresql://db1/x?sslcert=c/me.crt", "dbname=x host=db1 sslcert=/studies/c/me.crt"),
        ("passfile='my pass' user=bench", "user=bench passfile='/studies/my pass'"),
    )
    unchanged = (
        "",
        "service=bench",
        "postgresql://db1/x?sslrootcert=/etc/ca.crt",
        "sslmode=verify-full sslrootcert=system",
        "sslkey=pkcs11:mine",
        "host=ca.crt dbname=sslcert",
    )
    check_rows((*whole, *((one, one) for one in unchanged)), name)


def test_a_keyword_that_libpq_does_not_know_is_not_repeated() -> None:
    def refuse(row: tuple[str, str]) -> None:
        with pytest.raises(SpecError, match="what names it is no connection string") as refused:
            name_whole_paths(row[0], Path(), of="what names it")
        assert row[1] in refused.value.hint
        assert not {"hots", "sslmod", "half", "other"} & set(
            re.findall(r"\w+", f"{refused.value.detail} {refused.value.hint}")
        )

    check_rows(NO_STRINGS, refuse)


def test_all_strings_of_a_study_start_at_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    study = _with_whole_paths(read_study(path), path.parent)
    named = (study.server.dsn, *study.server.replicas)
    assert named == (f"passfile={tmp_path}/pw", f"passfile={tmp_path}/pw host=db2,db3") == find_dsns(str(path))
    assert [one.dsn for one in study.poolers.values()] == [f"passfile={tmp_path}/../pw port=6432", "port=1"]


def test_a_file_that_is_not_in_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").touch()
    for there in (
        "sslrootcert=ca.crt",
        "sslrootcert=system",
        "sslcert=/none/me.crt",
        "sslkeylogfile=keys",
        "host=none",
    ):
        check_files(there, tmp_path, of="what names it")
    with pytest.raises(SpecError, match="what names it: there is no file c/me\\.crt") as refused:
        check_files("sslrootcert=ca.crt sslcert=c/me.crt", tmp_path, of="what names it")
    assert refused.value.detail == f"sslcert: looked for {tmp_path}/c/me.crt"
