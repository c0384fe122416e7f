"""What was measured of a storage path against the ceiling of the layout that is declared for it: the efficiency.

More than a ceiling has a reason of its own: what lasts can be exceeded for a while, from credits, and then it is no
figure to plan with; what even a burst cannot be was answered by a cache, or the layout is another. Nothing here is about
how sure a measurement is.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from pgdyno.analyse.ceiling import Ceiling, StorageCeilings

# A bucket of tokens that is full when a short run begins adds this much to it, and providers round their limits up.
_SLACK_RATIO = 0.03


class Standing(enum.Enum):
    """Where a measured figure stands."""

    WITHIN = "within what lasts"
    BURST = "above what lasts: burst"
    BEYOND = "above what the layout can do"


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A measured figure and its ceiling."""

    name: str
    """Of a field of StorageCeilings."""
    measured: float
    ceiling: Ceiling
    ratio: float
    """Of what lasts."""
    standing: Standing


def compare_reached(ceilings: StorageCeilings, measured: Mapping[str, float]) -> tuple[Reached, ...]:
    """Hold what was measured against what the layout allows; what has no ceiling is left out.

    Args:
        ceilings: Of the layout.
        measured: In the ceilings' units, by the names of their fields.
    """
    found = []
    for name, value in measured.items():
        ceiling: Ceiling | None = getattr(ceilings, name)
        if ceiling is not None:
            found.append(
                Reached(
                    name=name,
                    measured=value,
                    ceiling=ceiling,
                    ratio=value / ceiling.value,
                    standing=_find_standing(value, ceiling),
                )
            )
    return tuple(found)


def _find_standing(value: float, ceiling: Ceiling) -> Standing:
    if value <= ceiling.value * (1 + _SLACK_RATIO):
        return Standing.WITHIN
    if ceiling.burst_value is not None and value <= ceiling.burst_value * (1 + _SLACK_RATIO):
        return Standing.BURST
    return Standing.BEYOND
