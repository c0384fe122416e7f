"""Run the programs of a server's PostgreSQL that measure flushes and the clock."""

from __future__ import annotations

from pathlib import Path

from pgdyno.errors import HostError, StepFailedError
from pgdyno.plan.disk import FLUSH_TESTS
from pgdyno.record.device.disk_card import ClockTest, FlushTest
from pgdyno.record.device.pg_tests import parse_clock_test, parse_flush_tests
from pgdyno.run.device.scratch import AS_STDIN, Scratch
from pgdyno.run.host import process
from pgdyno.run.host.process import ServerUser

# For all tests of a program together, so that a slow device or a busy machine has time to answer.
_PATIENCE_S = 60.0
# 19 tests the CPU's counter in two ways beside the system's clock, each for the whole duration.
_CLOCK_TESTS = 3


def run_flush_tests(bindir: Path, scratch: Scratch, *, test_s: float, user: ServerUser | None) -> tuple[FlushTest, ...]:
    """Run pg_test_fsync over the beginning of a file.

    Args:
        bindir: The folder of the server's programs.
        scratch: The file.
        test_s: The duration of each of its tests, in whole seconds.
        user: The account to run it as; None: the present one.

    Raises:
        HostError: The program is not there, or cannot be started.
        StepFailedError: It fails, does not end, or says something else.
    """
    program = _find(bindir, "pg_test_fsync")
    argv = [program, f"--filename={AS_STDIN}", f"--secs-per-test={test_s:.0f}"]
    done = scratch.run(argv, user=user, timeout_s=FLUSH_TESTS * test_s + _PATIENCE_S)
    if done.exit_code != 0:
        raise StepFailedError("pg_test_fsync failed", detail=done.stderr.strip() or f"exit code {done.exit_code}")
    try:
        return parse_flush_tests(done.stdout)
    except ValueError as exc:
        raise StepFailedError("pg_test_fsync failed", detail=done.stderr.strip() or str(exc)) from exc


def run_clock_test(bindir: Path, *, test_s: float, user: ServerUser | None) -> ClockTest:
    """Run pg_test_timing.

    Args:
        bindir: The folder of the server's programs.
        test_s: The duration, in whole seconds.
        user: The account to run it as; None: the present one.

    Raises:
        HostError: The program is not there, or cannot be started.
        StepFailedError: It fails, does not end, or says something else.
    """
    program = _find(bindir, "pg_test_timing")
    timeout_s = _CLOCK_TESTS * test_s + _PATIENCE_S
    done = process.run([program, f"--duration={test_s:.0f}"], user=user, timeout_s=timeout_s)
    try:
        return parse_clock_test(done.stdout)
    except ValueError as exc:
        raise StepFailedError("pg_test_timing failed", detail=(done.stderr or str(exc)).strip()) from exc


def _find(bindir: Path, name: str) -> str:
    program = bindir / name
    if not program.exists():
        raise HostError("the program is not there", detail=str(program))
    return str(program)
