"""Follow one run of pgbench from its start to its end, whatever the reason for its end.

Several runs can be followed at once in one thread: a `PgbenchProcess` never waits, and `poll_until_done` follows one of them.
Both outputs go straight into files, so that nothing is lost if pgdyno dies and pgbench never waits for a reader;
progress is read from the growing file. This module does not know the meaning of pgbench's output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol, TypeVar

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.record.durable import write_durably, writing
from pgdyno.run.host import process
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.log import LOG
from pgdyno.run.host.process import ServerUser

INVOCATION_FILE = "pgbench.json"
_WAIT_S = 0.05
# Reasons to stop are checked every fifth time, at 4 Hz: fast enough for a viewer, with little CPU.
_LOOK_EVERY = 5

ShouldAbort = Callable[[], PgdynoError | None]
ShouldEnd = Callable[[], bool]
_Done_co = TypeVar("_Done_co", covariant=True)


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """The start and end of a pgbench run: `pgbench.json` beside its two outputs."""

    argv: tuple[str, ...]
    pid: int
    exit_code: int
    """The exit code; negative: the number of the signal that ended it."""
    start_monotonic_s: float
    end_monotonic_s: float
    cpu_s: float | None
    """The CPU seconds of all its threads, user and system; None if it had to be stopped."""


class Running(Protocol[_Done_co]):
    """A run of pgbench that has not ended yet."""

    def poll(self) -> _Done_co | None:
        """Take what pgbench has said since the last call; return the result once pgbench has ended, and never wait."""
        ...

    def end(self) -> None:
        """End pgbench in order, as if its time were over. Not to be called before the load runs."""
        ...


class PgbenchProcess:
    """A run of pgbench, made by `running_pgbench`."""

    def __init__(
        self, child: subprocess.Popen[bytes], argv: tuple[str, ...], tail: IO[bytes], on_line: Callable[[str], None]
    ) -> None:
        self._child = child
        self._argv = argv
        self._tail = tail
        self._on_line = on_line
        self._rest = b""
        self._start_s = monotonic_s()
        self._done: Invocation | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def poll(self) -> Invocation | None:
        """Pass on new lines of stderr; return the invocation once pgbench has ended."""
        if self._done is None:
            pid, status, usage = os.wait4(self._child.pid, os.WNOHANG)
            if pid != 0:
                self._child.returncode = os.waitstatus_to_exitcode(status)
                self._note_end(cpu_s=usage.ru_utime + usage.ru_stime)
        *lines, self._rest = (self._rest + self._tail.read()).split(b"\n")
        for line in lines:
            self._on_line(line.decode(errors="replace"))
        return self._done

    def end(self) -> None:
        """End pgbench in order; see `Running`."""
        # With -T pgbench sets itself this alarm; wherever the signal comes from, clients end their transactions and
        # pgbench reports. Source: setalarm() and handle_sig_alarm() of src/bin/pgbench/pgbench.c, 15 to 18.
        if self._done is None:
            # Popen's own would wait for a pgbench that has just ended, and take its exit code from `poll`.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, signal.SIGALRM)

    def stop(self) -> Invocation:
        """End pgbench at once if it still runs, and return the invocation."""
        if self._done is not None:
            return self._done
        process.stop(self._child)
        return self._note_end(cpu_s=None)

    def _note_end(self, *, cpu_s: float | None) -> Invocation:
        self._done = Invocation(
            argv=self._argv,
            pid=self._child.pid,
            exit_code=self._child.returncode,
            start_monotonic_s=self._start_s,
            end_monotonic_s=monotonic_s(),
            cpu_s=cpu_s,
        )
        return self._done


@contextlib.contextmanager
def running_pgbench(
    argv: tuple[str, ...],
    user: ServerUser,
    directory: Path,
    *,
    on_line: Callable[[str], None],
    name: str = "pgbench",
    inherited: tuple[int, ...] = (),
    libpq: Path | None = None,
) -> Iterator[PgbenchProcess]:
    """Run pgbench for at most the length of a `with` block, and leave its outputs and an `Invocation` in three files, on disk.

    Call this from the main thread.

    Args:
        argv: The program and its arguments.
        user: The account it runs as.
        directory: The existing folder for the files.
        on_line: Called with every whole line of stderr.
        name: The beginning of the files' names, where it is another program.
        inherited: Open descriptors that its connection needs.
        libpq: Another libpq than the one that it was built with.

    Raises:
        HostError: pgbench cannot be started.
        StepFailedError: A file cannot be written.
    """
    with (
        writing(directory),
        (directory / f"{name}.stdout").open("wb") as stdout,
        (directory / f"{name}.stderr").open("wb") as stderr,
        (directory / f"{name}.stderr").open("rb") as tail,
    ):
        env = clean_environment(libpq)
        child = process.start(argv, user=user, stdout=stdout, stderr=stderr, env=env, inherited=inherited)
        running = PgbenchProcess(child, argv, tail, on_line)
        try:
            yield running
        finally:
            done = running.stop()
            LOG.info(
                "pid %d ended after %.1f s: exit code %d",
                done.pid,
                done.end_monotonic_s - done.start_monotonic_s,
                done.exit_code,
            )
            os.fsync(stdout.fileno())
            os.fsync(stderr.fileno())
            write_durably(directory / f"{name}.json", msgspec.json.format(msgspec.json.encode(done), indent=1))


def clean_environment(libpq: Path | None) -> dict[str, str]:
    """Return the environment of a pgbench, with another libpq than the one that it was built with."""
    return process.clean_environment() | ({} if libpq is None else {"LD_PRELOAD": str(libpq)})


def poll_until_done(
    running: Running[_Done_co], *, should_abort: ShouldAbort, should_end: ShouldEnd = lambda: False
) -> _Done_co:
    """Follow a run of pgbench to its end.

    Args:
        running: What to poll.
        should_abort: Called four times a second; an error that it returns is raised.
        should_end: Called as often; True ends pgbench in order, as if its time were over. It must not return True
            before the load runs.

    Raises:
        PgdynoError: The error that `should_abort` returned, or that polling raised.
    """
    tick = 0
    is_told = False
    while (done := running.poll()) is None:
        if tick % _LOOK_EVERY == 0:
            if (error := should_abort()) is not None:
                raise error
            if not is_told and should_end():
                running.end()
                is_told = True
        time.sleep(_WAIT_S)
        tick += 1
    return done
