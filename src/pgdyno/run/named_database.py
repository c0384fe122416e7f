"""A database of the user's in a given server as trials see it: taken as it is, and only read unless the user says otherwise.

Nothing is created, copied, restored, vacuumed, analysed or dropped there, and no checkpoint is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.types import PlannedPooler
from pgdyno.record.samples.pings import PING
from pgdyno.record.types import Dataset, Gap, ServerFacts
from pgdyno.run.given.access import with_settings
from pgdyno.run.given.bounds import Bound
from pgdyno.run.given.lock import StudyLock
from pgdyno.run.given.machine import ServerMachine
from pgdyno.run.given.poolers import try_pooler
from pgdyno.run.given_server import GivenServerUnderTest
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.spec.study import DataSpec
from pgdyno.spec.table import CacheState, SettingValue

_READ_ONLY: Mapping[str, SettingValue] = {"default_transaction_read_only": "on"}
# A function that somebody else made there does not run in pgdyno's own queries.
_CAREFUL: Mapping[str, SettingValue] = {"search_path": "pg_catalog"}
_NOT_PINGED = Gap(
    source=PING, reason="a ping would wait for a server connection in the same pool as the load's clients"
)


class NamedDatabaseUnderTest(GivenServerUnderTest):
    """A named database of a server behind a connection string; implements `ServerUnderTest`. Use it from the main thread.

    Args:
        database: Its name.
        may_write: Whether its sessions may write; else each asks for read-only transactions when it begins.
        address: From `open_access`; its `dbname` is another database, or the same.
        facts: Which PostgreSQL it is.
        generator: Tries the scripts.
        lock: As for `GivenServerUnderTest`.
        bounds: Likewise.
    """

    def __init__(
        self,
        *,
        database: str,
        may_write: bool,
        address: Address,
        facts: ServerFacts,
        generator: Pgbench,
        lock: StudyLock | None,
        bounds: Sequence[Bound],
        machine: ServerMachine | None = None,
    ) -> None:
        super().__init__(
            address=address,
            facts=facts,
            generator=generator,
            may_checkpoint=False,
            lock=lock,
            bounds=bounds,
            machine=machine,
        )
        self._named = msgspec.structs.replace(address, dbname=database)
        self._guard = {} if may_write else _READ_ONLY

    @property
    def address(self) -> Address:
        """Where pgdyno itself reaches the database."""
        return with_settings(self._named, {**_CAREFUL, **self._guard} if self._guard else {})

    @property
    def direct_address(self) -> Address:
        """Where the load reaches it without a pooler; of two options of one name the last counts."""
        return with_settings(with_settings(self._named, self._settings), self._guard)

    @property
    def unseen(self) -> tuple[Gap, ...]:
        """What no trial can observe; while one runs, also pings, if they would wait in the load's pool.

        A pooler has one pool for each database and user.
        """
        is_between = self._lock is None and self._named.dbname == self._aside.side_dbname
        is_shared = self._endpoint is not None or is_between
        return (*super().unseen, *([_NOT_PINGED] if is_shared else []))

    def check_guard(self) -> None:
        """Make sure that sessions are what they ask to be.

        Raises:
            SpecError: The server refuses that they only read, or a pooler forgets it.
            StepFailedError: There is no connection to the database.
        """
        sql.connect(self._named).close()
        if not self._guard:
            return
        try:
            self.try_settings(self._guard)
        except SpecError as error:
            error.fact = f"sessions cannot be kept from writing: {error.fact}"
            raise
        # What one session of the pooler was asked for, another one need not have.
        if self._lock is None:
            raise SpecError(
                "sessions cannot be kept from writing: a pooler in between is in transaction mode",
                hint="connect to the server itself",
            )

    def try_pooler(self, pooler: PlannedPooler, *, keeps_statements: bool) -> None:
        """Try a pooler in front of the server; see `poolers.try_pooler`.

        Raises:
            SpecError: The load may only read, and the pooler's sessions cannot be kept from writing.
        """
        if self._guard:
            raise SpecError(
                f"sessions through the pooler {pooler.name} cannot be kept from writing",
                detail="that is an option of their connections, which poolers refuse or forget",
                hint=f"allow it with --allow writes={self._named.dbname}, or leave out --database: pgdyno then loads one of its own",
            )
        way = self.find_way(pooler.name)
        try_pooler(pooler, way, server=self._aside, started_at=self._read_start(), keeps_statements=keeps_statements)

    def load(
        self,
        data: DataSpec,  # noqa: ARG002 - it names this database
        scale: int,
        *,
        settings: Mapping[str, SettingValue],  # noqa: ARG002 - a given server keeps its own
        output_dir: Path,  # noqa: ARG002 - there is no output
        on_activity: Callable[[str], None],
    ) -> Dataset:
        """Look at what is there."""
        on_activity("looking at its tables")
        with self.connect() as connection:
            relations = sql.read_dataset(connection)
        return Dataset(
            scale=scale,
            relations=relations,
            total_bytes=sum(relation.bytes for relation in relations),
            init_argv=(),
            init_steps_s={},
            init_total_s=0.0,
            is_reused=True,
        )

    def reset(self, on_activity: Callable[[str], None] = lambda _: None) -> float:
        """Leave the data as they are, once the server answers and its replicas have replayed what is there."""
        self._await_return(None, waits_for_answer=False)
        if self._lock is not None:
            self._lock.check()
        self._await_replicas(on_activity)
        return 0.0

    def close(self) -> None:
        """Leave the data as they are."""

    def prepare_cache(self, state: CacheState) -> None:
        """Leave the caches as they are.

        Raises:
            SpecError: A cold cache is asked for.
        """
        if state is CacheState.COLD:
            super().prepare_cache(state)
