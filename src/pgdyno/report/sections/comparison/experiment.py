"""Describe the design of a comparison: its variants, their order and their numbers of clients."""

from __future__ import annotations

from pgdyno.plan.experiment import Experiment, is_client_sweep, list_crossed_levels
from pgdyno.plan.plan import Plan, apply_variant
from pgdyno.report.format import format_seconds
from pgdyno.report.lists import join_names
from pgdyno.spec.study import TrialsSpec
from pgdyno.spec.variant import DesignKind

_MOST_NAMED = 4


def name_variants(experiment: Experiment) -> str:
    """Name the variants and their reference, or count them where there are too many to name."""
    if is_client_sweep(experiment):
        return f"{len(experiment.variants)} numbers of clients"
    axes = list(experiment.reference.levels)
    if list_crossed_levels(experiment):
        return f"{len(experiment.variants)} combinations of {join_names(axes)}"
    others = [variant.name for variant in experiment.variants[1:]]
    names = join_names(others)
    # A combination's name contains a comma: a list of such names would be ambiguous.
    if len(others) > _MOST_NAMED or (len(others) > 1 and len(axes) > 1):
        what = {0: "variants", 1: "levels", 2: "combinations"}[len(axes)]
        names = f"{len(others)} {what}{' of ' if axes else ''}{join_names(axes)}"
    return f"{names} against {experiment.reference.name}"


def question_of(experiment: Experiment) -> str:
    """Return the question of a comparison whose study does not state one."""
    if is_client_sweep(experiment):
        return "How does TPS follow the number of clients?"
    return f"{name_variants(experiment)}: which is faster?"


def describe_experiment(experiment: Experiment, trials: TrialsSpec, *, is_loading: bool = False) -> str:
    """Describe the variants and the design in which they alternate."""
    if is_loading:
        return f"{name_variants(experiment)}, in interleaved trials, each a load into an empty cluster,"
    if experiment.takes_turns:
        return f"{name_variants(experiment)}, taking turns on one server ({format_seconds(trials.duration_s)} each in a round)"
    how = {
        DesignKind.SWITCHBACK: "alternating under one load",
        DesignKind.PAIRED: f"in interleaved trials of {format_seconds(trials.duration_s)}",
        DesignKind.LIVE: f"in live pairs of {format_seconds(trials.duration_s)}",
    }
    return f"{name_variants(experiment)}, {how[experiment.design]}"


def count_servers(experiment: Experiment) -> int:
    """Count the PostgreSQL servers that are compared; one when all variants share it."""
    return len(
        {(variant.server.kind, variant.server.version, variant.server.bindir) for variant in experiment.variants}
    )


def list_clients(plan: Plan) -> frozenset[int]:
    """Return every number of clients that the plan uses."""
    if plan.experiment is None:
        return frozenset(workload.clients for workload in plan.workloads)
    return frozenset(
        apply_variant(workload, variant).clients for workload in plan.workloads for variant in plan.experiment.variants
    )
