from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.load_access import LoadAccess, open_load_access
from pgdyno.run.cluster.script_check import check_scripts
from pgdyno.run.load.little_run import has_script_files
from pgdyno.spec.read import make_study
from tests.homes import installation_of, some_home
from tests.shared import hardened_umask

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("copied_initdb")]
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home() as made:
        yield made


def check(
    home: Home,
    folder: Path,
    *scripts: str,
    major: int = 18,
    mode: str = "simple",
    endpoint: str = "primary",
    access: LoadAccess | None = None,
) -> tuple[str, ...]:
    names = []
    for number, text in enumerate(scripts, start=1):
        (folder / f"own-{number}.sql").write_text(text)
        names.append(f"own-{number}.sql")
    workload = {"name": "own", "scripts": names, "mode": mode, "endpoint": endpoint}
    raw: dict[str, object] = {"server": {"standbys": 1}, "workload": [workload]}
    study = make_study(raw, source="test", folder=folder)
    plan = plan_study(study, MACHINE)
    assert has_script_files(plan.workloads)
    try:
        return check_scripts(
            installation=installation_of(major, home),
            home=home,
            data=study.data,
            workloads=plan.workloads,
            settings={},
            access=access,
            on_activity=lambda _: None,
        )
    finally:
        assert not home.data.exists()
        assert not (home.work / "script-check").exists()


@pytest.mark.parametrize("major", [18, 15])
def test_mistakes_are_refused_in_the_words_of_who_found_them(home: Home, tmp_path: Path, major: int) -> None:
    good = "\\set aid random(1, 100000 * :scale)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"
    with pytest.raises(SpecError) as caught:
        check(home, tmp_path, good, "SELECT no_such_column FROM pgbench_accounts;\n", major=major)
    assert caught.value.fact == f"script {tmp_path / 'own-2.sql'} fails"
    assert 'column "no_such_column" does not exist' in caught.value.detail


@pytest.mark.parametrize(
    ("text", "words", "mend"),
    [
        ("SELECT 1;\n\\frobnicate now\n", "own-1.sql:2: invalid command", "correct the script"),
        ("\\set a :b + 1\nSELECT :a;\n", 'undefined variable "b"', "with \\set;"),
        ("SELECT 1;\nSELECT :not_set;\n", "syntax error at or near", "with \\set;"),
        ("\\startpipeline\nSELECT 1;\n\\endpipeline\n", "simple query protocol", "extended or prepared"),
    ],
)
def test_what_no_data_can_mend(home: Home, tmp_path: Path, text: str, words: str, mend: str) -> None:
    with pytest.raises(SpecError) as caught:
        check(home, tmp_path, text)
    assert words in caught.value.detail
    assert mend in caught.value.hint
    assert str(home.root) not in caught.value.detail


def test_what_may_be_owed_to_the_little_data_is_only_told(home: Home, tmp_path: Path) -> None:
    of_large = "SELECT bbalance FROM pgbench_branches WHERE bid = 7\n\\gset\n"
    (remark,) = check(home, tmp_path, of_large, "SELECT pg_sleep(0.01);\n", mode="prepared")
    assert remark.startswith(f"{tmp_path / 'own-1.sql'} failed on a little data, where scale is 1: ")
    assert "expected one row, got 0" in remark


def test_a_script_may_spoil_the_cluster_that_it_is_tried_on(home: Home, tmp_path: Path) -> None:
    with hardened_umask():
        assert (
            check(home, tmp_path, "ALTER SYSTEM SET work_mem = '64kB';\nDROP TABLE IF EXISTS pgbench_history;\n") == ()
        )


def test_what_a_standby_refuses_is_refused_with_its_statement(home: Home, tmp_path: Path) -> None:
    reads = "SELECT abalance FROM pgbench_accounts WHERE aid = 1;\n"
    assert check(home, tmp_path, reads, endpoint="replicas") == ()
    writes = "SELECT 1;\nUPDATE pgbench_accounts SET abalance = 0 WHERE aid = 1;\n"
    with pytest.raises(SpecError) as caught:
        check(home, tmp_path, reads, writes, endpoint="replicas")
    assert caught.value.fact == f"script {tmp_path / 'own-2.sql'} cannot run on a standby"
    assert "cannot execute UPDATE in a read-only transaction" in caught.value.detail
    assert caught.value.detail.endswith("UPDATE pgbench_accounts SET abalance = 0 WHERE aid = 1;")


def test_scripts_for_load_hosts_have_the_rights_of_their_role(home: Home, tmp_path: Path) -> None:
    with open_load_access("127.0.0.1", None) as access:
        writes = (
            "UPDATE pgbench_accounts SET abalance = 0 WHERE aid = 1;\nCREATE TEMP TABLE IF NOT EXISTS own (x int);\n"
        )
        assert check(home, tmp_path, writes, access=access) == ()
        reads = "SELECT abalance FROM pgbench_accounts WHERE aid = 1;\n"
        assert check(home, tmp_path, reads, access=access, endpoint="replicas") == ()
        with pytest.raises(SpecError) as caught:
            check(home, tmp_path, "SELECT pg_read_file('PG_VERSION');\n", access=access)
    assert "permission denied" in caught.value.detail
    assert "pgdyno_load" in caught.value.hint
