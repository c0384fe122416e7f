"""Lets the first Ctrl-C end something in order: what it interrupts may hold minutes of work that are worth keeping."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def taking_ctrl_c(take: Callable[[], bool]) -> Iterator[None]:
    """Ask `take` at each Ctrl-C inside the block; one that it refuses interrupts as ever. From the main thread.

    SIGTERM and SIGHUP stay as they are: who sends them does not wait.
    """
    before = signal.getsignal(signal.SIGINT)
    # None was set by somebody else's C code; what is ignored stays ignored.
    if before in {None, signal.SIG_IGN}:
        yield
        return

    def ask(_number: int, _frame: FrameType | None) -> None:
        if not take():
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
