"""Define the analysis of a trial, and of the trials of one load; `study_types.py` has that of a whole study.

Results are recomputed from the record and never stored in it. Values keep full precision.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.disk.demand import MIN_WRITING_WAL_BYTES, DiskDemand
from pgdyno.analyse.episodes.types import Episode, EpisodeCauses
from pgdyno.analyse.estimate import Doubt, Estimate
from pgdyno.analyse.failover import FailoverFigures
from pgdyno.analyse.health.types import HealthRow
from pgdyno.analyse.poolers import PoolerFigures
from pgdyno.analyse.prediction import JudgedPrediction
from pgdyno.analyse.series import ChartKind, Event, Series
from pgdyno.analyse.standbys import StandbyFigures
from pgdyno.analyse.transaction_time.network import NetworkEstimate, NetworkTime
from pgdyno.analyse.transaction_time.shares import Bottleneck, TransactionTime
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.samples.clock import ClockFit
from pgdyno.record.types import Gap, TrialRecord, why_missing
from pgdyno.units import sum_if_known

WHOLE_CYCLES = 3
"""From this many checkpoints in a trial, one more or less makes a small difference."""
STEAL_RATIO = 0.01
"""Share of the CPUs' time taken by the hypervisor; above it, neighbours affect the figures. Source: our methods."""
OTHERS_RATIO = 0.1
"""Share of the CPUs' time used by other programs; above it, they affect the figures. The kernel's own threads, which
write for the server, count as others and stay below the limit: they took 3 % beside tpcb-like on 2 CPUs."""
LOAD_THREAD_RATIO = 0.9
"""Share of its time that pgbench's busiest thread runs; above it, that thread itself is the bottleneck."""
_CHECKPOINTS = ("checkpoints_timed_count", "checkpoints_requested_count")


class Percentile(msgspec.Struct, frozen=True, kw_only=True):
    """A latency percentile of one trial; None with a reason if the trial has too few transactions beyond it."""

    name: str
    """p50, p90, p95, p99, p99.9, max."""
    value_ms: float | None
    reason: str | None = None
    unsupported_ms: float | msgspec.UnsetType = msgspec.UNSET
    """The value that too few transactions give; absent beside a supported one, and without transactions. Comparisons use it,
    because a slow variant completes few."""

    @property
    def own_ms(self) -> float | None:
        """The value, or what too few transactions give."""
        return self.value_ms if self.unsupported_ms is msgspec.UNSET else self.unsupported_ms


class WaitingSessions(msgspec.Struct, frozen=True, kw_only=True):
    """The client sessions in one wait event over the measured load."""

    event: str
    """PostgreSQL's name with its class, such as `LWLock: WALWrite`; `CPU` for sessions that waited for nothing."""
    sessions: float
    """On average."""
    most_sessions: float
    """In the second that has the most of them."""


class StatementTime(msgspec.Struct, frozen=True, kw_only=True):
    """A statement of a script with its mean latency over the warm-up; statements are not timed in the measured load."""

    script: str
    """Name of the script, or of its file without its folders; with its number where two of a load have the same name."""
    statement: str
    latency_ms: float
    failures: int | None = None


class GeneratorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one load host did in a trial; None where it is not known."""

    host: str
    clients: int
    threads: int
    tps: float | None
    """Transactions a second over the time in which all load hosts ran."""
    p99_ms: float | None
    """Over the whole load."""
    cpu_s: float | None
    """CPU seconds of pgbench."""
    stream_cpu_s: float | None
    """CPU seconds of the program that streamed its log."""
    thread_ratio: float | None
    """Share of the time that its busiest thread had a CPU or waited for one."""
    machine_cpu_ratio: float | None
    sent_per_s: float | None
    """Exchanges with the server a second."""
    empty_per_s: float | None
    """Empty statements a second that it got answered before the trials, alone."""
    clock: ClockFit | None

    @property
    def sent_ratio(self) -> float | None:
        """Exchanges as a share of the empty statements that it can send."""
        return None if self.sent_per_s is None or not self.empty_per_s else self.sent_per_s / self.empty_per_s


class PartFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of a load did in a trial, or what the load's clients at one standby did."""

    name: str
    endpoints: tuple[str, ...]
    """What its clients connected to: one entry for each pgbench."""
    clients: int
    tps: float | None
    """Transactions a second over the steady part of the whole load."""
    latency_mean_ms: float | None
    percentiles: tuple[Percentile, ...]
    """Over the same time; empty if its transactions were not read."""
    failed_count: int | None


class TrialAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """The analysis of one trial. Numbers are None if the trial failed; `record.error` then says why."""

    record: TrialRecord
    tps: float | None
    """TPS of the steady part, from the transactions' own time stamps."""
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
    """Counter (name in facts/metrics.toml) per transaction, such as wal_bytes; of a trial that loaded, its whole growth."""
    shares: dict[str, float | None]
    """Means over the load that explain a result: cpu_busy_ratio, cpu_steal_ratio, cpu_busiest_core_ratio, cpu_others_ratio
    (programs that are not part of the study), on an emulated machine cpu_emulation_ratio (its own threads), with standbys cpu_standbys_ratio and cpu_server_ratio (all else of the study), load_generator_thread_ratio (pgbench's busiest thread),
    load_generator_cpu_ratio (all CPUs of its machine, where that is not the server's), load_generator_others_ratio (what other
    programs used of these), disk_util_ratio, cache_hit_ratio."""
    statements: tuple[StatementTime, ...]
    unknown_lines: tuple[str, ...]
    """Lines of pgbench's output that pgdyno did not understand."""
    gaps: tuple[Gap, ...]
    failures: int = 0
    """How often the trial failed before it was run again."""
    resolutions: dict[str, float] = {}
    """The least that the kernel's ticks tell from 0 over the load, by share; a share below it is 0."""
    init_s: dict[str, float] = {}
    """Seconds of loading by metric (init_s, init_generate_s, …) of a trial that loaded the data; empty for others."""
    pgbench_tps: float | None = None
    """TPS of the whole load, as pgbench printed it."""
    pgbench_latency_ms: float | None = None
    """Mean latency of the whole load, as pgbench printed it."""
    doubts: tuple[Doubt, ...] = ()
    """Failed checks of the trial's numbers against each other."""
    predictions: tuple[JudgedPrediction, ...] = ()
    """Predictions made before the trial ran, each with the observed value."""
    disk: DiskDemand | None = None
    """The trial's writes and reads compared with the card of the data's disk; None without a card."""
    health: tuple[HealthRow, ...] = ()
    """The counters that DBAs watch; empty for a failed trial, or a trial in which variants alternated."""
    time: TransactionTime | None = None
    """Where the transactions' time went; None if the server's waits were not sampled."""
    network: NetworkTime | None = None
    """The way to the server and back; None for a server on the load's machine."""
    schedule_lag_ms: float | None = None
    """Mean delay with which transactions of the whole load began, in `pgbench_latency_ms` too; None without a schedule."""
    cpus_seen_count: int | None = None
    """CPUs that the shares refer to, whether the study may use them or not; None if CPUs were not sampled."""

    server_clock: ClockFit | None = None
    """How the clock of the server's machine differs from the load's; None if that is one machine, or was not watched."""

    failover: FailoverFigures | None = None
    """What the failover of the trial showed; the other figures are those of the load before it. None without one."""
    generators: tuple[GeneratorFigures, ...] = ()
    """What each load host did; none if the load came from the machine that pgdyno ran on."""

    parts: tuple[PartFigures, ...] = ()
    """What each part of the load did; none of a load that one pgbench made, or that came from load hosts."""

    quoted: dict[str, float] = {}
    """Figures that DBAs quote, by name; see `trial.quoted.measure_quoted`."""
    standbys: StandbyFigures | None = None
    """What was seen of the standbys; None without any, or if they were not sampled."""
    pooler: PoolerFigures | None = None
    """What was seen of the load's pooler; None if it connected to the server itself."""
    waiting: tuple[WaitingSessions, ...] = ()
    """Client sessions by wait event, most first; empty if they were not sampled."""
    episodes: tuple[Episode, ...] = ()
    """Changes of TPS and p99 within the trial, by time."""
    episodes_absent: str | None = None
    """Why the trial was not searched for episodes; None if it was."""
    episode_causes: tuple[EpisodeCauses, ...] = ()
    """Possible causes of each episode that made TPS or p99 worse."""

    @property
    def is_writing(self) -> bool:
        """True if its transactions wrote, as far as WAL shows it."""
        return (self.counts_per_transaction.get("wal_bytes") or 0.0) > MIN_WRITING_WAL_BYTES

    @property
    def has_checkpoint_log(self) -> bool:
        """True if the server's log was read, and shows checkpoints."""
        return self.record.logs_checkpoints and why_missing(self.gaps, "server log") is None

    @property
    def checkpoint_count(self) -> int | None:
        """The number of checkpoints within the trial, by the server's log or its counters; None if neither shows them."""
        # The log of a live round tells of the server's frozen time, too, and is not read for a trial.
        if not self.record.is_in_slices and self.has_checkpoint_log:
            return sum(event.kind == "checkpoint" for event in self.events)
        grown = sum_if_known([self.record.growth(name) for name in _CHECKPOINTS])
        return None if grown is None else round(grown)


class PartAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of a load did, over all its finished trials."""

    name: str
    endpoints: tuple[str, ...]
    clients: int
    tps: Estimate
    latency_ms: dict[str, Estimate]
    """Latency by name, as of a workload."""
    failed_count: int | None
    """Transactions that failed, in all trials; None if that is not known of one."""


class WorkloadAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """The analysis of one workload over all its finished trials. The trial is the unit of every estimate."""

    name: str
    """The workload's name, with its variant or rate if several were tried one by one."""
    load: PlannedWorkload
    tps: Estimate
    latency_ms: dict[str, Estimate]
    """Latency by name: mean, p50, p90, p95, p99, p99.9, max."""
    trials: tuple[TrialAnalysis, ...]
    bottleneck: Bottleneck | None = None
    """The resource that limits the workload; None if no trial can be judged."""
    network: NetworkEstimate | None = None
    """The way to the server and back; None for a server on the load's machine."""
    parts: tuple[PartAnalysis, ...] = ()
    """What each part of the load did; none of a load that one pgbench made, or in whose trials variants alternated."""

    @property
    def ranked(self) -> list[TrialAnalysis]:
        """The trials whose TPS, or time of loading, is known, in ascending order of it."""
        measured = [(t.init_s.get("init_s", t.tps), t) for t in self.trials]
        return [t for _, t in sorted((one for one in measured if one[0] is not None), key=lambda one: one[0] or 0.0)]

    @property
    def representative(self) -> TrialAnalysis | None:
        """The trial whose charts a report shows first: the observed one, or else the (upper) median of the ranked ones."""
        ranked = self.ranked
        ranked = [t for t in ranked if t.record.planned.is_observed] or ranked
        return ranked[len(ranked) // 2] if ranked else None

    @property
    def limit_trial(self) -> TrialAnalysis | None:
        """The trial that shows what limits the load: that of the bottleneck's figures, or else the representative one."""
        number = None if self.bottleneck is None else self.bottleneck.trial
        return next((t for t in self.trials if t.record.planned.number == number), self.representative)
