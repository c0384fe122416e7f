"""A machine: its files are read, and programs are started on it, through a `Host`. Today there is one: this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from pgdyno.run.host import process
from pgdyno.run.host.process import Completed, ServerUser
from pgdyno.run.host.tree import Tree


class Host:
    """A machine, or the captured files of one, on which no program can be started.

    Args:
        root: `/`, or the folder of captured files.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def open_tree(self) -> Tree:
        """Return its pseudo-files for one look, which keeps what could not be read."""
        return Tree(self.root)

    def start(
        self,
        argv: Sequence[str],
        *,
        user: ServerUser | None = None,
        death_signal: str = "KILL",
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        stderr: int | IO[bytes] = subprocess.DEVNULL,
        cwd: Path | str = "/",
        env: Mapping[str, str] | None = None,
        inherited: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a long-lived program; see `process.start`."""
        self._check_live()
        return process.start(
            argv,
            user=user,
            death_signal=death_signal,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=env,
            inherited=inherited,
        )

    def run(
        self,
        argv: Sequence[str],
        *,
        user: ServerUser | None = None,
        timeout_s: float | None = 60.0,
        cwd: Path | str = "/",
        env: Mapping[str, str] | None = None,
        is_foreign: bool = False,
        ends_group: bool = False,
    ) -> Completed:
        """Run a short program to its end; see `process.run`."""
        self._check_live()
        return process.run(
            argv, user=user, timeout_s=timeout_s, cwd=cwd, env=env, is_foreign=is_foreign, ends_group=ends_group
        )

    def _check_live(self) -> None:
        if self.root != Path("/"):
            raise RuntimeError(f"no program can be started on the captured machine in {self.root}")


THIS_HOST = Host()
