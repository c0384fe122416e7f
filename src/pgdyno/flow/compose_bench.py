"""Compose the study of a bench from what a command line asks for."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.minutes import Budget
from pgdyno.spec.read import make_study
from pgdyno.spec.study import BUILTIN_SCRIPTS, LOADING, Study
from pgdyno.spec.table import make_printable


class Goal(enum.Enum):
    """The question that a bench answers."""

    STOCK = "stock"
    """How fast PostgreSQL is as it stands."""
    DERIVED = "derived"
    """As STOCK, and whether derived settings are faster, and how TPS follow the number of clients under those that won."""
    QUICK = "quick"
    """As DERIVED, with fewer rounds and only the workload that writes most."""
    LAYERS = "layers"
    """As DERIVED, and which layer of the derived settings makes the difference."""


class _Defaults(msgspec.Struct, frozen=True, kw_only=True):
    trials: dict[str, object]
    load_budget_s: float
    minutes: float | None = None
    """Minutes of the whole bench; None where nothing is compared."""
    more_rounds: int = 2
    workloads: tuple[str, ...] = BUILTIN_SCRIPTS


# A comparison's trials are many and short: longer trials vary as much, and each round more makes the
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
_MIXED = "mixed"
_QUESTION = "How fast is this machine's PostgreSQL"
_QUESTIONS = {
    Goal.QUICK: f"{_QUESTION}, and are settings derived for it faster?",
    Goal.DERIVED: f"{_QUESTION}, and are settings derived for it faster?",
    Goal.LAYERS: f"{_QUESTION}, and which of the settings derived for it pay?",
}


def load_budget_s(goal: Goal) -> float:
    """Return how long loading the data of a bench may take when the scale is chosen."""
    return _DEFAULTS[goal].load_budget_s


def budget_of(goal: Goal, *, rounds: int | None) -> Budget | None:
    """Return the time that a bench with derived settings may take; None for one that compares nothing.

    Args:
        goal: What the bench is to answer.
        rounds: Rounds of the comparison; None: as many as fit the minutes.
    """
    defaults = _DEFAULTS[goal]
    if defaults.minutes is None:
        return None
    return Budget(
        minutes=defaults.minutes, rounds=rounds, more_rounds=defaults.more_rounds, load_s=defaults.load_budget_s
    )


def choose_goal(
    *, is_quick: bool, is_stock_only: bool, is_layered: bool, minutes: float | None, rounds: int | None
) -> Goal:
    """Choose what a bench answers, by the options of its command line.

    Raises:
        SpecError: Two options exclude each other.
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
    """Compose the study that a command line asks for, without the variants that are derived later.

    Args:
        workloads: Built-in names or script files; those with `@WEIGHT` form one mixed workload.
        load: Keys that hold for each workload.
        tables: The tables `server`, `data`, `trials` and `experiment`, as far as they were given.
        goal: What the bench answers.
        folder: Where script files are looked up.

    Raises:
        SpecError: An option or a script cannot be used.
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
        "poolers": tables.get("poolers", {}),
    }
    return make_study(raw, source="the command line", folder=folder)


def workload_tables(workloads: list[str], *, default: Sequence[str] = BUILTIN_SCRIPTS) -> list[dict[str, object]]:
    """Return the tables of [[workload]] that a command line asks for, or the default ones."""
    weighted = [text for text in workloads if "@" in text]
    plain = [text for text in workloads if "@" not in text] or ([] if weighted else list(default))
    stems = [*(Path(text).stem for text in plain), *([_MIXED] if weighted else [])]
    tables: list[dict[str, object]] = []
    for text, stem in zip(plain, stems, strict=False):
        # Scripts of one name in two folders are called by their places.
        name = make_printable(stem if stems.count(stem) == 1 else text)
        tables.append({"name": text} if text == LOADING else {"name": name, "scripts": [text]})
    if weighted:
        tables.append({"name": _MIXED, "scripts": weighted})
    return tables
