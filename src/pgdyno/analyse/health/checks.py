"""Check the counters that DBAs watch, of one trial, against their thresholds.

A value beyond a threshold shows where to look. It names no cause: a server at the limit of its CPUs waits for locks and
flushes, too, and a load can be at its best with half of these in red. So this module draws no conclusion. A value that was
not counted is absent with a reason, and a share of a tiny total is shown but not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pgdyno.analyse.disk.demand import DiskJoin
from pgdyno.analyse.health import load as health_load
from pgdyno.analyse.health import server as health_server
from pgdyno.analyse.health.reading import Reading, SeenTrial
from pgdyno.analyse.health.types import HealthRow
from pgdyno.analyse.trial.throughput import TrialThroughput
from pgdyno.facts.health import HealthCheck, health_checks
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import StudyRecord, TrialStatus

_READERS: Final[dict[str, Callable[[SeenTrial], Reading]]] = {
    "backend_written_ratio": health_server.backend_written,
    "bgwriter_cleaned_ratio": health_server.bgwriter_cleaned,
    "bgwriter_stopped_ratio": health_server.bgwriter_stopped,
    "checkpoints_requested_ratio": health_server.checkpoints_requested,
    "checkpoint_distance_s": health_server.checkpoint_distance,
    "wal_bytes_per_s": health_server.wal_rate,
    "wal_disk_ratio": health_load.wal_of_disk,
    "cache_hit_ratio": health_server.cache_hits,
    "dirty_memory_ratio": health_load.dirty_memory,
    "temp_bytes_per_s": health_server.temp_files,
    "tps_variation_ratio": health_load.tps_variation,
    "latency_tail_ratio": health_load.latency_tail,
    "wait_lock_ratio": health_load.lock_waits,
    "wait_lwlock_ratio": health_load.lwlock_waits,
    "wait_io_ratio": health_load.io_waits,
    "deadlocks_per_min": health_server.deadlocks,
    "rollback_ratio": health_server.rollbacks,
    "hot_update_ratio": health_server.hot_updates,
    "dead_rows_ratio": health_server.dead_rows,
}


def assess_health(
    record: StudyRecord, data: TrialData, *, throughput: TrialThroughput | None, disk: DiskJoin | None
) -> tuple[HealthRow, ...]:
    """Check the health of a trial, in the order of facts/health.toml.

    A failed trial has no checks, and neither has one in which variants alternated: its counters are a mixture of them.

    Args:
        record: The study's record.
        data: The data that the trial left.
        throughput: Throughput of the trial's steady part; None without one.
        disk: The trial's load on the disk; None without a card.
    """
    if data.record.status is not TrialStatus.FINISHED or len(data.record.planned.variants) > 1:
        return ()
    seen = SeenTrial(record=record, data=data, throughput=throughput, disk=disk)
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
