"""Plan a study on a machine as concrete steps: what runs, in which order, for how long, and why.

Pure: the same study, machine and seed give the same plan. What the user left open is chosen here, each choice with its
reason. Predicted seconds only tell the user how long to wait.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import PurePath

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.design import HINT_PAIRED
from pgdyno.plan.endpoints import plan_poolers
from pgdyno.plan.experiment import Experiment, Variant, count_starts
from pgdyno.plan.failover import check_failover, with_failover
from pgdyno.plan.live import find_crowding
from pgdyno.plan.loading import check_loading, is_loading, plan_loading_size, plan_loading_trials
from pgdyno.plan.loads import plan_loads
from pgdyno.plan.order import (
    Times,
    choose_budget,
    count_slots,
    order_comparison,
    order_plain,
)
from pgdyno.plan.parts import check_parts, find_least_rounds
from pgdyno.plan.replicas import check_replicas
from pgdyno.plan.search import Search, least_duration_s, order_search, plan_search
from pgdyno.plan.search import choose_budget as choose_search_budget
from pgdyno.plan.size import BYTES_PER_SCALE, DataSize, find_missing_room, plan_size
from pgdyno.plan.standbys import check_standbys, note_standbys
from pgdyno.plan.types import (
    Choice,
    Machine,
    Plan,
    PlannedSweep,
    PlannedTrial,
    PlannedWorkload,
    Step,
    StepKind,
    apply_variant,
    count_planned_rounds,
)
from pgdyno.plan.variants import plan_experiment
from pgdyno.spec.initdb import SEGMENTS_OF_MAX_WAL, combine_choices
from pgdyno.spec.study import DataSpec, Study, TrialsSpec
from pgdyno.spec.table import CacheState
from pgdyno.spec.variant import MOST_MINUTES, DesignKind

__all__ = [
    "BYTES_PER_SCALE",
    "CHECK_S",
    "REPORT_S",
    "Choice",
    "Machine",
    "Plan",
    "PlannedSweep",
    "PlannedTrial",
    "PlannedWorkload",
    "Step",
    "StepKind",
    "apply_variant",
    "count_planned_rounds",
    "plan_study",
    "try_variants_s",
]

CHECK_S = 2.0
REPORT_S = 3.0
# Seconds for initdb of an empty cluster, and for a start and a stop for each variant.
_TRY_S = 2.0
_TRY_EACH_S = 1.0


def try_variants_s(count: int) -> float:
    """Predict the seconds that trying this number of servers takes."""
    return _TRY_S + _TRY_EACH_S * count if count else 0.0


def plan_study(study: Study, machine: Machine, *, load_budget_s: float = 20.0) -> Plan:
    """Choose everything that a study leaves open, and order its trials.

    Args:
        study: The study as requested.
        machine: Resources that the study may use.
        load_budget_s: Time that loading may take if the scale is chosen here.

    Raises:
        SpecError: The study does not fit the server's settings or its time budget.
        HostError: The data do not fit on the disk.
    """
    choices: list[Choice] = []
    experiment = plan_experiment(
        study,
        version_major=machine.version_major,
        withheld=machine.withheld_settings,
        live_obstacle=machine.live_obstacle,
    )
    variants = () if experiment is None else experiment.variants
    check_failover(study)
    check_parts(study, variants)
    check_standbys(study, variants)
    if is_loading(study):
        check_loading(study, variants)
    search = plan_search(study)
    if search is not None:
        # How long a trial writes decides how much of the data is restored after it.
        study = msgspec.structs.replace(study, trials=_lengthen(study.trials, search, choices))
    workloads = with_failover(study, plan_loads(study, variants, machine, choices), choices)
    check_replicas(study, variants, workloads)
    poolers = plan_poolers(study, variants, workloads, machine, choices)
    if search is not None:
        workloads = tuple(msgspec.structs.replace(each, latency_limit_ms=search.limit_ms) for each in workloads)
    if is_loading(study):
        size = plan_loading_size(study, variants, machine=machine, choices=choices)
        study = msgspec.structs.replace(study, trials=plan_loading_trials(study.trials, size, machine))
    else:
        size = plan_size(study, variants, workloads, machine=machine, load_budget_s=load_budget_s, choices=choices)
    check_s = CHECK_S + try_variants_s(count_starts(variants))
    if experiment is not None and experiment.is_side_by_side:
        experiment = _fit_live(study, experiment, size, machine)
    if experiment is not None:
        choices.append(Choice(name="design", value=experiment.design.value, reason=experiment.reason))
    note_standbys(study, variants, choices)
    _note_segments(study, variants, choices)
    warm_ups_s = _find_warm_ups(study, variants, choices)
    # The loads of a round of turns share one server, its start and its warm-up.
    sharers = count_slots(experiment) if experiment is not None and experiment.takes_turns else 1
    times = Times(
        fixed_s=check_s + size.load_s + size.first_s + REPORT_S,
        restore_s=size.restore_s,
        warm_up_s=max(warm_ups_s.values()),
        turn_warm_up_s=float(math.ceil(max(warm_ups_s.values()) / sharers)),
        duration_s=_duration_s(study, experiment, choices),
    )
    if experiment is not None and experiment.budget_s is None:
        least = find_least_rounds(experiment, workloads)
        budget_s = _note_budget(choose_budget(len(workloads), experiment, times, least_rounds=least), choices)
        experiment = msgspec.structs.replace(experiment, budget_s=budget_s)
    if search is not None and search.budget_s is None:
        budget_s = _note_budget(choose_search_budget(len(workloads), times), choices)
        search = msgspec.structs.replace(search, budget_s=budget_s)
    trials = _draw_trials(study, workloads, experiment or search, times, warm_ups_s=warm_ups_s)
    steps = (
        Step(kind=StepKind.CHECK, predicted_s=check_s + machine.disk_card_s),
        Step(kind=StepKind.LOAD, predicted_s=size.load_s),
        *(
            Step(
                kind=StepKind.TRIAL,
                predicted_s=size.trial_s(trial, sharers=1 if trial.is_observed else sharers),
                trial=trial,
            )
            for trial in trials
        ),
        Step(kind=StepKind.REPORT, predicted_s=REPORT_S),
    )
    return Plan(
        scale=size.scale,
        dataset_bytes=size.dataset_bytes,
        workloads=workloads,
        steps=steps,
        choices=tuple(choices),
        experiment=experiment,
        search=search,
        between=size.between,
        data_name=_name_data(study.data),
        poolers=poolers,
    )


def _name_data(data: DataSpec) -> str | None:
    if data.init is not None:
        return PurePath(data.init).name
    return None if data.database is None else f"database {data.database}"


def _fit_live(study: Study, experiment: Experiment, size: DataSize, machine: Machine) -> Experiment:
    """Return the experiment in live pairs if there is room for them, else in paired trials.

    Raises:
        SpecError: Live pairs were asked for, and there is no room.
    """
    missing = find_missing_room(experiment.variants, size, machine)
    if missing is None:
        return _note_crowding(experiment, size, machine)
    if study.experiment.design is not None:
        raise SpecError("these variants cannot be compared live here", detail=missing, hint=HINT_PAIRED)
    return msgspec.structs.replace(experiment, design=DesignKind.PAIRED, reason=missing)


def _note_crowding(experiment: Experiment, size: DataSize, machine: Machine) -> Experiment:
    """Return the experiment with a reason that says where live loads take the one server's memory from each other."""
    crowding = find_crowding(
        len(experiment.variants), dataset_bytes=size.dataset_bytes, shared_buffers_bytes=machine.shared_buffers_bytes
    )
    if crowding is None:
        return experiment
    return msgspec.structs.replace(
        experiment, reason=f"{experiment.reason}; but {crowding}, which paired trials do not do"
    )


