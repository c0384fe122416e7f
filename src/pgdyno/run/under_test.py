"""The protocol of the server under test: one of pgdyno's own (`own_server.py`), or a given one (`given_server.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.plan.experiment import Variant
from pgdyno.plan.types import PlannedPooler, PlannedWorkload
from pgdyno.record.types import Dataset, Gap, ServerFacts
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.sample.child import WatchedMachine
from pgdyno.spec.pooler import PRIMARY, REPLICAS
from pgdyno.spec.study import DataSpec
from pgdyno.spec.table import CacheState, SettingValue


class FollowedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the topology beside the primary, for the OS sampler."""

    label: str
    """Its name in the samples."""
    pid: int
    has_descendants: bool = False
    """Whether its descendants are followed with it, as one."""


class LoadServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that clients of the load connect to, directly or through a pooler."""

    name: str
    address: Address
    """Where its loaded database is reached."""
    load_address: Address
    """Where the load reaches it without a pooler, with what only its own sessions ask for."""
    pid: int | None
    """The postmaster's process id; None if its machine is not this one."""


class WatchedPooler(msgspec.Struct, frozen=True, kw_only=True):
    """The pooler that the load connects to, for the samplers."""

    name: str
    pid: int | None
    """Its process; None of one that pgdyno has not started."""
    console: Address
    """Where its counters are asked for."""


class SettingsChanger(Protocol):
    """Changes the settings of a running server."""

    def change(self, variant: Variant) -> None:
        """Put a variant's settings in force, and return once the server confirms them.

        Raises:
            StepFailedError: The server does not confirm them.
        """
        ...


class SettingsSwitch(Protocol):
    """The settings of several variants, to alternate while the server runs."""

    def common(self, settings: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
        """Return those of the settings that no variant changes: what the server is started with."""
        ...

    def open(self, connection: sql.Connection) -> SettingsChanger:
        """Return what changes the settings, over a connection that it keeps for itself."""
        ...


class ServerUnderTest(Protocol):
    """A server with loaded data, that trials run on one after the other."""

    @property
    def facts(self) -> ServerFacts:
        """Which PostgreSQL it is."""
        ...

    @property
    def address(self) -> Address:
        """Where its loaded database is reached."""
        ...

    @property
    def load_address(self) -> Address:
        """Where the load reaches it, directly or through a pooler, with what only its own sessions ask for."""
        ...

    @property
    def direct_address(self) -> Address:
        """Where the load reaches it without a pooler, with what only its own sessions ask for."""
        ...

    @property
    def pooler(self) -> WatchedPooler | None:
        """The pooler that the load connects to, while it runs; None if the load connects to the server itself."""
        ...

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, while it runs; None if its machine is not this one."""
        ...

    @property
    def standby_processes(self) -> tuple[FollowedProcess, ...]:
        """The processes of the standbys that pgdyno runs beside it, while it runs."""
        ...

    @property
    def shows_standbys(self) -> bool:
        """Whether it tells how far its standbys lag, while it runs."""
        ...

    @property
    def readers(self) -> tuple[LoadServer, ...]:
        """Its standbys from which a load may read, while it runs."""
        ...

    @property
    def block_device(self) -> str | None:
        """The device that its data lie on, by the kernel's name; None where there is none."""
        ...

    @property
    def watched(self) -> WatchedMachine | None:
        """The machine of a server elsewhere, if it is watched."""
        ...

    @property
    def unseen(self) -> tuple[Gap, ...]:
        """What trials on it cannot observe; while it runs, also what the load's way to it does not allow."""
        ...

    @property
    def seeks_statements(self) -> bool:
        """Whether pg_stat_statements should be there."""
        ...

    def load(
        self,
        data: DataSpec,
        scale: int,
        *,
        settings: Mapping[str, SettingValue],
        output_dir: Path,
        on_activity: Callable[[str], None],
    ) -> Dataset:
        """Load the data that all trials begin with; reuse them where they are loaded already.

        Args:
            data: What to load.
            scale: pgbench's scale.
            settings: Of the trials, tried before anything is loaded.
            output_dir: Where the outputs of loading are kept.
            on_activity: Receives what loading does now.

        Raises:
            SpecError: The server refuses a setting.
            StepFailedError: Loading failed.
        """
        ...

    def reset(self, on_activity: Callable[[str], None] = ...) -> float:
        """Bring the data back to the state that a trial begins with. Return the seconds that it took.

        Args:
            on_activity: Receives how far it is, where it takes long and that is known.
        """
        ...

    def running(
        self, settings: Mapping[str, SettingValue], *, log_path: Path, pooler: PlannedPooler | None = None
    ) -> AbstractContextManager[None]:
        """Run the server with these settings for the length of a `with` block, and append its log to a file.

        Args:
            settings: Of the server.
            log_path: The file; logs of what runs beside the server lie in its folder.
            pooler: What the load connects to in place of the server.

        Raises:
            SpecError: The server refuses a setting.
            StepFailedError: It does not start, or ended within the block, with the end of its log.
        """
        ...

    def connect(self, *, database: str | None = None, patience_s: int | None = None) -> sql.Connection:
        """Connect to the loaded database, or to another one; see `sql.connect`."""
        ...

    def checkpoint(self, connection: sql.Connection) -> None:
        """Write everything dirty to disk now, where that is allowed."""
        ...

    def prepare_cache(self, state: CacheState) -> None:
        """Make the caches of the running server warm or cold, or leave them as they are."""
        ...

    def prepare_switch(self, variants: Sequence[Variant]) -> SettingsSwitch:
        """Prepare to alternate the settings of variants, after `reset` and before `running`; the first is in force."""
        ...

    def find_failure(self) -> PgdynoError | None:
        """Return the error to raise if the server has ended; None while it runs."""
        ...

    def find_stall(self, session: sql.Connection) -> PgdynoError | None:
        """Return why the server lets no transaction end although it answers; None if nothing is known to be wrong."""
        ...

    def log_tail(self) -> str:
        """Return the last lines of the server's log."""
        ...


def find_session_address(server: ServerUnderTest) -> Address:
    """Return where a session has the settings of the load's sessions: behind a pooler, whose own sessions are the load's.

    In a server of pgdyno's own, all sessions have them.
    """
    return server.load_address if server.pooler is None and server.pid is None else server.address


def list_load_servers(server: ServerUnderTest, load: PlannedWorkload) -> tuple[LoadServer, ...]:
    """List the servers that a load's clients connect to, directly or through a pooler."""
    found: list[LoadServer] = []
    if any(endpoint != REPLICAS for endpoint in load.endpoints):
        direct = server.direct_address
        found.append(LoadServer(name=PRIMARY, address=server.address, load_address=direct, pid=server.pid))
    if REPLICAS in load.endpoints:
        found += server.readers
    return tuple(found)
