"""The log of what pgdyno itself does: `pgdyno.log` of a record.

It must not cost a study anything: a line is one short write, nothing is flushed to the disk, and nothing is logged for each
second of a load or each slice. Where the file cannot be written, the study goes on without it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

LOG = logging.getLogger("pgdyno")
LOG.setLevel(logging.INFO)
# Without a record there is nowhere to log to: nothing may be printed on stderr, which shows the progress.
LOG.propagate = False
LOG.addHandler(logging.NullHandler())

LOG_FILE = "pgdyno.log"
# What is logged before the record exists: a check and the derived settings take some dozens of lines.
_MOST_PENDING = 10_000


class _Pending(logging.Handler):
    """Keeps what is logged before the record exists."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.records) < _MOST_PENDING:
            self.records.append(record)


class _RecordFile(logging.FileHandler):
    """Appends to a record's log, and ignores that it cannot be written, on a full disk for example."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, mode="a", encoding="utf-8", errors="backslashreplace")
        formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        del record

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def pending_log() -> Iterator[None]:
    """Keep what is logged in this block for the file that `logging_into` opens within it."""
    pending = _Pending()
    LOG.addHandler(pending)
    try:
        yield
    finally:
        LOG.removeHandler(pending)


@contextlib.contextmanager
def logging_into(folder: Path) -> Iterator[None]:
    """Append to the log of a record for the length of a block, beginning with what `pending_log` has kept."""
    try:
        file = _RecordFile(folder / LOG_FILE)
    except OSError:
        yield
        return
    for pending in [handler for handler in LOG.handlers if isinstance(handler, _Pending)]:
        for record in pending.records:
            file.handle(record)
        LOG.removeHandler(pending)
    LOG.addHandler(file)
    try:
        yield
    finally:
        LOG.removeHandler(file)
        file.close()
