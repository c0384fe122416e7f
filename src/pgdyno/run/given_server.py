"""A server of the user's as a trial sees it: reached by SQL alone, in a database of pgdyno's own that begins as a copy.

Nothing of the server itself is restarted or read from its machine. Its settings change only through `ServerSettings` that were
handed over.
"""

from __future__ import annotations

import contextlib
import copy
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from pgdyno.errors import PgdynoError, SpecError, StepFailedError
from pgdyno.facts.gucs import is_custom_name
from pgdyno.plan.experiment import Variant
from pgdyno.plan.live import TIMEOUTS
from pgdyno.plan.types import PlannedPooler
from pgdyno.record.types import UNREAD_LOG, UNSEEN_GAPS, Dataset, Gap, ServerFacts
from pgdyno.run.given.access import with_settings
from pgdyno.run.given.bounds import Bound
from pgdyno.run.given.database import (
    copy_database,
    create_database,
    drop_if_possible,
    drop_left_overs,
    find_loaded,
    note_loaded,
    plan_copy,
)
from pgdyno.run.given.init_file import build_psql_argv, run_init_file
from pgdyno.run.given.lock import StudyLock
from pgdyno.run.given.machine import ServerMachine
from pgdyno.run.given.own_databases import HINT_DISK_FULL, HINT_TIMEOUT, OwnDatabase
from pgdyno.run.given.poolers import HINT_SILENT, check_way, try_databases, try_pooler
from pgdyno.run.given.replicas import Replicas
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.load.argv import build_init_argv, make_init_run
from pgdyno.run.load.generator import InitOutcome
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.load.watch import LoadWatch
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.lost import ReturnWatch
from pgdyno.run.postgres.pooler_console import CONSOLE, find_silence
from pgdyno.run.postgres.timeouts import NoAnswerError
from pgdyno.run.sample.child import WatchedMachine
from pgdyno.run.sample.samplers import SERVER
from pgdyno.run.under_test import FollowedProcess, LoadServer, SettingsSwitch, WatchedPooler
from pgdyno.spec.init_file import hash_init_file
from pgdyno.spec.initdb import INITDB_KEYS
from pgdyno.spec.study import DataSpec
from pgdyno.spec.table import CacheState, SettingValue
from pgdyno.spec.variant import show_value

_NOT_SAMPLED = Gap(source=SERVER, reason="a pooler in between is in transaction mode")
# A restart or a failover takes about as long.
_RETURNS_WITHIN_S = 60.0
# Keys of a study file's data that say nothing of pgbench's tables, or are for pgdyno's own servers. What was loaded before they were
# added is found again.
_NOT_OF_TABLES = frozenset({"init", "database", "wal_home", "restore", "restore_command", *INITDB_KEYS})
_REFUSALS = (
    ("permission denied", "a superuser gives it by GRANT SET ON PARAMETER NAME TO ROLE"),
    ("without restarting", "it takes a restart, which pgdyno does not do to a given server"),
    ("cannot be changed now", "it is one of the whole server, which only variants that differ in it change"),
    ("unsupported startup parameter", "a pooler in between takes no options: connect to the server itself"),
    ("", "a session chooses only what its role may SET: see `pgdyno check --dsn`"),
)


class ServerSettings(SettingsSwitch, Protocol):
    """Settings of the whole server that a study changes; those of its sessions are none of them."""

    def apply(self, settings: Mapping[str, SettingValue]) -> None:
        """Put settings in force, and those that are not among them as they were."""
        ...


