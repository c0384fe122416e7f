"""`pgdyno bench`: the main job. What was said on the command line becomes a study; the rest is what every study does."""

from __future__ import annotations

from pathlib import Path

from pgdyno.flow.report import StudyReport
from pgdyno.flow.study import Place, run_study
from pgdyno.flow.ui import Ui
from pgdyno.spec.read import make_study
from pgdyno.spec.study import BUILTIN_SCRIPTS, Study

# Nine short trials and the loading end within 3 minutes on 2 cores, fifteen longer ones within 12.
_QUICK_TRIALS = {"rounds": 3, "duration": "8s", "warm_up": "2s"}
_DEFAULT_TRIALS = {"rounds": 5, "duration": "30s", "warm_up": "5s"}
_QUICK_LOAD_BUDGET_S = 10.0
_DEFAULT_LOAD_BUDGET_S = 20.0


def bench(study: Study, *, place: Place, is_quick: bool, ui: Ui) -> StudyReport:
    """Run the main job: check, load, warm-up, trials, report."""
    budget_s = _QUICK_LOAD_BUDGET_S if is_quick else _DEFAULT_LOAD_BUDGET_S
    return run_study(study, name="bench", place=place, ui=ui, load_budget_s=budget_s)


def compose_study(
    *,
    workloads: list[str],
    load: dict[str, object],
    tables: dict[str, dict[str, object]],
    is_quick: bool,
    folder: Path,
) -> Study:
    """The study that a command line asks for.

    Args:
        workloads: Built-in names or script files; those with `@WEIGHT` form one mixed workload.
        load: Keys that hold for each workload.
        tables: The tables `server`, `data` and `trials`, as far as they were given.
        is_quick: Whether short trials do.
        folder: Where script files are looked up.

    Raises:
        SpecError: Something in it is not understood.
    """
    trials = {**(_QUICK_TRIALS if is_quick else _DEFAULT_TRIALS), **tables["trials"]}
    raw: dict[str, object] = {
        "question": "How fast is this machine's PostgreSQL?",
        "server": tables["server"],
        "data": tables["data"],
        "workload": [{**load, **workload} for workload in workload_tables(workloads)],
        "trials": trials,
    }
    return make_study(raw, source="the command line", folder=folder)


def workload_tables(workloads: list[str]) -> list[dict[str, object]]:
    """A study's [[workload]] as the command line says it; none are the three built-ins."""
    weighted = [text for text in workloads if "@" in text]
    plain = [text for text in workloads if "@" not in text] or ([] if weighted else list(BUILTIN_SCRIPTS))
    tables: list[dict[str, object]] = [{"name": Path(text).stem, "scripts": [text]} for text in plain]
    if weighted:
        tables.append({"name": "mixed", "scripts": weighted})
    return tables
