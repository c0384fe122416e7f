"""A load of a known nature, made up for tests: what its transactions take, and trials that show it, each with its noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from pgdyno.analyse.disk.demand import DiskDemand, DiskLimits, DiskUse, UseKind
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey
from pgdyno.analyse.estimate import estimate_geometric_mean
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.transaction_time.shares import Resource, TimeShare, TransactionTime
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.record.types import StudyRecord
from tests.report.build import build_report, build_trial, build_workload

SECONDS = 10.0
_UNITS = {UseKind.FLUSHES: "tps", UseKind.READS: "/s", UseKind.WRITES: "/s", UseKind.INSTANCE_IOPS: "/s"}
_KEYS = {
    UseKind.FLUSHES: DiskFigureKey.FLUSHES,
    UseKind.READS: DiskFigureKey.RANDOM_READ,
    UseKind.READ_BYTES: DiskFigureKey.SEQUENTIAL_READ,
    UseKind.WRITES: DiskFigureKey.RANDOM_WRITE,
    UseKind.WRITTEN_BYTES: DiskFigureKey.SEQUENTIAL_WRITE,
}


class Nature(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine of 2 CPUs has, and what a transaction of it takes."""

    tps: float = 1000.0
    clients: int = 8
    cpu_s: float | None = 1e-3
    others_ratio: float = 0.0
    stolen_ratio: float = 0.0
    generator_s: float | None = 1e-4
    latency_ms: float | None = None
    """By Little's law without one."""
    demands: dict[UseKind, float] = {}
    """Of the disk; of flushes the share of transactions that write."""
    limits: dict[UseKind, float] = {}
    shares: dict[Resource, float] = {}


def draw_limits(nature: Nature, *, rounds: int = 4, sd: float = 0.0, seed: int = 0) -> DiskLimits:
    """A card of so many rounds."""
    draw = np.random.default_rng(seed)

    def estimate(limit: float, unit: str):
        return estimate_geometric_mean(
            [limit * math.exp(sd * draw.standard_normal()) for _ in range(rounds)], unit=unit
        )

    return DiskLimits(
        entries=tuple(
            DiskFigure(key=_KEYS[kind], estimate=estimate(limit, "1/s" if kind in _UNITS else "bytes/s"), how="")
            for kind, limit in nature.limits.items()
            if kind in _KEYS
        )
    )


def draw_load(
    nature: Nature, *, trials: int = 4, sd: float = 0.0, limits: DiskLimits | None = None, seed: int = 0
) -> tuple[StudyRecord, WorkloadAnalysis]:
    """Its record and its trials; each has its own TPS and its own demands, `sd` apart in logarithms."""
    draw = np.random.default_rng(seed)
    report = build_report(names=("tpcb-like",), rounds=trials, duration_s=int(SECONDS), is_bare=True)
    load = msgspec.structs.replace(report.record.plan.workloads[0], clients=nature.clients, threads=2)
    seen = tuple(
        _draw_trial(build_trial(trial, 1.0, is_bare=True), nature, draw, sd, limits)
        for trial in report.record.plan.trials
    )
    made = build_workload(load, seen)
    tps = estimate_geometric_mean([trial.tps or 0.0 for trial in seen], unit="tps")
    mean = estimate_geometric_mean([trial.latency_mean_ms or 0.0 for trial in seen], unit="ms")
    return report.record, msgspec.structs.replace(made, tps=tps, latency_ms={**made.latency_ms, "mean": mean})


def make_analysis(*workloads: WorkloadAnalysis, **others: object) -> StudyAnalysis:
    return StudyAnalysis(workloads=workloads, **others)  # type: ignore[arg-type]


def _draw_trial(
    trial: TrialAnalysis, nature: Nature, draw: np.random.Generator, sd: float, limits: DiskLimits | None
) -> TrialAnalysis:
    def noisy(value: float) -> float:
        return value * math.exp(sd * draw.standard_normal())

    tps = noisy(nature.tps)
    shares: dict[str, float | None] = {"cpu_others_ratio": nature.others_ratio, "cpu_steal_ratio": nature.stolen_ratio}
    if nature.cpu_s is not None:
        shares["cpu_busy_ratio"] = noisy(nature.cpu_s) * tps / 2 + nature.others_ratio
    if nature.generator_s is not None:
        shares["load_generator_thread_ratio"] = nature.generator_s * tps / 2
    uses = tuple(
        _use(kind, (demand if kind is UseKind.FLUSHES else noisy(demand)) * tps, nature)
        for kind, demand in nature.demands.items()
    )
    latency_ms = nature.latency_ms or 1e3 * nature.clients / tps
    return msgspec.structs.replace(
        trial,
        tps=tps,
        latency_mean_ms=latency_ms,
        transactions_count=tps * SECONDS,
        shares=shares,
        cpus_seen_count=2,
        disk=None if limits is None else make_join(uses),
        time=_time(nature.shares, latency_ms) if nature.shares else None,
    )


def make_join(uses: Sequence[DiskUse]) -> DiskDemand:
    return DiskDemand(
        device="vda",
        busy_ratio=None,
        read_await_ms=None,
        write_await_ms=None,
        flush_await_ms=None,
        missed_blocks_per_s=None,
        uses=tuple(uses),
    )


def _use(kind: UseKind, used: float, nature: Nature) -> DiskUse:
    shared = nature.clients / 2 if kind is UseKind.FLUSHES and nature.clients > 1 else 1.0
    return DiskUse(
        kind=kind,
        used=used,
        limit=nature.limits.get(kind, 1.0) * shared,
        unit=_UNITS.get(kind, "bytes/s"),
        how=kind.value,
    )


def _time(shares: Mapping[Resource, float], latency_ms: float) -> TransactionTime:
    return TransactionTime(
        transaction_ms=latency_ms,
        shares=tuple(
            TimeShare(
                resource=resource,
                ms=ratio * latency_ms,
                ratio=ratio,
                low_ratio=0.9 * ratio,
                high_ratio=min(1.0, 1.1 * ratio),
                how="",
            )
            for resource, ratio in shares.items()
        ),
        observed_count=1000,
    )
