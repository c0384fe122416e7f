"""A server of pgdyno's own as a trial sees it: a disposable cluster that is restored before each trial, by default as a copy of a loaded one.

It may have standbys, which are copies of the same loaded cluster and live and die with it.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.plan.experiment import Variant
from pgdyno.plan.types import PlannedPooler
from pgdyno.record.statements import STATEMENTS
from pgdyno.record.types import Dataset, Gap, ServerFacts
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.load_access import LoadAccess
from pgdyno.run.cluster.restoring import restore_cluster
from pgdyno.run.cluster.server import DATABASE, Server
from pgdyno.run.cluster.standby import PRIMARY_SETTINGS, Standbys, SwitchedFiles
from pgdyno.run.cluster.template import Template, prepare_template
from pgdyno.run.cluster.variant_settings import VariantFiles
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.facts import read_disk_facts
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.pooler.pgbouncer import Pgbouncer
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.installation import Installation
from pgdyno.run.under_test import FollowedProcess, LoadServer, WatchedPooler
from pgdyno.spec.study import DataSpec, RestorePolicy
from pgdyno.spec.table import CacheState, SettingValue

_DYING_S = 0.5


class OwnServer:
    """A cluster in a home's work folder; implements `ServerUnderTest`. Use it from the main thread.

    Args:
        installation: Which PostgreSQL.
        home: Where the cluster and the loaded one lie.
        port: The TCP port on which it listens beside its socket; None: the socket only.
        standbys: How many standbys stream from it.
        fails_over: Whether each trial ends this server and lets one of its standbys take over.
        access: How load hosts reach it; None: the load comes from this machine.
    """

    def __init__(
        self,
        *,
        installation: Installation,
        home: Home,
        port: int | None = None,
        standbys: int = 0,
        fails_over: bool = False,
        access: LoadAccess | None = None,
    ) -> None:
        self._installation = installation
        self._home = home
        self._port = port
        self._access = access
        self._template: Template | None = None
        self._data = DataSpec()
        self._server: Server | None = None
        self._settings: Mapping[str, SettingValue] = {}
        self._fails_over = fails_over
        self._retired: Server | None = None
        self._ended: frozenset[int] = frozenset()
        self._standbys = Standbys(standbys, installation=installation, home=home, take_over=fails_over, access=access)
        self._pooler: Pgbouncer | None = None

    def in_slot(self, number: int) -> OwnServer:
        """Return a server of the same PostgreSQL and data that runs beside others, each in a slot of its own.

        It has no port and no standbys. No load host reaches it: no design that runs several servers takes any.

        Raises:
            HostError: As for `Home.slot`.
        """
        return self._with_data(self._home.slot(number), port=None, standbys=0)

    def in_home(self, home: Home) -> OwnServer:
        """Return a server of the same PostgreSQL and data whose cluster lies elsewhere."""
        return self._with_data(home, port=self._port, standbys=len(self._standbys.names))

    def _with_data(self, home: Home, *, port: int | None, standbys: int) -> OwnServer:
        other = OwnServer(
            installation=self._installation,
            home=home,
            port=port,
            standbys=standbys,
            fails_over=self._fails_over,
            access=self._access,
        )
        other._template, other._data = self._template, self._data
        return other

    @property
    def facts(self) -> ServerFacts:
        """Which PostgreSQL it is."""
        return self._installation.facts

    @property
    def address(self) -> Address:
        """Where its loaded database is reached."""
        return self._running.address

    @property
    def load_address(self) -> Address:
        """Where the load connects: the pooler if there is one, else the server; with load hosts, where those reach it."""
        if self._pooler is None:
            return self.direct_address
        return self._pooler.address if self._access is None else self._access.reach(DATABASE, is_pooled=True)

    @property
    def direct_address(self) -> Address:
        """Where a load that avoids the pooler connects."""
        return self._running.load_address

    @property
    def pooler(self) -> WatchedPooler | None:
        """The pooler that the load connects to, while it runs."""
        return None if self._pooler is None else self._pooler.watched

    @property
    def pid(self) -> int:
        """The postmaster's process id, while it runs."""
        return self._running.pid

    @property
    def standby_processes(self) -> tuple[FollowedProcess, ...]:
        """The processes of its standbys, while they run."""
        return self._standbys.processes

    @property
    def shows_standbys(self) -> bool:
        """Whether it has any."""
        return bool(self._standbys)

    @property
    def readers(self) -> tuple[LoadServer, ...]:
        """Its standbys, from which a load may read, while they run."""
        return self._standbys.readers

    @property
    def block_device(self) -> str | None:
        """The device that its data lie on, by the kernel's name; None where there is none."""
        return read_disk_facts(self._home.data).block_device

    @property
    def watched(self) -> None:
        """None: the machine is this one."""
        return

    @property
    def unseen(self) -> tuple[Gap, ...]:
        """Empty: trials on it can observe everything."""
        return ()

    @property
    def seeks_statements(self) -> bool:
        """Whether the settings load pg_stat_statements, which costs time, so it is loaded only on request."""
        loaded = str(self._settings.get("shared_preload_libraries", ""))
        return STATEMENTS in re.split(r"[\s,'\"]+", loaded)

    def load(
        self,
        data: DataSpec,
        scale: int,
        *,
        settings: Mapping[str, SettingValue],
        output_dir: Path,
        on_activity: Callable[[str], None],
    ) -> Dataset:
        """Load a cluster that trials are copied from; see `prepare_template`."""
        self._data = data
        self._template = prepare_template(
            installation=self._installation,
            home=self._home,
            data=data,
            scale=scale,
            settings=settings,
            output_dir=output_dir,
            on_activity=on_activity,
        )
        return self._template.dataset

    def reset(self, on_activity: Callable[[str], None] = lambda _: None) -> float:
        """Bring the cluster and its standbys to the state that a trial begins with, on disk. Return the seconds that it took."""
        if self._template is None:
            raise RuntimeError("nothing was loaded")
        restore_s = restore_cluster(self._template, self._home, self._data, on_activity=on_activity)
        return restore_s + self._standbys.reset(self._template, on_activity)

    @contextlib.contextmanager
    def running(
        self, settings: Mapping[str, SettingValue], *, log_path: Path, pooler: PlannedPooler | None = None
    ) -> Iterator[None]:
        """Run the server, its standbys and its pooler for the length of a `with` block.

        It is stopped without a checkpoint, because its data are thrown away, or shut down in order if the next trial goes on with them.
        """
        # A trial that fails leaves data with which no other should begin.
        self._home.aged_from = None
        server = Server(
            installation=self._installation, home=self._home, log_path=log_path, port=self._port, access=self._access
        )
        self._server, self._retired = server, None
        self._settings = {**PRIMARY_SETTINGS, **settings} if self._standbys else settings
        try:
            server.start(self._settings)
            self._standbys.start(server, self._settings, log_folder=log_path.parent)
            self._prepare_database()
            if pooler is not None:
                self._pooler = Pgbouncer(pooler, server, log_folder=log_path.parent)
                self._pooler.start()
            yield
            if (failure := self.find_failure()) is not None:
                raise failure
            if self._retired is None:
                self._standbys.check_streaming(server)
            if self._data.restore is RestorePolicy.NONE and self._template is not None:
                self._stop_in_order(server, aged_from=self._template.data_dir)
        except PgdynoError as exc:
            # A dead server explains every other failure; its log has the reason.
            if (failure := self._await_failure()) is None:
                raise
            raise failure from exc
        finally:
            if self._pooler is not None:
                self._pooler.abandon()
                self._pooler = None
            self._standbys.abandon()
            if self._retired is not None:
                self._running.abandon()
                self._retired.home.end_servers()
            server.abandon()

    def _prepare_database(self) -> None:
        if self._access is not None:
            with self.connect() as connection:
                self._access.make_role(connection)
            # A load host is let into a standby once the role is there, too.
            self._standbys.await_replay(self._running)
        if self.seeks_statements:
            with self.connect(database="postgres") as connection:
                sql.create_statements_extension(connection)

    @property
    def hosts_address(self) -> Address:
        """Where clients reach whichever of the server and its standbys takes writes: libpq's list of hosts."""
        hosts = ",".join((self._running.address.host, *self._standbys.socket_folders))
        return msgspec.structs.replace(self.address, host=hosts, parameters={"target_session_attrs": "read-write"})

    def end_primary(self, *, is_crash: bool) -> float:
        """End the server while its standbys go on, and return when that began, on CLOCK_MONOTONIC.

        Raises:
            StepFailedError: It does not end.
        """
        told_s, self._ended = self._running.end_before_standbys(is_crash=is_crash)
        return told_s

    def promote(self) -> tuple[str, int]:
        """Ask the standby that has most of the WAL to take the place of the server that ended.

        From now on it is the server that runs, and the one that ended must stay down.

        Returns:
            Its name, and the bytes of WAL that it had flushed and not replayed.

        Raises:
            StepFailedError: A standby has ended or does not answer, or cannot be promoted.
        """
        # Also where no standby takes its place: it has left its shared memory.
        self._retired = self._running
        self._server = successor = self._standbys.name_successor()
        with successor.connect(database="postgres") as connection:
            flushed, replayed = sql.read_standby_wal(connection)
            sql.promote(connection)
        return successor.name, max(0, flushed - replayed)

    def connect(self, *, database: str | None = None, patience_s: int | None = None) -> sql.Connection:
        """Connect to the loaded database, or to another one; see `sql.connect`."""
        return self._running.connect(database=database or DATABASE, patience_s=patience_s)

    def checkpoint(self, connection: sql.Connection) -> None:
        """Write everything dirty to disk now."""
        sql.checkpoint(connection)

    def prepare_cache(self, state: CacheState) -> None:
        """Make the caches of the running server warm or cold, or leave them; for a cold one the server is restarted."""
        if state is CacheState.ASIS:
            return
        server = self._running
        with server.connect() as connection:
            if state is CacheState.WARM:
                sql.warm_dataset(connection)
                self._standbys.warm()
                return
            sql.checkpoint(connection)
        # A start leaves shared_buffers empty; what the server had read into the kernel's cache is dropped, too.
        self._standbys.restart_cold(server, self._settings)

    def prepare_switch(self, variants: Sequence[Variant]) -> VariantFiles | SwitchedFiles:
        """Write the settings of variants into files of the cluster, one of which a running server reads at a time."""
        files = VariantFiles(self._home, variants)
        return SwitchedFiles(files, self._standbys, variants) if self._standbys else files

    def make_generator(self) -> Pgbench:
        """Return the pgbench of the same PostgreSQL, run as the account that owns the cluster."""
        return Pgbench(installation=self._installation, user=self._home.user, script_directory=self._home.scripts)

    def find_failure(self) -> StepFailedError | None:
        """Return the error to raise if the server, a standby or the pooler has ended, or the old primary runs again; else None."""
        failure = self._running.find_failure() or self._standbys.find_failure() or self._find_return()
        return failure or (None if self._pooler is None else self._pooler.find_failure())

    def find_stall(self, session: sql.Connection) -> StepFailedError | None:
        """Return the error of a pooler that does not answer, or of a standby that no longer streams, for which commits may wait forever."""
        if self._pooler is not None and (silence := self._pooler.find_silence()) is not None:
            return silence
        return None if self._retired is not None else self._standbys.find_stall(session, self._running)

    def log_tail(self) -> str:
        """Return the last lines of the server's log."""
        return self._running.log_tail()

    def _find_return(self) -> StepFailedError | None:
        if self._retired is None:
            return None
        # Killed processes may take a moment to go.
        pids = set(self._retired.home.server_pids()) - self._ended
        if not pids:
            return None
        return StepFailedError(
            "the old primary runs again beside the standby that took its place",
            detail=f"process {', '.join(map(str, sorted(pids)))} in {self._retired.home.data}",
            hint="pgdyno has ended it. Clients with a list of hosts could have written to it: find out what started it",
        )

    def _stop_in_order(self, server: Server, *, aged_from: Path) -> None:
        with server.connect() as connection:
            # A checkpoint may take as long as many dirty pages need, and leaves the shutdown little to write.
            sql.checkpoint(connection)
        server.stop()
        self._home.aged_from = aged_from

    def _await_failure(self) -> StepFailedError | None:
        """Return the failure of a server that is dead or dying: its connections break a moment before its end can be seen."""
        deadline_s = monotonic_s() + _DYING_S
        while (failure := self.find_failure()) is None and monotonic_s() < deadline_s:
            time.sleep(0.02)
        return failure

    @property
    def _running(self) -> Server:
        if self._server is None:
            raise RuntimeError("the server was not started")
        return self._server
