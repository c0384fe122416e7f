"""Build the series and events of one trial on one time axis: seconds since its measured load began.

Series hold the samples as taken: nothing is smoothed or interpolated. Seconds that lie partly outside the load are left
out, because their rates would be too low.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from pgdyno.analyse.series import OUT_OF_MEMORY, SWAPPING, ChartKind, Event, Series
from pgdyno.facts.metrics import find_metric
from pgdyno.record.samples import os_series as series
from pgdyno.record.samples import server_series
from pgdyno.record.samples.series import Sampled
from pgdyno.record.serverlog import Autovacuum, CheckpointComplete, CheckpointStart, Crash, ErrorReport
from pgdyno.record.trial_data import TrialData
from pgdyno.units import format_bytes

_LATENCIES = (("p50", "p50_us"), ("p95", "p95_us"), ("p99", "p99_us"))
OF_WAL_DISK = " of WAL disk"
"""The end of the labels of pg_wal's own disk in the charts of disks."""
_DISK_LABELS = {
    ChartKind.DISK_IOPS: {"disk_read_iops": "reads", "disk_write_iops": "writes", "disk_flush_iops": "flushes"},
    ChartKind.DISK_THROUGHPUT: {"disk_read_bytes_per_s": "read", "disk_write_bytes_per_s": "written"},
    ChartKind.DISK_LATENCY: {
        "disk_read_await_ms": "read",
        "disk_write_await_ms": "write",
        "disk_flush_await_ms": "flush",
    },
}
_CPU_KINDS_SHOWN = ("user", "system", "irq", "softirq", "iowait", "steal")

# Less is what a program that wakes brings back.
_MIN_SWAPPED_BYTES = 32e6


def chart_trial(
    data: TrialData, *, disk: str | None, wal_disk: str | None = None
) -> dict[ChartKind, tuple[Series, ...]]:
    """Build all charts of a trial; a chart without any observation is left out.

    Args:
        data: The data that the trial left.
        disk: Kernel name of the device that holds the data; without one there are no disk charts.
        wal_disk: Kernel name of the device that holds pg_wal; None if it is the same.
    """
    charts = {**_load_charts(data), **_os_charts(data, disk, wal_disk), **_server_charts(data)}
    return {kind: drawn for kind, drawn in charts.items() if drawn}


def chart_slices(data: TrialData) -> dict[ChartKind, tuple[Series, ...]]:
    """Build the chart of TPS by slice of a trial whose load paused between slices, each in the middle of what counts of it."""
    start_s = data.record.load_start_monotonic_s
    if start_s is None:
        return {}
    values = []
    for one, load in zip(data.slices, data.slice_loads, strict=True):
        ok_count = load.ok_count / data.record.log_sampling_rate
        values.append(ok_count / one.counted_s if one.counted_s > 0 else None)
    t_s = tuple((one.settled_monotonic_s + one.end_monotonic_s) / 2 - start_s for one in data.slices)
    tps = Series(metric="tps", label="TPS", unit=find_metric("tps").unit, t_s=t_s, values=tuple(values))
    return {ChartKind.TPS: (tps,)}


def list_events(data: TrialData) -> tuple[Event, ...]:
    """List checkpoints, autovacuums, crashes, errors and want of memory that overlap the measured load, by time."""
    start_s, end_s = data.record.load_start_monotonic_s, data.record.load_end_monotonic_s
    if start_s is None or end_s is None:
        return ()
    events = (
        event
        for event in (*_log_events(data), *list_memory_events(data))
        if (event.until_s or event.t_s) >= 0 and event.t_s <= end_s - start_s
    )
    return tuple(sorted(events, key=lambda event: event.t_s))


def list_memory_events(data: TrialData) -> tuple[Event, ...]:
    """List the machine's swapping and the processes that it killed for want of memory, under the measured load."""
    start_s, length_s = data.record.load_start_monotonic_s, data.record.load_s
    if data.os is None or start_s is None or length_s is None:
        return ()
    events = []
    swapped, killed = series.swapped(data.os), series.oom_kills(data.os)
    if swapped.absent is None and swapped.steps_s is not None:
        t_s = swapped.monotonic_s - start_s
        moved = np.nan_to_num(swapped.values * swapped.steps_s) * ((t_s >= 0.0) & (t_s <= length_s))
        if moved.sum() >= _MIN_SWAPPED_BYTES:
            from_s, until_s = t_s[moved > 0.0][[0, -1]].tolist()
            text = f"{format_bytes(round(moved.sum()))} of memory written to swap or read back"
            events.append(Event(kind=SWAPPING, t_s=from_s, until_s=until_s, text=text))
    for at_s, count in zip((killed.monotonic_s - start_s).tolist(), killed.values.tolist(), strict=True):
        if count > 0.0 and 0.0 <= at_s <= length_s:
            text = f"the kernel killed {count:.0f} process{'es' if count > 1.0 else ''} because memory was used up"
            events.append(Event(kind=OUT_OF_MEMORY, t_s=at_s, until_s=None, text=text))
    return tuple(events)


