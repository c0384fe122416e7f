"""Make the document of a next step, which every document shares."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pgdyno.report.documents.described import says
from pgdyno.report.sections.step import NextStep, StepCertainty


class StepDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A recommended next step."""

    standing: Annotated[
        StepCertainty, says("What is known of its gain; a what-if gives up durability and is no advice.")
    ]
    words: str
    gain: Annotated[str, says("With its interval; empty where nobody knows.")]
    gain_ratio: float | None
    caution: Annotated[str, says("What speaks against it.")]
    workloads: tuple[str, ...]


def make_step(step: NextStep) -> StepDocument:
    """Return a step as a document."""
    return StepDocument(
        standing=step.standing,
        words=step.words,
        gain=step.gain,
        gain_ratio=step.gain_ratio,
        caution=step.caution,
        workloads=step.workloads,
    )
