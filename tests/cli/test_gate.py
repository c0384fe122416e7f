"""`--fail-if` as CI uses it: the exit code follows what is proven, and the record alone gives the same result again."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cli.experiments import QUICK_COMMITS, SLOW_COMMITS, read_report, verdict_of, write_study
from tests.cli.program import Bench
from tests.rows import check_rows

pytestmark = pytest.mark.cluster

RECORD = Path(__file__).parents[1] / "data" / "records" / "v1-pg18"
QUICK = f'name = "quick"\nsettings = {{ {QUICK_COMMITS} }}'
SLOW = f'name = "slow"\nsettings = {{ {SLOW_COMMITS} }}'


def gate_of(output: str) -> list[str]:
    """The last lines of an output, from the gate's heading on."""
    lines = output.splitlines()
    assert "Gate" in lines, output
    return lines[lines.index("Gate") :]


def test_a_gate_fails_on_what_is_proven_and_so_does_its_record(bench: Bench) -> None:
    study = write_study(bench, QUICK, SLOW)
    files = ("--junit", "gate.xml", "--bmf", "gate.json")
    done = bench.run("run", study, "--out", "out", "--fail-if", "slower", *files)
    assert done.returncode == 1, done.stderr
    lines = gate_of(done.stdout)
    assert "Failed: --fail-if slower." in lines[1]
    assert "slower: slow is slower than quick on tpcb-like: TPS -" in lines[2]
    assert "at most 5 of 100 such gates fail" in lines[-1]
    verdict = verdict_of(read_report(bench.folder / "out"), "slow")
    assert verdict["kind"] == "slower"
    root = ET.parse(bench.folder / "gate.xml").getroot()
    assert [case.attrib["name"] for case in root.iter("testcase") if case.find("failure") is not None] == [
        "slow against quick: tps"
    ]
    measures = json.loads((bench.folder / "gate.json").read_text())["tpcb-like: slow"]
    assert measures["tps_ratio"]["upper_value"] == 1 + verdict["high_ratio"]
    # Nothing is left to measure: both judge the record again.
    written = {name: (bench.folder / name).read_bytes() for name in ("gate.xml", "gate.json")}
    for command in ("report", "resume"):
        done = bench.read(command, "out", "--fail-if", "slower", *files)
        assert done.returncode == 1, done.stderr
        assert gate_of(done.stdout) == lines
        assert {name: (bench.folder / name).read_bytes() for name in written} == written
    for option, file in zip(("--bmf", "--junit"), ("gate.json", "plain.xml"), strict=True):
        made = f"exported-{file}"
        assert bench.read("export", "out", option, made).stdout == f"{made}\n"
        if option == "--junit":
            assert bench.read("report", "out", option, file).returncode == 0, "the same file without conditions"
        assert (bench.folder / made).read_bytes() == (bench.folder / file).read_bytes()
        assert "is there already" in bench.read("export", "out", option, made).stderr
    above = f"{-100 * verdict['high_ratio'] / 2:.1f}"
    for conditions, code in (
        (["inconclusive"], 0),
        (["tps<-99.9%"], 0),
        ([f"tps<-{above}%"], 1),
        (["tps<-99.9%,worse"], 1),
    ):
        done = bench.read("report", "out", *(word for text in conditions for word in ("--fail-if", text)), "--json")
        assert done.returncode == code, done.stderr
        assert ("Failed:" if code else "Passed:") in done.stderr
        assert json.loads(done.stdout) == read_report(bench.folder / "out")
    bench.assert_nothing_runs()


def test_a_gate_passes_what_is_faster(bench: Bench) -> None:
    for name, commits in (("slow", SLOW_COMMITS), ("quick", QUICK_COMMITS)):
        (bench.folder / f"{name}.conf").write_text(commits.replace(", ", "\n"))
    options = ("--home", str(bench.home), "--scale", "2", "--clients", "2", "--design", "paired", "--out", "out")
    # The fewest rounds that can decide anything do.
    options = (*options, "--warm-up", "0s", "--duration", "1s", "--detect", "90%", "--confidence", "50%")
    done = bench.run(
        "compare", "slow.conf", "quick.conf", *options, "--fail-if", "slower,tps<-3%", "--fail-if", "inconclusive"
    )
    assert done.returncode == 0, done.stderr
    assert "Passed: --fail-if slower, tps<-3%, inconclusive: nothing of it is proven." in gate_of(done.stdout)[1]
    assert verdict_of(read_report(bench.folder / "out"), "quick.conf")["kind"] == "faster"


COMPARE = ("compare", "--set", "commit_delay=0", "--set", "commit_delay=50")
REFUSED: list[tuple[tuple[str, ...], list[str]]] = [
    ((*COMPARE, "--fail-if", "slow"), ["--fail-if slow: not a condition", "slower, worse, inconclusive", "tps<-3%"]),
    ((*COMPARE, "--fail-if", "p95>5%"), ["no metric of a comparison is called p95", "latency_p95_ms"]),
    ((*COMPARE, "--fail-if", "tps>3%"), ["is a gain", "tps<-3%"]),
    ((*COMPARE, "--junit", "no/such.xml"), ["--junit", "there is no folder"]),
    ((*COMPARE, "--junit", "a.xml", "--bmf", "a.xml"), ["are one file"]),
    (("sweep", "clients=1,2", "--fail-if", "slower"), ["a sweep over clients has no verdicts"]),
    (("sweep", "latency<20ms@p99", "--bmf", "a.json"), ["a search for a rate has no verdicts"]),
    (("run", "one.toml", "--fail-if", "slower"), ["a study without variants has no verdicts", "pgdyno compare"]),
    (("report", str(RECORD), "--fail-if", "slower"), ["a study without variants has no verdicts"]),
    (("resume", str(RECORD), "--junit", "a.xml"), ["a study without variants has no verdicts"]),
    (("export", str(RECORD), "--bmf", "a.json"), ["a study without variants has no verdicts"]),
]


def test_what_cannot_be_judged_is_refused_before_anything_is_measured(empty_bench: Bench) -> None:
    (empty_bench.folder / "one.toml").write_text('[[workload]]\nname = "tpcb-like"\n')
    before = sorted(RECORD.rglob("*"))

    def check(row: tuple[tuple[str, ...], list[str]]) -> None:
        arguments, words = row
        done = empty_bench.refuse(*arguments)
        assert done.returncode == 2, done.stderr
        assert all(word in done.stderr for word in words), done.stderr
        assert sorted(path.name for path in empty_bench.folder.iterdir()) == ["one.toml"]

    check_rows(REFUSED, check)
    assert sorted(RECORD.rglob("*")) == before
