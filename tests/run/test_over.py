"""Carry pgdyno to a machine, and run commands there: with a small set of packages, and with a program that stands for pgdyno."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import msgspec
import pytest

from pgdyno.cli.terminal.display import Display
from pgdyno.errors import HostError, StepFailedError
from pgdyno.flow import over
from pgdyno.record.device.disk_card import CARDS
from pgdyno.record.far import FarRecord, read_far
from pgdyno.run.link.ssh import SshLink, open_link
from pgdyno.run.over import far_run, parcels
from pgdyno.run.over.carry import Carried, _Failure, _refuse, carry
from pgdyno.run.over.command import Began, FarCommand, Order, running
from pgdyno.run.over.parcels import Parcel, Platform, pack_packages
from pgdyno.run.over.stopped import find_stopped, remove_stopped
from pgdyno.run.over.talk import talking
from pgdyno.spec.hosts import HostEntry, HostRole
from tests.hosts import Sshd
from tests.run.trees import is_alive
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

SMALL = "msgspec==0\ntomli-w==0\n"
# Stands for pgdyno: it says that it is there, does what its argument says, and puts something back when it is stopped.
STAND_IN = """
    import os, pathlib, sys, time
    # All at once: in pieces, other words could come between.
    sys.stdout.write(" ".join(["out", *sys.argv[1:], os.environ["PGDYNO_MACHINE"]]) + "\\n")
    sys.stdout.flush()
    print("err", sys.stderr.isatty(), file=sys.stderr, flush=True)
    try:
        if sys.argv[1] != "end":
            pathlib.Path("records/mine").mkdir(parents=True, exist_ok=True)
            pathlib.Path("records/mine/study.toml").write_text(f"pid = {os.getpid()}")
            # From here on it may be stopped.
            pathlib.Path("records/mine/record.json").write_text("{}")
        # A signal that comes just before a long sleep would wait for its end.
        while sys.argv[1] == "wait":
            time.sleep(0.05)
    except KeyboardInterrupt:
        pathlib.Path("records/mine/put-back").touch()
        sys.exit(130)
    sys.exit(7)
"""
# In a process of its own, so that it can be killed.
CONDUCTOR = """
    import json, sys
    from pgdyno.run.link.ssh import open_link
    from pgdyno.run.over.carry import Carried
    from pgdyno.run.over.command import Order, running
    from pgdyno.run.over.talk import talking
    from pgdyno.spec.hosts import HostEntry, HostRole

    folder = sys.argv[1]
    carried = Carried(program=f"{folder}/program", packages=f"{folder}/packages", python="3.11", sent_bytes=0)
    order = Order(words=("wait",), result="records/mine")
    with open_link(HostEntry(role=HostRole.SERVER, ssh="db1")) as link, talking(link) as talk, running(talk, carried, order) as command:
        def begin(began):
            if sys.argv[2] == "known":
                command.note_known()
            print(began.folder, began.files["study.toml"], flush=True)

        ended = command.run(began=begin)
        print(json.dumps({"code": ended.code, "has_result": ended.has_result}))
"""


def db1(python: str | None = None) -> HostEntry:
    return HostEntry(role=HostRole.SERVER, ssh="db1", python=python)


@pytest.fixture
def small_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock file of two packages, so that carrying them takes no time."""
    lock = tmp_path / "requirements.lock"
    lock.write_text(SMALL)
    monkeypatch.setattr(parcels, "find_lock", lambda: lock)
    return lock


def carry_to_db1(python: str | None = None) -> tuple[Carried, list[str]]:
    told: list[str] = []
    with open_link(db1(python)) as link, talking(link) as talk:
        return carry(talk, tell=told.append), told


