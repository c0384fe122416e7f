from __future__ import annotations

import contextlib
import fcntl
import filecmp
import os
import shutil
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import pytest

from pgdyno.errors import ExitCode, HostError, SpecError, StepFailedError
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.store import RecordStore, find_records, no_records_in, open_record
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.tries import count_failures
from pgdyno.record.types import FORMAT_VERSION, ErrorFact, ServerFacts, StudyRecord, TrialRecord, TrialStatus
from pgdyno.run.given.bounds import _refuse_data, _refuse_wal
from pgdyno.spec.read import format_study, make_study
from pgdyno.spec.study import DataSpec
from tests.records import copy_record


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
        plan=plan_study(study, Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**12)),
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


def test_tries_that_failed_by_themselves_are_counted(store: RecordStore) -> None:
    folder, failed = store.trial_dir(1), make_trial(store.read_record(), 1, TrialStatus.FAILED)
    facts = (
        "the server ended",
        "the live round ended because b failed",
        "the round ended because b failed",
        *(refuse(51_000_000_000, 50e9).fact for refuse in (_refuse_wal, _refuse_data)),
        "it ended",
    )
    for fact in facts:
        store.begin_trial(1)
        store.write_trial(msgspec.structs.replace(failed, error=ErrorFact(fact=fact)))
    # The latest is the trial itself, and what the user stopped has no trial.json.
    assert count_failures(folder) == 1
    store.begin_trial(1)
    store.begin_trial(1)
    store.write_trial(make_trial(store.read_record(), 1, TrialStatus.FINISHED))
    assert count_failures(folder) == 2
    assert count_failures(store.trial_dir(2)) == 0
    damaged = folder.with_name("0001.cut-6") / "trial.json"
    damaged.write_text("{")
    assert count_failures(folder) == 1
    damaged.unlink()
    damaged.mkdir()
    assert count_failures(folder) == 1
    assert read_trial_data(folder, store.read_trials()[0]).failures == 1


def test_what_was_cut_short_is_set_aside_and_kept(store: RecordStore) -> None:
    for content in ("first", "second", "third"):
        (store.begin_trial(1) / "pgbench.out").write_text(content)
    assert (store.trial_dir(1) / "pgbench.out").read_text() == "third"
    kept = sorted((store.path / "trials").glob("0001.cut-*"))
    assert [(path / "pgbench.out").read_text() for path in kept] == ["first", "second"]
    assert store.read_trials() == ()


def test_a_try_that_was_removed_is_in_nobodys_way(store: RecordStore) -> None:
    for content in ("first", "second", "third"):
        (store.begin_trial(1) / "pgbench.out").write_text(content)
    trials = store.path / "trials"
    shutil.rmtree(trials / "0001.cut-1")
    (store.begin_trial(1) / "pgbench.out").write_text("fourth")
    (trials / "0001.cut-2.txt").touch()
    store.begin_trial(1)
    kept = {path.parent.name: path.read_text() for path in trials.glob("*/pgbench.out")}
    assert kept == {"0001.cut-2": "second", "0001.cut-3": "third", "0001.cut-4": "fourth"}


def test_a_record_is_never_overwritten(store: RecordStore) -> None:
    with pytest.raises(HostError, match="exists already"):
        store.create(make_record(), study_toml="")


def test_what_a_crash_left_of_a_following_record_is_in_nobodys_way(store: RecordStore) -> None:
    following = store.scaling
    assert not following.exists
    following.remove_incomplete()
    (following.path / "trials").mkdir(parents=True)
    following.remove_incomplete()
    record = store.read_record()
    following.create(record, study_toml=format_study(record.study))
    following.remove_incomplete()
    assert following.exists
    assert following.read_record() == record
    assert [found.path for found in find_records(store.path.parent)] == [store.path]


