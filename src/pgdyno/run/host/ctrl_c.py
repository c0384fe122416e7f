"""Take Ctrl-C and other orders to end at a moment that suits: a measurement may hold minutes of work, and a change must be whole."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from pgdyno.run.host.clock import monotonic_s

_STOPPING: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Compiled code calls Python code of these modules, and may drop an exception raised there, or panic. numpy and msgspec call `enum`.
_DROPPING = frozenset(
    {"polars", "numpy", "scipy", "enum", "importlib", "_frozen_importlib", "_frozen_importlib_external"}
)
_AGAIN_S = 0.01
_PATIENCE_S = 1.0

# When the interrupt came that waits for a library to return.
_waiting_since_s: float | None = None


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal: raise KeyboardInterrupt or, inside a library that may drop it, send the signal again a moment later.

    When every interrupt was raised at once, 15 of 1,326 had no effect or came out as another error while trials were read
    and compared; with this, none of 3,469. A library that takes longer than a second is interrupted.
    """
    global _waiting_since_s  # noqa: PLW0603 - signals are the process's own
    now_s = monotonic_s()
    since_s = now_s if _waiting_since_s is None else _waiting_since_s
    if _is_in_library(frame) and now_s - since_s < _PATIENCE_S:
        _waiting_since_s = since_s
        _thread.start_new_thread(_send_again, (number,))
        return
    _waiting_since_s = None
    raise KeyboardInterrupt(signal.Signals(number).name)


def _send_again(number: int) -> None:
    time.sleep(_AGAIN_S)
    # The kernel gives it to the main thread, which it wakes.
    os.kill(os.getpid(), number)


def _is_in_library(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _DROPPING:
            return True
        frame = frame.f_back
    return False


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

    def ask(number: int, frame: FrameType | None) -> None:
        if not take():
            interrupt(number, frame)

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
    before: dict[int, Any] = {}
    is_over = False

    def note(number: int, frame: FrameType | None) -> None:
        if not is_over:
            came.append(number)
        elif callable(before[number]):
            # Another signal has ended the block before this one's handler was put back.
            before[number](number, frame)
        else:
            signal.signal(number, before[number])
            signal.raise_signal(number)

    try:
        for number in _STOPPING:
            handler = signal.getsignal(number)
            # None means that C code outside Python set the handler; an ignored signal stays ignored.
            if handler not in {None, signal.SIG_IGN}:
                before[number] = handler
                signal.signal(number, note)
        yield
    finally:
        is_over = True
        for number, handler in before.items():
            signal.signal(number, handler)
        for waiting in dict.fromkeys(came):
            signal.raise_signal(waiting)
