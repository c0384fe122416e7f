"""Run standbys that stream from a cluster of pgdyno's own, on the same machine.

Each is a copy of the loaded cluster that the primary is a copy of, so that both have one system identifier and no base
backup is taken. It lies in a slot of the primary's home, and dies with pgdyno as the primary does. The primary keeps WAL
by a replication slot: unlike `wal_keep_size` it changes nothing for the primary as long as the standby keeps up.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from psycopg.conninfo import make_conninfo

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.plan.experiment import Variant
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.load_access import LoadAccess
from pgdyno.run.cluster.restoring import restore_template
from pgdyno.run.cluster.server import Server
from pgdyno.run.cluster.template import Template, drop_file_cache, warm_file_cache
from pgdyno.run.cluster.variant_settings import VariantFiles, VariantSettings
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.log import LOG
from pgdyno.run.load.watch import ANSWER_PATIENCE_S
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.installation import Installation
from pgdyno.run.postgres.timeouts import NoAnswerError
from pgdyno.run.under_test import FollowedProcess, LoadServer
from pgdyno.spec.study import SLOT_WAL, SLOT_WAL_SETTING, name_standbys
from pgdyno.spec.table import SettingValue

PRIMARY_SETTINGS: Mapping[str, SettingValue] = {SLOT_WAL_SETTING: SLOT_WAL}
"""What a primary with standbys has where the study says nothing else: a standby that falls behind fills no disk."""
# One that takes over has no standby for which its commits could wait.
_SUCCESSOR_SETTINGS: Mapping[str, SettingValue] = {"synchronous_standby_names": ""}
# The default of 5 s would be most of the time of a restart.
_RETRIES: Mapping[str, SettingValue] = {"wal_retrieve_retry_interval": "100ms"}
_READY_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.02
_SIGNAL_FILE = "standby.signal"
_HINT_BEHIND = "a larger max_slot_wal_keep_size lets a standby fall further behind"
_HINT_REPLAY = "recovery_min_apply_delay holds its replay up; until then it lets no load host in"
_HINT_WAITS = "commits that wait for it would wait until it is back; the ends of both logs have the reason"


class Standbys:
    """All standbys of one primary, which may be none. Use it from the main thread.

    Args:
        count: The number of standbys.
        installation: Their PostgreSQL, which is the primary's.
        home: That of the primary.
        take_over: Whether one of them takes the primary's place in each trial.
        access: How load hosts reach the primary; None: the load comes from this machine.
    """

    def __init__(
        self,
        count: int,
        *,
        installation: Installation,
        home: Home,
        take_over: bool = False,
        access: LoadAccess | None = None,
    ) -> None:
        self._own_settings: Mapping[str, SettingValue] = _SUCCESSOR_SETTINGS if take_over else {}
        self.names = name_standbys(count)
        self._installation = installation
        self._home = home
        # Standbys that no load host reads from have a private socket only.
        self._access = access if access is not None and access.standbys else None
        self._homes: tuple[Home, ...] = ()
        self._servers: tuple[Server, ...] = ()
        self._settings: Mapping[str, SettingValue] = {}
        self._changing: list[sql.Connection] = []
        self.processes: tuple[FollowedProcess, ...] = ()
        """Their processes, which the OS sampler follows; empty while none runs."""

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.names)

    def reset(self, template: Template, on_activity: Callable[[str], None]) -> float:
        """Make each a copy of the template, and return the seconds that it took."""
        self._homes = tuple(self._home.slot(number) for number, _ in enumerate(self.names, start=1))
        return sum(restore_template(template, home, on_activity=on_activity) for home in self._homes)

    def start(self, primary: Server, settings: Mapping[str, SettingValue], *, log_folder: Path) -> None:
        """Start all beside the running primary, and return when each of them streams.

        Raises:
            SpecError: One refuses a setting.
            StepFailedError: One does not start, or does not stream in time.
        """
        if not self:
            return
        self._servers = tuple(
            Server(
                installation=self._installation,
                home=home,
                log_path=log_folder / f"{name}.log",
                name=name,
                access=None if self._access is None else self._access.of_standby(number),
            )
            for number, (name, home) in enumerate(zip(self.names, self._homes, strict=True), start=1)
        )
        self._settings = settings
        with primary.connect(database="postgres") as connection:
            for name in self.names:
                sql.create_slot(connection, name)
        self._start_all(primary)

    def await_replay(self, primary: Server) -> None:
        """Wait until those that load hosts read from have replayed what the primary has flushed by now.

        Raises:
            StepFailedError: One has ended, or does not replay it in time.
        """
        if self._access is None:
            return
        with primary.connect(database="postgres") as connection:
            target = sql.read_flushed_wal(connection)
        for one in self._servers:
            late = f"{one.name} does not replay the role of the load hosts"
            self._await(functools.partial(_has_replayed, one, target), late, hint=_HINT_REPLAY)

    def restart_cold(self, primary: Server, settings: Mapping[str, SettingValue]) -> None:
        """Restart the primary and all standbys with nothing of their files cached.

        Raises:
            StepFailedError: One does not stop in order or does not come back.
        """
        # They end first: a primary that stops waits until all of its WAL is received.
        for server in (*self._servers, primary):
            server.stop()
        for home in (self._home, *self._homes):
            for folder in home.cluster_folders:
                drop_file_cache(folder)
        primary.start(settings)
        self._start_all(primary)

    def warm(self) -> None:
        """Read the data of all into the kernel's cache; replaying brings what it needs into shared_buffers."""
        for home in self._homes:
            warm_file_cache(home.data / "base")

    def find_failure(self) -> StepFailedError | None:
        """Return the error to raise if one has ended; None while all run."""
        return next(filter(None, (server.find_failure() for server in self._servers)), None)

    def check_streaming(self, primary: Server) -> None:
        """Check that all still stream, after the load.

        Raises:
            StepFailedError: One does not.
        """
        if not self:
            return
        with primary.connect(database="postgres") as session:
            if (stall := self.find_stall(session, primary)) is not None:
                raise stall

    def find_stall(self, session: sql.Connection, primary: Server) -> StepFailedError | None:
        """Return the error to raise if one streams no more, or does not answer; None while all do.

        Args:
            session: A session of the primary.
            primary: The primary, the end of whose log the error shows.
        """
        streaming = sql.list_streams(session) if self else frozenset[str]()
        for server in self._servers:
            if server.name not in streaming:
                lost = sql.is_slot_lost(session, server.name)
                fact = (
                    f"{server.name} fell too far behind: its slot is lost" if lost else f"{server.name} streams no more"
                )
                detail = f"{server.log_tail()}\n{primary.log_tail()}".strip()
                return StepFailedError(fact, detail=detail, hint=_HINT_BEHIND if lost else _HINT_WAITS)
        return next(filter(None, map(_find_silence, self._servers)), None)

    @property
    def socket_folders(self) -> tuple[str, ...]:
        """The folder of each one's socket."""
        return tuple(str(home.sockets) for home in self._homes)

    @property
    def readers(self) -> tuple[LoadServer, ...]:
        """Those that run, for a load that reads from them."""
        return tuple(
            LoadServer(name=one.name, address=one.address, load_address=one.load_address, pid=one.pid)
            for one in self._servers
        )

    def name_successor(self) -> Server:
        """Return the standby that has flushed most of the primary's WAL, and take it out of the standbys.

        Raises:
            StepFailedError: One of them has ended, or does not answer.
        """
        if (failure := self.find_failure()) is not None:
            raise failure
        successor = (
            max(self._servers, key=lambda one: _read_wal(one)[0]) if len(self._servers) > 1 else self._servers[0]
        )
        self._servers = tuple(server for server in self._servers if server is not successor)
        return successor

    def abandon(self) -> None:
        """End all standbys at once, and the sessions that change their settings."""
        for connection in self._changing:
            connection.close()
        for server in self._servers:
            server.abandon()
        self._changing, self._servers, self.processes = [], (), ()

    def prepare_switch(self, variants: Sequence[Variant]) -> tuple[VariantFiles, ...]:
        """Write the settings of variants into the files of each."""
        return tuple(VariantFiles(home, variants) for home in self._homes)

    def open(self, files: Iterable[VariantFiles]) -> tuple[VariantSettings, ...]:
        """Return what changes the settings of each, over connections that `abandon` closes."""
        made = []
        for server, of in zip(self._servers, files, strict=True):
            connection = server.connect()
            self._changing.append(connection)
            made.append(of.open(connection))
        return tuple(made)

    def _start_all(self, primary: Server) -> None:
        if not self:
            return
        for server in self._servers:
            server.write_file(server.home.data / _SIGNAL_FILE, "")
            server.start({**_RETRIES, **self._settings, **self._own_settings, **_follow(primary, server.name)})
        began_s = monotonic_s()
        self._await_streaming(primary)
        LOG.info("%s stream after %.2f s", ", ".join(self.names), monotonic_s() - began_s)
        self.processes = tuple(process for server in self._servers for process in _list_processes(server))

    def _await_streaming(self, primary: Server) -> None:
        with primary.connect(database="postgres") as connection:
            self._await(lambda: sql.list_streams(connection).issuperset(self.names), "a standby does not stream")

    def _await(self, is_there: Callable[[], bool], late: str, *, hint: str = "") -> None:
        deadline_s = monotonic_s() + _READY_WITHIN_S
        while monotonic_s() < deadline_s:
            if (failure := self.find_failure()) is not None:
                raise failure
            if is_there():
                return
            time.sleep(_LOOK_EVERY_S)
        logs = "\n".join(server.log_tail() for server in self._servers)
        raise StepFailedError(f"{late} within {_READY_WITHIN_S:g} s", detail=logs, hint=hint)


