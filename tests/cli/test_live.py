"""`--design live` as users run it: kill -9 cuts a round short, and the study goes on to its verdict."""

from __future__ import annotations

import itertools
import signal

import jsonschema
import pytest

from pgdyno.record.store import open_record
from pgdyno.record.transactions.slices import SliceWriter, read_slices
from pgdyno.report.documents.report import make_schema
from tests.cli.experiments import THINKING, finished_trials, read_report, verdict_of, write_study
from tests.cli.program import Bench

pytestmark = pytest.mark.cluster

SMALL = 'name = "small"\nsettings = { shared_buffers = "16MB" }'
LARGE = 'name = "large"\nsettings = { shared_buffers = "64MB" }'


def test_servers_side_by_side_are_killed_and_then_compared(bench: Bench) -> None:
    (bench.folder / "thinking.sql").write_text(THINKING)
    # Twice as fast or half is near enough here: that is decided by the fewest rounds that can decide anything.
    study = write_study(
        bench,
        SMALL,
        LARGE,
        experiment='design = "live"\ndetect = "90%"\n',
        confidence="50%",
        duration="2s",
        warm_up="0s",
        load='scripts = ["thinking.sql"]',
    )
    record = bench.folder / "out"
    with bench.started("run", study, "--out", "out", stops_at=SliceWriter.add) as process:
        # The round is under way: its members have slices, and none is finished.
        assert process.stands_still(), process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=600)
    assert [trial["planned"]["round"] for trial in finished_trials(record)] == [0, 0]
    # What was killed has left servers that stand frozen; the next command ends them.
    done = bench.run("resume", "out")
    assert done.returncode == 0, done.stderr
    bench.assert_nothing_runs()
    report = read_report(record)
    jsonschema.validate(report, make_schema())
    assert report["experiment"]["design"] == "live"
    verdict = verdict_of(report, "large")
    assert verdict["kind"] == "equivalent"
    store = open_record(record)
    # Before the rounds, each variant ran alone once, and was watched: no result counts that.
    observed = [trial for trial in store.read_trials() if trial.planned.is_observed]
    trials = [trial for trial in store.read_trials() if not trial.planned.is_observed]
    assert sorted(trial.planned.variants for trial in observed) == [("large",), ("small",)]
    assert len(trials) == 3 * verdict["n"]
    for workload in report["workloads"]:
        (first,) = (one for one in workload["trials"] if one["is_representative"])
        assert first["round"] == 0
        assert workload["tps"]["n"] == len({trial["round"] for trial in workload["trials"]} - {0})
        assert workload["bottleneck"]["trial"] == first["number"]
    assert [trial.planned.round for trial in trials] == sorted(trial.planned.round for trial in trials)
    # At each moment at most one server ran.
    slices = [one for trial in trials for one in read_slices(store.trial_dir(trial.planned.number))]
    slices.sort(key=lambda one: one.begin_monotonic_s)
    assert all(one.end_monotonic_s <= next_.begin_monotonic_s for one, next_ in itertools.pairwise(slices))
    assert {one.variant for one in slices} == {"small", "large"}
    for form in ("md", "html"):
        assert (
            "Live pairs: in each round the servers of all variants are up at once"
            in (record / f"report.{form}").read_text()
        )
    # The figures of a variant are those of its slices, of which most of a trial's length counts.
    (workload,) = (one for one in report["workloads"] if one["name"].endswith("large"))
    assert workload["tps"]["value"] > 0
    assert bench.read("report", "out").returncode == 0
    assert read_report(record) == report
