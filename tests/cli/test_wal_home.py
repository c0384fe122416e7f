"""`--wal-home` as users run it: pg_wal lies there in every trial, also after kill -9, and nothing of it stays."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pgdyno.analyse.series import ChartKind
from pgdyno.flow.report import compose_report
from pgdyno.record.samples.files import read_os_samples
from pgdyno.record.store import open_record
from pgdyno.record.transactions.slices import SliceWriter
from pgdyno.report.sections.comparison.variants import describe_variants
from pgdyno.run.measured_load import _Observers
from tests.cli.experiments import QUICK_COMMITS, SLOW_COMMITS, THINKING, finished_trials, read_report, write_study
from tests.cli.program import GENTLE, SMALL, Bench
from tests.loops import mounted_loop, needs_root

IS_ROOT = os.geteuid() == 0


@pytest.fixture
def wal(bench: Bench) -> Path:
    folder = bench.folder / "wal"
    folder.mkdir()
    return folder


def clusters(wal: Path) -> set[str]:
    """The clusters that have WAL there."""
    return {path.parent.name for path in wal.glob("pgdyno-wal/*/[0-9A-F]*")}


@pytest.mark.cluster
def test_trials_before_and_after_a_kill(bench: Bench, wal: Path) -> None:
    record = bench.folder / "out"
    begin = ["bench", *SMALL, *GENTLE, "--rounds", "2", "--workload", "simple-update", "--wal-home", "wal"]
    with bench.started(*begin, "--out", "out", stops_at=_Observers.follow) as process:
        assert process.stands_still((record / "trials/0001/os.jsonl").exists), process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=600)
    assert clusters(wal) == {"pg_wal"}
    with bench.started("resume", "out", stops_at=_Observers.follow) as process:
        assert process.stands_still((record / "trials/0002/os.jsonl").exists), process.communicate()
        assert clusters(wal) == {"pg_wal"}
        link = bench.home / "work/data/pg_wal"
        assert link.resolve() == wal / "pgdyno-wal/pg_wal"
        process.go_on()
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    assert [trial["status"] for trial in finished_trials(record)] == ["finished"] * 2
    assert list(wal.iterdir()) == []
    assert f'wal_home = "{wal}"' in (record / "study.toml").read_text()


@pytest.mark.cluster
def test_what_a_kill_has_left_is_removed_by_clean(bench: Bench, wal: Path) -> None:
    record = bench.folder / "out"
    words = ("bench", *SMALL, *GENTLE, "--workload", "select-only", "--wal-home", "wal", "--out", "out")
    with bench.started(*words, stops_at=_Observers.follow) as run:
        assert run.stands_still((record / "trials/0001/os.jsonl").exists), run.communicate()
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=600)
    assert clusters(wal) == {"pg_wal"}
    done = bench.run("clean", "--yes")
    assert done.returncode == 0, done.stderr
    assert list(wal.iterdir()) == []


@pytest.mark.cluster
def test_a_comparison(bench: Bench, wal: Path) -> None:
    study = write_study(
        bench,
        f'name = "quick"\nsettings = {{ {QUICK_COMMITS} }}',
        f'name = "slow"\nsettings = {{ {SLOW_COMMITS} }}',
        experiment='design = "switchback"\ndetect = "90%"\n',
        confidence="50%",
        warm_up="0s",
        duration="1s",
    )
    words = ("run", study, "--out", "out", "--wal-home", str(wal))
    with bench.started(*words, stops_at=SliceWriter.add) as process:
        assert process.stands_still(), process.communicate()
        assert clusters(wal) == {"pg_wal"}
        process.go_on()
        _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert read_report(bench.folder / "out")["experiment"]["design"] == "switchback"
    assert list(wal.iterdir()) == []


@pytest.mark.cluster
def test_variants_on_several_disks(bench: Bench, wal: Path) -> None:
    with mounted_loop(bench.folder, "xfs", 6400 << 20) if IS_ROOT else contextlib.nullcontext() as loop:
        other = bench.folder / "other" if loop is None else loop.folder / "other"
        # It is tried beforehand, on a cluster of its own.
        (bench.folder / "thinking.sql").write_text(THINKING)
        study = write_study(
            bench,
            'name = "as it is"',
            'name = "apart"\nwal_home = "wal"',
            f'name = "elsewhere"\nhome = "{other}"\nchecksums = false',
            experiment='design = "live"\ndetect = "90%"\n',
            confidence="50%",
            warm_up="0s",
            duration="1s",
            load='scripts = ["thinking.sql"]',
        )
        with bench.started("run", study, "--out", "out", stops_at=SliceWriter.add) as process:
            assert process.stands_still(), process.communicate()
            assert all([*place.glob("slot-*")] for place in (bench.home / "work", wal / "pgdyno-wal", other / "work"))
            process.go_on()
            _, stderr = process.communicate()
        assert process.returncode == 0, stderr
        assert list(wal.iterdir()) == []
        assert [path.name for path in (other / "work").iterdir()] == ["sockets"]
        report = compose_report(open_record(bench.folder / "out")).report
        record = report.record
        assert [place.data_disk.path for place in record.places] == [str(bench.home)] * 2 + [str(other)]
        assert [place.wal.path for place in record.places] == [str(bench.home), str(wal), str(other)]
        of = {name: record.at((name,)) for name in ("as it is", "apart", "elsewhere")}
        if loop is not None:
            assert of["elsewhere"].data_device == loop.name != of["apart"].data_device == of["as it is"].data_device
            busy = {
                trial.record.planned.variants: trial.shares.get("disk_util_ratio")
                for workload in report.analysis.workloads
                for trial in workload.trials
                if trial.record.planned.is_observed
            }
            assert busy["elsewhere",] is not None
        assert record.plan.experiment is not None
        told = describe_variants(record, record.plan.experiment)
        shown = {
            trial.record.planned.variants: trial.record.values
            for one in report.analysis.workloads
            for trial in one.trials
        }
        # PostgreSQL's built-in value is off, and it lists what differs from that.
        assert [shown[name,].get("data_checksums", "off") for name in of] == ["on", "on", "off"]
        assert told["as it is"].sets == ("checksums = on",)
        assert told["apart"].content.startswith(
            f"wal_home = {wal}, checksums = on, {of['apart'].preflight.wal.filesystem} on "
        )
        assert told["elsewhere"].content.startswith(
            f"home = {other}, checksums = off, {of['elsewhere'].host.data_disk.filesystem} on "
        )


@needs_root
@pytest.mark.cluster
def test_every_trial_writes_to_the_disk_and_the_report_names_it(bench: Bench) -> None:
    with mounted_loop(bench.folder, "xfs", 1300 << 20) as loop:
        words = [*SMALL, *GENTLE, "--rounds", "2", "--workload", "simple-update", "--wal-home", str(loop.folder)]
        done = bench.run("bench", *words, "--out", "out")
        assert done.returncode == 0, done.stderr
        assert f"pg_wal on xfs on {loop.device}" in done.stderr
        assert list(loop.folder.iterdir()) == []
        store = open_record(bench.folder / "out")
        report = compose_report(store).report
        assert report.record.wal_device == loop.name != report.record.data_device
        (workload,) = report.analysis.workloads
        for trial in workload.trials:
            assert "written of WAL disk" in {one.label for one in trial.charts[ChartKind.DISK_THROUGHPUT]}
            # A look before the load and one after it there always are.
            samples = read_os_samples(store.trial_dir(trial.record.planned.number))
            written = samples.frame[f"disk.{loop.name}/sectors_written"].drop_nulls()
            assert written[-1] > written[0]
            assert trial.shares["wal_disk_util_ratio"] is not None
        text = (bench.folder / "out/report.md").read_text()
        assert f"pg_wal on xfs on {loop.name}" in text
        assert "Disk of pg_wal" in text


@needs_root
def test_a_full_disk_is_refused_before_anything_is_loaded(bench: Bench) -> None:
    with mounted_loop(bench.folder, "xfs", 400 << 20) as loop:
        done = bench.refuse("bench", *SMALL, "--wal-home", str(loop.folder))
        assert done.returncode == 3
        assert "the WAL does not fit on its disk" in done.stderr
        assert list(loop.folder.iterdir()) == []
    assert not (bench.folder / "pgdyno-records").exists()


@pytest.mark.parametrize("command", ["bench", "compare", "sweep"])
def test_a_folder_that_is_not_there(bench: Bench, command: str) -> None:
    words = {"bench": [*SMALL], "compare": ["--set", "commit_delay=10"], "sweep": ["commit_delay=0,10"]}[command]
    done = bench.refuse(command, *words, "--wal-home", "missing")
    assert done.returncode == 3
    assert f"the WAL home {bench.folder / 'missing'} is no folder" in done.stderr
    assert not (bench.folder / "missing").exists()


def test_not_for_a_server_of_the_users(bench: Bench, wal: Path) -> None:
    for words in (
        ["bench", "--dsn", "host=nowhere"],
        ["check", "--dsn", "host=nowhere"],
        ["check", "--pgdata", "/nowhere"],
    ):
        done = bench.refuse(*words, "--wal-home", str(wal))
        assert done.returncode == 2
        assert "wal-home" in done.stderr
    assert list(wal.iterdir()) == []


def test_a_check_looks_at_the_folder(bench: Bench, wal: Path) -> None:
    def check(folder: str) -> dict[str, Any]:
        done = bench.read("check", "--home", str(bench.home), "--wal-home", folder, "--json")
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    assert check("wal")["facts"]["wal"]["path"] == str(wal)
    assert list(wal.iterdir()) == []
    (refused,) = (one for one in check("missing")["findings"] if "is no folder" in one["claim"])
    assert refused["severity"] == "spoils"
    with mounted_loop(bench.folder, "xfs", 400 << 20) if IS_ROOT else contextlib.nullcontext() as loop:
        if loop is not None:
            findings = check(str(loop.folder))["findings"]
            assert "wal-on-data-disk" not in {finding["rule"] for finding in findings}
            assert [one["rule"] for one in findings if one["rule"] == "loop-device"] == ["loop-device"]
            assert any("WAL does not fit on its disk" in one["claim"] for one in findings)
