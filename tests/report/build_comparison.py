"""Inputs of reports that compare, made up for tests: rounds are drawn, verdicts and curves are the real ones on them."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator, Mapping

import msgspec

from pgdyno.analyse.comparison.answers import Comparison, Round, compare, primary_metric
from pgdyno.analyse.comparison.parts import compare_parts, find_primary_metrics
from pgdyno.analyse.comparison.pilot import SliceChoice
from pgdyno.analyse.comparison.verdict import decide_family
from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.sweep.client_trials import ClientTrial
from pgdyno.analyse.sweep.outlook import predict_rounds
from pgdyno.analyse.sweep.scaling import ClientSweep, analyse_client_sweep
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.explain.doubts.comparison import find_comparison_doubts
from pgdyno.facts.metrics import find_metric
from pgdyno.plan.plan import Machine, Plan, PlannedTrial, apply_variant, count_planned_rounds, plan_study
from pgdyno.record.plans import StatementPlan
from pgdyno.record.types import ErrorFact, Gap, StudyRecord
from pgdyno.report.input import ReportInput
from pgdyno.spec.part import PartSpec
from pgdyno.spec.pooler import PoolerSpec
from pgdyno.spec.study import DataSpec, ServerSpec, Study, TrialsSpec, WorkloadSpec
from pgdyno.spec.variant import DesignKind, ExperimentSpec, SweepSpec, VariantSpec
from tests.report.build import GB, HOSTILE, build_failed, build_report, build_trial, build_workload

SLICE_S = 0.5
LOADS = (1, 2, 4, 8, 16, 32, 64)
_CROSSED_CLIENTS = (1, 8, 32, 64)
_LEVELS = {"tpcb-like": 3412.0, "select-only": 48_300.0, "split": 20_000.0}
_METRICS = {
    "latency_p50_ms": (0.9, 0.3), "latency_p95_ms": (2.1, 0.5), "latency_p99_ms": (5.4, 0.8), "wal_bytes": (0.0, 0.004),
    "device_flush_count": (0.0, 0.02), "cpu_ms": (0.0, 0.03),
}  # fmt: skip
_COUNTS = {"wal_bytes": 1640.0, "device_flush_count": 0.42, "cpu_ms": 0.58}
_REFUSED = ErrorFact(
    fact="the server does not start",
    detail='FATAL:  invalid value for parameter "wal_sync_method": "open_sink"\nHINT:  Available values: fsync, <fdatasync>.',
    hint="look at the setting that the server names",
)


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a variant really does, as a factor of the reference, and after how many rounds it is left out."""

    tps: float = 1.0
    flushes: float = 1.0
    rounds: int = 10_000


@functools.cache
def build_switchback(*, workloads: tuple[str, ...] = ("tpcb-like", "select-only"), rounds: int = 41) -> ReportInput:
    """Three variants beside the reference: one refused, one without durability; two workloads."""
    study = Study(
        question="Does waiting before a flush help?",
        data=DataSpec(scale=100),
        workload=tuple(WorkloadSpec(name=name, clients=8) for name in workloads),
        variant=(
            VariantSpec(name="stock"),
            VariantSpec(settings={"commit_delay": 1000}),
            VariantSpec(settings={"commit_delay": 50}),
            VariantSpec(name="asynchronous", settings={"synchronous_commit": "off", "wal_writer_delay": "400ms"}),
            VariantSpec(settings={"wal_sync_method": "open_datasync"}),
        ),
        experiment=ExperimentSpec(minutes=10.0),
    )
    effects = {
        "tpcb-like": {
            "commit_delay=1000": Effect(tps=0.775, flushes=0.4, rounds=24),
            "commit_delay=50": Effect(tps=1.0, flushes=0.97),
            "asynchronous": Effect(tps=2.6, flushes=0.02, rounds=9),
        },
        "select-only": {
            "commit_delay=1000": Effect(),
            "commit_delay=50": Effect(tps=1.01),
            "asynchronous": Effect(),
        },
    }
    return compose(
        study,
        {name: effects[name] for name in workloads},
        rounds=rounds,
        noise_ratio={"tpcb-like": 0.05, "select-only": 0.02},
        round_s=2.9,
        refused={"wal_sync_method=open_datasync": _REFUSED},
    )


