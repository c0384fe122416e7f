"""Take Ctrl-C and other orders to end at a moment that suits: a measurement may hold minutes of work, and a change must be whole."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C, SIGTERM and SIGHUP until the block has ended.

    Python handles signals in its main thread only, so in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {}
    try:
        for number in _STOPPING:
            handler = signal.getsignal(number)
            # None means that C code outside Python set the handler; an ignored signal stays ignored.
            if handler not in {None, signal.SIG_IGN}:
                before[number] = handler
                signal.signal(number, note)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for waiting in dict.fromkeys(came):
            signal.raise_signal(waiting)
