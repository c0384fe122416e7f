"""`pgdyno bench` with derived settings as users run it: answered, told in every form, resumed, and nothing stays changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from pgdyno.report.jsonreport import make_schema
from pgdyno.run.journal import Journal
from tests.cli.program import Bench, some_bench

pytestmark = pytest.mark.cluster

# Fixed on both sides: the set would make a machine of many users give it a quarter of its memory.
SMALL = ("--scale", "2", "--clients", "2", "--duration", "3s", "--warm-up", "0s", "--set", "shared_buffers=64MB")
WATCHED = ("vm/nr_hugepages", "vm/dirty_bytes", "vm/dirty_ratio", "vm/dirty_background_bytes", "vm/overcommit_memory")


@pytest.fixture
def bench() -> Iterator[Bench]:
    with some_bench() as made:
        yield made


def look_at_kernel() -> dict[str, str]:
    return {name: (Path("/proc/sys") / name).read_text() for name in WATCHED}


def test_layers_are_told_in_every_form_and_everything_is_undone(bench: Bench) -> None:
    before = look_at_kernel()
    # What the set has of the planner and the WAL only: few arms.
    fixed = [f"--set={text}" for text in ("work_mem=4MB", "maintenance_work_mem=64MB", "autovacuum_work_mem=-1",
             "effective_cache_size=4GB", "max_connections=100", "max_parallel_workers=8", "max_worker_processes=8",
             "max_parallel_workers_per_gather=2", "max_parallel_maintenance_workers=2")]  # fmt: skip
    asked = ("--layers", "--workload", "select-only", "--minutes", "2", *SMALL, *fixed, "--out", "out")
    done = bench.run("bench", *asked)
    assert done.returncode == 0, done.stderr
    assert look_at_kernel() == before
    assert Journal().read() == ()
    bench.assert_nothing_runs()
    assert "what each layer gave here" in done.stdout
    document = json.loads((bench.folder / "out" / "report.json").read_text())
    jsonschema.validate(document, make_schema())
    tuned = document["tuned"]
    assert {"planner", "WAL and checkpoints"} <= {layer["name"] for layer in tuned["layers"]}
    assert all(len(layer["gains"]) == 1 for layer in tuned["layers"])
    assert {setting["name"]: setting["left_out"] for setting in tuned["settings"]}["shared_buffers"]
    assert tuned["sentences"][0].startswith("derived")
    for form in ("report.md", "report.html"):
        words = (bench.folder / "out" / form).read_text()
        assert "What each layer gave here" in words
        assert "random_page_cost" in words
    # The record alone says it all again, whatever would be derived by then.
    shutil.rmtree(bench.home)
    assert bench.run("report", "out").returncode == 0
    assert json.loads((bench.folder / "out" / "report.json").read_text()) == document


def test_a_set_with_a_setting_that_is_none_is_refused_before_loading(bench: Bench) -> None:
    done = bench.run("bench", "--set", "shared_bufers=1GB", "--out", "out")
    assert done.returncode == 2
    assert "shared_bufers" in done.stderr
    assert not (bench.folder / "out").exists()
