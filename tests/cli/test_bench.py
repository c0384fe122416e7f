from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import signal
from pathlib import Path

import pytest

from pgdyno.plan.disk import Pattern
from pgdyno.record.device.disk_card import keep_card, read_card
from pgdyno.run.host.clock import local_now
from tests.cli.program import GENTLE, SMALL, Bench
from tests.disk_cards import make_card, make_runs, seen_here
from tests.rows import check_rows
from tests.waiting import wait_until

DECLARED = """
[host]
instance = "c7g.2xlarge"
[host.disk]
volume = "gp3"
count = 8
size = "50GB"
raid = 10
chunk = "64kB"
volume_latency_ms = 1.85
[data]
scale = 2
[[workload]]
name = "select-only"
clients = 2
rate_tps = 200
[trials]
rounds = 1
duration = "1s"
warm_up = "0s"
"""

pytestmark = pytest.mark.cluster


def test_three_workloads_give_four_reports(bench: Bench) -> None:
    done = bench.run("bench", "--server", "embedded", *SMALL, *GENTLE, "--warm-up", "0s")
    assert done.returncode == 0, done.stderr
    for workload in ("tpcb-like", "simple-update", "select-only"):
        assert workload in done.stdout
        assert re.search(rf"^trial ./3 {workload} .* tps, mean latency ", done.stderr, re.MULTILINE)
    report = json.loads((bench.record / "report.json").read_text())
    assert len(report["workloads"]) == 3
    assert (bench.record / "report.md").read_text().startswith("#")
    html = (bench.record / "report.html").read_text()
    assert len(html.encode()) < 5_000_000
    bench.assert_nothing_runs()
    # Nothing of the record is lost by rendering it again, and rendering gives the same.
    before = {name: (bench.record / name).read_bytes() for name in ("report.md", "report.json")}
    assert bench.read("report").returncode == 0
    assert before == {name: (bench.record / name).read_bytes() for name in before}
    assert bench.read("show").stdout == bench.read("show", str(bench.record.relative_to(bench.folder))).stdout
    assert "3/3" in bench.read("list").stdout


REFUSED = [
    (("--workload", "tpcb"), 2, "there is no script tpcb"),
    (("--clients", "200"), 2, "do not fit into max_connections"),
    (("--duration", "-3s"), 2, "not a whole number of seconds"),
    (("--duration", "3kB"), 2, "not one of us, ms, s"),
    (("--mode", "fast"), 2, "one of simple, extended, prepared"),
    (("--scale", "900000"), 3, "does not fit on the disk"),
    (("--set", "shared_bufers=1GB"), 2, "PostgreSQL 18 has no setting shared_bufers"),
    (("--set", "shared_buffers"), 2, "NAME=VALUE"),
    (("--set", "fsync=on", "--set", "Fsync=off"), 2, "Fsync comes twice"),
    (("--server", "17"), 3, "PostgreSQL 17 is not installed"),
    (("--server", "new"), 2, "neither `embedded` nor a major version"),
    (("--server", "²"), 2, "neither `embedded` nor a major version"),
    (("--no-such-option",), 2, "there is no option --no-such-option"),
    (("--scale", "big"), 2, "--scale big: not a whole number"),
]


def test_what_cannot_be_meant(loaded: Bench) -> None:
    def check(row: tuple[tuple[str, ...], int, str]) -> None:
        arguments, code, words = row
        place = SMALL.index(arguments[0]) if arguments[0] in SMALL else len(SMALL)
        small = (*SMALL[:place], *SMALL[place + 2 :])
        done = loaded.refuse("bench", "--out", f"wrong-{abs(hash(arguments))}", *small, *arguments)
        assert done.returncode == code, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        loaded.assert_nothing_runs()

    check_rows(REFUSED, check)


