"""Query, reload, stop and restart a server that the user named.

Queries go through psql as the account that owns the server. The server is stopped only if it is known how to start it
again: by systemd, if it is the main process of a unit, or by pg_ctl, if no supervisor watches it. A supervisor such as
Patroni or the first process of a container may take a stop for a failure, so pgdyno does not restart such a server.
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
from pgdyno.run.change.changes import Starter
from pgdyno.run.given.data_folder import DataFolder, find_asker
from pgdyno.run.host import process
from pgdyno.run.host.clock import monotonic_s

_ASK_PATIENCE_S = 10.0
# A fast shutdown writes all dirty buffers first, and recovery reads all WAL since the last checkpoint.
_STOP_PATIENCE_S = 600
_START_PATIENCE_S = 600
_SLACK_S = 30
_POLL_S = 0.05
# What a server says while it starts or stops. Source: PostgreSQL 18 src/backend/tcop/backend_startup.c,
# ProcessStartupPacket().
_PASSING = re.compile(r"the database system is (starting up|shutting down|not yet accepting|in recovery mode)")
# The server's socket appears a little after its process, and vanishes before it.
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
    """A data directory whose server may be changed, by root or by its owner."""

    def ask(self, query: str, answer: type[_Answer]) -> _Answer:
        """Return the one JSON document that a query gives; wait for a server that is starting or stopping.

        Raises:
            HostError: The server accepts none of the accounts that pgdyno may use.
            StepFailedError: The server does not run, or does not answer in time.
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
        # The server may have ended during the query.
        if self.postmaster() is None:
            raise StepFailedError(f"the server in {self.path} does not run", detail=reason)
        raise HostError(
            f"the server in {self.path} does not let pgdyno in",
            detail=reason,
            hint="let its own account be a superuser by peer authentication on its socket (pg_hba.conf)",
        )

    def reload(self) -> None:
        """Tell the server to reload its configuration files, without waiting; do nothing if it does not run."""
        with contextlib.suppress(ProcessLookupError):
            if running := self.postmaster():
                # `pg_ctl reload` and pg_reload_conf() do the same.
                os.kill(running.id.pid, signal.SIGHUP)

    def stop(self, starter: Starter) -> None:
        """Stop the server with a fast shutdown; do nothing if it does not run.

        Raises:
            StepFailedError: The server does not stop.
        """
        if starter.unit is not None:
            _systemctl("stop", starter.unit)
        elif self.postmaster() is not None:
            words = ["stop", "-D", str(self.path), "-m", "fast", "-w", "-t", str(_STOP_PATIENCE_S), "-s"]
            done = self.run("pg_ctl", *words, timeout_s=_STOP_PATIENCE_S + _SLACK_S)
            # The server may have ended between this process's check and that of pg_ctl.
            if done.exit_code != 0 and self.postmaster() is not None:
                raise StepFailedError("the server does not stop", detail=done.stderr.strip())

    def start(self, starter: Starter, environment: Mapping[str, str] | None) -> None:
        """Start the server as it was started before and wait until it answers; do nothing if it runs.

        Then the units that systemd has stopped with it are started.

        Args:
            starter: The way to start it.
            environment: The server's environment if pg_ctl starts it; None: a clean one.

        Raises:
            StepFailedError: The server, or a unit that was stopped with it, does not start; the detail quotes its log.
        """
        if starter.unit is not None:
            self._start_unit(starter.unit)
        elif self.postmaster() is None:
            with self._log_of(starter) as log:
                log_start = log.stat().st_size if log.is_file() else 0
                # `start` would not know the options of the command line: `restart` reads them from postmaster.opts, and
                # also starts a stopped server. Source: PostgreSQL 18 src/bin/pg_ctl/pg_ctl.c, do_restart().
                words = ["restart", "-D", str(self.path), "-w", "-t", str(_START_PATIENCE_S), "-s", "-l", str(log)]
                patience_s = _START_PATIENCE_S + _SLACK_S
                is_foreign = environment is not None
                done = self.run("pg_ctl", *words, timeout_s=patience_s, environment=environment, is_foreign=is_foreign)
                # A server that was starting when its pg_ctl was killed holds the lock.
                if done.exit_code != 0 and self.postmaster() is None:
                    raise StepFailedError(
                        "the server does not start", detail=self._tail(log, log_start) or done.stderr.strip()
                    )
        self.ask(_ANYTHING, bool)
        for unit in starter.dependents:
            _systemctl("start", unit)

    def _start_unit(self, unit: str) -> None:
        # After a failure systemd may be about to restart the server with the settings that made it fail. A unit of
        # Type=simple or exec counts as started before its server has written a pid file.
        begun_s = monotonic_s()
        _systemctl("restart", unit)
        # Counted now: until it was asked to, systemd may have restarted the server once more.
        restarts = _count_restarts(unit)
        while True:
            try:
                self.ask(_ANYTHING, bool)
            except StepFailedError as error:
                has_failed = _count_restarts(unit) != restarts or show_unit(unit, "ActiveState") in _ENDED
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
        # The server's log collector takes over soon: earlier messages are needed only if the start fails.
        folder = None if self.asker is None else self.asker.temporary_folder
        with tempfile.NamedTemporaryFile(prefix="pgdyno-start-", dir=folder) as log:
            if self.asker is not None:
                os.fchown(log.fileno(), self.asker.uid, self.asker.gid)
            yield Path(log.name)

    def _tail(self, log: Path, start: int) -> str:
        # tail runs as the owner, because the owner may have put a link in the log's place.
        said = self.run("/usr/bin/tail", "-c", f"+{start + 1}", str(log), timeout_s=_ASK_PATIENCE_S).stdout
        return "\n".join(said.strip().splitlines()[-_LOG_LINES:])


