"""Check the counters that DBAs watch, of one trial, against their thresholds.

A value beyond a threshold shows where to look. It names no cause: a server at the limit of its CPUs waits for locks and
flushes, too, and a load can be at its best with half of these in red. So this module draws no conclusion. A value that
was not counted is absent with a reason, and a share of a tiny total is shown but not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pgdyno.analyse.disk.demand import DiskDemand
from pgdyno.analyse.health import load_checks, server_checks
from pgdyno.analyse.health.reading import ObservedTrial, Reading
from pgdyno.analyse.health.types import HealthRow
from pgdyno.analyse.throughput import TrialThroughput
from pgdyno.facts.health import HealthCheck, health_checks
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import StudyRecord, TrialStatus

_READERS: Final[dict[str, Callable[[ObservedTrial], Reading]]] = {
    "backend_written_ratio": server_checks.backend_written,
    "bgwriter_cleaned_ratio": server_checks.bgwriter_cleaned,
    "bgwriter_stopped_ratio": server_checks.bgwriter_stopped,
    "checkpoints_requested_ratio": server_checks.checkpoints_requested,
    "checkpoint_distance_s": server_checks.checkpoint_distance,
    "wal_bytes_per_s": server_checks.wal_rate,
    "wal_disk_ratio": load_checks.wal_of_disk,
    "cache_hit_ratio": server_checks.cache_hits,
    "dirty_memory_ratio": load_checks.dirty_memory,
    "temp_bytes_per_s": server_checks.temp_files,
    "tps_variation_ratio": load_checks.tps_variation,
    "latency_tail_ratio": load_checks.latency_tail,
    "wait_lock_ratio": load_checks.lock_waits,
    "wait_lwlock_ratio": load_checks.lwlock_waits,
    "wait_io_ratio": load_checks.io_waits,
    "deadlocks_per_min": server_checks.deadlocks,
    "rollback_ratio": server_checks.rollbacks,
    "hot_update_ratio": server_checks.hot_updates,
    "dead_rows_ratio": server_checks.dead_rows,
}


def assess_health(
    record: StudyRecord,
    data: TrialData,
    *,
    shares: Mapping[str, float | None],
    throughput: TrialThroughput | None,
    disk: DiskDemand | None,
) -> tuple[HealthRow, ...]:
    """Check the health of a trial, in the order of facts/health.toml.

    A failed trial has no checks, and neither has one in which variants alternated: its counters are a mixture of them.

    Args:
        record: The study's record.
        data: The data that the trial left.
        shares: Shares of the trial, as `TrialAnalysis` has them.
        throughput: Throughput of the trial's steady part; None without one.
        disk: The trial's load on the disk; None without a card.
    """
    if data.record.status is not TrialStatus.FINISHED or data.record.planned.is_block:
        return ()
    seen = ObservedTrial(record=record, data=data, shares=shares, throughput=throughput, disk=disk)
    return tuple(_judge(check, _READERS[name](seen)) for name, check in health_checks().items())


def _judge(check: HealthCheck, reading: Reading) -> HealthRow:
    is_judged = reading.value is not None and reading.reason is None
    return HealthRow(
        check=check.name,
        value=reading.value,
        level=check.judge(reading.value) if is_judged and reading.value is not None else None,
        evidence=reading.evidence,
        reason=reading.reason or check.unbounded,
    )
