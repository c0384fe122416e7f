"""Mark a folder as a home of pgdyno, so that one that the user named by mistake is never emptied."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from pgdyno.errors import HostError
from pgdyno.record.durable import write_durably

_MARK = ".pgdyno-home"
_WORDS = (
    b"This folder is a home of pgdyno, which empties work and scripts-* here. `pgdyno clean` removes what it loaded.\n"
)
# What is emptied, overwritten or removed in a home.
_USED = ("work", "templates", "lock", "restore-command", "clock.json", "scripts-*", "wal-home-*", "other-home-*")
# Commands that do not mark a home keep files in these.
_ADDED_TO = ("disks", "software")
# Homes of versions that made no mark have all of these.
_UNMARKED = ("work", "templates", "lock")


def is_made_in_home(name: str) -> bool:
    """Return whether pgdyno makes files or folders of that name in its homes."""
    # A killed pgdyno may have left the draft of a file.
    drafts = (f".{one}.*.partial" for one in (_MARK, *_USED))
    return _matches(name, (_MARK, *_USED, *_ADDED_TO, *drafts))


def mark_home(root: Path) -> None:
    """Mark a folder as a home of pgdyno's, unless it is one.

    Args:
        root: The folder, which exists.

    Raises:
        HostError: It is none, and has something of a name that pgdyno would use.
        OSError: It cannot be read or written.
    """
    mark = root / _MARK
    if mark.exists():
        return
    others = sorted(path.name for path in root.iterdir() if _matches(path.name, _USED))
    if others and not all((root / name).exists() for name in _UNMARKED):
        raise HostError(
            f"{root} is no home of pgdyno, and it has {', '.join(others)}",
            detail="pgdyno would empty folders and overwrite files of these names",
            hint="name an empty or a new folder with --home",
        )
    write_durably(mark, _WORDS)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
