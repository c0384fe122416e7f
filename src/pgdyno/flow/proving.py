"""Settings derived for a study's load and this machine become variants of it, and part of its record.

What the study will load and how many clients it will run are known before it runs: settings are derived for that, and
not for a load that nobody measures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from pgdyno.errors import PgdynoError, SpecError
from pgdyno.flow.disk_cards import find_cards, with_cards
from pgdyno.flow.study import Ready
from pgdyno.flow.ui import Ui
from pgdyno.plan.experiment import count_least_rounds
from pgdyno.plan.plan import Machine, Plan, plan_study
from pgdyno.plan.scaling import choose_loads, choose_scaled, plan_scaling
from pgdyno.record.tuned import DERIVED, STOCK, Tuned, TunedInput, TunedLayer, TunedSetting
from pgdyno.run.installation import Installation
from pgdyno.run.kernel import changed_sysctls
from pgdyno.run.process import ServerUser
from pgdyno.run.settings_check import count_huge_pages
from pgdyno.run.tunables import read_tunables
from pgdyno.spec.scaling import ScalingSpec
from pgdyno.spec.study import Study
from pgdyno.spec.variant import DesignKind, VariantSpec, show_value
from pgdyno.tune.derive import derive, with_huge_pages
from pgdyno.tune.layers import LayerPart, TrialSet, choose_trial_set, stock_value
from pgdyno.tune.subject import Measured, Wishes, make_subject
from pgdyno.tune.types import Known, Target, Tuning, WorkloadClass
from pgdyno.units import format_bytes

_DERIVE_S = 1.0
# Two rounds are the fewest that tell noise from scaling; the loads that they leave undecided run again in the third.
_LEAST_SWEEP_ROUNDS, _SWEEP_ROUNDS = 2, 3
# A study file shows them with two decimals.
_PARTS_OF_A_MINUTE = 100
# pgbench's own scripts; of others nobody knows what they do.
_CLASSES = {
    "tpcb-like": WorkloadClass.OLTP_WRITE,
    "simple-update": WorkloadClass.OLTP_WRITE,
    "select-only": WorkloadClass.OLTP_READ,
}


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How long a bench may take."""

    minutes: float
    """Of the whole job, where nobody says."""
    rounds: int | None = None
    """Of the comparison, where they are given."""
    more_rounds: int
    """Beyond the fewest that can decide anything, with which an interval is four standard deviations of a pair wide to
    either side and more; with two more it is two to four. Source: analyse/evidence.py, pairs of +1 and -1, 3 to 21
    questions."""
    load_s: float
    """Of loading, where the scale is chosen."""


def add_variants(study: Study, *, is_layered: bool, budget: Budget, ready: Ready, ui: Ui) -> tuple[Study, Tuned | None]:
    """The study with stock and the derived set as variants, a sweep over clients to follow, and the set.

    Without variants where nothing is to be changed.

    Args:
        study: Without variants.
        is_layered: Whether also without each layer of the set.
        budget: How long it may take.
        ready: The machine.
        ui: Is told.

    Raises:
        SpecError: A setting that the study fixes is none, or does not fit the machine; or the time is too short.
        HostError: The data do not fit on the disk.
    """
    ui.begin_step("derive settings", predicted_s=_DERIVE_S)
    home, installation, machine = ready.home, ready.installation, ready.machine
    seen = read_tunables(home.root)
    planned = plan_study(study, machine, load_budget_s=budget.load_s)
    fixed = {name: show_value(value) for name, value in study.server.settings.items()}
    wishes = Wishes(workload=classify_load(planned))
    subject = make_subject(seen, installation.facts, wishes, measured=_know_load(planned))
    subject = with_cards(subject, find_cards(home.root, seen), is_here=True)
    tuning = _count_pages(derive(subject, fixed=fixed), installation, home.user)
    wanted = choose_trial_set(tuning, fixed=fixed, refused={})
    chosen = choose_trial_set(tuning, fixed=fixed, refused=_find_refused(wanted.sysctls().items()))
    ui.end_step(f"{len(chosen.settings())} of PostgreSQL and {len(chosen.sysctls())} of the kernel to be tried")
    if chosen.sysctls():
        ui.say(f"changed while trials need them, and put back: {', '.join(chosen.sysctls())}")
    if not chosen.layers:
        ui.say("nothing derived for this load and machine differs from what is there: only how fast it is can be told")
        return with_minutes(with_scaling(study, planned), machine, budget), None
    study = msgspec.structs.replace(study, variant=make_variants(chosen, is_layered=is_layered))
    study = with_minutes(with_scaling(study, planned), machine, budget)
    return study, describe_tuned(tuning, chosen, planned, is_layered=is_layered)


