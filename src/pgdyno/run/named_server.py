"""A server that the user named, to be changed: asked, reloaded, stopped, and started again as it was started before.

It is asked through psql as the account that owns it. It is stopped only where it is known what starts it again: systemd,
when it is the main process of a unit, or pg_ctl, when nobody watches over it. What else has started it may take its end
for a failure (Patroni, a container's first process), and so is asked to restart it by nobody here.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run import process
from pgdyno.run.clock import monotonic_s
from pgdyno.run.journal import ProcessId, Starter, identify
from pgdyno.run.process import ServerUser

_ASK_PATIENCE_S = 10.0
# A fast shutdown writes all dirty buffers first, and recovery reads all WAL since the last checkpoint.
_STOP_PATIENCE_S = 600
_START_PATIENCE_S = 600
_POLL_S = 0.05
# The account's own name, and the one that most clusters were made with.
_ROLES = (None, "postgres")
# Source: PostgreSQL 18 src/backend/tcop/backend_startup.c, ProcessStartupPacket(); what it says while it comes and goes.
_PASSING = re.compile(r"the database system is (starting up|shutting down|not yet accepting|in recovery mode)")
# Its socket comes a little after its process, and goes before it.
_NOT_YET = re.compile(
    r"No such file or directory|Connection refused|did not end within|timeout expired"
    r"|closed the connection|terminating connection|Connection reset"
)
_NOT_YET_PATIENCE_S = 30.0
_LOG_LINES = 12
_Answer = TypeVar("_Answer")


class Postmaster(msgspec.Struct, frozen=True, kw_only=True):
    """A server that runs in a data directory."""

    id: ProcessId
    port: int
    socket_dir: str
    """Empty as long as it does not listen."""


class NamedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A data directory, the programs that belong to it, and whose it is."""

    data: Path
    major: int
    bindir: Path
    uid: int
    asker: ServerUser | None
    """Whom to run programs as; None: as ourselves, who own it."""

    def program(self, name: str) -> str:
        """The absolute path of one of its programs."""
        return str(self.bindir / name)

    def postmaster(self) -> Postmaster | None:
        """Of a server that lives. Source: PostgreSQL src/include/utils/pidfile.h."""
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
            pid = abs(int(lines[0]))
            if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() not in {"postgres", "postmaster"}:
                return None
            # An old file may tell the number of another server's process.
            if Path(f"/proc/{pid}/cwd").readlink() != self.data.resolve():
                return None
            found = identify(pid)
            # It tells its place bit by bit, and its state last.
            is_told = len(lines) > 7
            socket_dir = (lines[4].strip() or "localhost") if is_told else ""
            port = int(lines[3]) if is_told else 0
        except (OSError, ValueError, IndexError):
            return None
        return Postmaster(id=found, port=port, socket_dir=socket_dir) if found else None

    def ask(self, query: str, answer: type[_Answer]) -> _Answer:
        """What a query says, which gives one JSON document; waits for a server that comes or goes.

        Raises:
            HostError: It lets nobody in whom we may be.
            StepFailedError: It does not run, or does not answer in time.
        """
        begun_s = monotonic_s()
        while True:
            running = self.postmaster()
            if running is None:
                raise StepFailedError(f"the server in {self.data} does not run")
            reasons: list[str] = []
            for role in _ROLES if running.socket_dir else ():
                try:
                    return msgspec.json.decode(self._psql(running, role, query), type=answer)
                except StepFailedError as error:
                    reasons.append(f"{error.fact}: {error.detail}")
            waited_s = monotonic_s() - begun_s
            if waited_s > _patience_s(reasons):
                break
            time.sleep(_POLL_S)
        # It may have ended while it was asked.
        if self.postmaster() is None:
            raise StepFailedError(f"the server in {self.data} does not run", detail="".join(reasons[-1:]))
        raise HostError(
            f"the server in {self.data} does not let pgdyno in",
            detail="\n".join(dict.fromkeys(reasons)),
            hint="let its own account be a superuser by peer authentication on its socket (pg_hba.conf)",
        )

    def reload(self) -> None:
        """Have it read its configuration files; returns before it has. Does nothing where it does not run."""
        with contextlib.suppress(ProcessLookupError):
            if running := self.postmaster():
                # What pg_ctl reload and pg_reload_conf() do.
                os.kill(running.id.pid, signal.SIGHUP)

    def stop(self, starter: Starter) -> None:
        """Stop it with a fast shutdown; does nothing when it does not run.

        Raises:
            StepFailedError: It does not end.
        """
        if starter.unit is not None:
            self._run(["systemctl", "stop", starter.unit], f"systemd cannot stop {starter.unit}")
        elif self.postmaster() is not None:
            argv = [
                self.program("pg_ctl"),
                "stop",
                "-D",
                str(self.data),
                "-m",
                "fast",
                "-w",
                "-t",
                str(_STOP_PATIENCE_S),
            ]
            try:
                self._run([*self._as_owner(), *argv, "-s"], "the server does not stop")
            except StepFailedError:
                # It may have ended between our look and pg_ctl's.
                if self.postmaster() is not None:
                    raise

    def start(self, starter: Starter, environment: Mapping[str, str] | None) -> None:
        """Start it as it was started before, and wait until it answers; does nothing when it runs.

        Args:
            starter: What starts it.
            environment: Of its process, where pg_ctl starts it; None: a clean one.

        Raises:
            StepFailedError: It does not come up, with its own words.
        """
        if starter.unit is not None:
            argv = ["systemctl", "start", starter.unit]
            self._run(argv, f"systemd cannot start {starter.unit}", words=lambda: _read_unit_log(argv[-1]))
        elif self.postmaster() is None:
            with self._log_of(starter) as log:
                log_start = log.stat().st_size if log.is_file() else 0
                # `start` would not know the options of the command line: `restart` reads them from postmaster.opts, and
                # starts what does not run. Source: PostgreSQL 18 src/bin/pg_ctl/pg_ctl.c, do_restart().
                argv = [
                    self.program("pg_ctl"),
                    "restart",
                    "-D",
                    str(self.data),
                    "-w",
                    "-t",
                    str(_START_PATIENCE_S),
                    "-s",
                ]
                argv = [*self._as_owner(), *argv, "-l", str(log)]
                try:
                    self._run(
                        argv, "the server does not start", words=lambda: _tail(log, log_start), environment=environment
                    )
                except StepFailedError:
                    # One that was about to start when its pg_ctl was killed holds the lock.
                    if self.postmaster() is None:
                        raise
        self.ask("SELECT to_jsonb(true)", bool)

    def _psql(self, running: Postmaster, role: str | None, query: str) -> str:
        argv = [self.program("psql"), "-X", "-A", "-t", "-q", "-w", "-h", running.socket_dir, "-p", str(running.port)]
        argv += ["-d", "postgres", "-c", query, *([] if role is None else ["-U", role])]
        environment = {**process.clean_environment(), "PGCONNECT_TIMEOUT": str(int(_ASK_PATIENCE_S))}
        done = process.run(argv, user=self.asker, timeout_s=_ASK_PATIENCE_S, env=environment)
        if done.exit_code != 0:
            raise StepFailedError("psql was not let in", detail=" ".join(done.stderr.split()))
        return done.stdout

    def _run(
        self,
        argv: Sequence[str],
        fact: str,
        *,
        words: Callable[[], str] = str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        done = process.run(argv, timeout_s=_STOP_PATIENCE_S + 30, env=environment)
        if done.exit_code != 0:
            raise StepFailedError(fact, detail=words() or done.stderr.strip() or done.stdout.strip())

    def _as_owner(self) -> list[str]:
        if self.asker is None:
            return []
        # With all its groups: on Debian the key of the server's certificate is readable through one.
        try:
            pwd.getpwuid(self.uid)
            groups = "--init-groups"
        except KeyError:
            groups = "--clear-groups"
        ids = [f"--reuid={self.asker.uid}", f"--regid={self.asker.gid}"]
        return ["setpriv", "--pdeathsig=KILL", *ids, groups, "--"]

    @contextlib.contextmanager
    def _log_of(self, starter: Starter) -> Iterator[Path]:
        if starter.log is not None:
            yield Path(starter.log)
            return
        # Its collector takes over soon: what it says before that is wanted only if it fails.
        with tempfile.NamedTemporaryFile(prefix="pgdyno-start-") as log:
            if self.asker is not None:
                os.fchown(log.fileno(), self.asker.uid, self.asker.gid)
            yield Path(log.name)


def _patience_s(reasons: Sequence[str]) -> float:
    """How long to go on asking a server that has answered in these words, or not at all."""
    if any(map(_PASSING.search, reasons)):
        return _START_PATIENCE_S
    return _NOT_YET_PATIENCE_S if not reasons or any(map(_NOT_YET.search, reasons)) else 0.0


def open_server(data: Path, bindir: Path) -> NamedServer:
    """The server of an existing data directory, with programs that are known to be its own.

    Raises:
        OSError: It cannot be read.
        ValueError: It tells no version.
    """
    owner = data.stat()
    return NamedServer(
        data=data,
        major=int((data / "PG_VERSION").read_text(encoding="ascii")),
        bindir=bindir,
        uid=owner.st_uid,
        asker=_find_user(owner.st_uid, owner.st_gid) if os.geteuid() == 0 else None,
    )


def _find_user(uid: int, gid: int) -> ServerUser:
    try:
        return ServerUser(name=pwd.getpwuid(uid).pw_name, uid=uid, gid=gid)
    except KeyError:
        return ServerUser(name=str(uid), uid=uid, gid=gid)


def _tail(log: Path, start: int) -> str:
    try:
        text = log.read_bytes()[start:].decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-_LOG_LINES:])


def _read_unit_log(unit: str) -> str:
    return process.run(["journalctl", "--unit", unit, "--output", "cat", "--lines", str(_LOG_LINES)]).stdout.strip()
