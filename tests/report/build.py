"""Reports' inputs made up for tests: plainly synthetic, the same at each call, with the hard cases on request."""

from __future__ import annotations

import functools
import math
import random
import statistics

from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.series import ChartKind, Event, Series
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import Percentile, StatementTime, TrialAnalysis, WorkloadAnalysis
from pgdyno.explain.doubts.comparison import DURABILITY
from pgdyno.explain.finding import Finding, Severity
from pgdyno.plan.plan import Machine, PlannedTrial, PlannedWorkload, plan_study
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.statements import StatementCounts
from pgdyno.record.types import (
    Dataset,
    ErrorFact,
    Gap,
    RelationFact,
    ServerFacts,
    SettingFact,
    StudyRecord,
    TrialRecord,
    TrialStatus,
)
from pgdyno.report.input import ReportInput
from pgdyno.spec.study import DataSpec, ServerSpec, Study, TrialsSpec, WorkloadSpec

GB = 1024**3
BUILTIN = ("tpcb-like", "simple-update", "select-only")
HOSTILE = 'Umsätze | <script>alert("x")</script> `a` & Grüße'
_LEVEL_TPS = {"tpcb-like": 3412.0, "simple-update": 5120.0, "select-only": 48_300.0}
_T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
_SHARES = {
    ChartKind.WAITS: ("count", {"CPU": 3.1, "IO": 2.4, "LWLock": 0.9, "Lock": 0.6, "Client": 0.4}),
    ChartKind.CPU: ("ratio", {"user": 0.52, "system": 0.21, "iowait": 0.11, "steal": 0.015}),
    ChartKind.RUN_QUEUE: ("count", {"running or ready": 4.2, "waiting for a disk": 0.8}),
    ChartKind.CPU_QUOTA: ("ratio", {"throttled": 0.06}),
    ChartKind.DISK_IOPS: ("/s", {"read": 120.0, "write": 2900.0}),
    ChartKind.DISK_THROUGHPUT: ("bytes/s", {"read": 1.1e6, "write": 46e6}),
    ChartKind.DISK_LATENCY: ("ms", {"read": 0.4, "write": 0.9}),
    ChartKind.DIRTY_MEMORY: ("bytes", {"Dirty": 310e6, "Writeback": 12e6}),
    ChartKind.WAL: ("bytes/s", {"WAL": 21e6}),
    ChartKind.FULL_PAGE_IMAGES: ("/s", {"full-page images": 640.0}),
    ChartKind.BUFFER_WRITES: ("bytes/s", {"checkpointer": 18e6, "background writer": 2e6, "backends and others": 5e5}),
    ChartKind.PRESSURE: ("ratio", {"cpu some": 0.18, "io some": 0.12, "memory some": 0.0}),
}


@functools.cache
def build_report(
    *,
    names: tuple[str, ...] = BUILTIN,
    rounds: int = 3,
    duration_s: int = 60,
    failed: tuple[int, ...] = (),
    is_hard: bool = False,
    is_bare: bool = False,
) -> ReportInput:
    """A report's input.

    Args:
        names: Of the workloads; those that pgbench does not know get a script file of that name.
        rounds: Trials of each.
        duration_s: Of each; a sample each second.
        failed: Numbers of the trials that failed.
        is_hard: Hostile names, gaps, absent counters, unknown lines, too few samples, durability given up.
        is_bare: Only what every record has: no series, no dataset, no settings, no findings.
    """
    study = _build_study(names, rounds, duration_s, is_hard=is_hard)
    plan = plan_study(study, Machine(version_major=18, cpu_count=2, memory_bytes=24 * GB, disk_free_bytes=90 * GB))
    host = _build_host(is_hard=is_hard)
    record = StudyRecord(
        format_version=1,
        name="bench",
        started_at="2026-11-21T09:30:00+01:00",
        command=("pgdyno", "bench", "--out", "pgdyno-records/20261121-0930-bench"),
        tool_versions={"pgdyno": "0.1.0", "python": "3.11.7", "pgbench": "18.6"},
        study=study,
        plan=plan,
        host=host,
        server=ServerFacts(
            version="18.6", version_num=180006, bindir="/opt/pgdyno/pginstall/bin", configure="--with-icu"
        ),
        dataset=None if is_bare else _build_dataset(plan.scale),
    )
    workloads = []
    for planned in plan.workloads:
        trials = tuple(
            build_failed(trial)
            if trial.number in failed
            else build_trial(trial, _LEVEL_TPS.get(planned.name, 900.0), is_hard=is_hard, is_bare=is_bare)
            for trial in plan.trials
            if trial.workload == planned.name
        )
        workloads.append(build_workload(planned, trials))
    return ReportInput(
        record=record,
        analysis=StudyAnalysis(workloads=tuple(workloads)),
        findings=() if is_bare else _build_findings(names, failed, is_hard=is_hard),
        record_dir="pgdyno-records/20261121-0930-bench",
    )


