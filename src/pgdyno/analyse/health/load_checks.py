"""Read how even a trial's load ran, what its sessions waited for, and how close the kernel came to throttling writers.

Waits are shares of the sessions' time inside transactions, from samples ten times a second; a session that waits for a
CPU shows as running. If the CPUs are full, waits for the server's own locks and for flushes may be queues for a CPU:
they are then shown but not judged.
"""

from __future__ import annotations

import math

import numpy as np

from pgdyno.analyse.disk.demand import UseKind
from pgdyno.analyse.health.reading import ObservedTrial, Reading, absent_reading
from pgdyno.record.samples import os_series as series
from pgdyno.record.samples.series import gauge
from pgdyno.record.types import UNSEEN_MACHINE

_NO_LOG = "the trial has no transaction log"
_MIN_SECONDS = 10
# With fewer transactions per second than this allows, TPS varies by counting noise alone.
_COUNTING_NOISE_RATIO = 0.05
# Sessions sampled inside a transaction: with fewer, a share is wrong by more than a tenth either way.
_MIN_SAMPLES = 100
_FULL_CPU_RATIO = 0.9
_LEAST_STOLEN_RATIO = 0.005
_MEDIAN, _TAIL = 0.5, 0.99


def tps_variation(seen: ObservedTrial) -> Reading:
    """Read the standard deviation of the steady part's TPS over its mean."""
    throughput, transactions = seen.throughput, seen.data.transactions
    if throughput is None or transactions is None:
        return absent_reading(_NO_LOG)
    if throughput.from_epoch_s is None or throughput.until_epoch_s is None:
        return absent_reading(throughput.reason or "no steady part was found")
    seconds = transactions.series
    is_steady = (seconds.epoch_s >= throughput.from_epoch_s) & (seconds.epoch_s < throughput.until_epoch_s)
    tps = seconds.tps[is_steady]
    if len(tps) < 2 or not tps.any():
        return absent_reading("the steady part is too short, or nothing ended in it")
    evidence = f"{len(tps)} seconds, {tps.min():,.0f} to {tps.max():,.0f} TPS"
    reason = _why_no_variation(seen, seconds=len(tps), mean_tps=float(tps.mean()))
    return Reading(variation_of(tps), evidence, reason)


def variation_of(tps: np.ndarray) -> float:
    """Compute the coefficient of variation of TPS over two or more seconds with transactions."""
    return float(tps.std(ddof=1) / tps.mean())


def _why_no_variation(seen: ObservedTrial, *, seconds: int, mean_tps: float) -> str | None:
    if seen.record.plan.find_load(seen.data.record.planned).is_scheduled:
        return "the rate was scheduled"
    if seconds < _MIN_SECONDS:
        return f"fewer than {_MIN_SECONDS} steady seconds"
    if 1.0 / math.sqrt(mean_tps) > _COUNTING_NOISE_RATIO:
        return "so few transactions in a second differ by chance"
    return None


def latency_tail(seen: ObservedTrial) -> Reading:
    """Read p99 over p50 of the steady part."""
    latency = None if seen.throughput is None else seen.throughput.latency
    if latency is None:
        return absent_reading(_NO_LOG)
    median, tail = latency.quantile(_MEDIAN).value_us, latency.quantile(_TAIL).value_us
    if not median or tail is None:
        return absent_reading("too few transactions lie beyond p99")
    return Reading(tail / median, f"{tail / 1000:,.3g} ms by {median / 1000:,.3g} ms")


def wal_of_disk(seen: ObservedTrial) -> Reading:
    """Read the WAL rate over the disk's sequential write rate."""
    use = None if seen.disk is None else seen.disk.find(UseKind.WAL)
    if use is None:
        return absent_reading("the disk has no card")
    # If a burst was measured, the sustained rate is the one that matters.
    return Reading(use.ratio if use.lasting_ratio is None else use.lasting_ratio, use.how)


