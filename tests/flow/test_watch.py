"""What the live page gets of a record, and the page in a real browser."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.conduct.study import recording
from pgdyno.explain.finding import Finding, Severity
from pgdyno.flow.live import earlier
from pgdyno.flow.live.record import LiveRecord
from pgdyno.flow.live.watch import _update
from pgdyno.flow.report import compose_report
from pgdyno.record.running_trial import write_planned
from pgdyno.record.store import TRIAL_FILE, RecordStore, open_record
from pgdyno.record.transactions.slices import Slice, SlicePhase, SliceWriter
from pgdyno.report.charts.chart import LegendEntry
from pgdyno.report.format import format_estimate, format_number
from pgdyno.report.input import ReportInput
from pgdyno.report.live.answers import AnswersView, FindingView, PointView, SweepView, view_answers
from pgdyno.report.live.course import ChartView, CourseView, TrialLine, TrialView
from pgdyno.report.live.page import make_live_page
from pgdyno.report.verdict_words import name_verdict
from pgdyno.run.page_server import HOST, Updates, listen, serving
from tests.records import copy_record, edit
from tests.report.accessibility import find_barriers, read_chart_colours
from tests.report.browser import CHROMIUM, Browser
from tests.report.build import build_report
from tests.report.build_comparison import build_paired, build_switchback
from tests.report.build_scaling import build_bench
from tests.tools.pgcluster import LOOPBACK

HOSTILE = '<img src=x onerror="document.title=1"></script><b>'


def read_all(live: LiveRecord) -> dict[str, Any]:
    return {name: json.loads(content) for name, content in live.read()}


def test_the_figures_are_those_of_the_report(tmp_path: Path) -> None:
    store = open_record(copy_record(tmp_path / "record"))
    seen = read_all(LiveRecord(store))
    workloads = compose_report(store).report.analysis.workloads
    told = [(one.name, format_estimate(one.tps)) for one in workloads]
    assert seen["answers"]["figures"] == [[name, text.value, text.beside] for name, text in told]
    (course,) = seen["course"]
    assert (course["finished_count"], course["planned_count"], course["left_s"]) == (2, 2, 0)
    (trial,) = seen["trials"]
    assert trial["number"] == 2
    assert {"tps", "latency", "cpu", "waits"} <= {chart["kind"] for chart in trial["charts"]}
    assert any("checkpoint" in event for event in trial["events"])


def test_findings_are_those_of_the_report_and_one_on_several_workloads_is_told_once() -> None:
    report = build_report()
    shared = [
        Finding(severity=Severity.WARNING, claim="They vary.", evidence=name, advice="Look.", workload=name)
        for name in ("tpcb-like", "select-only")
    ]
    grave = Finding(severity=Severity.CRITICAL, claim="It is slow.", evidence="")
    answers = view_answers(msgspec.structs.replace(report, findings=(*shared, grave)))
    assert [(one.claim, one.workloads) for one in answers.findings] == [
        ("It is slow.", ""),
        ("They vary.", "tpcb-like, select-only"),
    ]


def test_intervals_narrow_to_those_of_the_report_and_the_reference_against_itself_stands_below() -> None:
    report = build_switchback()
    for shown, of in zip(view_answers(report).verdicts, report.analysis.comparisons, strict=True):
        *variants, noise = shown.rows
        names = [question.variant for question in of.questions if question.metric == of.primary]
        assert [one.name.partition(" (")[0] for one in variants] == names
        assert noise.name == "stock against itself (A/A)"
        compared = [one for one in shown.rows if one.n]
        assert len(compared) == len(shown.rows) - 1, "one variant was refused"
        for one in compared:
            (first, *_), last = one.looks, one.looks[-1]
            assert last == (one.n, one.low, one.high)
            assert first[1] < last[1] < last[2] < first[2]
            verdict = (
                of.find(names[shown.rows.index(one)], of.primary) if one is not noise else of.find_noise(of.primary)
            )
            assert verdict is not None
            assert one.word == name_verdict(verdict.verdict)


def test_a_study_that_runs_is_not_called_incomplete(tmp_path: Path) -> None:
    store = open_record(copy_record(tmp_path / "record", study=lambda record: record.update(is_ended=False)))
    (store.trial_dir(2) / TRIAL_FILE).unlink()

    def is_called_incomplete() -> bool:
        claims = [one["claim"] for one in read_all(LiveRecord(store))["answers"]["findings"]]
        return "The study is not complete: 1 of 2 trials are finished." in claims

    assert is_called_incomplete()
    with store.locked():
        assert not is_called_incomplete()


def test_the_tps_of_a_trial_of_a_live_round_leaves_out_the_time_in_which_its_server_was_frozen(tmp_path: Path) -> None:
    store = open_record(copy_record(tmp_path / "record"))
    trial = store.read_trials()[1]
    assert trial.load_start_monotonic_s is not None
    with SliceWriter(store.trial_dir(2)) as slices:
        for number in range(3):
            begin_s = trial.load_start_monotonic_s + 1 + 2 * number
            end_s = begin_s + 0.5
            slices.add(
                Slice(phase=SlicePhase.ROUND, round=number + 1, position=0, variant="", begin_monotonic_s=begin_s,
                      settled_monotonic_s=begin_s, end_monotonic_s=end_s, counts={})
            )  # fmt: skip
    report = compose_report(store).report
    ((whole, sliced),) = (one.trials for one in report.analysis.workloads)
    assert (sliced.tps is not None, sliced.pgbench_tps) == (True, None)
    (course,) = read_all(LiveRecord(store))["course"]
    assert [one["tps"] for one in course["trials"]] == [format_number(one.tps or 0) for one in (whole, sliced)]


def test_a_trial_that_runs_shows_its_seconds_and_counts_for_nothing(tmp_path: Path) -> None:
    store = open_record(copy_record(tmp_path / "record", study=lambda record: record.update(is_ended=False)))
    running = store.trial_dir(2)
    (running / TRIAL_FILE).unlink()
    shutil.rmtree(running / "transactions")
    with (running / "pgbench.stderr").open("a") as file:
        file.write("progress: 99.0 s, 7")  # the line that pgbench is writing
    live = LiveRecord(store)
    with store.locked():
        seen = read_all(live)
        ((name, content),) = live.read_seconds()
    (course,) = seen["course"]
    assert [trial["state"] for trial in course["trials"]] == ["finished", "running"]
    assert course["left_s"] > 0
    assert [trial["state"] for trial in seen["trials"]] == ["running"]
    quick = json.loads(content)
    assert (name, [chart["kind"] for chart in quick["charts"]]) == ("seconds", ["tps", "latency"])
    assert len(quick["charts"][0]["columns"][0]["t"]) == 8
    # Nothing is running once the process that measured is gone.
    assert [json.loads(content) for _, content in live.read_seconds()] == [None]


def test_a_trial_of_a_search_is_shown_with_the_rate_that_was_chosen_for_it(tmp_path: Path) -> None:
    """As it was chosen just before it began, which is not in the plan."""
    store = open_record(copy_record(tmp_path / "record", study=lambda record: record.update(is_ended=False)))
    edit(store.trial_dir(1) / TRIAL_FILE, lambda trial: trial["planned"].update(rate_tps=4000.0))
    (store.trial_dir(2) / TRIAL_FILE).unlink()
    live = LiveRecord(store)
    with store.locked():
        # A reader may see the folder before what will run in it.
        assert [trial["words"] for trial in read_all(live)["trials"]] == ["tpcb-like"]
        write_planned(store.trial_dir(2), msgspec.structs.replace(store.read_record().plan.trials[1], rate_tps=4500.0))
        seen = read_all(live)
    (course,) = seen["course"]
    assert [trial["variant"] for trial in course["trials"]] == ["4,000 TPS scheduled", "4,500 TPS scheduled"]
    assert [trial["words"] for trial in seen["trials"]] == ["tpcb-like · 4,500 TPS scheduled"]
    told = {
        (line.labels["trial"], line.labels.get("rate_tps"))
        for family in live.list_metrics()
        for line in family.lines
        if "trial" in line.labels
    }
    assert told == {("1", "4000"), ("2", "4500")}


def test_a_trial_that_is_run_again_takes_the_place_of_its_first_try(tmp_path: Path) -> None:
    """As `resume` runs a failed trial again, and a study one whose settings gave way."""
    store = open_record(copy_record(tmp_path / "record", study=lambda record: record.update(is_ended=False)))
    whole, first = store.trial_dir(2), tmp_path / "first"
    shutil.copytree(whole, first)
    edit(whole / TRIAL_FILE, lambda trial: trial.update(status="failed", error={"fact": "it is gone"}))
    live = LiveRecord(store)

    def read_states() -> list[str]:
        return [trial["state"] for trial in seen["course"][0]["trials"]]

    with store.locked():
        seen = read_all(live)
        assert (read_states(), seen["course"][0]["left_s"]) == (["finished", "failed"], 0)
        alone = seen["answers"]["figures"]
        store.set_aside(2)
        seen = read_all(live)
        assert read_states() == ["finished", "waiting"]
        assert seen["course"][0]["left_s"] > 0
        shutil.copytree(first, store.begin_trial(2), dirs_exist_ok=True)
        seen = read_all(live)
    assert read_states() == ["finished", "finished"]
    assert seen["answers"] == read_all(LiveRecord(store))["answers"]
    assert seen["answers"]["figures"] != alone


def test_what_was_interrupted_does_not_seem_to_run_when_the_study_goes_on(tmp_path: Path) -> None:
    """Of a round that is left out, it is not run again."""
    store = open_record(copy_record(tmp_path / "record", study=lambda record: record.update(is_ended=False)))
    (store.trial_dir(2) / TRIAL_FILE).unlink()
    with store.locked(), recording(store):
        seen = read_all(LiveRecord(store))
    assert [trial["state"] for trial in seen["course"][0]["trials"]] == ["finished", "waiting"]
    assert [trial["number"] for trial in seen["trials"]] == [1]
    assert (store.path / "trials" / "0002.cut-1").exists()


def test_a_trial_that_is_run_again_begins_when_it_does(tmp_path: Path) -> None:
    store = open_record(copy_record(tmp_path / "record", study=lambda record: record.update(is_ended=False)))
    tries = [store.trial_dir(2), tmp_path / "again"]
    (tries[0] / TRIAL_FILE).unlink()
    shutil.copytree(*tries)
    live, begun = LiveRecord(store), []
    with store.locked():
        for told_s, place in zip((1e9, 2e9), tries, strict=True):
            if place is not tries[0]:
                shutil.copytree(place, store.begin_trial(2), dirs_exist_ok=True)
            os.utime(store.trial_dir(2) / "pgbench.stderr", (told_s, told_s))
            for _ in live.read():
                pass
            begun += [
                line.points[-1].value
                for family in live.list_metrics()
                for line in family.lines
                if (line.labels.get("event"), line.labels["record"]) == ("trial begins", "record")
                and line.labels["trial"] == "2"
            ]
    first_s, second_s = begun
    assert second_s - first_s == pytest.approx(1e9)


def test_a_record_that_is_deleted_meanwhile_gets_a_clear_word(tmp_path: Path) -> None:
    path, updates = copy_record(tmp_path / "record"), Updates()
    live = _update(LiveRecord(open_record(path)), updates, is_full=True)
    shutil.rmtree(path)
    with updates.follow() as take:
        take()
        _update(live, updates, is_full=True)
        assert take() == [("problem", json.dumps(f"{path} is not a record: no such folder").encode())]


def test_a_problem_is_told_until_all_of_the_record_can_be_read_again(tmp_path: Path) -> None:
    store, updates = open_record(copy_record(tmp_path / "record")), Updates()
    whole = (store.path / "record.json").read_bytes()
    live = _update(LiveRecord(store), updates, is_full=True)
    (store.path / "record.json").write_text("{")
    live = _update(live, updates, is_full=True)
    with updates.follow() as take:
        assert "is damaged" in dict(take() or ())["problem"].decode()
        updates.put({"seconds": b"1"})
        take()
        live = _update(live, updates, is_full=False)
        assert dict(take() or ()) == {"seconds": b"null"}
        (store.path / "record.json").write_bytes(whole)
        _update(live, updates, is_full=True)
        assert dict(take() or ())["problem"] == b'""'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI may not skip the browser: no chromium is installed")
        pytest.skip("no chromium is installed")
    with Browser() as running:
        yield running


def test_the_page_shows_a_hostile_record_on_a_phone_and_runs_nothing_of_it(browser: Browser, tmp_path: Path) -> None:
    path = copy_record(tmp_path / "record")
    edit(path / "record.json", lambda record: record["study"].update(question=HOSTILE))
    page, updates = make_live_page(), Updates()
    updates.put(dict(LiveRecord(open_record(path)).read()))
    opened = listen(0)
    with serving(opened, token="t", html=page.html, policy=page.policy, updates=updates):
        address = f"http://{HOST}:{opened.getsockname()[1]}/t/"
        browser.leave()
        browser.view(width=375, scheme="dark")
        browser.call("Page.navigate", url=address)
        browser.wait_for("document.documentElement?.dataset.answers !== undefined", bool)
        assert browser.evaluate("document.querySelector('h1').textContent") == HOSTILE
        assert browser.evaluate("document.querySelectorAll('img, b img').length") == 0
        assert browser.evaluate("document.querySelectorAll('#now svg').length") >= 4
        assert browser.evaluate("document.documentElement.scrollWidth") <= 375
        unnamed = "[...document.querySelectorAll('svg')].filter(one => !one.getAttribute('aria-label')).length"
        assert browser.evaluate(unnamed) == 0
        assert find_barriers(browser) == []
        browser.evaluate("document.querySelector('svg').removeAttribute('aria-label')")
        assert [rule for rule, _ in find_barriers(browser)] == ["svg-img-alt"], "axe-core looks"
        updates.put({"problem": b'"the record is gone"'})
        browser.wait_for(
            "document.querySelector('#problem:not([hidden])')?.textContent", lambda text: text == "the record is gone"
        )
    assert browser.complaints == [] or all("ERR_" in text for text in browser.complaints)
    assert set(browser.requests) == {address, f"{address}events"}


@pytest.fixture
def asked_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordStore:
    """A record whose questions two others had asked, and one that came later; nobody has read any of them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for day, name in enumerate(("first", "second", "present", "later"), 1):
        copy_record(tmp_path / "records" / name, at=f"2026-10-0{day}T10:00:00+00:00")
    shutil.copytree(tmp_path / "records/first", tmp_path / "records/copy")
    copy_record(tmp_path / "records/damaged", at="2026-10-01T09:00:00+00:00")
    (tmp_path / "records/damaged/record.json").write_text("{")
    return open_record(tmp_path / "records/present")


