"""What was predicted of a trial: written into its folder before it runs, and never again.

A prediction that is written after what it predicts is none. The file is made once; a second one of the same trial is an
error. Trials of before there were predictions have none, and neither has a trial of which nothing can be foretold.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.record.durable import write_durably, writing

PREDICTIONS_FILE = "predictions.json"
FORMAT = 1


class PredictionInput(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that a prediction was made from."""

    name: str
    value: float
    unit: str
    how: str
    """Where it is from, in a clause."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What a model makes of measured inputs."""

    name: str
    """Of the metric or the counter, per transaction, that it is held against afterwards."""
    value: float
    low: float | None
    """What inputs with an interval allow at the least; None where they have none. The model's own error is not in it."""
    high: float | None
    unit: str
    model: str
    """In a clause."""
    inputs: tuple[PredictionInput, ...]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    predictions: tuple[Prediction, ...]


class _Versioned(msgspec.Struct):
    format: int


def write_predictions(folder: Path, predictions: tuple[Prediction, ...]) -> None:
    """Write what is predicted of a trial, before it runs.

    Raises:
        StepFailedError: It was written before, or it cannot be written.
    """
    path = folder / PREDICTIONS_FILE
    if path.exists():
        raise StepFailedError("the trial's predictions are written already", detail=str(path))
    with writing(path):
        write_durably(path, msgspec.json.format(msgspec.json.encode(_File(predictions=predictions)), indent=1))


def read_predictions(folder: Path) -> tuple[Prediction, ...]:
    """What was predicted of a trial; nothing where nothing was.

    Raises:
        SpecError: The file is damaged, or a newer pgdyno wrote it.
    """
    path = folder / PREDICTIONS_FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return ()
    try:
        version = msgspec.json.decode(raw, type=_Versioned).format
        if version > FORMAT:
            raise SpecError(f"{path} has the newer format {version}", detail=f"this pgdyno reads up to {FORMAT}")
        return msgspec.json.decode(raw, type=_File).predictions
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise SpecError(f"{path} is damaged", detail=str(exc)) from exc
