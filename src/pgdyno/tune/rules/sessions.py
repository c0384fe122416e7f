"""Derive connections, parallelism and logging: numbers of processes come before the memory that they share."""

from __future__ import annotations

import math

from pgdyno.tune.connections import with_fixed_connections
from pgdyno.tune.draft import MB, Draft
from pgdyno.tune.pooling import reserved_connections, spare_connections
from pgdyno.tune.types import Layer, Origin, WorkloadClass
from pgdyno.units import format_cpus

# Source: a counter of the CPU is read in 20 to 50 ns, any other clock in a µs; pg_test_timing's manual page.
_CHEAP_CLOCK_S = 100e-9
# Source: PostgreSQL wiki, "Number Of Database Connections": throughput peaks at about twice the CPUs, and some more
# for the disks.
_PEAK_PER_CPU = 2
_MANY_PER_CPU = 16
# Memory for each assumed connection, and for each worker's sorts and hashes.
_BYTES_PER_ASSUMED, _BYTES_PER_WORKER = 16 * MB, 128 * MB
# Memory for each assumed connection if queries sort and hash.
_BYTES_PER_ASSUMED_SORTING = 32 * MB
_WITH_SPARE = " + a tenth, at least 5, + superuser_reserved_connections + reserved_connections (16 and later), in tens"
_WORKERS_SECTION = "PostgreSQL 18 manual, section 19.4.6 “Worker Processes”"


