"""Compute the worst-case memory of a set of settings; a set that exceeds the memory is never proposed.

The worst case is realistic: a quarter of all connections active at once, or the declared number, each with as many work
areas as a typical query of the workload class, while every vacuum worker runs. If all connections ran their largest
query at once, they would need a thousand times the memory of any machine, and work_mem could only be a few kB.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pgdyno.errors import SpecError
from pgdyno.facts.gucs import find_guc
from pgdyno.facts.shared_memory import choose_wal_buffers_bytes, estimate_other_shared_bytes
from pgdyno.tune.draft import MB, Draft, size
from pgdyno.tune.types import MemoryShare, TuningSubject, WorkloadClass
from pgdyno.units import count_things, format_bytes, unit_size

# Source: A. Freund, "Measuring the Memory Overhead of a Postgres Connection" (2020): below 2 MB for a connection,
# without page tables.
SESSION_BYTES = 2 * MB
# In addition, catalogue caches and plans of a session that uses a few hundred relations.
CACHES_BYTES = 4 * MB
# Checkpointer, background writer, WAL writer, launcher, archiver, logger and the I/O workers.
BACKGROUND_BYTES = 24 * MB
# A page of 4 kB takes 8 bytes of a process's page tables; a huge page takes a negligible amount.
_PAGE_TABLE_ENTRY_BYTES = 8
# Concurrent sorts and hashes of a query of the class. Source: the plans of TPC-B, TPC-C and TPC-H.
_AREAS = {
    WorkloadClass.OLTP_WRITE: 1.0,
    WorkloadClass.OLTP_READ: 1.0,
    WorkloadClass.MIXED: 2.0,
    WorkloadClass.ANALYTIC: 4.0,
}
# Settings that count in the sum and that no rule derives.
_KEPT_IN_SUM = ("temp_buffers", "hash_mem_multiplier", "logical_decoding_work_mem", "max_wal_senders")
# Of the memory: more than this is not left unused for the sake of smaller page tables.
_MOST_UNUSED_SHARE = 0.1
HUGE_PAGES_FROM_BYTES = 256 * MB
"""Least shared_buffers for which huge pages are worth reserving."""
MOST_WAL_BUFFERS_BYTES = 256 * MB
"""Greatest derived value of wal_buffers."""


def reserve_bytes(subject: TuningSubject) -> float:
    """Return the memory reserved for the kernel and for programs other than PostgreSQL."""
    return min(64 * MB + 0.06 * subject.memory.value, 8192 * MB)


def shareable_bytes(subject: TuningSubject) -> float:
    """Return the memory without the huge pages of other programs, which nothing else can use."""
    return max(0.0, subject.memory.value - subject.kernel.others_huge_bytes)


def cacheable_bytes(subject: TuningSubject) -> float:
    """Return the memory that shared_buffers and the kernel's page cache can hold together."""
    sessions = subject.connections.value * SESSION_BYTES + subject.active.value * CACHES_BYTES
    return max(0.0, shareable_bytes(subject) - reserve_bytes(subject) - sessions)


def count_at_work(subject: TuningSubject, max_connections: float) -> int:
    """Return the number of sessions that are active at once in the worst case."""
    return min(int(max_connections), math.ceil(max(subject.active.value, max_connections / 4)))


def shared_bytes(draft: Draft) -> float:
    """Estimate all shared memory, as in PostgreSQL's shared_memory_size."""
    return draft.number("shared_buffers") + _other_shared_bytes(draft)


def huge_page_bytes(draft: Draft) -> int:
    """Return the size of the huge pages that the server asks for: huge_page_size, or else the kernel's default."""
    return int(draft.number("huge_page_size")) or draft.subject.kernel.huge_page_bytes


