"""Tell a server that is away for a while, such as one that is restarted, from one that refuses, in whatever language it speaks."""

from __future__ import annotations

import re

import psycopg

from pgdyno.errors import StepFailedError
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.postgres.timeouts import NoAnswerError

HINT_LOST = (
    "the server crashed or was restarted, or an administrator or a timeout ended the session: its log says which"
)
_LOGIN_REFUSED_FOR_S = 15.0
# For a server that asks for no password. The name of the file is in all languages.
_NOT_LET_IN = re.compile(r"pg_hba\.conf|authentication failed")


class NoConnectionError(StepFailedError):
    """The error of a server that takes no connection, or has ended one."""

    is_login_refused = False
    """Whether it asked for a login, and may no longer know the role or its password."""


def no_connection(error: psycopg.Error, *, hint: str = "") -> NoConnectionError:
    """Return the error for a connection that could not be made."""
    said = str(error).strip()
    made = NoConnectionError("cannot connect to the server", detail=said, hint=hint)
    tried = error.pgconn
    is_asked = tried is not None and (tried.needs_password or tried.used_password)
    made.is_login_refused = is_asked or _NOT_LET_IN.search(said) is not None
    return made


class ReturnWatch:
    """Judges, from one try to the next, whether a server that is waited for may still come back."""

    def __init__(self) -> None:
        self._refused_since_s: float | None = None

    def may_return(self, error: StepFailedError) -> bool:
        """Return whether the error of a try may pass: all that keeps sessions away may, except logins that are refused for long."""
        if not isinstance(error, NoConnectionError):
            return isinstance(error, NoAnswerError)
        if not error.is_login_refused:
            self._refused_since_s = None
            return True
        if self._refused_since_s is None:
            self._refused_since_s = monotonic_s()
        return monotonic_s() - self._refused_since_s < _LOGIN_REFUSED_FOR_S
