"""Compute rates, shares and gauges from the OS sampler's counters, each at its true time.

The rules of `series.py` apply.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence

import msgspec
import numpy as np

from pgdyno.record.frames import pl
from pgdyno.record.samples.files import OsSamples
from pgdyno.record.samples.series import Floats, Sampled, absent_series, difference, gauge, intervals

# Source: Linux Documentation/admin-guide/iostats.rst: a sector is 512 bytes whatever the device.
SECTOR_BYTES = 512
_KB = 1024
# Source: Linux Documentation/filesystems/proc.rst section 1.8: guest time is part of user time already.
CPU_KINDS = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "idle")
_NOT_BUSY = ("iowait", "steal", "idle")
# What programs use of the CPUs, by the field of their own counters.
_PROGRAMS = {"utime": ("user", "nice"), "stime": ("system",)}
_UNCOUNTED = "this kernel does not count how long threads run"


def list_cpus(samples: OsSamples) -> tuple[str, ...]:
    """Return the CPUs that the study may use, as `cpu0`; load on other CPUs does not affect it. Empty if they cannot be told."""
    seen = _list_sources(samples, "cpu", "user")
    usable = samples.header.cpus if samples.header else ()
    return choose_cpus(seen, usable) if usable else seen


def choose_cpus(listed: Collection[str], usable: Collection[int]) -> tuple[str, ...]:
    """Return those CPUs of /proc/stat that have the numbers of usable ones; empty if they cannot be told."""
    wanted = {f"cpu{number}" for number in usable}
    if wanted <= set(listed):
        return tuple(cpu for cpu in listed if cpu in wanted)
    # A container's own CPUs may be numbered from 0 in /proc/stat, and nowhere else. With a quota they may be as many as that
    # allows, but threads may run on all of the machine's. Source: lxcfs(1), --enable-cfs.
    is_from_0 = set(listed) == {f"cpu{number}" for number in range(len(listed))}
    return tuple(listed) if is_from_0 and len(listed) <= len(usable) else ()


def list_disks(samples: OsSamples) -> tuple[str, ...]:
    """Return the kernel names of the whole block devices that did any I/O."""
    return tuple(name.removeprefix("disk.") for name in _list_sources(samples, "disk.", "reads"))


def cpu_shares(samples: OsSamples) -> tuple[Sampled, ...]:
    """Return the shares of all CPUs' time by kind in `CPU_KINDS`; their sum is 1."""
    by_kind, _ = _cpu_ticks(samples)
    total = sum(by_kind.values(), start=np.zeros(1))
    return tuple(
        _cpu_rate(samples, f"cpu_{kind}_ratio", kind, _divide(ticks, total)) for kind, ticks in by_kind.items()
    )


def cpu_busy(samples: OsSamples) -> Sampled:
    """Return the share of all CPUs' time that was neither idle, waiting for I/O nor stolen."""
    by_kind, _ = _cpu_ticks(samples)
    total = sum(by_kind.values(), start=np.zeros(1))
    idle = sum((by_kind[kind] for kind in _NOT_BUSY), start=np.zeros(1))
    return _cpu_rate(samples, "cpu_busy_ratio", "busy", 1 - _divide(idle, total))


def busiest_core(samples: OsSamples) -> Sampled:
    """Return the busy share of the busiest CPU in each interval."""
    _, busy = _cpu_ticks(samples)
    values = np.fmax.reduce(busy) if busy else np.empty(0)
    return _cpu_rate(samples, "cpu_busiest_core_ratio", "busiest core", values)


def steal(samples: OsSamples) -> Sampled:
    """Return the share of all CPUs' time that the hypervisor gave to other guests."""
    return next(series for series in cpu_shares(samples) if series.label == "steal")


def left_ratio(stolen_ratio: float) -> float:
    """Return the share of all CPUs' time that the hypervisor left them."""
    return max(0.01, 1.0 - stolen_ratio)


def share_of_left(ratio: float, stolen_ratio: float) -> float:
    """Return a share of all CPUs' time as one of the time that the hypervisor left them: stolen time is busy with nothing."""
    return min(1.0, ratio / left_ratio(stolen_ratio))


def cpu_of_others(samples: OsSamples, fields: Sequence[str] = tuple(_PROGRAMS)) -> Sampled:
    """Return the share of all CPUs' time that programs outside the process tree `study` used, with kernel threads.

    `utime` alone leaves out the kernel's threads, which have none, and `stime` has them. Interrupts belong to no program and are left out. The kernel counts total time in ticks but each program's time in
    nanoseconds, so that the share of an interval can be slightly below 0 or above 1.
    """
    columns = [f"tree.study/{field}" for field in fields]
    if columns[0] not in samples.frame.columns:
        return absent_series("cpu_others_ratio", "study", "no processes were followed as study")
    by_kind, _ = _cpu_ticks(samples)
    own = sum((difference(samples.frame, column) for column in columns), start=np.zeros(1))
    all_programs = sum((by_kind[kind] for field in fields for kind in _PROGRAMS[field]), start=np.zeros(1))
    return _cpu_rate(
        samples, "cpu_others_ratio", "others", _divide(all_programs - own, sum(by_kind.values(), start=np.zeros(1)))
    )


