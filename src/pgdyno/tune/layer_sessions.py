"""Connections, parallelism and what a tuner needs logged: counts of processes, before anybody divides memory by them."""

from __future__ import annotations

import math

from pgdyno.tune.draft import MB, Draft
from pgdyno.tune.types import Layer, Origin, WorkloadClass

# Source: a counter of the CPU is read in 20 to 50 ns, any other clock in a µs; pg_test_timing's manual page.
_CHEAP_CLOCK_S = 100e-9
# Source: PostgreSQL wiki, "Number Of Database Connections": throughput peaks at about twice the CPUs, and some more
# for the disks.
_PEAK_PER_CPU = 2
_MANY_PER_CPU = 16
# What one more connection may take where nobody asked for it, and one more worker's sorts and hashes.
_BYTES_PER_ASSUMED, _BYTES_PER_WORKER = 16 * MB, 128 * MB
_WORKERS_SECTION = "PostgreSQL 18 manual, section 19.4.6 “Worker Processes”"


def derive_connections(draft: Draft) -> None:
    """Decide how many connections there may be."""
    subject = draft.subject
    expected = subject.connections.value
    formula = "connections + a tenth, at least 5, + superuser_reserved_connections, in tens"
    if subject.connections.origin is Origin.ASSUMED:
        expected = min(expected, subject.memory.value // _BYTES_PER_ASSUMED)
        formula = f"{formula}; of those that are only assumed, one for each 16 MB of memory at most"
    spare = max(5, math.ceil(expected / 10))
    reserved = draft.number("superuser_reserved_connections")
    value = math.ceil((expected + spare + reserved) / 10) * 10
    draft.put(
        "max_connections",
        str(value),
        layer=Layer.CONNECTIONS,
        reason="the sessions that are expected, some more for maintenance and monitoring, and those kept for superusers.",
        formula=formula,
        inputs=(subject.connections, subject.memory),
        source="PostgreSQL 18 manual, section 19.3.1, max_connections, superuser_reserved_connections",
        trades="shared memory and longer snapshots for each, used or not",
        is_worth_a_word=True,
    )
    if expected > _MANY_PER_CPU * subject.cpus.value:
        draft.notes.append(
            f"{expected:.0f} connections on {subject.cpus.value:g} CPUs: a pooler before the server, with "
            f"about {max(4, math.ceil(_PEAK_PER_CPU * subject.cpus.value))} connections to it and some more for the disks, "
            "gives back memory and CPU time."
        )


def derive_parallelism(draft: Draft) -> None:
    """Decide how many processes work on one query, and on all."""
    workload, cpus = draft.subject.workload, max(1, math.floor(draft.subject.cpus.value))
    most = cpus if workload is WorkloadClass.ANALYTIC else max(1, cpus // 2)
    most = max(1, min(most, int(draft.subject.memory.value // _BYTES_PER_WORKER)))
    _put_workers(
        draft,
        "max_worker_processes",
        max(8, most + 4),
        "parallel queries have their workers, and extensions and logical replication theirs.",
        "max_parallel_workers + 4, at least 8",
    )
    _put_workers(
        draft,
        "max_parallel_workers",
        most,
        "more workers than CPUs wait for each other, and sessions that work without them need CPUs, too.",
        "CPUs for analytic work, else half of them; at least 1, at most one for each 128 MB of memory",
    )
    gather = {WorkloadClass.ANALYTIC: cpus // 2, WorkloadClass.MIXED: cpus // 4}.get(workload, min(2, cpus // 4))
    _put_workers(
        draft,
        "max_parallel_workers_per_gather",
        min(8, gather, most),
        "one query may take that many workers from the others: few where many are at work at once.",
        "CPUs / 2 for analytic work, / 4 else; at most 8, for OLTP at most 2",
    )
    _put_workers(
        draft,
        "max_parallel_maintenance_workers",
        min(8 if workload is WorkloadClass.ANALYTIC else 4, most, max(1, cpus // 2)),
        "making an index and vacuuming many of them go on in parallel, as far as there are CPUs.",
        "CPUs / 2, at least 1, at most 8 for analytic work and 4 else",
    )


def _put_workers(draft: Draft, name: str, value: int, reason: str, formula: str) -> None:
    draft.put(
        name,
        str(value),
        layer=Layer.PARALLEL,
        reason=reason,
        formula=formula,
        inputs=(draft.subject.cpus, draft.subject.memory),
        source=f"{_WORKERS_SECTION}, {name}",
        trades="CPU time and memory for each worker" if value else "",
    )


def derive_logging(draft: Draft) -> None:
    """Decide what is logged and timed, so that the next tuning rests on what was seen."""
    is_analytic = draft.subject.workload is WorkloadClass.ANALYTIC
    for name, value, reason in (
        (
            "log_checkpoints",
            "on",
            "each checkpoint tells what began it, how much it wrote and how long its flushes took.",
        ),
        ("log_lock_waits", "on", "a wait longer than deadlock_timeout (1 s) is told with who holds the lock."),
        ("log_autovacuum_min_duration", "10s", "vacuums that take long are told, with what they read and wrote."),
        (
            "log_temp_files",
            "256MB" if is_analytic else "0",
            "a sort or hash that did not fit work_mem is told, with its size.",
        ),
    ):
        draft.put(
            name,
            value,
            layer=Layer.LOGGING,
            reason=reason,
            source=f"PostgreSQL 18 manual, section 19.8 “Error Reporting and Logging”, {name}",
            formula="no input: 256MB for analytic work, else 0: any"
            if name == "log_temp_files"
            else "no input: the same on every machine",
            trades="lines in the log",
        )
    clock = draft.subject.clock_read_s
    if clock is None or clock.value > _CHEAP_CLOCK_S:
        slow = "nobody measured how fast this clock is read" if clock is None else "reading this clock is slow"
        draft.notes.append(f"track_io_timing is left off: {slow}; `pg_test_timing` tells.")
        return
    for name in ("track_io_timing", "track_wal_io_timing"):
        draft.put(
            name,
            "on",
            layer=Layer.LOGGING,
            reason="it tells how long reads and writes take, and the clock is read fast enough for it to cost nothing.",
            formula="on where the clock is read in at most 100 ns",
            inputs=(clock,),
            source=f"PostgreSQL 18 manual, section 19.9.1, {name}; pg_test_timing",
            trades="two readings of the clock for each read, write and flush",
        )


def note_assumptions(draft: Draft) -> None:
    """Say which inputs are assumed and decide much."""
    subject = draft.subject
    told = [
        subject.dataset,
        subject.active,
        subject.disk.flush_s,
        subject.disk.random_read_iops,
        subject.disk.write_bytes_per_s,
    ]
    assumed = [
        one.name
        for one in (*told, *([subject.wal_bytes_per_s] if subject.wal_bytes_per_s else []))
        if one.origin is Origin.ASSUMED
    ]
    if subject.wal_bytes_per_s is None:
        assumed.append("WAL rate")
    if assumed:
        draft.notes.append(f"assumed, and worth measuring or declaring: {', '.join(dict.fromkeys(assumed))}.")