def _lengthen(trials: TrialsSpec, search: Search, choices: list[Choice]) -> TrialsSpec:
    """Return the trials of a search, as long as its limit takes."""
    least_s = least_duration_s(search)
    if least_s <= trials.duration_s:
        return trials
    reason = (
        f"a queue that grows by {search.resolution_ratio * 100:g} % must reach {search.limit_ms:g} ms within a trial"
    )
    choices.append(Choice(name="duration", value=f"{least_s:g} s", reason=reason))
    return msgspec.structs.replace(trials, duration=f"{least_s:.0f}s")


def _duration_s(study: Study, experiment: Experiment | None, choices: list[Choice]) -> float:
    asked_s = study.trials.duration_s
    slice_s = experiment.slice_s if experiment is not None and experiment.design is DesignKind.LIVE else None
    if slice_s is None or slice_s <= asked_s:
        return asked_s
    choices.append(Choice(name="duration", value=f"{slice_s:g} s", reason="a slice takes as long"))
    return slice_s


def _note_budget(chosen: tuple[float, str], choices: list[Choice]) -> float:
    budget_s, reason = chosen
    if budget_s == MOST_MINUTES * 60.0:
        reason = f"{MOST_MINUTES // (24 * 60)} days are the most that a study takes; less when it is decided"
    choices.append(Choice(name="minutes", value=f"{budget_s / 60:g}", reason=reason))
    return budget_s


