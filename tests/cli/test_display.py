from __future__ import annotations

import io
import re
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from pgdyno.cli.terminal.display import Display, describe_plan
from pgdyno.cli.terminal.trend import Trend, draw_sparkline
from pgdyno.explain.finding import Finding, Severity
from pgdyno.plan.plan import Machine, Plan, plan_study
from pgdyno.plan.scaling import plan_scaling
from pgdyno.run.live_page import PageRequest
from pgdyno.spec.read import make_study
from pgdyno.spec.variant import VariantSpec

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=80_000_000_000)


@pytest.fixture
def plan() -> Plan:
    load = [{"name": "tpcb-like"}, {"name": "select-only", "rate_tps": 5000.0, "mode": "prepared"}]
    return plan_study(make_study({"workload": load}, source="test", folder=Path()), MACHINE)


def show(plan: Plan, *, width: int, is_terminal: bool) -> list[str]:
    out = io.StringIO()
    display = Display()
    display.console = Console(file=out, width=width, force_terminal=is_terminal, no_color=True, legacy_windows=False)
    display.show_plan(plan, record_dir="pgdyno-records/20261121-093000-bench", remaining_s=700.0)
    # Without a bar, which `begin_step` would draw, and at once.
    display._title, display._began_s = "load scale 20", 100.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pgdyno.cli.terminal.display.monotonic_s", lambda: 104.1)
        display.end_step("loaded in 4.1 s, of which the most was spent in generating rows on the client's side")
    text = out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    return text.splitlines()


@pytest.mark.parametrize("width", [60, 40, 100])
def test_a_narrow_terminal_breaks_between_words(plan: Plan, width: int) -> None:
    wide = show(plan, width=1000, is_terminal=True)
    narrow = show(plan, width=width, is_terminal=True)
    assert " ".join(" ".join(narrow).split()) == " ".join(" ".join(wide).split())
    assert all(len(line) <= width for line in narrow)
    begun = [line for line in narrow if line in wide or any(one.startswith(line) for one in wide)]
    assert all(line.startswith("    ") for line in narrow if line not in begun)


def test_elsewhere_a_line_stays_one(plan: Plan) -> None:
    lines = show(plan, width=60, is_terminal=False)
    assert lines[: len(describe_plan(plan))] == describe_plan(plan)
    assert lines[-2] == "about 12 min; record: pgdyno-records/20261121-093000-bench"


def test_what_is_searched_for_is_told_with_the_percentile_that_nobody_said() -> None:
    plan = plan_study(
        make_study({"workload": [{"name": "tpcb-like"}], "search": {"latency": "20ms"}}, source="test", folder=Path()),
        MACHINE,
    )
    assert "  search: the largest rate that holds p99 < 20 ms, to 10 %" in describe_plan(plan)


@pytest.mark.parametrize(
    ("varied", "words"),
    [
        (
            {"name": "clients", "levels": [1, 8]},
            " round of 1 workload:|1 to 8 clients, 1 to 2 threads, simple mode, 2 s",
        ),
        ({"name": "mode", "levels": ["simple", "prepared"]}, "8 clients, 2 threads, simple or prepared mode, 2 s"),
        ({"name": "commit_delay", "levels": [0, 50]}, " block of 1 workload:|8 clients, 2 threads, simple mode, 5 s"),
    ],
)
def test_the_load_of_a_comparison_is_that_of_all_variants(varied: dict[str, object], words: str) -> None:
    raw = {"workload": [{"name": "tpcb-like"}], "sweep": [varied], "experiment": {"minutes": 600}}
    said = "\n".join(describe_plan(plan_study(make_study(raw, source="test", folder=Path()), MACHINE)))
    assert all(part in said.replace("rounds", "round").replace("blocks", "block") for part in words.split("|")), said


@pytest.mark.parametrize(
    ("severity", "begins", "colour"),
    [
        (Severity.CRITICAL, "problem: The CPU is shared.", "\x1b[1;31mproblem"),
        (Severity.WARNING, "costs speed: The CPU is shared.", "\x1b[1;33mcosts speed"),
    ],
)
def test_a_finding_at_the_beginning_is_a_line_with_its_fix(severity: Severity, begins: str, colour: str) -> None:
    finding = Finding(
        severity=severity,
        claim="The CPU is shared.",
        evidence="9 % stolen [/]",
        advice="`pgdyno check` says when it is not.",
    )
    shown = []
    for no_color in (True, False):
        out = io.StringIO()
        display = Display(quiet=True)
        display.console = Console(file=out, width=40, force_terminal=True, no_color=no_color, legacy_windows=False)
        display.show_finding(finding)
        shown.append(out.getvalue())
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown[0])
    assert plain == f"{begins} `pgdyno check` says when it is not.\n"
    assert shown[1].startswith(colour)