def test_what_spoils_the_figures_is_called_so_before_and_after(loaded: Bench) -> None:
    """The clock was timed for the record before."""
    done = loaded.run("bench", *SMALL, *GENTLE, "--workload", "select-only", "--set", "fsync=off", "--out", "unsafe")
    assert done.returncode == 0, done.stderr
    assert "problem: Gives up durability: " in done.stderr
    found = json.loads((loaded.folder / "unsafe" / "report.json").read_text())["findings"]
    assert {one["severity"] for one in found if "fsync" in one["claim"]} == {"critical"}
    first, clock = (
        json.loads((loaded.folder / name / "record.json").read_text())["preflight"]["clock"]
        for name in ("first", "unsafe")
    )
    assert clock["is_read_ns_kept"]
    assert clock["read_ns"] == first["read_ns"] > 0
    assert clock["steal_ratio"] is None


def test_what_a_trial_will_show_is_written_before_it_and_held_against_the_disk_after(loaded: Bench) -> None:
    """With a card that the home keeps, of today: nothing is measured of the disk."""
    card = make_card(**seen_here(loaded.home), made_at=local_now().astimezone(dt.UTC))
    keep_card(card, loaded.home)
    options = ("--disk", "--workload", "tpcb-like", *SMALL, "--duration", "2s", "--rounds", "2")
    done = loaded.run("bench", *options, "--set", "shared_buffers=8MB", "--out", "joined")
    assert done.returncode == 0, done.stderr
    record = loaded.folder / "joined"
    assert read_card(record / "disk.json") == card
    assert "of the flush capacity of this disk" in " ".join(done.stdout.split())
    first, second = json.loads((record / "report.json").read_text())["workloads"][0]["trials"]
    assert {one["name"] for one in first["predictions"]} == {"blks_read_pages"}
    assert {one["name"] for one in second["predictions"]} >= {"blks_read_pages", "tps", "wal_fpi_count"}
    (reads,) = (one for one in second["predictions"] if one["name"] == "blks_read_pages")
    # What watches reads some pages, too: on a busy machine there are few transactions beside them.
    beside = 500 / second["transactions_count"]
    assert reads["value"] / 1.4 < reads["measured"] < reads["value"] / 0.6 + beside
    for number in ("0001", "0002"):
        written, began = (
            (record / "trials" / number / name).stat().st_mtime for name in ("predictions.json", "server.log")
        )
        assert written < began
    assert {use["kind"] for use in second["disk"]["uses"]} >= {"flushes", "WAL", "reads", "writes"}


def test_a_study_that_declares_its_disk_is_held_against_that(loaded: Bench) -> None:
    """Stopped while its disk was measured: resumed, it takes the card that there is by then."""
    study, out = loaded.folder / "declared.toml", loaded.folder / "declared"
    study.write_text(DECLARED)
    # Else a card that another test has measured would be taken.
    shutil.rmtree(loaded.home / "disks", ignore_errors=True)
    with loaded.started("run", str(study), "--out", "declared") as process:
        assert wait_until((out / "record.json").exists)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130, stderr
    assert not (out / "disk.json").exists()
    runs = make_runs(level=lambda one, _: 1.6 if one.pattern is Pattern.RANDOM_READ else 1.0)
    card = make_card(**seen_here(loaded.home), made_at=local_now().astimezone(dt.UTC), runs=runs)
    keep_card(card, loaded.home)
    done = loaded.run("resume", "declared")
    assert done.returncode == 0, done.stderr
    assert "Declared of this disk: 8 × gp3 of 50GB, in RAID 10, chunk 64kB, on c7g.2xlarge." in done.stdout
    document = json.loads((out / "report.json").read_text())
    standings = {one["key"]: one["standing"] for one in document["disk"]["efficiencies"]}
    assert standings["random_read_iops"] == "burst"
    assert document["disk"]["ceilings"]["random_read_iops"]["value"] == 12_000
    assert document["disk"]["ceilings"]["price"]["usd_per_month"] == pytest.approx(32.0)
    uses = {one["kind"]: one for one in document["workloads"][0]["trials"][0]["disk"]["uses"]}
    assert uses["reads"]["lasts"] == 12_000
    assert uses["I/Os through the instance"]["limit"] == 12_000


