"""What analysis gives: estimates with their doubt, series for charts, events. Recomputed from the record, never stored in it.

Times named `t_s` count from the start of the trial's measured load. Values keep full precision.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.bottleneck.time_share import Bottleneck, TransactionTime
from pgdyno.analyse.capacity.types import Capacity
from pgdyno.analyse.comparison.answers import Comparison
from pgdyno.analyse.comparison.pilot import SliceChoice
from pgdyno.analyse.disk.demand import DiskJoin
from pgdyno.analyse.episodes.types import Episode, EpisodeCauses
from pgdyno.analyse.estimate import Doubt, Estimate
from pgdyno.analyse.health.types import HealthRow
from pgdyno.analyse.prediction.predictions import Judged
from pgdyno.analyse.search.rate_search import RateSearch
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.analyse.trial.chart_kind import ChartKind
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.types import Gap, StudyRecord, TrialRecord


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over time. `metric` is its name in facts/metrics.toml; None marks a moment without an observation."""

    metric: str
    label: str
    unit: str
    t_s: tuple[float, ...]
    values: tuple[float | None, ...]


WHOLE_CYCLES = 3
"""Checkpoints in a trial from which on one more or less is a small part."""
STEAL_RATIO = 0.01
"""Of the CPUs' time, taken by the hypervisor: above it neighbours show in the figures. Source: our methods."""
OTHERS_RATIO = 0.1
"""Of the CPUs' time, used by others: the kernel's own threads, which write for the server, count as such and stay below
it; they took 3 % beside tpcb-like on 2 CPUs."""
LOAD_THREAD_RATIO = 0.9
"""Of the time of pgbench's busiest thread: above it that thread is the bottleneck itself."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at a moment, or from `t_s` until `until_s`."""

    kind: str
    """`checkpoint`, `autovacuum`, `error`, `level shift`."""
    t_s: float
    until_s: float | None
    text: str


class Percentile(msgspec.Struct, frozen=True, kw_only=True):
    """A latency percentile of one trial; None with the reason where the trial has too few transactions beyond it."""

    name: str
    """p50, p90, p95, p99, p99.9, max."""
    value_ms: float | None
    reason: str | None = None


class StatementTime(msgspec.Struct, frozen=True, kw_only=True):
    """A statement of a script and its mean latency over the warm-up; the measured load runs without timing statements."""

    script: str
    statement: str
    latency_ms: float
    failures: int | None = None


class TrialAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """One trial. Numbers are None when the trial failed; `record.error` then says why."""

    record: TrialRecord
    tps: float | None
    """Of the steady part, from the transactions' own time stamps."""
    latency_mean_ms: float | None
    percentiles: tuple[Percentile, ...]
    transactions_count: int | None
    failed_count: int | None
    skipped_count: int | None
    late_count: int | None
    steady_from_s: float | None
    """Start of the steady part (MSER-5)."""
    charts: dict[ChartKind, tuple[Series, ...]]
    events: tuple[Event, ...]
    counts_per_transaction: dict[str, float | None]
    """Counter (name in facts/metrics.toml) per transaction, such as wal_bytes."""
    shares: dict[str, float | None]
    """Means over the load that explain a result: cpu_busy_ratio, cpu_steal_ratio, cpu_busiest_core_ratio,
    cpu_others_ratio (programs that are no part of the study), load_generator_thread_ratio (its busiest thread), disk_util_ratio, cache_hit_ratio."""
    statements: tuple[StatementTime, ...]
    unknown_lines: tuple[str, ...]
    """What pgbench printed and pgdyno did not understand."""
    gaps: tuple[Gap, ...]
    pgbench_tps: float | None = None
    """Of the whole load, as pgbench printed it."""
    doubts: tuple[Doubt, ...] = ()
    """Checks of the trial's numbers against each other that failed."""
    predictions: tuple[Judged, ...] = ()
    """Made before it ran, each with what it showed."""
    disk: DiskJoin | None = None
    """Against the card of the data's disk; None without one."""
    health: tuple[HealthRow, ...] = ()
    """The counters that DBAs watch; none for a failed trial, or one within which variants alternated."""
    time: TransactionTime | None = None
    """Where its transactions' time went; None where nobody looked at the server's waits."""
    schedule_lag_ms: float | None = None
    """How late transactions of a schedule began, in the mean; None without one."""
    cpus_seen_count: int | None = None
    """CPUs that shares are of, whether the study may use them or not; None where nobody looked."""

    episodes: tuple[Episode, ...] = ()
    """What happened to TPS and p99 within it, by time."""
    episodes_absent: str | None = None
    """Why they were not looked for; None where they were."""
    episode_causes: tuple[EpisodeCauses, ...] = ()
    """Of every episode for the worse."""

    @property
    def checkpoint_count(self) -> int:
        """Checkpoints that fell into it."""
        return sum(event.kind == "checkpoint" for event in self.events)


class WorkloadAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """One workload over all its finished trials. The trial is the unit of every estimate."""

    name: str
    """The workload's; with its variant or rate, where several were tried one by one."""
    load: PlannedWorkload
    tps: Estimate
    latency_ms: dict[str, Estimate]
    """By name: mean, p50, p90, p95, p99, p99.9, max."""
    trials: tuple[TrialAnalysis, ...]
    bottleneck: Bottleneck | None = None
    """What limits it; None where no trial can be judged."""

    @property
    def representative(self) -> TrialAnalysis | None:
        """The finished trial with the median TPS: the one whose charts a report shows first."""
        finished = sorted((t for t in self.trials if t.tps is not None), key=lambda t: t.tps or 0.0)
        return finished[len(finished) // 2] if finished else None


class StudyAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """All workloads of a study, in the study's order; each once for every variant of a comparison or rate of a search."""

    workloads: tuple[WorkloadAnalysis, ...]
    comparisons: tuple[Comparison, ...] = ()
    """One for each workload, in a study that compares."""
    sweeps: dict[str, ClientSweep] = {}
    """By workload, in a sweep over clients."""
    pilots: dict[str, SliceChoice] = {}
    """By workload, why a switchback's slices are as long as they are."""
    searches: tuple[RateSearch, ...] = ()
    """One for each workload, in a search for the largest rate that holds a latency limit."""
    capacities: tuple[Capacity, ...] = ()
    """What the machine can carry of each load; of a sweep over clients one for each workload."""
    scaling: ScalingStudy | None = None
    """The sweep over clients that followed it; None where none did."""

    @property
    def curves(self) -> dict[str, ClientSweep]:
        """By workload, how TPS follows the number of clients: in this study, or in the sweep that followed it."""
        return {**({} if self.scaling is None else self.scaling.analysis.sweeps), **self.sweeps}


class ScalingStudy(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep over clients that followed a comparison, under the settings that won: a study of its own beside it."""

    record: StudyRecord
    analysis: StudyAnalysis
    variant: str | None
    """The variant of the comparison whose settings it ran under; None where nothing was compared."""
