"""The tree of a process, for tests of what is frozen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def find_tree(root: int) -> Iterator[int]:
    """A process and its descendants."""
    yield root
    for children in Path(f"/proc/{root}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from find_tree(int(child))
