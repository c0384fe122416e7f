"""Describe a server that pgdyno is going to start, for the preflight. Load no analysis: `check` and `tune` answer at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.explain.finding import Finding
from pgdyno.explain.preflight.server import effective_settings
from pgdyno.explain.preflight.shared_memory import (
    find_crowding,
    find_idle_pool,
    find_standby_crowding,
    find_start_obstacle,
)
from pgdyno.facts.gucs import Context, find_guc
from pgdyno.plan.experiment import Variant, identify_server
from pgdyno.plan.live import HUGE_PAGES
from pgdyno.plan.variants import plan_experiment
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import MemoryFacts, PreflightFacts, ServerOrigin, ServerSnapshot
from pgdyno.record.types import ServerFacts
from pgdyno.run.cluster.settings_check import HUGE_PAGES_COUNT, count_huge_pages
from pgdyno.run.host.process import ServerUser
from pgdyno.run.postgres.installation import Installation
from pgdyno.spec.study import ServerSpec, Study


def describe_planned_server(
    server: ServerSpec, programs: ServerFacts, *, user: ServerUser, sysctl: Mapping[str, str] | None = None
) -> tuple[ServerSnapshot, PgdynoError | None]:
    """Describe a server that pgdyno is going to start.

    Args:
        server: What is asked for.
        programs: Which PostgreSQL.
        user: The account that it will run as.
        sysctl: The kernel settings that pgdyno sets before it starts the server.

    Returns:
        The server, and why its program did not count the huge pages: a SpecError is its refusal of a setting.
    """
    settings, refusal = effective_settings(server.settings), None
    try:
        pages = count_huge_pages(Installation(bindir=Path(programs.bindir), facts=programs), settings, user=user)
        settings |= {} if pages is None else {HUGE_PAGES_COUNT: str(pages)}
    except PgdynoError as error:
        refusal = error
    snapshot = ServerSnapshot(
        origin=ServerOrigin.PLANNED,
        major=programs.major,
        settings=settings,
        planned_pool=_read_pool(sysctl or {}),
        has_assertions=None if programs.configure is None else "--enable-cassert" in programs.configure,
        settings_said=programs.settings_said,
    )
    return snapshot, refusal


def describe_main_server(
    study: Study, programs: ServerFacts, *, user: ServerUser
) -> tuple[ServerSnapshot, PgdynoError | None]:
    """Describe a study's main server, in a comparison that of its reference, as `describe_planned_server` does."""
    experiment = plan_experiment(study, version_major=programs.major)
    if experiment is None:
        return describe_planned_server(study.server, programs, user=user)
    reference = experiment.reference
    return describe_planned_server(reference.server, programs, user=user, sysctl=reference.sysctl)


def find_variant_obstacles(
    study: Study,
    host: HostFacts,
    facts: PreflightFacts,
    *,
    main: ServerFacts,
    others: Mapping[str, ServerFacts],
    user: ServerUser,
) -> Iterator[Finding]:
    """Find the variants, other than the reference, whose server gets no shared memory here, or not enough for all at once.

    Servers of which more huge pages are made than they and their standbys take, or that have not enough memory for their standbys,
    are found as well, that of the reference too.

    Args:
        study: What is going to run.
        host: The machine.
        facts: Its state, with the server of the reference.
        main: The PostgreSQL of the reference.
        others: The PostgreSQL of each variant that runs on another one, by the variant's name.
        user: The account that the servers will run as.
    """
    standbys = study.server.standbys
    if facts.memory is None or facts.server is None:
        return
    yield from _find_pool_and_crowding(facts.server, facts.memory, host, standbys=standbys)
    experiment = plan_experiment(study, version_major=main.major)
    if experiment is None:
        return
    reference = experiment.reference
    seen = {_memory_key(reference, main.major): facts.server}
    # A round has the reference twice.
    together = [facts.server, facts.server]
    for variant in experiment.variants[1:]:
        programs = others.get(variant.name, main)
        key = _memory_key(variant, programs.major)
        if key not in seen:
            seen[key], _ = describe_planned_server(variant.server, programs, user=user, sysctl=variant.sysctl)
            finding = find_start_obstacle(seen[key], facts.memory, host)
            if finding is not None:
                yield msgspec.structs.replace(finding, claim=f"{variant.name}: {finding.claim}")
                continue
            for finding in _find_pool_and_crowding(seen[key], facts.memory, host, standbys=standbys):
                yield msgspec.structs.replace(finding, claim=f"{variant.name}: {finding.claim}")
        together.append(seen[key])
    crowding = find_crowding(together, facts.memory, host) if experiment.is_side_by_side else None
    if crowding is not None:
        yield crowding


def _find_pool_and_crowding(
    server: ServerSnapshot, memory: MemoryFacts, host: HostFacts, *, standbys: int
) -> Iterator[Finding]:
    for find in (find_standby_crowding, find_idle_pool):
        if (finding := find(server, memory, host, standbys=standbys)) is not None:
            yield finding


def _memory_key(variant: Variant, major: int) -> tuple[object, ...]:
    """Return a key that is equal for variants whose servers take the same shared memory."""
    shaping = {
        name: str(value)
        for name, value in variant.server.settings.items()
        if (guc := find_guc(name, major)) is None or guc.context is Context.POSTMASTER
    }
    return identify_server(variant.server), variant.sysctl.get(HUGE_PAGES), tuple(sorted(shaping.items()))


def _read_pool(sysctl: Mapping[str, str]) -> int | None:
    pool = sysctl.get(HUGE_PAGES, "").strip()
    return int(pool) if pool.isdecimal() else None