def _patience_s(reason: str) -> float:
    """Return how long to keep asking a server that gave this reason, or no answer at all."""
    if _PASSING.search(reason):
        return _START_PATIENCE_S
    return _NOT_YET_PATIENCE_S if not reason or _NOT_YET.search(reason) else 0.0


def open_server(path: Path, *, bindir: Path, uid: int) -> NamedServer:
    """Open the data directory of a server that an earlier tuning has changed.

    Raises:
        HostError: The directory belongs to another account now, or cannot be read.
    """
    try:
        owner = path.stat()
        major = int((path / "PG_VERSION").read_text(encoding="ascii"))
    except (OSError, ValueError) as exc:
        raise HostError(f"cannot read {path}", detail=str(exc)) from exc
    # pgdyno must not run one account's programs as another account, nor write its files for another.
    if owner.st_uid != uid:
        raise HostError(f"{path} belongs to another account now", detail=f"uid {owner.st_uid}, it was {uid}")
    return NamedServer(path=path, major=major, bindir=bindir, uid=uid, asker=find_asker(owner))


def _systemctl(verb: str, unit: str) -> None:
    done = process.run(["systemctl", verb, "--", unit], timeout_s=_STOP_PATIENCE_S + _SLACK_S)
    if done.exit_code != 0:
        raise StepFailedError(f"systemd cannot {verb} {unit}", detail=_read_journal(unit) or done.stderr.strip())


def show_unit(unit: str, name: str) -> str:
    """Return a property of a systemd unit; empty if the unit lacks it or systemd does not run."""
    return process.run(["systemctl", "show", f"--property={name}", "--value", "--", unit]).stdout.strip()


def _count_restarts(unit: str) -> int:
    """Return how often systemd has restarted the unit by itself after failures."""
    return int(show_unit(unit, "NRestarts") or 0)


def _read_journal(unit: str) -> str:
    # Lines that are not messages of the unit, such as "-- No entries --", begin with "-- ".
    lines = process.run(["journalctl", f"--unit={unit}", "--output=cat", f"--lines={_LOG_LINES}"]).stdout.splitlines()
    return "\n".join(line for line in lines if not line.startswith("-- "))
