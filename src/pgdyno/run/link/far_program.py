"""Run a program on another machine that was sent there, keep its clock compared, and leave nothing there.

A thread asks the program for its clock in bursts; one in which no exchange is quick goes on for a while. These are the
heartbeat, too: without a word from here for `SILENCE_S` the kernel there ends the program, so that it outlives neither this
process nor a link that hangs. What it prints goes straight into a file here.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from pgdyno.record.samples.clock import ClockExchange, append_exchanges
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.log import LOG
from pgdyno.run.link.boot import (
    ENDS_WITHIN_S,
    READY,
    SILENCE_S,
    build_command,
    end_program,
    explain_no_start,
    pack_program,
)
from pgdyno.run.link.ssh import ANSWERS_WITHIN_S, SSH_FAILED, SshLink, explain_refusal

BURST_COUNT = 8
_MOST_IN_A_BURST = 32
# A burst whose quickest exchange takes longer than this many of the quickest ever was held up throughout, and goes on.
_HELD_UP = 2.0
_BURSTS_WITHIN_SILENCE = 3
_EXCHANGE_WITHIN_S = 5.0
_HEARS_EVERY_S = 0.1
_ANSWER = re.compile(rb"clock (\S+) (\d+)\n")


class FarProgram:
    """A running program. Start and stop it from the main thread.

    Args:
        link: The machine.
        source: The program's file, which imports the standard library only and answers `clock WORD` lines on stderr.
        arguments: Its arguments.
        output: A file for what it prints, emptied first.
        clock: A file to which the exchanges are appended; None: they are kept in memory only.
        request: The first line that it reads; empty: it reads none.
        silence_s: Seconds without a word from here after which it ends.
        is_heard: Whether what else it writes to stderr is put into `heard`, line by line; else it is kept to explain a failure.

    Raises:
        HostError: There is no connection, or no Python that is new enough.
        StepFailedError: The program does not start.
    """

    def __init__(
        self,
        link: SshLink,
        source: Path,
        arguments: Sequence[str],
        *,
        output: Path,
        clock: Path | None = None,
        request: bytes = b"",
        silence_s: int = SILENCE_S,
        is_heard: bool = False,
    ) -> None:
        self._silence_s = silence_s
        self._is_heard = is_heard
        self.heard: deque[bytes] = deque()
        self._clock = clock
        self.link = link
        self.path = output
        self.failure = ""
        self.is_deaf = False
        """Whether it did not end when its input was closed, as where the link hangs."""
        self.exchanges: list[ClockExchange] = []
        self._said = b""
        self._answers: dict[bytes, int] = {}
        self._ending = threading.Event()
        self._ends_by_s: float | None = None
        data = pack_program(source.read_text(encoding="utf-8"))
        with output.open("wb"):
            pass
        # Appending, so that nothing is torn when the file is emptied after what the account's shell has printed.
        with output.open("ab") as stdout:
            command = build_command(len(data), arguments, python=link.entry.python, silence_s=silence_s)
            self.process: subprocess.Popen[bytes] = link.start(command, stdout=stdout)
        stdin, stderr = self.process.stdin, self.process.stderr
        if stdin is None or stderr is None:
            raise RuntimeError("a link starts programs with pipes")
        self._stdin, self._stderr = stdin, stderr
        # A link that hangs must not hang this process.
        os.set_blocking(stdin.fileno(), False)
        os.set_blocking(stderr.fileno(), False)
        try:
            self._write_whole(data)
            self._await_python()
        except BaseException:
            self._end()
            raise
        self._write_whole(b"\n" + request)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def is_alive(self) -> bool:
        """True while the program, or the link to it, lives."""
        return self.process.poll() is None

    @property
    def has_lost_link(self) -> bool:
        """True if it was ssh that ended, and not the program."""
        return self.process.returncode in {SSH_FAILED, -15, -9}

    def has_lines(self, count: int) -> bool:
        """Return whether it has printed so many lines."""
        return self.path.read_bytes().count(b"\n") >= count

    def wait_heard(self) -> None:
        """Wait a moment for a line in `heard`."""
        deadline_s = monotonic_s() + _HEARS_EVERY_S
        while not self.heard and self.is_alive and monotonic_s() < deadline_s:
            time.sleep(0.002)

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        self._write(line.encode())

    def begin_stop(self, by_s: float) -> None:
        """Begin to end the program by closing its input, after a last burst; `stop` waits for it.

        Args:
            by_s: The instant until which `stop` waits. Of several programs that hang, none adds to it.
        """
        self._ends_by_s = by_s
        self._ending.set()

    def stop(self) -> None:
        """End the program by closing its input, after a last burst; if it had ended earlier, `failure` says why."""
        if self._stderr.closed:
            return
        died = not self.is_alive
        self._ending.set()
        self._listener.join()
        self._end()
        code = self.process.returncode
        if (died or code != 0) and not self.failure:
            said = self._said.decode(errors="replace").strip()
            how = f"the program on {self.link.destination} ended with exit code {code}"
            if self.has_lost_link:
                how = (
                    f"the link to {self.link.destination} was lost, or nothing went through it for {self._silence_s} s"
                )
            self.failure = ": ".join(filter(None, (how, said)))

    def _end(self) -> None:
        within_s = ENDS_WITHIN_S if self._ends_by_s is None else max(0.0, self._ends_by_s - monotonic_s())
        self.is_deaf = not end_program(self.process, within_s=within_s)
        with contextlib.suppress(OSError):
            while self._hear():
                pass
        self._stderr.close()

    def _write(self, data: bytes) -> None:
        # A broken pipe is the end of the link, which `stop` explains; a full one is a link that hangs, which that program notices.
        with contextlib.suppress(OSError, ValueError):
            os.write(self._stdin.fileno(), data)

    def _write_whole(self, data: bytes) -> None:
        """Write more than a pipe holds; a link that hangs is noticed by what comes next."""
        deadline_s = monotonic_s() + ANSWERS_WITHIN_S
        with contextlib.suppress(OSError, ValueError):
            while data and select.select([], [self._stdin], [], max(0.0, deadline_s - monotonic_s()))[1]:
                data = data[os.write(self._stdin.fileno(), data) :]

    def _await_python(self) -> None:
        """Wait until Python is there, and empty the file of what the account's shell has printed before."""
        deadline_s = monotonic_s() + ANSWERS_WITHIN_S
        while READY + b"\n" not in (printed := self.path.read_bytes()):
            if not self.is_alive:
                # What was printed last may not have been there at the first look.
                self._explain_end(self.path.read_bytes())
            if monotonic_s() > deadline_s:
                raise explain_refusal(self.link.destination, f"timed out: no Python within {ANSWERS_WITHIN_S:g} s")
            time.sleep(0.005)
        if remark := printed.partition(READY)[0].strip():
            LOG.info("the shell of %s prints: %r", self.link.destination, remark[:1000])
        os.truncate(self.path, 0)

    def _explain_end(self, printed: bytes) -> None:
        said = os.read(self._stderr.fileno(), 65536) if select.select([self._stderr], [], [], 1.0)[0] else b""
        raise explain_no_start(self.link.entry, printed=printed, said=said, code=self.process.returncode)

    def _listen(self) -> None:
        """Exchange clocks in bursts until the end; the last burst follows the last word of the main thread."""
        burst = 0
        while self.is_alive:
            is_last, first = self._ending.is_set(), len(self.exchanges)
            self._exchange_burst(burst)
            burst += 1
            if self._clock is not None and len(self.exchanges) > first:
                # On a full disk the samples are lost, too, and say so.
                with contextlib.suppress(OSError):
                    append_exchanges(self._clock, self.exchanges[first:])
            if is_last:
                # Nothing is written any more. Here and not in `stop`, which may wait for others first.
                with contextlib.suppress(OSError):
                    self._stdin.close()
                return
            self._wait_for_burst(monotonic_s() + self._silence_s / _BURSTS_WITHIN_SILENCE)

    def _wait_for_burst(self, until_s: float) -> None:
        if not self._is_heard:
            self._ending.wait(until_s - monotonic_s())
            return
        while (left_s := until_s - monotonic_s()) > 0.0 and not self._ending.is_set():
            if select.select([self._stderr], [], [], min(left_s, _HEARS_EVERY_S))[0] and not self._hear():
                self._ending.wait(left_s)

    def _hear(self) -> bool:
        """Take what the program has written to stderr; return whether there was anything."""
        data = os.read(self._stderr.fileno(), 65536)
        self._said += data
        if self._is_heard:
            *lines, self._said = self._said.split(b"\n")
            for line in lines:
                if (answer := _ANSWER.fullmatch(line + b"\n")) is not None:
                    self._answers[answer[1]] = int(answer[2])
                else:
                    self.heard.append(line)
            return bool(data)
        for answer in _ANSWER.finditer(self._said):
            self._answers[answer[1]] = int(answer[2])
        self._said = _ANSWER.sub(b"", self._said)
        return bool(data)

    def _exchange_burst(self, burst: int) -> None:
        ever_s = min((one.round_trip_s for one in self.exchanges), default=float("inf"))
        quickest_s = float("inf")
        for number in range(_MOST_IN_A_BURST):
            if number >= BURST_COUNT and quickest_s <= _HELD_UP * ever_s:
                return
            exchange = self._exchange(burst, f"{burst}.{number}".encode())
            if exchange is None:
                return
            self.exchanges.append(exchange)
            quickest_s = min(quickest_s, exchange.round_trip_s)

    def _exchange(self, burst: int, word: bytes) -> ClockExchange | None:
        sent_s = monotonic_s()
        self._write(b"clock %b\n" % word)
        deadline_s = sent_s + _EXCHANGE_WITHIN_S
        while monotonic_s() < deadline_s:
            if not select.select([self._stderr], [], [], deadline_s - monotonic_s())[0]:
                return None
            has_more = self._hear()
            received_s = monotonic_s()
            if not has_more:
                return None
            # An answer that comes too late belongs to an earlier word.
            answers, self._answers = self._answers, {}
            if word in answers:
                return ClockExchange(burst=burst, sent_s=sent_s, far_s=answers[word] / 1e9, received_s=received_s)
        return None