class GivenServerUnderTest:
    """A server behind a connection string; implements `ServerUnderTest`. Use it from the main thread.

    Args:
        address: From `open_access`; its `dbname` is a database that exists.
        facts: Which PostgreSQL it is.
        generator: Loads the data.
        may_checkpoint: Whether the role may run CHECKPOINT.
        lock: Keeps other pgdynos away; None where a pooler in between is in transaction mode.
        bounds: On what it may write and hold.
        machine: Its machine, if it is reached by ssh.
    """

    def __init__(
        self,
        *,
        address: Address,
        facts: ServerFacts,
        generator: Pgbench,
        may_checkpoint: bool,
        lock: StudyLock | None,
        bounds: Sequence[Bound],
        machine: ServerMachine | None = None,
    ) -> None:
        self._bounds = tuple(bounds)
        self._aside = address
        self._facts = facts
        self._generator = generator
        self._may_checkpoint = may_checkpoint
        self._lock = lock
        # No study drops the copy of another one.
        self._study = uuid.uuid4().hex[:8]
        self._loaded: OwnDatabase | None = None
        self._copy: OwnDatabase | None = None
        self._settings: Mapping[str, SettingValue] = {}
        self.poolers: Mapping[str, Address] = {}
        """Where poolers in front of it are reached, by name; their `dbname` is any database that they know."""
        self._endpoint: PlannedPooler | None = None
        self._lifted: Mapping[str, SettingValue] = {}
        self._slots: dict[int, GivenServerUnderTest] = {}
        self._machine = machine
        self._watched: WatchedMachine | None = None
        self.replicas = Replicas()
        """Its standbys that loads may read from, which are somebody else's, too."""
        self.switch: ServerSettings | None = None
        """What changes settings of the whole server; None where nothing of it may be changed."""

    @property
    def facts(self) -> ServerFacts:
        """Which PostgreSQL it is."""
        return self._facts

    @property
    def address(self) -> Address:
        """Where the copy of the loaded database is reached."""
        return self._aside if self._copy is None else self._at(self._copy)

    @property
    def load_address(self) -> Address:
        """Where the load reaches it; of a pooler, its sessions ask for no settings."""
        return self.direct_address if self._endpoint is None else self.find_way(self._endpoint.name)

    @property
    def direct_address(self) -> Address:
        """Where the load reaches it without a pooler, with the settings that its sessions ask for."""
        return with_settings(self.address, {**self._settings, **self._lifted})

    def find_way(self, pooler: str) -> Address:
        """Return where a pooler has the database that trials run on."""
        return msgspec.structs.replace(self.poolers[pooler], dbname=self.address.dbname)

    @property
    def pooler(self) -> WatchedPooler | None:
        """The pooler that the load connects to, while it runs."""
        if self._endpoint is None:
            return None
        console = msgspec.structs.replace(self.poolers[self._endpoint.name], dbname=CONSOLE)
        return WatchedPooler(name=self._endpoint.name, pid=None, console=console)

    @property
    def pid(self) -> None:
        """None: its machine is not this one, or nobody knows that it is."""
        return

    @property
    def readers(self) -> tuple[LoadServer, ...]:
        """Its replicas, if the study reads from them."""
        return self.replicas.list_readers(self.address.dbname, {**self._settings, **self._lifted})

    @property
    def standby_processes(self) -> tuple[FollowedProcess, ...]:
        """None: its standbys are not pgdyno's."""
        return ()

    @property
    def shows_standbys(self) -> bool:
        """Whether the role sees how far the replicas lag that the study reads from."""
        return any(self.replicas) and self.replicas.lag_gap is None

    @property
    def block_device(self) -> None:
        """None: trials on it do not ask for its disk."""
        return

    @property
    def watched(self) -> WatchedMachine | None:
        """Its machine while it runs, if it is reached by ssh."""
        return self._watched

    @property
    def unseen(self) -> tuple[Gap, ...]:
        """What cannot be observed in any trial."""
        unseen = UNSEEN_GAPS if self._machine is None else (UNREAD_LOG,)
        # The sampler would leave its prepared statements to others.
        lag_gap = self.replicas.lag_gap
        return (*unseen, *([_NOT_SAMPLED] if self._lock is None else []), *([] if lag_gap is None else [lag_gap]))

    @property
    def seeks_statements(self) -> bool:
        """True: many servers have pg_stat_statements, and it costs nothing to ask."""
        return True

    def load(
        self,
        data: DataSpec,
        scale: int,
        *,
        settings: Mapping[str, SettingValue],  # noqa: ARG002 - a given server keeps its own
        output_dir: Path,
        on_activity: Callable[[str], None],
    ) -> Dataset:
        """Load a database of pgdyno's own, or take one that an earlier study has loaded.

        Raises:
            StepFailedError: Loading failed; no half-loaded database stays.
        """
        content = describe_content(data, scale)
        on_activity("looking for loaded data")
        if self._lock is not None:
            drop_left_overs(self._aside)
        self._loaded = find_loaded(self._aside, content)
        if self._loaded is not None:
            return self._read_dataset(data, scale, done=None)
        self._loaded = create_database(self._aside)
        try:
            dataset = self._fill(data, scale, output_dir=output_dir, on_activity=on_activity)
            self._loaded = note_loaded(self._aside, self._loaded, content)
        except BaseException as exc:
            drop_if_possible(self._aside, self._loaded)
            self._loaded = None
            _tell_full_disk(exc)
            _tell_timeout(exc)
            raise
        return dataset

    def reset(self, on_activity: Callable[[str], None] = lambda _: None) -> float:
        """Make a new copy of the loaded database, and wait until replicas have it, too. Return the seconds that it took.

        Raises:
            StepFailedError: The server does not answer, or refuses, or a replica does not replay what was written.
        """
        self._await_return(None, waits_for_answer=False)
        self._check_bounds()
        if self._lock is not None:
            self._lock.check()
        began_s = monotonic_s()
        self._copy = copy_database(self._aside, self._whole, study=self._study)
        self._await_replicas(on_activity, size_bytes=self._whole.size_bytes)
        self._check_bounds()
        return monotonic_s() - began_s

    def in_slot(self, number: int) -> GivenServerUnderTest:
        """Return the same server for one of several loads that are connected at once, each in a copy of its own.

        The copies are dropped when this one is closed.
        """
        slot = self._slots.get(number)
        if slot is None:
            slot = copy.copy(self)
            slot._study, slot._copy, slot._slots = uuid.uuid4().hex[:8], None, {}
            self._slots[number] = slot
        return slot

    def lift_timeouts(self) -> tuple[str, ...]:
        """Have sessions of the load ask for no timeouts, whose clocks go on while a client is frozen; return those in force.

        Raises:
            SpecError: The server refuses that, or a pooler forgets it.
        """
        with self._connect_aside() as connection:
            names = sql.find_positive(connection, (*TIMEOUTS, "tcp_user_timeout"))
        lifted: dict[str, SettingValue] = dict.fromkeys(names, 0)
        try:
            self.try_settings(lifted)
        except SpecError as error:
            error.fact = f"{', '.join(names)} would end what is frozen: {error.fact}"
            raise
        self._lifted = lifted
        return names

    @contextlib.contextmanager
    def running(
        self,
        settings: Mapping[str, SettingValue],
        *,
        log_path: Path,  # noqa: ARG002 - it has none
        pooler: PlannedPooler | None = None,
    ) -> Iterator[None]:
        """Let sessions ask for settings, and watch that the server is not restarted, for the length of a `with` block."""
        self._check_bounds()
        self._settings, self._endpoint = settings, pooler
        if self.switch is not None:
            self.switch.apply(settings)
            self._settings = self.switch.common(settings)
        started_at = self._read_start()
        self.replicas.note_starts()
        self._watched = None if self._machine is None else self._machine.watch(started_at)
        try:
            yield
        except PgdynoError as exc:
            # A restart explains every other failure.
            self._check_start(started_at, cause=exc)
            self.replicas.check(cause=exc)
            _tell_full_disk(exc)
            if pooler is not None:
                check_way(pooler, self.find_way(pooler.name), cause=exc)
            raise
        finally:
            self._endpoint = None
        self._check_start(started_at)
        self.replicas.check()

    def close(self) -> None:
        """Drop the copy, also one that Ctrl-C cut short; the loaded database is kept for the next study."""
        while self._slots:
            self._slots.popitem()[1].close()
        if self._loaded is not None:
            # What ended the study is the user's affair; `clean` drops what is left.
            drop_if_possible(self._aside, plan_copy(self._loaded, self._study))
        self._copy = None

    def connect(self, *, database: str | None = None, patience_s: int | None = None) -> sql.Connection:
        """Connect to the copy of the loaded database; any named database stands for the one that the user named."""
        return sql.connect(self.address if database is None else self._aside, patience_s=patience_s)

    def checkpoint(self, connection: sql.Connection) -> None:
        """Write everything dirty to disk now, where the role may."""
        if self._may_checkpoint:
            sql.checkpoint(connection)

    def try_settings(self, settings: Mapping[str, SettingValue]) -> None:
        """Begin a session that asks for settings.

        Raises:
            SpecError: The server refuses one, or a pooler forgets them.
        """
        try:
            with sql.connect(with_settings(self.address, settings)) as connection:
                sources = sql.read_sources(connection, list(settings))
                lost = [name for name, value in settings.items() if not _is_taken(connection, name, value, sources)]
        except StepFailedError as error:
            hint = next(hint for words, hint in _REFUSALS if words in error.detail)
            raise SpecError("a session may not ask for a setting", detail=error.detail, hint=hint) from error
        if lost:
            raise SpecError(
                f"a session does not get what it asks for: {', '.join(lost)}",
                hint="a pooler in between forgets it: connect to the server itself",
            )

    def try_pooler(self, pooler: PlannedPooler, *, keeps_statements: bool) -> None:
        """Try a pooler in front of the server; see `poolers.try_pooler`."""
        way = self.poolers[pooler.name]
        try_pooler(pooler, way, server=self._aside, started_at=self._read_start(), keeps_statements=keeps_statements)
        try_databases(pooler, way)

    def prepare_cache(self, state: CacheState) -> None:
        """Read the data into the caches, or leave them as they are.

        Raises:
            SpecError: A cold cache is asked for, which needs a restart.
        """
        if state is CacheState.ASIS:
            return
        if state is CacheState.COLD:
            raise SpecError("a given server cannot begin with cold caches", hint="leave cache out of [trials]")
        with self.connect() as connection:
            sql.warm_dataset(connection)

    def find_withheld(self) -> frozenset[str]:
        """Return the settings that a reload changes and a session of this role may not choose, in lower case."""
        with self._connect_aside() as connection:
            return sql.read_withheld_settings(connection)

    def prepare_switch(self, variants: Sequence[Variant]) -> SettingsSwitch:  # noqa: ARG002 - it knows them
        """Return what the user has agreed to."""
        if self.switch is None:
            raise SpecError("settings of a given server cannot alternate under one load")
        return self.switch

    def find_failure(self) -> PgdynoError | None:
        """Return the error that ends the study if the server has written too much WAL, or holds too much data.

        Its clients notice the end of a server at once, and only a new connection would show that it was restarted.
        """
        return next((excess for one in self._bounds if (excess := one.find_excess()) is not None), None)

    def find_stall(self, session: sql.Connection) -> PgdynoError | None:  # noqa: ARG002 - of the protocol
        """Return the error of a pooler or replica that does not answer; whether commits wait for standbys is not pgdyno's to judge."""
        pooler = self.pooler
        silence = None if pooler is None else find_silence(pooler.name, pooler.console, hint=HINT_SILENT)
        return silence or self.replicas.find_silence()

    def log_tail(self) -> str:
        """Return nothing: its log is not seen."""
        return ""

    def _await_replicas(self, on_activity: Callable[[str], None], *, size_bytes: int = 0) -> None:
        self.replicas.await_replay(self._aside, self.address.dbname, size_bytes=size_bytes, on_activity=on_activity)

    def _check_bounds(self) -> None:
        for one in self._bounds:
            one.check()

    def _fill(self, data: DataSpec, scale: int, *, output_dir: Path, on_activity: Callable[[str], None]) -> Dataset:
        watch = LoadWatch(self)
        if data.init is None:
            done = self._generator.run_init(
                make_init_run(self._at(self._whole), data, scale),
                directory=output_dir,
                on_activity=on_activity,
                should_abort=watch.find_failure,
            )
        else:
            file = Path(data.init)
            on_activity(f"running {file.name}")
            done = run_init_file(
                self._at(self._whole), file, self._generator, directory=output_dir, should_abort=watch.find_failure
            )
        return self._read_dataset(data, scale, done=done)

    def _build_argv(self, data: DataSpec, scale: int) -> tuple[str, ...]:
        programs = self._generator.installation
        if data.init is None:
            return build_init_argv(make_init_run(self._at(self._whole), data, scale), programs.program("pgbench"))
        return build_psql_argv(self._at(self._whole), Path(data.init), programs.program("psql"))

    def _read_dataset(self, data: DataSpec, scale: int, *, done: InitOutcome | None) -> Dataset:
        with sql.connect(self._at(self._whole)) as connection:
            relations = sql.read_dataset(connection)
        return Dataset(
            scale=scale,
            relations=relations,
            total_bytes=sum(relation.bytes for relation in relations),
            init_argv=self._build_argv(data, scale),
            init_steps_s={} if done is None else done.steps_s,
            init_total_s=0.0 if done is None else done.total_s,
            is_reused=done is None,
            file_sha256=None if data.init is None else hash_init_file(Path(data.init)),
        )

    def _read_start(self) -> str:
        with self._connect_aside() as connection:
            return sql.read_start_time(connection)

    def _check_start(self, started_at: str, *, cause: PgdynoError | None = None) -> None:
        """Raise an error if the server was restarted, or does not come back."""
        # The watch over the load has waited for one that hangs already.
        now = self._await_return(cause, waits_for_answer=not isinstance(cause, NoAnswerError))
        if now != started_at:
            detail = f"it had started at {started_at}, and again at {now}"
            raise StepFailedError("the server was restarted in the middle of a trial", detail=detail) from cause

    def _await_return(self, cause: PgdynoError | None, *, waits_for_answer: bool) -> str:
        """Return when the server started, once it answers.

        One that refuses connections may be starting. One that hangs has been waited for before it says so.
        """
        deadline_s, watch = monotonic_s() + _RETURNS_WITHIN_S, ReturnWatch()
        while True:
            try:
                return self._read_start()
            except StepFailedError as error:
                hangs = isinstance(error, NoAnswerError) and not waits_for_answer
                if hangs or monotonic_s() > deadline_s or not watch.may_return(error):
                    raise StepFailedError(
                        "the server does not answer any more",
                        detail=error.reason,
                        hint="see its log, or ask who runs it; `pgdyno resume` continues once it answers, after a failover, too",
                    ) from cause
            time.sleep(0.5)

    @property
    def _whole(self) -> OwnDatabase:
        if self._loaded is None:
            raise RuntimeError("nothing was loaded")
        return self._loaded

    def _at(self, database: OwnDatabase) -> Address:
        return msgspec.structs.replace(self._aside, dbname=database.name)

    def _connect_aside(self) -> sql.Connection:
        return sql.connect(self._aside)


