"""Pass what pgdyno on this machine has to say to load hosts on to the machine that it came from: a stdlib-only program.

It imports nothing of pgdyno and runs on Python 3.11 or later. It listens at a socket in a private folder, whose path is the
first line of standard output. Each connection there is for one program on a load host: first comes a line of JSON that names
the host and the command, then the program's standard input.

Everything on standard input and output is in frames: a line with the number of a connection, a word and a size, and so many
bytes. To the other end go `open`, `in` (of no bytes: its end) and `gone`; from there come `out`, `err` and `exit`, and they
go into the connection as they are, without the number. Any bytes say that the other end lives; the kernel ends this program after a
while without one.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading

SILENCE_S = 30
MARK = "pgdyno-relay-"
TAKES_WITHIN_S = 5
"""A connection that takes nothing for so long is given up: all others wait for it meanwhile."""
BLOCK_BYTES = 1 << 16
WRITING = threading.Lock()


def make_folder() -> str:
    """Make the private folder of the socket, and remove those of programs that were killed."""
    parent = tempfile.gettempdir()
    # A pid only means something in its namespace, which run/host/stale.py names alike.
    own = f"-{abs(os.stat('/proc/self/ns/pid').st_ino - 0xEFFFFFFC):x}-"  # noqa: PTH116
    for old in glob.glob(f"{parent}/{MARK}*{own}*"):  # noqa: PTH207
        pid = old[len(parent) + 1 + len(MARK) :].split("-")[0]
        if pid.isdigit() and not os.path.exists("/proc/" + pid):  # noqa: PTH110
            shutil.rmtree(old, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{MARK}{os.getpid()}{own}", dir=parent)


def send(number: int, word: bytes, data: bytes) -> None:
    """Send a frame to the other end, in one piece among what other threads send."""
    with WRITING:
        rest = b"%d %b %d\n" % (number, word, len(data)) + data
        while rest:
            rest = rest[os.write(1, rest) :]


def read_line(source: socket.socket) -> bytes:
    """Read a line of a connection and no byte more; what there is if it ends before."""
    line = b""
    while not line.endswith(b"\n"):
        byte = source.recv(1)
        if not byte:
            break
        line += byte
    return line


def listen(number: int, source: socket.socket) -> None:
    """Send on what a connection says, until its end."""
    with contextlib.suppress(OSError):
        send(number, b"open", read_line(source))
        while True:
            data = source.recv(BLOCK_BYTES)
            if not data:
                break
            send(number, b"in", data)
    send(number, b"in", b"")


def accept(listener: socket.socket, connections: dict[int, socket.socket]) -> None:
    """Take connections, one thread for each."""
    number = 0
    while True:
        connection, _ = listener.accept()
        number += 1
        # For what is sent only: a connection may say nothing for as long as it likes.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", TAKES_WITHIN_S, 0))
        connections[number] = connection
        threading.Thread(target=listen, args=(number, connection), daemon=True).start()


def take(size: int) -> bytes:
    """Read so many bytes of standard input; fewer at its end."""
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        signal.alarm(SILENCE_S)
        if not more:
            break
        data += more
    return data


def take_line() -> bytes:
    """Read a line of standard input; empty at its end."""
    line = b""
    while not line.endswith(b"\n"):
        byte = take(1)
        if not byte:
            return b""
        line += byte
    return line


def deliver(connections: dict[int, socket.socket]) -> None:
    """Pass on what comes from the other end, until its end."""
    while True:
        line = take_line()
        if not line:
            return
        if line == b"\n":
            continue
        name, word, size = line.split()
        number, data = int(name), take(int(size))
        connection = connections.get(number)
        if connection is None:
            continue
        try:
            connection.sendall(b"%b %d\n" % (word, len(data)) + data)
        except OSError:
            del connections[number]
            # It may have had a part of a frame.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            send(number, b"gone", b"")
        else:
            if word == b"exit":
                del connections[number]
                connection.close()


def main() -> None:
    """Serve until standard input ends."""
    folder = make_folder()
    path = folder + "/s"
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(64)
        os.write(1, path.encode() + b"\n")
        connections: dict[int, socket.socket] = {}
        threading.Thread(target=accept, args=(listener, connections), daemon=True).start()
        deliver(connections)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    # Threads wait for connections.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