def _build_study(names: tuple[str, ...], rounds: int, duration_s: int, *, is_hard: bool) -> Study:
    workloads = tuple(
        WorkloadSpec(name=name)
        if name in BUILTIN
        else WorkloadSpec(
            name=name, scripts=(f"{name}.sql@3", "select-only"), rate_tps=900, latency_limit="50ms", clients=8
        )
        for name in names
    )
    settings: dict[str, str | int | float | bool] = {"shared_buffers": "4GB"}
    return Study(
        question=f"How fast is {HOSTILE}?" if is_hard else "",
        server=ServerSpec(settings=settings | {"fsync": False} if is_hard else settings),
        data=DataSpec(scale=100),
        workload=workloads,
        trials=TrialsSpec(rounds=rounds, duration=f"{duration_s}s"),
    )


def _build_host(*, is_hard: bool) -> HostFacts:
    return HostFacts(
        os_name="Debian GNU/Linux 12 (bookworm)",
        kernel="6.1.0-40-cloud-amd64",
        architecture="x86_64",
        cpu_model="AMD EPYC 7B13",
        cpu_count=8 if is_hard else 2,
        cpu_limit=2.0 if is_hard else None,
        memory_bytes=24 * GB,
        memory_limit_bytes=8 * GB if is_hard else None,
        swap_bytes=0,
        virtualization="kvm",
        clock_source=None if is_hard else "kvm-clock",
        transparent_huge_pages="madvise",
        governor=None,
        load_average_1min=0.12,
        cpu_busy_before_ratio=0.02,
        data_disk=DiskFacts(
            path="/var/lib/pgdyno/clusters",
            device="/dev/nvme0n1p1",
            block_device="nvme0n1",
            filesystem="ext4",
            mount_options="rw,relatime,discard",
            size_bytes=252 * GB,
            free_bytes=90 * GB,
            scheduler="none",
            is_rotational=False,
            read_ahead_kb=128,
        ),
        kernel_settings={"vm.swappiness": "60", "vm.dirty_background_bytes": "0", "vm.nr_hugepages": "0"},
        absent={"governor": "no cpufreq in this virtual machine", "clock_source": "/sys is not readable here"},
    )


