"""A byte that is not UTF-8 is damage to a record, and said to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.record.confirmation import CONFIRMATIONS_FILE, read_confirmations
from pgdyno.record.device.disk_card import read_card
from pgdyno.record.far import FAR_FILE, read_far
from pgdyno.record.predictions import PREDICTIONS_FILE, read_predictions
from pgdyno.record.store import RECORD_FILE, RecordStore, read_trial
from tests.records import copy_record


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        (RECORD_FILE, None, lambda path: RecordStore(path.parent).read_record()),
        ("trials/0001/trial.json", None, read_trial),
        ("disk.json", b'{"format": 1, "runs": [], "name": ""}', read_card),
        (
            CONFIRMATIONS_FILE,
            b'{"confirmations": [{"record": ""}]}',
            lambda path: read_confirmations(RecordStore(path.parent)),
        ),
        (FAR_FILE, b'{"ssh": ""}', lambda path: read_far(path.parent)),
        (
            PREDICTIONS_FILE,
            b'{"format": 1, "predictions": [{"name": ""}]}',
            lambda path: read_predictions(path.parent),
        ),
    ],
)
def test_what_is_not_utf_8_is_damaged(
    tmp_path: Path, name: str, content: bytes | None, read: Callable[[Path], object]
) -> None:
    path = copy_record(tmp_path / "record") / name
    whole = path.read_bytes() if content is None else content
    path.write_bytes(whole.replace(b': "', b': "\xff'))
    with pytest.raises(SpecError, match="is damaged"):
        read(path)
