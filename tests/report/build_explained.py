"""Reports that explain, made up for tests: what limits each load, what happened over time, ceilings, rivals, gains."""

from __future__ import annotations

import functools

import msgspec

from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.transaction_time.shares import Certainty
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.finding import Finding, Rival, Severity
from pgdyno.report.input import ReportInput
from tests.report.build import HOSTILE, build_report
from tests.report.build_comparison import build_paired

_CPU = Finding(
    severity=Severity.NOTE,
    rule=LIMITS,
    claim="The CPUs limit this load: they were busy all the time, and backends queued for them.",
    evidence="98.7 % of 2 CPUs busy; 61 % [58, 64] of a transaction's 0.16 ms on a CPU, 35 % [32, 38] waiting for one",
    advice="More or faster CPUs, or fewer instructions: try the prepared protocol.",
    certainty=Certainty.STRONG,
    confirm="`pgdyno explain pgdyno-records/x --confirm` tries the prepared protocol, in about 4 min.",
    gain="about +20 % TPS [+10, +35], expected",
    gain_ratio=0.2,
    shows=(ChartKind.CPU, ChartKind.RUN_QUEUE),
    workload="select-only",
)
_FLUSH = Finding(
    severity=Severity.NOTE,
    rule=LIMITS,
    claim="Waiting for WAL to be durable limits this load.",
    evidence="72 % [66, 78] of a transaction's 2.3 ms; 0.42 flushes for each, 1.9 ms each, against 1.8 ms on the disk's card",
    advice="A disk with quicker flushes, or more clients that share them.",
    certainty=Certainty.LIKELY,
    rivals=(
        Rival(cause="the CPUs", against="81 % busy, and the run queue never passed 2"),
        Rival(cause="locks on rows", against="9 % [6, 13] of the time waited for locks"),
    ),
    confirm="`pgdyno explain pgdyno-records/x --confirm` runs it with synchronous_commit = off, a what-if, in about 2 min.",
    gain="up to +240 % TPS were flushes free, expected",
    gain_ratio=2.4,
    shows=(ChartKind.WAITS, ChartKind.DISK_LATENCY),
    workload="tpcb-like",
)
_CLIFF = Finding(
    severity=Severity.WARNING,
    rule="cliff",
    claim="TPS fell by 28 % after 24 s and came back 7 s later.",
    evidence="3,410 TPS before, 2,460 [2,390 – 2,530] after; a checkpoint had begun 1 s before",
    advice="Spread checkpoints with a larger max_wal_size.",
    rivals=(Rival(cause="the disk's credits ran out", against="its latency did not change"),),
    confirm="a run of 10 min with max_wal_size = 8GB",
    shows=(ChartKind.TPS, ChartKind.WAL, ChartKind.PRESSURE),
    trial=2,
)
_CEILING = Finding(
    severity=Severity.NOTE,
    rule="ceiling",
    claim="This machine does at most about 52,000 TPS of this load; the run came to 93 % of it.",
    evidence="the law fits 5 numbers of clients; 49,000 to 56,000",
    workload="select-only",
    shows=(ChartKind.TPS,),
)


@functools.cache
def build_explained(*, is_hard: bool = False) -> ReportInput:
    """A plain bench of three workloads, explained; hard: hostile words, many findings, what could not be judged."""
    report = build_report(failed=(3,) if is_hard else ())
    number = report.analysis.workloads[0].trials[0].record.planned.number
    found = [_FLUSH, _CPU, msgspec.structs.replace(_CLIFF, trial=number, workload="tpcb-like"), _CEILING]
    if is_hard:
        unknown = msgspec.structs.replace(
            _FLUSH,
            certainty=Certainty.UNKNOWN,
            claim=f"Nothing says what limits {HOSTILE}.",
            rivals=(),
            gain="",
            advice="",
        )
        found = [unknown, *found[1:]]
        found += [msgspec.structs.replace(_CEILING, claim=f"Ceiling {one} of {HOSTILE}.") for one in range(4)]
    return msgspec.structs.replace(report, explanations=tuple(found))


@functools.cache
def build_explained_comparison() -> ReportInput:
    """A comparison, explained: both variants of a workload have the same limit."""
    report = build_paired()
    found = tuple(
        msgspec.structs.replace(_CPU, workload=workload.name, evidence=f"9{number}.7 % of 2 CPUs busy")
        for number, workload in enumerate(report.analysis.workloads)
    )
    return msgspec.structs.replace(report, explanations=found)
