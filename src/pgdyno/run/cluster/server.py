"""Create, start and stop pgdyno's own PostgreSQL cluster, and notice its end at once.

The postmaster is a direct child: its end is seen by wait, not guessed from a socket, and it ends with pgdyno. Nothing
here connects to a database that pgdyno did not create. The permissions of its folder protect the socket; a connection
to the port needs a password, because every account of the machine can reach the port.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import msgspec
import psycopg

from pgdyno.errors import HostError, PgdynoError, SpecError, StepFailedError, why
from pgdyno.record.durable import writing
from pgdyno.record.serverlog import LOG_SETTINGS
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.load_access import LOAD_HBA_FILE, LoadAccess, find_listen_error
from pgdyno.run.host import process
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.freezer import await_stop
from pgdyno.run.host.log import LOG
from pgdyno.run.postgres import sql, timeouts
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.hints import hint_for
from pgdyno.run.postgres.installation import Installation
from pgdyno.spec.conf import quote_value
from pgdyno.spec.initdb import InitdbChoices, InitdbTable, LocaleProvider, show_choices

SUPERUSER = "pgdyno"
DATABASE = "pgdyno"
_OWN_SETTINGS = "pgdyno.conf"
_LISTEN_ADDRESS = "127.0.0.1"
# Settings that pgdyno and the log reader rely on; a study may change the rest of LOG_SETTINGS.
_FIXED_LOG_SETTINGS = ("log_destination", "log_line_prefix", "lc_messages")
_START_PATIENCE_S = 60.0
# A fast shutdown writes all dirty buffers first: minutes on slow disks.
_STOP_PATIENCE_S = 600.0
_LOG_TAIL_LINES = 12
_CHECKSUMS_BY_DEFAULT = 18
_PGPASS_FILE = "password"
# The port only names the private socket, so any number would do; tools expect this one.
_SOCKET_PORT = 5432
_REFUSED_SETTING = re.compile(
    r"unrecognized configuration parameter|invalid value for parameter|is outside the valid range|parameter \"[^\"]+\" requires"
)


_USUAL = InitdbChoices()


def initdb_options(choices: InitdbTable, *, major: int) -> list[str]:
    """Return the options of initdb that make a cluster as chosen."""
    # Source: PostgreSQL 18 manual, release notes: from 18 on, checksums are on unless switched off.
    without = ["--no-data-checksums"] if major >= _CHECKSUMS_BY_DEFAULT else []
    locale, provider = choices.locale or "C", choices.locale_provider
    options = [
        f"--encoding={choices.encoding or 'UTF8'}",
        *(without if choices.checksums is False else ["--data-checksums"]),
    ]
    if provider is None or provider is LocaleProvider.LIBC:
        options.append(f"--locale={locale}")
    else:
        options += ["--locale=C", f"--locale-provider={provider.value}", f"--{provider.value}-locale={locale}"]
    if choices.segment_mb is not None:
        options.append(f"--wal-segsize={choices.segment_mb}")
    return options


class Server:
    """A cluster in a home's work folder.

    Args:
        installation: The PostgreSQL to run.
        home: The home whose `data` and `sockets` it uses.
        log_path: The file to which the server's log is appended byte for byte.
        port: The port of the socket, and of 127.0.0.1 if one is given; None: only a socket.
        name: What messages call it.
        access: How load hosts reach it; None: they do not. Its port is the server's.
    """

    def __init__(
        self,
        *,
        installation: Installation,
        home: Home,
        log_path: Path,
        port: int | None = None,
        name: str = "the server",
        access: LoadAccess | None = None,
    ) -> None:
        self.installation = installation
        self.home = home
        self.log_path = log_path
        self.name = name
        self.access = access
        self.port = _SOCKET_PORT if port is None else port
        if access is not None:
            self.port = access.port
        self._listens = port is not None
        self._process: subprocess.Popen[bytes] | None = None

    def initdb(self, choices: InitdbTable = _USUAL) -> None:
        """Create an empty cluster, without a choice with checksums, UTF8 and the locale C.

        Raises:
            SpecError: initdb refuses a choice; the detail quotes its message.
            StepFailedError: initdb failed; the detail quotes its message.
        """
        argv = [
            self.installation.program("initdb"),
            f"--pgdata={self.home.data}",
            f"--username={SUPERUSER}",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            *initdb_options(choices, major=self.installation.facts.major),
            # An empty cluster is worth no flush of a thousand files: what is kept is synced when it is loaded.
            "--no-sync",
            "--no-instructions",
        ]
        done = process.run(argv, user=self.home.user, timeout_s=300.0, ends_group=True)
        if done.exit_code != 0 and (chosen := show_choices(choices)):
            said = ", ".join(f"{key} = {value}" for key, value in chosen.items())
            raise SpecError(f"initdb fails with {said}", detail=done.stderr.strip(), hint=hint_for(done.stderr))
        if done.exit_code != 0:
            raise StepFailedError("initdb failed", detail=done.stderr.strip(), hint=hint_for(done.stderr))
        process.call_as(self.home.user, self._include_own_settings)

    def _include_own_settings(self) -> None:
        with _writing(path := self.home.data / "postgresql.conf"), path.open("a", encoding="utf-8") as config:
            config.write(f"include '{_OWN_SETTINGS}'\n")

    def start(self, settings: Mapping[str, str | int | float | bool]) -> None:
        """Start the cluster with `settings` and wait until it answers.

        Raises:
            SpecError: The server refused a setting.
            HostError: The port is taken, or the cluster is of another version.
            StepFailedError: The server did not start, serves another data folder, or took a setting differently.
        """
        self._check_version()
        if self._listens:
            check_port(self.port)
        if self.access is not None:
            self.access.check_free()
        self._write_settings(settings)
        with writing(self.log_path):
            log_file = _append_through_no_link(self.log_path)
        with log_file as log:
            log_start = log.tell()
            self._process = process.start(
                [self.installation.program("postgres"), "-D", str(self.home.data)],
                user=self.home.user,
                # An immediate shutdown ends backends and frees shared memory at once; the cluster is disposable.
                death_signal="QUIT",
                stdout=log,
                stderr=log,
                cwd=self.home.data,
            )
        began_s = time.monotonic()
        self._wait_until_ready(log_start)
        LOG.info(
            "%s, pid %d, answers after %.2f s, settings %s",
            self.name,
            self._process.pid,
            time.monotonic() - began_s,
            dict(settings),
        )
        try:
            self._verify(settings)
            if self._listens:
                self._set_password()
        except PgdynoError:
            self.abandon()
            raise

    def stop(self) -> None:
        """Stop the server with a fast shutdown, including a checkpoint; do nothing if it is not running.

        Raises:
            StepFailedError: The shutdown failed, so the files on disk are not consistent.
        """
        if self._process is None:
            return
        exit_code = process.stop(self._process, first=signal.SIGINT, patience_s=_STOP_PATIENCE_S)
        failure = self.find_failure() if exit_code != 0 else None
        self._clear_up()
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Stop the server at once without a checkpoint, for a cluster that will not be read again."""
        if self._process is None:
            return
        process.stop(self._process, first=signal.SIGQUIT, patience_s=10.0)
        self._clear_up()

    def end_before_standbys(self, *, is_crash: bool) -> tuple[float, frozenset[int]]:
        """End the server while its standbys go on, and return as soon as the postmaster is gone.

        Args:
            is_crash: Kill all of its processes at once, as the end of its machine would; else a fast shutdown, which sends
                the standbys all of its WAL.

        Returns:
            When it was killed or told to stop, on CLOCK_MONOTONIC, and the ids of its processes.

        Raises:
            StepFailedError: The shutdown failed, or took too long.
        """
        if (postmaster := self._process) is None:
            raise RuntimeError("the server is not running")
        # `Popen.wait` with a limit looks 20 times a second, which would count as time without service.
        with _opened_pid(postmaster.pid) as end, _stopped(postmaster) if is_crash else contextlib.nullcontext():
            # One that stands still starts no further process, so that these are all.
            ended = frozenset(self.home.server_pids())
            told_s = monotonic_s()
            if is_crash:
                # The postmaster goes first: it would tell the clients of a crash of another process.
                for pid in sorted(ended | {postmaster.pid}, key=lambda pid: pid != postmaster.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            else:
                postmaster.send_signal(signal.SIGINT)
            select.select([end], [], [], _STOP_PATIENCE_S)
        if (code := postmaster.poll()) != (-signal.SIGKILL if is_crash else 0):
            how = "" if code is None else f"exit code {code}\n"
            raise StepFailedError(f"{self.name} did not end in order", detail=f"{how}{self.log_tail()}")
        self._process = None
        return told_s, ended

    @property
    def pid(self) -> int:
        """Return the postmaster's process id.

        Raises:
            RuntimeError: The server was not started.
        """
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    def find_failure(self) -> StepFailedError | None:
        """Return the error to raise if the postmaster has ended, with the end of its log; None while it lives."""
        if self._process is None or self._process.poll() is None:
            return None
        return StepFailedError(
            f"{self.name} {process.describe_end(self._process.returncode)}",
            detail=self.log_tail(),
            hint="what was finished is kept; `pgdyno resume` continues",
        )

    def log_tail(self, lines: int = _LOG_TAIL_LINES) -> str:
        """Return the last lines of the server's log."""
        return read_tail(self.log_path, lines)

    @property
    def address(self) -> Address:
        """Return the address of pgdyno's own database."""
        return Address(host=str(self.home.sockets), port=self.port, user=SUPERUSER, dbname=DATABASE)

    @property
    def load_address(self) -> Address:
        """Return where the load reaches that database: load hosts do not come through the private socket."""
        return self.address if self.access is None else self.access.reach(DATABASE)

    def connect(self, *, database: str = DATABASE, patience_s: int | None = None) -> sql.Connection:
        """Open a connection in autocommit mode that gives rows as dicts; see `sql.connect`.

        Raises:
            StepFailedError: The server refuses the connection, or does not answer.
        """
        return sql.connect(msgspec.structs.replace(self.address, dbname=database), patience_s=patience_s)

    def _check_version(self) -> None:
        found = (self.home.data / "PG_VERSION").read_text(encoding="utf-8").strip()
        if found != str(self.installation.facts.major):
            raise HostError(
                f"the data folder is of PostgreSQL {found}, the server is {self.installation.facts.major}",
                detail=str(self.home.data),
                hint="remove it with `pgdyno clean`; the data are then loaded again",
            )

    def _write_settings(self, settings: Mapping[str, str | int | float | bool]) -> None:
        # If a name occurs twice, PostgreSQL takes the last line.
        own: Mapping[str, str | int | float | bool] = {
            **{name: LOG_SETTINGS[name] for name in _FIXED_LOG_SETTINGS},
            "logging_collector": "off",
            "data_directory": str(self.home.data),
            "hba_file": str(self.home.data / ("pg_hba.conf" if self.access is None else LOAD_HBA_FILE)),
            "ident_file": str(self.home.data / "pg_ident.conf"),
            "unix_socket_directories": str(self.home.sockets),
            "listen_addresses": self._list_addresses(),
            "port": self.port,
        }
        lines = [
            f"{name} = {quote_value(value)}" for layer in (LOG_SETTINGS, settings, own) for name, value in layer.items()
        ]
        path = self.home.data / _OWN_SETTINGS
        self.write_file(path, "\n".join(lines) + "\n")
        if self.access is not None:
            self.write_file(
                self.home.data / LOAD_HBA_FILE, self.access.format_hba(SUPERUSER if self._listens else None)
            )

    def _list_addresses(self) -> str:
        if self.access is None:
            return _LISTEN_ADDRESS if self._listens else ""
        there = self.access.listens_on
        return there if there == "*" or not self._listens else ",".join(dict.fromkeys((_LISTEN_ADDRESS, there)))

    def write_file(self, path: Path, text: str) -> None:
        """Write a new file of the cluster, which belongs to its account.

        Raises:
            StepFailedError: It cannot be written.
        """
        process.call_as(self.home.user, lambda: _write_anew(path, text))

    def _wait_until_ready(self, log_start: int) -> None:
        deadline = time.monotonic() + _START_PATIENCE_S
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                self._raise_refusal(log_start)
            try:
                self.connect(database="postgres").close()
            except StepFailedError:
                time.sleep(0.05)
            else:
                return
        tail = self.log_tail()
        self.abandon()
        raise StepFailedError(f"{self.name} did not answer within {_START_PATIENCE_S:g} s", detail=tail)

    def _raise_refusal(self, log_start: int) -> None:
        said = self.log_path.read_bytes()[log_start:].decode(errors="replace").strip()
        self._process = None
        if _REFUSED_SETTING.search(said):
            raise SpecError(
                f"{self.name} refuses a setting",
                detail=said,
                hint=f"PostgreSQL {self.installation.facts.major} does not take it; correct [server.settings] or --set",
            )
        raise StepFailedError(f"{self.name} does not start", detail=said, hint=hint_for(said))

    def _verify(self, settings: Mapping[str, str | int | float | bool]) -> None:
        with self.connect(database="postgres") as connection:
            shown = {fact.name: fact.value for fact in sql.read_settings(connection)}["data_directory"]
            told = sql.find_unapplied_settings(connection, [*settings])
        if Path(shown).resolve() != self.home.data.resolve():
            raise StepFailedError(f"{self.name} serves another data folder", detail=f"{shown}, not {self.home.data}")
        if told:
            raise StepFailedError(f"{self.name} took a setting differently", detail="; ".join(told))

    @property
    def _password_path(self) -> Path:
        return self.home.work / _PGPASS_FILE

    def _set_password(self) -> None:
        password = secrets.token_urlsafe(24)
        _write_anew(self._password_path, f"{_LISTEN_ADDRESS}:{self.port}:*:{SUPERUSER}:{password}\n")
        address = msgspec.structs.replace(self.address, dbname="postgres")
        # No standby is there yet that the commit could wait for.
        options = "-c password_encryption=scram-sha-256 -c synchronous_commit=local"
        with sql.connect(address, options=options) as connection:
            try:
                with timeouts.limit(connection):
                    connection.pgconn.change_password(SUPERUSER.encode(), password.encode())
            except psycopg.Error as exc:
                raise StepFailedError("cannot set the server's password", detail=str(exc).strip()) from exc

    def _clear_up(self) -> None:
        self._process = None
        self._password_path.unlink(missing_ok=True)
        # A killed postmaster leaves backends that are ending, and all shared memory.
        self.home.end_servers()


@contextlib.contextmanager
def _stopped(running: subprocess.Popen[bytes]) -> Iterator[None]:
    """Have a process stand still for the length of a block, which may kill it."""
    try:
        running.send_signal(signal.SIGSTOP)
        await_stop(running.pid)
        yield
    finally:
        # Does nothing to one that is dead.
        running.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def _opened_pid(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check_port(port: int) -> None:
    """Check that a server can listen at `port`.

    Raises:
        HostError: Another process listens at the port.
    """
    exc = find_listen_error(_LISTEN_ADDRESS, port)
    if exc is not None:
        raise HostError(
            f"port {port} is in use",
            detail=why(exc),
            hint="choose another port, or leave it out: pgdyno itself needs none, and finds a free one for load hosts",
        ) from exc


def psql_command(home: Home, port: int) -> str:
    """Return the psql command that lets the account of pgdyno watch the server at `port`."""
    password_path = shlex.quote(str(home.work / _PGPASS_FILE))
    return f"PGPASSFILE={password_path} psql -h {_LISTEN_ADDRESS} -p {port} -U {SUPERUSER} {DATABASE}"


def _write_anew(path: Path, text: str) -> None:
    # The folder belongs to the server's account: root must not follow a link that this account put there.
    with _writing(path):
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StepFailedError(f"cannot write {path}", detail=str(exc), hint=hint_for(str(exc))) from exc


def _append_through_no_link(path: Path) -> IO[bytes]:
    # The folder may be the server account's, which must not choose what root writes to.
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666), "ab")


def read_tail(log: Path, lines: int) -> str:
    """Return the last lines of a log; nothing where it is not there yet."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
