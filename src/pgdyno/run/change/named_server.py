"""A server that the user named, to be changed: asked, reloaded, stopped, and started again as it was started before.

It is asked through psql as the account that owns it. It is stopped only where it is known what starts it again: systemd,
when it is the main process of a unit, or pg_ctl, when nobody watches over it. What else has started it may take its end
for a failure (Patroni, a container's first process), and so is asked to restart it by nobody here.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.change.journal import Starter
from pgdyno.run.given.data_folder import DataFolder, find_asker
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.host import THIS_HOST

_ASK_PATIENCE_S = 10.0
# A fast shutdown writes all dirty buffers first, and recovery reads all WAL since the last checkpoint.
_STOP_PATIENCE_S = 600
_START_PATIENCE_S = 600
_SLACK_S = 30
_POLL_S = 0.05
# Source: PostgreSQL 18 src/backend/tcop/backend_startup.c, ProcessStartupPacket(); what it says while it comes and goes.
_PASSING = re.compile(r"the database system is (starting up|shutting down|not yet accepting|in recovery mode)")
# Its socket comes a little after its process, and goes before it.
_NOT_YET = re.compile(
    r"No such file or directory|Connection refused|did not end within|timeout expired"
    r"|closed the connection|terminating connection|Connection reset"
)
_NOT_YET_PATIENCE_S = 30.0
_LOG_LINES = 12
_ENDED = {"failed", "inactive"}
_ANYTHING = "SELECT to_jsonb(true)"
_Answer = TypeVar("_Answer")


class NamedServer(DataFolder, frozen=True, kw_only=True):
    """A data directory whose server may be changed: by root, or by its owner."""

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
                raise StepFailedError(f"the server in {self.path} does not run")
            try:
                return self.ask_once(running, query, answer, patience_s=_ASK_PATIENCE_S)
            except StepFailedError as error:
                reason = error.detail
            waited_s = monotonic_s() - begun_s
            if waited_s > _patience_s(reason):
                break
            time.sleep(_POLL_S)
        # It may have ended while it was asked.
        if self.postmaster() is None:
            raise StepFailedError(f"the server in {self.path} does not run", detail=reason)
        raise HostError(
            f"the server in {self.path} does not let pgdyno in",
            detail=reason,
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
            _systemctl("stop", starter.unit)
        elif self.postmaster() is not None:
            words = ["stop", "-D", str(self.path), "-m", "fast", "-w", "-t", str(_STOP_PATIENCE_S), "-s"]
            done = self.run("pg_ctl", *words, timeout_s=_STOP_PATIENCE_S + _SLACK_S)
            # It may have ended between our look and pg_ctl's.
            if done.exit_code != 0 and self.postmaster() is not None:
                raise StepFailedError("the server does not stop", detail=done.stderr.strip())

    def start(self, starter: Starter, environment: Mapping[str, str] | None) -> None:
        """Start it as it was started before, and wait until it answers; does nothing when it runs.

        Args:
            starter: What starts it.
            environment: Of its process, where pg_ctl starts it; None: a clean one.

        Raises:
            StepFailedError: It does not come up, with its own words.
        """
        if starter.unit is not None:
            self._start_unit(starter.unit)
        elif self.postmaster() is None:
            with self._log_of(starter) as log:
                log_start = log.stat().st_size if log.is_file() else 0
                # `start` would not know the options of the command line: `restart` reads them from postmaster.opts, and
                # starts what does not run. Source: PostgreSQL 18 src/bin/pg_ctl/pg_ctl.c, do_restart().
                words = ["restart", "-D", str(self.path), "-w", "-t", str(_START_PATIENCE_S), "-s", "-l", str(log)]
                done = self.run("pg_ctl", *words, timeout_s=_START_PATIENCE_S + _SLACK_S, environment=environment)
                # One that was about to start when its pg_ctl was killed holds the lock.
                if done.exit_code != 0 and self.postmaster() is None:
                    raise StepFailedError(
                        "the server does not start", detail=self._tail(log, log_start) or done.stderr.strip()
                    )
        self.ask(_ANYTHING, bool)

    def _start_unit(self, unit: str) -> None:
        # systemd may be about to start it anew, after a failure, with what it failed of; and a unit of Type=simple or exec
        # counts as started before its server has so much as a pid file.
        begun_s, restarts = monotonic_s(), _count_restarts(unit)
        _systemctl("restart", unit)
        while True:
            try:
                self.ask(_ANYTHING, bool)
            except StepFailedError as error:
                # The count begins anew when a unit that had ended is started, or goes on.
                has_failed = _count_restarts(unit) not in {0, restarts} or show_unit(unit, "ActiveState") in _ENDED
                if has_failed or monotonic_s() - begun_s > _START_PATIENCE_S:
                    said = _read_journal(unit) or error.detail or error.fact
                    raise StepFailedError(f"{unit} does not start", detail=said) from error
            else:
                return
            time.sleep(_POLL_S)

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

    def _tail(self, log: Path, start: int) -> str:
        # As its owner, who may have put a link in its place.
        said = self.run("/usr/bin/tail", "-c", f"+{start + 1}", str(log), timeout_s=_ASK_PATIENCE_S).stdout
        return "\n".join(said.strip().splitlines()[-_LOG_LINES:])


def _patience_s(reason: str) -> float:
    """How long to go on asking a server that has answered in these words, or not at all."""
    if _PASSING.search(reason):
        return _START_PATIENCE_S
    return _NOT_YET_PATIENCE_S if not reason or _NOT_YET.search(reason) else 0.0


def open_server(path: Path, *, bindir: Path, uid: int) -> NamedServer:
    """The server of a data directory that was changed before.

    Raises:
        HostError: It is another account's now, or cannot be read.
    """
    try:
        owner = path.stat()
        major = int((path / "PG_VERSION").read_text(encoding="ascii"))
    except (OSError, ValueError) as exc:
        raise HostError(f"cannot read {path}", detail=str(exc)) from exc
    # Programs of one account must not be run as another, nor files of one be written for another.
    if owner.st_uid != uid:
        raise HostError(f"{path} belongs to another account now", detail=f"uid {owner.st_uid}, it was {uid}")
    return NamedServer(path=path, major=major, bindir=bindir, uid=uid, asker=find_asker(owner))


def _systemctl(verb: str, unit: str) -> None:
    done = THIS_HOST.run(["systemctl", verb, "--", unit], timeout_s=_STOP_PATIENCE_S + _SLACK_S)
    if done.exit_code != 0:
        raise StepFailedError(f"systemd cannot {verb} {unit}", detail=_read_journal(unit) or done.stderr.strip())


def show_unit(unit: str, name: str) -> str:
    """A property of a unit of systemd's; empty where it has none, or no systemd runs."""
    return THIS_HOST.run(["systemctl", "show", f"--property={name}", "--value", "--", unit]).stdout.strip()


def _count_restarts(unit: str) -> int:
    """How often systemd has started it anew by itself, after failures."""
    return int(show_unit(unit, "NRestarts") or 0)


def _read_journal(unit: str) -> str:
    # What is not a message of the unit's, such as that there is none, begins so.
    lines = THIS_HOST.run(["journalctl", f"--unit={unit}", "--output=cat", f"--lines={_LOG_LINES}"]).stdout.splitlines()
    return "\n".join(line for line in lines if not line.startswith("-- "))
