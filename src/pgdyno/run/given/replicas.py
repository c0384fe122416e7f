"""Replicas of a given server, which a load may read from: reach them, wait until they have its data, and tell what became of one.

They are read from and never written to or changed; what a study loads reaches them as the WAL of their primary.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from pgdyno.errors import PgdynoError, SpecError, StepFailedError
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.record.types import Gap
from pgdyno.run.given import conninfo
from pgdyno.run.given.access import open_access, with_settings
from pgdyno.run.given.database import copy_patience_s
from pgdyno.run.given.poolers import complete_dsn
from pgdyno.run.given.probe import watch_server
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.load.watch import ANSWER_PATIENCE_S
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.lost import NoConnectionError, ReturnWatch
from pgdyno.run.postgres.timeouts import NoAnswerError
from pgdyno.run.under_test import LoadServer
from pgdyno.spec.study import name_replicas
from pgdyno.spec.table import SettingValue
from pgdyno.units import format_bytes

_T = TypeVar("_T")
_LAGS = "pg_stat_replication"
_LOOK_EVERY_S = 0.1
# A restart of one takes about as long.
_RETURNS_WITHIN_S = 60.0
_HINT_AWAY = "see its log, or ask who runs it; `pgdyno resume` continues once it answers"
_HINT_LATE = (
    "pg_stat_replication on the primary and pg_stat_wal_receiver there say whether it streams; recovery_min_apply_delay,"
    " pg_wal_replay_pause() and long queries there hold its replay up"
)


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One replica, as it was seen before the study."""

    name: str
    seen: GivenServer
    way: Address
    """Where it is reached; its `dbname` is a database that exists."""

    @property
    def title(self) -> str:
        """Its name, and where it is."""
        return f"{self.name} ({self.seen.address})"


class Replicas:
    """All replicas that a study reads from. Use it from the main thread."""

    def __init__(self, replicas: Sequence[Replica] = (), *, lag_gap: Gap | None = None) -> None:
        self._all = tuple(replicas)
        self.lag_gap = lag_gap
        """Why the primary does not tell how far they lag; None if it does, and without replicas."""
        self._started_at: dict[str, str] = {}

    def __iter__(self) -> Iterator[Replica]:
        """Yield each, in the study's order."""
        return iter(self._all)

    def list_readers(self, database: str, settings: Mapping[str, SettingValue]) -> tuple[LoadServer, ...]:
        """List them as servers of a load.

        Args:
            database: What the load reads.
            settings: What its sessions ask for.
        """
        return tuple(_make_reader(one, database, settings) for one in self._all)

    def await_replay(
        self, primary: Address, database: str, *, size_bytes: int = 0, on_activity: Callable[[str], None]
    ) -> None:
        """Wait until each has replayed all that the primary has written by now.

        Args:
            primary: Where the primary is reached.
            database: Must be there then.
            size_bytes: Of what the replay may copy in one step.
            on_activity: Is told how far one is behind.

        Raises:
            StepFailedError: One does not come nearer, is no standby any more, or does not answer.
        """
        if not self._all:
            return
        with sql.connect(primary) as connection:
            target = sql.read_flushed_wal(connection)
        # A copied database may be one record of WAL.
        patience_s = copy_patience_s(size_bytes)
        for one in self._all:
            _Wait(one, target, database, patience_s=patience_s).wait(on_activity)

    def check_distinct(self) -> None:
        """Make sure that no two of them are one server, which would count as two that follow the primary.

        Raises:
            SpecError: Two are one server.
            StepFailedError: One does not answer.
        """
        self.note_starts()
        seen: dict[str, Replica] = {}
        for one in self._all:
            started_at = self._started_at[one.name]
            other = seen.setdefault(started_at, one)
            if other is not one:
                raise SpecError(
                    f"{other.title} and {one.title} are the same server",
                    detail=f"both started at {started_at}",
                    hint="name each replica once",
                )

    def note_starts(self) -> None:
        """Note when each was started, before a trial.

        Raises:
            StepFailedError: One does not answer.
        """
        self._started_at = {one.name: _ask(one, sql.read_start_time) for one in self._all}

    def check(self, *, cause: PgdynoError | None = None) -> None:
        """Make sure that each is the standby that it was when the trial began.

        Raises:
            StepFailedError: One does not answer, was restarted, or was promoted.
        """
        for one in self._all:
            try:
                now, is_standby = _ask(one, _look)
            except StepFailedError as error:
                raise error from cause
            if now != self._started_at.get(one.name, now):
                detail = f"it had started at {self._started_at[one.name]}, and again at {now}"
                raise StepFailedError(f"{one.title} was restarted in the middle of a trial", detail=detail) from cause
            if not is_standby:
                raise _no_standby(one) from cause

    def find_silence(self) -> StepFailedError | None:
        """Return the error of one that hangs; None if all answer."""
        for one in self._all:
            try:
                sql.connect(one.way, patience_s=ANSWER_PATIENCE_S).close()
            except NoAnswerError as error:
                detail = f"{error.detail}, while the primary answers"
                return StepFailedError(f"{one.title} does not answer any more", detail=detail, hint=_HINT_AWAY)
            except StepFailedError:
                # A refusal is an answer; `check` says afterwards what it was.
                continue
        return None


