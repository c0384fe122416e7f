"""Look at the servers that pgdyno itself started for a study: they are gone by the time of its report.

The server of each variant has settings of its own, so what is said of one names the variant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.explain.finding import Finding
from pgdyno.explain.preflight.shared_memory import choose_pool, find_missing_huge_pages
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import MemoryFacts, ServerOrigin, ServerSnapshot
from pgdyno.record.types import StudyRecord

# Settings that only a running server of pgdyno's own shows. Durability is judged from the trials, variant by variant.
_SERVER_REPORTED = frozenset(
    {"huge_pages", "huge_pages_status", "shared_buffers", "shared_memory_size_in_huge_pages", "debug_assertions"}
)


def look_at_trials(record: StudyRecord, analysis: StudyAnalysis) -> dict[tuple[str, ...], ServerSnapshot]:
    """Return the servers of a study as their trials saw them, by the variants of the trial; without a comparison, one server."""
    seen: dict[tuple[str, ...], ServerSnapshot] = {}
    for trial in analysis.trials:
        settings = {one.name: one.value for one in trial.record.settings if one.name in _SERVER_REPORTED}
        if settings:
            server = ServerSnapshot(
                origin=ServerOrigin.RUNNING,
                major=record.server.major,
                settings=settings,
                has_assertions=settings.get("debug_assertions") == "on",
            )
            seen.setdefault(trial.record.planned.variants, server)
    return seen


def find_servers_without_huge_pages(
    servers: Mapping[tuple[str, ...], ServerSnapshot], memory: MemoryFacts, host: HostFacts
) -> Iterator[Finding]:
    """Yield one finding for all servers of a study that did without huge pages, with the figures of the largest one.

    Args:
        servers: The servers, by the variants that ran on them.
        memory: The machine's memory before the first trial.
        host: The machine.
    """
    found = {of: one for of, server in servers.items() if (one := find_missing_huge_pages(server, memory, host))}
    if not found:
        return
    worst = min((one.severity for one in found.values()), key=lambda severity: severity.rank)
    named = [of for of, one in found.items() if one.severity is worst]
    largest = max(named, key=lambda of: choose_pool(servers[of], memory))
    # Where all servers are alike in this, no variant is to be told apart.
    names = list(dict.fromkeys(name for of in named for name in of)) if len(named) < len(servers) else []
    whose = f" of variant{'s' * (len(names) > 1)} {', '.join(names)}" if names else ""
    yield msgspec.structs.replace(
        found[largest],
        claim=f"huge_pages = try, and the server{'s' * (len(named) > 1)}{whose} got none.",
        # A restart of the server is no advice: pgdyno starts another one in the next study.
        advice=f"`sysctl vm.nr_hugepages={choose_pool(servers[largest], memory)}`, then measure again: pgdyno starts its"
        " servers anew.",
    )
