"""Pause tests just before what they call, as a machine does that others keep busy, to find those that can fail by chance.

`./check tests/run --pauses 7` runs the tests of a room so; another seed pauses them at other places. A test that fails has
taken for granted that nothing happens between two of its steps; where it was paused is told below its failure.
"""

from __future__ import annotations

import dis
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_LENGTHS_S = (0.05, 0.3, 1.0, 3.0)
_MOST = 6
# Before the first time that a place calls, and before each later time, which comes often in loops that wait.
_CHANCE, _CHANCE_AGAIN = 0.2, 0.003
# Instructions that call something. Python 3.12 has no PRECALL any more.
_CALLS = {"PRECALL" if "PRECALL" in dis.opmap else "CALL", "CALL_KW", "CALL_FUNCTION_EX", "BEFORE_WITH"}
_CODES = {dis.opmap[name] for name in _CALLS if name in dis.opmap}
# Elsewhere no test has another process beside it.
_ROOMS = {"cli", "facts", "flow", "run", "setup"}


class Pauser:
    """Pauses code in all threads, at places that it tells.

    Args:
        folder: Only code of files below it is paused.
        seed: Decides where, and for how long.
        most: The most pauses in all.
        lengths_s: Lengths, one of which is drawn and shortened by up to half.
    """

    def __init__(
        self, folder: Path, *, seed: str, most: int = _MOST, lengths_s: tuple[float, ...] = _LENGTHS_S
    ) -> None:
        self.told: list[str] = []
        self._prefix = f"{folder}/"
        # A test may put another in its place.
        self._sleep = time.sleep
        self._random = random.Random(seed)
        self._left = most
        self._lengths_s = lengths_s
        self._seen: Counter[tuple[str, int, int]] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Pause what runs in the `with` block, and what it starts in threads."""
        before, before_in_threads = sys.gettrace(), threading.gettrace()
        # Python 3.12 tells no instruction until a frame has asked for them.
        sys._getframe().f_trace_opcodes = True
        threading.settrace(self._trace_call)
        sys.settrace(self._trace_call)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(before_in_threads)
            with self._lock:
                # A thread that goes on is left alone.
                self._left = 0

    def _trace_call(self, frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if event != "call" or self._left <= 0 or not file.startswith(self._prefix) or file == __file__:
            return None
        return self._trace_instruction

    def _trace_instruction(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        # Asked for here, before the first instruction of each line: Python 3.13 forgets what is asked for as a call is told.
        frame.f_trace_opcodes = True
        if event == "opcode" and self._left > 0 and code.co_code[frame.f_lasti] in _CODES:
            place = (code.co_filename, code.co_firstlineno, frame.f_lasti)
            with self._lock:
                length_s = self._draw(place)
                if length_s is not None:
                    self._left -= 1
                    self.told.append(f"{place[0].removeprefix(self._prefix)}:{frame.f_lineno}: {length_s:.2f} s")
            if length_s is not None:
                self._sleep(length_s)
        return self._trace_instruction

    def _draw(self, place: tuple[str, int, int]) -> float | None:
        self._seen[place] += 1
        if self._left <= 0 or self._random.random() >= (_CHANCE if self._seen[place] == 1 else _CHANCE_AGAIN):
            return None
        return self._random.choice(self._lengths_s) * self._random.uniform(0.5, 1.0)


class PausePlugin:
    """Pauses each test that may have another process beside it, and tells where below its failure."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._told: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._told = []
        if item.path.parent.name not in _ROOMS and not item.get_closest_marker("cluster"):
            return (yield)
        pauser = Pauser(Path(__file__).parent, seed=f"{self._seed} {item.nodeid}")
        self._told = pauser.told
        with pauser.pausing():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            report.sections.append(("pauses", "\n".join(self._told)))
        return report
