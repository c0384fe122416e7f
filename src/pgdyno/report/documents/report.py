"""Make report.json: one document of a published, versioned form, at full precision.

Its schema is `report.schema.json` beside this module. A field is never renamed, never changes its unit and never goes
without a new `version`; fields may be added. Series over time are not in it: the record holds every sample.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import msgspec

from pgdyno.analyse.capacity.types import Capacity
from pgdyno.analyse.estimate import Doubt, Estimate
from pgdyno.analyse.failover import FailoverFigures
from pgdyno.analyse.poolers import PoolerFigures
from pgdyno.analyse.series import Event
from pgdyno.analyse.standbys import StandbyFigures
from pgdyno.analyse.statements import StatementUse, rank_statements
from pgdyno.analyse.transaction_time.network import NetworkEstimate, NetworkTime
from pgdyno.analyse.transaction_time.shares import Bottleneck, TransactionTime
from pgdyno.analyse.types import (
    GeneratorFigures,
    PartAnalysis,
    PartFigures,
    Percentile,
    StatementTime,
    TrialAnalysis,
    WaitingSessions,
    WorkloadAnalysis,
)
from pgdyno.explain.finding import Finding
from pgdyno.plan.plan import Choice, PlannedWorkload
from pgdyno.price.study import StudyPrice
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.predictions import PredictionInput
from pgdyno.record.types import (
    Dataset,
    ErrorFact,
    Gap,
    LoadHostFacts,
    PlaceFacts,
    ServerFacts,
    SettingFact,
    TrialStatus,
)
from pgdyno.report.documents.described import says
from pgdyno.report.documents.disk_uses import DiskJoinDocument, OwnDiskDocument, make_join, make_own_disk
from pgdyno.report.documents.experiment import ExperimentDocument, ScalingDocument, make_experiment, make_scaling
from pgdyno.report.documents.health import HealthDocument, make_health
from pgdyno.report.documents.layers import TunedDocument, make_tuned
from pgdyno.report.documents.search import SearchDocument, make_search
from pgdyno.report.documents.step import StepDocument, make_step
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.durability import find_durability_given_up, find_workload_losses
from pgdyno.report.sections.first_page import make_first_page
from pgdyno.report.sections.head import describe_study, is_mixed
from pgdyno.spec.study import Study

REPORT_VERSION = 1
SCHEMA_FILE = "report.schema.json"


class PredictionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction that was made before the trial, and what the trial measured."""

    name: Annotated[str, says("`tps`, a counter per transaction, or `checkpoint_distance_bytes`.")]
    value: float
    low: Annotated[float | None, says("Of its inputs' intervals; null without one.")]
    high: float | None
    unit: str
    model: str
    inputs: tuple[PredictionInput, ...]
    measured: float | None
    error_ratio: Annotated[float | None, says("Predicted over measured, less 1.")]
    reason: Annotated[str | None, says("Why there is no error.")]


class TrialDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One trial."""

    number: Annotated[int, says("From 1, in the order of running.")]
    round: Annotated[int, says("From 1; 0: before live rounds, only observed, and no part of any result.")]
    variants: Annotated[
        tuple[str, ...], says("The variant under test; of several that alternated, the trial's own figures are a mixture.")
    ] = msgspec.field(name="arms")  # fmt: skip
    slice_s: Annotated[float | None, says("Length of the slices or turns in which variants alternated.")]
    washout_s: Annotated[float | None, says("How long after its begin a slice or turn does not count.")]
    status: TrialStatus
    is_representative: Annotated[
        bool,
        says(
            "Whether its charts come first: it is the observed trial, or else the finished one with the median TPS or time of"
            " loading; of an even number, the upper of the two in the middle."
        ),
    ]
    error: ErrorFact | None
    seed: int
    warm_up_s: float
    duration_s: float
    argv: Annotated[tuple[str, ...], says("Of pgbench; of several that ran together, of the first.")]
    tps: Annotated[float | None, says("Of the steady part.")]
    pgbench_tps: Annotated[float | None, says("Of the whole load, as pgbench printed it.")]
    latency_mean_ms: float | None
    percentiles: tuple[Percentile, ...]
    transactions_count: int | None
    failed_count: int | None
    skipped_count: int | None
    late_count: Annotated[int | None, says("Transactions above the latency limit.")]
    steady_from_s: Annotated[float | None, says("Start of the steady part, after the start of the load.")]
    log_sampling_rate: float
    restore_s: float
    load_cpu_s: Annotated[float | None, says("CPU seconds of pgbench.")]
    init_s: Annotated[
        dict[str, float],
        says("Seconds of `pgbench -i` and of its steps by metric, of a trial that loaded; else empty."),
    ]
    failover: Annotated[
        FailoverFigures | None,
        says("The failover in the trial, whose other figures are those of the load before it; null without one."),
    ]
    counts_per_transaction: Annotated[dict[str, float | None], says("Of a trial that loaded the data: per load.")]
    shares: dict[str, float | None]
    quoted: Annotated[dict[str, float], says("Figures that DBAs quote, over the whole load.")]
    waiting: Annotated[tuple[WaitingSessions, ...], says("Client sessions by wait event, on average, most first.")]
    statements: tuple[StatementTime, ...]
    events: tuple[Event, ...]
    settings: Annotated[tuple[SettingFact, ...], says("Those that are not the built-in default.")]
    unknown_lines: Annotated[tuple[str, ...], says("What pgbench printed and pgdyno did not understand.")]
    gaps: tuple[Gap, ...]
    doubts: tuple[Doubt, ...]
    predictions: Annotated[tuple[PredictionDocument, ...], says("Made before the trial ran, each with its error.")]
    disk: Annotated[DiskJoinDocument | None, says("Against the disk's card; null without one.")]
    time: Annotated[TransactionTime | None, says("Where its transactions' time went; null where nobody looked.")]
    network: Annotated[NetworkTime | None, says("The way to the server and back; null on the load's own machine.")]
    generators: Annotated[
        tuple[GeneratorFigures, ...], says("What each load host did; empty if pgdyno's own machine made the load.")
    ]
    parts: Annotated[
        tuple[PartFigures, ...],
        says("What each part of the load did, or the clients at each standby; empty of a load that one pgbench made."),
    ]
    standbys: Annotated[StandbyFigures | None, says("What was seen of the standbys; null without any.")]
    pooler: Annotated[PoolerFigures | None, says("What was seen of the load's pooler; null without one.")]


class WorkloadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One workload over its trials. Every estimate has its interval, its confidence and its n, which counts trials."""

    name: str
    planned: PlannedWorkload
    durability_given_up: Annotated[
        tuple[str, ...], says("Settings of its trials with which a crash may lose committed transactions.")
    ]
    tps: Estimate
    latency_ms: Annotated[dict[str, Estimate], says("By name: mean, p50, p90, p95, p99, p99.9, max.")]
    health: Annotated[tuple[HealthDocument, ...], says("The counters that DBAs watch, over its trials.")]
    bottleneck: Annotated[Bottleneck | None, says("What limits it; null where no trial can be judged.")]
    network: Annotated[NetworkEstimate | None, says("The way to the server and back; null on the load's own machine.")]
    parts: Annotated[
        tuple[PartAnalysis, ...],
        says(
            "What each part of the load did, or the clients at each standby; empty where variants alternate in its trials."
        ),
    ]
    statement_uses: Annotated[
        tuple[StatementUse, ...],
        says("Shares of execution time, as pg_stat_statements counted; empty where it is not there."),
    ]
    trials: tuple[TrialDocument, ...]


class ReportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A report of pgdyno. Absent is null, with the reason beside it where there is one; never 0."""

    format: Annotated[str, says("Always pgdyno-report.")]
    version: Annotated[int, says("Of this form.")]
    name: str
    summary: Annotated[str, says("What was measured on what, in a sentence.")]
    started_at: Annotated[str, says("ISO 8601 with offset.")]
    record_dir: str
    command: tuple[str, ...]
    tool_versions: dict[str, str]
    durability_given_up: Annotated[
        tuple[str, ...], says("Settings with which a crash may lose committed transactions.")
    ]
    findings: Annotated[tuple[Finding, ...], says("What weakens the figures, worst first.")]
    explanations: Annotated[
        tuple[Finding, ...], says("What makes the figures what they are: what limits each load first.")
    ]
    not_judged: Annotated[tuple[str, ...], says("Of which loads nobody can say what limits them, and why.")]
    next_steps: Annotated[tuple[StepDocument, ...], says("The most certain gain first, and the largest of them first.")]
    capacities: Annotated[tuple[Capacity, ...], says("What the machine can carry of each load.")]
    price: Annotated[StudyPrice | None, says("What the machine and its transactions cost.")]
    experiment: Annotated[
        ExperimentDocument | None, says("Variants and verdicts; null for a study that compares nothing.")
    ]
    search: Annotated[
        SearchDocument | None, says("The largest rate that holds a latency limit; null where none is sought.")
    ]
    tuned: Annotated[TunedDocument | None, says("Derived settings and what they gave; null for a study without them.")]
    scaling: Annotated[
        ScalingDocument | None, says("The sweep over clients that followed, under what won; null where none did.")
    ]
    workloads: tuple[WorkloadDocument, ...]
    dataset: Dataset | None
    choices: Annotated[tuple[Choice, ...], says("What the study left open, what was chosen, and why.")]
    server: ServerFacts
    host: Annotated[HostFacts | None, says("The server's machine; null where nobody saw it.")]
    given: Annotated[GivenServer | None, says("What was seen of a server of the user's; null for pgdyno's own.")]
    places: Annotated[
        tuple[PlaceFacts, ...],
        says("The disks of the variants' clusters, those of the reference first; empty if all lay in one place."),
    ]
    load_host: Annotated[HostFacts | None, says("The machine of the load, where it may be another one.")]
    load_hosts: Annotated[
        tuple[LoadHostFacts, ...], says("Machines that the load came from, by ssh; empty if pgdyno's own made it.")
    ]
    disk: Annotated[OwnDiskDocument | None, says("The card of the data's disk; null where it was not measured.")]
    study: Study


def render_json(report: ReportInput) -> bytes:
    """Render the report as JSON."""
    return msgspec.json.format(msgspec.json.encode(make_document(report)), indent=1) + b"\n"


def make_document(report: ReportInput) -> ReportDocument:
    """Return the report as a document."""
    record, first = report.record, make_first_page(report)
    return ReportDocument(
        format="pgdyno-report",
        version=REPORT_VERSION,
        name=record.name,
        summary=describe_study(report),
        started_at=record.started_at,
        record_dir=report.record_dir,
        command=record.command,
        tool_versions=record.tool_versions,
        durability_given_up=find_durability_given_up(report),
        findings=report.findings,
        explanations=report.explanations,
        not_judged=first.not_judged,
        next_steps=tuple(make_step(step) for step in first.steps),
        capacities=report.analysis.capacities,
        price=report.price,
        experiment=make_experiment(report),
        search=make_search(report),
        tuned=make_tuned(report),
        scaling=make_scaling(report),
        workloads=tuple(_make_workload(report, workload) for workload in report.analysis.workloads),
        dataset=record.dataset,
        choices=record.plan.choices,
        server=record.server,
        host=record.host,
        given=record.given,
        places=record.places,
        load_host=record.load_host,
        load_hosts=record.load_hosts,
        disk=make_own_disk(report.disk),
        study=record.study,
    )


def make_schema() -> dict[str, Any]:
    """Return the JSON schema of the document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:pgdyno:report:{REPORT_VERSION}",
        "title": f"pgdyno report, version {REPORT_VERSION}",
        **_unindent(msgspec.json.schema(ReportDocument)),
    }


