"""The sweep over clients that follows a comparison as users run it: under what won, stopped, killed, resumed, told."""

from __future__ import annotations

import signal
from pathlib import Path

import jsonschema
import pytest

from pgdyno.report.documents.report import make_schema
from tests.cli.experiments import finished_trials, read_report, write_study
from tests.cli.program import Bench, wait_until

pytestmark = pytest.mark.cluster

# What loses commits is so much faster that this is decided within seconds, also on a busy machine.
VARIANTS = ("settings = { synchronous_commit = 'on' }", "settings = { synchronous_commit = 'off' }")
WINNER = "synchronous_commit=off"
SCALING = "[scaling]\nclients = [1, 2]\nminutes = 0.5\n"


def snapshot(record: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in record.glob("trials/[0-9][0-9][0-9][0-9]/trial.json")}


def break_off_and_resume(bench: Bench, number: signal.Signals, *, server: str = "") -> tuple[Path, str]:
    """The record of a study whose sweep was ended by a signal in its second trial, then resumed; and what was said of it."""
    server = f"{server}{SCALING}"
    study = write_study(bench, *VARIANTS, server=server, confidence="90%", warm_up="0s", duration="1s")
    out = bench.folder / "out"
    with bench.started("run", study, "--out", "out") as process:
        assert wait_until((out / "clients/trials/0002/os.jsonl").exists, seconds=300)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=200)
    assert f"{WINNER} settings: proven to be faster" in stderr
    bench.assert_nothing_runs()
    before = snapshot(out) | snapshot(out / "clients")
    assert len(before) == 2
    done = bench.run("resume", "out")
    assert done.returncode == 0, done.stderr
    assert before.items() <= (snapshot(out) | snapshot(out / "clients")).items()
    trials = finished_trials(out / "clients")
    # Where the first round gives every load its status, the second is not run; the second may say so in its end, too.
    first_round = [line for line in done.stderr.splitlines() if line.startswith("trial 3/6 ")]
    assert len(trials) == (3 if "every load has its status" in first_round[-1] else 6)
    for trial in trials:
        assert "synchronous_commit" in {one["name"] for one in trial["settings"] if one["value"] == "off"}
    return out, stderr


@pytest.mark.timeout(600)  # on a busy machine every start of a server takes its time
def test_a_killed_sweep_goes_on_under_what_had_won(bench: Bench) -> None:
    out, _ = break_off_and_resume(bench, signal.SIGKILL, server="[server]\nkind = 'local'\nversion = 15\n")
    assert read_report(out)["scaling"]["arm"] == WINNER


@pytest.mark.timeout(600)
def test_a_stopped_sweep_goes_on_and_is_told_with_what_it_followed(bench: Bench) -> None:
    out, stderr = break_off_and_resume(bench, signal.SIGINT)
    assert "`pgdyno resume out` goes on" in stderr
    assert "nothing is left to measure" in bench.run("resume", "out").stderr
    report = read_report(out)
    jsonschema.validate(report, make_schema())
    assert report["scaling"]["arm"] == WINNER
    (comparison,) = report["scaling"]["experiment"]["comparisons"]
    assert [point["clients"] for point in comparison["sweep"]["points"]] == [1, 2]
    (question,) = [q for q in report["experiment"]["comparisons"][0]["questions"] if q["metric"] == "tps"]
    assert question["verdict"]["kind"] == "faster"
    title = f"tpcb-like by clients, {WINNER} settings"
    for shown in (bench.run("show", "out").stdout, *((out / f"report.{form}").read_text() for form in ("md", "html"))):
        assert title in shown
    # Its own record says all of itself, and is none of the records of the folder.
    alone = bench.json("plan", "out/clients/study.toml")
    assert alone["scaling"] is None
    variants = alone["plan"]["experiment"]["arms"]
    assert [(variant["clients"], variant["server"]["settings"]) for variant in variants] == [
        (clients, {"synchronous_commit": "off"}) for clients in (1, 2)
    ]
    assert len(bench.json("list", "--records", ".")["records"]) == 1
    whole = bench.json("plan", "out/study.toml")
    own_s, following_s = (sum(step["predicted_s"] for step in whole[name]["steps"]) for name in ("plan", "scaling"))
    assert whole["predicted_s"] == pytest.approx(own_s + following_s)
