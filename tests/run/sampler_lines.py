"""Read what a sampler prints, line by line, while it runs and when it ends."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from typing import Any


def read_lines(process: subprocess.Popen[bytes], count: int) -> list[dict[str, Any]]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def read_until(process: subprocess.Popen[bytes], is_last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Its lines up to the first that is waited for: on a busy machine more may come before it."""
    lines = read_lines(process, 1)
    while not is_last(lines[-1]):
        assert len(lines) < 300
        lines += read_lines(process, 1)
    return lines


def read_rest(process: subprocess.Popen[bytes]) -> tuple[list[dict[str, Any]], str]:
    """Close its stdin and wait for its end: the lines that nobody has read yet, and what it said on stderr.

    A read of one line takes all that is there into the buffer, which `communicate()` passes over.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    # One that does not end would be waited for without end.
    too_late = threading.Timer(600, process.kill)
    too_late.start()
    try:
        with process:
            if process.stdin is not None:
                process.stdin.close()
            return [json.loads(line) for line in process.stdout], process.stderr.read().decode()
    finally:
        too_late.cancel()
