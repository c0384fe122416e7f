"""The project's own gates bite: each is shown something that it must refuse."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from tests.loops import needs_root

from .conftest import TREE, environment, read_lock

IMPURE = (
    "import subprocess",
    "from socket import create_connection",
    "import time\ntime.time()",
    "from time import monotonic",
    "import os\nos.environ['HOME']",
    "import os\nos.getenv('HOME')",
    "import datetime\ndatetime.datetime.now(datetime.UTC)",
    "import psycopg",
)


def ruff_codes(source: str, path: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--output-format=concise", "--stdin-filename", path, "-"],
        input=source,
        check=False,
        capture_output=True,
        text=True,
        cwd=TREE,
    )
    return set(re.findall(r": ([A-Z]+\d+)", done.stdout))


@pytest.mark.parametrize("source", IMPURE)
def test_only_run_may_touch_the_world(source: str) -> None:
    assert "TID251" in ruff_codes(source, "src/pgdyno/analyse/x.py")
    assert "TID251" not in ruff_codes(source, "src/pgdyno/run/x.py")


WRONG_IMPORTS = (("facts", "spec"), ("run", "report"), ("report", "run"), ("run", "analyse"), ("units", "errors"))


def test_rooms_import_backwards_only(tmp_path: Path) -> None:
    shutil.copytree(TREE / "src" / "pgdyno", tmp_path / "pgdyno", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TREE / "pyproject.toml", tmp_path)

    def lint() -> tuple[int, str]:
        argv = [sys.executable, str(Path(sysconfig.get_path("scripts")) / "lint-imports"), "--no-cache"]
        env = environment(PYTHONPATH=str(tmp_path))
        done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=tmp_path, env=env)
        return done.returncode, done.stdout

    assert lint()[0] == 0
    wrong: list[str] = []
    for room, imported in WRONG_IMPORTS:
        is_folder = (tmp_path / "pgdyno" / room).is_dir()
        module = f"{room}.wrong_{imported}" if is_folder else room
        with (tmp_path / "pgdyno" / f"{module.replace('.', '/')}.py").open("a") as file:
            file.write(f"\nimport pgdyno.{imported}\n")
        wrong.append(f"pgdyno.{module} -> pgdyno.{imported}")
    code, said = lint()
    assert code == 1
    assert [one for one in wrong if one not in said] == []
    # A room that no contract names.
    (tmp_path / "pgdyno" / "new_room.py").touch()
    code, said = lint()
    assert code == 1
    assert "new_room" in said


NEWER = {
    "keyword_of_a_method": "import tarfile\nwith tarfile.open('x') as packed:\n    packed.extractall('x', filter='data')\n",
    "function": "import itertools\nitertools.batched('abc', 2)\n",
    "keyword": "import shutil\nshutil.rmtree('x', onexc=print)\n",
}
OS_SAMPLER = Path("src/pgdyno/run/sample/os_sampler.py")
FAR_LOOK = Path("src/pgdyno/run/link/far_look.py")


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """A project of one file that promises what ours does."""
    for folder in (OS_SAMPLER.parent, FAR_LOOK.parent, "tests", "tools", "benchmarks"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("pyproject.toml", OS_SAMPLER, FAR_LOOK):
        shutil.copy(TREE / name, tmp_path / name)
    return tmp_path


def ask_for_newer(tree: Path) -> tuple[int, str]:
    gate = [sys.executable, TREE / "tools" / "oldest_python.py", tree]
    done = subprocess.run(gate, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_nothing_that_the_oldest_python_lacks(small_tree: Path) -> None:
    assert ask_for_newer(small_tree) == (0, "")
    for kind, source in NEWER.items():
        (small_tree / "tests" / f"test_{kind}.py").write_text(source)
    code, said = ask_for_newer(small_tree)
    assert code == 1
    for kind in NEWER:
        assert [line for line in said.splitlines() if f"test_{kind}.py" in line and "3.12" in line], said


def test_programs_for_other_machines_keep_their_own_promise(small_tree: Path) -> None:
    for name in (OS_SAMPLER, FAR_LOOK):
        program = small_tree / name
        program.write_text(program.read_text() + "\nif x := 1:\n    pass\n")
    code, said = ask_for_newer(small_tree)
    assert code == 1
    assert said.count("named expressions require !2, 3.8") == 2


def test_all_papers_promise_the_same_pythons() -> None:
    script = (TREE / "tools" / "environment.sh").read_text()
    oldest, newest = (re.findall(rf"^{name}_minor=(\d+)", script, re.MULTILINE) for name in ("oldest", "newest"))
    config = tomllib.loads((TREE / "pyproject.toml").read_text())
    assert config["project"]["requires-python"] == f">=3.{oldest[0]}"
    assert config["tool"]["mypy"]["python_version"] == f"3.{oldest[0]}"
    promised = re.findall(r"Python (3\.\d+) to (3\.\d+)", (TREE / "README.md").read_text())
    assert promised == [(f"3.{oldest[0]}", f"3.{newest[0]}")]


CLUSTER_TEST = """
import pytest
@pytest.mark.cluster
def test_server():
    {}