def with_scaling(study: Study, planned: Plan) -> Study:
    """The study with a sweep over clients to follow, of the workload that writes most; without one where none can be."""
    name = choose_scaled(planned)
    clients = () if name is None else choose_loads(study, planned.find_workload(name))
    if len(clients) < 2:
        return study
    return msgspec.structs.replace(study, scaling=ScalingSpec(workload=name, clients=clients))


def classify_load(plan: Plan) -> WorkloadClass:
    """What settings are derived for: the class that all of a plan's scripts have, else a mixture."""
    classes = {_CLASSES.get(name, WorkloadClass.MIXED) for workload in plan.workloads for name, _ in workload.scripts}
    return classes.pop() if len(classes) == 1 else WorkloadClass.MIXED


def make_variants(chosen: TrialSet, *, is_layered: bool) -> tuple[VariantSpec, ...]:
    """Stock and derived; to take layers apart derived first, and one more without each layer."""
    stock, derived = VariantSpec(name=STOCK), _make_variant(DERIVED, chosen, None)
    if not _is_apart(chosen, is_layered=is_layered):
        return stock, derived
    return derived, stock, *(_make_variant(_name_without(layer), chosen, layer) for layer in chosen.layers)


def describe_tuned(tuning: Tuning, chosen: TrialSet, planned: Plan, *, is_layered: bool) -> Tuned:
    """The set for the record: all of it, and what of it was tried."""
    is_apart = _is_apart(chosen, is_layered=is_layered)
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
                arm=_name_without(layer) if is_apart else None,
            )
            for layer in chosen.layers
        ),
        notes=tuning.notes,
    )


def with_minutes(study: Study, machine: Machine, budget: Budget) -> Study:
    """The study with the time of the whole job shared out between its comparison and its sweep.

    Minutes that nobody asked for are passed where trials are long or many: a comparison gets what it takes to see more
    than the largest of differences, a sweep what it takes to tell noise from scaling.

    Raises:
        SpecError: Fewer rounds or minutes were asked for than that takes.
    """
    asked = study.experiment.minutes
    # The disk's card is measured before; what is shared out here is the rest.
    card_s, machine = machine.disk_card_s, msgspec.structs.replace(machine, disk_card_s=0.0)
    study = _with_experiment(study, minutes=None)
    if study.variant:
        # Where a reload does for the whole set: minutes are counted in rounds of trials, of stock as of any other.
        study = _with_experiment(study, design=DesignKind.PAIRED)
    plan = plan_study(study, machine, load_budget_s=budget.load_s)
    scaling = plan_scaling(study, plan, machine)
    sweep = _Lengths(0.0, 0.0) if scaling is None else _measure(scaling)
    least_sweep, sweep_minutes = sweep.minutes_of(_LEAST_SWEEP_ROUNDS), sweep.minutes_of(_SWEEP_ROUNDS)
    if plan.experiment is not None:
        own, least = _measure(plan), count_least_rounds(plan.experiment, len(plan.workloads))
        needed = card_s / 60.0 + own.minutes_of(least) + least_sweep
        _check_enough(plan, asked_minutes=asked, rounds=budget.rounds, least=least, needed_minutes=needed)
        minutes = own.minutes_of(budget.rounds or least + budget.more_rounds)
        if budget.rounds is None:
            whole = (budget.minutes if asked is None else asked) - card_s / 60.0
            sweep_minutes = sweep_minutes if minutes + sweep_minutes <= whole else least_sweep
            rest = math.floor((whole - sweep_minutes) * _PARTS_OF_A_MINUTE) / _PARTS_OF_A_MINUTE
            minutes = max(rest, minutes if asked is None else own.minutes_of(least))
        study = _with_experiment(study, minutes=minutes)
    if study.scaling is None:
        return study
    return msgspec.structs.replace(study, scaling=msgspec.structs.replace(study.scaling, minutes=sweep_minutes))


