"""Predict how long a trial waits for its data: restoring them, stopping and starting the server, and warming the caches.

A first order model of what is read from the disk and written to it. Data whose loaded cluster and working copy memory holds
cost little beside the copy itself; larger data are read from the disk, but for what memory has kept of them. Rates are those of a
machine that does nothing else: on a busy one, comparing pages waits for CPUs and takes several times as long.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.plan.experiment import Variant
from pgdyno.plan.room import predict_loaded_bytes
from pgdyno.plan.types import Between, Machine, PlannedWorkload, apply_variant
from pgdyno.spec.study import RestorePolicy, Study
from pgdyno.spec.table import CacheState
from pgdyno.units import PAGE_BYTES

COPY_BYTES_PER_S = 800_000_000
"""Rate of copying data that memory holds, on a disk that is faster. Source: 1.5 GB, of which 0.67 GB are WAL, in 2.1 s (n = 12, quiet,
docs/how-we-know.md); with other programs on all CPUs it took 5.2 s [3.8, 7.3] (n = 5)."""
# Rate at which one CPU reads and compares two copies, of both together. Source: 1.5 to 2.3 CPU seconds for 3.2 GB (median 1.65,
# n = 24, Python 3.11, 2 CPUs that were shared with other programs), run/cluster/mirror.py with its read-ahead.
_COMPARED_BYTES_PER_CPU_S = 1.9e9
_READERS = 2
# Rates at which one CPU reads tables and indexes into a server's buffers, from memory and from a disk. Source: 0.90 to 1.10
# and 1.76 to 4.13 CPU seconds of all processes of PostgreSQL 18 for 2.35 GB (medians 1.05 and 2.72, n = 5 each, 2 CPUs that
# were shared with other programs), pg_prewarm as a trial calls it.
_WARMED_HELD_BYTES_PER_CPU_S, _WARMED_READ_BYTES_PER_CPU_S = 2.2e9, 0.9e9
# From this version on, processes of the server's own read for a session: three, unless io_workers says otherwise.
_SHARED_READING_MAJOR, _IO_WORKERS = 18, 3
MEMORY_SHARE = 0.7
"""The share of memory that may hold data; the rest is the programs' and the kernel's."""
# What memory has kept of data that it cannot hold, as a part of what it may hold: files are read from beginning to end, and each drops
# what the next one asks for. Source: 0.60 and 0.76 for comparing, 0.42 to 1.19 for warming, 31.4 GB of data, 23.5 GB of memory,
# PostgreSQL 18, counted by the disk (n = 2 and 3).
_KEPT_RATIO = 0.7
# A copy of more data than the kernel leaves dirty, a fifth of memory, goes at the disk's speed: EBS gp3 as it comes.
_DIRTY_RATIO = 0.2
_USUAL_DISK_BYTES_PER_S = 125 * 2**20
# Time between two trials without their data: stop one server, start the next, and read the trial's files.
START_STOP_S = 2.0
# The start and the stop of a standby, and the wait until it streams.
_STANDBY_S = 1.0
# Pages that a load changes in a second, where it writes: what a cloud volume of usual size takes.
_CHANGED_PAGES_PER_S = 3_000.0


class _Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What the disk does, in bytes a second."""

    read: float
    write: float
    write_pages_per_s: float
    """Pages here and there."""


