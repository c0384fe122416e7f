"""Name the major versions of PostgreSQL that the facts are about, and find the ones that stand in for a newer version.

A fact names the versions that it holds for. A version newer than the versions that pgdyno was tried with has what the newest
version before it has, unless a fact names the newer one itself; the real server then confirms what is read from it.
"""

from __future__ import annotations

from collections.abc import Iterable

TRIED_MAJORS = (15, 16, 17, 18)
"""The tests prove each fact of these on a real server."""
CATALOGUED_MAJORS = (19,)
"""Their facts were read in manuals and in the source, and were not tried on a real server. Newer than all of TRIED_MAJORS."""
OLDEST_MAJOR = TRIED_MAJORS[0]
NEWEST_TRIED_MAJOR = TRIED_MAJORS[-1]
WHAT_IS_SUPPORTED = f"{OLDEST_MAJOR} to {NEWEST_TRIED_MAJOR}, and newer versions with a warning"


def is_supported(major: int) -> bool:
    """Return whether pgdyno takes this version: every one from the oldest tried on."""
    return major >= OLDEST_MAJOR


def is_untried(major: int) -> bool:
    """Return whether this version is newer than the versions that pgdyno was tried with."""
    return major > NEWEST_TRIED_MAJOR


def covers(versions: str, major: int) -> bool:
    """Return whether ranges such as `15-17` or `16, 18` name this version."""
    for one in versions.split(", "):
        first, _, last = one.partition("-")
        if int(first) <= major <= int(last or first):
            return True
    return False


def stand_ins(major: int) -> tuple[int, ...]:
    """List the version itself and, for an untried one, the versions whose facts hold where it has none, newest first."""
    if not is_untried(major):
        return (major,)
    return (major, *(one for one in reversed(CATALOGUED_MAJORS) if one < major), NEWEST_TRIED_MAJOR)


def find_range(ranges: Iterable[str], major: int) -> str | None:
    """Find the range that names this version, or else the first of its stand-ins; None where no range does."""
    named = list(ranges)
    return next((one for each in stand_ins(major) for one in named if covers(one, each)), None)
