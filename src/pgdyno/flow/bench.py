"""`pgdyno bench`: the main job. How fast is this machine's PostgreSQL, and are derived settings faster than stock?

What was said on the command line becomes a study; the settings derived for its load and this machine become variants of
it; the rest is what every study does.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, SpecError
from pgdyno.flow.check import existing
from pgdyno.flow.report import StudyReport
from pgdyno.flow.study import Place, machine_of, run_study
from pgdyno.flow.ui import Ui
from pgdyno.plan.experiment import count_least_rounds
from pgdyno.plan.plan import Machine, Plan, plan_study
from pgdyno.record.store import RecordStore
from pgdyno.record.tuned import DERIVED, STOCK, Tuned, TunedInput, TunedLayer, TunedSetting
from pgdyno.run.installation import Installation, find_installation
from pgdyno.run.kernel import changed_sysctls
from pgdyno.run.process import find_server_user
from pgdyno.run.settings_check import count_huge_pages
from pgdyno.run.tunables import read_tunables
from pgdyno.spec.read import make_study
from pgdyno.spec.study import BUILTIN_SCRIPTS, Study
from pgdyno.spec.variant import VariantSpec, show_value
from pgdyno.tune.derive import derive, with_huge_pages
from pgdyno.tune.layers import TrialSet, choose_trial_set, stock_value
from pgdyno.tune.subject import Measured, Wishes, make_subject
from pgdyno.tune.types import Known, Origin, Target, Tuning, WorkloadClass
from pgdyno.units import format_bytes


class Goal(enum.Enum):
    """What a bench is to answer."""

    QUICK = "quick"
    """How fast it is, roughly."""
    STOCK = "stock"
    """How fast it is."""
    DERIVED = "derived"
    """And whether derived settings are faster."""
    LAYERS = "layers"
    """And which layer of them makes the difference."""


class _Defaults(msgspec.Struct, frozen=True, kw_only=True):
    trials: dict[str, object]
    load_budget_s: float
    minutes: float = 0.0
    """Of a comparison; fewer where it needs fewer."""


# On 2 CPUs nine short trials and the loading end within 3 minutes, fifteen longer ones within 12. A comparison's are many
# and short, because a longer one does not repeat itself any better; those that take layers apart are longer, because
# checkpoints, which one layer is about, come after 10 to 60 s of full load.
_DEFAULTS = {
    Goal.QUICK: _Defaults(trials={"rounds": 3, "duration": "8s", "warm_up": "2s"}, load_budget_s=10.0),
    Goal.STOCK: _Defaults(trials={"rounds": 5, "duration": "30s", "warm_up": "5s"}, load_budget_s=20.0),
    Goal.DERIVED: _Defaults(trials={"duration": "10s", "warm_up": "2s"}, load_budget_s=10.0, minutes=15.0),
    Goal.LAYERS: _Defaults(trials={"duration": "20s", "warm_up": "3s"}, load_budget_s=10.0, minutes=60.0),
}
_QUESTION = "How fast is this machine's PostgreSQL"
_QUESTIONS = {
    Goal.DERIVED: f"{_QUESTION}, and are settings derived for it faster?",
    Goal.LAYERS: f"{_QUESTION}, and which of the settings derived for it pay?",
}
_DERIVE_S = 1.0
# pgbench's own scripts; of others nobody knows what they do.
_CLASSES = {
    "tpcb-like": WorkloadClass.OLTP_WRITE,
    "simple-update": WorkloadClass.OLTP_WRITE,
    "select-only": WorkloadClass.OLTP_READ,
}


def bench(study: Study, *, goal: Goal, rounds: int | None = None, place: Place, ui: Ui) -> StudyReport:
    """Run the main job: check, derive, load, warm-up, trials, report.

    Args:
        study: As composed for the goal.
        goal: What to answer.
        rounds: Of a comparison, where they are given; else as many as its minutes allow.
        place: Where it works.
        ui: Is told.
    """
    budget_s = _DEFAULTS[goal].load_budget_s
    tuned: Tuned | None = None
    if goal in {Goal.DERIVED, Goal.LAYERS}:
        study, tuned = _add_variants(study, goal=goal, rounds=rounds, place=place, ui=ui)
    report = run_study(study, name="bench", place=place, ui=ui, load_budget_s=budget_s, tuned=tuned)
    if tuned is None:
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
    if minutes is not None and goal in {Goal.QUICK, Goal.STOCK}:
        raise SpecError(
            f"{options[goal]} compares nothing, and takes no --minutes",
            hint="--rounds and --duration say how long it takes",
        )
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
        "workload": [{**load, **workload} for workload in workload_tables(workloads)],
        "trials": {**_DEFAULTS[goal].trials, **tables["trials"]},
        "experiment": tables["experiment"],
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


def _add_variants(study: Study, *, goal: Goal, rounds: int | None, place: Place, ui: Ui) -> tuple[Study, Tuned | None]:
    """The study with stock and the derived set as variants, and the set; as it was where nothing is to be changed."""
    if place.out is not None:
        RecordStore(place.out).check_new()
    ui.begin_step("derive settings", predicted_s=_DERIVE_S)
    user = find_server_user(place.run_as)
    installation = find_installation(study.server, user=user, software_dir=place.home / "software")
    seen = read_tunables(existing(place.home))
    machine = machine_of(seen.host, version_major=installation.facts.major)
    load_budget_s = _DEFAULTS[goal].load_budget_s
    planned = plan_study(study, machine, load_budget_s=load_budget_s)
    fixed = {name: show_value(value) for name, value in study.server.settings.items()}
    subject = make_subject(
        seen, installation.facts, Wishes(workload=classify_load(planned)), measured=_know_load(planned)
    )
    tuning = _count_pages(derive(subject, fixed=fixed), installation, user_name=place.run_as)
    chosen = choose_trial_set(tuning, fixed=fixed, refused=_find_refused(tuning))
    ui.end_step(f"{len(chosen.settings())} of PostgreSQL and {len(chosen.sysctls())} of the kernel to be tried")
    if not chosen.layers:
        ui.say("nothing derived for this load and machine differs from what is there: only how fast it is can be told")
        return study, None
    if chosen.sysctls():
        ui.say(f"changed while trials need them, and put back: {', '.join(chosen.sysctls())}")
    study = msgspec.structs.replace(study, variant=make_variants(chosen, is_layered=goal is Goal.LAYERS))
    study = with_minutes(study, machine, goal=goal, rounds=rounds)
    return study, describe_tuned(tuning, chosen, planned, is_layered=goal is Goal.LAYERS)


def classify_load(plan: Plan) -> WorkloadClass:
    """What settings are derived for: the class that all of a plan's scripts have, else a mixture."""
    classes = {_CLASSES.get(name, WorkloadClass.MIXED) for workload in plan.workloads for name, _ in workload.scripts}
    return classes.pop() if len(classes) == 1 else WorkloadClass.MIXED


