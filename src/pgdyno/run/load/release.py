"""Note when the clients of a load, all connected, are let go together, for the reader of its transaction log.

pgbench is frozen as soon as its clients have their sockets, and may run transactions by then. Such transactions
include the time for which it is frozen, so they are left out.
"""

from __future__ import annotations

from pathlib import Path

from pgdyno.record.durable import writing

_FILE = ".release"


def note_release(folder: Path, stamp_s: float) -> None:
    """Note when the clients are let go, in the folder of the log.

    Args:
        folder: The log's.
        stamp_s: In seconds since the epoch, by the clock of the transactions' stamps.

    Raises:
        StepFailedError: It cannot be written.
    """
    with writing(folder):
        part = folder / f"{_FILE}.part"
        part.write_text(str(round(stamp_s * 1e6)))
        part.rename(folder / _FILE)


def read_release(folder: Path) -> int | None:
    """Return when the clients are let go, in microseconds since the epoch; None if they are not yet."""
    try:
        return int((folder / _FILE).read_text())
    except FileNotFoundError:
        return None
