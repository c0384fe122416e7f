"""Start pgdyno's own helpers, such as the log reader, in a new Python that begins and ends quickly.

Each trial starts two or three. Looking for garbage among imported modules and taking all of them apart at the end were a
third of what a helper cost beside its work. So garbage is looked for seldom, and a helper whose work is done ends at once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from pathlib import Path

_AUTOGROUP = Path("/proc/self/autogroup")
# Imports make few more objects than that, and none of them is garbage.
_GARBAGE_THRESHOLD = 100_000


def helper_argv(module: str, *arguments: str) -> list[str]:
    """Return the argv that calls `main` of a module of pgdyno, which finds the arguments in `sys.argv`."""
    return [sys.executable, "-P", "-m", __name__, module, *arguments]


def run_main(module: str) -> None:
    """Call a module's `main` and end this process with the exit code that it returns, or with its error."""
    gc.set_threshold(_GARBAGE_THRESHOLD)
    exit_code: int | None = importlib.import_module(module).main()
    sys.stdout.flush()
    os._exit(exit_code or 0)


def be_nice(niceness: int) -> None:
    """Lower the weight of this process, and of the session that it leads.

    Source: sched(7), "The autogroup feature": where kernel.sched_autogroup_enabled is 1, sessions share the CPUs by the
    nice value of each session's group, and that of a process counts within its session only.
    """
    os.nice(niceness)
    # A session that somebody else leads may be a user's terminal.
    if os.getsid(0) == os.getpid():
        # Kernels without groups have no such file, and an account other than root may set one in 0.1 s.
        with contextlib.suppress(OSError):
            _AUTOGROUP.write_text(str(niceness))


if __name__ == "__main__":
    run_main(sys.argv.pop(1))
