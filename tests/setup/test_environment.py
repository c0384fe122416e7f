"""./pgdyno sets itself up once, wherever it lies and whatever ended the run before."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import PATH, TREE, Clone, environment, make_clone

IS_ROOT = os.geteuid() == 0
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--") if IS_ROOT else ()


def test_first_run_says_what_it_does_and_passes_arguments_on(
    first: tuple[Clone, subprocess.CompletedProcess[str]],
) -> None:
    clone, said = first
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == [str(clone.path / "src"), "['show', 'a b', '']"]
    assert "making the virtual environment" in said.stderr
    assert "ready after" in said.stderr
    assert len(said.stderr.splitlines()) == 3


def test_environment_is_open_to_the_account_of_the_server(first: tuple[Clone, object]) -> None:
    venv = first[0].venv
    closed = [path for path in (venv, *venv.rglob("*")) if not path.is_symlink() and not path.stat().st_mode & 0o004]
    assert closed == []


def test_moved_clone_runs_its_own_source_without_another_set_up(ready: Clone) -> None:
    said = ready.run()
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.splitlines()[0] == str(ready.path / "src")


def test_next_run_costs_less_than_starting_python(ready: Clone) -> None:
    def took_s(*argv: str | Path) -> float:
        """CPU time, which others on the machine stretch less than time."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, check=True, capture_output=True, cwd="/")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    python = ready.venv / "bin" / "python"
    with_script_s, bare_s = zip(
        *((took_s(ready.path / "pgdyno"), took_s(python, "-I", "-m", "pgdyno")) for _ in range(15)), strict=True
    )
    # As the machine is slow or fast, so are both.
    assert min(with_script_s) < 2 * min(bare_s)


def test_link_to_the_program_from_elsewhere(ready: Clone, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "dyno").symlink_to("../moved clone/pgdyno")
    (tmp_path / "again").symlink_to("bin/dyno")
    assert ready.run(program=tmp_path / "again").stdout.splitlines()[0] == str(ready.path / "src")


