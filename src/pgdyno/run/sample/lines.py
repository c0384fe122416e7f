"""What the child programs that sample a server share: their output, a JSON document a line, and the signals that end them."""

from __future__ import annotations

import os
import signal

import msgspec

STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_ENCODER = msgspec.json.Encoder()


def write_line(line: object, encoder: msgspec.json.Encoder = _ENCODER) -> None:
    """Write a document and the end of its line to standard output.

    Raises:
        OSError: It cannot be written.
    """
    data = encoder.encode(line) + b"\n"
    while data:
        data = data[os.write(1, data) :]
