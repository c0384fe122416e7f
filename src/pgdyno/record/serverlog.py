"""Parse the server's log into events: checkpoints, autovacuums, crashes, errors, lock waits.

The parser reads what a postmaster writes to stderr under `LOG_SETTINGS`, and converts the log's wall-clock times to
CLOCK_MONOTONIC with the record's clock offset. It drops nothing: a line that it does not understand is a `LogLine`.

Source: PostgreSQL src/backend/access/transam/xlog.c (LogCheckpointStart, LogCheckpointEnd), commands/vacuum*.c,
postmaster/postmaster.c (LogChildExit), storage/lmgr/proc.c, tcop/postgres.c, versions 15 to 18.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

LOG_SETTINGS: dict[str, str] = {
    "log_destination": "stderr",
    # Epoch with milliseconds, process, its type, SQLSTATE.
    "log_line_prefix": "%n|%p|%b|%e|",
    "log_checkpoints": "on",
    "log_autovacuum_min_duration": "0",
    "log_lock_waits": "on",
    "lc_messages": "C",
}
"""Settings under which the server must run so that this module can parse its log."""

_PREFIX = re.compile(
    r"(?P<epoch>\d+\.\d{3})\|(?P<pid>\d+)\|(?P<type>[^|]*)\|(?P<state>\w{5})\|(?P<level>[A-Z]+\d?):  ?(?P<text>.*)"
)
_ATTACHED = {"DETAIL", "HINT", "STATEMENT", "CONTEXT", "QUERY", "LOCATION", "BACKTRACE"}
_ERROR_LEVELS = {"ERROR", "FATAL", "PANIC"}
_CHECKPOINT_START = re.compile(r"(?:checkpoint|restartpoint) starting:(?P<reasons>.*)")
_CHECKPOINT_COMPLETE = re.compile(
    r"(?:checkpoint|restartpoint) complete: wrote (?P<buffers>\d+) buffers \((?P<percent>[\d.]+)%\)"
    r"(?:, wrote (?P<slru>\d+) SLRU buffers)?"
    r"; (?P<added>\d+) WAL file\(s\) added, (?P<removed>\d+) removed, (?P<recycled>\d+) recycled"
    r"; write=(?P<write>[\d.]+) s, sync=(?P<sync>[\d.]+) s, total=(?P<total>[\d.]+) s"
    r"; sync files=(?P<files>\d+), longest=(?P<longest>[\d.]+) s, average=(?P<average>[\d.]+) s"
    r"; distance=(?P<distance>\d+) kB, estimate=(?P<estimate>\d+) kB"
)
_AUTOVACUUM = re.compile(
    r"automatic (?P<how>(?:aggressive )?vacuum|analyze)(?P<wrap> to prevent wraparound)? of table \"(?P<table>.*?)\""
)
_ELAPSED = re.compile(r"system usage: CPU: user: [\d.]+ s, system: [\d.]+ s, elapsed: (?P<elapsed>[\d.]+) s")
_SIGNALLED = re.compile(r"(?P<process>.+) \(PID (?P<pid>\d+)\) was terminated by (?:signal|exception) (?P<signal>\w+)")
_EXITED = re.compile(r"(?P<process>.+) \(PID (?P<pid>\d+)\) exited with exit code (?P<code>\d+)")
_DURATION = re.compile(r"duration: (?P<ms>[\d.]+) ms")
_LOCK_WAIT = re.compile(
    r"process (?P<pid>\d+) (?:still waiting for|acquired|detected deadlock while waiting for|avoided deadlock for|"
    r"failed to acquire) (?P<lock>.+?) on (?P<object>.+) after (?P<ms>[\d.]+) ms"
)
_TEMPORARY_FILE = re.compile(r"temporary file: path \"(?P<path>.*?)\", size (?P<bytes>\d+)")


class LogOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Time and source of a log line: `monotonic_s` is on CLOCK_MONOTONIC, `wall_s` is the log's own epoch time."""

    monotonic_s: float
    wall_s: float
    pid: int
    backend_type: str
    sqlstate: str
    level: str


class LogEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every event has.

    `origin` is None for lines without the configured prefix, such as those logged before the settings are read.
    `message` may hold several lines; `attached` has DETAIL, HINT, STATEMENT and the like.
    """

    origin: LogOrigin | None
    message: str
    attached: dict[str, str] = {}


class LogLine(LogEvent, frozen=True, kw_only=True, tag="line"):
    """A message of no other type."""


class CheckpointStart(LogEvent, frozen=True, kw_only=True, tag="checkpoint_start"):
    """Start of a checkpoint, with the server's reasons: time, wal, immediate, force, wait, shutdown, flush-all etc."""

    reasons: tuple[str, ...]


