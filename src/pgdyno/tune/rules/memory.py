"""Derive the memory layer: shared_buffers, effective_cache_size, work_mem, maintenance memory and wal_buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pgdyno.tune.draft import GB, KB, MB, Draft, most_bytes, round_down, round_up, size
from pgdyno.tune.memory import (
    MOST_WAL_BUFFERS_BYTES,
    cacheable_bytes,
    has_page_tables,
    list_server_settings,
    make_memory_error,
    shareable_bytes,
    sum_memory,
    total_bytes,
    wal_buffers_bytes,
)
from pgdyno.tune.rules.huge_pages import put_existing_pool, put_huge_pages
from pgdyno.tune.types import Layer, Origin, TuningSubject, WorkloadClass
from pgdyno.units import format_bytes

# Source: PostgreSQL 18 manual, section 19.4.1 "Memory", shared_buffers: 25 % is a reasonable starting value.
_STARTING_SHARE = 0.25
# Above the manual's 40 %, and only for data that then fit completely: the kernel's cache would add nothing.
_WHOLE_SHARE = 0.5
_GROWTH = 1.1
# Where the data fit in neither cache, each page of shared_buffers is one less in the kernel's cache: under even access
# more data are read from disk. Under uneven access it saves copying and writing the pages used most.
# Source: tests/tune/test_two_caches.py; docs/derivation.md has the figures of both cases.
_SHARE_OF_DATA = 1 / 16
_LEAST_BUFFERS_BYTES = 128 * MB
# With less, a server starts but is useless.
_SMALLEST_BYTES = 16 * MB
_BUILT_IN_WORK_MEM, _LEAST_WORK_MEM = 4 * MB, 64 * KB
# Above this, queries of the class gain little; log_temp_files shows exceptions.
_WORK_MEM_MOST = {
    WorkloadClass.OLTP_WRITE: 16 * MB,
    WorkloadClass.OLTP_READ: 32 * MB,
    WorkloadClass.MIXED: 64 * MB,
    WorkloadClass.ANALYTIC: 1 * GB,
}
_CLASS_WORDS = {
    WorkloadClass.OLTP_WRITE: "short transactions",
    WorkloadClass.OLTP_READ: "short queries",
    WorkloadClass.MIXED: "mixed work",
    WorkloadClass.ANALYTIC: "long queries",
}
# Share of the remaining memory for sorts and hashes in the worst case; the kernel's cache gets the rest.
_WORK_SHARE = {
    WorkloadClass.OLTP_WRITE: 0.25,
    WorkloadClass.OLTP_READ: 0.25,
    WorkloadClass.MIXED: 0.4,
    WorkloadClass.ANALYTIC: 0.6,
}
# Source: PostgreSQL 18 src/backend/access/common/tidstore.c, and vacuumlazy.c of 16: a dead row takes 6 bytes until 16.
_DEAD_ROW_BYTES = 6
_ROW_BYTES = 128
_SHARE_STEP = 1e-4
_MANUAL = "PostgreSQL 18 manual, section 19.4.1 “Memory”"


def derive_memory(draft: Draft) -> None:
    """Decide all memory settings, after connections, workers and vacuums are decided."""
    put_existing_pool(draft, choose_buffers(draft.subject)[0])
    # The share is found once: what the rounding of shared_buffers leaves varies with the size of memory, and is for sorts.
    share = _find_share(draft)
    _put_buffers(draft, share)
    _put_wal_buffers(draft)
    put_huge_pages(draft)
    _put_maintenance(draft, share)
    _put_work_mem(draft)
    _put_cache_size(draft)


def _put_buffers(draft: Draft, share: float) -> None:
    subject = draft.subject
    wanted, reason, formula = choose_buffers(subject)
    value = _derived_bytes(draft, "shared_buffers", share)
    least = _sizes(_claims(draft), 0.0)

    def fits(value: float) -> bool:
        return _fits(subject, {**least, "shared_buffers": size(value), **draft.values()})

    while value > _SMALLEST_BYTES and not fits(value):
        value = max(_SMALLEST_BYTES, round_down(value * 0.9))
    if not fits(value):
        # No useful value fits: the error shows the sum.
        raise make_memory_error(subject, {**least, "shared_buffers": size(_SMALLEST_BYTES), **draft.values()})
    if draft.is_fixed("shared_buffers") and draft.number("shared_buffers") > _WHOLE_SHARE * subject.memory.value:
        draft.notes.append(
            f"shared_buffers = {draft.text('shared_buffers')}, which you set, leaves less than half of the memory to the "
            "kernel's cache, to sorts and to all other programs."
        )
    if value < wanted:
        tables = " with their page tables" if has_page_tables(draft) else ""
        reason = f"connections{tables}, sorts and maintenance leave no more in the worst case."
        formula = f"{formula}; then 128 MB and the share of the rest that work_mem of 4 MB and maintenance have, too, so that the worst-case sum fits"
    draft.put(
        "shared_buffers",
        size(value),
        layer=Layer.MEMORY,
        reason=reason,
        formula=formula,
        inputs=(subject.memory, subject.dataset, subject.connections),
        source=f"{_MANUAL}, shared_buffers; T. M. Wong, J. Wilkes, “My Cache or Yours?”, USENIX ATC 2002: two caches behave as the larger; docs/derivation.md, which simulates these two",
        trades="memory of the kernel's cache; if most accesses go to few pages, a larger one spares copying them: give their size as --dataset",
        keeps_default=True,
    )


def choose_buffers(subject: TuningSubject) -> tuple[float, str, str]:
    """Choose shared_buffers as if nothing else needed memory, with the reason and the formula.

    PostgreSQL reads pages through the kernel's cache, and the kernel keeps the same recently used pages as PostgreSQL.
    Under even access the two caches hold the same pages, so that only the larger one counts. Therefore the data should
    fit completely in one of the two wherever possible.
    """
    memory, data = shareable_bytes(subject), subject.dataset.value
    limit = most_bytes("shared_buffers", subject.major)
    start = min(_STARTING_SHARE * memory, limit)
    if subject.dataset.origin is Origin.ASSUMED:
        reason = "a quarter of the memory is the usual start while the data's size is not known."
        if start == limit:
            reason = "it is the most that the server takes, and less than a quarter of the memory."
        return round_down(start), reason, "memory / 4, at most what the server takes, below 8 TB"
    whole = data * _GROWTH
    # Scans of large tables use a ring of a few pages: such data gain nothing from a large shared_buffers.
    most = start if subject.workload is WorkloadClass.ANALYTIC else min(_WHOLE_SHARE * memory, limit)
    if whole <= most:
        value = min(round_up(max(whole, min(start, max(2 * data, GB)))), round_down(max(most, start)))
        formula = "data × 1.1, but as much as memory / 4 up to data × 2 or 1 GB; up to memory / 2, analytic memory / 4"
        return value, "it holds all data, with room to grow.", formula
    cacheable = cacheable_bytes(subject)
    value = round_down(min(start, max(_LEAST_BUFFERS_BYTES, cacheable - whole, data * _SHARE_OF_DATA)))
    formula = "the larger of cacheable - data × 1.1 and data / 16, from 128 MB to memory / 4; cacheable = memory - reserve - connections × 2 MB - active sessions × 4 MB"
    if data + value <= cacheable:
        return value, "the kernel's cache then has room for all data, which are too large for this one.", formula
    reason = "the data exceed both caches: this holds the pages used most, and each page more here is one less in the kernel's cache."
    return value, reason, formula


class _Claim(NamedTuple):
    """Memory for a setting in bytes: the least for any machine, and the wanted amount."""

    least: float
    wanted: float


def _claims(draft: Draft) -> dict[str, _Claim]:
    """Return the claims of all reducible settings. Sorts claim only the built-in 4 MB: they get the remainder later."""
    subject, memory = draft.subject, shareable_bytes(draft.subject)
    buffers = choose_buffers(subject)[0]
    upkeep = max(MB, min(64 * MB, round_down(memory / 32)))
    rows = subject.dataset.value / _ROW_BYTES * draft.number("autovacuum_vacuum_scale_factor")
    # Source: PostgreSQL 17 release notes: vacuum's new memory structure takes up to 20 times less.
    dead_rows = rows * _DEAD_ROW_BYTES / (4 if subject.major >= 17 else 1)
    return {
        "shared_buffers": _Claim(min(_LEAST_BUFFERS_BYTES, buffers), buffers),
        "maintenance_work_mem": _Claim(upkeep, min(max(memory / 16, 64 * MB), 2 * GB)),
        "autovacuum_work_mem": _Claim(upkeep, min(max(dead_rows, 64 * MB), GB, max(16 * MB, memory / 32))),
        "work_mem": _Claim(MB, max(MB, min(_BUILT_IN_WORK_MEM, memory / 512))),
    }


def _find_share(draft: Draft) -> float:
    """Find the share of the wanted memory beyond the least that undecided settings get; below 1 if memory is short.

    It is the largest share with which the worst case fits, or 0 if not even the least fits; with huge pages, whose last one
    is seldom full, a larger share may fit, too. One share for all settings means that more memory reduces none of them, but
    for the rest of that page and for the workers that more memory brings.
    """
    claims, decided = _claims(draft), draft.values()

    def fits(share: float) -> bool:
        return _fits(draft.subject, {**_sizes(claims, share), **decided})

    low, high = 0.0, 1.0
    if fits(high):
        return high
    while high - low > _SHARE_STEP:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _derived_bytes(draft: Draft, name: str, share: float) -> float:
    """Return the size that a setting gets; for a fixed one, the size that it would have without a shortage."""
    return _of_claim(_claims(draft)[name], 1.0 if draft.is_fixed(name) else share)


def _of_claim(claim: _Claim, share: float) -> float:
    return round_down(claim.least + share * (claim.wanted - claim.least))


def _sizes(claims: Mapping[str, _Claim], share: float) -> dict[str, str]:
    return {name: size(_of_claim(claim, share)) for name, claim in claims.items()}


def _fits(subject: TuningSubject, values: Mapping[str, str]) -> bool:
    return total_bytes(sum_memory(subject, values)) <= subject.memory.value


def _put_maintenance(draft: Draft, share: float) -> None:
    subject = draft.subject
    # If memory is short, even the built-in value is a decision, which must be listed.
    is_short = share < 1.0
    draft.put(
        "maintenance_work_mem",
        size(_derived_bytes(draft, "maintenance_work_mem", share)),
        layer=Layer.MEMORY,
        reason="an index is built faster the more of its sort fits; the worst case counts one such command.",
        formula="memory / 16, 64 MB to 2 GB, or what the worst-case sum leaves",
        inputs=(subject.memory,),
        source=f"{_MANUAL}, maintenance_work_mem",
        trades="memory while an index is made",
        keeps_default=is_short,
    )
    draft.put(
        "autovacuum_work_mem",
        size(_derived_bytes(draft, "autovacuum_work_mem", share)),
        layer=Layer.MEMORY,
        reason="the more of a large table's dead rows it holds, the fewer times a vacuum scans the indexes.",
        formula="data / 128 bytes × autovacuum_vacuum_scale_factor × 6 bytes (1.5 from 17 on), 64 MB to 1 GB, at most memory / 32",
        inputs=(subject.dataset, subject.memory),
        source=f"{_MANUAL}, autovacuum_work_mem; PostgreSQL 17 release notes, vacuum",
        trades="memory, once for each autovacuum worker",
        keeps_default=is_short,
    )


def _put_wal_buffers(draft: Draft) -> None:
    subject = draft.subject
    rate = subject.wal_bytes_per_s
    if rate is None:
        return
    wanted = round_down(min(rate.value * 0.2, MOST_WAL_BUFFERS_BYTES, subject.memory.value / 64))
    if wanted > wal_buffers_bytes(draft):
        draft.put(
            "wal_buffers",
            size(wanted),
            layer=Layer.MEMORY,
            reason="it holds the WAL of one wal_writer_delay, so that no session has to write WAL just to make room.",
            formula="WAL rate × 0.2 s (wal_writer_delay), at most 256 MB and memory / 64",
            inputs=(rate, subject.memory),
            source="PostgreSQL 18 manual, section 19.5.1, wal_buffers; src/backend/access/transam/xlog.c, AdvanceXLInsertBuffer()",
            trades="that much shared memory, always",
        )


def _put_work_mem(draft: Draft) -> None:
    subject = draft.subject
    values = draft.values()

    def need(work_mem: float) -> float:
        return total_bytes(sum_memory(subject, {**values, "work_mem": size(work_mem)}))

    per_byte = (need(2 * MB) - need(MB)) / MB
    rest = max(0.0, subject.memory.value - need(MB) + per_byte * MB)
    most, share = _WORK_MEM_MOST[subject.workload], _WORK_SHARE[subject.workload]
    whole = rest / per_byte
    least = min(_BUILT_IN_WORK_MEM, whole)
    wanted = min(most, max(share * whole, least))
    reason = f"all sorts and hashes at once take at most {share:.0%} of the memory that is left, and each at most {format_bytes(most)}, enough for {_CLASS_WORDS[subject.workload]}."
    if share * whole < least:
        each = "the built-in 4 MB" if least == _BUILT_IN_WORK_MEM else "as much of the built-in 4 MB as there is"
        reason = f"memory is short: all sorts and hashes at once take {least / whole:.0%} of what is left, so that each has {each}."
        if kept := list_server_settings(draft):
            draft.notes.append(f"the server's own {kept} makes memory short in the worst case: --set replaces it.")
    draft.put(
        "work_mem",
        size(max(_LEAST_WORK_MEM, round_down(wanted))),
        layer=Layer.MEMORY,
        reason=reason,
        formula=f"left = (memory - all else in the worst case) / ((sessions at work + parallel workers) × work areas × hash_mem_multiplier); the larger of left × {share:g} and the smaller of left and 4 MB; from 64 kB to {format_bytes(most)}",
        inputs=(subject.memory, subject.connections, subject.active),
        source=f"{_MANUAL}, work_mem, hash_mem_multiplier",
        trades="a query with many sorts takes it many times",
        keeps_default=True,
    )


def _put_cache_size(draft: Draft) -> None:
    subject = draft.subject
    most = most_bytes("effective_cache_size", subject.major)
    value = min(most, max(cacheable_bytes(subject), draft.number("shared_buffers")))
    draft.put(
        "effective_cache_size",
        size(round_down(value)),
        layer=Layer.MEMORY,
        reason="it tells the planner what shared_buffers and the kernel's cache can hold together, and allocates nothing.",
        formula="memory - reserve - connections × 2 MB - active sessions × 4 MB, at least shared_buffers, at most what the server takes, below 16 TB",
        inputs=(subject.memory, subject.connections, subject.active),
        source="PostgreSQL 18 manual, section 19.7.2 “Planner Cost Constants”, effective_cache_size",
    )
