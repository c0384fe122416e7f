"""Tell whether memory holds the data that a load reads."""

from __future__ import annotations

import enum

BEYOND_RATIO = 1.5
"""Data of this many memories or more are read from the disk all the time."""
# Not all memory is available to the data: sessions and the kernel use some, and shared_buffers hold pages twice.
_WITHIN_RATIO = 0.7


class MemoryFit(enum.Enum):
    """The size of the data against that of the memory."""

    WITHIN = "within"
    """Memory holds all data."""
    ABOUT = "about"
    """Small things decide how much of the data is read from the disk."""
    BEYOND = "beyond"


def classify_fit(ratio: float) -> MemoryFit:
    """Classify data of this many memories."""
    if ratio < _WITHIN_RATIO:
        return MemoryFit.WITHIN
    return MemoryFit.ABOUT if ratio < BEYOND_RATIO else MemoryFit.BEYOND
