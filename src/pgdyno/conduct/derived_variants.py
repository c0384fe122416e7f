"""Derive settings for a study's load and this machine, and make them variants of the study and a part of its record.

The study's data and its number of clients are known before it runs: the settings are derived for exactly that load.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pgdyno.conduct.accepted_settings import accept_settings
from pgdyno.conduct.cards.known import find_cards, with_cards
from pgdyno.conduct.machine import ReadyMachine
from pgdyno.conduct.short_pool import describe_giving_way, explain_left_out
from pgdyno.conduct.ui import Ui
from pgdyno.errors import PgdynoError, ShortPoolError, SpecError
from pgdyno.plan.live import find_sysctl_obstacle
from pgdyno.plan.minutes import Budget, split_minutes
from pgdyno.plan.plan import Machine, Plan, plan_study
from pgdyno.plan.scaling import with_scaling
from pgdyno.plan.size import count_live_copies, predict_beside_wal
from pgdyno.plan.variants import with_canonical_names
from pgdyno.record.tuned import DERIVED, STOCK, Tuned, TunedInput, TunedLayer, TunedSetting
from pgdyno.run.change.kernel import changed_sysctls
from pgdyno.run.host.tunables import read_tunables
from pgdyno.spec.study import Study
from pgdyno.spec.variant import DesignKind, VariantSpec, show_value
from pgdyno.tune.derive import derive
from pgdyno.tune.layers import LayerPart, TrialSet, choose_trial_set, stock_value
from pgdyno.tune.measured_load import MeasuredLoad
from pgdyno.tune.subject import LoadHints, make_subject
from pgdyno.tune.types import DerivedSettings, Known, WorkloadClass
from pgdyno.units import count_things, format_bytes

_DERIVE_S = 1.0
_SLOW_REASON = "it acts over minutes, and all servers that are up share one kernel; `--design paired` tries it"
# Who asks for longer trials wants checkpoints in them.
_LONGEST_LIVE_S = 20.0
# Working copies of live pairs of stock and derived.
_LIVE_COPIES = count_live_copies(2)
# pgbench's own scripts; what other scripts do is not known.
_CLASSES = {
    "tpcb-like": WorkloadClass.OLTP_WRITE,
    "simple-update": WorkloadClass.OLTP_WRITE,
    "select-only": WorkloadClass.OLTP_READ,
}


class DerivedStudy(msgspec.Struct, frozen=True, kw_only=True):
    """A study with the settings that were derived for it as variants."""

    study: Study
    tuned: Tuned | None
    """The derived settings with their reasons; None where nothing is to be compared."""
    chosen: TrialSet
    """The part of them that is tried."""
    short_pools: tuple[ShortPoolError, ...] = ()
    """Of the settings that are left out, the numbers of huge pages that the kernel cannot make."""
    why_paired: str | None = None
    """Why they are not compared live; None where they are, or where the study asks for another design."""


def derive_variants(
    study: Study, *, is_layered: bool, budget: Budget | None, ready: ReadyMachine, ui: Ui
) -> DerivedStudy:
    """Derive settings for a study's load and machine, and add stock and the derived set as variants, and a sweep.

    The study gets no variants where nothing differs from stock.

    Args:
        study: Without variants.
        is_layered: Whether to add a variant without each layer of the set.
        budget: How long the study may take; None for a study that compares nothing, which stays as it is.
        ready: The machine.
        ui: Shows the step.

    Raises:
        SpecError: A setting that the study fixes does not exist or does not fit the machine, or the time is too short.
        HostError: The data do not fit on the disk.
    """
    if budget is None:
        return DerivedStudy(study=study, tuned=None, chosen=TrialSet(layers=(), left_out={}))
    ui.begin_step("derive settings", predicted_s=_DERIVE_S)
    derived = _derive(study, is_layered=is_layered, budget=budget, ready=ready)
    chosen = derived.chosen
    ui.end_step(
        f"to be tried: {count_things(len(chosen.settings()), 'PostgreSQL setting')}, {count_things(len(chosen.sysctls()), 'kernel setting')}"
    )
    for error in derived.short_pools:
        ui.say(describe_giving_way(error))
    if derived.why_paired is not None:
        ui.say(f"compared by paired trials, which take longer to decide: {derived.why_paired}")
    if chosen.sysctls():
        ui.say(f"trials change these kernel settings and put them back: {', '.join(chosen.sysctls())}")
    if not chosen.layers:
        ui.say(
            "every setting derived for this load and machine is as it is already: the bench measures and compares nothing"
        )
    return derived


def check_derivable(study: Study, *, is_layered: bool, budget: Budget | None, ready: ReadyMachine) -> None:
    """Make sure that `derive_variants` will not fail, before the disk is measured whose card it takes into account.

    Raises:
        SpecError: As in `derive_variants`.
        HostError: As in `derive_variants`.
    """
    if budget is not None:
        _derive(study, is_layered=is_layered, budget=budget, ready=ready)


def _derive(study: Study, *, is_layered: bool, budget: Budget, ready: ReadyMachine) -> DerivedStudy:
    home, installation, machine = ready.home, ready.installation, ready.machine
    seen = read_tunables(home.root, None if home.wal is None else home.wal.parent)
    planned = plan_study(study, machine, load_budget_s=budget.load_s)
    fixed = list_fixed(study, installation.facts.major)
    wishes, cards = LoadHints(workload=classify_load(planned)), find_cards(home.root, seen)

    def derive_for(copies: int) -> DerivedSettings:
        beside = predict_beside_wal(study, planned, machine, copies=copies, is_wal_apart=seen.wal_disk is not None)
        subject = make_subject(seen, installation.facts, wishes, measured=_know_load(planned, beside))
        tuning = derive(with_cards(subject, cards, is_here=True), fixed=fixed)
        return accept_settings(tuning, installation, user=home.user, fixed=fixed)

    may_be_live = not is_layered and study.experiment.design in {None, DesignKind.LIVE}
    tuning = derive_for(_LIVE_COPIES if may_be_live else 1)
    wanted = choose_trial_set(tuning, fixed=fixed, refused={})
    errors = _find_refused(wanted.sysctls().items())
    refused = {
        name: explain_left_out(error) if isinstance(error, ShortPoolError) else error.fact
        for name, error in errors.items()
    }
    slow = {name: _SLOW_REASON for name in wanted.sysctls() if find_sysctl_obstacle(name) is not None}
    chosen = choose_trial_set(tuning, fixed=fixed, refused={**slow, **refused})
    design, why_paired = choose_design(study, chosen, is_layered=is_layered, budget=budget, machine=machine)
    if design is not DesignKind.LIVE:
        # One server at a time leaves more room on the disk.
        tuning = derive_for(1) if may_be_live else tuning
        chosen = choose_trial_set(tuning, fixed=fixed, refused=refused)
    tuned = None
    if chosen.layers:
        study = _with_variants(study, chosen, is_layered=is_layered, design=design)
        tuned = describe_tuned(tuning, chosen, planned, is_layered=is_layered)
    study = split_minutes(with_scaling(study, planned), machine, budget)
    return DerivedStudy(
        study=study,
        tuned=tuned,
        chosen=chosen,
        short_pools=tuple(error for error in errors.values() if isinstance(error, ShortPoolError)),
        why_paired=why_paired if chosen.layers else None,
    )


def list_fixed(study: Study, major: int) -> dict[str, str]:
    """Return the settings that a study gives to stock as well, under the names that derived settings have."""
    return {name: show_value(value) for name, value in with_canonical_names(study.server.settings, major).items()}


def choose_design(
    study: Study, chosen: TrialSet, *, is_layered: bool, budget: Budget, machine: Machine
) -> tuple[DesignKind, str | None]:
    """Choose how stock and derived are compared, and tell why not live where nobody asked for another design.

    Layers are about checkpoints, too: their trials are long enough to hold some, whose pace counts frozen time.
    """
    asked = study.experiment.design
    if asked is not None or is_layered or not chosen.layers:
        return asked or DesignKind.PAIRED, None
    live = _with_variants(study, chosen, is_layered=False, design=DesignKind.LIVE)
    if study.trials.duration_s > _LONGEST_LIVE_S:
        return DesignKind.PAIRED, "trials this long are to hold checkpoints, whose pace counts frozen time"
    try:
        plan_study(_without_minutes(live), machine, load_budget_s=budget.load_s)
    except SpecError as error:
        return DesignKind.PAIRED, error.detail
    return DesignKind.LIVE, None


def _with_variants(study: Study, chosen: TrialSet, *, is_layered: bool, design: DesignKind) -> Study:
    experiment = msgspec.structs.replace(study.experiment, design=design)
    variants = make_variants(chosen, is_layered=is_layered)
    return msgspec.structs.replace(study, variant=variants, experiment=experiment)


def _without_minutes(study: Study) -> Study:
    return msgspec.structs.replace(study, experiment=msgspec.structs.replace(study.experiment, minutes=None))


def classify_load(plan: Plan) -> WorkloadClass:
    """Return the class of load that settings are derived for, by all of a plan's scripts.

    Reads beside writes count as OLTP that writes; a script of the user's own makes it a mixture.
    """
    classes = {_CLASSES.get(name, WorkloadClass.MIXED) for workload in plan.workloads for name, _ in workload.scripts}
    return next(
        one for one in (WorkloadClass.MIXED, WorkloadClass.OLTP_WRITE, WorkloadClass.OLTP_READ) if one in classes
    )


def make_variants(chosen: TrialSet, *, is_layered: bool) -> tuple[VariantSpec, ...]:
    """Make the variants stock and derived; to take layers apart, derived first and a variant without each layer."""
    stock, derived = VariantSpec(name=STOCK), _make_variant(DERIVED, chosen, None)
    if not _is_apart(chosen, is_layered=is_layered):
        return stock, derived
    return derived, stock, *(_make_variant(_name_without(layer), chosen, layer) for layer in chosen.layers)


def describe_tuned(tuning: DerivedSettings, chosen: TrialSet, planned: Plan, *, is_layered: bool) -> Tuned:
    """Describe the derived set for the record: all of its settings, and which of them were tried."""
    is_apart = _is_apart(chosen, is_layered=is_layered)
    clients = max(workload.clients for workload in planned.workloads)
    return Tuned(
        derived_for=f"{tuning.subject.workload.value}, {clients} clients, {format_bytes(planned.dataset_bytes or 0)} of data",
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
                variant=_name_without(layer) if is_apart else None,
            )
            for layer in chosen.layers
        ),
        notes=tuning.notes,
    )


def _know_load(plan: Plan, beside_wal_bytes: int) -> MeasuredLoad:
    """Return the load as the bench itself has chosen it, and what it brings to the disk of pg_wal beside the WAL."""
    how = "as this bench runs it"
    clients = max(workload.clients for workload in plan.workloads)
    return MeasuredLoad(
        active=Known.declared("active sessions", clients, "count", how),
        dataset=Known.declared("dataset", plan.dataset_bytes or 0, "bytes", how),
        to_come_bytes=beside_wal_bytes,
    )


def _find_refused(sysctls: Iterable[tuple[str, str]]) -> dict[str, PgdynoError]:
    """Try each kernel setting, put it back, and return those that cannot be changed here, with the error."""
    refused = {}
    for name, value in sysctls:
        try:
            with changed_sysctls({name: value}):
                pass
        except PgdynoError as error:
            refused[name] = error
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
