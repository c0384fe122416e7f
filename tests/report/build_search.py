"""Inputs of reports that search for a rate, made up for tests: thresholds are drawn, the search on them is the real one."""

from __future__ import annotations

import functools

import msgspec

from pgdyno.analyse.search.rate_search import RateSearch
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.doubts.search import find_search_doubts
from pgdyno.plan.plan import Machine as PlanMachine
from pgdyno.plan.plan import plan_study
from pgdyno.record.types import StudyRecord
from pgdyno.report.input import ReportInput
from pgdyno.spec.search import SearchSpec
from pgdyno.spec.study import DataSpec, Study, TrialsSpec, WorkloadSpec
from pgdyno.spec.variant import ExperimentSpec
from tests.analyse.searches import Machine, run_search
from tests.report.build import GB, build_report, build_trial, build_workload

MACHINES = {
    "settled": Machine(limit_tps=720.0, sd=0.02),
    "open": Machine(limit_tps=720.0, sd=0.25),
    "capacity": Machine(limit_tps=980.0, sd=0.01),
    "hopeless": Machine(limit_tps=5.0, sd=0.02),
    "boundless": Machine(limit_tps=9000.0, sd=0.01),
}


@functools.cache
def build_search(*machines: str, trials: int = 40) -> ReportInput:
    """A search on one workload for each of these machines; the first two rates have trials with charts."""
    names = dict(zip(("tpcb-like", "select-only", "simple-update"), machines, strict=False))
    study = Study(
        question="How many TPS hold p99 < 20ms?",
        data=DataSpec(scale=100),
        workload=tuple(WorkloadSpec(name=name, clients=8) for name in names),
        trials=TrialsSpec(duration="10s", warm_up="3s"),
        search=SearchSpec(latency="20ms"),
        experiment=ExperimentSpec(minutes=30.0),
    )
    plan = plan_study(study, PlanMachine(version_major=18, cpu_count=2, memory_bytes=24 * GB, disk_free_bytes=90 * GB))
    record = msgspec.structs.replace(
        build_report(names=("tpcb-like",)).record,
        name="sweep",
        command=("pgdyno", "sweep", "latency<20ms@p99"),
        study=study,
        plan=plan,
    )
    searches = tuple(
        msgspec.structs.replace(run_search(MACHINES[machine], seed=11, trials=trials)[-1], workload=name)
        for name, machine in names.items()
    )
    workloads = tuple(one for search in searches for one in _build_trials(record, search))
    analysis = StudyAnalysis(workloads=workloads, searches=searches)
    return ReportInput(
        record=record,
        analysis=analysis,
        findings=tuple(find_search_doubts(record, analysis)),
        record_dir="pgdyno-records/20261121-0930-sweep",
    )


def _build_trials(record: StudyRecord, search: RateSearch) -> list[WorkloadAnalysis]:
    load = record.plan.find_workload(search.workload)
    planned = next(trial for trial in record.plan.trials if trial.workload == search.workload)
    made = []
    for level in [None, *search.levels[:2]]:
        rate_tps = None if level is None else level.rate_tps
        number = planned.number if level is None else level.trials[0].number
        trial = build_trial(msgspec.structs.replace(planned, number=number, rate_tps=rate_tps), rate_tps or 1000.0)
        name = f"{search.workload}, {'closed loop' if rate_tps is None else f'{rate_tps:,g} TPS scheduled'}"
        own = msgspec.structs.replace(load, rate_tps=rate_tps)
        made.append(msgspec.structs.replace(build_workload(own, (trial,)), name=name))
    return made