def wants_huge_pages(draft: Draft) -> bool:
    """Return whether vm.nr_hugepages, which has pages of the kernel's default size only, could be for the shared memory.

    A few shared_buffers gain too little, unless huge_pages is `on`: then the server does not start without the pages. Of a machine
    that is not here, the default size may be the one that the server asks for.
    """
    is_enough = not has_page_tables(draft) or draft.number("shared_buffers") >= HUGE_PAGES_FROM_BYTES
    kernel = draft.subject.kernel
    is_of_pool = huge_page_bytes(draft) == kernel.huge_page_bytes or not draft.subject.is_here
    return is_enough and is_of_pool and not kernel.is_unchangeable and draft.fixed.get("huge_pages") != "off"


def uses_huge_pages(draft: Draft) -> bool:
    """Return whether huge pages are reserved for the shared memory.

    They are not where whole pages would leave more than a tenth of the memory unused, unless huge_pages is `on`: then the
    server does not start without them.
    """
    if not wants_huge_pages(draft):
        return False
    return not has_page_tables(draft) or unused_huge_bytes(draft) <= _MOST_UNUSED_SHARE * draft.subject.memory.value


def count_huge_pages(draft: Draft) -> int:
    """Return the number of huge pages that hold the shared memory."""
    return math.ceil(shared_bytes(draft) / huge_page_bytes(draft))


def unused_huge_bytes(draft: Draft) -> float:
    """Return what the shared memory leaves of the last of its huge pages, which nothing else can use."""
    return -shared_bytes(draft) % huge_page_bytes(draft)


def has_page_tables(draft: Draft) -> bool:
    """Return whether the worst case includes page tables: with `try` the server may silently get no huge pages."""
    return draft.text("huge_pages") != "on"


def sum_memory(subject: TuningSubject, settings: Mapping[str, str]) -> tuple[MemoryShare, ...]:
    """Compute each part of the worst case; absent settings have the server's value or the built-in default."""
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
    page_tables = connections * _page_table_bytes(subject, buffers) if has_page_tables(draft) else 0.0
    areas = f"{count_things(round(_AREAS[subject.workload]), 'work area')} of {format_bytes(number('work_mem'))} × {number('hash_mem_multiplier'):g}"
    own = SESSION_BYTES + CACHES_BYTES
    unused = unused_huge_bytes(draft) if uses_huge_pages(draft) else 0.0
    lines = [
        ("shared_buffers", buffers, "as set"),
        ("other shared memory", _other_shared_bytes(draft), "wal_buffers, descriptors, locks; estimated"),
        ("rest of the last huge page", unused, "the shared memory takes whole ones"),
        ("connections", connections * SESSION_BYTES, f"{connections:.0f} × {format_bytes(SESSION_BYTES)}"),
        ("page tables", page_tables, "8 bytes for each page of shared_buffers, in each connection, without huge pages"),
        ("caches of sessions at work", at_work * CACHES_BYTES, f"{at_work} × {format_bytes(CACHES_BYTES)}"),
        ("sorts and hashes", at_work * area, f"{at_work} at work × {areas}"),
        ("parallel workers", workers * (own + area), f"{workers:.0f} × ({format_bytes(own)} and {areas})"),
        ("temporary tables", at_work * _temp_bytes(draft), f"{at_work} × {format_bytes(_temp_bytes(draft))}"),
        ("autovacuum", vacuums * vacuum, f"{vacuums:.0f} workers × {format_bytes(vacuum)}"),
        ("maintenance", maintenance, "one command at a time"),
        ("logical decoding", _decoding_bytes(draft), "max_wal_senders × logical_decoding_work_mem"),
        ("background processes", BACKGROUND_BYTES, "checkpointer, writers, launchers"),
        ("huge pages of other programs", subject.kernel.others_huge_bytes, "used or reserved, less the server's"),
        ("operating system", reserve_bytes(subject), "64 MB and 6 % of the memory, 8 GB at most"),
    ]
    return tuple(MemoryShare(what=what, bytes=share, how=how) for what, share, how in lines if share > 0)