def test_what_is_carried_is_whole_and_carried_once(by_ssh: Sshd, small_lock: Path) -> None:
    base = by_ssh.home / ".cache/pgdyno/carried"
    # Another test may have carried the same to that machine before.
    shutil.rmtree(base, ignore_errors=True)
    for name in ("packages-used", "packages-unused", "packages-half.part-1"):
        (base / name).mkdir(parents=True)
    used = os.open(base / "packages-used", os.O_RDONLY)
    fcntl.flock(used, fcntl.LOCK_SH)
    first, told = carry_to_db1()
    assert first.sent_bytes > 0
    assert any(words.startswith("carrying 2 packages for Python 3.") for words in told)
    # Its own packages and pgdyno itself, and nothing of this environment.
    code = "import pgdyno.spec.read, msgspec, sys; print(*sys.path, msgspec.__file__, pgdyno.__file__)"
    argv = [f"{first.program}/bin/python", "-I", "-c", code]
    seen = subprocess.run(argv, capture_output=True, text=True, check=True, cwd="/").stdout
    assert sys.prefix not in seen
    assert f"{first.packages}/msgspec/" in seen
    assert (base / "packages-used").exists()
    assert {path.name for path in base.iterdir()} == {
        "packages-used",
        Path(first.program).name,
        Path(first.packages).name,
    }
    os.close(used)
    again, told = carry_to_db1()
    assert (again.sent_bytes, told) == (0, [])
    # Damaged: only what is damaged is carried again.
    (Path(first.packages) / "tomli_w/__init__.py").unlink()
    mended, told = carry_to_db1()
    assert mended.program == first.program
    assert (Path(first.packages) / "tomli_w/__init__.py").exists()
    assert 0 < mended.sent_bytes < first.sent_bytes
    # Another version: what it replaces is not needed any more.
    small_lock.write_text("msgspec==0\n")
    other, _ = carry_to_db1()
    assert {path.name for path in base.iterdir()} == {Path(other.program).name, Path(other.packages).name}


def test_a_machine_that_cannot_take_it_is_refused(by_ssh: Sshd, tmp_path: Path, small_lock: Path) -> None:
    old = tmp_path / "python3.10"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.10.12\nexit 1\n')
    old.chmod(0o755)
    with pytest.raises(HostError, match=r"db1 has no Python 3\.11 or later") as caught:
        carry_to_db1(str(old))
    assert caught.value.detail == "Python 3.10.12"
    with pytest.raises(HostError, match=r"db1 has no Python 3\.11 or later"):
        carry_to_db1("/nowhere/python3")
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        os.truncate(file.fileno(), 1 << 43)

    def pack_huge(there: Platform, here: Platform) -> Parcel:
        return Parcel(name="packages-huge", title="a huge file", list_files=lambda: {"huge": huge})

    with (
        open_link(db1()) as link,
        talking(link) as talk,
        pytest.raises(HostError, match="db1 has no room for pgdyno") as caught,
    ):
        carry(talk, tell=lambda _: None, pack=pack_huge)
    assert caught.value.detail.startswith("a huge file: 11,434,")
    cache = by_ssh.home / ".cache"
    cache.mkdir(exist_ok=True)
    cache.rename(by_ssh.home / "moved")
    cache.write_text("no folder")
    try:
        with pytest.raises(HostError, match="db1 does not take pgdyno") as caught:
            carry_to_db1()
        assert caught.value.hint.startswith(f"pgdyno is carried to {cache}/pgdyno/carried there: make it a folder")
    finally:
        cache.unlink()
        (by_ssh.home / "moved").rename(cache)


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "free some of it there: `df -h`"),
        (errno.EROFS, "pgdyno is carried to /var/cache/pgdyno there: make it a folder that the account can write to"),
        (errno.EAGAIN, ""),
        (None, ""),
    ],
)
def test_what_to_try_where_pgdyno_is_not_taken_follows_from_the_error(number: int | None, hint: str) -> None:
    said = msgspec.json.encode({"failure": "an error", "errno": number})
    assert _refuse("db1", "/var/cache/pgdyno", msgspec.json.decode(said, type=_Failure)).hint == hint