class CheckpointComplete(LogEvent, frozen=True, kw_only=True, tag="checkpoint_complete"):
    """Completion of a checkpoint. `slru_pages` is None before PostgreSQL 18, which introduced it."""

    written_pages: int
    written_percent: float
    slru_pages: int | None
    wal_files_added_count: int
    wal_files_removed_count: int
    wal_files_recycled_count: int
    write_s: float
    sync_s: float
    total_s: float
    synced_files_count: int
    longest_sync_s: float
    average_sync_s: float
    distance_kb: int
    estimate_kb: int


class Autovacuum(LogEvent, frozen=True, kw_only=True, tag="autovacuum"):
    """An automatic vacuum or analyze that ended. `elapsed_s` is None where the message does not contain it."""

    command: str
    """`vacuum`, `aggressive vacuum` or `analyze`."""
    table: str
    """Table as database.schema.table."""
    is_against_wraparound: bool
    elapsed_s: float | None


class Crash(LogEvent, frozen=True, kw_only=True, tag="crash"):
    """A server process that ended abnormally; the server restarts all others and recovers."""

    process: str
    process_pid: int
    signal: str | None
    exit_code: int | None


class ErrorReport(LogEvent, frozen=True, kw_only=True, tag="error"):
    """An ERROR, FATAL or PANIC; `origin` has the level and the SQLSTATE."""


class SlowStatement(LogEvent, frozen=True, kw_only=True, tag="slow_statement"):
    """A statement whose duration was logged."""

    duration_ms: float


class LockWait(LogEvent, frozen=True, kw_only=True, tag="lock_wait"):
    """A lock wait longer than deadlock_timeout; the message says whether it continues, ended, or was a deadlock."""

    waiting_pid: int
    lock: str
    object: str
    waited_ms: float


class TemporaryFile(LogEvent, frozen=True, kw_only=True, tag="temporary_file"):
    """A temporary file that was deleted after use."""

    path: str
    bytes: int


AnyLogEvent = (
    LogLine
    | CheckpointStart
    | CheckpointComplete
    | Autovacuum
    | Crash
    | ErrorReport
    | SlowStatement
    | LockWait
    | TemporaryFile
)


class _Draft:
    """An incomplete message: the following lines may belong to it."""

    def __init__(self, origin: LogOrigin | None, text: str) -> None:
        self.origin = origin
        self.lines = [text]
        self.attached: dict[str, list[str]] = {}
        self.open = self.lines

    def attach(self, label: str, text: str) -> None:
        self.open = self.attached.setdefault(label, [])
        self.open.append(text)


def read_serverlog(path: Path, *, clock_offset_s: float) -> tuple[AnyLogEvent, ...]:
    """Parse a whole log file; bytes that are not UTF-8 are replaced. See `parse_serverlog`."""
    return parse_serverlog(path.read_text(encoding="utf-8", errors="replace"), clock_offset_s=clock_offset_s)


def parse_serverlog(text: str, *, clock_offset_s: float) -> tuple[AnyLogEvent, ...]:
    """Parse the events of a log written under `LOG_SETTINGS`, in the order of their first lines.

    Args:
        text: The log. A last line that is cut short is kept unchanged.
        clock_offset_s: Offset that converts CLOCK_MONOTONIC to seconds since the epoch.
    """
    return tuple(_classify(draft) for draft in _read_drafts(text, clock_offset_s))


def _read_drafts(text: str, clock_offset_s: float) -> Iterator[_Draft]:
    drafts: list[_Draft] = []
    latest: dict[int, _Draft] = {}
    current: _Draft | None = None
    for line in text.split("\n"):
        match = _PREFIX.fullmatch(line)
        if match is None:
            if line.startswith("\t") and current is not None:
                current.open.append(line[1:])
            elif line:
                current = None
                drafts.append(_Draft(None, line))
            continue
        pid, level = int(match["pid"]), match["level"]
        if level in _ATTACHED and pid in latest:
            current = latest[pid]
            current.attach(level, match["text"])
            continue
        epoch_s = float(match["epoch"])
        origin = LogOrigin(
            monotonic_s=epoch_s - clock_offset_s,
            wall_s=epoch_s,
            pid=pid,
            backend_type=match["type"],
            sqlstate=match["state"],
            level=level,
        )
        current = latest[pid] = _Draft(origin, match["text"])
        drafts.append(current)
    return iter(drafts)


