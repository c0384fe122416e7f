"""Define the rules about a server's shared memory: whether it starts with it, and whether huge pages are missing or idle."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.rule_input import Rule, RuleInput
from pgdyno.facts.gucs import find_guc, read_value
from pgdyno.facts.shared_memory import choose_wal_buffers_bytes, estimate_other_shared_bytes
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import MemoryFacts, ServerOrigin, ServerSnapshot
from pgdyno.units import format_bytes, unit_size

NO_START = "no-start"
"""Rule of a server that the kernel refuses its shared memory."""
HUGE_PAGES = "huge-pages"
"""Rule of a server that gets no huge pages."""
_COUNT = "shared_memory_size_in_huge_pages"
# Below this size the page tables of a hundred backends take some ten MB: there is little to gain.
_WORTH_HUGE_PAGES_BYTES = 1024**3
# A server that grows by a few settings may need a little more than now; a whole pool that nobody uses is no reserve.
_IDLE_RATIO = 0.05
# Source: Linux, Documentation/mm/overcommit-accounting.rst.
_ALWAYS_OVERCOMMIT, _NEVER_OVERCOMMIT = 1, 2


def find_start_obstacle(server: ServerSnapshot, memory: MemoryFacts, host: HostFacts) -> Finding | None:
    """Find why a server that is not up, or waits for a restart, gets no shared memory, or not enough to use it.

    Args:
        server: The server that is to start.
        memory: The machine's memory now.
        host: The machine.
    """
    if (server.origin is ServerOrigin.RUNNING and not server.waiting) or _is_unread(server):
        return None
    server, waiting = _as_started(server), server.waiting
    shown = ", ".join(f"{name} = {value}" for name, value in waiting.items())
    about = f"; waiting for a restart: {shown}" if shown else ""
    again = " again" if server.origin is ServerOrigin.RUNNING else ""
    if _lacks_pages(server, memory):
        # Without huge pages of a known number, the rules of ordinary memory hold.
        return _miss_memory(server, memory, host, about=about, again=again)
    if _huge_pages_of(server) == "on":
        return _miss_huge_pages(server, memory, host, about=about, again=again)
    if _huge_pages_of(server) != "off" and _usable_pages(server, memory) >= _needed_pages(server, memory):
        return None
    return _miss_memory(server, memory, host, about=about, again=again)


def find_standby_crowding(
    server: ServerSnapshot, memory: MemoryFacts, host: HostFacts, *, standbys: int
) -> Finding | None:
    """Find whether a server and its standbys, which have its settings, have more shared memory than the machine has memory."""
    found = find_crowding([server] * (1 + standbys), memory, host) if standbys else None
    return found and msgspec.structs.replace(
        found,
        claim="The server and its standbys have more shared memory than this machine has memory.",
        advice="Lower shared_buffers, or have fewer standbys.",
    )


def find_crowding(servers: Sequence[ServerSnapshot], memory: MemoryFacts, host: HostFacts) -> Finding | None:
    """Find whether servers that are up at once have more shared memory than the machine has memory."""
    if any(_is_unread(server) for server in servers):
        return None
    needed = sum(_shared_bytes(server, memory) for server in servers)
    if needed <= host.usable_memory_bytes:
        return None
    return Finding(
        rule="too-much-shared-memory",
        severity=Severity.CRITICAL,
        claim="The servers of a live round have more shared memory than this machine has memory.",
        evidence=f"{format_bytes(needed)} of {len(servers)} servers; {format_bytes(host.usable_memory_bytes)} of memory",
        why="All are up at once: the machine swaps, or the kernel kills one, once the buffers are in use.",
        advice="Lower shared_buffers, or compare with `--design paired`.",
    )


def _miss_huge_pages(
    server: ServerSnapshot, memory: MemoryFacts, host: HostFacts, *, about: str, again: str
) -> Finding | None:
    needed, usable = _needed_pages(server, memory), _usable_pages(server, memory)
    if usable >= needed:
        return None
    target = choose_pool(server, memory)
    fits = target * memory.huge_page_bytes < host.usable_memory_bytes
    return Finding(
        rule=NO_START,
        severity=Severity.CRITICAL,
        claim=f"The server would not start{again}: huge_pages = on, and too few huge pages are free.",
        evidence=f"{_needed_words(server, memory)}, {usable} free{about}",
        why="With on, PostgreSQL ends unless all of its shared memory gets huge pages.",
        advice=f"`sysctl vm.nr_hugepages={target}`, or set huge_pages = try."
        if fits
        else f"Lower shared_buffers: vm.nr_hugepages={target} would be"
        f" {format_bytes(target * memory.huge_page_bytes)} of {format_bytes(host.usable_memory_bytes)} of memory.",
    )


def _miss_memory(
    server: ServerSnapshot, memory: MemoryFacts, host: HostFacts, *, about: str, again: str
) -> Finding | None:
    # What the running server has now is free at its restart.
    needed, most = _shared_bytes(server, memory), host.memory_bytes + host.swap_bytes
    limit = f"{format_bytes(host.memory_bytes)} of memory and {format_bytes(host.swap_bytes)} of swap"
    is_refused = memory.overcommit_memory != _ALWAYS_OVERCOMMIT and needed > most
    advice = "Lower shared_buffers."
    if memory.overcommit_memory == _NEVER_OVERCOMMIT and not is_refused and not again:
        most = max(0, memory.commit_limit_bytes - memory.committed_bytes)
        limit = f"{format_bytes(most)} below CommitLimit, vm.overcommit_memory = 2"
        is_refused, advice = needed > most, "Lower shared_buffers, or raise vm.overcommit_ratio."
    evidence = f"{_about(server)}{format_bytes(needed)} of shared memory; {limit}{about}"
    if is_refused:
        return Finding(
            rule=NO_START,
            severity=Severity.CRITICAL,
            claim=f"The server would not start{again}: the kernel refuses that much shared memory.",
            evidence=evidence,
            why="PostgreSQL asks for all of its shared memory when it starts.",
            advice=advice,
        )
    pool_bytes = _total_pages(server, memory) * memory.huge_page_bytes
    ordinary_bytes = min(host.usable_memory_bytes, host.memory_bytes - pool_bytes)
    if needed <= ordinary_bytes:
        return None
    return Finding(
        rule="too-much-shared-memory",
        severity=Severity.CRITICAL,
        claim="The server's shared memory is larger than the memory that it may use.",
        evidence=f"{_about(server)}{format_bytes(needed)} of shared memory; {format_bytes(ordinary_bytes)} of memory"
        + (f" besides {format_bytes(pool_bytes)} of huge pages" if pool_bytes else "")
        + about,
        why="It starts, and swaps, or the kernel kills it, once the buffers are in use.",
        advice="Lower shared_buffers.",
    )


def _start(rule_input: RuleInput) -> Iterator[Finding]:
    server, memory = rule_input.facts.server, rule_input.facts.memory
    finding = None if server is None or memory is None else find_start_obstacle(server, memory, rule_input.host)
    if finding is not None:
        yield finding


def find_missing_huge_pages(server: ServerSnapshot, memory: MemoryFacts, host: HostFacts) -> Finding | None:
    """Find whether a server does without the huge pages that it tries to get.

    Args:
        server: The server.
        memory: The machine's memory now.
        host: The machine.
    """
    if _is_unknown(server, memory) or _huge_pages_of(server) != "try" or _has_huge_pages(server, memory):
        return None
    if find_start_obstacle(server, memory, host) is not None:
        # Huge pages for a server that is too large for the machine are no advice.
        return None
    is_seen = server.origin is ServerOrigin.RUNNING
    return Finding(
        rule=HUGE_PAGES,
        severity=Severity.WARNING if _size(server, "shared_buffers") >= _WORTH_HUGE_PAGES_BYTES else Severity.NOTE,
        claim="huge_pages = try, and the server " + ("got none." if is_seen else "would get none."),
        evidence=f"{_needed_words(server, memory)}, {_usable_pages(server, memory)} free"
        + (f", huge_pages_status = {status}" if (status := server.settings.get("huge_pages_status")) else ""),
        why="It silently does without: page tables grow with each connection, and the CPU walks them more often.",
        advice=f"`sysctl vm.nr_hugepages={choose_pool(server, memory)}`"
        + (", then restart the server." if is_seen else "."),
    )


def choose_pool(server: ServerSnapshot, memory: MemoryFacts) -> int:
    """Return the number of huge pages that the machine needs for a server beside what has them now."""
    return _total_pages(server, memory) - _usable_pages(server, memory) + _needed_pages(server, memory)


def _huge_pages(rule_input: RuleInput) -> Iterator[Finding]:
    server, memory = rule_input.facts.server, rule_input.facts.memory
    if server is None or memory is None:
        return
    finding = find_missing_huge_pages(server, memory, rule_input.host)
    if finding is not None:
        yield finding


def find_idle_pool(server: ServerSnapshot, memory: MemoryFacts, host: HostFacts, *, standbys: int) -> Finding | None:
    """Find whether pgdyno is to make more huge pages than a server and its standbys take; None where it makes none."""
    if server.planned_pool is None:
        return None
    return _find_idle_huge_pages(server, memory, host, servers=1 + standbys)


def _idle_huge_pages(rule_input: RuleInput) -> Iterator[Finding]:
    server, memory = rule_input.facts.server, rule_input.facts.memory
    # Of a study that makes huge pages, `find_idle_pool` tells, which knows its standbys.
    if memory is None or (server is not None and server.planned_pool is not None):
        return
    finding = _find_idle_huge_pages(server, memory, rule_input.host)
    if finding is not None:
        yield finding


def _find_idle_huge_pages(
    server: ServerSnapshot | None, memory: MemoryFacts, host: HostFacts, *, servers: int = 1
) -> Finding | None:
    if not memory.huge_page_bytes:
        return None
    total = memory.huge_pages_total if server is None else _total_pages(server, memory)
    idle = max(0, total - (memory.huge_pages_total - memory.huge_pages_free))
    if (
        server is not None
        and not _is_up(server)
        and not _is_unknown(server, memory)
        and _huge_pages_of(server) != "off"
    ):
        needed = servers * _needed_pages(server, memory)
        idle -= needed if needed <= idle else 0
    idle_bytes = idle * memory.huge_page_bytes
    if idle_bytes <= _IDLE_RATIO * host.memory_bytes:
        return None
    is_made = server is not None and server.planned_pool is not None
    return Finding(
        rule="idle-huge-pages",
        severity=Severity.WARNING,
        claim="Huge pages are reserved that nothing uses.",
        evidence=f"{idle} of {total} huge pages idle: {format_bytes(idle_bytes)} of {format_bytes(host.memory_bytes)} of memory",
        why="They are neither page cache nor memory of any other program.",
        advice=f"vm.nr_hugepages = {total - idle} is enough."
        if is_made
        else f"`sysctl vm.nr_hugepages={total - idle}`, unless a server that is not up now needs them.",
    )


def _is_unknown(server: ServerSnapshot, memory: MemoryFacts) -> bool:
    """Return whether too little is known for rules about huge pages."""
    return _is_unread(server) or _lacks_pages(server, memory)


def _is_unread(server: ServerSnapshot) -> bool:
    return bool(server.file_errors) and not server.settings


def _lacks_pages(server: ServerSnapshot, memory: MemoryFacts) -> bool:
    """Return whether this kernel has no huge pages, or the server takes pages of another size than its default."""
    return not memory.huge_page_bytes or _size(server, "huge_page_size") not in {0, memory.huge_page_bytes}


def _as_started(server: ServerSnapshot) -> ServerSnapshot:
    """Return the server with the settings of its next start; their shared memory is not counted yet."""
    if not server.waiting:
        return server
    kept = {name: value for name, value in server.settings.items() if name != _COUNT}
    return msgspec.structs.replace(server, settings={**kept, **server.waiting})


def _huge_pages_of(server: ServerSnapshot) -> str:
    """Return the value of huge_pages."""
    return server.settings.get("huge_pages", "try")


def _is_up(server: ServerSnapshot) -> bool:
    # Of a process that is up, /proc says how many huge pages it has touched.
    return server.huge_pages_bytes is not None


def _has_huge_pages(server: ServerSnapshot, memory: MemoryFacts) -> bool:
    status = server.settings.get("huge_pages_status")
    if status in {"on", "off"}:
        return status == "on"
    if server.origin is ServerOrigin.RUNNING and server.huge_pages_bytes is not None:
        return server.huge_pages_bytes > 0
    return _usable_pages(server, memory) >= _needed_pages(server, memory)


def _total_pages(server: ServerSnapshot, memory: MemoryFacts) -> int:
    return memory.huge_pages_total if server.planned_pool is None else server.planned_pool


def _usable_pages(server: ServerSnapshot, memory: MemoryFacts) -> int:
    """Return the huge pages that a start could have: the free ones, and those that the kernel adds on demand."""
    taken = memory.huge_pages_total - memory.huge_pages_free
    return (
        max(0, _total_pages(server, memory) - taken) + (memory.huge_pages_overcommit or 0) + _own_pages(server, memory)
    )


def _own_pages(server: ServerSnapshot, memory: MemoryFacts) -> int:
    """Return the huge pages that a server gives back when it restarts."""
    if not server.waiting or not server.huge_pages_bytes:
        return 0
    return math.ceil(server.huge_pages_bytes / memory.huge_page_bytes)


def _needed_pages(server: ServerSnapshot, memory: MemoryFacts) -> int:
    return _reported_pages(server) or math.ceil(_estimate_shared_bytes(server) / memory.huge_page_bytes)


def _needed_words(server: ServerSnapshot, memory: MemoryFacts) -> str:
    return f"{_about(server)}{_needed_pages(server, memory)} of {format_bytes(memory.huge_page_bytes)} needed"


def _about(server: ServerSnapshot) -> str:
    return "" if _reported_pages(server) else "about "


def _shared_bytes(server: ServerSnapshot, memory: MemoryFacts) -> float:
    # Their number counts pages of the size that the server takes.
    reported = None if _lacks_pages(server, memory) else _reported_pages(server)
    return _estimate_shared_bytes(server) if reported is None else reported * memory.huge_page_bytes


def _reported_pages(server: ServerSnapshot) -> int | None:
    """Return the number of huge pages as the server, or its program, computed it; None if it did not."""
    reported = server.settings.get(_COUNT, "")
    return int(reported) if reported.isdigit() else None


def _estimate_shared_bytes(server: ServerSnapshot) -> float:
    buffers, wal_buffers = _size(server, "shared_buffers"), _size(server, "wal_buffers")
    return buffers + estimate_other_shared_bytes(
        buffers,
        wal_buffers_bytes=wal_buffers if wal_buffers > 0 else choose_wal_buffers_bytes(buffers),
        session_count=_size(server, "max_connections") + _size(server, "max_worker_processes"),
        major=server.major,
    )


def _size(server: ServerSnapshot, name: str) -> float:
    """Return a setting in bytes, or a count."""
    guc = find_guc(name, server.major)
    return (setting_number(server, name) or 0.0) * unit_size(guc.unit if guc else None)


def setting_number(server: ServerSnapshot, name: str) -> float | None:
    """Return a setting in its own unit: as set, otherwise the built-in value; None if neither is known."""
    guc = find_guc(name, server.major)
    text = server.settings.get(name) or (guc.boot if guc else None)
    if guc is None or text is None:
        return None
    try:
        return float(read_value(guc, text))
    except ValueError:
        return None


RULES: tuple[Rule, ...] = (_start, _huge_pages, _idle_huge_pages)