@pytest.mark.parametrize(
    ("number", "name", "hint"),
    [
        (errno.ENOSPC, "pgdyno-on/1/record.json", far_run.FREE),
        (errno.EACCES, "pgdyno-on", "the account needs a home folder that it can write to"),
        (errno.ENOENT, ".cache/pgdyno/carried/pgdyno-1/bin/python", ""),
        (errno.EAGAIN, "pgdyno-on", ""),
    ],
)
def test_what_to_try_where_pgdyno_cannot_work_follows_from_the_error(number: int, name: str, hint: str) -> None:
    assert far_run.choose_hint(OSError(number, "an error", str(Path.home() / name))) == hint


def test_a_link_that_is_cut_while_pgdyno_is_carried_is_told_as_that(by_ssh: Sshd, tmp_path: Path) -> None:
    large = tmp_path / "large"
    # More than pipes and sshd hold, compressed.
    large.write_bytes(os.urandom(64 << 20))
    with open_link(db1()) as link, talking(link) as talk:

        def cut() -> dict[str, Path]:
            assert link._master is not None
            link._master.kill()
            return {"large": large}

        def pack_large(there: Platform, here: Platform) -> Parcel:
            return Parcel(name="packages-large", title="a large file", list_files=cut)

        with pytest.raises(StepFailedError, match="the link to db1 was lost"):
            carry(talk, tell=lambda _: None, pack=pack_large)


def test_packages_of_another_python_are_fetched_and_kept(small_lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Path] = []

    def fetch(folder: Path, lock: Path, there: Platform) -> None:
        fetched.append(folder)
        folder.mkdir()
        (folder / "module.py").touch()

    monkeypatch.setattr(parcels, "_fetch", fetch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_lock.parent))
    here = Platform(minor=11, architecture="x86_64", glibc_minor=36)
    others = [
        pack_packages(Platform(minor=12, architecture="x86_64", glibc_minor=39), here),
        pack_packages(Platform(minor=11, architecture="aarch64", glibc_minor=36), here),
        pack_packages(Platform(minor=11, architecture="x86_64", glibc_minor=35), here),
    ]
    newer = pack_packages(Platform(minor=11, architecture="x86_64", glibc_minor=39), here)
    assert newer.name == pack_packages(here, here).name
    assert len({one.name for one in (*others, newer)}) == 4
    for one in (*others, *others):
        assert [*one.list_files()] == ["module.py"]
    assert len(fetched) == 3
    assert "msgspec/__init__.py" in pack_packages(here, here).list_files()


def put_stand_in(folder: Path) -> Carried:
    """What lies on a machine, with a program in the place of pgdyno."""
    for name in ("program/bin", "program/site", "packages"):
        (folder / name).mkdir(parents=True)
    (folder / "program/site/pgdyno.py").write_text(textwrap.dedent(STAND_IN))
    python = folder / "program/bin/python"
    python.write_text(f'#!/bin/sh\nshift 3\nexec {sys.executable} -u {folder}/program/site/pgdyno.py "$@"\n')
    python.chmod(0o755)
    return describe_stand_in(folder)


def describe_stand_in(folder: Path) -> Carried:
    return Carried(program=f"{folder}/program", packages=f"{folder}/packages", python="3.11", sent_bytes=0)


@contextmanager
def started(folder: Path, *words: str, silence_s: int = 30) -> Iterator[tuple[SshLink, FarCommand]]:
    """The stand-in at work on db1."""
    order = Order(words=words, result="records/mine")
    with (
        open_link(db1()) as link,
        talking(link) as talk,
        running(talk, describe_stand_in(folder), order, silence_s=silence_s) as command,
    ):
        yield link, command


