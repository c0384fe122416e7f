"""`pgdyno bench` with derived settings as users run it: answered, told in every form, resumed, and nothing stays changed."""

from __future__ import annotations

import json
import os
import shutil
import signal

import jsonschema
import pytest

from pgdyno.report.documents.report import make_schema
from tests.cli.experiments import THINKING
from tests.cli.program import Bench
from tests.sysctls import machine_settings, read_sysctl
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

# A machine of many users need not give it a quarter of its memory.
SMALL = ("--scale", "2", "--clients", "2", "--duration", "1s", "--warm-up", "0s", "--set", "shared_buffers=64MB")
# Few variants, yet two layers: what the set has of the WAL and of the kernel, which only root sets; of another account, of
# the WAL and of maintenance_work_mem. One layer alone would be the whole set, without a gain of its own.
SAME = [
    f"--set={text}"
    for text in (
        "work_mem=4MB",
        "autovacuum_work_mem=-1",
        "effective_cache_size=4GB",
        "max_connections=100",
        "max_parallel_workers=8",
        "max_worker_processes=8",
        "max_parallel_workers_per_gather=2",
        "max_parallel_maintenance_workers=2",
        "random_page_cost=4",
        "jit=on",
        *(("maintenance_work_mem=64MB",) if os.geteuid() == 0 else ()),
    )
]
WATCHED = ("vm.dirty_bytes", "vm.dirty_ratio", "vm.dirty_background_bytes", "vm.overcommit_memory")


def run_and_stop(bench: Bench) -> None:
    """Some trials of a bench that takes layers apart, until Ctrl-C; `machine_settings` sees that the kernel is as before."""
    before = {name: read_sysctl(name) for name in WATCHED}
    (bench.folder / "thinking.sql").write_text(THINKING)
    asked = ("bench", "--layers", "--workload", "thinking.sql", *SMALL, *SAME, "--out", "out")
    with bench.started(*asked) as process:
        # Of a trial under a changed kernel, which begins before the change does.
        assert wait_until(
            lambda: (
                (bench.folder / "out" / "trials" / "0004").exists()
                and (os.geteuid() != 0 or any(read_sysctl(name) != value for name, value in before.items()))
            ),
            within_s=600,
        )
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130, stderr
    assert "put them back: " in stderr or os.geteuid() != 0
    assert {name: read_sysctl(name) for name in WATCHED} == before


def test_layers_are_told_in_every_form_and_everything_is_undone(bench: Bench) -> None:
    with machine_settings(*WATCHED, alone=True):
        run_and_stop(bench)
    bench.assert_nothing_runs()
    document = bench.read_json("report", "out")
    jsonschema.validate(document, make_schema())
    tuned = document["tuned"]
    assert "WAL and checkpoints" in {layer["name"] for layer in tuned["layers"]}
    assert len(tuned["layers"]) > 1
    assert all(len(layer["gains"]) == 1 for layer in tuned["layers"])
    settings = {setting["name"]: setting for setting in tuned["settings"]}
    assert "--set" in settings["shared_buffers"]["left_out"]
    assert settings["checkpoint_timeout"]["left_out"] is None
    assert settings["checkpoint_timeout"]["stock"] == "300"
    assert tuned["sentences"][0].startswith("derived against stock on thinking")
    # Each trial had what its variant says, and pgdyno's own logging.
    for path in (bench.folder / "out" / "trials").glob("*/trial.json"):
        trial = json.loads(path.read_text())
        (variant,) = trial["planned"]["arms"]
        seen = {setting["name"]: setting["value"] for setting in trial["settings"]}
        assert ("checkpoint_timeout" in seen) == (variant not in {"stock", "without WAL and checkpoints"})
        assert seen["log_autovacuum_min_duration"] == "0"
        assert seen["shared_buffers"] == "8192"
    shown = bench.read("show", "out").stdout
    assert "Gain of each layer" in shown
    for form in ("report.md", "report.html"):
        words = (bench.folder / "out" / form).read_text()
        assert "Gain of each layer" in words
        assert settings["checkpoint_timeout"]["reason"].rstrip(".")[1:40] in words
    # The record alone says it all again, whatever would be derived by then.
    shutil.rmtree(bench.home)
    assert bench.read("report", "out").returncode == 0
    assert json.loads((bench.folder / "out" / "report.json").read_text()) == document


def test_a_set_with_a_setting_that_is_none_is_refused_before_loading(bench: Bench) -> None:
    done = bench.refuse("bench", "--set", "shared_bufers=1GB", "--out", "out")
    assert done.returncode == 2
    assert "shared_bufers" in done.stderr
    assert not (bench.folder / "out").exists()
