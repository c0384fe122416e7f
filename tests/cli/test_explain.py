"""`explain` on a real server: clients that think are found, an experiment proves it, and the record says so from then on."""

from __future__ import annotations

import json

import pytest

from tests.cli.experiments import THINKING
from tests.cli.program import Bench


@pytest.mark.cluster
def test_what_limits_a_load_is_explained_confirmed_and_found_again(bench: Bench) -> None:
    # The server waits for its clients most of the time: twice as many do twice as much, whatever else the machine does.
    (bench.folder / "thinking.sql").write_text(THINKING)
    small = ("--scale", "1", "--clients", "4", "--duration", "6s", "--warm-up", "0s", "--rounds", "1")
    made = bench.run("bench", "--stock-only", "--workload", "thinking.sql", *small, "--out", "first")
    assert made.returncode == 0, made.stderr

    before = bench.read_json("explain", "first")
    (workload,) = before["workloads"]
    assert workload["bottleneck"]["resource"] == "client and network"
    assert before["explanations"][0]["certainty"] != "proven"
    assert "explain first --confirm" in before["next_steps"][-1]["words"]

    for wrong, said in (
        (("--workload", "thinking"), "add --confirm"),
        (("--live",), "add --confirm"),
        (("--confirm", "--listen", "0.0.0.0"), "add --live"),
        (("--confirm", "--workload", "cold"), "no workload cold"),
        (("--confirm", "--duration", "soon"), "for example --duration 5s"),
    ):
        refused = bench.refuse("explain", "first", *wrong)
        assert refused.returncode == 2
        assert said in refused.stderr
    assert not (bench.folder / "first" / "confirmations.json").exists()

    short = ("--minutes", "5", "--duration", "1s", "--yes", "--live", "--home", str(bench.home))
    done = bench.run("explain", "first", "--confirm", *short)
    assert done.returncode == 0, done.stderr
    assert "clients=8 against clients=4" in done.stderr
    assert "http://127.0.0.1:" in done.stderr
    (asked,) = json.loads((bench.folder / "first" / "confirmations.json").read_text())["confirmations"]
    assert (bench.folder / "first" / asked["record"] / "report.html").exists()

    after = bench.read_json("explain", "first")
    evidence = after["explanations"][0]["evidence"]
    assert evidence.startswith("experiment on client and network ("), done.stderr
    assert "): clients=8 in place of clients=4: TPS +" in evidence
    # That more clients do more speaks for it, and other limits would answer alike: it is no proof.
    assert "which fits, and would with some other limits, too" in evidence, done.stderr
    assert after["workloads"][0]["bottleneck"]["certainty"] == "strong"
    assert (after["next_steps"][0]["standing"], after["next_steps"][0]["words"][:15]) == ("proven", "The server has ")
    assert "which fits, and would" in (bench.folder / "first" / "report.html").read_text()
    assert "proven: " in bench.read("explain", "first").stdout
