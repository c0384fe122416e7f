"""Name temporary folders after the process that made them, and remove those of ended processes.

The folders lie outside of every home. Their names tell the next pgdyno which of them a killed one has left. A pid only means
something in its namespace, so those of another one, such as another container's, are left alone. It may belong to another process
by now: the folder then stays until that process has ended, too.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h.
_FIRST_NAMESPACE = 0xEFFFFFFC


def name_of_this_process(mark: str) -> str:
    """Return the prefix of the names of this process's folders.

    Args:
        mark: The purpose of the folders, ending in a hyphen.
    """
    return f"{mark}{os.getpid()}-{_read_namespace()}-"


def remove_stale_folders(parent: Path, mark: str) -> None:
    """Remove the folders of ended processes, as far as this account may."""
    for folder in parent.glob(f"{mark}*-{_read_namespace()}-*"):
        owner = folder.name.removeprefix(mark).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _read_namespace() -> str:
    # Short, since some of the paths are those of sockets: 0 is the kernel's first namespace.
    return f"{abs(Path('/proc/self/ns/pid').stat().st_ino - _FIRST_NAMESPACE):x}"