def test_a_newer_format_is_refused_an_unknown_file_too(store: RecordStore) -> None:
    raw = msgspec.json.decode((store.path / "record.json").read_bytes())
    (store.path / "record.json").write_bytes(
        msgspec.json.encode({**raw, "format_version": FORMAT_VERSION + 1, "new": 1})
    )
    with pytest.raises(SpecError, match=f"has the newer format {FORMAT_VERSION + 1}") as caught:
        store.read_record()
    assert caught.value.exit_code is ExitCode.SPEC
    (store.path / "record.json").write_text("{")
    with pytest.raises(SpecError, match="is damaged") as caught:
        store.read_record()
    assert "from a copy" in caught.value.hint
    (store.path / "record.json").unlink()
    with pytest.raises(SpecError, match="is not a record"):
        open_record(store.path)


def test_what_is_no_record_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Read me")
    for name, detail in (
        ("README.md", "a record is a folder with a record.json"),
        ("", f"{tmp_path / 'record.json'}: No such file or directory"),
        ("nowhere", "no such folder"),
    ):
        path = tmp_path / name
        with pytest.raises(SpecError) as caught:
            open_record(path)
        assert (caught.value.fact, caught.value.detail) == (f"{path} is not a record", detail)


def test_a_folder_of_records_is_no_record_and_a_record_no_folder_of_them(tmp_path: Path) -> None:
    record = copy_record(tmp_path / "record")
    with pytest.raises(SpecError, match="is not a record") as caught:
        open_record(tmp_path)
    assert caught.value.detail == "it is a folder of records"
    assert str(record) in caught.value.hint
    assert "the folder above it" in no_records_in([record]).hint
    assert "bench" in no_records_in([tmp_path / "empty"]).hint


def test_a_damaged_trial_can_be_moved_out(tmp_path: Path) -> None:
    store = RecordStore(copy_record(tmp_path / "record"))
    damaged = store.trial_dir(1)
    (damaged / "trial.json").write_text("{")
    with pytest.raises(SpecError, match="is damaged") as caught:
        store.read_trials()
    assert caught.value.hint == f"move {damaged} out of the record; the rest can then be read"
    damaged.rename(tmp_path / "damaged")
    assert [trial.planned.number for trial in store.read_trials()] == [2]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 kB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system of its own")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_an_error_in_words_and_leaves_the_record_whole(full_disk: Path) -> None:
    store = RecordStore(full_disk / "record")
    store.create(make_record(), study_toml="")
    folder = store.begin_trial(1)
    room = (full_disk / "filler").open("wb", buffering=0)
    with room, contextlib.suppress(OSError):
        while room.write(bytes(4096)):
            pass
    larger = msgspec.structs.replace(make_record(), name="x" * 400_000)
    for write in (
        lambda: store.write_record(larger),
        lambda: store.write_trial(make_trial(larger, 1, TrialStatus.FINISHED)),
        lambda: RecordStore(full_disk / "other").create(larger, study_toml=""),
    ):
        with pytest.raises(StepFailedError) as caught:
            write()
        assert "No space left on device" in caught.value.detail
        assert caught.value.hint == "the disk of the record is full: free some space; `pgdyno resume` continues"
    assert store.read_record() == make_record()
    assert list(folder.iterdir()) == []
    assert not list(store.path.glob(".*.partial"))