def _note_segments(study: Study, variants: Sequence[Variant], choices: list[Choice]) -> None:
    """Say what else differs between clusters with segments of several sizes."""
    chosen = [combine_choices(study.data)] if not variants else [variant.initdb for variant in variants]
    servers = [variant.server for variant in variants] or [study.server]
    for size in dict.fromkeys(
        one.segment_mb
        for one, server in zip(chosen, servers, strict=True)
        if one.segment_mb is not None and "max_wal_size" not in server.settings
    ):
        reason = (
            "initdb writes 64 segments into postgresql.conf; name max_wal_size in settings to compare segments alone"
        )
        name = f"max_wal_size with wal_segment_size {size}MB"
        choices.append(Choice(name=name, value=f"{SEGMENTS_OF_MAX_WAL * size // 1024:g}GB", reason=reason))


def _find_warm_ups(study: Study, variants: Sequence[Variant], choices: list[Choice]) -> dict[str, float]:
    """Return the seconds of warm-up of each variant's trials by name; those of a study without variants are the empty name's."""
    asked_s = study.trials.warm_up_s
    caches = {variant.name: variant.cache or study.trials.cache for variant in variants} or {"": study.trials.cache}
    cold = [name for name, cache in caches.items() if cache is CacheState.COLD]
    if cold and asked_s:
        of = "" if len(cold) == len(caches) else f" of {', '.join(cold)}"
        reason = "the measured load is to begin with a cold cache"
        choices.append(Choice(name=f"warm-up{of}", value="none", reason=reason))
    return {name: 0.0 if name in cold else asked_s for name in caches}


def _draw_trials(
    study: Study,
    workloads: Sequence[PlannedWorkload],
    asked: Experiment | Search | None,
    times: Times,
    *,
    warm_ups_s: Mapping[str, float],
) -> tuple[PlannedTrial, ...]:
    draw = random.Random(study.trials.seed)  # noqa: S311 - a seed makes the plan repeatable; nothing here is secret
    names = [workload.name for workload in workloads]
    match asked:
        case None:
            turns = order_plain(names, study.trials.rounds, times, draw)
        case Search():
            turns = order_search(names, asked, times, draw)
        case Experiment():
            least = find_least_rounds(asked, workloads)
            turns = order_comparison(names, asked, times, draw, least_rounds=least)
    has_turns = isinstance(asked, Experiment) and asked.takes_turns
    return tuple(
        PlannedTrial(
            number=number,
            round=turn.round,
            workload=turn.workload,
            seed=draw.randrange(1, 2**31),
            warm_up_s=times.turn_warm_up_s
            if has_turns and turn.round > 0
            else warm_ups_s[turn.variants[0] if turn.variants else ""],
            duration_s=turn.duration_s,
            variants=turn.variants,
        )
        for number, turn in enumerate(turns, start=1)
    )
