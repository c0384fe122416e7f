"""Whatever happens to the files of a trial, reading it gives the rest and says what is missing."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from pgdyno.record.store import open_record
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import TrialRecord

RECORD = Path(__file__).parents[1] / "data" / "records" / "v1-pg18"
PARTS = {"os.parquet": "os", "server.parquet": "server", "transactions/summary.json": "transactions"}


@pytest.fixture
def trial() -> TrialRecord:
    return open_record(RECORD).read_trials()[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(RECORD / "trials" / "0001", tmp_path / "0001")


def present(data: TrialData) -> set[str]:
    return {part for part in PARTS.values() if getattr(data, part) is not None}


def test_a_whole_trial_has_all_and_no_gaps(folder: Path, trial: TrialRecord) -> None:
    data = read_trial_data(folder, trial)
    assert present(data) == set(PARTS.values())
    assert data.pgbench is not None
    assert data.log
    assert data.gaps == ()
    assert data.load_start_epoch_s is not None


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("damage", ["cut", "zeroed", "other bytes", "empty", "gone"])
def test_a_damaged_file_is_a_gap_and_hides_nothing_else(
    folder: Path, trial: TrialRecord, name: str, damage: str
) -> None:
    path = folder / name
    whole = path.read_bytes()
    middle = len(whole) // 2
    broken = {
        "cut": whole[:middle],
        "zeroed": whole[:middle] + bytes(len(whole) - middle),
        "other bytes": random.Random(1).randbytes(len(whole)),
        "empty": b"",
    }
    path.unlink() if damage == "gone" else path.write_bytes(broken[damage])
    data = read_trial_data(folder, trial)
    assert present(data) == set(PARTS.values()) - {PARTS[name]}
    (gap,) = data.gaps
    assert gap.reason


@pytest.mark.parametrize("name", ["os.parquet", "server.parquet"])
def test_damage_anywhere_in_a_packed_file_never_ends_the_reading(folder: Path, trial: TrialRecord, name: str) -> None:
    draw = random.Random(18)
    path = folder / name
    whole = path.read_bytes()
    broken = 0
    for _ in range(40):
        data = bytearray(whole)
        at = draw.randrange(len(data))
        data[at : at + 512] = bytes(len(data[at : at + 512]))
        path.write_bytes(data)
        broken += len(read_trial_data(folder, trial).gaps)
    assert broken > 20


def test_a_histogram_that_cannot_be_read_is_damage_of_the_summary(folder: Path, trial: TrialRecord) -> None:
    path = folder / "transactions" / "summary.json"
    text = path.read_text()
    at = text.rindex('"histogram":"') + len('"histogram":"') + 60
    path.write_text(text[:at] + ("AAAA" if text[at : at + 4] != "AAAA" else "BBBB") + text[at + 4 :])
    data = read_trial_data(folder, trial)
    assert data.transactions is None
    (gap,) = data.gaps
    assert gap.source == "transaction log"
    assert "histogram" in gap.reason


@pytest.mark.parametrize(
    ("name", "source"), [("pgbench.stdout", "pgbench"), ("transactions/part-00000.parquet", "transactions")]
)
@pytest.mark.parametrize("left_ratio", [0.0, 0.25])
def test_what_a_cut_file_lacks_is_told(
    folder: Path, trial: TrialRecord, name: str, source: str, left_ratio: float
) -> None:
    path = folder / name
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * left_ratio)])
    (gap,) = read_trial_data(folder, trial).gaps
    assert gap.source == source
    assert name in gap.reason
