"""Ask a pooler's console, PgBouncer's own or one that understands the same words, for its counters.

The console speaks the simple protocol only, and its words are no SQL: they have no place in `run/postgres/sql.py`.
"""

from __future__ import annotations

from typing import Any

import psycopg

from pgdyno.errors import StepFailedError
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.timeouts import NoAnswerError

CONSOLE = "pgbouncer"
"""The database that stands for the console; PgCat, pgdog and others have it, too."""
APPLICATION_NAME = "pgdyno-pooler"


class Console:
    """A connection to a pooler's console."""

    def __init__(self, connection: sql.Connection) -> None:
        self._connection = connection

    def show(self, what: str) -> list[dict[str, Any]]:
        """Return the rows of `SHOW`, by their columns' names.

        Raises:
            StepFailedError: The pooler does not say.
        """
        try:
            return self._connection.execute(f"SHOW {what}".encode()).fetchall()
        except psycopg.Error as exc:
            raise StepFailedError(f"the pooler does not show its {what.lower()}", detail=str(exc).strip()) from exc

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


def open_console(address: Address) -> Console:
    """Connect to a pooler's console.

    Raises:
        StepFailedError: The pooler lets this user not in, or does not answer.
    """
    try:
        connection = sql.connect(address, application_name=APPLICATION_NAME)
    except NoAnswerError:
        raise
    except StepFailedError as exc:
        fact = "the pooler does not let this role into its console; PgBouncer does if its stats_users name it"
        raise StepFailedError(fact, detail=exc.detail) from exc
    # A statement that is asked again and again would be prepared.
    connection.prepare_threshold = None
    return Console(connection)
