"""Ask a command of the user's for a password, such as a token that is valid for a quarter of an hour.

The command runs without a shell when the first connection needs the password, and again when the last answer is five minutes
old. Its output is neither shown nor kept.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Sequence
from pathlib import Path

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.run.host import process
from pgdyno.run.host.clock import monotonic_s

# Source: AWS, "IAM database authentication": a token is valid for 15 minutes; others are for an hour.
RENEW_S = 300.0
_PATIENCE_S = 60.0
_SHOWN_LINES = 5


class PasswordCommand:
    """A command that prints a password. Any thread may ask it.

    Args:
        argv: The program and its arguments.
        renew_s: The age in seconds above which an answer is asked for again.
    """

    def __init__(self, argv: Sequence[str], *, renew_s: float = RENEW_S) -> None:
        self._argv = tuple(argv)
        # Whenever another thread connects, some of it is hidden.
        self._environment = dict(os.environ)
        self._password, self._asked_s = "", -float("inf")
        self._lock = threading.Lock()
        self.renew_s = renew_s

    def get(self) -> str:
        """Return the password.

        Raises:
            HostError: There is no such program.
            StepFailedError: The command failed, or printed no password.
        """
        with self._lock:
            if monotonic_s() - self._asked_s >= self.renew_s:
                self._password, self._asked_s = self._ask(), monotonic_s()
            return self._password

    def _ask(self) -> str:
        done = process.run(self._argv, timeout_s=_PATIENCE_S, cwd=Path.cwd(), env=self._environment, ends_group=True)
        hint = f"try it: {shlex.join(self._argv)}"
        if done.exit_code:
            said = "\n".join(done.stderr.splitlines()[-_SHOWN_LINES:])
            raise StepFailedError(
                f"the password command ended with exit code {done.exit_code}",
                detail=said or "it said nothing",
                hint=hint,
            )
        password = done.stdout.removesuffix("\n").removesuffix("\r")
        if not password or "\n" in password:
            lines = len(done.stdout.splitlines())
            raise StepFailedError(
                "the password command is to print one line, the password", detail=f"it printed {lines} lines", hint=hint
            )
        return password


def read_password_command(text: str) -> PasswordCommand:
    """Return the command of a command line.

    Raises:
        SpecError: The command line is empty, or its quotes do not match.
    """
    try:
        argv = shlex.split(text)
    except ValueError as exc:
        raise SpecError(f"--password-command: {exc}", hint="quotes come in pairs") from exc
    if not argv:
        raise SpecError(
            "--password-command is empty",
            hint="for example --password-command 'aws rds generate-db-auth-token --hostname db1 --port 5432 --username bench'",
        )
    return PasswordCommand(argv)