def _check_enough(
    plan: Plan, *, asked_minutes: float | None, rounds: int | None, least: int, needed_minutes: float
) -> None:
    assert plan.experiment is not None  # noqa: S101 - it has variants
    others, workloads = len(plan.experiment.arms) - 1, len(plan.workloads)
    if rounds is not None and rounds < least:
        raise SpecError(
            f"{rounds} rounds are too few for a verdict",
            detail=f"{least} are the fewest of {others} variants on {workloads} workloads",
            hint=f"--rounds {least}, or --stock-only to measure without comparing",
        )
    if asked_minutes is not None and asked_minutes < needed_minutes:
        raise SpecError(
            f"{asked_minutes:g} minutes are too few for a verdict",
            detail=f"it takes {least} rounds of {(others + 2) * workloads} trials, beside disk, loading and clients",
            hint=f"--minutes {math.ceil(needed_minutes)}, shorter trials, or fewer workloads",
        )


class _Lengths(NamedTuple):
    """Predicted seconds of a plan."""

    others_s: float
    round_s: float

    def minutes_of(self, rounds: int) -> float:
        """With so many rounds, rounded up."""
        seconds = self.others_s + rounds * self.round_s
        return math.ceil(seconds / 60.0 * _PARTS_OF_A_MINUTE) / _PARTS_OF_A_MINUTE


def _measure(plan: Plan) -> _Lengths:
    return _Lengths(
        others_s=sum(step.predicted_s for step in plan.steps if step.trial is None),
        round_s=sum(step.predicted_s for step in plan.steps if step.trial is not None and step.trial.round == 1),
    )


def _with_experiment(study: Study, **values: object) -> Study:
    return msgspec.structs.replace(study, experiment=msgspec.structs.replace(study.experiment, **values))


def _know_load(plan: Plan) -> Measured:
    """What the bench will do is known: it chose it."""
    how = "as this bench runs it"
    clients = max(workload.clients for workload in plan.workloads)
    return Measured(
        active=Known.declared("active sessions", clients, "count", how),
        dataset=Known.declared("dataset", plan.dataset_bytes, "bytes", how),
    )


def _count_pages(tuning: Tuning, installation: Installation, user: ServerUser) -> Tuning:
    pages = count_huge_pages(installation, tuning.values_of(Target.POSTGRESQL), user=user)
    return tuning if pages is None else with_huge_pages(tuning, pages)


def _find_refused(sysctls: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Kernel settings that cannot be changed here, each with the reason; all are put back before the next is tried."""
    refused = {}
    for name, value in sysctls:
        try:
            with changed_sysctls({name: value}):
                pass
        except PgdynoError as error:
            refused[name] = error.fact
    return refused


def _is_apart(chosen: TrialSet, *, is_layered: bool) -> bool:
    # Without its only layer a set is stock again.
    return is_layered and len(chosen.layers) > 1


def _make_variant(name: str, chosen: TrialSet, without: LayerPart | None) -> VariantSpec:
    return VariantSpec(
        name=name, settings={**chosen.settings(without=without)}, sysctl={**chosen.sysctls(without=without)}
    )


def _name_without(layer: LayerPart) -> str:
    return f"without {layer.name}"


def _describe_input(known: Known) -> TunedInput:
    return TunedInput(name=known.name, value=known.value, unit=known.unit, origin=known.origin.value, how=known.how)
