"""Talk with programs that are sent to another machine one after the other, through the standard input and output of one Python there."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from pgdyno.errors import StepFailedError
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.link.boot import READY, SILENCE_S, build_command, end_program, explain_no_start, pack_program
from pgdyno.run.link.ssh import ANSWERS_WITHIN_S, SshLink, explain_refusal
from pgdyno.run.over import far_programs

LEAST_PYTHON = (3, 11)
_BEATS_WITHIN_SILENCE = 6


@contextmanager
def talking(link: SshLink) -> Iterator[FarTalk]:
    """Start Python on another machine; it ends with the `with` block.

    Raises:
        HostError: There is no connection.
    """
    talk = FarTalk(link)
    try:
        yield talk
    finally:
        talk.close()


class FarTalk:
    """Python there, and what goes to and fro. Start and close it from the main thread.

    Args:
        link: The machine.

    Raises:
        HostError: There is no connection.
    """

    def __init__(self, link: SshLink) -> None:
        self._link = link
        self._data = b""
        self._is_there = False
        self._program = pack_program(Path(far_programs.__file__).read_text(encoding="utf-8"))
        # The same Python as here needs no other packages.
        preferred = f"python3.{sys.version_info.minor}"
        command = build_command(
            len(self._program),
            (),
            python=link.entry.python,
            silence_s=SILENCE_S,
            least=LEAST_PYTHON,
            preferred=preferred,
        )
        self._process: subprocess.Popen[bytes] = link.start(command, stdout=subprocess.PIPE)
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise RuntimeError("a link starts programs with pipes")
        self._stdin, self._stdout, self._stderr = stdin, stdout, stderr

    @property
    def destination(self) -> str:
        """The machine as the user would give it to ssh."""
        return self._link.destination

    def begin(self, source: Path, *, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Begin a program, once the one before has said its last word.

        Args:
            source: Its file, which imports the standard library only.
            meanwhile: What to do here while Python starts there.

        Raises:
            HostError: There is no Python that is new enough.
            StepFailedError: It does not start.
        """
        packed = pack_program(source.read_text(encoding="utf-8"))
        sent = b"%d\n" % len(packed) + packed
        meanwhile()
        if not self._is_there:
            self._await_python()
            self._is_there = True
            sent = self._program + b"\n" + sent
        self.send(sent)

    @property
    def output(self) -> int:
        """The descriptor to wait at for more of what the program says."""
        return self._stdout.fileno()

    def send(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            StepFailedError: The link is lost, or the program has ended.
        """
        try:
            self._stdin.write(data)
            self._stdin.flush()
        except (OSError, ValueError) as exc:
            # The second one: a writer of a tar goes on to write after the first error.
            raise self.explain_end() from exc

    def ask(self, value: Any) -> None:
        """Send a value as a line of JSON."""
        self.send(msgspec.json.encode(value) + b"\n")

    @contextmanager
    def kept_alive(self) -> Iterator[None]:
        """Send empty lines from a thread meanwhile, so that the program there does not end for want of a word.

        What is sent beside them must be whole, a line or a frame, in one call of `send`.
        """
        ending = threading.Event()

        def beat() -> None:
            while not ending.wait(SILENCE_S / _BEATS_WITHIN_SILENCE):
                # Who listens in the main thread finds out that the link is lost.
                with contextlib.suppress(OSError, ValueError):
                    self._stdin.write(b"\n")
                    self._stdin.flush()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def hear(self, timeout_s: float | None = ANSWERS_WITHIN_S) -> bytes:
        """Return the next line, without its end.

        Raises:
            StepFailedError: The link is lost, the program has ended, or it says nothing for so long.
        """
        while b"\n" not in self._data:
            self._wait(timeout_s)
        line, _, self._data = self._data.partition(b"\n")
        return line

    def has_line(self) -> bool:
        """Return whether a line is there already."""
        return b"\n" in self._data

    def take(self, size: int) -> bytes:
        """Return so many bytes.

        Raises:
            StepFailedError: The link is lost, or the program has ended.
        """
        parts, left = [self._data[:size]], size - len(self._data)
        self._data = self._data[size:]
        while left > 0:
            self._wait(ANSWERS_WITHIN_S)
            parts.append(self._data[:left])
            left, self._data = left - len(self._data), self._data[left:]
        return b"".join(parts)

    def close(self) -> None:
        """End the last program by closing its input."""
        end_program(self._process)
        self._stdout.close()
        self._stderr.close()

    def explain_end(self) -> StepFailedError:
        """Return the error for a program that has ended, or whose link is lost."""
        end_program(self._process)
        said = ""
        if not self._stderr.closed and select.select([self._stderr], [], [], 1.0)[0]:
            said = os.read(self._stderr.fileno(), 65536).decode(errors="replace").strip()
        return StepFailedError(f"the link to {self._link.destination} was lost", detail=said)

    def _wait(self, timeout_s: float | None) -> None:
        if not select.select([self._stdout], [], [], timeout_s)[0]:
            raise StepFailedError(f"{self._link.destination} has said nothing for {timeout_s:g} s")
        self.fill()

    def fill(self) -> None:
        """Take what the program has said; wait until it says something.

        Raises:
            StepFailedError: The link is lost, or the program has ended.
        """
        more = os.read(self._stdout.fileno(), 1 << 18)
        if not more:
            raise self.explain_end()
        self._data += more

    def _await_python(self) -> None:
        """Wait until Python is there, and drop what the account's shell has printed before."""
        until_s, mark = monotonic_s() + ANSWERS_WITHIN_S, READY + b"\n"
        while mark not in self._data:
            left_s = until_s - monotonic_s()
            if left_s <= 0.0 or not select.select([self._stdout], [], [], left_s)[0]:
                raise explain_refusal(self._link.destination, f"timed out: no Python within {ANSWERS_WITHIN_S:g} s")
            more = os.read(self._stdout.fileno(), 65536)
            if not more:
                code = self._process.wait()
                said = self._stderr.read()
                raise explain_no_start(self._link.entry, printed=self._data, said=said, code=code, least=LEAST_PYTHON)
            self._data += more
        self._data = self._data.partition(mark)[2]