def _find_silence(server: Server) -> StepFailedError | None:
    """Return the error of a standby that hangs, which the primary lists as streaming until wal_sender_timeout is over; None if it answers.

    It may take as long to answer as the primary may.
    """
    try:
        server.connect(database="postgres", patience_s=ANSWER_PATIENCE_S).close()
    except NoAnswerError as exc:
        detail = f"{exc.detail}, while the primary answers\n{server.log_tail()}".strip()
        return StepFailedError(f"{server.name} does not answer", detail=detail, hint=exc.hint)
    except StepFailedError:
        # A refusal is an answer.
        return None
    return None


class SwitchedFiles:
    """The settings of each variant as files of the primary and of its standbys, to alternate in all at once.

    A setting such as `hot_standby_feedback` acts on the standby, and one such as `wal_sync_method` on both.
    """

    def __init__(self, primary: VariantFiles, standbys: Standbys, variants: Sequence[Variant]) -> None:
        self._primary = primary
        self._standbys = standbys
        self._files = standbys.prepare_switch(variants)

    def common(self, settings: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
        """Return those of the settings that no variant changes: what the servers are started with."""
        return self._primary.common(settings)

    def open(self, connection: sql.Connection) -> SwitchedSettings:
        """Return what changes the settings, over a connection that it keeps for itself."""
        return SwitchedSettings(self._primary.open(connection), self._standbys.open(self._files))


class SwitchedSettings:
    """Changes the settings of standbys and then of their primary, each confirmed."""

    def __init__(self, primary: VariantSettings, standbys: Sequence[VariantSettings]) -> None:
        self._all = (*standbys, primary)

    def change(self, variant: Variant) -> None:
        """Put a variant's settings in force."""
        for one in self._all:
            one.change(variant)


def _follow(primary: Server, name: str) -> dict[str, SettingValue]:
    address = primary.address
    conninfo = make_conninfo(host=address.host, port=address.port, user=address.user, application_name=name)
    return {"primary_conninfo": conninfo, "primary_slot_name": name, "hot_standby": True}


def _has_replayed(server: Server, target: int) -> bool:
    return _read_wal(server)[1] >= target


def _read_wal(server: Server) -> tuple[int, int]:
    """Return up to which byte of the WAL a standby has flushed it, and up to which it has replayed it."""
    with server.connect(database="postgres") as connection:
        return sql.read_standby_wal(connection)


def _list_processes(server: Server) -> Iterable[FollowedProcess]:
    yield FollowedProcess(label=server.name, pid=server.pid, has_descendants=True)
    try:
        with server.connect(database="postgres") as connection:
            pids = sql.read_recovery_pids(connection)
    except PgdynoError:
        if (failure := server.find_failure()) is not None:
            raise failure from None
        raise
    for backend_type, pid in pids.items():
        yield FollowedProcess(label=f"{server.name}_{backend_type}", pid=pid)
