"""Clones to set up: the real scripts and Python's real venv and pip, with a lock file of one small package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
# The set-up asks every Python on PATH for its age, and those that a version manager adds take long to answer.
PATH = f"{Path(sys._base_executable).resolve().parent}:/usr/local/bin:/usr/bin:/bin"
PROGRAM = """\
import os, sys
import annotated_doc
print(os.path.dirname(os.path.dirname(__file__)))
print(sys.argv[1:])
if sys.argv[1:] == ["name"]:
    print(os.environ["PGDYNO_PROGRAM"])
if sys.argv[1:] == ["nap"]:
    sys.stdout.flush()
    sys.stdin.read()
"""


@dataclass(frozen=True, kw_only=True)
class Clone:
    """A folder with pgdyno's set-up and a program that says where it runs from and what it was given."""

    path: Path

    @property
    def venv(self) -> Path:
        return self.path / ".venv"

    def run(
        self, *arguments: str, head: Sequence[str] = (), program: Path | None = None, **env: str | None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*head, str(program or self.path / "pgdyno"), *arguments],
            check=False,
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd="/",
            env=environment(**env),
            timeout=800,
        )

    def start(self, *arguments: str, **env: str | None) -> subprocess.Popen[str]:
        """In a process group of its own, as a terminal would."""
        return subprocess.Popen(
            [str(self.path / "pgdyno"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd="/",
            env=environment(**env),
            start_new_session=True,
        )

    def copy_to(self, path: Path) -> Clone:
        shutil.copytree(self.path, path, symlinks=True)
        return Clone(path=path)


def environment(**changes: str | None) -> dict[str, str]:
    # In CI, ./check refuses --fast.
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST", "XDG_", "CI"))}
    return {key: value for key, value in {**kept, "PATH": PATH, **changes}.items() if value is not None}


def read_lock(name: str) -> dict[str, list[str]]:
    """Package as pinned -> its lines."""
    packages: dict[str, list[str]] = {}
    for line in (TREE / name).read_text().splitlines():
        if not line.startswith(" "):
            packages[line.split(" ")[0]] = []
        packages[list(packages)[-1]].append(line)
    return packages


def make_clone(path: Path) -> Clone:
    """A clone that was never run."""
    package = path / "src" / "pgdyno"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(PROGRAM)
    shutil.copy(TREE / "pgdyno", path)
    (path / "tools").mkdir()
    shutil.copy(TREE / "tools" / "environment.sh", path / "tools")
    (pinned,) = (lines for name, lines in read_lock("requirements.lock").items() if name.startswith("annotated-doc=="))
    (path / "requirements.lock").write_text("\n".join(pinned) + "\n")
    return Clone(path=path)


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Clone]:
    """Makes clones that were never run, each in a folder whose name has a space and a letter beyond ASCII."""
    return lambda: make_clone(tmp_path_factory.mktemp("clone") / "pgdyno é x")


@pytest.fixture(scope="session")
def first(fresh: Callable[[], Clone]) -> tuple[Clone, subprocess.CompletedProcess[str]]:
    """A clone that was run once, under a umask that closes files to others, and what that run said."""
    clone = fresh()
    return clone, clone.run("show", "a b", "", head=("sh", "-c", 'umask 077 && exec "$@"', "sh"))


@pytest.fixture
def ready(first: tuple[Clone, object], tmp_path: Path) -> Clone:
    """A copy, at another place, of a clone that was set up."""
    return first[0].copy_to(tmp_path / "moved clone")
