"""`pgdyno bench` where the kernel is short of the huge pages that were derived: it goes on without them, and says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.experiments import THINKING, finished_trials
from tests.cli.program import Bench
from tests.sysctls import machine_settings, needs_proc_sys, read_sysctl
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, needs_proc_sys]

# Memory that is in pieces cannot be had to order: the real kernel is asked for 20 pages where it is to make no more.
PROGRAM = """
import sys
from pgdyno.run.change import sysctl

write, freely = sysctl.write_value, int(sys.argv.pop(1))

def write_limited(path, value, *, name):
    global freely
    if name == "vm.nr_hugepages" and int(value) > 20:
        freely -= 1
        value = value if freely >= 0 else "20"
    write(path, value, name=name)

sysctl.write_value = write_limited
# Its helpers are forked, and its empty clusters copied, as those of the tests' other programs are.
import subprocess
from pgdyno.run.cluster.server import Server
from tests.forks import HelperPopen
from tests.homes import copied_initdb

subprocess.Popen, Server.initdb = HelperPopen, copied_initdb
from pgdyno.cli.main import run_program
run_program()
"""
ASKED = (
    "--quick",
    "--workload",
    "thinking.sql",
    "--scale",
    "2",
    "--clients",
    "2",
    "--duration",
    "1s",
    "--warm-up",
    "0s",
    "--set",
    "shared_buffers=256MB",
)


def run_until(bench: Bench, record: str, number: int, *arguments: str, freely: int) -> str:
    """Run until a trial of a record is finished, on a kernel that makes all pages only the first times; return what was said."""
    (bench.folder / "thinking.sql").write_text(THINKING)

    def is_finished() -> bool:
        return any(one["planned"]["number"] == number for one in finished_trials(bench.folder / record))

    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(freely), *bench.words(*arguments)],
        cwd=bench.folder,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "400", "PYTHONPATH": str(Path(__file__).parents[2])},
        text=True,
    ) as process:
        assert wait_until(lambda: process.poll() is not None or is_finished(), within_s=600)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130, stderr
    return stderr


def read_derived(bench: Bench) -> tuple[dict[str, str], dict[str, Any]]:
    """The derived variant's kernel settings, and what the record says of the pool."""
    record = json.loads((bench.folder / "out" / "record.json").read_text())
    (derived,) = (one for one in record["study"]["variant"] if one["name"] == "derived")
    (pool,) = (one for one in record["tuned"]["settings"] if one["name"] == "vm.nr_hugepages")
    return derived.get("sysctl", {}), pool


@pytest.mark.parametrize(("freely", "failed"), [(0, 0), (2, 2)], ids=["when it is derived", "in the first trial"])
def test_derived_huge_pages_give_way(bench: Bench, freely: int, failed: int) -> None:
    with machine_settings("vm.nr_hugepages"):
        before = read_sysctl("vm.nr_hugepages")
        said = run_until(bench, "out", 2, "bench", *ASKED, "--out", "out", freely=freely)
        assert read_sysctl("vm.nr_hugepages") == before
    sysctls, pool = read_derived(bench)
    assert f"the kernel made only 20 of {pool['value']} huge pages, so vm.nr_hugepages stays as it is" in said
    assert said.count("failed: the kernel did not take vm.nr_hugepages") == failed
    assert "vm.nr_hugepages" not in sysctls
    assert pool["left_out"].startswith(f"the kernel made only 20 of {pool['value']} huge pages")
    assert "nr_hugepages" not in (bench.folder / "out" / "study.toml").read_text().partition("\n\n")[2]
    assert len(list((bench.folder / "out" / "trials").glob("*.cut-*"))) >= failed


def test_rounds_with_huge_pages_are_followed_by_none_without(bench: Bench) -> None:
    with machine_settings("vm.nr_hugepages"):
        # When they are derived and tried, for the trial that is only observed, and in the first round.
        said = run_until(bench, "out/clients", 1, "bench", *ASKED, "--out", "out", freely=4)
    sysctls, pool = read_derived(bench)
    assert f"the comparison ends early: the kernel made only 20 of {pool['value']} huge pages" in said
    assert sysctls["vm.nr_hugepages"] == pool["value"]
    assert pool["left_out"] is None
    assert list_finished_rounds(bench) == {0, 1}
    with machine_settings("vm.nr_hugepages"):
        run_until(bench, "out", 8, "resume", "out", freely=1000)
    assert list_finished_rounds(bench) >= {0, 1, 2}
    assert read_derived(bench) == (sysctls, pool)


def list_finished_rounds(bench: Bench) -> set[int]:
    """The rounds of the comparison that have finished trials; 0 is what is only observed."""
    return {one["planned"]["round"] for one in finished_trials(bench.folder / "out")}