def make_variants(chosen: TrialSet, *, is_layered: bool) -> tuple[VariantSpec, ...]:
    """Stock and derived; to take layers apart derived first, and one more without each layer."""
    stock = VariantSpec(name=STOCK)
    derived = VariantSpec(name=DERIVED, settings=dict(chosen.settings()), sysctl=dict(chosen.sysctls()))
    if not is_layered:
        return stock, derived
    # Without the only layer it would be stock again.
    layers = chosen.layers if len(chosen.layers) > 1 else ()
    return (
        derived,
        stock,
        *(
            VariantSpec(
                name=f"without {layer.name}",
                settings=dict(chosen.settings(without=layer)),
                sysctl=dict(chosen.sysctls(without=layer)),
            )
            for layer in layers
        ),
    )


def describe_tuned(tuning: Tuning, chosen: TrialSet, planned: Plan, *, is_layered: bool) -> Tuned:
    """The set for the record: all of it, and what of it was tried."""
    is_apart = is_layered and len(chosen.layers) > 1
    clients = max(workload.clients for workload in planned.workloads)
    return Tuned(
        derived_for=f"{tuning.subject.workload.value}, {clients} clients, {format_bytes(planned.dataset_bytes)} of data",
        settings=tuple(
            TunedSetting(
                name=one.name,
                value=one.value,
                stock=stock_value(one, tuning.subject),
                target=one.target.value,
                layer=one.layer.value,
                reason=one.reason,
                formula=one.formula,
                inputs=tuple(_describe_input(known) for known in one.inputs),
                source=one.source,
                trades=one.trades,
                left_out=chosen.left_out.get(one.name),
            )
            for one in tuning.settings
        ),
        layers=tuple(
            TunedLayer(
                name=layer.name,
                settings=tuple(one.name for one in layer.settings),
                arm=f"without {layer.name}" if is_apart else None,
            )
            for layer in chosen.layers
        ),
        notes=tuning.notes,
    )