def busiest_thread(samples: OsSamples, label: str = "load") -> Sampled:
    """Return the CPU share of the busiest thread of the process `label` in each interval."""
    shares = [had for had, _ in busy_threads(samples, label).values()]
    if not shares:
        return absent_series("load_generator_thread_ratio", label, f"no process was followed as {label}")
    if not _are_threads_counted(samples, label):
        return absent_series("load_generator_thread_ratio", label, _UNCOUNTED)
    return _os_rate(samples, "load_generator_thread_ratio", label, np.fmax.reduce(shares))


def busy_threads(samples: OsSamples, label: str = "load") -> dict[str, tuple[Floats, Floats]]:
    """Return for each thread of the process `label` the shares of each interval in which it ran and waited for a CPU.

    The share of waiting is NaN in older records, and both where the kernel does not count them.
    """
    _, steps_s = _os_intervals(samples)
    if not _are_threads_counted(samples, label):
        steps_s = np.full_like(steps_s, np.nan)
    return {
        thread: (
            difference(samples.frame, f"{thread}/run_ns") / 1e9 / steps_s,
            difference(samples.frame, f"{thread}/wait_ns") / 1e9 / steps_s,
        )
        for thread in _list_sources(samples, f"thread.{label}.", "run_ns")
    }


def _are_threads_counted(samples: OsSamples, label: str) -> bool:
    """Return whether the kernel counts how long threads run: each has run before it was followed."""
    # Source: Linux before 5.14 without CONFIG_SCHEDSTATS, fs/proc/base.c, proc_pid_schedstat(): zeros.
    seen = (gauge(samples.frame, f"{thread}/run_ns") for thread in _list_sources(samples, f"thread.{label}.", "run_ns"))
    return any((values > 0).any() for values in seen)


def follows_backends(samples: OsSamples) -> bool:
    """Return whether the backends of the server's clients are among the processes that were followed."""
    return "backends.server/run_ns" in samples.frame.columns


def backends_on_cpu(samples: OsSamples) -> tuple[Sampled, Sampled]:
    """Return the mean numbers of client backends that ran, and that waited for a CPU, without the sampler's backend.

    Source: Linux Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat.
    """
    columns = {
        "backends_running_count": "backends.server/run_ns",
        "backends_queueing_count": "backends.server/wait_ns",
    }
    own = list(busy_threads(samples, "sampler_backend").values())
    reason = None
    if not set(columns.values()) <= set(samples.frame.columns):
        reason = "the sampler followed no backends of the server"
    elif own and not _are_threads_counted(samples, "sampler_backend"):
        reason = _UNCOUNTED
    if reason:
        running, queueing = (absent_series(metric, "server", reason) for metric in columns)
        return running, queueing
    _, steps_s = _os_intervals(samples)
    running, queueing = (
        _os_rate(
            samples,
            metric,
            "server",
            np.maximum(difference(samples.frame, column) / 1e9 / steps_s - sum(each[i] for each in own), 0.0),
            columns=(column,),
        )
        for i, (metric, column) in enumerate(columns.items())
    )
    return running, queueing


def cpus_of(samples: OsSamples, source: str) -> Sampled:
    """Return the CPUs that a followed process, or one with its descendants, used in each interval.

    Args:
        samples: The samples.
        source: Such as `tree.standby1`.
    """
    columns = (f"{source}/utime", f"{source}/stime")
    _, steps_s = _os_intervals(samples)
    ticks = sum(difference(samples.frame, column) for column in columns)
    per_s = 1 if samples.header is None else samples.header.clk_tck
    return _os_rate(samples, "process_cpus_count", source, ticks / per_s / steps_s, columns=columns)


def run_queue(samples: OsSamples) -> Sampled:
    """Return the number of tasks running or ready to run at each sample, including the sampler."""
    return _os_gauge(samples, "run_queue_count", "running or ready", "sched/procs_running")


def blocked(samples: OsSamples) -> Sampled:
    """Return the number of tasks blocked on I/O at each sample."""
    return _os_gauge(samples, "blocked_count", "waiting for a disk", "sched/procs_blocked")


def memory_used(samples: OsSamples) -> Sampled:
    """Return the share of memory that programs cannot get: all but MemAvailable."""
    available = _os_gauge(samples, "memory_used_ratio", "memory in use", "mem/MemAvailable")
    if available.absent is not None:
        return available
    return msgspec.structs.replace(
        available, values=1 - _divide(available.values, gauge(samples.frame, "mem/MemTotal"))
    )


