"""Whole commands on another machine: carried there, killed here in the middle, resumed, and their records at home."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.cli.experiments import QUICK_COMMITS, SLOW_COMMITS, THINKING, read_report, write_study
from tests.cli.program import run_here, some_bench
from tests.hosts import Sshd
from tests.sysctls import machine_settings, read_sysctl
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

SETTING = "vm.swappiness"
VALUE = 61


def test_a_study_that_is_killed_here_stops_there_and_goes_on(carried: Sshd) -> None:
    is_root = os.geteuid() == 0
    with some_bench(is_empty=False) as bench, machine_settings(SETTING):
        before = read_sysctl(SETTING)
        (bench.folder / "think.sql").write_text(THINKING)
        changed = f'sysctl = {{ "{SETTING}" = {VALUE} }}' if is_root else f"settings = {{ {QUICK_COMMITS} }}"
        reference = "" if is_root else f"settings = {{ {SLOW_COMMITS} }}"
        study = write_study(
            bench,
            f'name = "as it is"\n{reference}',
            f'name = "changed"\n{changed}',
            confidence="50%",
            experiment='design = "paired"\ndetect = "90%"',
            warm_up="0s",
            duration="1s",
            load='scripts = ["think.sql"]',
        )
        far = carried.home / "pgdyno-on"
        record = bench.folder / "mine"
        with bench.started("on", "db1", "run", study, "--home", str(bench.home), "--out", "mine") as process:
            assert wait_until(lambda: process.poll() is not None or (record / "record.json").exists())
            process.kill()
            process.wait()
        bench.assert_nothing_runs()
        # As if the link had been cut before the machine there heard of this record.
        shutil.rmtree(far, ignore_errors=True)

        # In the second trial or a later one, under a setting that is not the machine's own.
        def is_in_trial() -> bool:
            has_begun = any(far.glob("*/mine/trials/*[2-9]/os.jsonl"))
            return has_begun and (not is_root or read_sysctl(SETTING) == str(VALUE))

        for _ in range(20):
            with bench.started("resume", "mine", "--home", str(bench.home)) as process:
                assert wait_until(lambda process=process: process.poll() is not None or is_in_trial())
                assert process.poll() is None, process.communicate()
                listed = bench.read("list", "--records", ".").stdout
                process.kill()
                process.wait()
            bench.assert_nothing_runs()
            trials = far.glob(f"*/mine/trials/{4 * '[0-9]'}")
            # While this process slept, the trial may have ended, and no other one have begun.
            if cut := {path.name for path in trials if not (path / "trial.json").exists()}:
                break
        assert "being measured" in listed
        assert read_sysctl(SETTING) == before
        assert json.loads((record / "ssh.json").read_text())["ssh"] == "db1"
        assert not list((record / "trials").iterdir())
        with bench.started("resume", "mine") as process:
            assert wait_until(
                lambda: (
                    process.poll() is not None
                    or (
                        any(far.glob("*/mine/trials/*.cut-1"))
                        and any(far.glob(f"*/mine/trials/{4 * '[0-9]'}/os.jsonl"))
                    )
                )
            )
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
            assert process.returncode == 130, said
        # It is at home by now, and need not stay there.
        clean = ("on", "db1", "clean", "--home", str(bench.folder / "empty"))
        (folder,) = far.glob("*")
        listed = bench.run(*clean)
        assert (listed.returncode, f"{folder}: " in listed.stderr) == (2, True), listed.stderr
        assert (folder / "mine").exists()
        cleaned = bench.run(*clean, "--yes")
        assert (cleaned.returncode, "is sent back if it is resumed" in cleaned.stdout) == (0, True), cleaned.stderr
        assert not [*far.glob("*")]
        done = bench.run("resume", "mine")
        assert done.returncode == 0, done.stderr
        bench.assert_nothing_runs()
        assert read_sysctl(SETTING) == before
        # It is home, whole, and nothing but what is carried is left there.
        assert not [*far.glob("*/mine")]
        # The rounds that were cut in two are left out, and others follow.
        kept = {one.name for one in record.glob("trials/*")}
        assert {f"{name}.cut-1" for name in cut} <= kept
        assert not all((record / "trials" / name / "trial.json").exists() for name in kept)
        report = read_report(record)
        assert report["command"][1:4] == ["on", "db1", "run"]
        assert report["experiment"]["comparisons"][0]["questions"]
        assert "report: mine/report.html" in done.stdout
        assert "nothing is left to measure" in bench.read("resume", "mine").stderr
        # A round that is wanted in place of one that is damaged runs there, although only this folder has the record by now.
        last = max(record.glob("trials/*/trial.json"))
        last.unlink()
        again = bench.run("resume", "mine")
        assert again.returncode == 0, again.stderr
        assert "carry" not in again.stderr
        assert max(record.glob("trials/*/trial.json")) > last
        assert not [*far.glob("*/mine")]


def test_what_limits_a_load_there_is_confirmed_there(carried: Sshd) -> None:
    with some_bench(is_empty=False) as bench:
        (bench.folder / "thinking.sql").write_text(THINKING)
        small = (
            "--scale",
            "1",
            "--clients",
            "4",
            "--duration",
            "4s",
            "--warm-up",
            "0s",
            "--rounds",
            "1",
            "--out",
            "first",
        )
        made = bench.run("bench", "--server-host", "db1", "--stock-only", "--workload", "thinking.sql", *small)
        assert made.returncode == 0, made.stderr
        assert "explain first --confirm" in bench.read("explain", "first").stdout
        done = bench.run("explain", "first", "--confirm", "--minutes", "5", "--duration", "1s", "--yes", "--json")
        assert done.returncode == 0, done.stderr
        bench.assert_nothing_runs()
        record = bench.folder / "first"
        (asked,) = json.loads((record / "confirmations.json").read_text())["confirmations"]
        beside = record / asked["record"]
        assert (beside.name.endswith("-confirm-db1"), (beside / "report.html").exists()) == (True, True)
        assert json.loads((beside / "ssh.json").read_text()) == {
            "ssh": "db1",
            "folder": None,
            "record": beside.name,
            "load_hosts": {},
        }
        evidence = json.loads(done.stdout)["explanations"][0]["evidence"]
        assert "): clients=8 in place of clients=4: TPS +" in evidence
        # On another machine than the record's, it ends before it measures anything.
        told = json.loads((record / "record.json").read_text())
        told["host"]["cpu_model"] = "of another machine"
        (record / "record.json").write_text(json.dumps(told))
        refused = bench.run("explain", "first", "--confirm", "--out", "other", "--yes")
        assert (refused.returncode, "made on another machine, disk or kernel" in refused.stderr) == (3, True)
        assert ((bench.folder / "other").exists(), [*carried.home.glob("pgdyno-on/*")]) == (False, [])


def test_errors_there_name_the_machine(carried: Sshd) -> None:
    with some_bench() as bench:
        left = [*carried.home.glob("pgdyno-on/*")]
        done = bench.run("bench", "--server-host", "db1", "--set", "shared_bufers=1GB", "--quick")
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error on db1: ")
        assert not bench.records
        assert [*carried.home.glob("pgdyno-on/*")] == left


def test_what_cannot_be_done_there_is_refused_here(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out.sql").write_text("SELECT 1;\n")
    for words, fact in {
        ("bench", "--server-host=db1", "--live"): "--live does not work with a command on another machine",
        ("compare", "--server-host", "db1", "--junit", "x.xml"): "--junit does not work",
        ("bench", "--server-host", "db1", "--out", "/tmp/mine"): "--out lies outside of this folder",
        ("on", "db1", "bench", "--workload", "../out.sql@3"): "../out.sql lies outside of this folder",
        ("on", "db1", "explain"): "`explain` is not run on another machine",
        ("on", "-oProxyCommand=x", "bench"): "there is no option -o",
        ("bench", "--server-host", "-oProxyCommand=x"): "ssh '-oProxyCommand=x' is no destination",
    }.items():
        done = run_here(words, cwd=tmp_path / "in")
        assert done.returncode == 2, words
        assert fact in done.stderr, (words, done.stderr)
        assert not [*(tmp_path / "in").iterdir()]
