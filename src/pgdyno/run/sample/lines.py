"""What the child programs that sample a server share: their output, a JSON document a line, and what ends or halts them."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
import time

import msgspec

STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_ENCODER = msgspec.json.Encoder()
_EVENT_BYTES = 16


def await_stop(until_s: float) -> int | None:
    """Wait until a moment of the monotonic clock, or until a signal comes that is to end this program, and return its number.

    Block `STOP_SIGNALS` first. A program that is halted until after that moment, as by SIGSTOP or `docker pause`, goes on.

    Args:
        until_s: The moment.

    Returns:
        None if no signal came.
    """
    told = signal.sigtimedwait(STOP_SIGNALS, max(0.0, until_s - time.monotonic()))
    # After a halt, Python 3.10 to 3.13 return a signal that never came, made of whatever lay in memory. Source:
    # Modules/signalmodule.c, signal_sigtimedwait_impl(), which leaves its loop after EINTR once the time is over.
    return told.si_signo if told is not None and told.si_signo in STOP_SIGNALS else None


def watch_for_halt() -> threading.Event:
    """Return an event that is set once this program has been halted, however briefly; a busy machine does not set it.

    Block `STOP_SIGNALS` first. A virtual machine that is halted as a whole does not set it, either.
    """
    halted = threading.Event()
    threading.Thread(target=_await_halt, args=(halted,), daemon=True).start()
    return halted


def _await_halt(halted: threading.Event) -> None:
    # Nothing comes, and only a halt interrupts it. Source: signal(7), "Interruption of system calls and library functions by
    # stop signals"; the freezers of control groups do the same. Python's own poll() would wait again.
    libc = ctypes.CDLL(None, use_errno=True)
    with select.epoll() as nothing:
        libc.epoll_wait(nothing.fileno(), ctypes.create_string_buffer(_EVENT_BYTES), 1, -1)
    halted.set()


def write_line(line: object, encoder: msgspec.json.Encoder = _ENCODER) -> None:
    """Write a document and the end of its line to standard output.

    Raises:
        OSError: It cannot be written.
    """
    data = encoder.encode(line) + b"\n"
    while data:
        data = data[os.write(1, data) :]