@functools.cache
def build_paired(*, is_hard: bool = False) -> ReportInput:
    """A restart-only setting, few rounds, nothing settled, a failed trial; when hard also a machine that cannot be trusted."""
    small = VariantSpec(name=HOSTILE, settings={"shared_buffers": "16MB"}) if is_hard else None
    study = Study(
        server=ServerSpec(settings={"synchronous_commit": False}) if is_hard else ServerSpec(),
        data=DataSpec(scale=100),
        workload=(WorkloadSpec(name="tpcb-like", clients=8),),
        trials=TrialsSpec(duration="10s", warm_up="3s"),
        variant=(
            VariantSpec(settings={"shared_buffers": "128MB"}),
            small or VariantSpec(settings={"shared_buffers": "1GB"}),
        ),
        experiment=ExperimentSpec(minutes=10.0),
    )
    name = HOSTILE if is_hard else "shared_buffers=1GB"
    return compose(
        study,
        {"tpcb-like": {name: Effect(tps=1.02)}},
        rounds=7,
        noise_ratio=0.04,
        round_s=51.0,
        failed=(2,),
        loud=frozenset({"tpcb-like"} if is_hard else ()),
        is_over=False,
        plans=True,
    )


@functools.cache
def build_client_sweep(*, rounds: int = 4, loads: tuple[int, ...] = LOADS) -> ReportInput:
    """A curve over clients that climbs, has a peak and falls; the loads take turns on one server."""
    study = Study(
        data=DataSpec(scale=100),
        workload=(WorkloadSpec(name="tpcb-like"),),
        trials=TrialsSpec(duration="10s", warm_up="3s"),
        sweep=(SweepSpec(name="clients", levels=loads),),
        experiment=ExperimentSpec(minutes=60.0),
    )
    effects = {f"clients={n}": Effect(tps=n / (1 + 0.05 * (n - 1) + 0.0016 * n * (n - 1))) for n in loads[1:]}
    draw = random.Random(7)
    trials = [
        ClientTrial(clients=n, round_index=number, tps=760.0 * (effects[f"clients={n}"].tps if n > 1 else 1.0) * math.exp(draw.gauss(0, 0.012)))
        for number in range(rounds)
        for n in loads
    ]  # fmt: skip
    sweeps = {"tpcb-like": analyse_client_sweep(trials, delta_ratio=0.03)}
    report = compose(
        study, {"tpcb-like": effects}, rounds=rounds, noise_ratio=0.012, round_s=130.0, level=760.0, sweeps=sweeps
    )
    needed = {"tpcb-like": predict_rounds(trials, delta_ratio=0.03, confidence=0.95, reference_clients=loads[0])}
    return msgspec.structs.replace(report, analysis=msgspec.structs.replace(report.analysis, rounds_needed=needed))


@functools.cache
def build_crossed() -> ReportInput:
    """Clients swept in two modes, one of which is a quarter faster at every number of them."""
    study = Study(
        data=DataSpec(scale=100),
        workload=(WorkloadSpec(name="select-only"),),
        sweep=(
            SweepSpec(name="mode", levels=("simple", "prepared")),
            SweepSpec(name="clients", levels=_CROSSED_CLIENTS),
        ),
        experiment=ExperimentSpec(minutes=60.0),
    )
    true = {
        (mode, n): factor * n / (1 + 0.05 * (n - 1) + 0.0016 * n * (n - 1))
        for mode, factor in (("simple", 1.0), ("prepared", 1.25))
        for n in _CROSSED_CLIENTS
    }
    effects = {
        f"mode={mode}, clients={n}": Effect(tps=tps) for (mode, n), tps in true.items() if (mode, n) != ("simple", 1)
    }
    draw = random.Random(11)
    curves = {
        f"mode={mode}": analyse_client_sweep(
            [
                ClientTrial(clients=n, round_index=number, tps=760.0 * true[mode, n] * math.exp(draw.gauss(0, 0.012)))
                for number in range(4)
                for n in _CROSSED_CLIENTS
            ],
            delta_ratio=0.03,
        )
        for mode in ("simple", "prepared")
    }
    report = compose(study, {"select-only": effects}, rounds=6, noise_ratio=0.012, round_s=130.0, level=760.0)
    return msgspec.structs.replace(
        report, analysis=msgspec.structs.replace(report.analysis, crossed={"select-only": curves})
    )