def test_all_files_and_folders_of_a_trial_are_on_disk_before_it_is_part_of_the_record(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[Path] = []
    really = os.fsync

    def fsync(descriptor: int) -> None:
        order.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = store.begin_trial(1)
    inner = folder / "transactions"
    inner.mkdir()
    (inner / "part").write_text("rows")
    store.write_trial(make_trial(store.read_record(), 1, TrialStatus.FINISHED))
    (draft,) = [path for path in order if path.match(f"{folder}/.trial.json.*.partial")]
    last = order.index(draft)
    assert {inner, inner / "part"} <= set(order[:last])
    assert {folder, folder.parent} <= set(order[last:])
    order.clear()
    path = store.path.parent / "new" / "deep"
    RecordStore(path).create(make_record(), study_toml="")
    assert {path, path.parent, path.parent.parent} <= set(order)


def test_trials_with_five_digits_count_and_come_in_their_order(store: RecordStore) -> None:
    numbers = (9999, 10_000, 123_456)
    first = make_trial(store.read_record(), 1, TrialStatus.FINISHED)
    for number in reversed(numbers):
        store.begin_trial(number)
        store.write_trial(msgspec.structs.replace(first, planned=msgspec.structs.replace(first.planned, number=number)))
    store.begin_trial(10_000)
    assert (store.path / "trials" / "10000.cut-1" / "trial.json").exists()
    assert [trial.planned.number for trial in store.read_trials()] == [9999, 123_456]


def test_one_pgdyno_at_a_time_works_on_a_record(store: RecordStore) -> None:
    program = f"""
from pathlib import Path
from typing import IO
from pgdyno.record.store import RecordStore
with RecordStore(Path({str(store.path)!r})).locked():
    print("locked", flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(HostError, match="another pgdyno is at work on this record"), store.locked():
            pass
        other.communicate("\n", timeout=600)
    assert other.returncode == 0
    with store.locked():
        pass


def test_whoever_looks_at_a_record_keeps_nobody_from_working_on_it(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.locked():
        assert store.is_locked
    looking, really = (store.path / ".lock").open(), fcntl.flock
    really(looking, fcntl.LOCK_SH)

    def flock(lock: IO[str], how: int) -> None:
        really(lock, how)
        # A look ends while one waits for it.
        if how == fcntl.LOCK_SH | fcntl.LOCK_NB:
            looking.close()

    monkeypatch.setattr(fcntl, "flock", flock)
    with store.locked():
        assert looking.closed
        assert store.is_locked
    assert not store.is_locked


def test_of_two_that_begin_while_one_looks_the_second_is_refused(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.locked():
        pass
    looking, really = (store.path / ".lock").open(), fcntl.flock
    really(looking, fcntl.LOCK_SH)
    both, has_waited = threading.Barrier(2, action=looking.close), threading.local()
    said: list[str] = []
    is_refused = threading.Event()

    def flock(lock: IO[str], how: int) -> None:
        really(lock, how)
        # Both have seen by then that it is not free.
        if how == fcntl.LOCK_SH | fcntl.LOCK_NB and not hasattr(has_waited, "once"):
            has_waited.once = True
            both.wait(timeout=600)

    def work() -> None:
        try:
            with store.locked():
                said.append("at work" if is_refused.wait(timeout=600) else "nobody was refused")
        except HostError as error:
            said.append(error.fact)
            is_refused.set()

    monkeypatch.setattr(fcntl, "flock", flock)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["another pgdyno is at work on this record", "at work"]


def test_scripts_are_kept_once_and_run_as_they_were(store: RecordStore, tmp_path: Path) -> None:
    scripts = [tmp_path / name / "load.sql" for name in ("a", "b")]
    for script in scripts:
        script.parent.mkdir()
        script.write_text(f"select '{script.parent.name}';\n")
    workload = {"name": "mixed", "scripts": [*map(str, scripts), "select-only"]}
    study = make_study({"workload": [workload]}, source="test", folder=tmp_path)
    plan = plan_study(study, Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**12))
    kept = store.keep_scripts(plan)
    assert list(kept) == [str(script) for script in scripts]
    assert {copy.name for copy in kept.values()} == {"load.sql"}
    scripts[0].write_text("select 'edited';\n")
    scripts[1].unlink()
    assert store.keep_scripts(plan) == kept
    assert [copy.read_text() for copy in kept.values()] == ["select 'a';\n", "select 'b';\n"]
    with pytest.raises(SpecError, match="cannot read script file"):
        RecordStore(tmp_path / "elsewhere").keep_scripts(plan)


def test_the_sql_file_of_the_data_is_kept_line_by_line_or_not_at_all(store: RecordStore, tmp_path: Path) -> None:
    file = tmp_path / "schema.sql"
    with file.open("wb") as lines:
        lines.writelines(b"%07d\n" % number for number in range(400_000))
    tracemalloc.start()
    kept = store.keep_init(DataSpec(init=str(file)))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < file.stat().st_size / 10
    assert kept.init is not None
    assert filecmp.cmp(file, kept.init, shallow=False)
    empty = tmp_path / "empty.sql"
    empty.touch()
    with pytest.raises(SpecError, match="is empty"):
        store.keep_init(DataSpec(init=str(empty)))
    assert [one.name for one in store.init_dir.iterdir()] == ["schema.sql"]
