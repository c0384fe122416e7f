"""`compare --dsn --apply-with`, as a user runs it: settings that take a restart, by a script that restarts a real server."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.record.store import open_record
from tests.cli.experiments import THINKING
from tests.cli.test_compare_given import GENTLE, LOAD, SECRET, dsn, on_15, on_18, run, start
from tests.run.test_given_command import run_command_of, write_command
from tests.tools.pgcluster import PORT, Cluster, running_given
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
VALUES = ("--set", "shared_buffers=16MB", "--set", "shared_buffers=24MB")


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running_given(request.param) as made:
        write_command(made)
        run_command_of(made, "shared_buffers=4096\n")
        yield made


def compare(cluster: Cluster, *words: str) -> tuple[str, ...]:
    apply = ("--apply-with", f"{cluster.root}/apply.sh")
    return ("compare", "--dsn", dsn(cluster, "bench"), *VALUES, *apply, "--duration", "1s", *words)


def thinking(folder: Path) -> tuple[str, ...]:
    """Let clients think, so that the fewest rounds that can decide anything do."""
    (folder / "thinking.sql").write_text(THINKING)
    near = ("--detect", "90%", "--confidence", "50%")
    return ("--workload", "thinking.sql", "--scale", "1", "--clients", "1", "--warm-up", "0s", *near)


def calls(cluster: Cluster) -> list[str]:
    path = cluster.root / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [line for line in lines if line != "called"]


def buffers(cluster: Cluster) -> str:
    return cluster.sql("SELECT setting FROM pg_settings WHERE name = 'shared_buffers'")


@on_15
def test_a_setting_that_takes_a_restart_is_compared(cluster: Cluster, tmp_path: Path) -> None:
    calls(cluster)
    code, _, said = run(tmp_path, *compare(cluster, *LOAD))
    assert (code, "nothing was changed" in said, "add --yes" in said) == (2, True, True), said
    assert "shared_buffers of the whole server changes in turn: 2048, 3072; now 4096" in said
    assert (calls(cluster), buffers(cluster)) == ([], "4096")
    code, out, said = run(tmp_path, *compare(cluster, *thinking(tmp_path), "--minutes", "1", "--yes", "--json"))
    assert code == 0, said
    assert json.loads(out)["experiment"]["design"] == "paired"
    (record,) = (tmp_path / "pgdyno-records").glob("*")
    trials = open_record(record).read_trials()
    expected = {"shared_buffers=16MB": "2048", "shared_buffers=24MB": "3072"}
    assert {trial.planned.variants for trial in trials} == {(name,) for name in expected}
    for trial in trials:
        assert trial.values["shared_buffers"] == expected[trial.planned.variants[0]]
    called = calls(cluster)
    assert (len(called) > len(trials), called[-1]) == (True, "shared_buffers=4096")
    assert set(called[:-1]) == {f"shared_buffers={value}" for value in expected.values()}
    assert buffers(cluster) == "4096"
    assert not list((tmp_path / "state").rglob("changes.json"))


@on_18
def test_a_setting_that_a_reload_changes_alternates_if_asked(cluster: Cluster, tmp_path: Path) -> None:
    reload = tmp_path / "reload.sh"
    psql = f"{cluster.bin_directory}/psql -X -q -h {cluster.root} -p {PORT} -U postgres -d postgres"
    reload.write_text(f"""#!/bin/sh
set -eu
while IFS== read -r name value; do
    {psql} -c "ALTER SYSTEM SET $name = '$value'" -c 'SELECT pg_reload_conf()' > /dev/null
    echo "$name=$value" >> {tmp_path}/calls