@functools.cache
def build_pool_sweep(
    *,
    sizes: tuple[int, ...] = (2, 4, 8, 16, 32, 64),
    clients: int = 100,
    best: float = 1e9,
    rate_tps: float | None = None,
) -> ReportInput:
    """Pools of several sizes for one load, whose TPS grow with the connections at work and hardly do from about 12 on."""
    study = Study(
        data=DataSpec(scale=100),
        workload=(WorkloadSpec(name="tpcb-like", clients=clients, rate_tps=rate_tps),),
        poolers={f"pool{size}": PoolerSpec(size=size) for size in sizes},
        trials=TrialsSpec(duration="10s", warm_up="3s"),
        sweep=(SweepSpec(name="endpoint", levels=tuple(f"pool{size}" for size in sizes)),),
        experiment=ExperimentSpec(minutes=60.0, design=DesignKind.PAIRED),
    )
    report = compose(study, {"tpcb-like": {}}, rounds=1, noise_ratio=0.01, round_s=130.0)
    draw, made = random.Random(5), []
    for workload in report.analysis.workloads:
        (variant,) = {trial.record.planned.variants[0] for trial in workload.trials}
        size = min(int(variant.removeprefix("endpoint=pool")), clients)
        trials = []
        for number in range(1, 6):
            trial = workload.trials[0]
            planned = msgspec.structs.replace(trial.record.planned, round=number, number=len(made) * 10 + number)
            tps = 700.0 * min(size, best) / (1 + 0.05 * size + 0.003 * size * size) * math.exp(draw.gauss(0, 0.008))
            tps = min(tps, rate_tps or math.inf)
            trials.append(
                msgspec.structs.replace(trial, tps=tps, record=msgspec.structs.replace(trial.record, planned=planned))
            )
        made.append(msgspec.structs.replace(workload, trials=tuple(trials)))
    return msgspec.structs.replace(report, analysis=msgspec.structs.replace(report.analysis, workloads=tuple(made)))


@functools.cache
def build_product() -> ReportInput:
    """A sweep over two axes, one of which gives up durability."""
    study = Study(
        question="commit_delay with and without waiting for the flush",
        data=DataSpec(scale=100),
        workload=(WorkloadSpec(name="tpcb-like", clients=8),),
        sweep=(
            SweepSpec(name="commit_delay", levels=(0, 50, 1000)),
            SweepSpec(name="synchronous_commit", levels=("on", "off")),
        ),
        experiment=ExperimentSpec(minutes=10.0),
    )
    effects = {
        f"commit_delay={delay}, synchronous_commit={commit}": Effect(tps=tps, flushes=1.0 if commit == "on" else 0.02)
        for delay, commit, tps in ((0, "off", 2.6), (50, "on", 1.0), (50, "off", 2.55), (1000, "on", 0.78), (1000, "off", 2.6))
    }  # fmt: skip
    return compose(study, {"tpcb-like": effects}, rounds=30, noise_ratio=0.05, round_s=4.1)


@functools.cache
def build_split() -> ReportInput:
    """Writers and readers side by side: each part is decided, and TPS of both together are not."""
    variants = tuple(VariantSpec(settings={"synchronous_commit": value}) for value in ("local", "remote_apply"))
    parts = (
        PartSpec(name="tpcb-like", clients=4),
        PartSpec(name="select-only", clients=12, endpoint="replicas"),
    )
    study = Study(
        server=ServerSpec(standbys=1),
        data=DataSpec(scale=100),
        workload=(WorkloadSpec(name="split", parts=parts),),
        variant=variants,
        experiment=ExperimentSpec(minutes=10.0),
    )
    other = "synchronous_commit=remote_apply"
    report = compose(study, {"split": {other: Effect(tps=1.02)}}, rounds=20, noise_ratio=0.15, round_s=2.9)
    plan = report.record.plan
    assert plan.experiment is not None
    rounds = {
        ("split", name): _draw_rounds(
            {other: Effect(tps=tps)}, plan, rounds=20, noise_ratio=0.02, round_s=2.9, level=_LEVELS[name]
        )
        for name, tps in (("tpcb-like", 0.6), ("select-only", 1.1))
    }
    parts_compared = compare_parts(
        rounds,
        plan.experiment,
        primary=find_primary_metrics(plan.workloads),
        final_looks={"split": 1},
        planned_rounds={},
    )
    analysis = msgspec.structs.replace(report.analysis, part_comparisons=parts_compared)
    return msgspec.structs.replace(report, analysis=analysis)


