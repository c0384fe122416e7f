"""`compare --dsn` of settings that belong to the whole server, as a user runs it: asked for, put back, and never left unsaid."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ready_program import Program
from tests.run.test_privileges import pooling
from tests.tools.pgcluster import PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
SECRET = "kanari"
LOAD = ("--workload", "select-only", "--scale", "1", "--clients", "1", "--warm-up", "0s")
# A load that leaves the CPUs to the tests beside it.
GENTLE = ("--rate", "100")
VALUES = ("--set", "commit_delay=10", "--set", "commit_delay=20")
# What SQL says of a server differs between the versions; what follows from it does not, and is tested on one of them.
on_15 = pytest.mark.parametrize("cluster", [15], indirect=True)
on_18 = pytest.mark.parametrize("cluster", [18], indirect=True)


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE bench LOGIN CREATEDB; CREATE ROLE chief LOGIN SUPERUSER")
        yield made


def dsn(cluster: Cluster, user: str) -> str:
    return f"host={cluster.root} port={PORT} user={user} dbname=postgres password={SECRET}"


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """The program with a journal of its own: root's lies below /var/lib."""
    state = folder / "state"
    state.mkdir(exist_ok=True)
    return Program(
        words,
        var_lib=None if os.geteuid() else state,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "XDG_STATE_HOME": str(state), "COLUMNS": "200"},
    )


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    child = start(folder, *words)
    out, err = child.communicate()
    return child.returncode, out, err


def compare(cluster: Cluster, *words: str, user: str = "chief") -> tuple[str, ...]:
    return ("compare", "--dsn", dsn(cluster, user), *VALUES, *LOAD, *words)


def conf(cluster: Cluster) -> bytes:
    return (cluster.data / "postgresql.auto.conf").read_bytes()


