"""The sum of memory in the worst case, for any set of settings: what decides whether a set can be proposed at all.

The worst case is one that happens: a quarter of all connections at work at once, or as many as are declared, each with as
many work areas as a query of the workload's class has, while every vacuum runs. All connections at once, each in its
hungriest query, is a thousand times what any machine has; nobody would have more than a few kB of work_mem.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pgdyno.errors import SpecError
from pgdyno.facts.gucs import find_guc
from pgdyno.tune.draft import MB, Draft
from pgdyno.tune.types import MemoryShare, Subject, WorkloadClass
from pgdyno.units import format_bytes, unit_size

# Source: A. Freund, "Measuring the Memory Overhead of a Postgres Connection" (2020): below 2 MB of its own for a
# connection, page tables aside.
SESSION_BYTES = 2 * MB
# Catalogue caches and plans of a session that works with some hundred relations, on top of that.
CACHES_BYTES = 4 * MB
# Checkpointer, background writer, WAL writer, launcher, archiver, logger and the I/O workers.
BACKGROUND_BYTES = 24 * MB
# Descriptors, hash table and checkpointer's list for 8 kB, and what else grows with it.
# Source: `postgres -C shared_memory_size` of 15, 16 and 18 at 128 MB to 384 GB of shared_buffers: 1.9 to 2.3 %.
_PER_BUFFER_RATIO = 0.023
# Source: the same, at 10 to 1000 connections.
_SHARED_BASE_BYTES = 16 * MB
_SHARED_PER_SESSION_BYTES = 100_000
# A page of 4 kB takes 8 bytes of a process's page tables; a huge page takes none to speak of.
_PAGE_TABLE_ENTRY_BYTES = 8
# Sorts and hashes that a query of the class has at once. Source: the plans of TPC-B, TPC-C and TPC-H.
_AREAS = {
    WorkloadClass.OLTP_WRITE: 1.0,
    WorkloadClass.OLTP_READ: 1.0,
    WorkloadClass.MIXED: 2.0,
    WorkloadClass.ANALYTIC: 4.0,
}
HUGE_PAGES_FROM_BYTES = 256 * MB
"""Of shared_buffers: below, what huge pages save is not worth reserving them."""


def reserve_bytes(subject: Subject) -> float:
    """What is left to the kernel and to everything that is not PostgreSQL."""
    return min(64 * MB + 0.06 * subject.memory.value, 8192 * MB)


def cacheable_bytes(subject: Subject) -> float:
    """What both caches of data can hold together."""
    sessions = subject.connections.value * SESSION_BYTES + subject.active.value * CACHES_BYTES
    return max(0.0, subject.memory.value - reserve_bytes(subject) - sessions)


def count_at_work(subject: Subject, max_connections: float) -> int:
    """Sessions that may be at work at once in the worst case."""
    return min(int(max_connections), math.ceil(max(subject.active.value, max_connections / 4)))


def shared_bytes(draft: Draft) -> float:
    """All shared memory, as PostgreSQL's shared_memory_size would be; an estimate."""
    return draft.number("shared_buffers") + _other_shared_bytes(draft)


def uses_huge_pages(draft: Draft) -> bool:
    """Whether huge pages are reserved for the shared memory."""
    is_enough = draft.number("shared_buffers") >= HUGE_PAGES_FROM_BYTES
    return is_enough and not draft.subject.kernel.is_container and draft.text("huge_pages") != "off"


