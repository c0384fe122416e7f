"""Read the clocks: durations come from the monotonic clock, wall time only names and anchors."""

from __future__ import annotations

import time
from datetime import UTC, datetime

_LOOKS = 5


def monotonic_s() -> float:
    """Read CLOCK_MONOTONIC in seconds, which is the same for all processes since boot."""
    return time.monotonic()


def wall_clock_offset_s() -> float:
    """Return the present difference between seconds since the epoch and CLOCK_MONOTONIC."""
    looks = []
    # Between two looks this process may lose its CPU for long; the quickest of a few did not.
    for _ in range(_LOOKS):
        before_s, epoch_s, after_s = time.monotonic(), time.time(), time.monotonic()
        looks.append((after_s - before_s, epoch_s - (before_s + after_s) / 2.0))
    return min(looks)[1]


def local_now() -> datetime:
    """Read the present time in the machine's time zone."""
    return datetime.now(UTC).astimezone()


def cpu_seconds() -> float:
    """Read the CPU seconds that all threads of this process have used."""
    return time.process_time()


def wait(seconds: float) -> None:
    """Wait; Ctrl-C ends it."""
    time.sleep(seconds)
