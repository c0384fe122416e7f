"""Records of every format version must give the same reports for ever; real ones, made by real runs, are kept here."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from pgdyno.analyse.estimate import DoubtKind
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.errors import SpecError
from pgdyno.flow.records.list import view_records
from pgdyno.flow.report import compose_report, write_reports
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.store import RecordStore, open_record
from pgdyno.report.sections.repeating import list_commands
from tests.report.build import build_report

RECORDS = Path(__file__).parents[1] / "data" / "records"
NAMES = sorted(path.name for path in RECORDS.iterdir())
GOLDEN = Path(__file__).parent / "golden"
PGBENCH = "/usr/lib/postgresql/15/bin/pgbench"


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
def test_a_damaged_card_of_a_record_is_not_to_be_measured_anew(store: RecordStore) -> None:
    store.card_path.write_text('{"format"')
    with pytest.raises(SpecError, match=r"disk\.json is no disk card") as caught:
        compose_report(store)
    assert "pgdyno disk" not in caught.value.hint
    assert "move it out" in caught.value.hint
    store.card_path.unlink()
    assert compose_report(store).report.analysis.workloads


@pytest.mark.parametrize("store", ["v1-pg18"], indirect=True)
def test_a_damaged_record_is_listed_with_what_is_wrong(store: RecordStore) -> None:
    (store.path / "record.json").write_text("{")
    (line,) = view_records(Path()).records
    assert line.problem is not None
    assert "damaged" in line.problem


@pytest.mark.parametrize("store", NAMES, indirect=True)
def test_commands_of_a_report_need_nothing_that_is_gone(store: RecordStore) -> None:
    commands = list_commands(compose_report(store).report)
    by_hand = [shlex.split(command.lines) for command in commands if command.lines.startswith("pgbench ")]
    assert len(by_hand) >= 2
    for argv in by_hand:
        options = {option.partition("=")[0] for option in argv[1:]}
        assert not options & {"--host", "--port", "--username", "--log", "--log-prefix", "--sampling-rate"}
        # pgbench takes it: all that is missing is a server.
        said = subprocess.run(
            [PGBENCH, *argv[1:]], env={"PGHOST": "/nowhere"}, capture_output=True, text=True, check=False
        )
        assert "connection to server on socket" in said.stderr


def test_a_script_is_named_where_the_record_has_it(tmp_path: Path) -> None:
    report = build_report(names=("select-only",), rounds=1)
    (workload,) = report.analysis.workloads
    argv = ("/pg/pgbench", "--client=8", "--file=/home/work/scripts/script-1-a b.sql@3", "--host=/home", "pgdyno")
    trial = msgspec.structs.replace(
        workload.trials[0], record=msgspec.structs.replace(workload.trials[0].record, argv=argv)
    )
    analysis = StudyAnalysis(workloads=(msgspec.structs.replace(workload, trials=(trial,)),))
    command = list_commands(msgspec.structs.replace(report, analysis=analysis))[-1]
    script = f"{report.record_dir}/trials/0001/script-1-a b.sql@3"
    assert shlex.split(command.lines) == ["pgbench", "--client=8", f"--file={script}"]


@pytest.mark.parametrize(
    ("endpoints", "folders", "lines"),
    [
        (
            ("primary", "standby1"),
            ("", ""),
            [
                "# writers, connected to primary",
                "pgbench --time=10 '--file={trial}/loads/load1/script-1-a b.sql@3' &",
                "# connected to standby1",
                "pgbench --time=10 --builtin=select-only@1 &",
                "wait",
            ],
        ),
        (
            (None, None),
            ("", ""),
            [
                "# on load1",
                "pgbench --time=10 '--file={trial}/loads/load1/script-1-a b.sql@3'",
                "# on load2",
                "pgbench --time=10 --builtin=select-only@1",
            ],
        ),
        (
            ("primary", "primary"),
            ("writers+load1", "writers+load2"),
            [
                "# writers, connected to primary, on load1",
                "pgbench --time=10 '--file={trial}/loads/writers+load1/script-1-a b.sql@3' &",
                "# writers, connected to primary, on load2",
                "pgbench --time=10 --builtin=select-only@1 &",
                "wait",
            ],
        ),
    ],
)
def test_all_pgbenches_of_a_load_have_commands(
    endpoints: tuple[str | None, ...], folders: tuple[str, ...], lines: list[str]
) -> None:
    report = build_report(names=("select-only",), rounds=1)
    (workload,) = report.analysis.workloads
    # pgdyno ends the pgbenches of such a load, which are started to run for longer.
    parts = tuple(
        LoadPart(
            host=f"load{number}", argv=("/pg/pgbench", "--time=70", script, "--host=/home", "pgdyno"), pid=number,
            clients=4, threads=1, start_far_s=0.0, epoch_offset_s=0.0, endpoint=endpoint,
            part="writers" if endpoint == "primary" else "", folder=folder,
        )
        for number, (script, endpoint, folder) in enumerate(
            zip(("--file=/run/script-1-a b.sql@3", "--builtin=select-only@1"), endpoints, folders, strict=True), start=1
        )
    )  # fmt: skip
    trial = workload.trials[0]
    planned = msgspec.structs.replace(trial.record.planned, duration_s=10.0)
    record = msgspec.structs.replace(trial.record, planned=planned, argv=parts[0].argv, generators=parts)
    trials = (msgspec.structs.replace(trial, record=record),)
    analysis = StudyAnalysis(workloads=(msgspec.structs.replace(workload, trials=trials),))
    command = list_commands(msgspec.structs.replace(report, analysis=analysis))[-1]
    folder = f"{report.record_dir}/trials/{planned.number:04d}"
    assert command.purpose.endswith(f"as in trial {planned.number}; these 2 begin together")
    assert command.lines.splitlines() == [line.format(trial=folder) for line in lines]