def page_tables(samples: OsSamples) -> Sampled:
    """Return the bytes of the page tables of all processes; huge pages need nearly none."""
    return _os_gauge(samples, "page_tables_bytes", "page tables", "mem/PageTables", factor=_KB)


def huge_pages(samples: OsSamples) -> tuple[Sampled, Sampled]:
    """Return the number of huge pages in the kernel's pool, and of those that programs have or are promised."""
    pool = _os_gauge(samples, "huge_pages_count", "in the pool", "mem/HugePages_Total")
    promised = _os_gauge(samples, "huge_pages_taken_count", "taken", "mem/HugePages_Rsvd")
    if pool.absent is not None or promised.absent is not None:
        return pool, promised
    # What is promised still counts as free. Source: Linux, Documentation/admin-guide/mm/hugetlbpage.rst.
    taken = pool.values - gauge(samples.frame, "mem/HugePages_Free") + promised.values
    return pool, msgspec.structs.replace(promised, values=taken)


def dirty(samples: OsSamples) -> Sampled:
    """Return the bytes of dirty file data, not yet written to disk."""
    return _os_gauge(samples, "dirty_bytes", "dirty", "mem/Dirty", factor=_KB)


def writeback(samples: OsSamples) -> Sampled:
    """Return the bytes of file data being written back to disk."""
    return _os_gauge(samples, "writeback_bytes", "writeback", "mem/Writeback", factor=_KB)


def swapped(samples: OsSamples) -> Sampled:
    """Return the bytes of memory written to swap and read back in a second."""
    pages = difference(samples.frame, "vm/pswpin") + difference(samples.frame, "vm/pswpout")
    page_bytes = 1 if samples.header is None else samples.header.page_bytes
    _, steps_s = _os_intervals(samples)
    values = pages * page_bytes / steps_s
    return _os_rate(samples, "swapped_bytes_per_s", "swapped", values, columns=("vm/pswpin", "vm/pswpout"))


def oom_kills(samples: OsSamples) -> Sampled:
    """Return the processes that the kernel killed in each interval for want of memory, in control groups too."""
    return _os_rate(
        samples, "oom_kills_count", "killed", difference(samples.frame, "vm/oom_kill"), columns=("vm/oom_kill",)
    )


def pressure(samples: OsSamples, resource: str) -> tuple[Sampled, Sampled]:
    """Return the shares of time in which some tasks, and all tasks, waited for `cpu`, `memory` or `io`."""
    return _pressure(samples, resource, "some"), _pressure(samples, resource, "full")


def _pressure(samples: OsSamples, resource: str, kind: str) -> Sampled:
    column = f"psi.{resource}/{kind}_total_us"
    _, steps_s = _os_intervals(samples)
    values = difference(samples.frame, column) * 1e-6 / steps_s
    return _os_rate(samples, f"pressure_{kind}_ratio", f"{resource} {kind}", values, columns=(column,))


def cgroup_throttled(samples: OsSamples) -> Sampled:
    """Return the share of scheduling periods in which the CPU quota ran out; NaN while no quota is enforced."""
    throttled = difference(samples.frame, "cgroup_cpu/nr_throttled")
    periods = difference(samples.frame, "cgroup_cpu/nr_periods")
    return _os_rate(
        samples, "cgroup_throttled_ratio", "throttled", _divide(throttled, periods), columns=("cgroup_cpu/nr_periods",)
    )


def disk_series(samples: OsSamples, device: str) -> dict[str, Sampled]:
    """Return all series of a block device, by metric name.

    Await is NaN in an interval without a completed request. Source: iostat(1) for await, aqu-sz and %util.
    """
    _, steps_s = _os_intervals(samples)
    grown = {name: difference(samples.frame, f"disk.{device}/{name}") for name in _disk_fields(samples)}
    values = {
        "disk_read_iops": grown["reads"] / steps_s,
        "disk_write_iops": grown["writes"] / steps_s,
        "disk_flush_iops": grown["flushes"] / steps_s,
        "disk_read_bytes_per_s": grown["sectors_read"] * SECTOR_BYTES / steps_s,
        "disk_write_bytes_per_s": grown["sectors_written"] * SECTOR_BYTES / steps_s,
        "disk_read_await_ms": _divide(grown["read_ms"], grown["reads"]),
        "disk_write_await_ms": _divide(grown["write_ms"], grown["writes"]),
        "disk_flush_await_ms": _divide(grown["flush_ms"], grown["flushes"]),
        "disk_queue_count": grown["weighted_io_ms"] / 1000 / steps_s,
        # The kernel's clock ticks between the samples, so that a fully busy interval can be slightly above 1.
        "disk_util_ratio": np.minimum(grown["io_ms"] / 1000 / steps_s, 1.0),
    }
    requests = {
        "disk_read_await_ms": grown["reads"],
        "disk_write_await_ms": grown["writes"],
        "disk_flush_await_ms": grown["flushes"],
    }
    found = {
        metric: _os_rate(
            samples,
            metric,
            device,
            series,
            columns=(f"disk.{device}/reads",),
            weights=requests.get(metric),
        )
        for metric, series in values.items()
    }
    if counts_no_flushes(device) and not (gauge(samples.frame, f"disk.{device}/flushes") > 0).any():
        reason = f"the kernel counts no flushes of {device}, only those of the disks below it"
        found |= {name: absent_series(name, device, reason) for name in ("disk_flush_iops", "disk_flush_await_ms")}
    return found


