"""What the child programs that sample a server share: their output, a JSON document a line, and the signals that end them."""

from __future__ import annotations

import os
import signal
import time

import msgspec

STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_ENCODER = msgspec.json.Encoder()


def await_stop(until_s: float) -> int | None:
    """Wait until a moment of the monotonic clock, and return the signal that is to end this program if one comes before.

    Block `STOP_SIGNALS` first.
    """
    told = signal.sigtimedwait(STOP_SIGNALS, max(0.0, until_s - time.monotonic()))
    # Where this program was halted until after that moment, as by SIGSTOP or `docker pause`, Python returns whatever lay in
    # memory. Source: Modules/signalmodule.c, signal_sigtimedwait_impl(), which leaves its loop after EINTR; 3.10 to 3.13 tried.
    return told.si_signo if told is not None and told.si_signo in STOP_SIGNALS else None


def write_line(line: object, encoder: msgspec.json.Encoder = _ENCODER) -> None:
    """Write a document and the end of its line to standard output.

    Raises:
        OSError: It cannot be written.
    """
    data = encoder.encode(line) + b"\n"
    while data:
        data = data[os.write(1, data) :]
