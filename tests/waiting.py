"""Waiting for a condition, with a limit that only a test that would never end reaches."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], *, within_s: float = 600, step_s: float = 0.02) -> bool:
    """Wait for a condition; returns whether it holds."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(step_s)
    return condition()