def wait_for_load(cluster: Cluster, child: subprocess.Popen[str], *, before: bytes) -> None:
    """Wait until the load runs, and settings of the server are changed."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench' AND datname LIKE '%_run'"
    while conf(cluster) == before or cluster.sql(query) == "0":
        assert child.poll() is None, child.communicate()
        time.sleep(0.05)


@on_18
def test_a_role_with_exactly_the_printed_grants(cluster: Cluster, tmp_path: Path) -> None:
    """Its plans show that each variant was in force; at this rate there is no verdict."""
    before = conf(cluster)
    variants = [f"enable_indexscan={on} enable_bitmapscan={on}" for on in ("on", "off")]
    settings = [word for one in variants for word in ("--set", one)]
    words = ("compare", "--dsn", dsn(cluster, "bench"), *settings, *LOAD, "--design", "switchback", "--minutes", "0.75")
    words = (*words, "--rate", "10")
    code, _, said = run(tmp_path, *words, "--yes")
    hint = re.search(r"in database postgres, a superuser gives it by: (.*)", said)
    assert (code, hint is not None) == (2, True), said
    assert "this role may not change enable_bitmapscan, enable_indexscan of the server and put it back" in said
    assert hint is not None
    for grant in hint[1].split("; "):
        code, _, said = run(tmp_path, *words, "--yes")
        assert (code, grant in said) == (2, True), said
        cluster.sql(grant)
    code, _, said = run(tmp_path, *words)
    assert (code, "nothing was changed" in said, "add --yes" in said) == (2, True, True), said
    assert not (tmp_path / "pgdyno-records").exists()
    code, out, said = run(tmp_path, *words, "--yes", "--json")
    assert code == 0, said
    ((plan,),) = (one["plans"] for one in json.loads(out)["experiment"]["comparisons"])
    with_index, without = plan["groups"]
    assert with_index["node"] == "Index Scan using pgbench_accounts_pkey on pgbench_accounts"
    assert without["arms"] == [variants[1].replace(" ", ", ")]
    assert "Index" not in without["node"]
    (record,) = (tmp_path / "pgdyno-records").glob("*")
    slices = [json.loads(line) for line in (record / "trials/0001/slices.jsonl").read_text().splitlines()]
    assert {one["counts"]["cpu_s"] for one in slices} == {None}
    assert (conf(cluster), cluster.sql("SHOW enable_indexscan")) == (before, "on")
    assert not list((tmp_path / "state").rglob("changes.json"))


@on_15
def test_a_server_that_does_not_tell_which_it_is_is_not_changed(cluster: Cluster, tmp_path: Path) -> None:
    """Not for want of a right: no GRANT gives it."""
    before, chief = conf(cluster), dsn(cluster, "chief")
    apply = ("tune", "--dsn", chief, "--host", "r8g.2xlarge", "--apply", "--allow", "busy", "--yes")
    switchback = compare(cluster, "--design", "switchback", "--yes")
    cluster.sql("ALTER FUNCTION pg_catalog.pg_control_system() RENAME TO pg_control_elsewhere")
    try:
        for words in (switchback, (*switchback, "--apply-with", "true"), apply):
            code, _, said = run(tmp_path, *words)
            assert (code, "settings of this server cannot be changed and put back" in said) == (2, True), said
            assert "pg_control_system(): function pg_catalog.pg_control_system() does not exist" in said
    finally:
        cluster.sql("ALTER FUNCTION pg_catalog.pg_control_elsewhere() RENAME TO pg_control_system")
    assert conf(cluster) == before
    assert not list((tmp_path / "state").rglob("changes.json"))


# What a superuser's sessions choose for themselves unless told otherwise, and what acts slowly: by trials in turn.
@pytest.mark.parametrize(
    ("cluster", "asked", "design"),
    [
        (18, ("--set", "commit_delay=10", "--set", "commit_delay=20", "--design", "switchback"), "switchback"),
        (15, ("--set", "bgwriter_delay=20ms", "--set", "bgwriter_delay=30ms"), "paired"),
    ],
    indirect=["cluster"],
)
def test_ctrl_c_puts_back(cluster: Cluster, tmp_path: Path, asked: tuple[str, ...], design: str) -> None:
    name = asked[1].partition("=")[0]
    cluster.sql(f"ALTER SYSTEM SET {name} = '15'")
    cluster.sql("SELECT pg_reload_conf()")
    before = conf(cluster)
    chief = dsn(cluster, "chief")
    child = start(tmp_path, "compare", "--dsn", chief, *asked, *LOAD, *GENTLE, "--minutes", "5", "--yes")
    wait_for_load(cluster, child, before=before)
    assert run(tmp_path, "restore", "--dsn", chief)[0] == 3
    child.send_signal(signal.SIGINT)
    _, said = child.communicate()
    assert child.returncode == 130, said
    assert f"design = {design}" in said
    assert conf(cluster) == before
    assert not list((tmp_path / "state").rglob("changes.json"))
    cluster.sql(f"ALTER SYSTEM RESET {name}")
    cluster.sql("SELECT pg_reload_conf()")


@on_15
def test_after_a_kill_nothing_else_runs_until_restore(cluster: Cluster, tmp_path: Path) -> None:
    before = conf(cluster)
    chief = dsn(cluster, "chief")
    child = start(tmp_path, *compare(cluster, "--design", "switchback", *GENTLE, "--minutes", "5", "--yes"))
    wait_for_load(cluster, child, before=before)
    child.kill()
    child.communicate()
    # The server ends its sessions by itself.
    own = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgdyno%'"
    assert wait_until(lambda: cluster.sql(own) == "0")
    (journal,) = (tmp_path / "state").rglob("changes.json")
    assert SECRET not in journal.read_text()
    code, _, said = run(tmp_path, *compare(cluster, "--yes"))
    assert (code, "pgdyno restore --dsn 'user=chief" in said) == (3, True), said
    code, out, said = run(tmp_path, "check", "--dsn", chief)
    assert (code, "journal of changes has commit_delay" in out) == (1, True), said
    code, out, said = run(tmp_path, "restore")
    assert (code, "commit_delay of" in out, "restore --dsn 'user=chief" in out) == (1, True, True), out + said
    assert conf(cluster) != before
    code, out, said = run(tmp_path, "restore", "--dsn", chief)
    assert (code, "put back to 0" in out) == (0, True), out + said
    assert (conf(cluster), cluster.sql("SHOW commit_delay")) == (before, "0")
    assert "nothing to undo" in run(tmp_path, "restore", "--dsn", chief)[1]
    assert run(tmp_path, "clean", "--dsn", chief, "--yes")[0] == 0


@on_18
def test_a_pooler_and_a_setting_that_takes_a_restart(cluster: Cluster, tmp_path: Path) -> None:
    cluster.sql("CREATE ROLE plain LOGIN CREATEDB")
    with pooling(cluster, mode="transaction", database="*") as folder:
        pooled = f"host={folder} port={PORT} user=plain dbname=postgres"
        words = ("compare", "--dsn", pooled, *VALUES, *LOAD, "--design", "switchback", "--yes")
        code, _, said = run(tmp_path, *words)
    assert (code, "through a pooler" in said) == (2, True), said
    code, _, said = run(tmp_path, "compare", "--dsn", dsn(cluster, "chief"), "--set", "shared_buffers=1GB", *LOAD)
    assert (code, "takes a restart, which pgdyno does not do to a given server" in said) == (2, True), said
