"""Describe a server that pgdyno is going to start, for the preflight. Load no analysis: `check` and `tune` answer at once."""

from __future__ import annotations

from pathlib import Path

from pgdyno.errors import PgdynoError
from pgdyno.explain.preflight.server import effective_settings
from pgdyno.record.machine.preflight import ServerOrigin, ServerSnapshot
from pgdyno.record.types import ServerFacts
from pgdyno.run.cluster.settings_check import HUGE_PAGES_COUNT, count_huge_pages
from pgdyno.run.host.process import ServerUser
from pgdyno.run.postgres.installation import Installation
from pgdyno.spec.study import ServerSpec


def describe_planned_server(
    server: ServerSpec, programs: ServerFacts, *, user: ServerUser
) -> tuple[ServerSnapshot, PgdynoError | None]:
    """Describe a server that pgdyno is going to start.

    Args:
        server: What is asked for.
        programs: Which PostgreSQL.
        user: The account that it will run as.

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
        has_assertions=None if programs.configure is None else "--enable-cassert" in programs.configure,
        settings_said=programs.settings_said,
    )
    return snapshot, refusal