def dirty_memory(seen: ObservedTrial) -> Reading:
    """Read the peak of dirty memory over the point from which on the kernel throttles writers.

    Source: Linux mm/page-writeback.c, balance_dirty_pages() and dirty_freerun_ceiling(): dirty memory and write-back,
    halfway between the two thresholds.
    """
    samples = seen.data.os
    if samples is None or samples.header is None:
        return absent_reading(seen.why_unsampled("os sampler"))
    # Only thresholds that the kernel computed itself are right: ratios refer to memory that changes all the time.
    thresholds = [f"vm/nr_dirty_{name}" for name in ("background_threshold", "threshold")]
    columns = [gauge(samples.frame, name) for name in thresholds]
    ceiling = (columns[0] + columns[1]) / 2.0 * samples.header.page_bytes
    dirty, writeback = series.dirty(samples), series.writeback(samples)
    if dirty.absent is not None or writeback.absent is not None:
        return absent_reading(dirty.absent or writeback.absent or "")
    if not np.isfinite(ceiling).any():
        return absent_reading("the kernel's thresholds are not recorded")
    start_s, end_s = seen.data.record.load_start_monotonic_s, seen.data.record.load_end_monotonic_s
    with_load = (dirty.monotonic_s >= (start_s or 0.0)) & (dirty.monotonic_s <= (end_s or 0.0))
    held = dirty.values + writeback.values
    usable = with_load & np.isfinite(held) & (ceiling > 0)
    if not usable.any():
        return absent_reading("nothing was sampled under the load")
    ratios = held[usable] / ceiling[usable]
    worst = int(ratios.argmax())
    at, limit = held[usable][worst], ceiling[usable][worst]
    return Reading(float(ratios[worst]), f"{at / 2**20:,.0f} of {limit / 2**20:,.0f} MB")


def lock_waits(seen: ObservedTrial) -> Reading:
    """Read the share of the sessions' time spent waiting for rows and tables."""
    return _wait_share(seen, "Lock", is_queueing=False)


def lwlock_waits(seen: ObservedTrial) -> Reading:
    """Read the share of the sessions' time spent waiting for lightweight locks on the server's own structures."""
    return _wait_share(seen, "LWLock", is_queueing=True)


def io_waits(seen: ObservedTrial) -> Reading:
    """Read the share of the sessions' time spent waiting for reads, writes and flushes."""
    return _wait_share(seen, "IO", is_queueing=True)


def _wait_share(seen: ObservedTrial, kind: str, *, is_queueing: bool) -> Reading:
    """Read the share of a class of waits.

    Args:
        seen: The observed trial.
        kind: The class, PostgreSQL's wait_event_type.
        is_queueing: Whether a shortage of CPUs causes such waits, too.
    """
    samples = seen.data.server
    if samples is None or samples.header is None:
        return absent_reading(seen.why_unsampled("server sampler"))
    waiting, total = seen.waits.get(kind, 0.0), sum(seen.waits.values())
    looks = total * (seen.data.record.load_s or 0.0) / samples.header.interval_s * samples.header.looks
    if not looks:
        return absent_reading("no session was seen in a transaction")
    reading = Reading(waiting / total, f"{waiting:.2g} of {total:.2g} sessions, {looks:,.0f} looks")
    if looks < _MIN_SAMPLES:
        return reading._replace(reason=f"fewer than {_MIN_SAMPLES} looks found a session in a transaction")
    return reading._replace(reason=_why_queueing(seen)) if is_queueing else reading


def _why_queueing(seen: ObservedTrial) -> str | None:
    """Return why waits may be queues for a CPU; None if CPUs were left."""
    busy, of_quota = seen.cpu_busy_ratio, seen.quota_use_ratio
    if of_quota is not None and of_quota > _FULL_CPU_RATIO:
        return f"{of_quota * 100:.0f} % of the CPU quota was used: such waits may be queues for a CPU"
    if busy is not None and busy > _FULL_CPU_RATIO:
        left = " with what the hypervisor left of them" if seen.stolen_ratio > _LEAST_STOLEN_RATIO else ""
        return f"the CPUs were {busy * 100:.0f} % busy{left}: such waits may be queues for one"
    if seen.record.host is None:
        return f"{UNSEEN_MACHINE}: such waits may be queues for a CPU"
    return None