def test_what_earlier_records_answered_is_shown_once_each_has_been_read(asked_before: RecordStore) -> None:
    live = LiveRecord(asked_before)
    seen = read_all(live)
    assert seen["history"]["histories"] == []
    assert seen["history"]["remark"] == "2 earlier records are not read yet; `pgdyno history` reads all of them."
    for _ in range(4):
        live.read_earlier()
    for one in (live, LiveRecord(asked_before)):
        read = read_all(one)["history"]
        assert read["remark"] == "", "what one page has read is kept for the next"
        assert [history["title"] for history in read["histories"]] == [
            name for name, _, _ in seen["answers"]["figures"]
        ]
        for history, (_, value, beside) in zip(read["histories"], seen["answers"]["figures"], strict=True):
            assert [point["name"] for point in history["points"]][1:] == ["second", "present"]
            assert history["points"][0]["name"] in {"first", "copy"}
            assert history["points"][-1]["text"] == f"{value} {beside}".rstrip()
            assert history["words"] == ["3 results are too few to show a change: it takes 9."]


def test_the_newest_are_those_that_began_last_before_the_record_whatever_their_names(
    asked_before: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier, "_MOST_RECORDS", 1)
    copy_record(asked_before.path.parent / "a-name", at="2026-10-02T11:00:00+00:00")
    live = LiveRecord(asked_before)
    read_all(live)
    live.read_earlier()
    shown = read_all(live)["history"]
    assert shown["remark"] == ""
    assert {tuple(point["name"] for point in one["points"]) for one in shown["histories"]} == {("a-name", "present")}


