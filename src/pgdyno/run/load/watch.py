"""Tell a slow server from one that hangs, while a load runs.

A server that hangs does not end, and pgbench waits for it for ever. As long as transactions end, the server is well. When
none has ended for a while, because they are long, few or stuck, the server has to answer a new connection. A load that is
merely slow is never ended: a disk that stalls for a minute is a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.record.pgbench.output import Progress
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.timeouts import NoAnswerError

SILENCE_S = 15.0
"""How long no transaction may end before the server is asked."""
ANSWER_PATIENCE_S = 30
# When the time is over, running transactions are waited for; on a disk that hangs this would last for ever.
_OVERTIME_S = 600.0


class WatchedServer(Protocol):
    """A server that is asked whether it lives."""

    def find_failure(self) -> PgdynoError | None:
        """Return the error to raise if the server has ended."""
        ...

    def log_tail(self) -> str:
        """Return the last lines of the server's log."""
        ...

    def connect(self, *, database: str, patience_s: int | None) -> sql.Connection:
        """Connect; raise StepFailedError where the server refuses, NoAnswerError where it does not answer."""
        ...


class LoadWatch:
    """Watches over one load from the moment that it is made.

    Args:
        server: The server that is loaded.
        duration_s: Of the load; None where that is not known.
        clock: Counts the seconds in which the server runs; another one than the machine's for a server that is frozen now
            and then, which is asked only while it runs.
        find_stall: Asked, with a session, why a server that answers lets no transaction end; None: for no reason that
            waiting does not remove.
    """

    def __init__(
        self,
        server: WatchedServer,
        *,
        duration_s: float | None = None,
        clock: Callable[[], float] = monotonic_s,
        find_stall: Callable[[sql.Connection], PgdynoError | None] = lambda _: None,
    ) -> None:
        self._server = server
        self._find_stall = find_stall
        self._clock = clock
        self._sign_s = clock()
        self._unanswered: PgdynoError | None = None
        self._end_s = None if duration_s is None else self._sign_s + duration_s + _OVERTIME_S

    def see(self, second: Progress) -> None:
        """Take a second of the load as a sign of life if a transaction ended in it; if several pgbenches make it, in each of them."""
        if second.tps > 0 and not second.has_silent_part:
            self._sign_s = self._clock()
            self._unanswered = None

    def find_failure(self) -> PgdynoError | None:
        """Return the error to end the load with: the server is dead or hangs, or the load goes on long after its time."""
        if (failure := self._server.find_failure()) is not None:
            return failure
        if self._end_s is not None and self._clock() > self._end_s:
            return StepFailedError(
                f"the load did not end within {_OVERTIME_S:g} s after its time",
                detail=self._server.log_tail(),
                hint="transactions that take so long need a longer --duration; if none should, the disk may hang",
            )
        if self._unanswered is not None:
            return self._unanswered
        if self._clock() - self._sign_s < SILENCE_S:
            return None
        # Transactions that end while it is asked are seen only afterwards: with one of them, the next call finds nothing.
        self._unanswered = self._ask()
        if self._unanswered is None:
            self._sign_s = self._clock()
        return None

    def _ask(self) -> PgdynoError | None:
        """Return why no transaction ends; None where the server is merely slow."""
        try:
            with self._server.connect(database="postgres", patience_s=ANSWER_PATIENCE_S) as session:
                return self._find_stall(session)
        except NoAnswerError as exc:
            exc.detail = f"{exc.detail}; no transaction had ended for {SILENCE_S:g} s\n{self._server.log_tail()}"
            return exc
        except StepFailedError:
            # The server refuses the connection, so it lives; if it is about to die, the next check will show it.
            return None
