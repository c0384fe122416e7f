from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import ExitCode, HostError, SpecError
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.store import RecordStore, find_records, open_record
from pgdyno.record.types import (
    FORMAT_VERSION,
    DiskFacts,
    ErrorFact,
    HostFacts,
    ServerFacts,
    StudyRecord,
    TrialRecord,
    TrialStatus,
)
from pgdyno.spec.read import format_study, make_study


def make_record() -> StudyRecord:
    study = make_study({"workload": [{"name": "tpcb-like"}]}, source="test", folder=Path())
    disk = DiskFacts(
        path="/d",
        device="/dev/vda",
        block_device="vda",
        filesystem="ext4",
        mount_options="rw",
        size_bytes=9,
        free_bytes=5,
    )
    host = HostFacts(
        os_name="Debian",
        kernel="6",
        architecture="x86_64",
        cpu_model="x",
        cpu_count=2,
        cpu_limit=1.5,
        memory_bytes=8,
        memory_limit_bytes=None,
        swap_bytes=0,
        virtualization=None,
        clock_source="tsc",
        transparent_huge_pages="madvise",
        governor=None,
        load_average_1min=0.1,
        data_disk=disk,
        absent={"/sys/x": "No such file"},
    )
    return StudyRecord(
        format_version=FORMAT_VERSION,
        name="bench",
        started_at="2026-11-21T09:00:00+00:00",
        command=("pgdyno", "bench"),
        tool_versions={"pgdyno": "0.1.0"},
        study=study,
        plan=plan_study(study, Machine(cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**12)),
        host=host,
        server=ServerFacts(version="18.6", version_num=180006, bindir="/b"),
        dataset=None,
    )


def make_trial(record: StudyRecord, number: int, status: TrialStatus) -> TrialRecord:
    return TrialRecord(
        planned=record.plan.trials[number - 1],
        status=status,
        error=None if status is TrialStatus.FINISHED else ErrorFact(fact="the server ended"),
        argv=("pgbench",),
        clock_offset_s=1.7e9,
        restore_s=0.5,
        load_start_monotonic_s=1.0,
        load_end_monotonic_s=2.0,
        load_cpu_s=0.25,
        log_sampling_rate=1.0,
        settings=(),
        counters_before={"wal_bytes": 1.0, "wal_sync_ms": None},
        counters_after={"wal_bytes": 3.0, "wal_sync_ms": None},
        gaps=(),
    )


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    made = RecordStore(tmp_path / "records" / "one")
    made.create(make_record(), study_toml=format_study(make_record().study))
    return made


def test_what_is_written_is_read(store: RecordStore) -> None:
    assert store.read_record() == make_record()
    assert open_record(store.path / "record.json").path == store.path
    assert [found.path for found in find_records(store.path.parent)] == [store.path]


def test_only_finished_trials_need_not_run_again(store: RecordStore) -> None:
    record = store.read_record()
    trials = [make_trial(record, 1, TrialStatus.FINISHED), make_trial(record, 2, TrialStatus.FAILED)]
    for trial in trials:
        (store.begin_trial(trial.planned.number) / "pgbench.out").write_text("tps")
        store.write_trial(trial)
    store.begin_trial(3)
    assert list(store.read_trials()) == trials
    assert store.finished_numbers() == {1}


def test_what_was_cut_short_is_set_aside_and_kept(store: RecordStore) -> None:
    for content in ("first", "second", "third"):
        (store.begin_trial(1) / "pgbench.out").write_text(content)
    assert (store.trial_dir(1) / "pgbench.out").read_text() == "third"
    kept = sorted((store.path / "trials").glob("0001.cut-*"))
    assert [(path / "pgbench.out").read_text() for path in kept] == ["first", "second"]
    assert store.read_trials() == ()


def test_a_record_is_never_overwritten(store: RecordStore) -> None:
    with pytest.raises(HostError, match="exists already"):
        store.create(make_record(), study_toml="")


def test_a_newer_format_is_refused_an_unknown_file_too(store: RecordStore) -> None:
    raw = msgspec.json.decode((store.path / "record.json").read_bytes())
    (store.path / "record.json").write_bytes(
        msgspec.json.encode({**raw, "format_version": FORMAT_VERSION + 1, "new": 1})
    )
    with pytest.raises(SpecError, match="has the newer format 2") as caught:
        store.read_record()
    assert caught.value.exit_code is ExitCode.SPEC
    (store.path / "record.json").write_text("{")
    with pytest.raises(SpecError, match="is damaged"):
        store.read_record()
    (store.path / "record.json").unlink()
    with pytest.raises(SpecError, match="is not a record"):
        open_record(store.path)
