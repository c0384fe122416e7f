"""Derive the planner's cost constants, and autovacuum's share of the machine."""

from __future__ import annotations

import math

from pgdyno.tune.draft import GB, MB, Draft
from pgdyno.tune.memory import cacheable_bytes
from pgdyno.tune.types import Known, Layer, Origin, WorkloadClass
from pgdyno.units import PAGE_BYTES

_COSTS = "PostgreSQL 18 manual, section 19.7.2 “Planner Cost Constants”"
# Source: the same section: the built-in 4 assumes a disk where a random read takes 40 times a sequential one, and that
# nine of ten reads come from a cache.
_CACHED_SHARE = 0.9
_BUILT_IN_RANDOM_COST = 4.0
_LEAST_RANDOM_COST = 1.1
_BUILT_IN_COST_LIMIT, _MOST_COST_LIMIT = 200, 10_000
_VACUUM_SHARE = 0.25
_DEAD_BYTES, _BYTES_PER_WORKER = 2 * GB, 256 * MB


def derive_planner(draft: Draft) -> None:
    """Decide cost constants and other planner settings, after memory is decided."""
    _put_random_cost(draft)
    is_analytic = draft.subject.workload is WorkloadClass.ANALYTIC
    if is_analytic:
        draft.put(
            "default_statistics_target",
            "500",
            layer=Layer.PLANNER,
            reason="queries over large tables need good estimates, and can afford longer planning.",
            formula="no input: 500 for analytic work, else as built in",
            source="PostgreSQL 18 manual, section 19.7.4, default_statistics_target",
            trades="ANALYZE reads 5 times the rows, and planning takes longer",
        )
    elif draft.subject.workload is not WorkloadClass.MIXED:
        draft.put(
            "jit",
            "off",
            layer=Layer.PLANNER,
            reason="compiling takes tens of ms, which a short query whose cost was overestimated never earns back.",
            formula="no input: off for OLTP, else as built in",
            source="PostgreSQL 18 manual, section 30.2 “When to JIT?”",
            trades="a rare long query runs without compiled expressions",
        )


def _put_random_cost(draft: Draft) -> None:
    subject, disk = draft.subject, draft.subject.disk
    ratio = disk.random_to_sequential
    buffers = draft.number("shared_buffers")
    # Only the larger of the two caches counts, because it holds most of what the other holds.
    held = min(1.0, max(buffers, cacheable_bytes(subject) - buffers) / max(1.0, subject.dataset.value))
    # Scans read all data; random reads of OLTP mostly repeat earlier ones.
    cached = min(_CACHED_SHARE, held) if subject.workload is WorkloadClass.ANALYTIC else max(_CACHED_SHARE, held)
    cost = min(_BUILT_IN_RANDOM_COST, max(_LEAST_RANDOM_COST, (1 - cached) * ratio))
    found = "all" if cached == 1 else f"{cached:.0%}"
    draft.put(
        "random_page_cost",
        f"{cost:.1f}",
        layer=Layer.PLANNER,
        reason=f"a random read takes {ratio:.1f} times as long as a sequential one on this disk, and {found} of them should find a cache.",
        formula="(1 - cached share) × (read bandwidth / 8 kB / random read IOPS), from 1.1 to 4; cached share = the larger cache / data, at least 0.9, for analytic work at most",
        inputs=(disk.random_read_iops, disk.read_bytes_per_s, subject.dataset, subject.memory),
        source=f"{_COSTS}, random_page_cost",
        trades="scans of an index are chosen where a scan of the table may be faster on a cold cache",
    )


def derive_autovacuum(draft: Draft) -> None:
    """Decide autovacuum's workers, rate and thresholds, before memory is decided."""
    subject = draft.subject
    _put_cost_limit(draft)
    most = min(10, int(draft.number("autovacuum_worker_slots"))) if draft.guc("autovacuum_worker_slots") else 10
    borne = math.floor(min(subject.cpus.value / 8, subject.memory.value / _BYTES_PER_WORKER))
    draft.put(
        "autovacuum_max_workers",
        str(min(most, max(3, borne))),
        layer=Layer.AUTOVACUUM,
        reason="with more CPUs come more tables to vacuum at once; the workers share one cost limit.",
        formula="CPUs / 8, at most one for each 256 MB of memory, from 3 to 10 and to autovacuum_worker_slots (18 and later)",
        inputs=(subject.cpus, subject.memory),
        source="PostgreSQL 18 manual, section 19.10.1, autovacuum_max_workers",
        trades="memory for each",
    )
    if subject.dataset.origin is not Origin.ASSUMED:
        _put_scale_factors(draft, subject.dataset)


def _put_cost_limit(draft: Draft) -> None:
    disk, own_s = draft.subject.disk, draft.number("autovacuum_vacuum_cost_delay")
    # A value of -1 means the value of vacuum_cost_delay.
    delay_s = draft.number("vacuum_cost_delay") if own_s < 0 else own_s
    dirty_cost = draft.number("vacuum_cost_page_dirty")
    if not delay_s:
        draft.notes.append(
            "autovacuum_vacuum_cost_limit is left alone: with a cost delay of 0 autovacuum never pauses, so that no limit has an effect."
        )
        return
    limit = _VACUUM_SHARE * disk.write_bytes_per_s.value / PAGE_BYTES * dirty_cost * delay_s
    # A value of -1 means the value of vacuum_cost_limit.
    is_built_in_right = limit <= 250 and draft.number("vacuum_cost_limit") == _BUILT_IN_COST_LIMIT
    quarter = round(limit / 100) * 100
    value = min(_MOST_COST_LIMIT, max(_BUILT_IN_COST_LIMIT, quarter))
    reason = "vacuum may use a quarter of the disk's write bandwidth; slower, it may never catch up."
    if value < quarter:
        reason = "it is the most that the server takes, and less than a quarter of the disk's write bandwidth."
    elif value > quarter:
        reason = "it is the built-in limit, and more than a quarter of the disk's write bandwidth; slower, vacuum may never catch up."
    draft.put(
        "autovacuum_vacuum_cost_limit",
        "-1" if is_built_in_right else str(value),
        layer=Layer.AUTOVACUUM,
        reason=reason,
        formula="write bandwidth / 4 / 8 kB × vacuum_cost_page_dirty × autovacuum_vacuum_cost_delay, from 200 to 10000",
        inputs=(disk.write_bytes_per_s,),
        source="PostgreSQL 18 manual, section 19.10.2 “Cost-based Vacuum Delay”",
        trades="I/O and CPU time while a vacuum runs",
    )


def _put_scale_factors(draft: Draft, data: Known) -> None:
    share = _DEAD_BYTES / max(1.0, data.value)
    for name, most, what in (
        ("autovacuum_vacuum_scale_factor", 0.2, "dead rows"),
        ("autovacuum_vacuum_insert_scale_factor", 0.2, "new rows without a vacuum"),
        ("autovacuum_analyze_scale_factor", 0.1, "changed rows without new statistics"),
    ):
        draft.put(
            name,
            f"{min(most, max(0.02, share * most / 0.2)):.2f}",
            layer=Layer.AUTOVACUUM,
            reason=f"in a table as large as all data, a larger share would be too many {what}.",
            formula=f"{2 * most / 0.2:.0f} GB / data, from 0.02 to {most:g}",
            inputs=(data,),
            source=f"PostgreSQL 18 manual, section 19.10.1, {name}; section 24.1 “Routine Vacuuming”",
            trades="more vacuums, each of which reads all indexes of its table",
        )
