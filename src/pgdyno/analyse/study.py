"""Analyse a whole study: each trial by itself, then each workload over its trials."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from pgdyno.analyse.bottleneck.agreement import judge_workload
from pgdyno.analyse.capacity.estimate import CapacityLoad, estimate_capacity
from pgdyno.analyse.capacity.types import Capacity
from pgdyno.analyse.comparison.answers import Round, compare, primary_metric
from pgdyno.analyse.comparison.parts import compare_parts, find_primary_metrics, rounds_of_block_part, rounds_of_parts
from pgdyno.analyse.comparison.pilot import SliceChoice, choose_from_slices
from pgdyno.analyse.comparison.rounds import rounds_of_block, rounds_of_trials
from pgdyno.analyse.disk.demand import DiskLimits
from pgdyno.analyse.estimate import estimate_over_trials
from pgdyno.analyse.search.rate_search import WorkloadSearch
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.analyse.sweep.workload import analyse_workload_sweep, predict_workload_rounds
from pgdyno.analyse.transaction_time.network import estimate_network
from pgdyno.analyse.trial.analysis import analyse_trial
from pgdyno.analyse.trial.latency import estimate_latencies
from pgdyno.analyse.trial.parts import estimate_parts
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.plan.experiment import Experiment, Variant, is_client_sweep, list_crossed_levels
from pgdyno.plan.plan import PlannedWorkload, apply_variant, count_planned_rounds
from pgdyno.plan.search import Search
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import StudyRecord, TrialStatus


class AnalyseTrial(Protocol):
    """Analyses one trial, as `analyse_trial` does."""

    def __call__(
        self, record: StudyRecord, workload: PlannedWorkload, data: TrialData, *, limits: DiskLimits | None = None
    ) -> TrialAnalysis:
        """Analyse a trial under its load."""
        ...


def analyse_study(
    record: StudyRecord,
    trials: Sequence[TrialData],
    *,
    limits: DiskLimits | None = None,
    elsewhere: Sequence[DiskLimits | None] = (),
    each: AnalyseTrial = analyse_trial,
) -> StudyAnalysis:
    """Analyse all trials of a finished study, in the order of the study's workloads.

    Args:
        record: The study's record.
        trials: The data of the study's trials.
        limits: Limits of the disk that holds the data, from its disk card; None without a card.
        elsewhere: The same of the other places of the record, in their order, where variants have places of their own.
        each: Analyses a trial; a reader that comes back remembers those that it knows.
    """
    if record.plan.search is not None:
        return _analyse_search(record, record.plan.search, trials, limits, each)
    loads = list(_list_loads(record))
    analysed = tuple(
        _analyse_load(record.at(load[2]), load, trials, _pick(limits, elsewhere, record.find_place(load[2])), each)
        for load in loads
    )
    experiment = record.plan.experiment
    if experiment is None:
        return StudyAnalysis(workloads=analysed)
    blocks = [
        data
        for data in trials
        if data.slices and data.record.planned.is_block and data.record.status is TrialStatus.FINISHED
    ]
    by_workload = {
        workload.name: [trial for one in analysed if one.load.name == workload.name for trial in one.trials]
        for workload in record.plan.workloads
    }
    planned_rounds = count_planned_rounds(record.plan)
    sweeps = {
        name: analyse_workload_sweep(of, experiment) for name, of in by_workload.items() if is_client_sweep(experiment)
    }
    return StudyAnalysis(
        workloads=tuple(one for one in analysed if one.trials),
        comparisons=compare(
            _gather_rounds(record, by_workload, blocks),
            experiment,
            primary={workload.name: primary_metric(workload) for workload in record.plan.workloads},
            final_looks=record.final_looks or {},
            planned_rounds=planned_rounds,
        ),
        part_comparisons=compare_parts(
            {
                (workload.name, part.name): (
                    *(
                        one
                        for data in blocks
                        if data.record.planned.workload == workload.name
                        for one in rounds_of_block_part(data, part.name)
                    ),
                    *rounds_of_parts(by_workload[workload.name], part.name),
                )
                for workload in record.plan.workloads
                for part in workload.parts
            },
            experiment,
            primary=find_primary_metrics(record.plan.workloads),
            final_looks=record.final_looks or {},
            planned_rounds=planned_rounds,
        ),
        sweeps={name: sweep for name, sweep in sweeps.items() if sweep is not None},
        rounds_needed={name: predict_workload_rounds(by_workload[name], experiment) for name in sweeps},
        crossed={name: dict(_analyse_levels(of, experiment)) for name, of in by_workload.items()},
        pilots=_find_pilots(blocks),
    )


def _analyse_levels(trials: Sequence[TrialAnalysis], experiment: Experiment) -> Iterator[tuple[str, ClientSweep]]:
    """Yield each level of the axis that was swept beside clients, with the curve of its loads; nothing for other comparisons."""
    for level, variants in list_crossed_levels(experiment).items():
        level_of = functools.partial(_find_clients, frozenset(variants.values()))
        sweep = analyse_workload_sweep(trials, experiment, level_of=level_of)
        if sweep is not None:
            yield level, sweep


def _find_clients(names: frozenset[str], variant: Variant) -> int | None:
    return variant.clients if variant.name in names else None


def find_capacities(
    record: StudyRecord,
    analysis: StudyAnalysis,
    limits: DiskLimits | None,
    elsewhere: Sequence[DiskLimits | None] = (),
) -> tuple[Capacity, ...]:
    """Find the capacity for each load of a study, in its order; for each workload in a sweep over clients.

    There is no capacity if variants alternate within a trial, because their use of the machine cannot be told apart.

    Args:
        record: The study's record.
        analysis: The analysis of the study.
        limits: Limits of the disk that holds the data; None without a card.
        elsewhere: As for `analyse_study`.
    """
    return tuple(
        estimate_capacity(load, _pick(limits, elsewhere, load.record.find_place(_variants_of(load.workload))))
        for load in _list_capacity_loads(record, analysis)
    )


def _pick(limits: DiskLimits | None, elsewhere: Sequence[DiskLimits | None], place: int) -> DiskLimits | None:
    """Return the limits of a place; None where its card is not there."""
    return (limits, *elsewhere)[place] if place <= len(elsewhere) else None


def _variants_of(workload: WorkloadAnalysis) -> tuple[str, ...]:
    return next((trial.record.planned.variants for trial in workload.trials), ())


def _analyse_search(
    record: StudyRecord, search: Search, trials: Sequence[TrialData], limits: DiskLimits | None, each: AnalyseTrial
) -> StudyAnalysis:
    """Analyse the trials in a closed loop and at each rate by themselves, then the search that they form."""
    workloads, searches = [], []
    for workload in record.plan.workloads:
        own = [data for data in trials if data.record.planned.workload == workload.name]
        by_rate: dict[float, list[TrialData]] = {}
        for data in own:
            by_rate.setdefault(data.record.planned.rate_tps or 0.0, []).append(data)
        for rate_tps, of in sorted(by_rate.items()):
            load = workload if not rate_tps else msgspec.structs.replace(workload, rate_tps=rate_tps)
            name = f"{workload.name}, {f'{rate_tps:,g} TPS scheduled' if rate_tps else 'closed loop'}"
            analysed_of = tuple(each(record, load, data, limits=limits) for data in of)
            workloads.append(_estimate_load(record, name, load, analysed_of))
        rate_search = WorkloadSearch(workload.name, search, planned_s=record.plan.trials[0].duration_s)
        # A trial too short for a whole second has only pgbench's own TPS, which is good enough to bracket the search.
        analysed = {t.record.planned.number: t.tps or t.pgbench_tps for one in workloads for t in one.trials}
        for data in own:
            if data.record.status is TrialStatus.FINISHED:
                rate_search.add(data, tps=analysed[data.record.planned.number])
        searches.append(rate_search.state())
    return StudyAnalysis(workloads=tuple(workloads), searches=tuple(searches))


def _gather_rounds(
    record: StudyRecord, by_workload: Mapping[str, Sequence[TrialAnalysis]], blocks: Sequence[TrialData]
) -> dict[str, tuple[Round, ...]]:
    cpu_count = record.usable_cpu_count
    return {
        name: (
            *(one for data in blocks if data.record.planned.workload == name for one in rounds_of_block(data)),
            *rounds_of_trials(trials, cpu_count=cpu_count),
        )
        for name, trials in by_workload.items()
    }


def _find_pilots(blocks: Sequence[TrialData]) -> dict[str, SliceChoice]:
    """Return what the pilot of each workload chose; no entry where the slice length was given."""
    chosen = [(data.record, choose_from_slices(data.slices, data.slice_loads)) for data in blocks]
    # Earlier versions could choose by more slices than it takes, and so another length.
    return {
        record.planned.workload: choice
        for record, choice in chosen
        if choice is not None and choice.slice_s == record.slice_s
    }


def _list_loads(record: StudyRecord) -> Iterator[tuple[str, PlannedWorkload, tuple[str, ...]]]:
    """Yield the name, load and variants of each group of trials that gets figures of its own."""
    for workload in record.plan.workloads:
        variants = sorted(
            {t.variants for t in record.plan.trials if t.workload == workload.name and len(t.variants) == 1}
        )
        if record.plan.experiment is None or not variants:
            yield workload.name, workload, ()
            continue
        for variant in record.plan.experiment.variants:
            yield f"{workload.name}, {variant.name}", apply_variant(workload, variant), (variant.name,)


def _list_capacity_loads(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[CapacityLoad]:
    """Yield the loads; of a sweep only the best, also of a sweep that followed with the settings of a variant."""
    followed = analysis.scaling
    for workload in analysis.workloads:
        name = workload.load.name
        variants = {variant for trial in workload.trials for variant in trial.record.planned.variants}
        if workload.tps.value is None or any(trial.record.planned.is_block for trial in workload.trials):
            continue
        if name in analysis.sweeps:
            best = _find_best(analysis.workloads, name, analysis.sweeps[name])
            if workload is best:
                yield CapacityLoad(name, workload, record, analysis.sweeps[name], workload.tps)
        elif (
            followed is not None
            and name in followed.analysis.sweeps
            and (followed.variant is None or followed.variant in variants)
        ):
            sweep = followed.analysis.sweeps[name]
            best = _find_best(followed.analysis.workloads, name, sweep)
            yield CapacityLoad(workload.name, best or workload, followed.record, sweep, workload.tps)
        elif workload.load.rate_tps is None or record.plan.search is None:
            yield CapacityLoad(workload.name, workload, record, None, workload.tps)


def _find_best(workloads: Sequence[WorkloadAnalysis], name: str, sweep: ClientSweep) -> WorkloadAnalysis | None:
    clients = max(sweep.points, key=lambda point: point.to_best.value or 0.0).clients
    return next((one for one in workloads if one.load.name == name and one.load.clients == clients), None)


def _analyse_load(
    record: StudyRecord,
    load: tuple[str, PlannedWorkload, tuple[str, ...]],
    trials: Sequence[TrialData],
    limits: DiskLimits | None,
    each: AnalyseTrial,
) -> WorkloadAnalysis:
    name, workload, variants = load
    own = [
        t for t in trials if t.record.planned.workload == workload.name and variants in {(), t.record.planned.variants}
    ]
    analysed = tuple(each(record, workload, data, limits=limits) for data in own)
    return _estimate_load(record, name, workload, analysed)


def _estimate_load(
    record: StudyRecord, name: str, workload: PlannedWorkload, analysed: tuple[TrialAnalysis, ...]
) -> WorkloadAnalysis:
    finished = [
        trial
        for trial in analysed
        if trial.record.status is TrialStatus.FINISHED and not trial.record.planned.is_observed
    ]
    # Workloads in which nothing is compared have one trial in each round.
    rounds = [trial.record.planned.round for trial in finished] if record.plan.experiment is not None else ()
    return WorkloadAnalysis(
        name=name,
        load=workload,
        tps=estimate_over_trials([trial.tps for trial in finished], unit="tps", rounds=rounds),
        latency_ms=estimate_latencies(
            [trial.percentiles for trial in finished], [trial.latency_mean_ms for trial in finished], rounds=rounds
        ),
        trials=analysed,
        bottleneck=None
        if workload.is_loading or workload.failover is not None
        else judge_workload(record, workload, analysed),
        network=estimate_network([trial.network for trial in finished], rounds=rounds),
        parts=estimate_parts([trial for trial in finished if not trial.record.planned.is_block]),
    )