def _is_taken(connection: sql.Connection, name: str, value: SettingValue, sources: Mapping[str, str]) -> bool:
    """Return whether a session has what it asked for."""
    source = sources.get(name.lower())
    if source is None and is_custom_name(name):
        # Until its extension is loaded, perhaps with the first use, it is not in pg_settings.
        return sql.read_setting(connection, name) == show_value(value)
    return source == "client"


def _tell_full_disk(error: BaseException) -> None:
    """Give an error the hint that the disk which is full is the server's, which --home does not change."""
    if isinstance(error, PgdynoError) and "No space left on device" in error.detail:
        error.hint = HINT_DISK_FULL


def _tell_timeout(error: BaseException) -> None:
    """Give an error of loading the hint that a timeout of the role ended it, in the server's words if they are English."""
    for name in ("statement", "transaction"):
        if isinstance(error, PgdynoError) and f"due to {name} timeout" in error.detail:
            error.hint = HINT_TIMEOUT.format(f"{name}_timeout")


def describe_content(data: DataSpec, scale: int) -> str:
    """Return what tells loaded data from others."""
    if data.init is not None:
        return f"sql sha256={hash_init_file(Path(data.init))}"
    keys = msgspec.to_builtins(msgspec.structs.replace(data, scale=scale))
    return "pgbench " + " ".join(
        f"{name}={value}" for name, value in sorted(keys.items()) if name not in _NOT_OF_TABLES
    )
