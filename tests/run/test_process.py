from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.host import process
from tests.run.trees import is_alive
from tests.shared import reachable_folder, run_without_ptrace
from tests.waiting import wait_until


def test_run_gives_outputs_and_exit_code() -> None:
    done = process.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_run_takes_no_pg_variables_and_no_foreign_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "production.example")
    monkeypatch.setenv("LC_MESSAGES", "de_DE.UTF-8")
    said = process.run(["env"]).stdout
    assert "PGHOST" not in said
    assert "LC_MESSAGES" not in said
    assert "LC_ALL=C\n" in said


def test_a_daemon_that_keeps_the_outputs_is_not_waited_for(tmp_path: Path) -> None:
    said = tmp_path / "said"
    os.mkfifo(said)
    # It ends when the test has the outputs, and says whether it could still write.
    script = f"(read -r word <{said}; echo late && echo $word >{said}.done) & echo out; echo err >&2; exit 3"
    done = process.run(["sh", "-c", script], leaves_daemons=True, timeout_s=600)
    assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")
    said.write_text("go\n")
    assert wait_until(Path(f"{said}.done").exists)


def test_what_does_not_end_is_ended() -> None:
    with pytest.raises(StepFailedError, match=r"did not end within 0\.2 s"):
        process.run(["sleep", "3600"], timeout_s=0.2)


@pytest.mark.parametrize("begin", [process.run, process.start])
@pytest.mark.parametrize("program", ["/no/such/program", "no-such-program", "/etc/passwd"])
def test_a_program_that_is_missing_or_none(begin: Callable[[list[str]], object], program: str) -> None:
    with pytest.raises(HostError, match=f"cannot start {program}") as caught:
        begin([program])
    # No package brings a path that a user gave.
    assert caught.value.hint.startswith("is the path right?" if "/" in program else "install the package")


def test_programs_are_looked_for_where_the_child_would(tmp_path: Path) -> None:
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    assert process.run(["only-here"], env={"PATH": f"{tmp_path}:/bin"}).stdout == "found\n"
    with pytest.raises(HostError):
        process.run(["only-here"])


