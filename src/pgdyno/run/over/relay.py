"""Relay between load hosts and pgdyno on another machine, which usually has no key for them: this machine has.

A process of its own, so that a terminal that takes nothing stops no load. It starts a program on the server's machine that
listens at a socket there, and for each connection to that an `ssh` to the load host that the connection names. Bytes go to and fro.
All of it ends with this process: then the kernel ends the ssh, and sshd or an alarm what runs at the other ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, PgdynoError, StepFailedError
from pgdyno.record.damage import NOT_JSON
from pgdyno.run.host import process
from pgdyno.run.host.helper import helper_argv
from pgdyno.run.host.log import LOG
from pgdyno.run.link.boot import end_program
from pgdyno.run.link.relayed import RELAY_VARIABLE
from pgdyno.run.link.ssh import ANSWERS_WITHIN_S, SSH_FAILED, SshLink, open_link
from pgdyno.run.over import far_relay
from pgdyno.run.over.talk import FarTalk, talking
from pgdyno.spec.hosts import HostEntry

_BLOCK_BYTES = 1 << 16
# More than ever waits for a program there that is merely slow: if so much waits, it hangs.
_MOST_PENDING_BYTES = 64 << 20
_OUT, _ERR, _EXIT = "out", "err", "exit"


class _Task(msgspec.Struct, frozen=True, kw_only=True):
    server: HostEntry
    loads: tuple[HostEntry, ...]


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    socket: str | None = None
    fact: str = ""
    detail: str = ""
    hint: str = ""


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    command: str


@contextmanager
def relaying(server: HostEntry, loads: Mapping[str, HostEntry]) -> Iterator[dict[str, str]]:
    """Relay between load hosts and the server's machine for the length of a `with` block.

    Yields:
        The variables that tell pgdyno there of it; none without load hosts.

    Raises:
        HostError: A machine is not reached.
        StepFailedError: The relay does not start.
    """
    if not loads:
        yield {}
        return
    child = process.start(
        helper_argv(__name__), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("the relay was started with pipes")
    try:
        task = _Task(server=server, loads=tuple(loads.values()))
        child.stdin.write(msgspec.json.encode(task) + b"\n")
        child.stdin.flush()
        # Each of them says itself when it takes too long.
        waits_s = ANSWERS_WITHIN_S * (2 + len(loads))
        is_ready = bool(select.select([child.stdout], [], [], waits_s)[0])
        answer = _read_answer(child.stdout.readline() if is_ready else b"")
        if answer.socket is None:
            raise HostError(answer.fact, detail=answer.detail, hint=answer.hint)
        yield {RELAY_VARIABLE: answer.socket}
    finally:
        end_program(child)
        child.stdout.close()


def _read_answer(line: bytes) -> _Answer:
    try:
        return msgspec.json.decode(line, type=_Answer)
    except NOT_JSON as exc:
        raise StepFailedError("the relay to the load hosts does not start", detail=str(exc)) from exc


class _Stream:
    """A program on a load host, and the connection that it is for."""

    def __init__(self, number: int, child: subprocess.Popen[bytes]) -> None:
        if child.stdin is None or child.stdout is None or child.stderr is None:
            raise RuntimeError("a link starts programs with pipes")
        self.number = number
        self.child = child
        self.stdin = child.stdin
        # One that takes nothing must not hold up the others.
        os.set_blocking(self.stdin.fileno(), False)
        self.pending = bytearray()
        self._is_ending = False
        self._outputs = (child.stdout, child.stderr)
        self.open = {child.stdout.fileno(): _OUT, child.stderr.fileno(): _ERR}

    def write(self, data: bytes) -> None:
        """Write to its standard input, as soon as that takes it; without data, close that."""
        self.pending += data
        self._is_ending |= not data
        self.flush()

    def flush(self) -> None:
        """Write what its standard input takes."""
        try:
            while self.pending:
                del self.pending[: os.write(self.stdin.fileno(), self.pending)]
        except BlockingIOError:
            if len(self.pending) > _MOST_PENDING_BYTES:
                self.child.kill()
            return
        except (OSError, ValueError):
            # One that has ended takes no more.
            self.pending.clear()
        if self._is_ending:
            self.stdin.close()

    def finish(self) -> int:
        """Return the exit code of the program, which has ended."""
        self.pending.clear()
        self.write(b"")
        for output in self._outputs:
            output.close()
        return self.child.wait()


class _Relay:
    def __init__(self, talk: FarTalk, links: Mapping[str, SshLink]) -> None:
        self._talk = talk
        self._links = links
        self._streams: dict[int, _Stream] = {}

    def serve(self) -> None:
        """Pass everything on until this process's standard input ends, or the link is lost."""
        # A load host that does not answer holds this up for as long as ssh tries to connect: no other must be lost by that.
        with self._talk.kept_alive():
            self._pass_frames()

    def _pass_frames(self) -> None:
        while True:
            outputs = {descriptor: one for one in self._streams.values() for descriptor in one.open}
            takers = {one.stdin.fileno(): one for one in self._streams.values() if one.pending}
            ready, writable, _ = select.select([0, self._talk.output, *outputs], takers, [])
            for descriptor in writable:
                takers[descriptor].flush()
            if 0 in ready and not os.read(0, 1):
                return
            if self._talk.output in ready:
                self._talk.fill()
                while self._talk.has_line():
                    self._take_frame()
            for descriptor in ready:
                if descriptor in outputs:
                    self._pass_on(outputs[descriptor], descriptor)

    def close(self) -> None:
        """End all programs."""
        for one in self._streams.values():
            one.write(b"")
            process.stop(one.child)

    def _take_frame(self) -> None:
        number, word, size = self._talk.hear().decode().split(" ")
        data = self._talk.take(int(size))
        stream = self._streams.get(int(number))
        if word == "open":
            self._open(int(number), data)
        elif stream is not None and word == "in":
            stream.write(data)
        elif stream is not None:
            stream.write(b"")

    def _open(self, number: int, data: bytes) -> None:
        try:
            asked = msgspec.json.decode(data, type=_Request)
            # None but the load hosts of the command, whatever that machine asks for.
            child = self._links[asked.host].start(asked.command, stdout=subprocess.PIPE)
        except (PgdynoError, KeyError, *NOT_JSON) as exc:
            words = exc.reason if isinstance(exc, PgdynoError) else f"no load host of this command: {exc}"
            self._send(number, _ERR, words.encode())
            self._send(number, _EXIT, str(SSH_FAILED).encode())
            return
        self._streams[number] = _Stream(number, child)

    def _pass_on(self, stream: _Stream, descriptor: int) -> None:
        data = os.read(descriptor, _BLOCK_BYTES)
        if data:
            self._send(stream.number, stream.open[descriptor], data)
            return
        del stream.open[descriptor]
        if not stream.open:
            code = stream.finish()
            del self._streams[stream.number]
            # What runs there sees ssh's own codes; a signal that ended ssh is a link that was lost.
            self._send(stream.number, _EXIT, str(code if code >= 0 else SSH_FAILED).encode())

    def _send(self, number: int, word: str, data: bytes) -> None:
        self._talk.send(b"%d %b %d\n" % (number, word.encode(), len(data)) + data)


def main() -> int:
    """Relay as the first line on standard input says, until that ends."""
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Task)
    with ExitStack() as stack:
        try:
            links = {one.ssh: stack.enter_context(open_link(one)) for one in task.loads}
            talk = stack.enter_context(talking(stack.enter_context(open_link(task.server))))
            talk.begin(Path(far_relay.__file__))
            path = talk.hear().decode()
        except PgdynoError as error:
            _say(_Answer(fact=error.fact, detail=error.detail, hint=error.hint))
            return 1
        relay = _Relay(talk, links)
        stack.callback(relay.close)
        _say(_Answer(socket=path))
        with contextlib.suppress(PgdynoError):
            relay.serve()
    LOG.info("the relay ends")
    return 0


def _say(answer: _Answer) -> None:
    os.write(1, msgspec.json.encode(answer) + b"\n")
