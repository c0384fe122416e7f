from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import HostError
from pgdyno.run.change.changes import (
    AppliedTuning,
    Change,
    ChangeKind,
    EmulationChange,
    FileChange,
    SavedFile,
    TuningState,
    begin_change,
)
from pgdyno.run.change.emulation import note
from pgdyno.run.change.emulation.groups import GroupFiles
from pgdyno.run.change.emulation.note import EmulationNote
from pgdyno.run.change.journal import Journal
from pgdyno.run.host.ctrl_c import uninterrupted
from pgdyno.run.host.process_id import is_running, read_boot_id, this_process
from tests.shared import hardened_umask
from tests.sysctls import started_child


def some_change(what: str = "vm.swappiness") -> Change:
    change = begin_change(kind=ChangeKind.SYSCTL, what=what, namespace=None, old_value="60")
    return msgspec.structs.replace(change, new_values=("10", "0"))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "deep" / "journal")


def test_what_was_written_is_read_by_another(journal: Journal) -> None:
    one, two = some_change(), some_change("net.ipv4.conf.eth0/100.rp_filter")
    assert journal.read() == ()
    with journal.open() as page:
        page.write([one, two])
        assert journal.read() == (one, two)
    assert Journal(journal.folder).read() == (one, two)
    assert one.owner == this_process()
    journal.drop([one])
    assert journal.read() == (two,)


def test_the_first_format_is_read_and_written_anew(journal: Journal) -> None:
    change = some_change()
    journal.folder.mkdir(parents=True)
    first = {"format": 1, "changes": [json.loads(msgspec.json.encode(change))]}
    (journal.folder / "changes.json").write_text(json.dumps(first))
    assert journal.read() == (change,)
    assert journal.read_tuning() is None
    journal.drop([])
    assert json.loads((journal.folder / "changes.json").read_bytes())["format"] == 6
    assert journal.read() == (change,)


def test_what_holds_nothing_leaves_nothing_for_an_older_one_to_refuse(journal: Journal) -> None:
    change = some_change()
    with journal.open() as page:
        page.write([change])
    journal.drop([change])
    with journal.open() as page:
        page.write_tuning(None)
    assert [path.name for path in journal.folder.iterdir()] == ["lock"]
    assert (journal.read(), journal.read_tuning()) == ((), None)


def test_what_is_saved_is_closed_to_others_and_goes_with_its_tuning(journal: Journal) -> None:
    with journal.open() as page:
        saved = SavedFile(sha256=page.save(b"a password"), uid=0, gid=0, mode=0o600)
        page.save(b"of nothing")
        file = FileChange(what="/etc/some.conf", old=saved, new_sha256s=())
        tuning = AppliedTuning(state=TuningState.APPLYING, owner=this_process(), at="now", files=(file,))
        page.write_tuning(tuning)
    assert (journal.folder / "saved").stat().st_mode & 0o077 == 0
    assert journal.read_tuning() == tuning
    assert journal.read_saved(saved) == b"a password"
    assert [path.name for path in (journal.folder / "saved").iterdir()] == [saved.sha256]
    (journal.folder / "saved" / saved.sha256).write_bytes(b"another")
    with pytest.raises(HostError, match="is damaged"):
        journal.read_saved(saved)
    # What measurements hold is apart from it.
    with journal.open() as page:
        page.write([some_change()])
    assert journal.read_tuning() == tuning
    with journal.open() as page:
        page.write_tuning(None)
    assert len(journal.read()) == 1
    assert list((journal.folder / "saved").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="others read only what root changes")
@pytest.mark.parametrize("begins", ["journal", "emulation"])
def test_what_others_may(journal: Journal, monkeypatch: pytest.MonkeyPatch, begins: str) -> None:
    with hardened_umask():
        if begins == "emulation":
            monkeypatch.setattr(note, "_FOLDER", journal.folder / "emulations")
            change = EmulationChange(what=str(journal.folder.parent / "disks"), at="now", owner=this_process())
            EmulationNote(
                change=change, groups=GroupFiles(throttle_folder="", is_v1=True, own_folder=None, parent_folder=None)
            ).write()
        with journal.open() as page:
            page.write([some_change()])
    modes = {path.name: path.stat().st_mode & 0o777 for path in (journal.folder, *journal.folder.iterdir())}
    modes.pop("emulations", None)
    assert modes == {"journal": 0o755, "changes.json": 0o644, "lock": 0o600}


