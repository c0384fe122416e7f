"""Folders of a moment, outside of every home, that bear the id of the process that made them.

So the next pgdyno knows which of them a killed one has left. The id is of use on this machine only, and may be another
process's by now: then the folder stays until that has ended, too.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def name_of_this_process(mark: str) -> str:
    """How the names of this process's folders begin.

    Args:
        mark: What they are for, ending in a hyphen.
    """
    return f"{mark}{os.getpid()}-"


def remove_stale_folders(parent: Path, mark: str) -> None:
    """Remove the folders of processes that are gone, as far as this account may."""
    for folder in parent.glob(f"{mark}*"):
        owner, hyphen, _ = folder.name.removeprefix(mark).partition("-")
        if hyphen and owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)