def compose(
    study: Study,
    effects: Mapping[str, Mapping[str, Effect]],
    *,
    rounds: int,
    noise_ratio: float | dict[str, float],
    round_s: float,
    level: float | None = None,
    refused: dict[str, ErrorFact] | None = None,
    failed: tuple[int, ...] = (),
    sweeps: dict[str, ClientSweep] | None = None,
    loud: frozenset[str] = frozenset(),
    is_over: bool = True,
    plans: bool = False,
) -> ReportInput:
    """The report of a study whose rounds are drawn with these effects; where its time is over, with the final looks."""
    plain = build_report(names=("tpcb-like",))
    plan = plan_study(study, Machine(version_major=18, cpu_count=2, memory_bytes=24 * GB, disk_free_bytes=90 * GB))
    assert plan.experiment is not None
    record = msgspec.structs.replace(
        plain.record,
        name="compare",
        command=("pgdyno", "compare", "--out", "pgdyno-records/20261121-0930-compare"),
        study=study,
        plan=plan,
        refused_variants=refused or {},
        final_looks=dict.fromkeys(effects, 1) if plan.experiment.final_look and is_over else msgspec.UNSET,
    )
    drawn = {
        name: _draw_rounds(
            of, plan, rounds=rounds, noise_ratio=noise_ratio if isinstance(noise_ratio, float) else noise_ratio[name], round_s=round_s, level=level or _LEVELS[name],
        )
        for name, of in effects.items()
    }  # fmt: skip
    primary = {workload.name: primary_metric(workload) for workload in plan.workloads}
    comparisons = compare(
        drawn,
        plan.experiment,
        primary=primary,
        final_looks=record.final_looks or {},
        planned_rounds=count_planned_rounds(plan),
    )
    comparisons = tuple(
        _with_loud_noise(comparison, plan.experiment.alpha) if comparison.workload in loud else comparison
        for comparison in comparisons
    )
    workloads = _build_trials(record, failed, has_plans=plans)
    pilots = {
        name: SliceChoice(slice_s=SLICE_S, reason="a minute of them shows about ±2.9 % on this machine", half_width_ratio={"0.5": 0.029})
        for name in drawn
    }  # fmt: skip
    is_switchback = any(len(trial.variants) > 1 for trial in plan.trials)
    analysis = StudyAnalysis(
        workloads=workloads, comparisons=comparisons, pilots=pilots if is_switchback else {}, sweeps=sweeps or {}
    )
    return ReportInput(
        record=record,
        analysis=analysis,
        findings=tuple(find_comparison_doubts(record, analysis)),
        record_dir="pgdyno-records/20261121-0930-compare",
    )


def _with_loud_noise(comparison: Comparison, alpha: float) -> Comparison:
    """The reference against itself, told apart: what happens by chance once in a while, and always on a broken machine."""
    noise = []
    for question in comparison.noise:
        ratios = tuple(-0.1 - abs(ratio) / 4 for ratio in question.log_ratios)
        (verdict,) = decide_family(
            {question.variant: ratios}, metric=question.metric, better=find_metric(question.metric).better, alpha=alpha,
            delta_ratio=0.03,
        )  # fmt: skip
        noise.append(msgspec.structs.replace(question, log_ratios=ratios, verdict=verdict))
    return msgspec.structs.replace(comparison, noise=tuple(noise))


def _draw_rounds(
    effects: Mapping[str, Effect],
    plan: Plan,
    *,
    rounds: int,
    noise_ratio: float,
    round_s: float,
    level: float,
) -> tuple[Round, ...]:
    assert plan.experiment is not None
    draw = random.Random(3)
    reference = plan.experiment.reference.name
    made = []
    for number in range(rounds):
        drift = math.exp(draw.gauss(0.0, 0.1))
        values = {reference: tuple(_values(draw, Effect(), level * drift, noise_ratio) for _ in range(2))}
        for variant, effect in effects.items():
            if number < effect.rounds:
                values[variant] = (_values(draw, effect, level * drift, noise_ratio),)
        made.append(Round(trial=1, at_s=1000.0 + round_s * (number + 1), length_s=round_s, values=values))
    return tuple(made)


