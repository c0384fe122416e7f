"""Keep two pgdynos from loading one server at a time.

A study keeps a session there whose application_name says so: every role sees that name, of sessions in all databases, while
an advisory lock holds in one database only. Two that begin at the same instant see each other, and both give up.
"""

from __future__ import annotations

import contextlib

import msgspec

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address

_NAME = "pgdyno-study"
_AT_WORK = "another pgdyno is at work in this server"
# A NAT or load balancer forgets connections over which nothing goes for some minutes.
_KEEPALIVES = {"keepalives_idle": "60", "keepalives_interval": "10", "keepalives_count": "6"}
_HINT = "wait until it has ended: each would disturb the other"


def is_study_at_work(address: Address) -> bool:
    """Return whether a study keeps its session in a server.

    Raises:
        StepFailedError: There is no connection, or the server refuses the query.
    """
    with sql.connect(address) as connection:
        return sql.count_named_sessions(connection, _NAME) > 0


def refuse_second_study(address: Address) -> None:
    """Raise an error if a study keeps its session in a server; see `is_study_at_work`."""
    if is_study_at_work(address):
        raise HostError(_AT_WORK, hint=_HINT)


class StudyLock:
    """The session of a study. It is taken when it is made; close it at the end.

    Args:
        address: From `open_access`. Behind a pooler that shares sessions among transactions it must not be used: the name
            would stay with a session of somebody else.

    Raises:
        HostError: Another study is there.
        StepFailedError: There is no connection.
    """

    def __init__(self, address: Address) -> None:
        self._address = msgspec.structs.replace(address, parameters={**_KEEPALIVES, **address.parameters})
        self._mark: tuple[int, str] | None = None
        self._session = self._take()

    def check(self) -> None:
        """Make sure that the session is still there, and take it anew where a timeout or a restart has ended it.

        Raises:
            HostError: Another study has begun in between.
            StepFailedError: There is no connection.
        """
        try:
            sql.ping(self._session)
        except StepFailedError:
            self.close()
            self._session = self._take()

    def close(self) -> None:
        """End the session."""
        with contextlib.suppress(StepFailedError):
            self._session.close()

    def _take(self) -> sql.Connection:
        session = sql.connect(self._address)
        try:
            if self._mark is not None:
                # If only the connection was lost, the server keeps the old session for hours.
                sql.end_named_session(session, _NAME, self._mark)
            self._mark = sql.mark_session(session)
            sql.name_session(session, _NAME)
            count = sql.count_named_sessions(session, _NAME)
        except BaseException:
            session.close()
            raise
        if count > 1:
            session.close()
            raise HostError(_AT_WORK, hint=_HINT)
        return session