def _load_charts(data: TrialData) -> dict[ChartKind, tuple[Series, ...]]:
    start_s = data.load_start_epoch_s
    if data.transactions is None or start_s is None:
        return {}
    seconds = data.transactions.series
    whole = seconds.find_rows(data.whole_seconds)
    # The point of a second is drawn at its middle.
    shown_s = tuple((seconds.epoch_s[whole] - start_s + 0.5).tolist())

    def draw(metric: str, label: str, values: np.ndarray) -> Series:
        return Series(
            metric=metric, label=label, unit=find_metric(metric).unit, t_s=shown_s, values=_values(values[whole])
        )

    latencies = (draw(f"latency_{label}_ms", label, getattr(seconds, field) / 1000) for label, field in _LATENCIES)
    return {
        ChartKind.TPS: (draw("tps", "TPS", seconds.tps),),
        ChartKind.LATENCY: (*latencies, draw("latency_max_ms", "max", seconds.max_us / 1000)),
    }


def _os_charts(data: TrialData, disk: str | None, wal_disk: str | None) -> dict[ChartKind, tuple[Series, ...]]:
    samples = data.os
    if samples is None:
        return {}
    shares = {share.label: share for share in series.cpu_shares(samples)}
    cpu = [shares[kind] for kind in _CPU_KINDS_SHOWN if kind in shares]
    pressures = [line for resource in ("cpu", "io", "memory") for line in series.pressure(samples, resource)]
    charts: dict[ChartKind, Iterable[Sampled]] = {
        ChartKind.CPU: [*cpu, series.busiest_core(samples)],
        ChartKind.RUN_QUEUE: [series.run_queue(samples), series.blocked(samples)],
        ChartKind.CPU_QUOTA: [series.cgroup_throttled(samples)],
        ChartKind.DIRTY_MEMORY: [series.dirty(samples), series.writeback(samples)],
        ChartKind.PRESSURE: pressures,
    }
    for device, of in ((disk, ""), (wal_disk, OF_WAL_DISK)):
        if device is None or device not in series.list_disks(samples):
            continue
        of_disk = series.disk_series(samples, device)
        for kind, labels in _DISK_LABELS.items():
            named = {metric: f"{label}{of}" for metric, label in labels.items()}
            charts[kind] = [*charts.get(kind, ()), *_labelled(of_disk, **named)]
    return {kind: _on_trial_time(data, lines) for kind, lines in charts.items()}


def _server_charts(data: TrialData) -> dict[ChartKind, tuple[Series, ...]]:
    if data.server is None:
        return {}
    wal = (server_series.wal_bytes(data.server), server_series.wal_full_page_images(data.server))
    by_metric = {one.metric: one for one in (*wal, *server_series.written_pages(data.server))}
    charts: dict[ChartKind, Iterable[Sampled]] = {
        ChartKind.WAITS: server_series.wait_classes(data.server),
        ChartKind.WAL: _labelled(by_metric, wal_bytes_per_s="WAL"),
        ChartKind.FULL_PAGE_IMAGES: _labelled(by_metric, wal_fpi_per_s="full-page images"),
        ChartKind.BUFFER_WRITES: _labelled(
            by_metric,
            checkpointer_written_bytes_per_s="checkpointer",
            bgwriter_written_bytes_per_s="background writer",
            backend_written_bytes_per_s="backends and others",
        ),
        ChartKind.CACHE_HITS: [server_series.cache_hits(data.server)],
        ChartKind.STANDBY_LAG: server_series.standby_lags(data.server),
    }
    return {kind: _on_trial_time(data, lines) for kind, lines in charts.items()}


def _labelled(by_metric: dict[str, Sampled], **labels: str) -> Iterator[Sampled]:
    for metric, label in labels.items():
        yield msgspec.structs.replace(by_metric[metric], metric=metric, label=label)


def _on_trial_time(data: TrialData, lines: Iterable[Sampled]) -> tuple[Series, ...]:
    start_s, end_s = data.record.load_start_monotonic_s, data.record.load_end_monotonic_s
    if start_s is None or end_s is None:
        return ()
    drawn = []
    for line in lines:
        within = line.find_within(start_s, end_s)
        values = line.values[within]
        if line.absent is None and np.isfinite(values).any():
            drawn.append(
                Series(
                    metric=line.metric,
                    label=line.label,
                    unit=line.unit,
                    t_s=tuple((line.monotonic_s[within] - start_s).tolist()),
                    values=_values(values),
                )
            )
    return tuple(drawn)


def _values(values: np.ndarray) -> tuple[float | None, ...]:
    return tuple(None if np.isnan(value) else float(value) for value in values)


def _log_events(data: TrialData) -> Iterator[Event]:
    start_s = data.record.load_start_monotonic_s or 0.0
    begun: CheckpointStart | None = None
    for entry in data.log:
        if entry.origin is None:
            continue
        t_s = entry.origin.monotonic_s - start_s
        match entry:
            case CheckpointStart():
                begun = entry
            case CheckpointComplete():
                reasons = ", ".join(begun.reasons) if begun is not None else "unknown"
                text = f"checkpoint ({reasons}): {entry.written_pages:,} buffers, {entry.distance_kb:,} kB of WAL"
                yield Event(kind="checkpoint", t_s=t_s - entry.total_s, until_s=t_s, text=text)
                begun = None
            case Autovacuum():
                text = f"automatic {entry.command} of {entry.table}"
                yield Event(kind="autovacuum", t_s=t_s - (entry.elapsed_s or 0.0), until_s=t_s, text=text)
            case Crash() | ErrorReport():
                yield Event(kind="error", t_s=t_s, until_s=None, text=entry.message)
    if begun is not None and begun.origin is not None:
        # The checkpoint was still under way when the trial ended.
        text = f"checkpoint ({', '.join(begun.reasons)}), not ended within the trial"
        yield Event(kind="checkpoint", t_s=begun.origin.monotonic_s - start_s, until_s=None, text=text)
