"""Run the programs that come through standard input, one after the other: a stdlib-only program that is sent first.

Each comes as a line with its size and so many bytes, as `pack_program` packs it. To start Python on another machine once for all of
them saves the rounds through the link and the CPU time that starting it takes. A program leaves in standard input what
follows its own; one after which none may follow ends by SystemExit.
"""

from __future__ import annotations

import os
import signal
import zlib

SILENCE_S = 30


def read(size: int) -> bytes:
    """Read so many bytes and no byte more; what there is if standard input ends before."""
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            break
        data += more
    return data


def read_size() -> int:
    """Read a line with a size; 0 if standard input ends. Empty lines say that the other end lives."""
    line = b""
    while not line.strip():
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(0, 1)
            signal.alarm(SILENCE_S)
            if not byte:
                return 0
            line += byte
    return int(line)


def main() -> None:
    """Run what comes until nothing comes any more."""
    while size := read_size():
        data = read(size)
        if len(data) < size:
            return
        # A name of one program means nothing to the next.
        program = compile(zlib.decompress(data), "pgdyno", "exec", dont_inherit=True)
        exec(program, {"__name__": "__main__"})  # noqa: S102 - it is our own


if __name__ == "__main__":
    main()