def derive_connections(draft: Draft) -> None:
    """Decide max_connections; what it lets in if the user fixed it, all else is then derived for."""
    subject = draft.subject
    expected = subject.connections.value
    if subject.pooling is not None:
        needed = _count_connections(draft, expected)
        # A server with clients may have some that do not come through the pooler yet.
        own = int(draft.number("max_connections")) if "max_connections" in subject.settings else 0
        value = max(needed, own)
        reason = (
            "the pool's connections, some for maintenance and monitoring, and the reserved ones are all that it needs."
        )
        if own > needed:
            reason = "the server's own, which is kept."
        draft.notes.append(_note_connections(draft, value, needed))
        formula = f"pool{_WITH_SPARE}; not less than a server has"
    elif subject.connections.origin is Origin.ASSUMED:
        # No number was requested: a small increase is not worth a restart.
        each = _BYTES_PER_ASSUMED_SORTING if subject.workload.has_long_queries else _BYTES_PER_ASSUMED
        known = 1 if subject.active.origin is Origin.ASSUMED else subject.active.value
        borne = max(known, subject.memory.value // each)
        expected = value = math.ceil(min(expected, borne) / 10) * 10
        reason = "the number of connections was not given: the built-in number, or fewer where memory is short."
        formula = "as built in, at most one for each 16 MB of memory (mixed and analytic work 32 MB) or known to be at work, in tens"
        if known + reserved_connections(draft) > value:
            expected, value = known, _count_connections(draft, known)
            reason = "it is the clients known to be at work, some more for maintenance and monitoring, and the reserved ones."
            formula = f"clients{_WITH_SPARE}"
    elif subject.connections.origin is Origin.MEASURED:
        value = int(expected)
        reason = "the server's own, which is kept; `--connections N` derives another."
        formula = "as it is"
    else:
        value = _count_connections(draft, expected)
        reason = "it is the expected connections, some more for maintenance and monitoring, and the reserved ones."
        formula = f"connections{_WITH_SPARE}"
    draft.put(
        "max_connections",
        str(value),
        layer=Layer.CONNECTIONS,
        reason=reason,
        formula=formula,
        inputs=(subject.connections, subject.memory),
        source="PostgreSQL 18 manual, section 19.3.1, max_connections, superuser_reserved_connections, reserved_connections",
        trades="shared memory and longer snapshots for each, used or not",
        keeps_default=True,
    )
    draft.subject = with_fixed_connections(draft)
    _note_many(draft, draft.subject.connections.value if draft.is_fixed("max_connections") else expected)


def _note_many(draft: Draft, expected: float) -> None:
    subject = draft.subject
    if expected > _MANY_PER_CPU * subject.cpus.value and subject.pooling is None:
        draft.notes.append(
            f"{expected:.0f} connections on {format_cpus(subject.cpus.value)}: use a connection pooler (`pgdyno tune --pooler`) if most of them are idle; throughput "
            f"peaks near {max(4, math.ceil(_PEAK_PER_CPU * subject.cpus.value))} at work, and a few more on slow disks."
        )


def _note_connections(draft: Draft, value: int, needed: int) -> str:
    if draft.is_fixed("max_connections"):
        needed = value = int(draft.number("max_connections"))
    if value > needed:
        return (
            f"max_connections = {value} is the server's own and is kept, as clients may still connect past the pooler; once all come through"
            f" it, {needed} do: --set max_connections={needed}."
        )
    return (
        f"max_connections = {value} is for clients that come through the pooler: count what connects past it, such as backups, jobs and"
        " other poolers."
    )


def _count_connections(draft: Draft, expected: float) -> int:
    return math.ceil((expected + spare_connections(expected) + reserved_connections(draft)) / 10) * 10


def derive_parallelism(draft: Draft) -> None:
    """Decide the number of processes for one query and for all queries."""
    workload, cpus = draft.subject.workload, max(1, math.floor(draft.subject.cpus.value))
    most = cpus if workload is WorkloadClass.ANALYTIC else max(1, cpus // 2)
    most = max(1, min(most, int(draft.subject.memory.value // _BYTES_PER_WORKER)))
    wanted = int(draft.number("max_parallel_workers")) if draft.is_fixed("max_parallel_workers") else most
    _put_workers(
        draft,
        "max_worker_processes",
        # A raised value serves extensions, subscriptions or standbys, which fail to start with fewer workers.
        max(8, wanted + 4, int(draft.subject.settings.get("max_worker_processes", "0"))),
        "parallel queries need their workers, and extensions and logical replication some more.",
        "max_parallel_workers + 4, at least 8 and what the server has",
    )
    _put_workers(
        draft,
        "max_parallel_workers",
        min(most, int(draft.number("max_worker_processes"))),
        "more would only wait for each other, and take CPUs from other sessions.",
        "CPUs for analytic work, else half of them; at least 1, at most one for each 128 MB of memory, and max_worker_processes",
    )
    most = min(most, int(draft.number("max_worker_processes")), int(draft.number("max_parallel_workers")))
    gather = {WorkloadClass.ANALYTIC: cpus // 2, WorkloadClass.MIXED: cpus // 4}.get(workload, min(2, cpus // 4))
    _put_workers(
        draft,
        "max_parallel_workers_per_gather",
        min(8, gather, most),
        "one query may use this many extra CPUs; with more, queries at the same time would slow each other.",
        "CPUs / 2 for analytic work, / 4 else; at most 8, for OLTP at most 2, and max_parallel_workers",
    )
    _put_workers(
        draft,
        "max_parallel_maintenance_workers",
        min(8 if workload is WorkloadClass.ANALYTIC else 4, most, max(1, cpus // 2)),
        "building indexes and vacuuming use as many workers as there are CPUs to spare.",
        "CPUs / 2, at least 1, at most 8 for analytic work and 4 else, and max_parallel_workers",
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
    """Decide what is logged and timed, so that the next tuning is based on observations."""
    is_analytic = draft.subject.workload is WorkloadClass.ANALYTIC
    for name, value, reason in (
        (
            "log_checkpoints",
            "on",
            "each checkpoint logs its cause, how much it wrote and how long that took.",
        ),
        (
            "log_lock_waits",
            "on",
            "it logs sessions that wait longer than deadlock_timeout for a lock, and the sessions that hold it.",
        ),
        ("log_autovacuum_min_duration", "10s", "it logs long vacuums with what they read and wrote."),
        (
            "log_temp_files",
            "256MB" if is_analytic else "0",
            "it logs each sort or hash that did not fit work_mem, with its size.",
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
    if draft.text("track_io_timing") == "on":
        return
    if clock is None or clock.value > _CHEAP_CLOCK_S:
        slow = "the time of reading this clock was not measured" if clock is None else "reading this clock is slow"
        draft.notes.append(f"track_io_timing is left off: {slow}; `pg_test_timing` measures it.")
        return
    for name in ("track_io_timing", "track_wal_io_timing"):
        draft.put(
            name,
            "on",
            layer=Layer.LOGGING,
            reason="it shows how long reads and writes take, and this clock is fast enough for that to cost nothing.",
            formula="on where the clock is read in at most 100 ns",
            inputs=(clock,),
            source=f"PostgreSQL 18 manual, section 19.9.1, {name}; pg_test_timing",
            trades="two readings of the clock for each read, write and flush",
        )