def test_the_program_hears_how_it_was_called(ready: Clone, tmp_path: Path) -> None:
    (tmp_path / "dyno").symlink_to(ready.path / "pgdyno")
    for name in (str(ready.path / "pgdyno"), str(tmp_path / "dyno")):
        assert ready.run("name", program=Path(name)).stdout.splitlines()[2] == name
    said = subprocess.run(["./pgdyno", "name"], cwd=ready.path, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[2] == "./pgdyno"
    said = subprocess.run(["sh", "pgdyno", "name"], cwd=ready.path, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[2] == "./pgdyno"


def test_callers_python_settings_do_not_leak_in(ready: Clone, tmp_path: Path) -> None:
    (tmp_path / "annotated_doc.py").write_text("raise SystemExit('wrong module')")
    said = ready.run(PYTHONPATH=str(tmp_path), PYTHONHOME="/nonexistent")
    assert (said.returncode, said.stderr) == (0, "")


def test_closed_folder(ready: Clone) -> None:
    ready.path.parent.chmod(0o700)
    assert ready.run().returncode == 0


def test_python_that_went_away_makes_the_environment_anew(ready: Clone) -> None:
    for link in (ready.venv / "bin").glob("python*"):
        link.unlink()
        link.symlink_to("/nonexistent/python3")
    said = ready.run()
    assert said.returncode == 0, said.stderr
    assert "making the virtual environment" in said.stderr


def put_python_on_path(folder: Path, name: str, answer: str) -> str:
    """A Python that answers the set-up's question as it is told to; returns a PATH that begins with it."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    return f"{folder}:{PATH}"


def test_the_oldest_python_is_taken_wherever_it_stands(tmp_path: Path) -> None:
    put_python_on_path(tmp_path / "first", "python3", f"ready {0x030D00F0} 3.13.0 /first/python3")
    put_python_on_path(tmp_path / "first", "python3.11", f"ready {0x030B07F0} 3.11.7 /first/python3.11")
    put_python_on_path(tmp_path / "then", "python3.11", f"bare {0x030B00A0} 3.11.0 /then/python3.11")
    put_python_on_path(tmp_path / "last", "python3", f"ready {0x030B00A1} 3.11.0 /last/a folder/python3")
    script = f'here={TREE}; . {TREE}/tools/environment.sh; look_for ready; echo "$version $python"'
    path = ":".join([*(str(tmp_path / name) for name in ("first", "then", "last")), PATH])
    said = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True, env=environment(PATH=path))
    assert said.stdout == "3.11.0 /last/a folder/python3\n"


def add_check(clone: Clone) -> Path:
    """Add ./check, whose stages all fail because the clone has no development tools."""
    shutil.copy(TREE / "check", clone.path)
    shutil.copy(clone.path / "requirements.lock", clone.path / "requirements-dev.lock")
    return clone.path / "check"


def test_check_runs_on_the_oldest_python_and_names_it(ready: Clone, tmp_path: Path) -> None:
    question = "import os, sys; print('%d.%d.%d' % sys.version_info[:3], os.path.realpath(sys._base_executable))"
    asked = subprocess.run([ready.venv / "bin" / "python", "-c", question], check=True, capture_output=True, text=True)
    version, python = asked.stdout.rstrip("\n").split(" ", 1)
    check = add_check(ready)
    said = ready.run("--fast", program=check)
    assert said.stdout.splitlines()[0] == f"-- Python {version} ({python})"
    assert "adding the development tools" in said.stderr
    again = ready.run("--fast", program=check)
    assert (again.stdout.splitlines()[0], "ready after" in again.stderr) == (f"-- Python {version} ({python})", False)
    minor = version.rpartition(".")[0]
    older = f"ready {(3 << 24) + (int(minor[2:]) << 16)} {minor}.older {python}"
    said = ready.run("--fast", program=check, PATH=put_python_on_path(tmp_path / "bin", "python3", older))
    assert f"making the virtual environment {ready.venv} with Python {minor}.older ({python})" in said.stderr
    said = ready.run(PATH=put_python_on_path(tmp_path / "bin", "python3", older))
    assert (said.returncode, said.stderr) == (0, "")


@contextlib.contextmanager
def silent_index() -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """A package index that never answers, so that no set-up ends, and what makes a set-up ask it."""
    with socket.create_server(("127.0.0.1", 0)) as index:
        index.settimeout(600)
        address = f"http://127.0.0.1:{index.getsockname()[1]}/simple"
        yield index, {"PIP_INDEX_URL": address, "PIP_TIMEOUT": "3600", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def test_interrupted_and_killed_set_ups_are_started_afresh_by_one_of_two_runs_at_once(
    fresh: Callable[[], Clone],
) -> None:
    clone = fresh()
    with silent_index() as (index, of_index):
        run = clone.start(**of_index)
        with index.accept()[0] as of_pip:
            # Only the shell, as when the signal reaches the whole group a moment before pip is in it.
            run.send_signal(signal.SIGINT)
            _, said = run.communicate(timeout=600)
            of_pip.settimeout(600)
            while of_pip.recv(65536):
                pass
    assert run.returncode == 130
    assert "the next run starts it afresh" in said
    with silent_index() as (index, of_index):
        run = clone.start(**of_index)
        with index.accept()[0]:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate(timeout=600)
    assert not (clone.venv / "requirements.lock").exists()
    # Both find it locked, as by what was killed, until both have begun.
    with (clone.venv / "pgdyno.flock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        runs = [clone.start(), clone.start()]
        for run in runs:
            assert run.stderr is not None
            assert "waiting for another pgdyno" in run.stderr.readline()
    said_at_once = [run.communicate(timeout=600)[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said_at_once
    assert sum("making the virtual environment" in words for words in said_at_once) == 1
    assert not (clone.venv / "tmp").exists()


def test_another_lock_file_makes_the_environment_anew_but_not_while_a_run_uses_it(ready: Clone) -> None:
    stray = ready.venv / "lib" / "stray"
    stray.touch()
    run = ready.start("nap")
    assert run.stdout is not None
    run.stdout.readline()
    lock = ready.path / "requirements.lock"
    lock.write_text(lock.read_text() + "# newer\n")
    later = ready.start()
    assert later.stderr is not None
    assert "waiting for another pgdyno" in later.stderr.readline()
    assert (ready.venv / "bin" / "python").exists()
    assert later.poll() is None
    run.communicate("", timeout=600)
    _, said = later.communicate(timeout=600)
    assert later.returncode == 0, said
    assert "making the virtual environment" in said
    assert "ready after" in said
    assert not stray.exists()
    assert ready.run().stderr == ""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter, unlike pytest's."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    for folder in path.rglob("*"):
        with contextlib.suppress(OSError):
            if folder.is_dir() and not folder.is_symlink():
                folder.chmod(0o755)
    shutil.rmtree(path)


def test_clone_that_is_not_ours_to_write_gets_its_environment_in_the_cache(open_folder: Path) -> None:
    clone = make_clone(open_folder / "read only")
    home = open_folder / "home"
    home.mkdir()
    if IS_ROOT:
        os.chown(home, 65534, 65534)
    clone.path.chmod(0o555)
    said = clone.run("show", head=NOBODY, HOME=str(home))
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[0] == str(clone.path / "src")
    assert not clone.venv.exists()
    (venv,) = (home / ".cache" / "pgdyno").iterdir()
    assert (venv / "requirements.lock").exists()
    again = clone.run(head=NOBODY, HOME=str(home))
    assert (again.returncode, again.stderr) == (0, "")


@pytest.mark.skipif(not IS_ROOT, reason="only root has a HOME of another account's")
def test_root_with_the_home_of_another_account_leaves_it_alone(tmp_path: Path) -> None:
    """As under a sudo that keeps HOME."""
    ask = f". {TREE / 'tools' / 'environment.sh'}; here=/clone; choose_cache_place; echo $venv"
    places = []
    for owner in (65534, 0):
        os.chown(tmp_path, owner, owner)
        done = subprocess.run(
            ["sh", "-c", ask], env={"PATH": PATH, "HOME": str(tmp_path)}, capture_output=True, text=True, check=True
        )
        places.append(Path(done.stdout.strip()))
    assert not places[0].is_relative_to(tmp_path)
    assert places[0].parent == Path(pwd.getpwuid(0).pw_dir) / ".cache" / "pgdyno"
    assert places[1].parent == tmp_path / ".cache" / "pgdyno"


@pytest.mark.parametrize("home", [None, "/nonexistent"])
def test_no_place_at_all(open_folder: Path, home: str | None) -> None:
    clone = make_clone(open_folder / "read only")
    clone.path.chmod(0o555)
    said = clone.run(head=NOBODY, HOME=home)
    assert said.returncode == 3
    assert "pgdyno: no place for the virtual environment" in said.stderr
    assert "XDG_CACHE_HOME" in said.stderr


def test_environment_of_another_tool_is_left_alone(fresh: Callable[[], Clone]) -> None:
    clone = fresh()
    (clone.venv / "bin").mkdir(parents=True)
    said = clone.run()
    assert said.returncode == 3
    assert "was not made by pgdyno" in said.stderr
    assert list(clone.venv.iterdir()) == [clone.venv / "bin"]


def test_no_network(fresh: Callable[[], Clone]) -> None:
    clone = fresh()
    said = clone.run(PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0", PIP_NO_CACHE_DIR="1")
    assert said.returncode == 3
    assert "the packages of requirements.lock could not be installed" in said.stderr
    assert "No matching distribution found for annotated-doc" in said.stderr
    assert "hint: needs the package index" in said.stderr
    assert not (clone.venv / "requirements.lock").exists()


def test_no_python_of_a_suitable_version(fresh: Callable[[], Clone]) -> None:
    clone = fresh()
    script = clone.path / "tools" / "environment.sh"
    script.write_text(script.read_text().replace("oldest_minor=11", "oldest_minor=98").replace("=14 ", "=99 "))
    said = clone.run("--yes")
    assert said.returncode == 3
    assert "pgdyno needs Python 3.98 to 3.99; found 3." in said.stderr


def can_hide_ensurepip() -> bool:
    if not IS_ROOT or not Path("/usr/lib/python3.11/ensurepip").is_dir():
        return False
    return subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_hide_ensurepip(), reason="hides Debian 12's ensurepip in a mount namespace, as root")
def test_debian_without_ensurepip_is_told_the_one_command(open_folder: Path) -> None:
    clone, theirs = make_clone(open_folder / "clone"), make_clone(open_folder / "theirs")
    hide = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /usr/lib/python3.11/ensurepip && exec "$@"', "sh")
    said = clone.run(head=hide, PATH="/usr/bin:/bin")
    assert said.returncode == 3, said.stderr
    assert said.stderr.endswith("  hint: apt-get update && apt-get install -y python3-venv (or give --yes)\n")
    os.chown(theirs.path, 65534, 65534)
    said = theirs.run("--yes", head=(*hide, *NOBODY), PATH="/usr/bin:/bin")
    assert said.returncode == 3, said.stderr
    assert said.stderr.endswith("  hint: sudo apt-get update && sudo apt-get install -y python3-venv\n")
