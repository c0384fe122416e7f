"""Name the levels of detail that decide what each form of a report shows."""

from __future__ import annotations

import enum


class Level(enum.IntEnum):
    """The level of detail of a block. A form shows the blocks of its own level and below."""

    HEADLINE = 1
    """For everyone: the terminal at the end of a command."""
    STANDARD = 2
    """For readers of the report."""
    DETAIL = 3
    """For readers who check the report: folded on the page."""
