"""Hints for failures that PostgreSQL's programs describe in their own words."""

from __future__ import annotations


def lacks_memory(words: str) -> bool:
    """Return whether the words of PostgreSQL's programs say that the kernel gave them no memory."""
    return "could not map anonymous shared memory" in words or "Cannot allocate memory" in words


def hint_for(words: str) -> str:
    """Return what to try about a failure that PostgreSQL's programs describe in `words`; empty where nothing is known."""
    if "No space left on device" in words:
        return "the disk is full: free some space, use a smaller scale, or put the work elsewhere with --home"
    if lacks_memory(words):
        return "lower shared_buffers, or make room: more memory; with huge_pages = on, a larger vm.nr_hugepages"
    if "Permission denied" in words:
        return "the server's user must be able to reach pgdyno's home; choose another with --home"
    return ""