done
""")
    reload.chmod(0o755)
    settings = ("--set", "commit_delay=10", "--set", "commit_delay=20", "--apply-with", "./reload.sh")
    words = ("compare", "--dsn", dsn(cluster, "bench"), *settings, *LOAD, *GENTLE, "--design", "switchback")
    code, out, said = run(tmp_path, *words, "--minutes", "0.75", "--detect", "50%", "--yes", "--json")
    assert code == 0, said
    assert json.loads(out)["experiment"]["design"] == "switchback"
    (record,) = (tmp_path / "pgdyno-records").glob("*")
    slices = [json.loads(line) for line in (record / "trials/0001/slices.jsonl").read_text().splitlines()]
    assert {one["arm"] for one in slices if one["phase"] == "round"} == {"commit_delay=10", "commit_delay=20"}
    called = (tmp_path / "calls").read_text().splitlines()
    assert (len(called) > len(slices), called[-1]) == (True, "commit_delay=0")
    assert cluster.sql("SHOW commit_delay") == "0"


@on_18
def test_a_study_file_names_it_beside_itself_and_ctrl_c_puts_back(cluster: Cluster, tmp_path: Path) -> None:
    calls(cluster)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies/apply.sh").symlink_to(cluster.root / "apply.sh")
    study = tmp_path / "studies/mine.toml"
    server = dsn(cluster, "bench").replace(f" password={SECRET}", "")
    study.write_text(
        f"""
[server]
kind = "given"
dsn = "{server}"
apply = "./apply.sh --with 'an argument'"
[data]
scale = 1
[[workload]]
name = "select-only"
clients = 1
rate_tps = 100.0
[trials]
duration = "1s"
warm_up = "0s"
[experiment]
minutes = 5.0
[[variant]]
name = "as it is"
[[variant]]
settings = {{ shared_buffers = "24MB" }}
"""
    )
    child = start(tmp_path, "run", "studies/mine.toml", "--yes")
    path = cluster.root / "calls"
    assert wait_until(
        lambda: (path.exists() and "shared_buffers=3072" in path.read_text()) or child.poll() is not None, within_s=600
    )
    assert child.poll() is None, child.communicate()
    child.send_signal(signal.SIGINT)
    _, said = child.communicate()
    assert child.returncode == 130, said
    called = calls(cluster)
    assert (called[-1], set(called)) == ("shared_buffers=4096", {"shared_buffers=3072", "shared_buffers=4096"})
    assert buffers(cluster) == "4096"
    assert not list((tmp_path / "state").rglob("changes.json"))


@on_18
def test_kill_9_and_restore_by_the_command(cluster: Cluster, tmp_path: Path) -> None:
    calls(cluster)
    child = start(tmp_path, *compare(cluster, *LOAD, *GENTLE, "--minutes", "5", "--yes"))
    assert wait_until(lambda: (cluster.root / "calls").exists() or child.poll() is not None)
    assert child.poll() is None, child.communicate()
    child.kill()
    child.communicate()
    (journal,) = (tmp_path / "state").rglob("changes.json")
    assert SECRET not in journal.read_text()
    code, out, said = run(tmp_path, "restore")
    assert (code, "restore --dsn" in out) == (1, True), out + said
    # It is at work until the last of its programs has ended, also without its shell.
    code, out, said = run(tmp_path, "restore", "--dsn", dsn(cluster, "bench"))
    assert (code, "put back to 4096" in out) == (0, True), out + said
    assert (buffers(cluster), list((tmp_path / "state").rglob("c*"))) == ("4096", [])
    assert run(tmp_path, "clean", "--dsn", dsn(cluster, "bench"), "--yes")[0] == 0


@on_18
def test_what_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    calls(cluster)
    chosen = ("--dsn", dsn(cluster, "bench"), *LOAD, "--yes")
    program = f"{cluster.root}/apply.sh"
    for words, said in (
        (("compare", *VALUES, "--apply-with", program), "--apply-with goes with a given server"),
        (("compare", *VALUES, *chosen, "--apply-with", "./none.sh"), "there is no program ./none.sh"),
        (("compare", *VALUES, *chosen, "--apply-with", "'"), "quotes come in pairs"),
        (("compare", *VALUES, *chosen, "--apply-with", program, "--design", "switchback"), "takes a restart"),
        (("compare", *VALUES, *chosen), "a command of yours may do it: --apply-with"),
        (
            ("compare", "--mode", "simple", "--mode", "prepared", *chosen, "--apply-with", program),
            "nothing for the command",
        ),
    ):
        code, _, err = run(tmp_path, *words)
        assert (code, said in re.sub(r"\s+", " ", err)) == (2, True), err
    assert calls(cluster) == []
