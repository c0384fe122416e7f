"""Read `famous_lines.toml`: lines of sysctl.conf, limits.conf and fstab that people copy, with a judgement of each."""

from __future__ import annotations

import enum
import functools

import msgspec

from pgdyno.facts.data_file import read_toml


class LineVerdict(enum.Enum):
    """Judgement of a line."""

    DERIVED = "derived where it matters"
    NEEDED = "needed in one case"
    LEFT = "left alone"


class FamousLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting outside PostgreSQL that guides tell people to change."""

    names: tuple[str, ...]
    verdict: LineVerdict
    """Judgement, which all of the names share."""
    why: str
    """The reason, or the case in which it is needed, in one sentence."""
    source: str


@functools.cache
def famous_lines() -> dict[str, tuple[FamousLine, ...]]:
    """Return all lines by the file or place that has them, such as `sysctl.conf`."""
    return read_toml("famous_lines.toml", dict[str, tuple[FamousLine, ...]])


def famous_names() -> dict[str, FamousLine]:
    """Return all lines by each of their names."""
    return {name: line for lines in famous_lines().values() for line in lines for name in line.names}