def test_one_process_at_a_time(journal: Journal) -> None:
    code = "print('begins', flush=True)\nwith journal.open() as page: print(len(page.changes), flush=True)"
    with contextlib.ExitStack() as stack:
        with journal.open() as page:
            child = stack.enter_context(started_child(code, journal=journal.folder))
            assert child.stdout is not None
            assert child.stdout.readline() == "begins\n"
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(timeout=0.3)
            page.write([some_change()])
        assert child.stdout.readline() == "1\n"


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "damaged"),
        (b'{"format": 1, "changes": [{"kind": "sysctl"}]}', "damaged"),
        (b'{"format": 1, "changes": [{"ki', "damaged"),
        (b"[]", "damaged"),
        (b'{"format": 1, "changes": [{"kind": "\xff"}]}', "damaged"),
        (b'{"format": 7, "changes": "new"}', "another format"),
        (b"{}", "another format"),
    ],
)
def test_what_is_not_understood_is_refused_and_kept(journal: Journal, content: bytes, fact: str) -> None:
    journal.folder.mkdir(parents=True)
    file = journal.folder / "changes.json"
    file.write_bytes(content)
    with pytest.raises(HostError, match=fact):
        journal.read()
    with pytest.raises(HostError, match=fact), journal.open():
        pytest.fail("was opened")
    assert file.read_bytes() == content


def test_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="cannot write the journal"), Journal(tmp_path / "file" / "journal").open():
        pytest.fail("was opened")


def test_a_failed_write_leaves_what_was_there(journal: Journal) -> None:
    with journal.open() as page:
        page.write([some_change()])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            with pytest.raises(HostError, match="cannot write the journal"):
                page.write([some_change(), some_change()])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(journal.read()) == 1
    assert not list(journal.folder.glob(".*.partial"))


def test_who_runs() -> None:
    me = this_process()
    assert is_running(me)
    assert not is_running(msgspec.structs.replace(me, start_ticks=me.start_ticks - 1))
    assert not is_running(msgspec.structs.replace(me, boot_id="00000000-0000-0000-0000-000000000000"))
    assert me.boot_id == read_boot_id()


def test_the_dead_do_not_run_even_when_nobody_has_buried_them() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    them = msgspec.structs.replace(this_process(), pid=process.pid, start_ticks=int(fields[19]))
    assert is_running(them)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{process.pid}").exists()
    assert not is_running(them)
    process.communicate()
    assert not is_running(them)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_wait(number: signal.Signals) -> None:
    came = []
    before = signal.signal(number, lambda *_: came.append(number))
    try:
        with uninterrupted():
            with uninterrupted():
                signal.raise_signal(number)
                signal.raise_signal(number)
            assert came == []
        assert came == [number]
        signal.raise_signal(number)
        assert came == [number, number]
    finally:
        signal.signal(number, before)


def test_an_interrupt_comes_after_the_page_was_written(journal: Journal) -> None:
    def write() -> None:
        with journal.open() as page:
            signal.raise_signal(signal.SIGINT)
            page.write([some_change()])

    with pytest.raises(KeyboardInterrupt):
        write()
    assert len(journal.read()) == 1
    with journal.open():
        assert len(journal.read()) == 1


def test_an_interrupt_right_after_the_lock_leaves_it_to_the_block(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else an exception that keeps the lock's frame alive keeps the lock, for which undoing waits.
    flock = fcntl.flock

    def interrupted(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(fcntl, "flock", interrupted)
    with pytest.raises(KeyboardInterrupt), journal.open() as page:
        page.write([some_change()])
    monkeypatch.undo()
    assert [change.what for change in journal.read()] == ["vm.swappiness"]
    journal.drop(journal.read())


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with uninterrupted():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_may_journal(journal: Journal) -> None:
    def write() -> None:
        with journal.open() as page:
            page.write([some_change()])

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert len(journal.read()) == 1