def test_an_answer_that_never_comes_is_no_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Teletype(io.StringIO):
        def isatty(self) -> bool:
            return True

    display = Display()
    shown = io.StringIO()
    display.console = Console(file=shown, force_terminal=True, no_color=True)
    for typed, answer in (("", False), ("n\n", False), ("y\n", True)):
        monkeypatch.setattr("sys.stdin", Teletype(typed))
        assert display.confirm("go on [/]?", default=True) is answer
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()) == "go on [/]? [y/N] " * 3


def test_the_sweep_that_follows_is_told_with_the_plan() -> None:
    study = make_study({"workload": [{"name": "tpcb-like"}], "scaling": {"minutes": 15}}, source="test", folder=Path())
    plan = plan_study(study, MACHINE)
    said = describe_plan(plan, plan_scaling(study, plan, MACHINE))
    told = [
        "  then tpcb-like by 1 to 32 clients, 1 to 2 threads, simple mode: at most 3 rounds",
        "  these live: the loads differ only in clients, and can take turns on one server",
    ]
    assert [line for line in said if line.startswith(("  then", "  these"))] == told
    assert describe_plan(plan) == [line for line in said if line not in told]
    compared = msgspec.structs.replace(study, variant=(VariantSpec(name="stock"), VariantSpec(settings={"jit": "off"})))
    plan = plan_study(compared, MACHINE)
    said = describe_plan(plan, plan_scaling(compared, plan, MACHINE))
    assert [line for line in said if "by 1 to 32 clients" in line] == [
        "  then tpcb-like by 1 to 32 clients, 1 to 2 threads, simple mode, with the winning settings: at most 3 rounds"
    ]


