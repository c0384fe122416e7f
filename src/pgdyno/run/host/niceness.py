"""How a process leaves CPU time to all others."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_AUTOGROUP = Path("/proc/self/autogroup")


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
