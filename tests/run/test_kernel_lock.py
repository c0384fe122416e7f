"""Two pgdynos on one kernel that share no file system: real namespaces, and a real chroot."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import HostError
from pgdyno.run.change.changes import Change, ChangeKind, UndoOutcome, begin_change
from pgdyno.run.change.journal import Journal
from pgdyno.run.change.kernel import changed_sysctls, restore_left_overs
from pgdyno.run.change.kernel_lock import SettingLock, _devices, check_unlocked
from tests.sysctls import machine_settings, needs_proc_sys, read_sysctl, started_child, write

pytestmark = needs_proc_sys
POOL = "vm.nr_hugepages"
Elsewhere = Callable[[str], contextlib.AbstractContextManager["subprocess.Popen[str]"]]


def can_lock() -> bool:
    # Of this process alone: another run of these tests takes it, too.
    change = begin_change(kind=ChangeKind.SYSCTL, what=f"test{os.getpid()}", namespace=None, old_value="")
    lock = SettingLock.take(change)
    lock.note(change)
    is_kept = lock.read() == change
    lock.release()
    return is_kept


def left_files(name: str) -> list[str]:
    """As the lock sees them: /dev may be another file system."""
    with _devices() as mount:
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=mount)
    try:
        return [one for one in os.listdir(folder) if one.startswith(f"pgdyno-{name}")]  # noqa: PTH208 - it has no path
    finally:
        os.close(folder)


def skip_without(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        pytest.skip(f"no namespaces here: {exc}")
    if not can_lock():
        pytest.skip("this account may not mount devtmpfs")


@pytest.fixture(params=["namespaces", "chroot"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Elsewhere:
    """Starts a pgdyno that changes the pool and waits: in namespaces of its own, or in a chroot; with a journal there."""
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    if request.param == "namespaces":
        unshare = ("unshare", "-m", "-p", "-n", "-i", "-u", "--fork", "--kill-child", "--mount-proc")
        prefix, enter = unshare, ""
    else:
        unshare = ("unshare", "-m")
        prefix = (*unshare, "sh", "-c", f'mount -t proc proc {root}/proc && exec "$@"', "sh")
        enter = f"os.chroot({str(root)!r}); os.chdir('/'); journal = Journal(pathlib.Path('/journal'))"
    skip_without(*unshare, "true")

    @contextlib.contextmanager
    def start(value: str) -> Iterator[subprocess.Popen[str]]:
        code = f"""{enter}
try:
    with changed_sysctls({{{POOL!r}: {value!r}}}, journal=journal):
        print("ready", flush=True)
        time.sleep(600)
except HostError as error:
    print(error.fact, flush=True)
"""
        with started_child(code, journal=root / "journal", prefix=prefix) as child:
            yield child

    return start


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def kill(child: subprocess.Popen[str]) -> None:
    child.kill()
    # Its pipe closes when all its processes have ended.
    child.communicate()


def test_what_another_pgdyno_holds_is_not_taken_for_the_original(elsewhere: Elsewhere, tmp_path: Path) -> None:
    own, theirs = Journal(tmp_path / "own"), Journal(tmp_path / "root" / "journal")
    with machine_settings(POOL):
        write(POOL, "0")
        with elsewhere("3") as child:
            assert (said(child), read_sysctl(POOL)) == ("ready", "3")
            with (
                pytest.raises(HostError, match=f"another pgdyno on this kernel is changing {POOL}") as caught,
                changed_sysctls({POOL: "5"}, journal=own),
            ):
                pytest.fail("went on")
            assert "in another container or chroot; pid " in caught.value.detail
            assert own.read() == ()
            tuning = begin_change(kind=ChangeKind.SYSCTL, what=POOL, namespace=None, old_value="3")
            with pytest.raises(HostError, match="another pgdyno on this kernel"):
                check_unlocked(tuning)
            assert read_sysctl(POOL) == "3"
            kill(child)
        # What it has left is not the original either.
        assert read_sysctl(POOL) == "3"
        with pytest.raises(HostError, match="killed has left") as caught:
            check_unlocked(tuning)
        assert "it was 0 before" in caught.value.detail
        with changed_sysctls({POOL: "5"}, journal=own):
            assert read_sysctl(POOL) == "5"
            # Its journal is not undone while the setting is ours.
            assert [undo.outcome for undo in restore_left_overs(theirs)] == [UndoOutcome.FAILED]
            assert read_sysctl(POOL) == "5"
        assert read_sysctl(POOL) == "0"
        assert [undo.outcome for undo in restore_left_overs(theirs)] == [UndoOutcome.UNNEEDED]
        assert not left_files(POOL)


def test_a_pgdyno_elsewhere_waits_for_ours(elsewhere: Elsewhere, tmp_path: Path) -> None:
    with machine_settings(POOL):
        write(POOL, "0")
        with changed_sysctls({POOL: "3"}, journal=Journal(tmp_path / "own")), elsewhere("5") as child:
            assert said(child) == f"another pgdyno on this kernel is changing {POOL}"
            assert read_sysctl(POOL) == "3"
        assert read_sysctl(POOL) == "0"


def test_a_value_that_nobody_of_us_set_is_the_original(elsewhere: Elsewhere, tmp_path: Path) -> None:
    with machine_settings(POOL):
        write(POOL, "0")
        with elsewhere("3") as child:
            assert said(child) == "ready"
            kill(child)
        write(POOL, "4")
        with changed_sysctls({POOL: "5"}, journal=Journal(tmp_path / "own")):
            assert read_sysctl(POOL) == "5"
        assert read_sysctl(POOL) == "4"


def test_what_is_put_back_just_before_its_lock_is_free_is_not_taken_for_the_original(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not can_lock():
        pytest.skip("this account may not mount devtmpfs")
    with machine_settings(POOL), contextlib.ExitStack() as elsewhere:
        write(POOL, "0")
        elsewhere.enter_context(changed_sysctls({POOL: "3"}, journal=Journal(tmp_path / "theirs")))
        take = SettingLock.take

        def take_late(change: Change) -> SettingLock:
            elsewhere.close()
            return take(change)

        monkeypatch.setattr(SettingLock, "take", take_late)
        with changed_sysctls({POOL: "5"}, journal=Journal(tmp_path / "own")):
            assert read_sysctl(POOL) == "5"
        assert read_sysctl(POOL) == "0"


def test_a_setting_of_two_namespaces_is_unlocked_in_both(tmp_path: Path) -> None:
    if not can_lock():
        pytest.skip("this account may not mount devtmpfs")
    name, journal = f"net.test{os.getpid()}", Journal(tmp_path)
    made = [begin_change(kind=ChangeKind.SYSCTL, what=name, namespace=one, old_value="1") for one in ("net:1", "net:2")]
    gone = [msgspec.structs.replace(one, owner=msgspec.structs.replace(one.owner, pid=1)) for one in made]
    with journal.open() as page:
        page.write(gone)
    assert [undo.outcome for undo in restore_left_overs(journal)] == [UndoOutcome.GONE] * 2
    assert left_files(name) == []


def test_a_lock_that_cannot_be_had_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("pgdyno.run.change.kernel_lock._call", refuse)
    change = begin_change(kind=ChangeKind.SYSCTL, what="test", namespace=None, old_value="")
    lock = SettingLock.take(change)
    lock.note(msgspec.structs.replace(change, new_values=("1",)))
    assert lock.read() is None
    lock.release()
