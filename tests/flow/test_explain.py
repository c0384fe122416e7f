"""An explanation of a record, on the disk that it was made on and on another."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.flow.explain import explain
from pgdyno.record.device.disk_card import write_card
from pgdyno.record.store import RecordStore
from tests.cli.program import run_here
from tests.disk_cards import make_card

RECORD = Path(__file__).parent.parent / "data" / "records" / "v1-pg18"


def test_another_disk_is_imagined_where_it_is_named(tmp_path: Path) -> None:
    card = tmp_path / "gp3.json"
    write_card(make_card(), card)
    here, there = explain(RecordStore(RECORD)), explain(RecordStore(RECORD), disk=card)
    assert here.change == ""
    changes = [[one.change for one in capacity.projections] for capacity in there.report.analysis.capacities]
    assert changes
    assert all(each[-1] == f"the disk of {card}" for each in changes)
    assert f"the disk of {card}".encode() in there.to_json()
    # Two trials give no range that says something.
    assert "trials are too few" in there.report.analysis.capacities[0].projections[-1].reason


def test_a_card_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read the disk card"):
        explain(RecordStore(RECORD), disk=tmp_path / "none.json")


def test_a_disk_is_imagined_or_this_one_measured(tmp_path: Path) -> None:
    done = run_here(["explain", str(RECORD), "--confirm", "--disk", str(tmp_path / "any.json")])
    assert done.returncode == 2
    assert "--disk assumes another disk" in done.stderr
