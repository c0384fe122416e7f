"""Stand for the `ssh` that runs a command on a load host: a stdlib-only program that goes through a relay's socket.

Arguments are the path of the socket, the host, and the command. Standard input goes there, both outputs and the exit code
come from there; what comes is in frames, a line with a word and a size and so many bytes: see `run/over/far_relay.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys

LOST = 255
BLOCK_BYTES = 1 << 16
OUTPUTS = {b"out": 1, b"err": 2}


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(descriptor, data) :]


def pass_frames(heard: bytes) -> tuple[bytes, int | None]:
    """Pass on the whole frames of what was heard; return the rest, and the exit code if it was among them."""
    while True:
        head, newline, rest = heard.partition(b"\n")
        if not newline:
            return heard, None
        word, size = head.split()
        if len(rest) < int(size):
            return heard, None
        data, heard = rest[: int(size)], rest[int(size) :]
        if word == b"exit":
            return heard, int(data)
        write_all(OUTPUTS[word], data)


def main() -> int:
    """Run the command there; return its exit code, or that of an ssh without a connection."""
    path, host, command = sys.argv[1:]
    relay = socket.socket(socket.AF_UNIX)
    try:
        relay.connect(path)
        relay.sendall(json.dumps({"host": host, "command": command}).encode() + b"\n")
        sources, heard = [0, relay.fileno()], b""
        while True:
            ready, _, _ = select.select(sources, [], [])
            if relay.fileno() in ready:
                more = relay.recv(BLOCK_BYTES)
                if not more:
                    break
                heard, code = pass_frames(heard + more)
                if code is not None:
                    return code
            if 0 in ready:
                data = os.read(0, BLOCK_BYTES)
                if data:
                    relay.sendall(data)
                else:
                    sources.remove(0)
                    relay.shutdown(socket.SHUT_WR)
    except OSError as exc:
        with contextlib.suppress(OSError):
            write_all(2, str(exc).encode() + b"\n")
    with contextlib.suppress(OSError):
        write_all(2, b"the way through the machine that pgdyno came from is lost\n")
    return LOST


if __name__ == "__main__":
    sys.exit(main())