def test_earlier_records_are_read_at_once_if_nothing_is_measured_beside_them_and_never_beside_a_trial(
    asked_before: RecordStore,
) -> None:
    live, other = LiveRecord(asked_before), open_record(asked_before.path.parent / "later")
    read_all(live)
    assert live.may_read_earlier
    with other.locked():
        assert not live.may_read_earlier, "another study of this folder is being measured"
        running = other.trial_dir(9)
        running.mkdir()
        live.read_earlier()
        assert live._earlier.unread_count == 2
        running.rmdir()
        live.read_earlier()
        assert live._earlier.unread_count == 1
    assert live.may_read_earlier
    live.read_earlier()
    assert not live.may_read_earlier, "all are read"


def test_earlier_answers_are_drawn_and_listed(browser: Browser, asked_before: RecordStore) -> None:
    live = LiveRecord(asked_before)
    read_all(live)
    for _ in range(4):
        live.read_earlier()
    history = read_all(live)["history"]
    history["histories"][0]["points"][1]["is_changed"] = True
    with showing(browser, {"history": history}, width=375):
        drawn = browser.evaluate(
            "[...document.querySelectorAll('#histories > div')].map((one) => "
            "['h3', '.dot', '.moment', 'tbody tr'].map((what) => one.querySelectorAll(what).length))"
        )
        assert drawn == [[1, 3, 1 - min(1, place), 3] for place in range(len(history["histories"]))]
        assert browser.evaluate("document.documentElement.scrollWidth") <= 375
        assert find_barriers(browser) == []