def _know_load(plan: Plan) -> Measured:
    """What the bench will do is known: it chose it."""
    how = "as this bench runs it"
    clients = max(workload.clients for workload in plan.workloads)
    return Measured(
        active=Known(name="active sessions", value=clients, unit="count", origin=Origin.DECLARED, how=how),
        dataset=Known(name="dataset", value=plan.dataset_bytes, unit="bytes", origin=Origin.DECLARED, how=how),
    )


def _count_pages(tuning: Tuning, installation: Installation, *, user_name: str | None) -> Tuning:
    settings = {one.name: one.value for one in tuning.of(Target.POSTGRESQL)}
    pages = count_huge_pages(installation, settings, user=find_server_user(user_name))
    return tuning if pages is None else with_huge_pages(tuning, pages)


def _find_refused(tuning: Tuning) -> Mapping[str, str]:
    """Kernel settings that cannot be changed here, each with the reason. They are put back before the next is tried."""
    refused = {}
    for one in tuning.of(Target.SYSCTL):
        try:
            with changed_sysctls({one.name: one.value}):
                pass
        except PgdynoError as error:
            refused[one.name] = error.fact
    return refused


def with_minutes(study: Study, machine: Machine, *, goal: Goal, rounds: int | None) -> Study:
    """The study with a budget: of the rounds that were asked for, or of the default minutes, as far as it needs them.

    Raises:
        SpecError: Fewer rounds were asked for than any verdict takes.
    """
    defaults = _DEFAULTS[goal]
    if study.experiment.minutes is not None:
        return study
    plan = plan_study(study, machine, load_budget_s=defaults.load_budget_s)
    round_s = sum(step.predicted_s for step in plan.steps if step.trial is not None and step.trial.round == 1)
    others_s = sum(step.predicted_s for step in plan.steps if step.trial is None)
    assert plan.experiment is not None  # noqa: S101 - it has variants
    least = count_least_rounds(plan.experiment, len(plan.workloads))
    if rounds is not None and rounds < least:
        raise SpecError(
            f"{rounds} rounds are too few for a verdict",
            detail=f"{least} are the fewest of {len(plan.experiment.arms) - 1} variants on {len(plan.workloads)} workloads",
            hint=f"--rounds {least}, or --stock-only to measure without comparing",
        )
    most_s = plan.experiment.budget_s or math.inf
    wanted_s = min(most_s, defaults.minutes * 60.0) if rounds is None else others_s + rounds * round_s
    # To a quarter of a minute, of which a study file can keep any number exactly.
    minutes = math.ceil(max(wanted_s, others_s + least * round_s) / 15.0) / 4.0
    return msgspec.structs.replace(study, experiment=msgspec.structs.replace(study.experiment, minutes=minutes))


def _describe_input(known: Known) -> TunedInput:
    return TunedInput(name=known.name, value=known.value, unit=known.unit, origin=known.origin.value, how=known.how)
