"""The whole program, as a user runs it, in a folder and a home of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pgdyno.cli import main
from tests.forks import HelperPopen
from tests.quick import hurry
from tests.ready_program import Program, run_program
from tests.shared import reachable_folder, shared_home, without_shared
from tests.waiting import wait_until

SMALL = ("--stock-only", "--scale", "2", "--clients", "4", "--duration", "1s", "--warm-up", "1s", "--rounds", "1")
# A load that leaves the CPUs to the tests beside it, for those that need one and not its speed.
GENTLE = ("--rate", "200")


@dataclass(frozen=True)
class Bench:
    """A folder with a home in it; records go to `folder/pgdyno-records`."""

    folder: Path
    runs_initdb: bool = False
    """Whether the program makes its own empty clusters, instead of copying one that this run has made before."""

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
        return [sys.executable, "-m", "pgdyno", *self.words(*arguments)]

    def words(self, *arguments: str) -> list[str]:
        """Arguments with the options that tests need beside them."""
        needs_home = arguments[0] in {"bench", "run", "resume", "plan", "clean"} and "--dsn" not in arguments
        # A test that is not about the disk has no 40 s for it.
        may_measure = arguments[0] in {"bench", "compare", "sweep"} and "--disk" not in arguments
        options = [*(("--home", str(self.home)) if needs_home else ()), *(("--no-disk",) if may_measure else ())]
        return [*arguments, *options]

    def refuse(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run what is refused before any work; see `run_here`."""
        return run_here(self.words(*arguments), cwd=self.folder)

    def read(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run what measures nothing: it reads records, and may write their reports; see `run_here`."""
        return run_here(self.words(*arguments), cwd=self.folder)

    def read_json(self, *arguments: str) -> dict[str, Any]:
        done = self.read(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def run(
        self, *arguments: str, timeout_s: float = 800, python_path: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the program to its end; where `python_path` is given, the copy of it that lies there."""
        program = {} if python_path is None else {"PYTHONPATH": str(python_path)}
        return run_program(
            self.words(*arguments),
            cwd=self.folder,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env={**self._environment(), **program},
        )

    @contextlib.contextmanager
    def started(self, *arguments: str, stops_at: Callable[..., object] | None = None) -> Iterator[Program]:
        process = Program(
            self.words(*arguments),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=self._environment(),
            stops_at=stops_at,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "COLUMNS": "200"}
        return without_shared(environment) if self.runs_initdb else environment

    def processes(self) -> list[tuple[int, str]]:
        """Every process that has this folder in its command line or works in it, but pgdyno itself."""
        found, folder = [], str(self.folder)
        # Tests wait for a process, and look again and again: a Path of each entry takes several times as long.
        for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
            with contextlib.suppress(OSError):
                descriptor = os.open(f"/proc/{pid}/cmdline", os.O_RDONLY)
                try:
                    command = os.read(descriptor, 1 << 17).replace(b"\0", b" ").decode(errors="replace").strip()
                finally:
                    os.close(descriptor)
                # A zombie has neither a command line nor a folder.
                if int(pid) != os.getpid() and (folder in command or folder in os.readlink(f"/proc/{pid}/cwd")):  # noqa: PTH115
                    found.append((int(pid), command))
        return found

    def assert_nothing_runs(self, *, within_s: float = 600) -> None:
        assert wait_until(lambda: not self.processes(), within_s=within_s), self.processes()

    def find_process(self, words: str) -> int | None:
        return next((pid for pid, command in self.processes() if words in command and "-m pgdyno" not in command), None)


def run_here(
    arguments: Sequence[str], *, cwd: Path | str = "/", columns: int = 200, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in this process: for what starts no server, without the time to start Python."""
    # With the buffers below them, as JSON is written.
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["pgdyno", *arguments])
        patch.setattr(subprocess, "Popen", HelperPopen)
        hurry(patch.setattr)
        patch.delenv("PGDYNO_PROGRAM", raising=False)
        for name, value in {"COLUMNS": str(columns), **environment}.items():
            patch.setenv(name, value)
        patch.chdir(cwd)
        with pytest.raises(SystemExit) as ended:
            main.run_program()
    code = ended.value.code or 0
    assert isinstance(code, int)
    for stream in (out, err):
        stream.seek(0)
    return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def list_descendants(pid: int) -> Iterator[int]:
    """Yield each process below one, the parents first."""
    # A process may end meanwhile.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from list_descendants(child)


@contextlib.contextmanager
def some_bench(*, is_empty: bool = True) -> Iterator[Bench]:
    """An empty one; or one whose home has what those before it have loaded and measured, and leaves its own there."""
    with reachable_folder() as folder:
        made = Bench(folder, runs_initdb=is_empty)
        with contextlib.nullcontext() if is_empty else shared_home(made.home):
            yield made
