"""Ask a pooler's console, PgBouncer's own or one that understands the same words, for its counters.

The console speaks the simple protocol only, and its words are no SQL: they have no place in `run/postgres/sql.py`.
"""

from __future__ import annotations

from typing import Any

import psycopg

from pgdyno.errors import StepFailedError
from pgdyno.run.postgres import sql, timeouts
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.timeouts import NoAnswerError

CONSOLE = "pgbouncer"
"""The database that stands for the console; PgCat, pgdog and others have it, too."""
APPLICATION_NAME = "pgdyno-pooler"
SHOW_PATIENCE_S = 10.0
"""How long the console may take for one answer. It reads counters in memory, and waits for no server."""
LOGIN_PATIENCE_S = 30
"""How long a pooler may take to answer a new connection to its console, before it counts as one that hangs."""


class SilentPoolerError(StepFailedError):
    """The error of a pooler that takes connections and answers none."""

    def __init__(self, name: str, *, detail: str, hint: str) -> None:
        super().__init__(f"the pooler {name} does not answer", detail=detail, hint=hint)


class Console:
    """A connection to a pooler's console."""

    def __init__(self, connection: sql.Connection) -> None:
        self._connection = connection

    def show(self, what: str) -> list[dict[str, Any]]:
        """Return the rows of `SHOW`, by their columns' names.

        Raises:
            StepFailedError: The pooler refuses, or does not answer within `SHOW_PATIENCE_S`; then the connection is unusable.
        """
        try:
            with timeouts.limit(self._connection, SHOW_PATIENCE_S):
                return self._connection.execute(f"SHOW {what}".encode()).fetchall()
        except NoAnswerError as exc:
            raise StepFailedError("the pooler does not answer", detail=exc.detail) from exc
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


def find_silence(name: str, console: Address, *, hint: str) -> SilentPoolerError | None:
    """Return the error of a pooler that does not answer; None if it does.

    A refusal is an answer. The console needs no server connection, so that a pool whose connections are all in use is no silence.

    Args:
        name: What the study calls the pooler.
        console: Where its console is reached.
        hint: What the user may try.
    """
    try:
        sql.connect(console, application_name=APPLICATION_NAME, patience_s=LOGIN_PATIENCE_S).close()
    except NoAnswerError as exc:
        detail = f"no transaction ends any more, and while the server answers, the pooler gave {exc.detail}"
        return SilentPoolerError(name, detail=detail, hint=hint)
    except StepFailedError:
        return None
    return None
