"""The list of a record's experiments: kept in order, absent where none was, refused where it cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.record.confirmation import (
    CONFIRMATIONS_FILE,
    Confirmation,
    add_confirmation,
    locate_experiment,
    read_confirmations,
)
from pgdyno.record.store import RecordStore

_ONE = Confirmation(
    record="../second",
    workload="tpcb-like",
    resource="CPU",
    reference="a",
    changed="b",
    expects="faster",
    is_what_if=False,
)


def test_experiments_are_kept_in_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "first"
    folder.mkdir()
    store = RecordStore(folder)
    assert read_confirmations(store) == ()
    add_confirmation(store, _ONE)
    add_confirmation(store, _ONE)
    assert read_confirmations(store) == (_ONE, _ONE)
    assert locate_experiment(store, _ONE).path == tmp_path / "second"
    assert not locate_experiment(store, _ONE).exists


@pytest.mark.parametrize("content", ["{", '{"format_version": 2, "confirmations": []}', '{"confirmations": [{}]}'])
def test_what_cannot_be_read_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / CONFIRMATIONS_FILE).write_text(content)
    with pytest.raises(SpecError, match=r"damaged|newer"):
        read_confirmations(RecordStore(tmp_path))
