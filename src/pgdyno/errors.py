"""The error tree: one root, classes by who must act, each with its exit code.

An error has three parts: the fact (one lower-case line), the detail (what was seen) and the hint (what to try).
This module never prints; `cli/` decides how an error looks.
"""

from __future__ import annotations

import enum
import shlex


class ExitCode(enum.IntEnum):
    """What the process tells its caller."""

    OK = 0
    WORSE = 1
    """It ran well; the answer is worse than asked for, or something would spoil a measurement."""
    SPEC = 2
    HOST = 3
    STEP = 4
    INTERRUPTED = 130


class PgdynoError(Exception):
    """The root of every error that pgdyno raises on purpose.

    Args:
        fact: One lower-case line: what is wrong.
        detail: What was seen: a server's own words, a value, a path. May hold several lines.
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
        """Fact and detail, where an error is the reason of something else."""
        return f"{self.fact}: {self.detail}" if self.detail else self.fact


def with_program(words: str, program: str) -> str:
    """Put the name by which pgdyno was called into what to type: hints and advice have commands as `` `pgdyno ...` ``."""
    return words.replace("`pgdyno ", f"`{shlex.quote(program)} ")


class SpecError(PgdynoError):
    """What was asked for cannot be understood or cannot be right: the user changes the question."""

    exit_code = ExitCode.SPEC


class HostError(PgdynoError):
    """The machine cannot do it as it is: the user changes the machine."""

    exit_code = ExitCode.HOST


class StepFailedError(PgdynoError):
    """A step of a study failed while it ran: a server, a load generator, a sampler."""

    exit_code = ExitCode.STEP


class InterruptedStudyError(PgdynoError):
    """The user stopped the study; what was finished is kept and `pgdyno resume` goes on."""

    exit_code = ExitCode.INTERRUPTED