def _classify(draft: _Draft) -> AnyLogEvent:
    message = "\n".join(draft.lines)
    attached = {label: "\n".join(lines) for label, lines in draft.attached.items()}
    base = LogLine(origin=draft.origin, message=message, attached=attached)
    if draft.origin is None:
        return base
    if draft.origin.level in _ERROR_LEVELS:
        return ErrorReport(origin=base.origin, message=message, attached=attached)
    for pattern, make in _MAKERS:
        match = pattern.match(message)
        event = make(match, base) if match is not None else None
        if event is not None:
            return event
    return base


def _checkpoint_start(match: re.Match[str], base: LogLine) -> AnyLogEvent:
    reasons = tuple(match["reasons"].split())
    return CheckpointStart(origin=base.origin, message=base.message, attached=base.attached, reasons=reasons)


def _checkpoint_complete(match: re.Match[str], base: LogLine) -> AnyLogEvent:
    return CheckpointComplete(
        origin=base.origin,
        message=base.message,
        attached=base.attached,
        written_pages=int(match["buffers"]),
        written_percent=float(match["percent"]),
        slru_pages=int(match["slru"]) if match["slru"] is not None else None,
        wal_files_added_count=int(match["added"]),
        wal_files_removed_count=int(match["removed"]),
        wal_files_recycled_count=int(match["recycled"]),
        write_s=float(match["write"]),
        sync_s=float(match["sync"]),
        total_s=float(match["total"]),
        synced_files_count=int(match["files"]),
        longest_sync_s=float(match["longest"]),
        average_sync_s=float(match["average"]),
        distance_kb=int(match["distance"]),
        estimate_kb=int(match["estimate"]),
    )


def _autovacuum(match: re.Match[str], base: LogLine) -> AnyLogEvent:
    elapsed = _ELAPSED.search(base.message)
    return Autovacuum(
        origin=base.origin,
        message=base.message,
        attached=base.attached,
        command=match["how"],
        table=match["table"],
        is_against_wraparound=match["wrap"] is not None,
        elapsed_s=float(elapsed["elapsed"]) if elapsed else None,
    )


def _signalled(match: re.Match[str], base: LogLine) -> AnyLogEvent:
    return Crash(
        origin=base.origin,
        message=base.message,
        attached=base.attached,
        process=match["process"],
        process_pid=int(match["pid"]),
        signal=match["signal"],
        exit_code=None,
    )


def _exited(match: re.Match[str], base: LogLine) -> AnyLogEvent | None:
    # Background workers exit with 1 at any shutdown, and are restarted otherwise. Only codes above 1 restart the
    # server.
    if match["process"].startswith("background worker") and int(match["code"]) <= 1:
        return None
    return Crash(
        origin=base.origin,
        message=base.message,
        attached=base.attached,
        process=match["process"],
        process_pid=int(match["pid"]),
        signal=None,
        exit_code=int(match["code"]),
    )


def _duration(match: re.Match[str], base: LogLine) -> AnyLogEvent:
    return SlowStatement(
        origin=base.origin, message=base.message, attached=base.attached, duration_ms=float(match["ms"])
    )


def _lock_wait(match: re.Match[str], base: LogLine) -> AnyLogEvent:
    return LockWait(
        origin=base.origin,
        message=base.message,
        attached=base.attached,
        waiting_pid=int(match["pid"]),
        lock=match["lock"],
        object=match["object"],
        waited_ms=float(match["ms"]),
    )


def _temporary_file(match: re.Match[str], base: LogLine) -> AnyLogEvent:
    return TemporaryFile(
        origin=base.origin,
        message=base.message,
        attached=base.attached,
        path=match["path"],
        bytes=int(match["bytes"]),
    )


_MAKERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], LogLine], AnyLogEvent | None]], ...] = (
    (_CHECKPOINT_START, _checkpoint_start),
    (_CHECKPOINT_COMPLETE, _checkpoint_complete),
    (_AUTOVACUUM, _autovacuum),
    (_SIGNALLED, _signalled),
    (_EXITED, _exited),
    (_DURATION, _duration),
    (_LOCK_WAIT, _lock_wait),
    (_TEMPORARY_FILE, _temporary_file),
)
