"""Metrics while a record is being measured: what the reference parser reads, and what the dashboard in deploy/grafana asks for."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pgdyno.analyse.comparison.answers import Comparison
from pgdyno.flow.live.record import LiveRecord
from pgdyno.flow.report import compose_report
from pgdyno.record.store import TRIAL_FILE, open_record
from pgdyno.report.exports.families import Family, list_families, name_record
from pgdyno.report.exports.openmetrics import render_openmetrics
from pgdyno.report.exports.present import MOST_TRIALS, PresentCourse, list_present_families
from pgdyno.report.input import ReportInput
from tests.records import copy_record
from tests.report.build_comparison import build_switchback
from tests.report.build_scaling import build_bench

DASHBOARD = Path(__file__).parents[2] / "deploy/grafana/pgdyno.json"
COURSE = PresentCourse(finished_count=1, planned_count=4, left_s=30.0, is_measured=True)

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(families: list[Family]) -> Values:
    text = "".join(render_openmetrics(families, has_times=False))
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    assert all(one.timestamp is None for one in samples)
    values = {(one.name, frozenset(one.labels.items())): one.value for one in samples}
    assert len(values) == len(samples)
    return values


@pytest.fixture
def live(tmp_path: Path) -> LiveRecord:
    """A record whose second trial still runs."""
    store = open_record(copy_record(tmp_path / "record", study=lambda record: record.update(is_ended=False)))
    running = store.trial_dir(2)
    trial = json.loads((running / TRIAL_FILE).read_text())
    # A checkout has files of its own time; pgbench wrote its last line when the load ended.
    os.utime(running / "pgbench.stderr", (trial["load_end_monotonic_s"] + trial["clock_offset_s"],) * 2)
    (running / TRIAL_FILE).unlink()
    shutil.rmtree(running / "transactions")
    return LiveRecord(store)


def test_the_present_values_are_those_of_the_record(live: LiveRecord) -> None:
    assert live.list_metrics() == []
    whole = list_families(compose_report(live.store).report)
    exported = {
        (family.name, frozenset(line.labels.items())): line.points[-1].value
        for family in whole
        for line in family.lines
    }
    with live.store.locked():
        for _ in live.read():
            pass
        first = read(live.list_metrics())
        for _ in live.read_seconds():
            pass
        second = read(live.list_metrics())
    of_trials = {key: value for key, value in first.items() if key[0].startswith("pgdyno_trial_")}
    assert of_trials == {key: value for key, value in exported.items() if key[0].startswith("pgdyno_trial_")}
    # The seconds are the running trial's, and stay when only pgbench's progress was read again.
    running = {key for key in first if ("trial", "2") in key[1]}
    assert {"pgdyno_tps", "pgdyno_latency_mean_ms", "pgdyno_cpu_user_ratio"} <= {name for name, _ in running}
    assert not any(("trial", "1") in labels for name, labels in first if name == "pgdyno_tps")
    assert first == second
    events = {dict(labels)["trial"] for name, labels in first if name == "pgdyno_event_time_s"}
    assert events == {"1", "2"}
    for _ in live.read_seconds():
        pass
    ended = read(live.list_metrics())
    assert not any(name == "pgdyno_tps" for name, _ in ended)
    assert [value for (name, _), value in ended.items() if name == "pgdyno_is_measured"] == [0.0]


def test_a_record_that_is_watched_from_its_own_folder_has_its_name(
    live: LiveRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(live.store.path)
    here = LiveRecord(open_record(Path()))
    with live.store.locked():
        for _ in here.read():
            pass
    assert {dict(labels)["record"] for _, labels in read(here.list_metrics())} == {"record"}


def test_many_trials_leave_the_last_ones_only() -> None:
    report = build_switchback()
    (workload, *rest) = report.analysis.workloads
    trial = workload.trials[0]
    trials = tuple(
        msgspec.structs.replace(
            trial,
            record=msgspec.structs.replace(
                trial.record, planned=msgspec.structs.replace(trial.record.planned, number=1000 + number)
            ),
        )
        for number in range(3 * MOST_TRIALS)
    )
    analysis = msgspec.structs.replace(
        report.analysis, workloads=(msgspec.structs.replace(workload, trials=trials), *rest)
    )
    values = read(list_present_families(msgspec.structs.replace(report, analysis=analysis), course=COURSE))
    told = {dict(labels)["trial"] for name, labels in values if name == "pgdyno_trial_tps"}
    assert (len(told), f"{1000 + 3 * MOST_TRIALS - 1}" in told) == (MOST_TRIALS, True)


@pytest.mark.parametrize("make", [build_switchback, build_bench])
def test_a_decided_verdict_is_an_event(make: Callable[[], ReportInput]) -> None:
    report = make()
    values = read(list_present_families(report, course=COURSE))
    verdicts = [dict(labels) for name, labels in values if name == "pgdyno_event_time_s"]
    decided = {(one["workload"], one["variants"], one["verdict"]) for one in verdicts if one["event"] == "verdict"}
    assert decided == {
        (comparison.workload, question.variant, question.verdict.kind.value)
        for comparison in report.analysis.comparisons
        for question in comparison.questions
        if question.metric == comparison.primary and question.verdict.is_decided
    }
    assert decided


def test_a_verdict_that_was_decided_stays_when_it_was() -> None:
    report = build_switchback()
    trials = [trial.record for workload in report.analysis.workloads for trial in workload.trials]
    begin_s, end_s = trials[0].load_start_monotonic_s, max(one.load_end_monotonic_s or 0.0 for one in trials)
    assert begin_s is not None
    at_s = begin_s + 1.0
    assert at_s < end_s

    def end(comparison: Comparison) -> Comparison:
        questions = tuple(msgspec.structs.replace(one, at_s=(*one.at_s[:-1], at_s)) for one in comparison.questions)
        return msgspec.structs.replace(comparison, questions=questions)

    comparisons = tuple(end(one) for one in report.analysis.comparisons)
    analysis = msgspec.structs.replace(report.analysis, comparisons=comparisons)
    values = read(list_present_families(msgspec.structs.replace(report, analysis=analysis), course=COURSE))
    times = {
        value
        for (name, labels), value in values.items()
        if name.endswith("event_time_s") and ("event", "verdict") in labels
    }
    assert times == {at_s + trials[0].clock_offset_s}


@pytest.mark.parametrize("last", [1, 2])
def test_a_verdict_has_the_time_of_its_own_trial_where_a_reboot_repeats_the_clock(last: int) -> None:
    report = build_switchback()
    workload = report.analysis.workloads[0]
    first = msgspec.structs.replace(
        workload.trials[0].record, planned=msgspec.structs.replace(workload.trials[0].record.planned, number=1)
    )
    again = msgspec.structs.replace(
        first,
        planned=msgspec.structs.replace(first.planned, number=2),
        clock_offset_s=first.clock_offset_s + 86400.0,
    )
    trials = tuple(msgspec.structs.replace(workload.trials[0], record=record) for record in (first, again))
    assert first.load_start_monotonic_s is not None
    at_s = first.load_start_monotonic_s + 1.0
    of = next(one for one in report.analysis.comparisons if one.workload == first.planned.workload)
    questions = tuple(msgspec.structs.replace(one, at_s=(at_s,), last_trial=last) for one in of.questions)
    analysis = msgspec.structs.replace(
        report.analysis,
        workloads=(msgspec.structs.replace(workload, trials=trials),),
        comparisons=(msgspec.structs.replace(of, questions=questions),),
    )
    families = list_families(msgspec.structs.replace(report, analysis=analysis))
    times = {line.points[0].value for one in families for line in one.lines if line.labels.get("event") == "verdict"}
    assert times == {at_s + (first, again)[last - 1].clock_offset_s}


def list_queries(dashboard: dict[str, Any]) -> list[str]:
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    notes = [note["expr"] for note in dashboard["annotations"]["list"]]
    return targets + notes + [one["definition"] for one in dashboard["templating"]["list"] if "definition" in one]


def test_every_metric_and_label_of_the_dashboard_is_exported(live: LiveRecord) -> None:
    with live.store.locked():
        for _ in live.read():
            pass
        values = {**read(live.list_metrics()), **read(list_present_families(build_switchback(), course=COURSE))}
    labels: dict[str, set[str]] = {}
    for name, named in values:
        labels.setdefault(name, set()).update(dict(named))
    dashboard = json.loads(DASHBOARD.read_text())
    queries = list_queries(dashboard)
    metrics = {name for query in queries for name in re.findall(r"pgdyno_\w+", query)}
    assert (len(queries) > 20, metrics - labels.keys()) == (True, set())
    for query in queries:
        for name, matchers in re.findall(r"(pgdyno_\w+)\{([^}]*)\}", query):
            asked = set(re.findall(r"(\w+)=~?\"", matchers))
            assert asked <= labels[name], query
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            (name,) = re.findall(r"pgdyno_\w+", target["expr"])
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels[name], target
    for note in dashboard["annotations"]["list"]:
        used = set(re.findall(r"{{(\w+)}}", note["titleFormat"] + note["textFormat"]))
        assert used <= labels["pgdyno_event_time_s"], note


@pytest.mark.parametrize("make", [build_switchback, build_bench])
def test_a_record_that_has_ended_is_in_the_menu_of_the_dashboard(make: Callable[[], ReportInput]) -> None:
    """With the sweep over clients under the record that it followed."""
    report = make()
    exported = {family.name: [line.labels for line in family.lines] for family in list_families(report)}
    (menu,) = (one for one in json.loads(DASHBOARD.read_text())["templating"]["list"] if "definition" in one)
    assert menu["query"]["query"] == menu["definition"]
    found = re.fullmatch(r'label_values\((pgdyno_\w+)\{record!~"(.+)"\}, record\)', menu["definition"])
    assert found is not None
    names = {labels["record"] for labels in exported[found[1]]}
    assert {name for name in names if not re.fullmatch(found[2], name)} == {name_record(Path(report.record_dir))}