def _values(draw: random.Random, effect: Effect, level: float, noise_ratio: float) -> dict[str, float]:
    tps = level * effect.tps * math.exp(draw.gauss(0.0, noise_ratio))
    values = {"tps": tps}
    for name, (factor, spread) in _METRICS.items():
        if name in _COUNTS:
            change = effect.flushes if name == "device_flush_count" else 1.0
            values[name] = _COUNTS[name] * change * math.exp(draw.gauss(0.0, spread))
        else:
            values[name] = 8000.0 * factor / tps * math.exp(draw.gauss(0.0, noise_ratio * spread))
    return values


def _build_trials(record: StudyRecord, failed: tuple[int, ...], *, has_plans: bool) -> tuple[WorkloadAnalysis, ...]:
    """Trials as a run leaves them: blocks that mix their variants, or a few rounds of single variants."""
    experiment = record.plan.experiment
    assert experiment is not None
    made = []
    for workload in record.plan.workloads:
        own = [trial for trial in record.plan.trials if trial.workload == workload.name and trial.round <= 2]
        trials: dict[tuple[str, ...], list[TrialAnalysis]] = {}
        for planned in own:
            short = msgspec.structs.replace(planned, duration_s=min(planned.duration_s, 20.0))
            trial = build_failed(short) if planned.number in failed else build_trial(short, _LEVELS[workload.name])
            if len(planned.variants) > 1:
                trial = msgspec.structs.replace(
                    trial, record=msgspec.structs.replace(trial.record, slice_s=SLICE_S, washout_s=0.05)
                )
            if experiment.takes_turns and not planned.is_observed:
                trial = _in_turns(trial)
            if has_plans and planned.number not in failed:
                plans = tuple(_plan_statements(planned, is_reference=planned.variants[0] == experiment.reference.name))
                trial = msgspec.structs.replace(trial, record=msgspec.structs.replace(trial.record, plans=plans))
            trials.setdefault(planned.variants, []).append(trial)
        for variants, of in sorted(trials.items()):
            load = workload if len(variants) > 1 else apply_variant(workload, experiment.find_variant(variants[0]))
            name = workload.name if len(variants) > 1 else f"{workload.name}, {variants[0]}"
            made.append(msgspec.structs.replace(build_workload(load, tuple(of)), name=name))
    return tuple(made)


def _in_turns(trial: TrialAnalysis) -> TrialAnalysis:
    """The trial as a load leaves it that took turns with others: longer ones where connecting took longer, and no samples."""
    mixed = "several loads take turns on one server: what is seen of it mixes what all of them do"
    gaps = tuple(Gap(source=name, reason=mixed) for name in ("os sampler", "server sampler"))
    length_s = 2.0 if trial.record.planned.round == 1 else 2.5
    record = msgspec.structs.replace(trial.record, slice_s=length_s, washout_s=length_s / 4, gaps=gaps)
    charts = {kind: lines for kind, lines in trial.charts.items() if kind is ChartKind.TPS}
    return msgspec.structs.replace(
        trial, record=record, steady_from_s=None, charts=charts, events=(), shares={}, gaps=gaps, counts_per_transaction={},
    )  # fmt: skip


def _plan_statements(planned: PlannedTrial, *, is_reference: bool) -> Iterator[StatementPlan]:
    """Plans of which one differs between variants, one between trials, one was refused, and one is for no values."""
    scan = {"Relation Name": "pgbench_accounts", "Alias": "pgbench_accounts"}
    index = {"Node Type": "Index Scan", "Index Name": "pgbench_accounts_pkey", "Scan Direction": "Forward", **scan}
    whole = {"Node Type": "Seq Scan", **scan}
    update = {"Node Type": "ModifyTable", "Operation": "Update", **scan}
    statements: list[tuple[str, dict[str, object] | None]] = [
        ("UPDATE pgbench_accounts SET abalance = 0 WHERE aid = :aid", {**update, "Plans": [index if is_reference else whole]}),
        ("SELECT abalance FROM pgbench_accounts WHERE aid < :top", whole if planned.number == 1 else index),
        ("SELECT 1", {"Node Type": "Result"}),
        (f"SELECT '{HOSTILE}' FROM nowhere", None),
    ]  # fmt: skip
    for place, (statement, plan) in enumerate(statements, start=1):
        yield StatementPlan(
            variant=planned.variants[0],
            script="tpcb-like",
            place=place,
            statement=statement,
            plan=None if plan is None else {"Plan": plan},
            reason='relation "nowhere" does not exist' if plan is None else None,
            unknown=("top",) if ":top" in statement else (),
        )
