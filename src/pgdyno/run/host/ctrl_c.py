"""Let the first Ctrl-C end a measurement in an orderly way, since it may hold minutes of work worth keeping."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def taking_ctrl_c(take: Callable[[], bool]) -> Iterator[None]:
    """Call `take` at each Ctrl-C inside the block, and interrupt as usual if it returns False.

    Call this from the main thread. SIGTERM and SIGHUP keep their effect, because their senders do not wait.
    """
    before = signal.getsignal(signal.SIGINT)
    # None means that C code outside Python set the handler; an ignored signal stays ignored.
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
