"""A folder as a value, to see whether two are alike."""

from __future__ import annotations

import stat
from pathlib import Path


def look_at(folder: Path) -> dict[str, tuple[object, ...]]:
    """All of a folder that its mirror must have, too."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        mode = stat.S_IMODE(facts.st_mode)
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("folder", mode)
        else:
            found[name] = ("file", mode, facts.st_mtime_ns, path.read_bytes())
    return found
