"""Read and write the predictions of a trial, which are written once, before the trial runs.

A prediction made after the event is worthless, so that writing the file a second time is an error. Older trials have no
predictions, nor have trials about which nothing can be predicted.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.record.damage import refusing_damage
from pgdyno.record.durable import write_durably, writing

PREDICTIONS_FILE = "predictions.json"
FORMAT = 1


class PredictionInput(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that a prediction was computed from."""

    name: str
    value: float
    unit: str
    how: str
    """Origin of the figure, in a clause."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a model computed from measured inputs."""

    name: str
    """Name of the metric, or of the counter per transaction, that the value is compared with afterwards."""
    value: float
    low: float | None
    """Lower bound from the inputs' intervals, without the model's own error; None if the inputs have none."""
    high: float | None
    unit: str
    model: str
    """Description of the model, in a clause."""
    inputs: tuple[PredictionInput, ...]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    predictions: tuple[Prediction, ...]


class _Versioned(msgspec.Struct):
    format: int


def write_predictions(folder: Path, predictions: tuple[Prediction, ...]) -> None:
    """Write the predictions of a trial, before it runs.

    Raises:
        StepFailedError: The file exists already, or it cannot be written.
    """
    path = folder / PREDICTIONS_FILE
    if path.exists():
        raise StepFailedError("the trial's predictions are written already", detail=str(path))
    with writing(path):
        write_durably(path, msgspec.json.format(msgspec.json.encode(_File(predictions=predictions)), indent=1))


def read_predictions(folder: Path) -> tuple[Prediction, ...]:
    """Read the predictions of a trial; return an empty tuple if it has none.

    Raises:
        SpecError: The file is damaged, or a newer pgdyno wrote it.
    """
    path = folder / PREDICTIONS_FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return ()
    with refusing_damage(f"{path} is damaged"):
        version = msgspec.json.decode(raw, type=_Versioned).format
        if version > FORMAT:
            raise SpecError(f"{path} has the newer format {version}", detail=f"this pgdyno reads up to {FORMAT}")
        return msgspec.json.decode(raw, type=_File).predictions