def _unindent(schema: Any) -> Any:
    """Unindent the descriptions, which are docstrings: Python does so itself only from 3.13 on."""
    if isinstance(schema, list):
        return [_unindent(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: inspect.cleandoc(value) if name == "description" and isinstance(value, str) else _unindent(value)
        for name, value in schema.items()
    }


def _make_workload(report: ReportInput, workload: WorkloadAnalysis) -> WorkloadDocument:
    estimates = {"tps": workload.tps, **workload.latency_ms}
    if any(is_mixed(trial) for trial in workload.trials):
        # A trial within which variants alternate shows a mixture of them, which is no variant's result.
        estimates = {name: _without_value(estimate) for name, estimate in estimates.items()}
    return WorkloadDocument(
        name=workload.name,
        planned=workload.load,
        durability_given_up=find_workload_losses(report, workload),
        tps=estimates["tps"],
        latency_ms={name: estimates[name] for name in workload.latency_ms},
        health=make_health(workload),
        bottleneck=workload.bottleneck,
        network=workload.network,
        parts=workload.parts,
        statement_uses=rank_statements(workload.trials),
        trials=tuple(_make_trial(workload, trial) for trial in workload.trials),
    )


def _without_value(estimate: Estimate) -> Estimate:
    return msgspec.structs.replace(estimate, value=None, low=None, high=None, reason="variants alternate in each trial")


def _make_trial(workload: WorkloadAnalysis, trial: TrialAnalysis) -> TrialDocument:
    record, planned = trial.record, trial.record.planned
    return TrialDocument(
        number=planned.number,
        round=planned.round,
        variants=planned.variants,
        slice_s=record.slice_s,
        washout_s=record.washout_s,
        status=record.status,
        is_representative=trial is workload.representative,
        error=record.error,
        seed=planned.seed,
        warm_up_s=planned.warm_up_s,
        duration_s=planned.duration_s,
        argv=record.argv,
        tps=trial.tps,
        pgbench_tps=trial.pgbench_tps,
        latency_mean_ms=trial.latency_mean_ms,
        percentiles=trial.percentiles,
        transactions_count=trial.transactions_count,
        failed_count=trial.failed_count,
        skipped_count=trial.skipped_count,
        late_count=trial.late_count,
        steady_from_s=trial.steady_from_s,
        log_sampling_rate=record.log_sampling_rate,
        restore_s=record.restore_s,
        load_cpu_s=record.load_cpu_s,
        init_s=trial.init_s,
        failover=trial.failover,
        counts_per_transaction=trial.counts_per_transaction,
        shares=trial.shares,
        quoted=trial.quoted,
        waiting=trial.waiting,
        statements=trial.statements,
        events=trial.events,
        settings=record.changed_settings,
        unknown_lines=trial.unknown_lines,
        gaps=tuple(dict.fromkeys((*record.gaps, *trial.gaps))),
        doubts=trial.doubts,
        predictions=_make_predictions(trial),
        disk=make_join(trial.disk),
        time=trial.time,
        network=trial.network,
        generators=trial.generators,
        parts=trial.parts,
        standbys=trial.standbys,
        pooler=trial.pooler,
    )


def _make_predictions(trial: TrialAnalysis) -> tuple[PredictionDocument, ...]:
    """Return a trial's predictions as documents."""
    return tuple(
        PredictionDocument(
            **msgspec.structs.asdict(one.prediction),
            measured=one.measured,
            error_ratio=one.error_ratio,
            reason=one.reason,
        )
        for one in trial.predictions
    )
