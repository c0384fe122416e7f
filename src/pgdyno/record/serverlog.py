"""Parse the server's log into events: checkpoints, autovacuums, crashes, errors.

The parser reads what a postmaster writes to stderr under `LOG_SETTINGS`, and converts the log's wall-clock times to
CLOCK_MONOTONIC with the record's clock offset. It drops nothing: a line that it does not understand is a `LogLine`.

Source: PostgreSQL src/backend/access/transam/xlog.c (LogCheckpointStart, LogCheckpointEnd), commands/vacuum*.c,
postmaster/postmaster.c (LogChildExit), versions 15 to 18.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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
    r"(?P<epoch>\d+\.\d{3})\|(?P<pid>\d+)\|[^|]*\|(?P<state>\w{5})\|(?P<level>[A-Z]+\d?):  ?(?P<text>.*)"
)
_ATTACHED = {"DETAIL", "HINT", "STATEMENT", "CONTEXT", "QUERY", "LOCATION", "BACKTRACE"}
_ERROR_LEVELS = {"ERROR", "FATAL", "PANIC"}
_CHECKPOINT_START = re.compile(r"(?:checkpoint|restartpoint) starting:(?P<reasons>.*)")
_CHECKPOINT_COMPLETE = re.compile(
    r"(?:checkpoint|restartpoint) complete: wrote (?P<buffers>\d+) buffers \([\d.]+%\)(?:, wrote \d+ SLRU buffers)?"
    r"; \d+ WAL file\(s\) added, \d+ removed, \d+ recycled"
    r"; write=(?P<write>[\d.]+) s, sync=(?P<sync>[\d.]+) s, total=(?P<total>[\d.]+) s"
    r"; sync files=\d+, longest=[\d.]+ s, average=[\d.]+ s; distance=(?P<distance>\d+) kB, estimate=\d+ kB"
)
_AUTOVACUUM = re.compile(
    r"automatic (?P<how>(?:aggressive )?vacuum|analyze)(?: to prevent wraparound)? of table \"(?P<table>.*?)\""
)
_ELAPSED = re.compile(r"system usage: CPU: user: [\d.]+ s, system: [\d.]+ s, elapsed: (?P<elapsed>[\d.]+) s")
_SIGNALLED = re.compile(r".+ \(PID \d+\) was terminated by (?:signal|exception) \w+")
_EXITED = re.compile(r"(?P<process>.+) \(PID \d+\) exited with exit code (?P<code>\d+)")


class LogOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Time and kind of a log line; `monotonic_s` is on CLOCK_MONOTONIC."""

    monotonic_s: float
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


class LogLine(LogEvent, frozen=True, kw_only=True):
    """A message of no other type."""


class CheckpointStart(LogEvent, frozen=True, kw_only=True):
    """Start of a checkpoint, with the server's reasons: time, wal, immediate, force, wait, shutdown, flush-all etc."""

    reasons: tuple[str, ...]


class CheckpointComplete(LogEvent, frozen=True, kw_only=True):
    """Completion of a checkpoint."""

    written_pages: int
    write_s: float
    sync_s: float
    total_s: float
    distance_kb: int


class Autovacuum(LogEvent, frozen=True, kw_only=True):
    """An automatic vacuum or analyze that ended. `elapsed_s` is None where the message does not contain it."""

    command: str
    """`vacuum`, `aggressive vacuum` or `analyze`."""
    table: str
    """Table as database.schema.table."""
    elapsed_s: float | None


class Crash(LogEvent, frozen=True, kw_only=True):
    """A server process that ended abnormally; the server restarts all others and recovers."""


class ErrorReport(LogEvent, frozen=True, kw_only=True):
    """An ERROR, FATAL or PANIC; `origin` has the level and the SQLSTATE."""


AnyLogEvent = LogLine | CheckpointStart | CheckpointComplete | Autovacuum | Crash | ErrorReport


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


def _read_drafts(text: str, clock_offset_s: float) -> list[_Draft]:
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
        origin = LogOrigin(monotonic_s=float(match["epoch"]) - clock_offset_s, sqlstate=match["state"], level=level)
        current = latest[pid] = _Draft(origin, match["text"])
        drafts.append(current)
    return drafts


def _classify(draft: _Draft) -> AnyLogEvent:
    message = "\n".join(draft.lines)
    attached = {label: "\n".join(lines) for label, lines in draft.attached.items()}
    line = LogLine(origin=draft.origin, message=message, attached=attached)
    if draft.origin is None:
        return line
    if draft.origin.level in _ERROR_LEVELS:
        return ErrorReport(**msgspec.structs.asdict(line))
    for pattern, make in _MAKERS:
        match = pattern.match(message)
        if match is not None:
            return make(match, line)
    return line


def _checkpoint_start(match: re.Match[str], line: LogLine) -> AnyLogEvent:
    return CheckpointStart(**msgspec.structs.asdict(line), reasons=tuple(match["reasons"].split()))


def _checkpoint_complete(match: re.Match[str], line: LogLine) -> AnyLogEvent:
    return CheckpointComplete(
        **msgspec.structs.asdict(line),
        written_pages=int(match["buffers"]),
        write_s=float(match["write"]),
        sync_s=float(match["sync"]),
        total_s=float(match["total"]),
        distance_kb=int(match["distance"]),
    )


def _autovacuum(match: re.Match[str], line: LogLine) -> AnyLogEvent:
    elapsed = _ELAPSED.search(line.message)
    return Autovacuum(
        **msgspec.structs.asdict(line),
        command=match["how"],
        table=match["table"],
        elapsed_s=float(elapsed["elapsed"]) if elapsed else None,
    )


def _signalled(_: re.Match[str], line: LogLine) -> AnyLogEvent:
    return Crash(**msgspec.structs.asdict(line))


def _exited(match: re.Match[str], line: LogLine) -> AnyLogEvent:
    # Background workers exit with 1 at any shutdown, and are restarted otherwise. Only codes above 1 restart the
    # server.
    if match["process"].startswith("background worker") and int(match["code"]) <= 1:
        return line
    return Crash(**msgspec.structs.asdict(line))


_MAKERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], LogLine], AnyLogEvent]], ...] = (
    (_CHECKPOINT_START, _checkpoint_start),
    (_CHECKPOINT_COMPLETE, _checkpoint_complete),
    (_AUTOVACUUM, _autovacuum),
    (_SIGNALLED, _signalled),
    (_EXITED, _exited),
)
