"""Read what pg_stat_statements counts of the measured load. Nothing is reset, and what is not there is a gap."""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.errors import StepFailedError
from pgdyno.record.statements import STATEMENTS, StatementsLook, subtract
from pgdyno.record.types import Gap
from pgdyno.run.postgres import sql
from pgdyno.run.trial_stage import Observed
from pgdyno.run.under_test import LoadServer, ServerUnderTest

_REMEDY = (
    "shared_preload_libraries = 'pg_stat_statements' and CREATE EXTENSION pg_stat_statements in {database} show them"
)


def look_before(server: ServerUnderTest, seen: Observed, loaded: Sequence[LoadServer]) -> None:
    """Keep what the view counted before the measured load; of a load that reads from standbys, nothing."""
    if not server.seeks_statements:
        return
    if any(one.address != server.address for one in loaded):
        reason = "the load reads from standbys, of which statements are not counted"
        seen.gaps = (*seen.gaps, Gap(source=STATEMENTS, reason=reason))
        return
    seen.statements_before = _look(server, seen)


def look_after(server: ServerUnderTest, seen: Observed) -> None:
    """Keep what the measured load added."""
    if seen.statements_before is None or (after := _look(server, seen)) is None:
        return
    growth = subtract(seen.statements_before, after)
    seen.statements = growth.statements or None
    if growth.flaw is not None:
        seen.gaps = (*seen.gaps, Gap(source=STATEMENTS, reason=growth.flaw))


def _look(server: ServerUnderTest, seen: Observed) -> StatementsLook | None:
    # The load's database is a copy without the extension; one view shows the statements of all databases.
    with server.connect(database="postgres") as connection:
        database = connection.info.dbname
        reason = f"the database {database} has no such extension"
        try:
            look = sql.read_statements(connection, watched_database=server.address.dbname)
        except StepFailedError as error:
            if connection.broken:
                raise
            # The server's own words, without the query.
            look, reason = None, error.detail.splitlines()[0]
    if look is None:
        reason = f"{reason}; {_REMEDY.format(database=database)}"
        seen.gaps = (*seen.gaps, Gap(source=STATEMENTS, reason=reason))
    return look
