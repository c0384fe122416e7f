"""The sweep over clients that follows a comparison as users run it: under what won, stopped, killed, resumed, told."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pgdyno.errors import ExitCode
from pgdyno.facts.versions import NEWEST_TRIED_MAJOR
from pgdyno.record.generators.turns import TURNS_DIR
from pgdyno.report.documents.report import make_schema
from tests.cli.experiments import QUICK_COMMITS, SLOW_COMMITS, finished_trials, read_report, write_study
from tests.cli.program import Bench
from tests.records import edit
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

VARIANTS = (f"settings = {{ {SLOW_COMMITS} }}", f"name = 'quick'\nsettings = {{ {QUICK_COMMITS} }}")
WINNER = "quick"
SCALING = "[scaling]\nclients = [1, 2]\nminutes = 1\n"


def snapshot(record: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in record.glob("trials/[0-9][0-9][0-9][0-9]/trial.json")}


def list_begun(record: Path) -> set[str]:
    """The trials that have begun, and not ended."""
    trials = record.glob("trials/[0-9][0-9][0-9][0-9]")
    return {path.name for path in trials if not (path / "trial.json").exists()}


def assert_under_the_winner(trials: list[dict[str, Any]]) -> None:
    for trial in trials:
        assert "commit_delay" in {one["name"] for one in trial["settings"] if one["value"] == "5000"}


def test_a_sweep_that_is_stopped_and_killed_goes_on_under_what_had_won_and_is_told_with_it(bench: Bench) -> None:
    server = f"[server]\nkind = 'local'\nversion = 15\n{SCALING}"
    study = write_study(bench, *VARIANTS, server=server, confidence="90%", warm_up="0s", duration="1s")
    out = bench.folder / "out"
    before: dict[str, bytes] = {}
    stops: Counter[str] = Counter()
    for command, number in ((("run", study, "--out", "out"), signal.SIGINT), (("resume", "out"), signal.SIGKILL)):
        # In the second of the trials that are observed, and within a turn.
        begun = "0002/os.jsonl" if number is signal.SIGINT else f"000[345]/{TURNS_DIR}"
        with bench.started(*command) as process:
            assert wait_until(lambda begun=begun: any((out / "clients/trials").glob(begun)), within_s=600)
            process.send_signal(number)
            _, stderr = process.communicate(timeout=600)
        bench.assert_nothing_runs()
        kept = snapshot(out) | snapshot(out / "clients")
        assert before.items() <= kept.items()
        before = kept
        stops.update(list_begun(out / "clients"))
        if number is signal.SIGINT:
            assert f"with {WINNER} settings (proven to be faster" in stderr
            assert "`pgdyno resume out` continues" in stderr
    done = bench.run("resume", "out")
    assert done.returncode == 0, done.stderr
    assert before.items() <= (snapshot(out) | snapshot(out / "clients")).items()
    trials = finished_trials(out / "clients")
    # What was cut short was set aside, and run again: the second trial, if this process has not slept, and a round.
    cut = {path.name for path in (out / "clients/trials").glob("*.cut-*")}
    assert cut == {f"{name}.cut-{time}" for name, times in stops.items() for time in range(1, times + 1)}
    assert cut >= {"0003.cut-1", "0004.cut-1", "0005.cut-1"}
    # Later rounds, for which there is time on a quick machine, have the loads to which those before have given no status.
    rounds = [trial["planned"]["round"] for trial in trials]
    assert rounds[:5] == [0, 0, 1, 1, 1]
    assert rounds == sorted(rounds)
    later = Counter(rounds[2:])
    assert list(later) == list(range(1, 1 + len(later)))
    assert list(later.values()) == sorted(later.values(), reverse=True)
    assert_under_the_winner(trials)
    # Each time the sweep gets the rest of its rounds, or its time on a very busy machine.
    assert any("nothing is left to measure" in bench.read("resume", "out").stderr for _ in range(6))
    report = read_report(out)
    jsonschema.validate(report, make_schema())
    assert report["scaling"]["arm"] == WINNER
    (comparison,) = report["scaling"]["experiment"]["comparisons"]
    assert [point["clients"] for point in comparison["sweep"]["points"]] == [1, 2]
    (question,) = [q for q in report["experiment"]["comparisons"][0]["questions"] if q["metric"] == "tps"]
    assert question["verdict"]["kind"] == "faster"
    title = f"tpcb-like by clients, {WINNER} settings"
    for shown in (bench.read("show", "out").stdout, *((out / f"report.{form}").read_text() for form in ("md", "html"))):
        assert title in shown
    # Its own record says all of itself, and is none of the records of the folder.
    alone = bench.read_json("plan", "out/clients/study.toml")
    assert alone["scaling"] is None
    variants = alone["plan"]["experiment"]["arms"]
    assert [(variant["clients"], variant["server"]["settings"]) for variant in variants] == [
        (clients, {"commit_siblings": 0, "commit_delay": 5000}) for clients in (1, 2)
    ]
    assert len(bench.read_json("list", "--records", ".")["records"]) == 1
    whole = bench.read_json("plan", "out/study.toml")
    own_s, following_s = (sum(step["predicted_s"] for step in whole[name]["steps"]) for name in ("plan", "scaling"))
    assert whole["predicted_s"] == pytest.approx(own_s + following_s)


def test_a_sweep_that_a_variant_cannot_run_is_refused_before_the_machine_is_checked(bench: Bench) -> None:
    few = "name = 'few'\nsettings = { max_connections = 12 }"
    study = write_study(bench, "name = 'stock'", few, server="[scaling]\nclients = [1, 8]\n")
    for command in ("plan", "run"):
        refused = bench.refuse(command, study)
        assert refused.returncode == ExitCode.SPEC
        assert "if few wins: " in refused.stderr
        assert "8 clients do not fit into max_connections = 12" in refused.stderr
    assert not bench.records


def test_another_postgresql_under_which_the_sweep_runs_is_recorded_and_must_be_the_same(bench: Bench) -> None:
    # Where nothing is proven to be faster than stock, stock has won.
    old = f"name = 'old'\nserver = 15\nsettings = {{ {SLOW_COMMITS} }}"
    new = f"name = 'stock'\nserver = 'embedded'\nsettings = {{ {QUICK_COMMITS}, io_method = 'sync' }}"
    study = write_study(bench, old, new, server=SCALING, confidence="60%", warm_up="0s", duration="1s")
    with bench.started("run", study, "--out", "out") as process:
        record = bench.folder / "out/clients/record.json"
        assert wait_until(lambda: record.exists() or process.poll() is not None, within_s=900)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    assert record.exists(), stderr
    following, own = json.loads(record.read_bytes()), json.loads((bench.folder / "out/record.json").read_bytes())
    assert following["server"]["version_num"] // 10_000 == NEWEST_TRIED_MAJOR
    assert following["study"]["variant"][0]["name"] == "stock"
    assert (own["other_servers"], following["other_servers"]) == ({"stock": following["server"]}, {})

    def had_another(record: dict[str, Any]) -> None:
        record["other_servers"]["stock"] |= {"version": "18.0", "version_num": 180000}

    edit(bench.folder / "out/record.json", had_another)
    refused = bench.run("resume", "out")
    assert refused.returncode == ExitCode.HOST
    assert f"made with PostgreSQL 18.0, here is {following['server']['version']}" in refused.stderr
