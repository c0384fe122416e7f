"""`pgdyno bench`: the main job. How fast is this machine's PostgreSQL, are derived settings faster, how does it scale?

What was said on the command line becomes a study; the settings derived for its load and this machine become variants of
it, and a sweep over clients follows them; the rest is what every study does.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import SpecError
from pgdyno.flow.derived_variants import add_variants
from pgdyno.flow.report import StudyReport
from pgdyno.flow.study import Ready, run_study
from pgdyno.plan.minutes import Budget
from pgdyno.record.tuned import Tuned
from pgdyno.spec.read import make_study
from pgdyno.spec.study import BUILTIN_SCRIPTS, Study


class Goal(enum.Enum):
    """What a bench is to answer."""

    QUICK = "quick"
    """The whole job, roughly, of the workload that writes most."""
    STOCK = "stock"
    """How fast it is."""
    DERIVED = "derived"
    """And whether derived settings are faster, and how it scales with clients under those that won."""
    LAYERS = "layers"
    """And which layer of them makes the difference."""


class _Defaults(msgspec.Struct, frozen=True, kw_only=True):
    trials: dict[str, object]
    load_budget_s: float
    minutes: float | None = None
    """Of the whole job; None for what compares nothing."""
    more_rounds: int = 2
    workloads: tuple[str, ...] = BUILTIN_SCRIPTS


# A comparison's trials are many and short: a longer one does not repeat itself any better, and each round more makes the
# interval narrower. Those that take layers apart are longer, because checkpoints, which one layer is about, come after
# 10 to 60 s of full load. Fifteen trials that compare nothing end within 12 minutes on 2 CPUs.
_DEFAULTS = {
    Goal.QUICK: _Defaults(
        trials={"duration": "3s", "warm_up": "1s"},
        load_budget_s=10.0,
        minutes=5.0,
        more_rounds=1,
        workloads=BUILTIN_SCRIPTS[:1],
    ),
    Goal.STOCK: _Defaults(trials={"rounds": 5, "duration": "30s", "warm_up": "5s"}, load_budget_s=20.0),
    Goal.DERIVED: _Defaults(trials={"duration": "4s", "warm_up": "1s"}, load_budget_s=10.0, minutes=15.0),
    Goal.LAYERS: _Defaults(trials={"duration": "20s", "warm_up": "3s"}, load_budget_s=10.0, minutes=60.0),
}
_QUESTION = "How fast is this machine's PostgreSQL"
_QUESTIONS = {
    Goal.QUICK: f"{_QUESTION}, and are settings derived for it faster?",
    Goal.DERIVED: f"{_QUESTION}, and are settings derived for it faster?",
    Goal.LAYERS: f"{_QUESTION}, and which of the settings derived for it pay?",
}


def bench(
    study: Study, *, goal: Goal, rounds: int | None = None, measures_disk: bool = False, place: Workspace, ui: Ui
) -> StudyReport:
    """Run the main job: check, disk card, derive, load, trials of stock and derived, sweep over clients, report.

    Args:
        study: As composed for the goal.
        goal: What to answer.
        rounds: Of a comparison, where they are given; else as many as its minutes allow.
        measures_disk: Whether it is also told how much of its disk the database gets.
        place: Where it works.
        ui: Is told.
    """
    defaults = _DEFAULTS[goal]
    minutes, load_s = defaults.minutes, defaults.load_budget_s

    def refine(asked: Study, ready: Ready) -> tuple[Study, Tuned | None]:
        if minutes is None:
            return asked, None
        budget = Budget(minutes=minutes, rounds=rounds, more_rounds=defaults.more_rounds, load_s=load_s)
        return add_variants(asked, is_layered=goal is Goal.LAYERS, budget=budget, ready=ready, ui=ui)

    report = run_study(
        study, name="bench", place=place, ui=ui, load_budget_s=load_s, refine=refine, measures_disk=measures_disk
    )
    if goal is Goal.STOCK:
        ui.say("`pgdyno bench` tells whether settings derived for this machine are faster, `--layers` which of them")
    return report


def choose_goal(
    *, is_quick: bool, is_stock_only: bool, is_layered: bool, minutes: float | None, rounds: int | None
) -> Goal:
    """What a command line asks a bench to answer.

    Raises:
        SpecError: It asks for two things that exclude each other.
    """
    asked = [
        goal
        for goal, is_asked in ((Goal.QUICK, is_quick), (Goal.STOCK, is_stock_only), (Goal.LAYERS, is_layered))
        if is_asked
    ]
    options = {Goal.QUICK: "--quick", Goal.STOCK: "--stock-only", Goal.LAYERS: "--layers"}
    if len(asked) > 1:
        raise SpecError(f"{' and '.join(options[goal] for goal in asked)} exclude each other", hint="leave one out")
    goal = asked[0] if asked else Goal.DERIVED
    if minutes is not None and goal is Goal.STOCK:
        raise SpecError(
            "--stock-only compares nothing, and takes no --minutes",
            hint="--rounds and --duration say how long it takes",
        )
    if minutes is not None and goal is Goal.QUICK:
        raise SpecError("--quick and --minutes exclude each other", hint="leave one out")
    if minutes is not None and rounds is not None:
        raise SpecError("--minutes and --rounds exclude each other", hint="leave one out")
    return goal


def compose_study(
    *,
    workloads: list[str],
    load: dict[str, object],
    tables: dict[str, dict[str, object]],
    goal: Goal,
    folder: Path,
) -> Study:
    """The study that a command line asks for; of a comparison without its variants.

    Args:
        workloads: Built-in names or script files; those with `@WEIGHT` form one mixed workload.
        load: Keys that hold for each workload.
        tables: The tables `server`, `data`, `trials` and `experiment`, as far as they were given.
        goal: What it is to answer.
        folder: Where script files are looked up.

    Raises:
        SpecError: Something in it is not understood.
    """
    raw: dict[str, object] = {
        "question": _QUESTIONS.get(goal, f"{_QUESTION}?"),
        "server": tables["server"],
        "data": tables["data"],
        "workload": [
            {**load, **workload} for workload in workload_tables(workloads, default=_DEFAULTS[goal].workloads)
        ],
        "trials": {**_DEFAULTS[goal].trials, **tables["trials"]},
        "experiment": tables["experiment"],
    }
    return make_study(raw, source="the command line", folder=folder)


def workload_tables(workloads: list[str], *, default: Sequence[str] = BUILTIN_SCRIPTS) -> list[dict[str, object]]:
    """A study's [[workload]] as the command line says it, or the default ones."""
    weighted = [text for text in workloads if "@" in text]
    plain = [text for text in workloads if "@" not in text] or ([] if weighted else list(default))
    tables: list[dict[str, object]] = [{"name": Path(text).stem, "scripts": [text]} for text in plain]
    if weighted:
        tables.append({"name": "mixed", "scripts": weighted})
    return tables