def total_bytes(shares: Sequence[MemoryShare]) -> float:
    """Return the sum of all parts."""
    return math.fsum(share.bytes for share in shares)


def server_bytes(subject: TuningSubject, shares: Sequence[MemoryShare]) -> float:
    """Return the server's own part of the sum."""
    return total_bytes(shares) - reserve_bytes(subject) - subject.kernel.others_huge_bytes


def check_memory(subject: TuningSubject, settings: Mapping[str, str]) -> tuple[MemoryShare, ...]:
    """Return the parts of the worst case if their sum fits.

    Raises:
        SpecError: The sum exceeds the memory.
    """
    shares = sum_memory(subject, settings)
    if total_bytes(shares) > subject.memory.value:
        raise make_memory_error(subject, settings)
    return shares


def list_server_settings(draft: Draft) -> str:
    """List settings of the server that enlarge the sum and that no rule decides: `temp_buffers = 1GB`."""
    values = draft.values()

    def total(**others: str) -> float:
        return total_bytes(sum_memory(draft.subject, {**values, **others}))

    gucs = [guc for name in _KEPT_IN_SUM if name not in values and (guc := draft.guc(name))]
    return ", ".join(
        f"{guc.name} = {size(draft.number(guc.name)) if guc.unit else draft.text(guc.name)}"
        for guc in gucs
        if guc.boot is not None and total(**{guc.name: guc.boot}) < total()
    )


def describe_share(share: MemoryShare) -> str:
    """Format a part of the sum."""
    return f"{format_bytes(share.bytes):>10}  {share.what}: {share.how}"


def make_memory_error(subject: TuningSubject, settings: Mapping[str, str]) -> SpecError:
    """Make the error for settings whose sum exceeds the memory."""
    shares = sum_memory(subject, settings)
    total, memory = total_bytes(shares), subject.memory.value
    lines = [describe_share(share) for share in shares]
    largest = max(shares, key=lambda share: share.bytes).what
    kept = list_server_settings(Draft(subject, settings))
    own = f"; the server's own {kept} counts, and --set replaces it" if kept else ""
    return SpecError(
        f"the settings need {format_bytes(total)} in the worst case, and there are {format_bytes(memory)}",
        detail="\n".join([*lines, f"{format_bytes(total):>10}  in all"]),
        hint=f"the largest part is {largest}: ask for less of it, for fewer connections behind a pooler, or take more memory{own}",
    )


def _page_table_bytes(subject: TuningSubject, buffers: float) -> float:
    return buffers / subject.kernel.page_bytes * _PAGE_TABLE_ENTRY_BYTES


def _other_shared_bytes(draft: Draft) -> float:
    return estimate_other_shared_bytes(
        draft.number("shared_buffers"),
        wal_buffers_bytes=wal_buffers_bytes(draft),
        session_count=draft.number("max_connections") + draft.number("max_worker_processes"),
        major=draft.subject.major,
    )


def wal_buffers_bytes(draft: Draft) -> float:
    """Return the effective value of wal_buffers."""
    if draft.text("wal_buffers") == "-1":
        return choose_wal_buffers_bytes(draft.number("shared_buffers"), segment_bytes=draft.subject.wal_segment_bytes)
    return draft.number("wal_buffers")


def _temp_bytes(draft: Draft) -> float:
    """Return the temporary buffers of a session: none for OLTP, unless temp_buffers was raised."""
    guc = find_guc("temp_buffers", draft.subject.major)
    is_raised = guc is not None and draft.number("temp_buffers") > float(guc.boot or 0) * unit_size(guc.unit)
    is_used = is_raised or draft.subject.workload.has_long_queries
    return draft.number("temp_buffers") if is_used else 0.0


def _decoding_bytes(draft: Draft) -> float:
    is_logical = draft.text("wal_level") == "logical"
    return draft.number("max_wal_senders") * draft.number("logical_decoding_work_mem") if is_logical else 0.0