def test_pure():
    pass
"""


@pytest.mark.parametrize(
    ("ci", "body", "arguments", "exit_code"),
    [
        ("true", "pass", (), 0),
        ("true", "pytest.skip('no server')", (), 1),
        ("true", "pass", ("-m", "not cluster"), 4),
        ("true", "pass", ("-n", "1", "-m", "not cluster"), 4),
        ("true", "pass", ("-n", "1"), 0),
        (None, "pytest.skip('no server')", (), 0),
        (None, "pass", ("-m", "not cluster"), 0),
    ],
)
def test_ci_never_skips_the_tests_on_a_real_server(
    tmp_path: Path, ci: str | None, body: str, arguments: tuple[str, ...], exit_code: int
) -> None:
    shutil.copy(TREE / "tests" / "conftest.py", tmp_path)
    (tmp_path / "tests").mkdir()
    for needed in ("__init__.py", "examples.py", "hosts.py", "pauses.py", "ports.py", "shared.py"):
        shutil.copy(TREE / "tests" / needed, tmp_path / "tests")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = cluster\n")
    (tmp_path / "test_it.py").write_text(CLUSTER_TEST.format(body))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(CI=ci),
    )
    assert done.returncode == exit_code, done.stdout + done.stderr


def test_check_refuses_its_fast_ring_in_ci() -> None:
    done = subprocess.run(
        [TREE / "check", "--fast"], check=False, capture_output=True, text=True, env=environment(CI="true")
    )
    assert done.returncode == 3
    assert "CI may not skip" in done.stderr


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_check_says_how_it_is_used_before_it_sets_up_anything(tmp_path: Path, option: str) -> None:
    shutil.copy(TREE / "check", tmp_path)
    done = subprocess.run([tmp_path / "check", option], check=False, capture_output=True, text=True, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Runs what CI runs")
    assert [line.split()[:2] for line in done.stdout.splitlines()[-3:]] == [
        ["./check", "everything"],
        ["./check", "--fast"],
        ["./check", "tests/record"],
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["check"]


def test_locks_hold_versions_and_hashes_and_nothing_else() -> None:
    line = re.compile(r"[a-z0-9-]+==[\w.]+ \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    for name in ("requirements.lock", "requirements-dev.lock"):
        lines = (TREE / name).read_text().splitlines()
        assert [text for text in lines if not line.fullmatch(text)] == []


def test_development_has_the_versions_that_users_get() -> None:
    runtime, development = read_lock("requirements.lock"), read_lock("requirements-dev.lock")
    assert {name: development.get(name) for name in runtime} == runtime


@needs_root
def test_what_a_killed_run_left_mounted_fails_no_later_run(tmp_path: Path) -> None:
    left = tmp_path / "pytest-of-root" / "garbage-1" / "memory"
    left.mkdir(parents=True)
    passing = tmp_path / "test_one.py"
    passing.write_text("def test_it(tmp_path): pass\n")
    # In a mount namespace of its own, since pytest moves what it removes.
    held = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {left} && exec "$@"', "sh")
    argv = [*held, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(TREE / "pyproject.toml")]
    env = environment(PYTEST_DEBUG_TEMPROOT=str(tmp_path))
    done = subprocess.run([*argv, str(passing)], check=False, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert any(left.parent.parent.glob("garbage-*/memory"))
