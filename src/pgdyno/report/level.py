"""Names the levels of detail that decide what each form of a report shows."""

from __future__ import annotations

import enum


class Level(enum.IntEnum):
    """How many readers want it; a form shows what is of its own level or below."""

    HEADLINE = 1
    """Everybody: the terminal at the end of a command."""
    STANDARD = 2
    """Whoever reads the report."""
    DETAIL = 3
    """Whoever checks it: folded on the page."""
