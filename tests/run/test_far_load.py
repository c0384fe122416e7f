"""The program that runs pgbench on a load host, run on this machine: real pgbench, and a reader that is slower than its log."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from pgdyno.run.link import far_load
from pgdyno.run.link.ssh import ANSWERS_WITHIN_S
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.host_run import CONNECTS_WITHIN_S, FoundPgbench, _make_request
from pgdyno.run.postgres.address import Address
from pgdyno.spec.hosts import HostEntry, HostRole
from pgdyno.spec.table import QueryMode
from tests.run.trees import is_alive
from tests.tools.pgcluster import PORT, Cluster, running
from tests.waiting import wait_until

SILENCE_S = "600"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(18) as made:
        yield made


class Program:
    """The program at work. Nobody reads its log before `read_frame`."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child = child

    @property
    def stdout(self) -> IO[bytes]:
        assert self.child.stdout is not None
        return self.child.stdout

    def say(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(line.encode() + b"\n")
        self.child.stdin.flush()

    def hear(self, word: str) -> Any:
        """Return what it says with this word."""
        assert self.child.stderr is not None
        while True:
            said = json.loads(self.child.stderr.readline())
            if word in said:
                return said[word]
            assert not {"failed", "done"} & set(said)

    def start(self) -> tuple[int, float]:
        """Start the load; return pgbench's process id and when its clients were let go."""
        self.say("begin")
        pid = self.hear("started")["pid"]
        assert self.hear("connected")
        go_ns = time.monotonic_ns()
        self.say(f"go {go_ns}")
        return pid, go_ns / 1e9

    def read_frame(self) -> tuple[int, bytes] | None:
        """Return the thread and the bytes of the next frame; None after the last."""
        head = self.stdout.readline()
        if not head:
            return None
        thread, size = map(int, head.split())
        return thread, self.stdout.read(size)


def change_program(folder: Path, old: str, new: str) -> Path:
    """Write the program with another text in the place of one."""
    text = Path(far_load.__file__).read_text()
    assert text.count(old) == 1
    source = folder / "far_load.py"
    source.write_text(text.replace(old, new))
    return source


@contextmanager
def running_program(
    cluster: Cluster,
    folder: Path,
    *,
    duration_s: float,
    python: Sequence[str] = (sys.executable,),
    source: Path = Path(far_load.__file__),
) -> Iterator[Program]:
    """Run the program for two threads that write as much of a log as they can."""
    script = folder / "busy.sql"
    script.write_text("\\set i 1\n")
    run = LoadRun(
        address=Address(host=str(cluster.root), port=PORT, user="postgres", dbname="postgres"),
        scripts=((str(script), 1),),
        mode=QueryMode.SIMPLE,
        clients=2,
        threads=2,
        duration_s=duration_s,
        reports_statements=False,
        random_seed=1,
        log_prefix=Path("log"),
    )
    entry = HostEntry(role=HostRole.LOAD, ssh="here")
    program = str(cluster.bin_directory / "pgbench")
    pgbench = FoundPgbench(program=program, version="18", major=18, memory_folder_bytes=0)
    argv = [*python, str(source), SILENCE_S]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        program = Program(child)
        program.say(_make_request(entry, run=run, directory=folder, pgbench=pgbench).decode().strip())
        yield program
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


@pytest.mark.cluster
def test_a_log_that_grows_faster_than_it_is_sent_holds_up_neither_the_end_nor_other_threads(
    cluster: Cluster, tmp_path: Path
) -> None:
    with running_program(cluster, tmp_path, duration_s=2.0) as program:
        pid, go_s = program.start()
        # A link that takes nothing meanwhile.
        assert wait_until(lambda: not is_alive(pid))
        frames = []
        while (frame := program.read_frame()) is not None:
            frames.append(frame)
            if len(frames) == 1:
                # It ends after its last frame only when it is told to.
                program.child.stdin.close()  # type: ignore[union-attr]
        done = program.hear("done")
    # It did not end by its own bound.
    assert done["end_s"] - go_s < CONNECTS_WITHIN_S
    assert done["exit_code"] == 0
    counted = int(done["stdout"].partition("transactions actually processed: ")[2].split()[0])
    assert b"".join(data for _, data in frames).count(b"\n") == counted
    # Neither thread has to wait for more than a block of the other.
    threads = [thread for thread, _ in frames]
    last = {thread: number for number, thread in enumerate(threads)}
    full = [(one, two) for one, two in pairwise(range(len(frames))) if len(frames[one][1]) == far_load.BLOCK_BYTES]
    assert full
    for one, two in full:
        assert threads[one] != threads[two] or last[1 - threads[one]] < one


@pytest.mark.cluster
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts file systems")
def test_a_log_that_had_no_room_once_is_an_error_even_if_it_was_sent_later(cluster: Cluster, tmp_path: Path) -> None:
    room = 2 * far_load.LEFT_BYTES
    mount = f"mount -t tmpfs -o size={room} none /dev/shm"
    python = ("unshare", "--mount", "sh", "-c", f'{mount}; exec {sys.executable} "$@"', "sh")
    source = change_program(tmp_path, "ROOM_BYTES = 64 << 20", f"ROOM_BYTES = {room - 4096}")
    with running_program(cluster, tmp_path, duration_s=3600.0, python=python, source=source) as program:
        pid, _ = program.start()
        memory = f"/proc/{program.child.pid}/root/dev/shm"
        assert wait_until(lambda: far_load.find_room(memory) < far_load.LEFT_BYTES)
        program.say("end")
        assert wait_until(lambda: not is_alive(pid))
        # All of the log is taken now, which makes room.
        threading.Thread(target=program.stdout.read).start()
        failed = program.hear("failed")
    assert failed["fact"] == "/dev/shm is full, so that lines of pgbench's log are lost"


@pytest.mark.cluster
def test_a_pgbench_that_is_just_being_started_ends_with_the_input(cluster: Cluster, tmp_path: Path) -> None:
    starting = tmp_path / "starting"
    source = change_program(
        tmp_path,
        "functools.partial(die_with_parent, os.getpid()),  # noqa",
        f"lambda: (Path({str(starting)!r}).touch(), time.sleep(1)),  # noqa",
    )
    with running_program(cluster, tmp_path, duration_s=3600.0, source=source) as program:
        program.say("begin")
        assert wait_until(starting.exists)
        program.child.stdin.close()  # type: ignore[union-attr]
        assert wait_until(lambda: program.child.poll() is not None)
        assert program.hear("done")["exit_code"] == -signal.SIGKILL


@contextmanager
def asking(pgbench: Path, source: Path = Path(far_load.__file__)) -> Iterator[subprocess.Popen[bytes]]:
    """The program, asked for the version of a pgbench."""
    argv = [sys.executable, str(source), SILENCE_S]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        request = _make_request(HostEntry(role=HostRole.LOAD, ssh="here", pgbench=str(pgbench)))
        child.stdin.write(request)
        child.stdin.flush()
        try:
            yield child
        finally:
            child.kill()


def test_a_pgbench_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_load, "VERSION_WITHIN_S", 0.2)
    pgbench = write_program(tmp_path, "exec sleep 3000")
    with pytest.raises(far_load.LoadError, match="there is no pgbench that runs") as caught:
        far_load.find_pgbench(str(pgbench))
    # A busy machine may leave it less.
    assert re.fullmatch(rf"{pgbench} does not say its version within -?0\.\d s", caught.value.args[1])


