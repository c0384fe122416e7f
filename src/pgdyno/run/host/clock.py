"""The clocks. Durations come from the monotonic one; wall time only names and anchors."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def monotonic_s() -> float:
    """CLOCK_MONOTONIC in seconds; the same clock for all processes since boot."""
    return time.monotonic()


def wall_clock_offset_s() -> float:
    """What to add to CLOCK_MONOTONIC for seconds since the epoch, at this moment."""
    return time.time() - time.monotonic()


def local_now() -> datetime:
    """Now, in the machine's own time zone."""
    return datetime.now(UTC).astimezone()