@contextlib.contextmanager
def open_replicas(replicas: Sequence[str], server: Address) -> Iterator[Replicas]:
    """Look at each replica, and yield all, for the length of a `with` block; see `open_ways`."""
    with open_ways(replicas, server) as ways:
        found = []
        for (name, way), dsn in zip(ways.items(), replicas, strict=True):
            with _naming(name, dsn, server) as complete:
                found.append(Replica(name=name, seen=watch_server(complete), way=way))
        yield Replicas(found, lag_gap=_find_lag_gap(server) if found else None)


@contextlib.contextmanager
def open_ways(replicas: Sequence[str], server: Address) -> Iterator[dict[str, Address]]:
    """Connect once to each replica, and yield their addresses by name, for the length of a `with` block.

    Args:
        replicas: Connection strings, of one host each; what one and its service leave out of user and database is the server's.
        server: Where the primary is reached.

    Raises:
        SpecError: One is no connection string, or needs a secret that cannot be handed on.
        StepFailedError: There is no connection to one.
    """
    with contextlib.ExitStack() as stack:
        found = {}
        for name, dsn in zip(name_replicas(len(replicas)), replicas, strict=True):
            with _naming(name, dsn, server) as complete:
                found[name] = stack.enter_context(open_access(complete))
        yield found


@contextlib.contextmanager
def _naming(replica: str, dsn: str, server: Address) -> Iterator[str]:
    """Yield the complete connection string of a replica; say of which one an error is."""
    title = replica
    try:
        complete = complete_dsn(dsn, server)
        title = f"{replica} ({conninfo.find_address(complete)})"
        yield complete
    except PgdynoError as error:
        error.fact = f"{title}: {error.fact}"
        raise