def spoil(part: Any, name: str = "") -> Any:
    """A part of the page in whose texts a hostile name stands, but for words that pgdyno alone chooses."""
    if isinstance(part, dict):
        return {key: spoil(value, key) for key, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [spoil(one, name) for one in part]
    chosen = {"kind", "hue", "field", "severity", "state", "unit"}
    return f"{part}`{HOSTILE}`" if isinstance(part, str) and name not in chosen else part


def test_no_text_of_any_part_is_read_as_html(browser: Browser, tmp_path: Path) -> None:
    parts = {
        name: spoil(part) for name, part in read_all(LiveRecord(open_record(copy_record(tmp_path / "record")))).items()
    }
    compared, swept = (spoil(msgspec.to_builtins(view_answers(build()))) for build in (build_paired, build_bench))
    of = {name: [*parts["answers"][name], *compared[name], *swept[name]] for name in parts["answers"]}
    assert all(of.values()), "each kind of answer has a text"
    browser.leave()
    with showing(browser, {**parts, "answers": of, "seconds": parts["trials"][0], "problem": HOSTILE}):
        browser.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
        assert browser.evaluate("document.querySelectorAll('img, body script, main b b').length") == 1, "its own script"
        shown = browser.evaluate("document.body.innerText")
        assert browser.evaluate("document.title").endswith("– pgdyno")
    assert shown.count(HOSTILE) > 50
    assert all("ERR_" in text for text in browser.complaints)


@pytest.mark.parametrize("build", [build_switchback, build_paired, build_bench])
def test_verdicts_stand_out_from_their_background_by_day_and_by_night(
    browser: Browser, build: Callable[[], ReportInput]
) -> None:
    page, updates = make_live_page(), Updates()
    updates.put({"answers": msgspec.json.encode(view_answers(build()))})
    opened = listen(0)
    with serving(opened, token="t", html=page.html, policy=page.policy, updates=updates):
        for scheme in ("light", "dark"):
            browser.view(scheme=scheme)
            browser.call("Page.navigate", url=f"http://{HOST}:{opened.getsockname()[1]}/t/")
            browser.wait_for("document.documentElement?.dataset.answers !== undefined", bool)
            assert find_barriers(browser) == []
            # Text in charts has the colour of remarks beside them, which axe-core has judged.
            remark = "getComputedStyle(document.querySelector('.remark')).color"
            assert read_chart_colours(browser) == [browser.evaluate(remark)]
        browser.evaluate("document.documentElement.style.setProperty('--muted', '#555')")
        assert [rule for rule, _ in find_barriers(browser)] == ["color-contrast"], "axe-core looks"


COURSE = CourseView(
    title="?", place="record", machine="m", started="", state="being measured", finished_count=0, planned_count=0,
    left_s=0.0, trials=(),
)  # fmt: skip


@contextmanager
def showing(browser: Browser, shown: dict[str, object], *, width: int = 1280) -> Iterator[Updates]:
    """The page in the browser, once it shows these parts."""
    page, updates, opened = make_live_page(), Updates(), listen(0)
    updates.put({name: msgspec.json.encode(part) for name, part in shown.items()})
    with serving(opened, token="t", html=page.html, policy=page.policy, updates=updates):
        browser.view(width=width)
        browser.call("Page.navigate", url=f"http://{HOST}:{opened.getsockname()[1]}/t/")
        for name in shown:
            browser.wait_for(f"document.documentElement?.dataset.{name} !== undefined", bool)
        yield updates


@pytest.mark.parametrize(
    ("seconds", "width", "told"),
    [
        (30, 1280, ["0 s", "5 s", "10 s", "15 s", "20 s", "25 s", "30 s"]),
        (600, 1280, ["0:00", "2:00", "4:00", "6:00", "8:00", "10:00"]),
        (7200, 1280, ["0:00:00", "0:20:00", "0:40:00", "1:00:00", "1:20:00", "1:40:00", "2:00:00"]),
        (7200, 375, ["0:00:00", "1:00:00", "2:00:00"]),
    ],
)
def test_the_time_of_a_chart_is_divided_into_whole_minutes_and_hours(
    browser: Browser, seconds: float, width: int, told: list[str]
) -> None:
    column: dict[str, list[float | None]] = {"t": [0.0, seconds], "tps": [1.0, 1.0]}
    chart = ChartView(
        kind="tps", title="Transactions per second", unit="TPS", alt="?", is_wide=True, columns=(column,), marks={},
        legend=(LegendEntry(field="tps", label="TPS", hue="blue", is_line=True),),
    )  # fmt: skip
    trial = TrialView(number=1, words="w", state="running", until_s=seconds, charts=(chart,), events=())
    with showing(browser, {"trials": [trial]}, width=width):
        boxes = browser.evaluate(
            "[...document.querySelectorAll('#now svg text.time')].map(one => [one.textContent, one.getBBox().x, one.getBBox().width])"
        )
    assert [text for text, _, _ in boxes] == told
    assert all(x + length < later for (_, x, length), (_, later, _) in pairwise(boxes)), boxes


def test_a_trial_of_one_second_is_drawn_as_well(browser: Browser) -> None:
    column: dict[str, list[float | None]] = {"t": [1.0], "line": [1.0], "area": [2.0]}
    legend = tuple(LegendEntry(field=name, label=name, hue="blue", is_line=name == "line") for name in ("line", "area"))
    chart = ChartView(
        kind="tps", title="t", unit="TPS", alt="?", is_wide=True, columns=(column,), marks={}, legend=legend
    )
    trial = TrialView(number=1, words="w", state="finished", until_s=2.0, charts=(chart,), events=())
    with showing(browser, {"trials": [trial]}):
        sizes = "[...document.querySelectorAll('#now svg :is(.dot, .area)')].map(one => [one.getBBox().width, one.getBBox().height])"
        shapes = browser.evaluate(sizes)
    assert len(shapes) == 2
    assert all(width > 4 and height > 4 for width, height in shapes), shapes


def test_the_key_has_the_colours_of_the_trials(browser: Browser) -> None:
    variants = ("", "900 TPS scheduled", "700 TPS scheduled")
    trials = tuple(
        TrialLine(number=number, workload="w", variant=variant, state="finished")
        for number, variant in enumerate(variants, start=1)
    )
    with showing(browser, {"course": [msgspec.structs.replace(COURSE, trials=trials)]}):
        key, strip = (
            browser.evaluate(f"[...document.querySelectorAll('{of} li')].map(one => getComputedStyle(one, {part}).backgroundColor)")
            for of, part in ((".legend", "'::before'"), (".strip", "null"))
        )  # fmt: skip
    assert len(set(strip)) == 3
    assert key == strip[1:]


def make_sweeps(*counts: int) -> AnswersView:
    sweeps = (
        SweepView(
            workload=f"load {number}",
            points=tuple(
                PointView(clients=clients, tps=1.0, low=None, high=None, text="1", status="")
                for clients in range(1, count + 1)
            ),
            curve=(),
        )
        for number, count in enumerate(counts)
    )
    return AnswersView(verdicts=(), figures=(), sweeps=tuple(sweeps), findings=())


def test_critical_findings_stand_above_the_charts_and_the_others_below(browser: Browser) -> None:
    findings = tuple(
        FindingView(severity=severity, workloads="", claim=f"A {severity}.", advice="")
        for severity in ("critical", "warning", "note")
    )
    trial = TrialView(number=1, words="w", state="running", until_s=1.0, charts=(), events=())
    answers = msgspec.structs.replace(make_sweeps(2), findings=findings)
    with showing(browser, {"course": [COURSE], "trials": [trial], "answers": answers}) as updates:
        places = "[...document.querySelectorAll('#sweeps, #now, .findings li')].map(one => one.id || one.className)"
        assert browser.evaluate(places) == ["critical", "sweeps", "now", "warning", "note"]
        updates.put({"answers": msgspec.json.encode(msgspec.structs.replace(answers, findings=findings[1:]))})
        browser.wait_for("document.querySelector('#grave').hidden", bool)


def test_an_interval_that_leaves_the_curve_ends_in_an_arrow(browser: Browser) -> None:
    points = tuple(
        PointView(clients=clients, tps=100.0, low=50.0, high=high, text="100", status="")
        for clients, high in ((1, 120.0), (2, 900.0))
    )
    sweep = SweepView(workload="w", points=points, curve=())
    with showing(browser, {"answers": msgspec.structs.replace(make_sweeps(), sweeps=(sweep,))}):
        arrows = browser.evaluate(
            "[...document.querySelectorAll('#sweeps .arrow')].map(one => one.getBBox().x + one.getBBox().width / 2)"
        )
        whiskers = browser.evaluate(
            "[...document.querySelectorAll('#sweeps .whisker')].map(one => one.x1.baseVal.value)"
        )
    assert arrows == [pytest.approx(whiskers[1])]


def test_who_reads_a_table_stays_there_when_a_trial_ends(browser: Browser) -> None:
    trials = tuple(TrialLine(number=number, workload="w", variant="", state="waiting") for number in range(1, 61))
    course = msgspec.structs.replace(COURSE, trials=trials)
    row = ".querySelectorAll('tbody tr').length"
    with showing(browser, {"course": [course], "answers": make_sweeps(0, 50)}) as updates:
        browser.evaluate("document.querySelector('details').open = true")
        for place, name, after in (
            ("#sweeps", "answers", make_sweeps(20, 51)),
            ("#trials", "course", [msgspec.structs.replace(course, trials=trials[:59])]),
        ):
            table = f"[...document.querySelectorAll('{place} .scroll')].at(-1)"
            browser.evaluate(f"{table}.scrollTop = 300, {table}.focus()")
            assert browser.evaluate(f"{table}.scrollTop") == 300
            count = browser.evaluate(f"{table}{row}")
            updates.put({name: msgspec.json.encode(after)})
            browser.wait_for(f"{table}{row}", lambda seen, count=count: seen != count)
            assert browser.evaluate(f"[{table}.scrollTop, document.activeElement === {table}]") == [300, True]
        browser.evaluate("document.querySelector('summary').focus()")
        updates.put({"course": msgspec.json.encode([course])})
        browser.wait_for(f"{table}{row}", lambda seen: seen == len(trials))
        assert browser.evaluate("[document.activeElement.tagName, document.querySelector('details').open]") == [
            "SUMMARY",
            True,
        ]


@pytest.mark.parametrize(
    ("state", "done", "told"), [("being measured", 26, ["26", "72"]), ("ended", 26, ["26", "26"]), ("ended", 0, ["0", "1"])]
)  # fmt: skip
def test_the_bar_is_as_long_as_it_says(browser: Browser, state: str, done: int, told: list[str]) -> None:
    course = msgspec.structs.replace(COURSE, state=state, finished_count=done, planned_count=72)
    with showing(browser, {"course": [course]}):
        values = "['valuenow', 'valuemax'].map((name) => document.querySelector('#bar').getAttribute(`aria-${name}`))"
        assert browser.evaluate(values) == told
        width = browser.evaluate("parseFloat(document.querySelector('#bar i').style.width)")
    assert width == pytest.approx(100 * int(told[0]) / int(told[1]), rel=1e-3)


def test_a_browser_that_lost_the_page_comes_back_by_itself_to_the_present_state(browser: Browser) -> None:
    page, link = make_live_page(), "document.querySelector('#link')?.textContent"
    # Of an address that no other process has, so that none takes the port while nobody listens.
    opened = listen(0, address=LOOPBACK)
    port = opened.getsockname()[1]
    for problem, again in (("first", False), ("second", True)):
        updates = Updates()
        updates.put({"problem": json.dumps(problem).encode()})
        socket = listen(port, address=LOOPBACK) if again else opened
        with serving(socket, token="t", html=page.html, policy=page.policy, updates=updates):
            if not again:
                browser.view()
                browser.call("Page.navigate", url=f"http://{LOOPBACK}:{port}/t/")
            browser.wait_for("document.querySelector('#problem')?.textContent", lambda text, seen=problem: text == seen)
            browser.wait_for(link, lambda text: text == "connected")
        browser.wait_for(link, lambda text: text.startswith("not connected"))
        # What it showed last stays.
        assert browser.evaluate("document.querySelector('#problem').textContent") == problem
