"""Read the signs of each resource from a trial's analysis and its record.

What was not observed is absent, with the reason, and never 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.bottleneck.signs import Signs
from pgdyno.analyse.disk.commits import waits_for_flushes
from pgdyno.analyse.disk.demand import UseKind
from pgdyno.analyse.series import ChartKind, Series
from pgdyno.analyse.trial.charts import OF_WAL_DISK
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.machine.preflight import PreflightFacts
from pgdyno.record.types import UNSEEN_MACHINE, StudyRecord

# The kernel's names of logical volumes and arrays.
_COMPOSED = ("dm-", "md")
_UNSEEN = f"CPUs, memory and disks: {UNSEEN_MACHINE}"
_WRITERS = ("checkpointer", "background writer", "backends and others")


def read_signs(record: StudyRecord, load: PlannedWorkload, trial: TrialAnalysis) -> Signs:
    """Read the signs that a trial shows beside its clients' time."""
    flushes = None if trial.disk is None else trial.disk.find(UseKind.FLUSHES)
    of_wal = "" if record.wal_device is None else OF_WAL_DISK
    return Signs(
        load=load,
        scale=_find_scale(record, trial),
        time=trial.time,
        shares=trial.shares,
        usable_cpu_count=record.usable_cpu_count,
        cpus_seen_count=trial.cpus_seen_count,
        throttled_ratio=_mean(trial, ChartKind.CPU_QUOTA, "throttled"),
        writing_ratio=_find_writing_ratio(trial),
        pages_to_wal=_find_pages_to_wal(trial),
        reading=_count_under_way(trial, "reads", "read"),
        server_flushing_ratio=_find_flushing_ratio(trial),
        device_flushing_ratio=_count_under_way(trial, f"flushes{of_wal}", f"flush{of_wal}"),
        read_ms=trial.counts_per_transaction.get("blk_read_ms"),
        flush_use_ratio=None if flushes is None else flushes.ratio,
        images_count=trial.counts_per_transaction.get("wal_fpi_count"),
        busy_ratio=trial.shares.get("disk_util_ratio"),
        absent=list(_list_absent(trial) if record.host is not None else _list_unseen(trial)),
        standbys=trial.standbys,
        pooler=trial.pooler,
        may_sleep=any(one.statement.startswith(r"\sleep") for one in trial.statements),
        round_trip_ms=_find_round_trip_ms(record, load, trial),
        generators=trial.generators,
        waits_for_flushes=waits_for_flushes(trial.record),
        has_wal_apart=_has_wal_apart(record),
    )


def _has_wal_apart(record: StudyRecord) -> bool:
    """Return whether data and WAL are known to have no device in common: two volumes of one disk share it."""
    if record.data_device is None or record.wal_device is None:
        return False
    data, wal = _list_devices(record, record.data_device), _list_devices(record, record.wal_device)
    return data is not None and wal is not None and not data & wal


def _list_devices(record: StudyRecord, top: str) -> set[str] | None:
    """List a device and those that it is made of; None if the record does not say of what a volume or an array is made."""
    below = {device.name: device.below for device in (record.preflight or PreflightFacts()).all_devices}
    found, waiting = set[str](), [top]
    while waiting:
        name = waiting.pop()
        if name not in below and name.startswith(_COMPOSED):
            return None
        found.add(name)
        waiting += below.get(name, ())
    return found


def _find_round_trip_ms(record: StudyRecord, load: PlannedWorkload, trial: TrialAnalysis) -> float | None:
    if record.load_hosts:
        round_trip_s = record.find_round_trip_s(load, {one.host for one in trial.generators})
        return None if round_trip_s is None else round_trip_s * 1000.0
    return max((one.round_trip.median_s * 1000.0 for one in record.list_given(load)), default=None)


def _find_scale(record: StudyRecord, trial: TrialAnalysis) -> int:
    """Find the scale of a trial's data: its variant's own, or the study's."""
    experiment, variants = record.plan.experiment, trial.record.planned.variants
    own = None if experiment is None or len(variants) != 1 else experiment.find_variant(variants[0]).scale
    return record.plan.scale if own is None else own


def _list_unseen(trial: TrialAnalysis) -> Iterator[str]:
    yield _UNSEEN
    if trial.time is None or trial.time.generator_ratio is None:
        yield "how busy pgbench's threads were"


def _list_absent(trial: TrialAnalysis) -> Iterator[str]:
    if trial.time is not None:
        yield from (f"{what}: {why}" for what, why in trial.time.unknown.items())
    if trial.shares.get("cpu_busy_ratio") is None:
        yield "how busy the CPUs were"
    elif trial.shares.get("cpu_others_ratio") is None:
        yield "what other programs used of the CPUs"
    if trial.shares.get("disk_util_ratio") is None:
        yield "what the data's disk did"
    if trial.disk is None:
        yield "what the data's disk can do: there is no card of it"


def _count_under_way(trial: TrialAnalysis, requests: str, each: str) -> float | None:
    """Compute the mean number of requests of a kind under way at the device: growth of the device's own clock over time."""
    rates, times = (
        _find_line(trial, kind, label)
        for kind, label in ((ChartKind.DISK_IOPS, requests), (ChartKind.DISK_LATENCY, each))
    )
    if rates is None:
        return None
    # In an interval without such a request, the device has no time for one.
    each_ms = {} if times is None else dict(zip(times.t_s, times.values, strict=True))
    seen = [(rate, each_ms.get(t_s)) for t_s, rate in zip(rates.t_s, rates.values, strict=True) if rate is not None]
    under_way = [rate * (ms or 0.0) / 1000.0 for rate, ms in seen if not rate or ms is not None]
    return sum(under_way) / len(under_way) if under_way else None


def _find_flushing_ratio(trial: TrialAnalysis) -> float | None:
    """Compute the share of the load during which the server flushed, by its own clock."""
    flush_ms, length_s = trial.counts_per_transaction.get("wal_sync_ms"), trial.record.load_s
    if flush_ms is None or not length_s or trial.transactions_count is None:
        return None
    return flush_ms * trial.transactions_count / 1000.0 / length_s


def _find_pages_to_wal(trial: TrialAnalysis) -> float | None:
    wal = _mean(trial, ChartKind.WAL, "WAL")
    pages = [_mean(trial, ChartKind.BUFFER_WRITES, who) for who in _WRITERS]
    seen = [each for each in pages if each is not None]
    return sum(seen) / wal if seen and wal else None


def _find_writing_ratio(trial: TrialAnalysis) -> float | None:
    length_s = trial.record.load_s
    if length_s is None:
        return None
    if not trial.has_checkpoint_log:
        # The server adds the time of a checkpoint as it ends.
        write_ms, count = trial.counts_per_transaction.get("checkpoint_write_ms"), trial.transactions_count
        return None if write_ms is None or count is None else min(1.0, write_ms * count / 1000.0 / length_s)
    written_s = sum(
        min(length_s, length_s if event.until_s is None else event.until_s) - max(0.0, event.t_s)
        for event in trial.events
        if event.kind == "checkpoint"
    )
    return min(1.0, written_s / length_s)


def _mean(trial: TrialAnalysis, kind: ChartKind, label: str) -> float | None:
    line = _find_line(trial, kind, label)
    values = [] if line is None else [value for value in line.values if value is not None]
    return sum(values) / len(values) if values else None


def _find_line(trial: TrialAnalysis, kind: ChartKind, label: str) -> Series | None:
    return next((line for line in trial.charts.get(kind, ()) if line.label == label), None)