def test_pgbenches_that_hang_leave_time_for_one_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, works = 0.0, tmp_path / "18/pgbench"
    for name in ("15", "16", "17", "18"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pgbench").touch()

    def ask(argv: Sequence[str], *, timeout: float, **_: object) -> subprocess.CompletedProcess[bytes]:
        nonlocal now_s
        if argv[0] == str(works):
            return subprocess.CompletedProcess(argv, 0, b"pgbench (PostgreSQL) 18.1")
        now_s += timeout
        raise subprocess.TimeoutExpired(argv, timeout)

    monkeypatch.setattr(far_load.subprocess, "run", ask)
    monkeypatch.setattr(far_load, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(far_load.shutil, "which", lambda _: None)
    monkeypatch.setattr(far_load, "PLACES", (f"{tmp_path}/*/pgbench",))
    assert far_load.find_pgbench(None) == (str(works), "18.1", 18)
    assert now_s <= far_load.VERSION_WITHIN_S < ANSWERS_WITHIN_S
    works.unlink()
    with pytest.raises(far_load.LoadError) as caught:
        far_load.find_pgbench(None)
    assert caught.value.args[1].count("does not say its version within 6.7 s") == 3


def test_a_named_pgbench_is_looked_for_in_the_home_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    pgbench = write_program(tmp_path, "echo 'pgbench (PostgreSQL) 18.1'")
    assert far_load.find_pgbench(f"~/{pgbench.name}") == (str(pgbench), "18.1", 18)
    with pytest.raises(far_load.LoadError) as caught:
        far_load.find_pgbench("~/nowhere")
    assert caught.value.args[1:] == (
        f"[Errno 2] No such file or directory: '{tmp_path}/nowhere'",
        "pgbench = '~/nowhere' must name one there",
    )


def test_a_pgbench_that_hangs_ends_with_the_program(tmp_path: Path) -> None:
    with asking(write_program(tmp_path, f"echo $$ >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 3000")):
        assert wait_until((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    assert wait_until(lambda: not is_alive(pid))


def test_a_pgbench_whose_program_died_before_the_kernel_could_be_told_does_not_begin(tmp_path: Path) -> None:
    noted, made = tmp_path / "pid", tmp_path / "made"
    dying = f"""\
    Path({str(noted)!r}).write_text(f"{{os.getpid()}}.")
    os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        time.sleep(0.01)
    LIBC.prctl("""
    source = change_program(tmp_path, "    LIBC.prctl(", dying)
    with asking(write_program(tmp_path, f"touch {made}"), source):
        assert wait_until(lambda: noted.exists() and noted.read_text().endswith("."))
    pid = int(noted.read_text().rstrip("."))
    assert wait_until(lambda: not is_alive(pid))
    assert not made.exists()


def test_a_pgbench_that_says_its_version_takes_no_words_of_pgdyno(tmp_path: Path) -> None:
    said = 'echo "pgbench (PostgreSQL) 18.$(readlink /proc/self/fd/0)"'
    with asking(write_program(tmp_path, said)) as child:
        assert child.stderr is not None
        found = json.loads(child.stderr.readline())["found"]
    assert found["version"] == "18./dev/null"


def write_program(folder: Path, script: str) -> Path:
    program = folder / "pgbench"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def read_tail(tail: far_load.Tail, capfd: pytest.CaptureFixture[str], *, is_last: bool) -> str:
    tail.read(is_last=is_last)
    return "".join(json.loads(line)["stderr"] for line in capfd.readouterr().err.splitlines())


def test_all_last_words_of_pgbench_are_passed_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # A character of two bytes lies across the end of each block.
    text = "x" + "ü" * 100_000
    with (tmp_path / "stderr").open("wb+") as said:
        said.write(text.encode())
        said.flush()
        tail = far_load.Tail(said.fileno())
        first = read_tail(tail, capfd, is_last=False)
        assert 0 < len(first) < len(text)
        assert first + read_tail(tail, capfd, is_last=True) == text
        said.write(b"much\n" * (far_load.LAST_WORDS_BYTES // 5 + 100))
        said.flush()
        last = read_tail(tail, capfd, is_last=True)
    assert last.startswith("\n[496 bytes are left out here]\n")
    assert last.endswith("much\nmuch\n")


def test_it_wakes_once_between_two_lines_of_progress_just_after_the_first() -> None:
    # A line was written 0.3 s ago, and the next ones are due in 0.7 s and each second after that.
    for age_s in (0.0, 0.02, 0.3, 0.999, 1.3, 7.3):
        until_s = age_s + far_load.choose_wait_s(age_s)
        assert until_s % 1.0 == pytest.approx(far_load.AFTER_PROGRESS_S)
        assert 0.0 < far_load.choose_wait_s(age_s) <= far_load.SWEEP_S + far_load.AFTER_PROGRESS_S
    # The clock was set back.
    assert far_load.choose_wait_s(-3600.0) == far_load.SWEEP_S
