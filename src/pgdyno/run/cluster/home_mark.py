"""Mark a folder as a home of pgdyno, so that one that the user named by mistake is never emptied."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pgdyno.errors import HostError
from pgdyno.record.durable import write_durably

_MARK = ".pgdyno-home"
_WORDS = (
    b"This folder is a home of pgdyno, which empties work and scripts-* here. `pgdyno clean` removes what it loaded.\n"
)
# Homes of versions that made no mark have all of these.
_UNMARKED = ("work", "templates", "lock")


def mark_home(root: Path, used: Iterable[Path]) -> None:
    """Mark a folder as a home of pgdyno's, unless it is one.

    Args:
        root: The folder, which exists.
        used: The places in it that pgdyno would use and empty.

    Raises:
        HostError: It is none, and has something in one of these places.
        OSError: It cannot be read or written.
    """
    mark = root / _MARK
    if mark.exists():
        return
    others = [path.name for path in used if path.exists()]
    if others and not all((root / name).exists() for name in _UNMARKED):
        raise HostError(
            f"{root} is no home of pgdyno, and it has {', '.join(others)}",
            detail="pgdyno would use and empty folders of these names",
            hint="name an empty or a new folder with --home",
        )
    write_durably(mark, _WORDS)
