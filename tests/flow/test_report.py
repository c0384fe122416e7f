"""Records of every format version must give the same reports for ever; real ones, made by real runs, are kept here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from pgdyno.analyse.estimate import DoubtKind
from pgdyno.errors import SpecError
from pgdyno.flow.listing import view_records
from pgdyno.flow.report import compose_report, write_reports
from pgdyno.record.store import RecordStore, open_record

RECORDS = Path(__file__).parents[1] / "data" / "records"
NAMES = sorted(path.name for path in RECORDS.iterdir())
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordStore:
    shutil.copytree(RECORDS / request.param, tmp_path / request.param)
    # Reports name the record as the user would; a relative path is the same on every machine.
    monkeypatch.chdir(tmp_path)
    return open_record(Path(request.param))


@pytest.mark.parametrize("store", NAMES, indirect=True)
def test_old_records_give_the_same_reports(store: RecordStore, golden: Callable[[Path, str], None]) -> None:
    report = write_reports(store)
    golden(GOLDEN / f"{store.path.name}.md", (store.path / "report.md").read_text())
    console = Console(width=80, no_color=True)
    with console.capture() as captured:
        console.print(report.to_terminal())
    golden(GOLDEN / f"{store.path.name}.txt", captured.get())
    document = json.loads((store.path / "report.json").read_text())
    assert document["workloads"]
    assert "<svg" in (html := (store.path / "report.html").read_text()) or "vega" in html


@pytest.mark.parametrize("store", ["v1-pg18"], indirect=True)
def test_checkpoints_that_the_server_logged_are_on_the_chart(store: RecordStore) -> None:
    trials = compose_report(store).report.analysis.workloads[0].trials
    checkpoints = [event for trial in trials for event in trial.events if event.kind == "checkpoint"]
    assert checkpoints
    assert all("wal" in event.text for event in checkpoints)


@pytest.mark.parametrize("store", ["v1-pg18"], indirect=True)
@pytest.mark.parametrize("lost", ["os.parquet", "server.parquet", "pgbench.stdout", "transactions", "server.log"])
def test_a_lost_file_is_a_gap_and_hides_nothing_else(store: RecordStore, lost: str) -> None:
    path = store.trial_dir(1) / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    first = write_reports(store).report.analysis.workloads[0].trials[0]
    assert len(first.gaps) == 1
    assert first.gaps[0].reason
    assert first.tps is not None
    assert (DoubtKind.NO_LOG in {doubt.kind for doubt in first.doubts}) == (lost == "transactions")
    assert bool(first.charts)


@pytest.mark.parametrize("store", ["v1-pg18"], indirect=True)
def test_a_record_without_trials_has_nothing_to_report(store: RecordStore) -> None:
    shutil.rmtree(store.path / "trials")
    with pytest.raises(SpecError, match="no trial that ended"):
        compose_report(store)


@pytest.mark.parametrize("store", ["v1-pg18"], indirect=True)
def test_a_damaged_record_is_listed_with_what_is_wrong(store: RecordStore) -> None:
    (store.path / "record.json").write_text("{")
    (line,) = view_records(Path()).records
    assert line.problem is not None
    assert "damaged" in line.problem
