"""The whole program, as a user runs it, in a folder and a home of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.homes import reachable_folder

SMALL = ("--stock-only", "--scale", "2", "--clients", "4", "--duration", "1s", "--warm-up", "1s", "--rounds", "1")
# A load that leaves the CPUs to the tests beside it, for those that need one and not its speed.
GENTLE = ("--rate", "200")


@dataclass(frozen=True)
class Bench:
    """A folder with a home in it; records go to `folder/pgdyno-records`."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def records(self) -> list[Path]:
        return sorted((self.folder / "pgdyno-records").glob("*"))

    @property
    def record(self) -> Path:
        (only,) = self.records
        return only

    def argv(self, *arguments: str) -> list[str]:
        needs_home = arguments[0] in {"bench", "run", "resume", "plan", "clean"}
        # A test that is not about the disk has no 40 s for it.
        may_measure = arguments[0] in {"bench", "compare", "sweep"} and "--disk" not in arguments
        options = [*(("--home", str(self.home)) if needs_home else ()), *(("--no-disk",) if may_measure else ())]
        return [sys.executable, "-m", "pgdyno", *arguments, *options]

    def run(
        self, *arguments: str, timeout_s: float = 280, python_path: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the program to its end; where `python_path` is given, the copy of it that lies there."""
        program = {} if python_path is None else {"PYTHONPATH": str(python_path)}
        return subprocess.run(
            self.argv(*arguments),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "COLUMNS": "200", **program},
        )

    def json(self, *arguments: str, timeout_s: float = 280) -> dict[str, Any]:
        done = self.run(*arguments, "--json", timeout_s=timeout_s)
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            self.argv(*arguments),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "COLUMNS": "200"},
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def processes(self) -> list[tuple[int, str]]:
        """Every process that has this folder in its command line or works in it, but pgdyno itself."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                cwd = str((entry / "cwd").readlink())
                if state != "Z" and (str(self.folder) in command or str(self.folder) in cwd):
                    found.append((int(entry.name), command))
        return found

    def assert_nothing_runs(self, *, within_s: float = 60) -> None:
        assert wait_until(lambda: not self.processes(), seconds=within_s), self.processes()

    def find_process(self, words: str) -> int | None:
        return next((pid for pid, command in self.processes() if words in command and "-m pgdyno" not in command), None)


@contextlib.contextmanager
def some_bench(*, templates: Path | None = None) -> Iterator[Bench]:
    """An empty one; or one whose home has the `templates` of those before it, and leaves its own there."""
    with reachable_folder() as folder:
        made = Bench(folder)
        if templates is not None:
            _link_templates(templates, made.home / "templates")
        yield made
        if templates is not None:
            _link_templates(made.home / "templates", templates)


def _link_templates(source: Path, target: Path) -> None:
    """Nobody writes to a template's files, so that one may lie in several homes."""
    target.mkdir(parents=True, exist_ok=True)
    for whole in source.glob("*/dataset.json"):
        if not (target / whole.parent.name).exists():
            subprocess.run(["cp", "--archive", "--link", str(whole.parent), str(target)], check=True)


def wait_until(condition: Callable[[], bool], *, seconds: float = 120) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()