def test_a_wrong_script_is_told_before_loading(empty_bench: Bench) -> None:
    (empty_bench.folder / "broken.sql").write_text("SELECT no_such_column FROM pgbench_accounts;\n")
    done = empty_bench.run("bench", "--workload", "broken.sql", "--workload", "tpcb-like", *SMALL, "--out", "out")
    assert done.returncode == 2, done.stderr
    assert f"script {empty_bench.folder}/broken.sql fails" in done.stderr
    assert 'column "no_such_column" does not exist' in done.stderr
    assert not (empty_bench.folder / "out").exists()
    assert not list((empty_bench.home / "templates").iterdir())
    empty_bench.assert_nothing_runs()


def test_a_script_that_fails_on_the_data_is_told_in_pgbenchs_words(loaded: Bench) -> None:
    script = loaded.folder / "failing.sql"
    script.write_text("SELECT 1 / (2 - count(*)) FROM pgbench_branches;\n")
    done = loaded.run("bench", "--workload", str(script), *SMALL, "--out", "failing")
    assert done.returncode == 4
    assert "division by zero" in done.stderr
    assert re.search("^trial 1/1 failing .* failed: ", done.stderr, re.MULTILINE)
    loaded.assert_nothing_runs()
    trial = json.loads((loaded.folder / "failing" / "trials" / "0001" / "trial.json").read_text())
    assert trial["status"] == "failed"


def test_a_record_is_never_overwritten_and_that_is_said_at_once(loaded: Bench) -> None:
    before = (loaded.folder / "first" / "record.json").read_bytes()
    done = loaded.refuse("bench", *SMALL, "--out", "first")
    assert done.returncode == 3
    assert done.stderr.startswith("error: first exists already")
    assert (loaded.folder / "first" / "record.json").read_bytes() == before


def test_a_refused_setting_is_heard_of_before_loading(empty_bench: Bench) -> None:
    # Only the server knows the names of time zones.
    done = empty_bench.run("bench", *SMALL, "--set", "timezone=Nowhere", "--out", "out")
    assert done.returncode == 2
    assert 'invalid value for parameter "TimeZone": "Nowhere"' in done.stderr
    assert not (empty_bench.folder / "out" / "init" / "pgbench.stderr").exists()


def test_a_setting_that_is_ours_is_refused(loaded: Bench) -> None:
    done = loaded.refuse("bench", *SMALL, "--set", "data_directory=/var/lib/postgresql/15/main")
    assert done.returncode == 2
    assert "--set: data_directory is set by pgdyno" in done.stderr


def test_a_finished_record_is_only_reported_again(loaded: Bench) -> None:
    done = loaded.read("resume", "first")
    assert done.returncode == 0
    assert "nothing is left to measure" in done.stderr


def test_errors_are_json_when_asked_for(loaded: Bench) -> None:
    done = loaded.refuse("bench", "--scale", "0", "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["exit_code"] == 2
    assert error["fact"] == "--scale: 0 is not within 1 to 1000000"


def test_plan_list_and_clean(loaded: Bench) -> None:
    study = Path(__file__).parents[2] / "studies" / "tpcb-like.toml"
    plan = loaded.read_json("plan", str(study))
    assert plan["predicted_s"] > 300
    assert len([step for step in plan["plan"]["steps"] if step["kind"] == "trial"]) == 5
    assert loaded.read_json("list", "--records", ".")["records"]
    (loaded.folder / "empty").mkdir(exist_ok=True)
    assert "no records" in loaded.read("list", "--records", "empty").stdout
    cleaned = loaded.read_json("clean", "--yes")
    assert cleaned["removed"]
    assert cleaned["freed_bytes"] > 10_000_000
    assert loaded.read_json("clean", "--yes")["removed"] == []
