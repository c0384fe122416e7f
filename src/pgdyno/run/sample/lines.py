"""What the child programs that sample a server share: their output, a JSON document a line, and the signals that end them."""

from __future__ import annotations

import os
import signal
import time

import msgspec

STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_ENCODER = msgspec.json.Encoder()


class HaltedError(Exception):
    """This program was halted until after the moment that it waited for."""


def await_stop(until_s: float, *, may_halt: bool = True) -> int | None:
    """Wait until a moment of the monotonic clock, or until a signal comes that is to end this program, and return its number.

    Block `STOP_SIGNALS` first.

    Args:
        until_s: The moment.
        may_halt: Whether to go on after this program was halted until after that moment, as by SIGSTOP or `docker pause`.

    Returns:
        None if no signal came.

    Raises:
        HaltedError: It was halted so, and may not be.
    """
    told = signal.sigtimedwait(STOP_SIGNALS, max(0.0, until_s - time.monotonic()))
    if told is None or told.si_signo in STOP_SIGNALS:
        return None if told is None else told.si_signo
    # After a halt, Python 3.10 to 3.13 return a signal that never came, made of whatever lay in memory. Source:
    # Modules/signalmodule.c, signal_sigtimedwait_impl(), which leaves its loop after EINTR once the time is over.
    if not may_halt:
        raise HaltedError
    return None


def write_line(line: object, encoder: msgspec.json.Encoder = _ENCODER) -> None:
    """Write a document and the end of its line to standard output.

    Raises:
        OSError: It cannot be written.
    """
    data = encoder.encode(line) + b"\n"
    while data:
        data = data[os.write(1, data) :]
