"""Test what reading the clock costs, once while the machine is up: a file keeps the result for the commands after it."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

import msgspec

from pgdyno.record.damage import NOT_JSON
from pgdyno.record.device.disk_card import ClockTest
from pgdyno.record.durable import write_durably
from pgdyno.run.device.pg_tests import run_clock_test
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.process import ServerUser
from pgdyno.run.host.process_id import read_boot_id

# The shortest test of pg_test_timing. Source: PostgreSQL 18 manual, pg_test_timing, --duration.
_TIMING_S = 1


class TimedClock(msgspec.Struct, frozen=True, kw_only=True):
    """A test of the clock."""

    test: ClockTest
    read_ns: float
    """Mean time of a reading, without the time in which pg_test_timing had no CPU."""
    is_kept: bool = False
    """True if an earlier command has run the test."""


class _Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What the result of a test depends on: it holds until one of these changes."""

    boot_id: str
    source: str | None
    program_bytes: int
    program_changed_ns: int


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    subject: _Subject
    clock: TimedClock


def time_clock(bindir: Path, *, source: str | None, user: ServerUser | None, kept_in: Path | None) -> TimedClock:
    """Run pg_test_timing for a second, or take what it said before.

    Args:
        bindir: The folder of the server's programs.
        source: The kernel's clock source.
        user: The account to run it as; None: the present one.
        kept_in: The file that keeps the result while the machine is up; None: run the test, and keep nothing.

    Raises:
        HostError: The program is not there, or cannot be started.
        StepFailedError: It fails, does not end, or says something else.
    """
    subject = None if kept_in is None else _subject_of(bindir, source)
    if kept_in is None or subject is None:
        return _run(bindir, user)
    # A file that is absent, damaged or of another version is written anew.
    with contextlib.suppress(OSError, *NOT_JSON):
        kept = msgspec.json.decode(kept_in.read_bytes(), type=_Kept)
        if kept.subject == subject:
            return msgspec.structs.replace(kept.clock, is_kept=True)
    clock = _run(bindir, user)
    # Where there is no room to keep it, the next command runs the test again.
    with contextlib.suppress(OSError):
        write_durably(kept_in, msgspec.json.encode(_Kept(subject=subject, clock=clock)))
    return clock


def _subject_of(bindir: Path, source: str | None) -> _Subject | None:
    """Return what a test depends on; None where there is no program to run."""
    try:
        program = (bindir / "pg_test_timing").stat()
    except OSError:
        return None
    return _Subject(
        boot_id=read_boot_id(), source=source, program_bytes=program.st_size, program_changed_ns=program.st_mtime_ns
    )


def _run(bindir: Path, user: ServerUser | None) -> TimedClock:
    used_before_s, began_s = _children_cpu_s(), monotonic_s()
    test = run_clock_test(bindir, test_s=_TIMING_S, user=user)
    # If other processes use the CPU, pg_test_timing also counts the time in which it did not run; that time does not
    # belong to the clock.
    share = min(1.0, (_children_cpu_s() - used_before_s) / (monotonic_s() - began_s))
    return TimedClock(test=test, read_ns=test.read_ns * share)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