def sum_memory(subject: Subject, settings: Mapping[str, str]) -> tuple[MemoryShare, ...]:
    """What each part takes in the worst case; settings that are absent are as built in."""
    draft = Draft(subject, settings)
    number = draft.number
    connections, buffers = number("max_connections"), number("shared_buffers")
    at_work = count_at_work(subject, connections)
    area = _AREAS[subject.workload] * number("work_mem") * number("hash_mem_multiplier")
    gathered = at_work * number("max_parallel_workers_per_gather")
    workers = min(number("max_parallel_workers"), number("max_worker_processes"), gathered)
    maintenance = number("maintenance_work_mem")
    vacuum = maintenance if draft.text("autovacuum_work_mem") == "-1" else number("autovacuum_work_mem")
    vacuums = number("autovacuum_max_workers")
    page_tables = 0.0 if uses_huge_pages(draft) else connections * _page_table_bytes(subject, buffers)
    areas = f"{_AREAS[subject.workload]:g} work areas of {format_bytes(number('work_mem'))} × {number('hash_mem_multiplier'):g}"
    own = SESSION_BYTES + CACHES_BYTES
    lines = [
        ("shared_buffers", buffers, "as set"),
        ("other shared memory", _other_shared_bytes(draft), "wal_buffers, descriptors, locks; estimated"),
        ("connections", connections * SESSION_BYTES, f"{connections:.0f} × {format_bytes(SESSION_BYTES)}"),
        ("page tables", page_tables, "8 bytes for each page of shared_buffers, in each connection"),
        ("caches of sessions at work", at_work * CACHES_BYTES, f"{at_work} × {format_bytes(CACHES_BYTES)}"),
        ("sorts and hashes", at_work * area, f"{at_work} at work × {areas}"),
        ("parallel workers", workers * (own + area), f"{workers:.0f} × ({format_bytes(own)} and {areas})"),
        ("temporary tables", at_work * _temp_bytes(draft), f"{at_work} × {format_bytes(_temp_bytes(draft))}"),
        ("autovacuum", vacuums * vacuum, f"{vacuums:.0f} workers × {format_bytes(vacuum)}"),
        ("maintenance", maintenance, "one command at a time"),
        ("logical decoding", _decoding_bytes(draft), "max_wal_senders × logical_decoding_work_mem"),
        ("background processes", BACKGROUND_BYTES, "checkpointer, writers, launchers"),
        ("operating system", reserve_bytes(subject), "64 MB and 6 % of the memory, 8 GB at most"),
    ]
    return tuple(MemoryShare(what=what, bytes=share, how=how) for what, share, how in lines if share > 0)


def total_bytes(shares: Sequence[MemoryShare]) -> float:
    """Of all lines."""
    return math.fsum(share.bytes for share in shares)


def check_memory(subject: Subject, settings: Mapping[str, str]) -> tuple[MemoryShare, ...]:
    """The sum, if it fits.

    Raises:
        SpecError: It does not.
    """
    shares = sum_memory(subject, settings)
    if total_bytes(shares) > subject.memory.value:
        raise too_much(subject, shares)
    return shares


def describe_share(share: MemoryShare) -> str:
    """A line of the sum."""
    return f"{format_bytes(share.bytes):>10}  {share.what}: {share.how}"


def too_much(subject: Subject, shares: Sequence[MemoryShare]) -> SpecError:
    """What to say of a sum that does not fit."""
    total, memory = total_bytes(shares), subject.memory.value
    lines = [describe_share(share) for share in shares]
    largest = max(shares, key=lambda share: share.bytes).what
    return SpecError(
        f"the settings need {format_bytes(total)} in the worst case, and there are {format_bytes(memory)}",
        detail="\n".join([*lines, f"{format_bytes(total):>10}  in all"]),
        hint=f"the largest part is {largest}: ask for less of it, for fewer connections behind a pooler, or take more memory",
    )


def _page_table_bytes(subject: Subject, buffers: float) -> float:
    return buffers / subject.kernel.page_bytes * _PAGE_TABLE_ENTRY_BYTES


def _other_shared_bytes(draft: Draft) -> float:
    buffers = draft.number("shared_buffers")
    sessions = draft.number("max_connections") + draft.number("max_worker_processes")
    fixed = _SHARED_BASE_BYTES + sessions * _SHARED_PER_SESSION_BYTES + buffers * _PER_BUFFER_RATIO
    # Source: PostgreSQL 17 manual, section 19.4.1: transaction_buffers and two others are shared_buffers/512, 8 MB at most.
    caches = 3 * min(buffers / 512, 8 * MB) if draft.subject.major >= 17 else 0
    return fixed + caches + wal_buffers_bytes(draft)


def wal_buffers_bytes(draft: Draft) -> float:
    """What wal_buffers comes to; Source: PostgreSQL 18 manual, section 19.5.1: 1/32 of shared_buffers, 64 kB to a segment."""
    if draft.text("wal_buffers") == "-1":
        return min(max(draft.number("shared_buffers") / 32, 64 * 1024), 16 * MB)
    return draft.number("wal_buffers")


def _temp_bytes(draft: Draft) -> float:
    """OLTP makes no temporary tables to speak of; who raises temp_buffers has them."""
    guc = find_guc("temp_buffers", draft.subject.major)
    is_raised = guc is not None and draft.number("temp_buffers") > float(guc.boot or 0) * unit_size(guc.unit)
    is_used = is_raised or draft.subject.workload in {WorkloadClass.MIXED, WorkloadClass.ANALYTIC}
    return draft.number("temp_buffers") if is_used else 0.0


def _decoding_bytes(draft: Draft) -> float:
    is_logical = draft.text("wal_level") == "logical"
    return draft.number("max_wal_senders") * draft.number("logical_decoding_work_mem") if is_logical else 0.0