def predict_between(
    study: Study,
    variants: Sequence[Variant],
    workloads: Sequence[PlannedWorkload],
    machine: Machine,
    *,
    size_bytes: float,
) -> Between:
    """Predict the seconds between the loads of two trials, by the study's restoring policy.

    Args:
        study: The study as requested.
        variants: Its variants, which may have scripts and caches of their own; empty without a comparison.
        workloads: Its loads.
        machine: What its disk does, if that is known.
        size_bytes: Size of the largest cluster.
    """
    policy, servers = study.data.restore, 1 + study.server.standbys
    rates = _find_rates(machine, servers * size_bytes)
    # The loaded cluster, its copies, and what the server and others keep of them.
    is_held = (2 + servers) * size_bytes <= MEMORY_SHARE * machine.memory_bytes
    # A folder that is empty gets the WAL that loading left, too; later ones have its files already.
    whole_bytes = predict_loaded_bytes(round(size_bytes))
    copy_s = whole_bytes / rates.write + (0.0 if is_held else whole_bytes / rates.read)
    kept_bytes = size_bytes if is_held else _KEPT_RATIO * MEMORY_SHARE * machine.memory_bytes / servers
    # What the load asks for is read within the load, unless the caches are warm.
    is_warmed = CacheState.WARM in (
        {variant.cache or study.trials.cache for variant in variants} or {study.trials.cache}
    )
    warm_s = _predict_warm_s(machine, rates, size_bytes, kept_bytes) if is_warmed else 0.0
    loads = [apply_variant(workload, variant) for workload in workloads for variant in variants] or workloads
    changed_s = _predict_changed_s(study, rates, size_bytes) if any(load.writing_clients for load in loads) else 0.0
    match policy:
        case RestorePolicy.COPY if is_held:
            restore_s = size_bytes / rates.write
            first_s = copy_s - restore_s
        case RestorePolicy.COPY:
            # Files that a trial has written to are compared with the loaded ones, page by page.
            compared_s = _predict_compare_s(machine, rates, size_bytes, kept_bytes)
            restore_s = changed_s + compared_s if changed_s else 0.0
            first_s = max(0.0, copy_s - restore_s)
        case RestorePolicy.NONE:
            restore_s, first_s = changed_s, copy_s
        case RestorePolicy.COMMAND:
            restore_s, first_s = 0.0, 0.0
    return Between(
        policy=policy,
        restore_s=servers * restore_s,
        warm_s=servers * warm_s,
        server_s=START_STOP_S + study.server.standbys * _STANDBY_S,
        first_s=servers * first_s,
    )


def _find_rates(machine: Machine, size_bytes: float) -> _Rates:
    written = machine.write_bytes_per_s
    if written is None and size_bytes > _DIRTY_RATIO * machine.memory_bytes:
        written = _USUAL_DISK_BYTES_PER_S
    write = min(COPY_BYTES_PER_S, written or COPY_BYTES_PER_S)
    return _Rates(
        read=machine.read_bytes_per_s or write,
        write=write,
        write_pages_per_s=min(machine.random_write_iops or write / PAGE_BYTES, write / PAGE_BYTES),
    )


def _predict_compare_s(machine: Machine, rates: _Rates, size_bytes: float, kept_bytes: float) -> float:
    """Predict the seconds for reading both copies and comparing them: the disk's or the CPUs', whichever takes longer."""
    cpus = min(_READERS, machine.cpu_count)
    return max((2 * size_bytes - kept_bytes) / rates.read, 2 * size_bytes / (cpus * _COMPARED_BYTES_PER_CPU_S))


def _predict_warm_s(machine: Machine, rates: _Rates, size_bytes: float, kept_bytes: float) -> float:
    """Predict the seconds for reading all data into the server: the disk's or the CPUs', whichever takes longer."""
    cpus = min(_IO_WORKERS, machine.cpu_count) if machine.version_major >= _SHARED_READING_MAJOR else 1
    held_bytes = min(size_bytes, kept_bytes)
    missing_bytes = size_bytes - held_bytes
    by_cpus_s = (held_bytes / _WARMED_HELD_BYTES_PER_CPU_S + missing_bytes / _WARMED_READ_BYTES_PER_CPU_S) / cpus
    return max(missing_bytes / rates.read, by_cpus_s)


def _predict_changed_s(study: Study, rates: _Rates, size_bytes: float) -> float:
    """Predict the seconds for writing the pages that a trial changes, which lie here and there."""
    changed_pages = _CHANGED_PAGES_PER_S * (study.trials.duration_s + study.trials.warm_up_s)
    # So many that hardly a piece is left out are written from beginning to end.
    return min(changed_pages / rates.write_pages_per_s, size_bytes / rates.write)
