"""The program, started by a process that has imported it already: each start saves a second of CPU time.

Every test worker has one such process. A program that it forks has one as well, for the log reader and the samplers of its
trials: each trial saves half a second. Tests of `tests/run` start helpers in a new Python, but for those that ask for
`forked_helpers`. See `tests/forks.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests import stopping
from tests.forks import start_forks
from tests.waiting import wait_until


class Program(subprocess.Popen[str]):
    """A start of the program, with all that Popen can.

    Args:
        words: What follows the program's name on the command line.
        var_lib: A folder that it sees as /var/lib, which only root can give it.
        prefix: A program, with its arguments, that starts it: a new Python then.
        stops_at: A method of its own that stops it each time it has been called, until it is let go on.
        forks_helpers: Whether its helpers are forks; those of a new Python show their environment in /proc.
        options: Those of Popen.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        var_lib: Path | None = None,
        prefix: Sequence[str] = (),
        stops_at: Callable[..., object] | None = None,
        forks_helpers: bool = True,
        **options: Any,
    ) -> None:
        self._task = {"words": list(words), "var_lib": var_lib and str(var_lib), "forks_helpers": forks_helpers}
        self._has_prefix = bool(prefix)
        program = ["-m", "pgdyno"]
        if stops_at is not None:
            descriptor, name = tempfile.mkstemp(prefix="pgdyno-stops-")
            os.close(descriptor)
            self._sign = Path(name)
            # Of a program that is killed, too.
            weakref.finalize(self, self._sign.unlink, missing_ok=True)
            told = stopping.tell_place(stops_at, self._sign)
            options["env"] = {**(options.get("env") or os.environ), **told}
            program = [stopping.__file__]
        argv = [*prefix, sys.executable, *program, *words]
        if var_lib is not None:
            argv = ["unshare", "--mount", "sh", "-c", f'mount --bind {var_lib} /var/lib && exec "$@"', "sh", *argv]
        super().__init__(argv, text=True, **options)

    def stands_still(self, condition: Callable[[], bool] = lambda: True) -> bool:
        """Wait until the program has stopped itself and a condition holds; return False if the program ends before that.

        Each time that the program has stopped while the condition does not hold, it is let go on to its next stop. When this
        returns True, the program stays stopped until `go_on`.
        """
        while wait_until(self._has_stopped_or_ended) and self.poll() is None:
            if condition():
                return True
            self.send_signal(signal.SIGCONT)
        return False

    def go_on(self) -> None:
        """Let it run to its end."""
        self._sign.unlink()
        self.send_signal(signal.SIGCONT)

    def _has_stopped_or_ended(self) -> bool:
        if self.poll() is not None:
            return True
        try:
            # A stop is told once.
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None
        except ChildProcessError:
            # It has ended since it was polled.
            return True

    def _execute_child(self, *given: Any) -> None:
        # Before these come arguments that `Program` leaves as they are, but for the folder and the environment.
        cwd, env, (to_read, _, _, to_write, _, to_complain) = given[5], given[6], given[10:16]
        environment = dict(os.environ if env is None else env)
        forks = None if self._has_prefix else start_forks()
        if forks is None or not forks.fits(environment):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        streams = [own if end == -1 else end for own, end in enumerate((to_read, to_write, to_complain))]
        task = {**self._task, "cwd": str(cwd or Path.cwd()), "environment": environment}
        self.pid = forks.fork(task, dict(enumerate(streams)))
        self._child_created = True
        self._close_pipe_fds(*given[10:16])  # type: ignore[attr-defined]


def run_program(
    words: Sequence[str], *, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, and return what it printed."""
    with Program(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