def _find_lag_gap(primary: Address) -> Gap | None:
    """Find why pg_stat_replication does not tell how far each standby of a primary lags; None if it does."""
    with sql.connect(primary) as connection:
        rows = sql.read_standbys(connection, connection.info.server_version // 10_000)
    # Every role sees that they are there, and what they are called.
    if any(row["state"] is None for row in rows):
        why = "this role sees nothing of the standbys there: pg_monitor at the primary shows how far they lag"
        return Gap(source=_LAGS, reason=why)
    names = [row["name"] for row in rows]
    shared = next((name for name in names if names.count(name) > 1), None)
    if shared is not None:
        why = f"several standbys are called {shared}: application_name in primary_conninfo would tell them apart"
        return Gap(source=_LAGS, reason=why)
    return None if names else Gap(source=_LAGS, reason="no standby streams from the primary itself")


class _Wait:
    """Waits until one replica has replayed WAL up to a byte of it."""

    def __init__(self, replica: Replica, target: int, database: str, *, patience_s: float) -> None:
        self._replica = replica
        self._target = target
        self._database = database
        self._patience_s = patience_s
        self._least_bytes: int | None = None
        self._least_s = monotonic_s()

    def wait(self, on_activity: Callable[[str], None]) -> None:
        watch, away_s = ReturnWatch(), monotonic_s()
        while True:
            try:
                with sql.connect(self._replica.way) as connection:
                    while not self._has_all(sql.read_replica_state(connection, self._database)):
                        on_activity(
                            f"{self._replica.name} has {format_bytes(self._least_bytes or 0)} of WAL left to replay"
                        )
                        away_s = monotonic_s()
                        time.sleep(_LOOK_EVERY_S)
                    return
            except _EndOfWaitError as end:
                raise end.error from None
            except StepFailedError as error:
                if monotonic_s() - away_s > _RETURNS_WITHIN_S or not watch.may_return(error):
                    raise _away(self._replica, error) from error
            time.sleep(0.5)

    def _has_all(self, state: sql.ReplicaState) -> bool:
        if not state.is_in_recovery:
            raise _EndOfWaitError(_no_standby(self._replica))
        # What comes after the target brings it no nearer.
        left_bytes = max(0, self._target - (state.replayed_bytes or 0))
        if not left_bytes and state.has_database:
            return True
        now_s = monotonic_s()
        if self._least_bytes is None or left_bytes < self._least_bytes:
            self._least_bytes, self._least_s = left_bytes, now_s
        if now_s - self._least_s > self._patience_s:
            raise _EndOfWaitError(self._describe(left_bytes, is_paused=state.is_paused))
        return False

    def _describe(self, left_bytes: int, *, is_paused: bool) -> StepFailedError:
        title = self._replica.title
        if not left_bytes:
            return StepFailedError(
                f"{title} does not get what the primary writes",
                detail=f"it has replayed as much WAL as the primary has written, and has no database {self._database}",
                hint="it follows another server, such as a copy of the primary: name replicas of the server of --dsn",
            )
        paused = "; its replay is paused" if is_paused else ""
        return StepFailedError(
            f"{title} does not replay what the primary writes",
            detail=f"it is {format_bytes(left_bytes)} behind and has not come nearer for {self._patience_s:.0f} s{paused}",
            hint=_HINT_LATE,
        )


class _EndOfWaitError(Exception):
    """What a replica said leaves nothing to wait for."""

    def __init__(self, error: StepFailedError) -> None:
        self.error = error


def _make_reader(replica: Replica, database: str, settings: Mapping[str, SettingValue]) -> LoadServer:
    address = msgspec.structs.replace(replica.way, dbname=database)
    return LoadServer(name=replica.name, address=address, load_address=with_settings(address, settings), pid=None)


def _ask(replica: Replica, read: Callable[[sql.Connection], _T]) -> _T:
    try:
        with sql.connect(replica.way) as connection:
            return read(connection)
    except StepFailedError as error:
        raise _away(replica, error) from error


def _look(connection: sql.Connection) -> tuple[str, bool]:
    """Return when a server was started, and whether it is a standby."""
    return sql.read_start_time(connection), sql.is_in_recovery(connection)


def _away(replica: Replica, error: StepFailedError) -> StepFailedError:
    if not isinstance(error, NoConnectionError | NoAnswerError):
        return StepFailedError(f"{replica.title} refuses what pgdyno asks", detail=error.reason, hint=error.hint)
    detail = error.detail if isinstance(error, NoAnswerError) else error.reason
    return StepFailedError(f"{replica.title} does not answer any more", detail=detail, hint=_HINT_AWAY)


def _no_standby(replica: Replica) -> StepFailedError:
    return StepFailedError(
        f"{replica.title} is no standby any more",
        detail="pg_is_in_recovery() is false there",
        hint="it was promoted: name another one, or begin a study of the new primary",
    )
