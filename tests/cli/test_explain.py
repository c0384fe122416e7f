"""`explain` on a real server: one hot row is found, the experiment proves it, and the first record says so from then on."""

from __future__ import annotations

import json

import pytest

from tests.cli.program import Bench

# Everybody waits for the one row that a sleeper holds: half as many clients do as much, whatever else the machine does.
_HOT_ROW = """BEGIN;
SELECT bbalance FROM pgbench_branches WHERE bid = 1 FOR UPDATE;
SELECT pg_sleep(0.005);
END;
"""


@pytest.mark.cluster
def test_what_limits_a_load_is_explained_confirmed_and_found_again(bench: Bench) -> None:
    (bench.folder / "hot.sql").write_text(_HOT_ROW)
    small = ("--scale", "1", "--clients", "8", "--duration", "6s", "--warm-up", "0s", "--rounds", "1")
    assert bench.run("bench", "--stock-only", "--workload", "hot.sql", *small, "--out", "first").returncode == 0

    before = bench.json("explain", "first")
    (workload,) = before["workloads"]
    assert workload["bottleneck"]["resource"] == "row and lock contention"
    assert before["explanations"][0]["certainty"] != "proven"
    assert "--confirm" in before["next_steps"][-1]["words"]

    refused = bench.run("explain", "first", "--workload", "hot")
    assert refused.returncode == 2
    assert "add --confirm" in refused.stderr
    unknown = bench.run("explain", "first", "--confirm", "--workload", "cold", "--home", str(bench.home))
    assert unknown.returncode == 2
    assert "no workload cold" in unknown.stderr

    done = bench.run(
        "explain", "first", "--confirm", "--minutes", "2", "--duration", "1s", "--yes", "--home", str(bench.home)
    )
    assert done.returncode == 0, done.stderr
    assert "clients=4 against clients=8" in done.stderr
    (asked,) = json.loads((bench.folder / "first" / "confirmations.json").read_text())["confirmations"]
    assert (bench.folder / "first" / asked["record"] / "report.html").exists()

    after = bench.json("explain", "first")
    assert after["workloads"][0]["bottleneck"]["certainty"] == "proven"
    assert "so it does limit this load" in after["explanations"][0]["evidence"]
    assert "so it does limit this load" in (bench.folder / "first" / "report.html").read_text()
    assert "proven: " in bench.run("explain", "first").stdout