@pytest.mark.parametrize("user", [None, process.find_server_user()])
def test_a_child_dies_with_its_owner(user: process.ServerUser | None) -> None:
    program = (
        "import sys, time; from pgdyno.run.host import process;"
        f"user = {None if user is None else f'process.ServerUser(name={user.name!r}, uid={user.uid}, gid={user.gid})'};"
        "child = process.start(['sleep', '600'], user=user, death_signal='TERM');"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        child = int(owner.stdout.readline())
    # The program has replaced setpriv, which set the signal, when the name is its own.
    while Path(f"/proc/{child}/comm").read_text().strip() != "sleep":
        assert is_alive(child)
    assert Path(f"/proc/{child}").stat().st_uid == (os.geteuid() if user is None else user.uid)
    owner.kill()
    owner.wait()
    assert wait_until(lambda: not is_alive(child))


def test_a_child_does_not_begin_if_its_owner_died_before_it_could_be_told(tmp_path: Path) -> None:
    made = tmp_path / "made"
    argv = process.wrap(["touch", str(made)], user=None)
    # The shell is another parent than the one that the words were made by.
    assert subprocess.run(["sh", "-c", '"$@"; exit $?', "sh", *argv], check=False).returncode == 1
    assert not made.exists()
    assert subprocess.run(argv, check=False).returncode == 0
    assert made.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_root_loads_nothing_that_the_environment_of_somebody_else_says() -> None:
    user = process.find_server_user()
    with reachable_folder() as folder:
        folder.chmod(0o777)
        # The dynamic linker of each program that is executed writes down what it does, as whom it runs.
        env = {**os.environ, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(folder / "said")}
        assert process.run(["id", "-u"], user=user, env=env, is_foreign=True).stdout == f"{user.uid}\n"
        assert {path.stat().st_uid for path in folder.glob("said*")} == {user.uid}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the account")
@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_program_has_the_groups_of_its_account_and_no_others(is_foreign: bool) -> None:
    for groups in ((), (4, 5)):
        user = msgspec.structs.replace(process.find_server_user(), groups=groups)
        said = process.run(["id", "-G"], user=user, env={"PATH": os.environ["PATH"]}, is_foreign=is_foreign).stdout
        assert {*map(int, said.split())} == {user.gid, *groups}


def test_children_are_out_of_reach_of_ctrl_c() -> None:
    child = process.start(["sleep", "3600"])
    assert os.getsid(child.pid) == child.pid
    assert process.stop(child) == -signal.SIGTERM


def test_stop_insists() -> None:
    child = process.start(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"ready\n"
        assert process.stop(child, patience_s=0.2) == -signal.SIGKILL


@pytest.mark.parametrize(
    "work",
    [lambda: process.start(["sleep", "1"]), lambda: process.call_as(process.find_server_user(), os.geteuid)],
    ids=["start", "call_as"],
)
def test_long_lived_children_and_other_accounts_are_for_the_main_thread(work: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="main thread"):
        pool.submit(work).result()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root chooses an account")
@pytest.mark.parametrize("name", ["root", "no-such-account"])
def test_root_never_runs_the_server(name: str) -> None:
    with pytest.raises(HostError, match="no unprivileged account"):
        process.find_server_user(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as another account")
def test_ctrl_c_at_any_instant_leaves_no_rights_of_another_account() -> None:
    user, draw, me = process.find_server_user(), random.Random(1), (os.geteuid(), os.getegid())
    stopped = 0
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(3000):
            after_s = draw.uniform(1e-6, 3e-5)
            try:
                signal.setitimer(signal.ITIMER_REAL, after_s)
                assert process.call_as(user, os.geteuid) == user.uid
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                stopped += 1
            assert (os.geteuid(), os.getegid()) == me
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as another account")
@pytest.mark.parametrize("is_during", [True, False])
def test_root_hears_of_the_death_of_its_parent_after_it_was_another_account(is_during: bool, tmp_path: Path) -> None:
    user, told = process.find_server_user(), tmp_path / "told"
    child = f"""
import os, time
from pathlib import Path
from pgdyno.run.host import process
parent, user = os.getppid(), process.ServerUser(name={user.name!r}, uid={user.uid}, gid={user.gid})
def work():
    print(os.getpid(), flush=True)
    while {is_during} and os.getppid() == parent:
        time.sleep(0.01)
try:
    process.call_as(user, work)
    print("back", flush=True)
    while True:
        time.sleep(0.01)
except KeyboardInterrupt:
    Path({str(told)!r}).touch()
"""
    owner_code = (
        "import sys, time; from pgdyno.run.host import process;"
        f"process.start([sys.executable, '-c', {child!r}], death_signal='INT', stdout=sys.stdout); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", owner_code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        pid = int(owner.stdout.readline())
        assert is_during or owner.stdout.readline() == "back\n"
        owner.kill()
        owner.wait()
    try:
        assert wait_until(told.exists)
    finally:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("mode", "inner_mode", "is_open"), [(0o755, 0o777, True), (0o755, 0o755, False), (0o700, 0o777, False)]
)
def test_another_account_gets_the_temporary_folder_that_it_may_enter(
    mode: int, inner_mode: int, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reachable_folder() as outer:
        inner = outer / "inner"
        inner.mkdir()
        inner.chmod(inner_mode)
        outer.chmod(mode)
        monkeypatch.setattr("tempfile.tempdir", str(inner))
        me = process.ServerUser(name="me", uid=os.geteuid(), gid=os.getegid())
        assert me.temporary_folder == str(inner)
        other = process.ServerUser(name="other", uid=os.geteuid() + 1, gid=os.getegid())
        assert other.temporary_folder == (str(inner) if is_open else "/var/tmp")


@pytest.mark.skipif(os.geteuid() != 0, reason="other accounts see their own processes")
def test_root_that_may_not_trace_counts_the_sockets_of_another_account() -> None:
    program = (
        "import sys; from pgdyno.run.load.parts_load import _count_sockets; print(_count_sockets(int(sys.argv[1])))"
    )
    one, other = socket.socketpair()
    with one, other:
        connected = process.start(
            ["/bin/sleep", "3600"], user=process.find_server_user(), stdin=one.fileno(), stdout=other.fileno()
        )
        # Its folder shows once it is its own program, under the other account.
        comm = Path(f"/proc/{connected.pid}/comm")
        assert wait_until(lambda: comm.read_text() == "sleep\n")
        counted = run_without_ptrace(program, str(connected.pid))
        process.stop(connected)
    assert (counted.stdout, counted.stderr) == ("2\n", "")