def test_output_and_exit_code_come_here_and_files_come_home(
    by_ssh: Sshd, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    carried = put_stand_in(tmp_path)
    (tmp_path / "a.sql").write_text("SELECT 1;")
    order = Order(words=("end", "naïve"), files={"below/a.sql": tmp_path / "a.sql"}, result="below")
    # The shell of db2 prints something first.
    db2 = HostEntry(role=HostRole.SERVER, ssh="db2")
    with open_link(db2) as link, talking(link) as talk, running(talk, carried, order) as command:
        ended = command.run(began=lambda _: None)
        assert (ended.code, ended.has_result) == (7, True)
        command.fetch(tmp_path / "home")
        assert Path(ended.folder).is_relative_to(by_ssh.home / "pgdyno-on")
        command.remove()
    assert (tmp_path / "home/a.sql").read_text() == "SELECT 1;"
    assert not Path(ended.folder).exists()
    out, err = capfdbinary.readouterr()
    assert out.decode() == "out end naïve db2\n"
    assert err == b"err False\n"


class MaskedLink(SshLink):
    """To an account whose files others may not read; it counts what is started there."""

    count = 0

    def start(self, command: str, *, stdout: int | IO[bytes]) -> subprocess.Popen[bytes]:
        self.count += 1
        return super().start(f"umask 027; {command}", stdout=stdout)


def test_one_python_there_carries_pgdyno_and_runs_it_with_the_accounts_own_umask(
    by_ssh: Sshd, tmp_path: Path, small_lock: Path
) -> None:
    stand_in = put_stand_in(tmp_path)
    order = Order(words=("make",), result="records/mine")
    with open_link(db1(), MaskedLink) as link, talking(link) as talk:
        carried = carry(talk, tell=lambda _: None)
        with running(talk, stand_in, order) as command:
            ended = command.run(began=lambda _: None)
            made = Path(ended.folder, "records/mine/record.json").stat().st_mode
            command.remove()
        assert isinstance(link, MaskedLink)
        assert link.count == 1
    assert (ended.code, oct(made & 0o777)) == (7, "0o640")
    assert oct(Path(carried.program).stat().st_mode & 0o777) == "0o755"


def test_a_word_between_two_programs_keeps_python_there_alive(by_ssh: Sshd, tmp_path: Path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("import os, signal\nsignal.alarm(10_000)\nos.write(1, b'done\\n')\n")
    second.write_text("import os, signal\nos.write(1, b'%d\\n' % signal.alarm(30))\n")
    with open_link(db1()) as link, talking(link) as talk:
        talk.begin(first)
        assert talk.hear() == b"done"
        talk.send(b"\n")
        talk.begin(second)
        assert int(talk.hear()) <= 30


def test_what_cannot_be_sent_from_there_stays_there(
    by_ssh: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = put_stand_in(tmp_path)
    text, add = Path(far_run.__file__).read_text(), "tar.add(folder, "
    assert add in text
    source = tmp_path / "far_run.py"
    # Root can read everything but what is gone.
    source.write_text(text.replace(add, 'tar.add(folder / "gone", '))
    monkeypatch.setattr(far_run, "__file__", str(source))
    monkeypatch.setattr(over, "_carry", lambda *_: carried)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sql").write_text("SELECT 1;")
    order = Order(words=("end", "here"), files={"below/a.sql": tmp_path / "a.sql"}, result="below")
    with (
        open_link(db1()) as link,
        pytest.raises(HostError, match="db1: what the command made there cannot be sent") as caught,
    ):
        over._Run(link, order, CARDS, loads={}).run(Display(quiet=True), lambda: None)
    assert "below/gone" in caught.value.detail
    words, folder = caught.value.hint.rsplit(" ", 1)
    assert words == "the command has ended there, and what it made stays in"
    assert (Path(folder) / "below/a.sql").read_text() == "SELECT 1;"


def test_a_record_that_does_not_come_home_stays_there(
    by_ssh: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = put_stand_in(tmp_path)
    monkeypatch.setattr(over, "_carry", lambda *_: carried)
    order = Order(words=("make",), result="records/other")
    with open_link(db1()) as link, pytest.raises(StepFailedError, match="db1 has a record that does not") as caught:
        over._Run(link, order, tmp_path / "other", loads={}).run(Display(quiet=True), lambda: None)
    folder = Path(caught.value.hint.rsplit(" ", 1)[1])
    # Nor does the next command remove it.
    far_run.remove_left(folder.parent)
    assert (folder / "records/mine/record.json").exists()


def test_what_was_added_to_a_record_here_outlives_what_comes_home(
    by_ssh: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = put_stand_in(tmp_path)
    home, note = tmp_path / "home", FarRecord(ssh="db1", folder=None, record="records/mine")
    (home / "figures").mkdir(parents=True)
    for name in ("confirmations.json", "figures/of-mine.csv", "record.json", "ssh.json", ".lock"):
        (home / name).write_text("here")
    (home / "elsewhere").symlink_to("/nowhere")
    sent = {"records/mine/confirmations.json": "older"}
    order = Order(words=("make",), texts=sent, result="records/mine")
    with open_link(db1()) as link, talking(link) as talk, running(talk, carried, order) as command:
        command.run(began=lambda _: None)
        over._bring_home(command, home, note)
        command.remove()
    texts = {str(path.relative_to(home)): path.read_text() for path in home.rglob("*") if path.is_file()}
    assert texts.pop("study.toml")
    assert read_far(home) == note
    del texts["ssh.json"]
    assert texts == {"confirmations.json": "here", "figures/of-mine.csv": "here", "record.json": "{}"}
    assert (home / "elsewhere").is_symlink()


def test_a_large_record_is_sent_without_being_held_in_memory(by_ssh: Sshd, tmp_path: Path) -> None:
    carried = put_stand_in(tmp_path)
    large = tmp_path / "large"
    with large.open("wb") as file:
        os.truncate(file.fileno(), 128 << 20)
    order = Order(words=("wait",), files={"mine/large": large}, texts={"mine/a.txt": "naïve"}, result="records/mine")
    most: dict[str, int] = {}

    def look(began: Began) -> None:
        pid = int(began.files["study.toml"].split()[-1])
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        peak = Path(f"/proc/{parent}/status").read_text().partition("VmHWM:")[2].split()[0]
        most["there"] = int(peak) << 10
        assert (Path(began.folder) / "mine/large").stat().st_size == 128 << 20
        assert (Path(began.folder) / "mine/a.txt").read_text() == "naïve"
        os.kill(pid, signal.SIGINT)

    told: list[str] = []
    with open_link(db1()) as link:
        tracemalloc.start()
        try:
            with talking(link) as talk, running(talk, carried, order, tell=told.append) as command:
                most["here"] = tracemalloc.get_traced_memory()[1]
                assert command.run(began=look).code == 130
                command.remove()
        finally:
            tracemalloc.stop()
    assert told == ["sending 134 of 134 MB"]
    assert max(most.values()) < 80 << 20, most


def test_files_that_do_not_fit_there_are_refused_with_what_is_free(by_ssh: Sshd, tmp_path: Path) -> None:
    carried = put_stand_in(tmp_path)
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        os.truncate(file.fileno(), 1 << 43)
    order = Order(words=("end",), files={"huge": huge}, result="records/mine")
    before = {*by_ssh.home.glob("pgdyno-on/*")}
    with (
        open_link(db1()) as link,
        pytest.raises(HostError, match="db1: it has no room for these files") as caught,
        talking(link) as talk,
        running(talk, carried, order),
    ):
        pass
    assert caught.value.detail.startswith("8,796,093 MB, ")
    assert {*by_ssh.home.glob("pgdyno-on/*")} <= before


def test_files_that_cannot_be_written_there_are_refused_when_all_are_sent(by_ssh: Sshd, tmp_path: Path) -> None:
    carried = put_stand_in(tmp_path)
    large = tmp_path / "large"
    # More than pipes and sshd hold, compressed: who sends it waits for a reader.
    large.write_bytes(os.urandom(32 << 20))
    order = Order(words=("end",), files={"a": tmp_path / "program/bin/python", "a/b": large}, result="records/mine")
    before = {*by_ssh.home.glob("pgdyno-on/*")}
    with (
        open_link(db1()) as link,
        talking(link) as talk,
        running(talk, carried, order) as command,
        pytest.raises(HostError, match="db1: these files cannot be written there"),
    ):
        command.run(began=lambda _: None)
    assert {*by_ssh.home.glob("pgdyno-on/*")} <= before


def test_pgdyno_there_stops_in_order_with_the_conductor_its_link_and_ctrl_c(
    by_ssh: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_stand_in(tmp_path)
    environment = {**os.environ, "PATH": by_ssh.path}
    argv = [sys.executable, "-c", textwrap.dedent(CONDUCTOR), str(tmp_path)]

    def conduct(*, is_known: bool = True) -> tuple[subprocess.Popen[str], Path, int]:
        words = [*argv, "known" if is_known else "unknown"]
        conductor = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True)
        assert conductor.stdout is not None
        # In either order.
        lines = {conductor.stdout.readline(), conductor.stdout.readline()}
        assert "out wait db1\n" in lines
        folder, _, pid = (lines - {"out wait db1\n"}).pop().rpartition(" pid = ")
        assert is_alive(int(pid))
        # What was said just before a kill may not arrive.
        assert wait_until(lambda: (Path(folder) / far_run.UNKNOWN).exists() is not is_known)
        return conductor, Path(folder), int(pid)

    conductor, folder, pid = conduct()
    conductor.kill()
    conductor.communicate()
    assert wait_until(lambda: not is_alive(pid))
    assert (folder / "records/mine/put-back").exists()
    # Nobody knows of this one: it is removed when it has stopped.
    conductor, unknown, pid = conduct(is_known=False)
    conductor.kill()
    conductor.communicate()
    assert wait_until(lambda: not unknown.exists())
    assert not is_alive(pid)
    # Its runner is killed, too: the next command removes it.
    conductor, unknown, pid = conduct(is_known=False)
    runner = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(runner, signal.SIGKILL)
    conductor.communicate()
    assert wait_until(lambda: not is_alive(pid))
    assert (unknown / "records/mine/put-back").exists()
    # The folder of a command that was cut off with a record which is known stays for it.
    conductor, other, pid = conduct()
    assert (folder.exists(), unknown.exists()) == (True, False)
    conductor.send_signal(signal.SIGINT)
    out, _ = conductor.communicate()
    assert json.loads(out.splitlines()[-1]) == {"code": 130, "has_result": True}
    assert (other / "records/mine/put-back").exists()
    # A link that hangs: only the silence tells the program there. On a busy machine it takes seconds to begin.
    monkeypatch.setattr("pgdyno.run.over.talk._BEATS_WITHIN_SILENCE", 60)
    with started(tmp_path, "wait", silence_s=10) as (link, command):
        seen: list[int] = []
        assert link._master is not None

        def hang(began: Began) -> None:
            seen.append(int(began.files["study.toml"].split()[-1]))
            assert link._master is not None
            os.kill(link._master.pid, signal.SIGSTOP)
            assert wait_until(lambda: not is_alive(seen[0]))
            os.kill(link._master.pid, signal.SIGCONT)

        with pytest.raises(StepFailedError, match="the link to db1 was lost"):
            command.run(began=hang)
    assert seen


def test_a_record_that_is_gone_there_is_sent_again_with_its_empty_folders(by_ssh: Sshd, tmp_path: Path) -> None:
    carried = put_stand_in(tmp_path)
    record = tmp_path / "mine"
    (record / "trials").mkdir(parents=True)
    (record / "record.json").write_text("{}")
    files = {f"records/mine/{path.name}": path for path in record.iterdir()}
    # Outside of the place for such folders nothing is an earlier command's, whatever lies there.
    (tmp_path / "records").symlink_to(tmp_path)
    for gone in (by_ssh.home / far_run.PLACE / "gone", tmp_path):
        order = Order(words=("end",), files=files, folder=str(gone), result="records/mine")
        with open_link(db1()) as link, talking(link) as talk, running(talk, carried, order) as command:
            ended = command.run(began=lambda _: None)
            assert Path(ended.folder) != gone
            assert {path.name for path in Path(ended.folder, "records/mine").iterdir()} == {"trials", "record.json"}
            command.remove()


def test_a_stopped_study_is_removed_only_where_it_is_at_home_and_nothing_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_stopped() == ()
    names = ("at-home", "running", "lone", "none", "unknown")
    at_home, running, lone, empty, unknown = (tmp_path / far_run.PLACE / name for name in names)
    for folder in (at_home, running, lone, unknown):
        (folder / "records/mine").mkdir(parents=True)
        (folder / "records/mine/record.json").write_text("{}")
    empty.mkdir()
    (at_home / far_run.AT_HOME).touch()
    (running / far_run.AT_HOME).touch()
    (unknown / far_run.UNKNOWN).touch()
    (tmp_path / far_run.PLACE / "link").symlink_to(tmp_path)
    held = far_run.hold(running, fcntl.LOCK_EX)
    assert held is not None
    found = find_stopped()
    seen = [(Path(one.folder).name, one.is_at_home, one.is_removable) for one in found]
    assert seen == [("at-home", True, True), ("lone", False, False), ("unknown", False, True)]
    as_if = msgspec.structs.replace(found[0], folder=str(running))
    assert [remove_stopped(one) for one in (*found, as_if)] == [True, False, True, False]
    os.close(held)
    assert {path.name for path in at_home.parent.iterdir()} == {"running", "lone", "none", "link"}


def test_what_is_cut_off_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left = tmp_path / "20261128-160102-4711"
    (left / "files").mkdir(parents=True)
    (tmp_path / "my-own-notes").mkdir()
    (tmp_path / "20261128-160102-4711-kept").mkdir()
    far_run.remove_left(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"my-own-notes", "20261128-160102-4711-kept"}


def test_a_folder_that_another_command_removes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, held, left = (tmp_path / f"20261128-160102-{number}" for number in range(3))
    for folder in (going, held, left):
        folder.mkdir()
    looked: list[Path] = []

    def look(folder: Path, pattern: str) -> Iterator[Path]:
        looked.append(folder)
        if folder == going:
            raise FileNotFoundError(folder)
        return iter(())

    monkeypatch.setattr(Path, "glob", look)
    descriptor = far_run.hold(held, fcntl.LOCK_EX)
    assert descriptor is not None
    far_run.remove_left(tmp_path)
    os.close(descriptor)
    assert {*looked} == {going, left}
    assert {*tmp_path.iterdir()} == {going, held}


@pytest.mark.parametrize("instant", ["place", "folder", "holding", "held"])
def test_a_new_folder_that_another_command_removes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instant: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    make, hold = Path.mkdir, far_run.hold
    coming, others = [instant], []

    def make_folder(folder: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        make(folder, mode, parents, exist_ok)
        if coming == ["place"]:
            coming.clear()
            folder.rmdir()

    def hold_folder(folder: Path, how: int) -> int | None:
        if not coming:
            return hold(folder, how)
        if coming.pop() == "folder":
            folder.rmdir()
        descriptor = hold(folder, how)
        assert descriptor is not None
        others.append(descriptor)
        if instant == "holding":
            return hold(folder, how)
        folder.rmdir()
        return descriptor

    monkeypatch.setattr(Path, "mkdir", make_folder)
    monkeypatch.setattr(far_run, "hold", hold_folder)
    link = cast("far_run.Link", None)
    folder, held, is_new = far_run.open_folder({"folder": None}, link)
    assert is_new
    assert far_run.NAMES.fullmatch(folder.name)
    assert (folder / far_run.UNKNOWN).exists()
    assert hold(folder, fcntl.LOCK_EX) is None
    for descriptor in (held, *others):
        os.close(descriptor)


def test_a_place_that_cannot_be_made_is_told_as_the_error_that_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / far_run.PLACE).touch()
    with pytest.raises(FileExistsError) as caught:
        far_run.open_folder({"folder": None}, cast("far_run.Link", None))
    assert far_run.choose_hint(caught.value) == "the account needs a home folder that it can write to"
