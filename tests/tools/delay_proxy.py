"""A TCP proxy that hands on what it gets after a fixed delay, each way, and says how long it really held it.

It limits nothing but time: a chunk is stamped when the kernel gets it, waits in one queue with all others, and leaves in order.
`delaying` runs it as a process of its own. For each connection that ended it prints a JSON line: when it was open, the program
behind it, and for each way the chunks and the seconds that they were held, from their arrival in the kernel until they were sent.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

_TREE = Path(__file__).parents[2]
_CHUNK_BYTES = 1 << 16
_END_PATIENCE_S = 600.0
# Source: include/uapi/asm-generic/socket.h of the Linux kernel; Python has no name for it before 3.14.
_TIMESTAMPNS = 35
_STAMP = struct.Struct("@qq")
_NAME = re.compile(rb"application_name\0([^\0]+)\0")


class Held(msgspec.Struct, kw_only=True):
    """What the proxy did to one connection. Times are of CLOCK_REALTIME, as the kernel's stamps are."""

    opened_s: float
    closed_s: float = 0.0
    program: str = ""
    """What it called itself to the server; empty over TLS."""
    asked_count: int = 0
    """Chunks to the server."""
    asked_s: float = 0.0
    """The seconds that they were held, added up."""
    told_count: int = 0
    """Chunks from the server."""
    told_s: float = 0.0


class _Way:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, target: socket.socket, held: Held, *, is_asking: bool) -> None:
        self.source = source
        self.target = target
        self.held = held
        self.is_asking = is_asking

    def take(self) -> tuple[float, bytes]:
        """Receive a chunk, and when its last byte reached the kernel; nothing where the other side has ended."""
        try:
            data, control, _, _ = self.source.recvmsg(_CHUNK_BYTES, socket.CMSG_SPACE(_STAMP.size))
        except ConnectionError:
            return time.time(), b""
        if self.is_asking and not self.held.program and (found := _NAME.search(data)):
            self.held.program = found[1].decode()
        stamps = [_STAMP.unpack(value) for level, kind, value in control if kind == _TIMESTAMPNS]
        return (stamps[0][0] + stamps[0][1] / 1e9 if stamps else time.time()), data

    def hand_on(self, came_s: float, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.target.sendall(data)
        held_s = time.time() - came_s
        if self.is_asking:
            self.held.asked_count += 1
            self.held.asked_s += held_s
        else:
            self.held.told_count += 1
            self.held.told_s += held_s


def serve(listener: socket.socket, target: tuple[str, int], delay_s: float) -> None:
    """Pass on all connections until stdin has ended and they have, too."""
    ways: dict[socket.socket, _Way] = {}
    queue: deque[tuple[float, _Way, bytes]] = deque()
    asked = [sys.stdin, listener]
    while asked or ways or queue:
        # An epoll would wake up to the millisecond only.
        patience_s = max(0.0, queue[0][0] + delay_s - time.time()) if queue else None
        readable, _, _ = select.select([*asked, *ways], [], [], patience_s)
        if sys.stdin in readable:
            # The last connection's end may come here after the end of the program that had it.
            asked = []
        elif listener in readable:
            ways |= _open(listener, target)
        for way in (ways[one] for one in readable if one in ways):
            came_s, data = way.take()
            # An end is handed on in its turn, too.
            queue.append((came_s, way, data))
            if not data:
                del ways[way.source]
        while queue and queue[0][0] + delay_s <= time.time():
            came_s, way, data = queue.popleft()
            if data:
                way.hand_on(came_s, data)
            elif not way.held.closed_s:
                _close(way, ways)


def _open(listener: socket.socket, target: tuple[str, int]) -> dict[socket.socket, _Way]:
    client, _ = listener.accept()
    server = socket.create_connection(target)
    for one in (client, server):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.setsockopt(socket.SOL_SOCKET, _TIMESTAMPNS, 1)
    held = Held(opened_s=time.time())
    return {client: _Way(client, server, held, is_asking=True), server: _Way(server, client, held, is_asking=False)}


def _close(way: _Way, ways: dict[socket.socket, _Way]) -> None:
    """Close both ends: nobody hears what the other one still says."""
    way.held.closed_s = time.time()
    for one in (way.source, way.target):
        ways.pop(one, None)
        one.close()
    os.write(1, msgspec.json.encode(way.held) + b"\n")


@contextlib.contextmanager
def delaying(target: tuple[str, int], *, delay_s: float, output: Path) -> Iterator[int]:
    """Run a proxy on the target's address, and yield its port, for the length of a `with` block.

    Whoever connects must have ended before the block does: a connection that stays open for ten minutes more is an error.

    Args:
        target: Host and port to hand everything on to.
        delay_s: Each way.
        output: Gets a line for each connection; see `read_held`.
    """
    argv = [sys.executable, "-m", "tests.tools.delay_proxy", *map(str, (*target, delay_s))]
    with output.open("ab") as lines:
        child = subprocess.Popen(argv, cwd=_TREE, stdin=subprocess.PIPE, stdout=lines, stderr=subprocess.PIPE)
    try:
        assert child.stderr is not None
        yield int(child.stderr.readline())
    finally:
        try:
            child.communicate(timeout=_END_PATIENCE_S)
        finally:
            child.kill()


def read_held(output: Path) -> list[Held]:
    """Read what a proxy printed."""
    return [msgspec.json.decode(line, type=Held) for line in output.read_bytes().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("delay_s", type=float)
    arguments = parser.parse_args()
    # On a busy machine it would else hold chunks for longer.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with socket.create_server((arguments.host, 0), backlog=128) as listener:
        sys.stderr.write(f"{listener.getsockname()[1]}\n")
        sys.stderr.flush()
        serve(listener, (arguments.host, arguments.port), arguments.delay_s)


if __name__ == "__main__":
    main()
