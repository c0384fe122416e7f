"""Processes, their trees and their threads, for tests of what lives, what is frozen and where it runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process lives; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


def find_tree(root: int) -> Iterator[int]:
    """A process and its descendants."""
    yield root
    for children in Path(f"/proc/{root}/task").glob("*/children"):
        found = ""
        # A thread that ends just now has none.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found = children.read_text()
        for child in found.split():
            yield from find_tree(int(child))


def read_affinities(pid: int) -> dict[int, set[int]]:
    """The CPUs that each thread of a process may use; of none, if it has ended."""
    found = {}
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for entry in Path(f"/proc/{pid}/task").iterdir():
            found[int(entry.name)] = os.sched_getaffinity(int(entry.name))
    return found
