"""Make the part of report.json on predictions, trial by trial."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.predictions import PredictionInput
from pgdyno.report.documents.described import says


class PredictionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction that was made before the trial, and what the trial measured."""

    name: Annotated[str, says("`tps`, a counter per transaction, or `checkpoint_distance_bytes`.")]
    value: float
    low: Annotated[float | None, says("Of its inputs' intervals; null without one.")]
    high: float | None
    unit: str
    model: str
    inputs: tuple[PredictionInput, ...]
    measured: float | None
    error_ratio: Annotated[float | None, says("Predicted over measured, less 1.")]
    reason: Annotated[str | None, says("Why there is no error.")]


def make_predictions(trial: TrialAnalysis) -> tuple[PredictionDocument, ...]:
    """Return a trial's predictions as documents."""
    return tuple(
        PredictionDocument(
            **msgspec.structs.asdict(one.prediction),
            measured=one.measured,
            error_ratio=one.error_ratio,
            reason=one.reason,
        )
        for one in trial.predictions
    )