def counts_no_flushes(device: str) -> bool:
    """Return whether a block device may be one of those whose flushes the kernel does not count, such as RAIDs."""
    # Source: Linux, block/blk-flush.c, blk_account_io_flush(), which counts requests; these devices pass bios on.
    return device.startswith(("dm-", "md", "bcache", "drbd"))


def _disk_fields(samples: OsSamples) -> tuple[str, ...]:
    return samples.header.fields["disk"] if samples.header else ()


def _list_sources(samples: OsSamples, prefix: str, field: str) -> tuple[str, ...]:
    columns = (name.rpartition("/") for name in samples.frame.columns if name.startswith(prefix))
    return tuple(source for source, _, name in columns if name == field)


# A report needs the ticks of each trial seven times in a row.
@functools.lru_cache(maxsize=1)
def _cpu_ticks(samples: OsSamples) -> tuple[dict[str, Floats], list[Floats]]:
    """Return the ticks of all CPUs by kind, and the busy share of each CPU. Offline CPUs are left out."""
    by_kind = {kind: np.zeros(max(0, samples.frame.height - 1)) for kind in CPU_KINDS}
    busy = []
    for cpu in list_cpus(samples):
        ticks = {kind: _cpu_difference(samples.frame, f"{cpu}/{kind}") for kind in CPU_KINDS}
        for kind, values in ticks.items():
            by_kind[kind] += np.nan_to_num(values)
        total = sum(ticks.values(), start=np.zeros(1))
        busy.append(1 - _divide(sum((ticks[kind] for kind in _NOT_BUSY), start=np.zeros(1)), total))
    return by_kind, busy


def _cpu_difference(frame: pl.DataFrame, column: str) -> Floats:
    # Idle and iowait may go back by a tick, which is not a reset. Source: proc_stat(5), iowait.
    # Ticks are far below 2**53, and differences of floats take a tenth of the time.
    return np.maximum(np.diff(gauge(frame, column)), 0.0)


def _divide(part: Floats, whole: Floats) -> Floats:
    quotient = np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan)
    np.divide(part, whole, out=quotient, where=whole > 0)
    return quotient


@functools.lru_cache(maxsize=1)
def _os_intervals(samples: OsSamples) -> tuple[Floats, Floats]:
    return intervals(gauge(samples.frame, "t_s"))


def _why_absent(samples: OsSamples, columns: Iterable[str]) -> str | None:
    if samples.header is None or samples.frame.height < 2:
        return samples.end or "the OS sampler saw too little"
    for column in columns:
        if column not in samples.frame.columns or samples.frame[column].null_count() == samples.frame.height:
            source = column.rpartition("/")[0]
            reasons = samples.header.absent
            return reasons.get(source, reasons.get(source.partition(".")[0], f"this kernel does not report {column}"))
    return None


def _os_gauge(samples: OsSamples, metric: str, label: str, column: str, *, factor: float = 1) -> Sampled:
    reason = _why_absent(samples, (column,))
    if reason:
        return absent_series(metric, label, reason)
    times_s, values = gauge(samples.frame, "t_s"), gauge(samples.frame, column) * factor
    return Sampled(metric=metric, label=label, monotonic_s=times_s, values=values)


def _cpu_rate(samples: OsSamples, metric: str, label: str, values: Floats) -> Sampled:
    if samples.header is not None and not list_cpus(samples):
        reason = samples.header.absent.get("cpu", "/proc/stat does not tell which CPUs the study may use")
        return absent_series(metric, label, reason)
    return _os_rate(samples, metric, label, values)


def _os_rate(
    samples: OsSamples,
    metric: str,
    label: str,
    values: Floats,
    *,
    columns: Iterable[str] = (),
    weights: Floats | None = None,
) -> Sampled:
    reason = _why_absent(samples, columns)
    if reason:
        return absent_series(metric, label, reason)
    middles_s, steps_s = _os_intervals(samples)
    return Sampled(
        metric=metric,
        label=label,
        monotonic_s=middles_s,
        values=values,
        steps_s=steps_s,
        weights=weights,
    )