def _build_dataset(scale: int) -> Dataset:
    accounts, key = scale * 13_434_880, scale * 2_252_800
    relations = (
        RelationFact(
            name="pgbench_accounts", kind="table", bytes=accounts, pages=accounts // 8192, rows=scale * 100_000.0
        ),
        RelationFact(name="pgbench_accounts_pkey", kind="index", bytes=key, pages=key // 8192, rows=None),
        RelationFact(name="pgbench_tellers", kind="table", bytes=73_728, pages=9, rows=scale * 10.0),
        RelationFact(name="pgbench_branches", kind="table", bytes=40_960, pages=5, rows=float(scale)),
        RelationFact(name="pgbench_history", kind="table", bytes=0, pages=0, rows=0.0),
    )
    return Dataset(
        scale=scale,
        relations=relations,
        total_bytes=sum(one.bytes for one in relations),
        init_argv=("pgbench", "-i", "-s", str(scale), "-h", "/tmp/pgdyno-x1", "-p", "5433", "bench"),
        init_steps_s={"drop tables": 0.01, "create tables": 0.02, "client-side generate": 14.21, "vacuum": 0.74, "primary keys": 5.63},
        init_total_s=20.61,
        is_reused=False,
    )  # fmt: skip


def _build_settings(*, is_hard: bool) -> tuple[SettingFact, ...]:
    rows = [
        ("max_wal_size", "4096", "MB", "1024", "configuration file"),
        ("shared_buffers", "524288", "8kB", "16384", "configuration file"),
        ("log_min_duration_statement", "200", "ms", "-1", "configuration file"),
        ("wal_buffers", "2048", "8kB", "-1", "default"),
        ("log_file_mode", "0600", None, "384", "default"),
        ("unix_socket_directories", "/tmp/pgdyno-x1", None, "/tmp", "command line"),
    ]
    if is_hard:
        rows += [
            ("fsync", "off", None, "on", "configuration file"),
            ("synchronous_commit", "off", None, "on", "command line"),
        ]
    return tuple(SettingFact(name=n, value=v, unit=u, boot_value=b, source=s) for n, v, u, b, s in rows)


def _record_trial(planned: PlannedTrial, *, error: ErrorFact | None, is_hard: bool, is_bare: bool) -> TrialRecord:
    return TrialRecord(
        planned=planned,
        status=TrialStatus.FINISHED if error is None else TrialStatus.FAILED,
        error=error,
        argv=(
            "pgbench",
            "-b",
            planned.workload,
            "-c",
            "8",
            "-j",
            "2",
            "-T",
            f"{planned.duration_s:.0f}",
            "-P",
            "1",
            "bench",
        ),
        clock_offset_s=1.795e9,
        restore_s=2.31,
        load_start_monotonic_s=1000.0,
        load_end_monotonic_s=1000.0 + planned.duration_s,
        load_cpu_s=12.5,
        log_sampling_rate=1.0,
        settings=() if is_bare or error else _build_settings(is_hard=is_hard),
        counters_before={},
        counters_after={},
        statements=_count_statements(planned) if is_hard and error is None else None,
        gaps=(Gap(source="pressure stall information", reason="the kernel was started without psi=1"),)
        if is_hard
        else (),
    )


def _count_statements(planned: PlannedTrial) -> tuple[StatementCounts, ...]:
    fields = dict.fromkeys(StatementCounts.__struct_fields__, 0)
    texts = ("UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2", HOSTILE, *map(str, range(11)))
    rows = [{"queryid": n, "query": query, "calls": 1000, "rows": 1000} for n, query in enumerate(texts)]
    return tuple(
        StatementCounts(
            **{**fields, **row, "exec_ms": 4e4 / (n + 1) ** 2 + planned.number, "wal_bytes": 150_000 // (n + 1)}
        )
        for n, row in enumerate(rows)
    )


def build_failed(planned: PlannedTrial) -> TrialAnalysis:
    error = ErrorFact(
        fact="the server stopped during the load",
        detail='PANIC:  could not write to file "pg_wal/xlogtemp.4711": No space left on device',
        hint="free some space, or put the work elsewhere with --home",
    )
    return TrialAnalysis(
        record=_record_trial(planned, error=error, is_hard=False, is_bare=False),
        tps=None,
        latency_mean_ms=None,
        percentiles=(),
        transactions_count=None,
        failed_count=None,
        skipped_count=None,
        late_count=None,
        steady_from_s=None,
        charts={},
        events=(),
        counts_per_transaction={},
        shares={},
        statements=(),
        unknown_lines=(),
        gaps=(),
    )


def build_trial(
    planned: PlannedTrial, level_tps: float, *, is_hard: bool = False, is_bare: bool = False
) -> TrialAnalysis:
    draw = random.Random(planned.seed)
    tps = level_tps * (1 + draw.uniform(-0.06, 0.06))
    p50_ms = 8000 / tps
    factors = {"p50": 1.0, "p90": 1.6, "p95": 2.1, "p99": 5.4, "p99.9": 21.0, "max": 88.0}
    percentiles = tuple(
        Percentile(name=name, value_ms=None, reason="too few transactions: 7 above it, 10 are needed")
        if is_hard and name == "p99.9"
        else Percentile(name=name, value_ms=p50_ms * factor)
        for name, factor in factors.items()
    )
    counts = {
        "wal_bytes": 1.42e7 / tps * 0.4,
        "wal_fpi_count": 0.31,
        "blks_read_pages": 0.052,
        "tup_updated_count": 3.0,
        "temp_bytes": 0.0,
    }
    charts = {} if is_bare else _build_charts(planned, tps, p50_ms, draw, is_hard=is_hard)
    statements = (
        StatementTime(script="tpcb-like", statement="BEGIN;", latency_ms=p50_ms * 0.04, failures=0),
        StatementTime(
            script="tpcb-like",
            statement="UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;",
            latency_ms=p50_ms * 0.3,
            failures=0,
        ),
        StatementTime(script="tpcb-like", statement="END;", latency_ms=p50_ms * 0.5, failures=0),
    )
    return TrialAnalysis(
        record=_record_trial(planned, error=None, is_hard=is_hard, is_bare=is_bare),
        tps=tps,
        latency_mean_ms=p50_ms * 1.2,
        percentiles=percentiles,
        transactions_count=round(tps * planned.duration_s),
        pgbench_tps=None if is_bare else tps * 0.97,
        failed_count=0,
        skipped_count=412 if is_hard else 0,
        late_count=97 if is_hard else None,
        steady_from_s=None if is_bare else planned.duration_s * 0.08,
        charts=charts,
        events=() if is_bare else _build_events(planned.duration_s),
        counts_per_transaction={}
        if is_bare
        else {name: None if is_hard and name == "blks_read_pages" else v for name, v in counts.items()},
        shares={}
        if is_bare
        else {"cpu_busy_ratio": 0.84, "cpu_steal_ratio": 0.0149, "cache_hit_ratio": 0.9983, "disk_util_ratio": 0.71},
        statements=() if is_bare or planned.workload == "select-only" else statements,
        unknown_lines=("number of <script>moons</script>: 2",) if is_hard else (),
        gaps=(Gap(source="blks_read_pages", reason="pg_stat_database was <not> readable"),) if is_hard else (),
    )


def _build_events(duration_s: float) -> tuple[Event, ...]:
    end = duration_s * 0.72
    return (
        Event(
            kind="checkpoint", t_s=duration_s * 0.4, until_s=end, text="checkpoint complete: wrote 15822 buffers (3.0%)"
        ),
        Event(
            kind="autovacuum",
            t_s=duration_s * 0.55,
            until_s=None,
            text='automatic vacuum of table "bench.public.pgbench_tellers"',
        ),
    )


def _build_charts(
    planned: PlannedTrial, tps: float, p50_ms: float, draw: random.Random, *, is_hard: bool
) -> dict[ChartKind, tuple[Series, ...]]:
    count = int(planned.duration_s)
    t_s = tuple(second + 0.5 for second in range(count))

    def one(metric: str, label: str, unit: str, level: float, spread: float = 0.12) -> Series:
        values: list[float | None] = []
        wander = 0.0
        for second in range(count):
            wander = 0.8 * wander + draw.gauss(0.0, spread)
            dip = 0.72 if 0.4 <= second / count <= 0.5 else 1.0
            ramp = min(1.0, 0.55 + second / (count * 0.15))
            values.append(max(0.0, level * dip * ramp * (1 + 0.4 * wander)))
        if is_hard:
            values[count // 3 : count // 3 + max(2, count // 20)] = [None] * max(2, count // 20)
        return Series(metric=metric, label=label, unit=unit, t_s=t_s, values=tuple(values))

    charts = {
        ChartKind.TPS: (one("tps", "TPS", "tps", tps),),
        ChartKind.LATENCY: tuple(
            one(f"latency_{name}_ms", name, "ms", p50_ms * factor, 0.2 if factor > 2 else 0.1)
            for name, factor in (("p50", 1.0), ("p95", 2.1), ("p99", 5.4), ("max", 40.0))
        ),
    }
    for kind, (unit, levels) in _SHARES.items():
        charts[kind] = tuple(one(f"{kind.value}_{label}", label, unit, level, 0.15) for label, level in levels.items())
    busiest = one("cpu_busiest_core_ratio", "busiest core", "ratio", 0.93, 0.03)
    capped = tuple(None if value is None else min(1.0, value) for value in busiest.values)
    charts[ChartKind.CPU] += (Series(metric=busiest.metric, label=busiest.label, unit="ratio", t_s=t_s, values=capped),)
    filling = tuple(1.0 - 0.4 / (1 + second) for second in range(count))
    hits = Series(metric="cache_hit_ratio", label="shared_buffers", unit="ratio", t_s=t_s, values=filling)
    charts[ChartKind.CACHE_HITS] = (hits,)
    if is_hard:
        del charts[ChartKind.PRESSURE]
    return charts


def build_workload(load: PlannedWorkload, trials: tuple[TrialAnalysis, ...]) -> WorkloadAnalysis:
    finished = [trial for trial in trials if trial.tps is not None]
    latency = {"mean": _estimate([trial.latency_mean_ms for trial in finished], "ms")}
    for percentile in ("p50", "p90", "p95", "p99", "p99.9", "max"):
        values = [one.value_ms for trial in finished for one in trial.percentiles if one.name == percentile]
        latency[percentile] = _estimate(values, "ms")
    return WorkloadAnalysis(
        name=load.name,
        load=load,
        tps=_estimate([trial.tps for trial in finished], "tps"),
        latency_ms=latency,
        trials=trials,
    )


def _estimate(values: list[float | None], unit: str) -> Estimate:
    known = [value for value in values if value is not None]
    if not known:
        reason = "too few transactions in every trial" if values else "no finished trial"
        return Estimate(value=None, low=None, high=None, n=0, unit=unit, confidence=0.95, reason=reason)
    mean = statistics.fmean(known)
    if len(known) == 1:
        return Estimate(
            value=mean, low=None, high=None, n=1, unit=unit, confidence=0.95, reason="one trial says nothing of noise"
        )
    half = _T_95.get(len(known), 2.2) * statistics.stdev(known) / math.sqrt(len(known))
    return Estimate(
        value=mean, low=mean - half, high=mean + half, n=len(known), unit=unit, confidence=0.95, reason=None
    )


def _build_findings(names: tuple[str, ...], failed: tuple[int, ...], *, is_hard: bool) -> tuple[Finding, ...]:
    findings = [
        Finding(
            severity=Severity.WARNING,
            claim="The hypervisor took CPU time away.",
            evidence="1.5 % of all CPU time in trial 2",
            advice="Neighbours are in the figures; compare interleaved trials only, or use a dedicated host.",
            workload=name,
        )
        for name in names[:2]
    ]
    findings.append(
        Finding(
            severity=Severity.NOTE,
            claim="The data fit into shared_buffers.",
            evidence="1.5 GB of data, 4 GB of shared_buffers",
            advice="What is measured is CPU, locks and WAL, not reading from the disk.",
        )
    )
    if failed:
        findings.insert(
            0, Finding(severity=Severity.CRITICAL, claim=f"Trial {failed[0]} failed.", evidence="see there")
        )
    if is_hard:
        claim = "The server gives up durability: fsync = off."
        findings.append(Finding(rule=DURABILITY, severity=Severity.CRITICAL, claim=claim, evidence=f"of {HOSTILE}"))
    return tuple(findings)