def test_what_is_announced_after_first_steps_counts_anew() -> None:
    display = Display(quiet=True)
    display.announce((), total_s=60.0)
    display.begin_step("disk", predicted_s=50.0)
    display.end_step("measured")
    assert display._done_s == 50.0
    display.announce((), total_s=30.0)
    assert (display._done_s, display._total_s) == (0.0, 30.0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 5000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("pgdyno.cli.terminal.display.monotonic_s", clock)
    return clock


def test_the_time_left_is_the_plans_less_what_has_passed(clock: Clock) -> None:
    display = Display(quiet=True)
    display.announce((), total_s=120.0)
    display.begin_step("trial 1/3", predicted_s=40.0)
    assert display.remaining_s() == 120.0
    clock.now_s += 10.0
    assert display.remaining_s() == 110.0
    clock.now_s += 50.0
    assert display.remaining_s() == 80.0, "a step that outlasts its prediction takes nothing from those to come"


@pytest.mark.parametrize(("took_s", "left_s"), [(0.001, 80.0), (40.0, 80.0), (60.0, 120.0), (4000.0, 160.0)])
def test_the_time_left_follows_the_pace_of_ended_steps_within_reason(
    clock: Clock, took_s: float, left_s: float
) -> None:
    display = Display(quiet=True)
    display.announce((), total_s=120.0)
    display.begin_step("trial 1/3", predicted_s=40.0)
    clock.now_s += took_s
    display.end_step("")
    display.begin_step("trial 2/3", predicted_s=40.0)
    assert display.remaining_s() == pytest.approx(left_s)
    clock.now_s += 1e9
    assert display.remaining_s() == pytest.approx(left_s / 2)


def test_a_first_step_says_nothing_of_those_to_come(clock: Clock) -> None:
    display = Display(quiet=True)
    display.announce((), total_s=1000.0)
    display.begin_step("load scale 20", predicted_s=10.0)
    clock.now_s += 100.0
    display.end_step("")
    seen = [display.remaining_s()]
    for number in range(5):
        display.begin_step(f"trial {number + 1}/5", predicted_s=10.0)
        clock.now_s += 10.0
        display.end_step("")
        seen.append(display.remaining_s())
    assert seen[:4] == [990.0, 980.0, 970.0, 960.0], "the plan's, until enough of it is done"
    assert seen[5] == pytest.approx(940.0 * 70 / 60), "and what went wrong once counts once"
    assert max(seen) / min(seen) < 1.2


def test_trials_whose_time_is_limited_take_no_longer_at_any_pace(clock: Clock) -> None:
    display = Display(quiet=True)
    display.announce((), total_s=110.0)
    display.limit(predicted_s=100.0, within_s=100.0)
    for left_s in (80.0, 60.0, 40.0, 20.0, 0.0):
        display.begin_step("trial", predicted_s=10.0)
        clock.now_s += 20.0
        display.end_step("")
        # The report, predicted to take 10 s, follows at the trials' pace.
        assert display.remaining_s() == pytest.approx(left_s + 20.0)
    clock.now_s += 1.0
    assert display.remaining_s() == pytest.approx(20.0)
    display.limit(predicted_s=50.0, within_s=100.0)
    assert display.remaining_s() == pytest.approx(120.0), "it goes on until something can be decided"
    display.announce((), total_s=60.0)
    assert display.remaining_s() == 60.0


def test_the_bar_shows_the_time_left_by_the_plan(clock: Clock) -> None:
    out = io.StringIO()
    display = Display()
    display.console = Console(file=out, width=100, force_terminal=True, no_color=True, legacy_windows=False)
    with display:
        display.announce((), total_s=300.0)
        for trial in (1, 2, 3):
            display.begin_step(f"trial {trial}/3", predicted_s=100.0)
            clock.now_s += 100.0
            display.show_load(tps=1000.0, latency_ms=None)
            assert display._progress is not None
            display._progress.refresh()
            display.end_step("")
    assert "about 3 min left" in out.getvalue()
    assert "nearly done" in out.getvalue()
    assert ":" not in out.getvalue()


def test_before_a_transaction_has_ended_the_line_shows_what_is_being_done(clock: Clock) -> None:
    display = Display()
    display.console = Console(file=io.StringIO(), force_terminal=True, no_color=True, legacy_windows=False)
    with display:
        display.announce((), total_s=300.0)
        display.begin_step("round 1/3 tpcb-like", predicted_s=100.0)
        assert display._progress is not None
        shown = []
        for name in ("clients=1", "clients=64"):
            display.show_activity(f"measuring {name}")
            for tps in (0.0, 900.0, 0.0):
                display.show_load(tps=tps, latency_ms=None)
                shown.append(display._progress.tasks[0].fields["live"])
    # A server that stalls later says so.
    assert shown == ["measuring clients=1", "900 tps", "0 tps", "measuring clients=64", "900 tps", "0 tps"]


def draw_live(*, width: int = 60, is_terminal: bool = True, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", write_through=True)
    display = Display(page=PageRequest())
    display.console = Console(file=out, width=width, force_terminal=is_terminal, no_color=True, legacy_windows=False)
    with display:
        display.announce((), total_s=300.0)
        for second, tps in enumerate((1000.0, 500.0, 250.0)):
            display.begin_step(f"trial {second}", predicted_s=100.0)
            display.show_load(tps=tps, latency_ms=None if second == 0 else 8.0 / second)
        display.show_verdicts("tpcb-like: derived faster +8 % [+2, +14] (9 pairs), and more than fits on the line")
        display.begin_step("trial 3", predicted_s=100.0)
        if display._progress is not None:
            display._progress.refresh()
    return raw.getvalue().decode(encoding)


def test_with_a_live_page_a_terminal_shows_the_last_seconds_too() -> None:
    last = draw_live().split("trial 3")[-1].replace("\r", "").split("\n")
    assert last[1].rstrip() == "TPS      █ ▅ ▃  250"
    assert last[2].rstrip() == "latency    █ ▅  4 ms"
    assert last[3].startswith("so far   tpcb-like: derived faster +8 %")
    assert last[3].split("\x1b")[0].endswith("…")
    narrow = draw_live(width=24)
    assert ("TPS" in narrow, "█" in narrow) == (True, False)
    assert "TPS       250" in draw_live(encoding="ascii")


def test_elsewhere_nothing_is_drawn() -> None:
    assert draw_live(is_terminal=False) == "about 5 min\n"


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ((), 5, ""),
        ((0.0, 0.0), 5, "▁▁"),
        ((0.0, 50.0, 100.0), 5, "▁▅█"),
        ((900.0, None, 1.0, 2.0), 3, " ▅█"),
    ],
)
def test_a_sparkline_begins_at_0_and_shows_what_fits(values: tuple[float | None, ...], width: int, drawn: str) -> None:
    assert draw_sparkline(values, width=width) == drawn


def test_rounds_that_are_added_when_the_plan_is_over_have_their_time(plan: Plan, clock: Clock) -> None:
    display = Display(quiet=True)
    display.show_plan(plan, record_dir="", remaining_s=100.0)
    display.begin_step("all trials", predicted_s=100.0)
    display.end_step("")
    assert display.remaining_s() == 0.0
    display.limit(predicted_s=40.0, within_s=60.0)
    assert display.remaining_s() == pytest.approx(40.0)


def test_seconds_may_come_while_the_last_ones_are_drawn() -> None:
    # The bar is drawn in a thread of its own.
    trend, is_over, before = Trend(), threading.Event(), sys.getswitchinterval()
    trend.add(tps=1.0, latency_ms=1.0)

    def add() -> None:
        while not is_over.is_set():
            trend.add(tps=1.0, latency_ms=1.0)

    console = Console(file=io.StringIO(), width=80)
    adding = threading.Thread(target=add)
    sys.setswitchinterval(1e-6)
    adding.start()
    try:
        drawn = [len(list(trend.__rich_console__(console, console.options))) for _ in range(2000)]
    finally:
        sys.setswitchinterval(before)
        is_over.set()
        adding.join()
    assert drawn[-1] == 2
