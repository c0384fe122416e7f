"""Define a recommended next step and how certain its gain is."""

from __future__ import annotations

import enum

import msgspec

from pgdyno.report.document import Link
from pgdyno.report.sections.findings import join_places


class StepCertainty(enum.Enum):
    """How certain the gain of a step is, in the order of steps."""

    PROVEN = "proven"
    WEIGH = "weigh"
    """A proven gain on one load and a loss on another: it is for the reader to choose."""
    EXPECTED = "expected"
    UNKNOWN = "gain unknown"
    SETTLES = "would tell"
    """An experiment, which gains knowledge."""
    WHAT_IF = "what-if"
    """A step that gives up durability: it shows the cost of durability, and is no advice."""


_ORDER = list(StepCertainty)
_HUES = {
    StepCertainty.PROVEN: "green",
    StepCertainty.WEIGH: "amber",
    StepCertainty.EXPECTED: "blue",
    StepCertainty.UNKNOWN: "slate",
    StepCertainty.SETTLES: "indigo",
    StepCertainty.WHAT_IF: "vermilion",
}


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    """A recommended next step."""

    standing: StepCertainty
    words: str
    """The step in a sentence."""
    gain: str = ""
    """The gain with its interval; empty where it is not known."""
    gains: tuple[tuple[str, str], ...] = ()
    """The gain on each workload that has one, with its name; empty for a step that a verdict proves."""
    caution: str = ""
    """The evidence against it, in a sentence."""
    gain_ratio: float | None = None
    """The order of steps of the same certainty."""
    workloads: tuple[str, ...] = ()
    places: tuple[Link, ...] = ()
    badge: str = ""
    """The word beside the step; empty: that of its certainty."""
    reason: int | None = None
    """The place in the list of explanations, from 1, of the evidence for it."""

    @property
    def rank(self) -> tuple[int, float]:
        """The place among others: the most certain gain first, then the largest."""
        return _ORDER.index(self.standing), -abs(self.gain_ratio or 0.0)

    @property
    def of(self) -> str:
        """The workloads beside it; empty for the whole study."""
        return join_places(self.workloads)

    @property
    def hue(self) -> str:
        """The colour of its certainty."""
        return _HUES[self.standing]
