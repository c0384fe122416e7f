from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.record.predictions import (
    PREDICTIONS_FILE,
    Prediction,
    PredictionInput,
    read_predictions,
    write_predictions,
)

TPS = Prediction(
    name="tps",
    value=1234.5,
    low=1100.0,
    high=None,
    unit="tps",
    model="group commit",
    inputs=(PredictionInput(name="flush", value=0.0012, unit="s", how="pg_test_fsync"),),
)


def test_what_was_predicted_reads_back(tmp_path: Path) -> None:
    write_predictions(tmp_path, (TPS,))
    assert read_predictions(tmp_path) == (TPS,)


def test_trials_of_before_there_were_predictions_have_none(tmp_path: Path) -> None:
    assert read_predictions(tmp_path) == ()


def test_a_prediction_is_never_written_again(tmp_path: Path) -> None:
    write_predictions(tmp_path, ())
    with pytest.raises(StepFailedError, match="written already"):
        write_predictions(tmp_path, (TPS,))
    assert read_predictions(tmp_path) == ()


@pytest.mark.parametrize(
    ("content", "words"), [(b'{"format": 2}', "newer format 2"), (b'{"format": 1}', "damaged"), (b"\xff", "damaged")]
)
def test_what_it_cannot_read_it_says(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / PREDICTIONS_FILE).write_bytes(content)
    with pytest.raises(SpecError, match=words):
        read_predictions(tmp_path)
