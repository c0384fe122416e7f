"""Read the clocks: durations come from the monotonic clock, wall time only names and anchors."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def monotonic_s() -> float:
    """Read CLOCK_MONOTONIC in seconds, which is the same for all processes since boot."""
    return time.monotonic()


def wall_clock_offset_s() -> float:
    """Return the present difference between seconds since the epoch and CLOCK_MONOTONIC."""
    return time.time() - time.monotonic()


def local_now() -> datetime:
    """Read the present time in the machine's time zone."""
    return datetime.now(UTC).astimezone()


def cpu_seconds() -> float:
    """Read the CPU seconds that all threads of this process have used."""
    return time.process_time()


def wait(seconds: float) -> None:
    """Wait; Ctrl-C ends it."""
    time.sleep(seconds)
