"""Follow one run of pgbench from its start to its end, whatever the reason for its end.

Both outputs go straight into files, so that nothing is lost if pgdyno dies and pgbench never waits for a reader;
progress is read from the growing file. This module does not know the meaning of pgbench's output.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.record.durable import write_durably, writing
from pgdyno.record.trial_data import STDOUT_FILE
from pgdyno.run.host import process
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.host import THIS_HOST
from pgdyno.run.host.log import LOG
from pgdyno.run.host.process import ServerUser

STDERR_FILE = "pgbench.stderr"
INVOCATION_FILE = "pgbench.json"
_WAIT_S = 0.05
# Progress and the server are checked every fifth time, at 4 Hz: fast enough for a viewer, with little CPU.
_LOOK_EVERY = 5

ShouldAbort = Callable[[], PgdynoError | None]
ShouldEnd = Callable[[], bool]


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


def execute(
    argv: tuple[str, ...],
    user: ServerUser,
    directory: Path,
    *,
    on_line: Callable[[str], None],
    on_start: Callable[[int], None],
    should_abort: ShouldAbort,
    should_end: ShouldEnd = lambda: False,
) -> Invocation:
    """Run pgbench to its end, and leave its outputs and an `Invocation` in three files, on disk.

    Args:
        argv: The program and its arguments.
        user: The account it runs as.
        directory: The existing folder for the files.
        on_line: Called with every whole line of stderr.
        on_start: Called with the process id.
        should_abort: Called four times a second; an error that it returns stops pgbench at once and is raised.
        should_end: Called as often; True ends pgbench in order, as if its time were over. It must not return True
            before the load runs.

    Raises:
        HostError: pgbench cannot be started.
        StepFailedError: A file cannot be written.
        PgdynoError: The error that `should_abort` returned.
    """
    with (
        writing(directory),
        (directory / STDOUT_FILE).open("wb") as stdout,
        (directory / STDERR_FILE).open("wb") as stderr,
    ):
        start_s = monotonic_s()
        child = THIS_HOST.start(argv, user=user, stdout=stdout, stderr=stderr)
        cpu_s: float | None = None
        try:
            on_start(child.pid)
            with (directory / STDERR_FILE).open("rb") as tail:
                cpu_s = _watch(child, tail, on_line=on_line, should_abort=should_abort, should_end=should_end)
        finally:
            if child.returncode is None:
                process.stop(child)
            done = Invocation(
                argv=argv,
                pid=child.pid,
                exit_code=child.returncode,
                start_monotonic_s=start_s,
                end_monotonic_s=monotonic_s(),
                cpu_s=cpu_s,
            )
            LOG.info(
                "pid %d ended after %.1f s: exit code %d", child.pid, done.end_monotonic_s - start_s, done.exit_code
            )
            os.fsync(stdout.fileno())
            os.fsync(stderr.fileno())
            write_durably(directory / INVOCATION_FILE, msgspec.json.format(msgspec.json.encode(done), indent=1))
    return done


def _watch(
    child: subprocess.Popen[bytes],
    tail: IO[bytes],
    *,
    on_line: Callable[[str], None],
    should_abort: ShouldAbort,
    should_end: ShouldEnd,
) -> float:
    """Pass on lines and check for reasons to stop until the child ends; return its CPU seconds."""
    rest = b""
    tick = 0
    is_told = False
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        has_ended = pid != 0
        if has_ended:
            child.returncode = os.waitstatus_to_exitcode(status)
        if has_ended or tick % _LOOK_EVERY == 0:
            *lines, rest = (rest + tail.read()).split(b"\n")
            for line in lines:
                on_line(line.decode(errors="replace"))
        if has_ended:
            return usage.ru_utime + usage.ru_stime
        if tick % _LOOK_EVERY == 0 and (error := should_abort()) is not None:
            raise error
        if tick % _LOOK_EVERY == 0 and not is_told and should_end():
            # With -T pgbench sets itself this alarm; wherever the signal comes from, clients end their transactions and
            # pgbench reports. Source: setalarm() and handle_sig_alarm() of src/bin/pgbench/pgbench.c, 15 to 18.
            child.send_signal(signal.SIGALRM)
            is_told = True
        time.sleep(_WAIT_S)
        tick += 1
