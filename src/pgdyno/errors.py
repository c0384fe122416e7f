"""Define pgdyno's errors: one root, and a class with an exit code for each party that must act.

An error has three parts: the fact (one lower-case line), the detail (what was observed) and the hint (what to try).
This module prints nothing; `cli/` formats errors.
"""

from __future__ import annotations

import contextlib
import enum
import re
import shlex
from collections.abc import Iterator, Sequence

# The program at the start of a command, after sudo, or as the second of two commands.
_COMMAND = re.compile(r"(?:(?<=`)|(?<=`sudo )|(?<= && ))pgdyno ")


class ExitCode(enum.IntEnum):
    """Exit codes of the program."""

    OK = 0
    PROBLEM_FOUND = 1
    """The command succeeded, and found what would invalidate a measurement here, a disk unfit for data, or settings that still wait."""
    SPEC = 2
    HOST = 3
    STEP = 4
    INTERRUPTED = 130


class PgdynoError(Exception):
    """The root of all errors that pgdyno raises deliberately.

    Args:
        fact: One lower-case line: what is wrong.
        detail: What was observed: a server's message, a value, a path. May have several lines.
        hint: One sentence: what to try.
    """

    exit_code = ExitCode.STEP

    def __init__(self, fact: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(fact)
        self.fact = fact
        self.detail = detail
        self.hint = hint

    @property
    def reason(self) -> str:
        """Fact and detail in one text, for use as a reason."""
        return f"{self.fact}: {self.detail}" if self.detail else self.fact


def did_you_mean(names: Sequence[str]) -> str:
    """Return a question that suggests names: `did you mean a, b or c?`."""
    return f"did you mean {join_choices(names)}?"


def join_choices(names: Sequence[str]) -> str:
    """Join what is to be chosen from, so that one sees where each begins although a name may have commas of its own."""
    *others, last = names
    if any("," in name for name in names):
        return "; ".join([*others, f"or {last}" if others else last])
    return f"{', '.join(others)} or {last}" if others else last


def why(error: OSError) -> str:
    """Return the operating system's reason for an error, with the file but without the error's number."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def describe_failure(error: PgdynoError | OSError) -> str:
    """Return the reason of an error, ours or the operating system's."""
    return error.reason if isinstance(error, PgdynoError) else why(error)


def with_program(words: str, program: str) -> str:
    """Replace `pgdyno` in the commands of a text, such as `` `pgdyno list` ``, by the name under which it was called."""
    return _COMMAND.sub(lambda _: f"{shlex.quote(program)} ", words)


class SpecError(PgdynoError):
    """The request is not understood or cannot be fulfilled: the user must change it."""

    exit_code = ExitCode.SPEC


class HostError(PgdynoError):
    """The machine does not meet a requirement: the user must change the machine."""

    exit_code = ExitCode.HOST


@contextlib.contextmanager
def putting_off(refused: list[HostError]) -> Iterator[None]:
    """Keep a refusal by this machine or account for later, so that what cannot be right anywhere is raised first."""
    try:
        yield
    except HostError as error:
        refused.append(error)


class RefusedValueError(HostError):
    """The kernel does not take a value of one of its settings."""


class ShortPoolError(RefusedValueError):
    """The kernel made fewer huge pages than were asked for; how many it can make changes with what is in memory.

    Args:
        name: The kernel setting.
        asked: Huge pages that were asked for.
        made: Huge pages that the kernel made.
    """

    def __init__(self, name: str, *, asked: int, made: int) -> None:
        super().__init__(
            f"the kernel did not take {name} = {asked}",
            detail=f"it made {made} huge pages, also after moving memory together: the rest is in use or too fragmented",
            hint=f"ask for fewer or leave {name} out; a reboot, or `echo 1 > /proc/sys/vm/drop_caches`, makes room for them",
        )
        self.name = name
        self.asked = asked
        self.made = made


class StepFailedError(PgdynoError):
    """A step of a study failed while it ran: a server, a load generator, a sampler."""

    exit_code = ExitCode.STEP


class InterruptedStudyError(PgdynoError):
    """The user stopped the study; finished trials are kept, and `pgdyno resume` continues."""

    exit_code = ExitCode.INTERRUPTED
