"""pgdyno's home on a machine: templates of loaded clusters, the cluster at work, and the lock that keeps others out.

Two studies at once would spoil each other's figures, so a home serves one at a time. Whatever a killed pgdyno left
running in it is found by its working directory and ended before anything new starts; no other process is ever touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from pgdyno.errors import HostError
from pgdyno.run.process import ServerUser, run

# Source: Linux sun_path is 108 bytes (unix(7)); the socket's own name takes up to 22.
_MAX_SOCKET_DIR = 85
DYNAMIC_SEGMENTS = "dynamic-shared-memory"
"""File in the work folder that names the POSIX segments of the running server, a path a line."""


class Home:
    """Folders of one pgdyno home; made by `open_home`, which holds its lock."""

    def __init__(self, root: Path, user: ServerUser) -> None:
        self.root = root
        self.user = user
        self.templates = root / "templates"
        self.software = root / "software"
        self.work = root / "work"
        self.data = self.work / "data"
        self.sockets = self.work / "sockets"
        self.left_overs: list[str] = []
        """What an earlier pgdyno had left running here, and was ended when this one began."""

    def prepare(self) -> None:
        """Make the folders; those of the server belong to the server's user and are closed to others.

        Raises:
            HostError: A folder cannot be made, or the server's user cannot reach it.
        """
        if len(str(self.sockets)) > _MAX_SOCKET_DIR:
            raise HostError(
                f"the path {self.sockets} is too long for a socket",
                detail=f"{len(str(self.sockets))} bytes; PostgreSQL allows {_MAX_SOCKET_DIR}",
                hint="choose a shorter one with --home",
            )
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            for folder in (self.templates, self.work, self.sockets):
                folder.mkdir(exist_ok=True, mode=0o700)
                if not self.user.is_self:
                    os.chown(folder, self.user.uid, self.user.gid)
            self.software.mkdir(exist_ok=True)
        except OSError as exc:
            raise HostError(
                f"cannot use {self.root} as pgdyno's home", detail=str(exc), hint="choose another folder with --home"
            ) from exc
        if run(["test", "-w", str(self.work)], user=self.user).exit_code != 0:
            raise HostError(
                f"the user {self.user.name} cannot reach {self.work}",
                detail="each folder above it must be open to that user",
                hint="choose another folder with --home",
            )

    def end_left_overs(self) -> list[str]:
        """End every process that works in this home's cluster, free its shared memory, remove the cluster.

        Returns:
            What was found and ended, in words, for the report.
        """
        found = [f"{name} (pid {pid})" for pid, name in _processes_in(self.work)]
        for sign in (signal.SIGQUIT, signal.SIGKILL):
            pids = [pid for pid, _ in _processes_in(self.work)]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sign)
            deadline = time.monotonic() + 10.0
            while pids and time.monotonic() < deadline and any(True for _ in _processes_in(self.work)):
                time.sleep(0.05)
        free_shared_memory(self.data, self.work / DYNAMIC_SEGMENTS)
        shutil.rmtree(self.data, ignore_errors=True)
        return found


def default_home() -> Path:
    """PGDYNO_HOME; else /var/lib/pgdyno for root, whose own home others cannot enter; else the user's data folder.

    Raises:
        HostError: There is no home directory to put it in.
    """
    named = os.environ.get("PGDYNO_HOME")
    if named:
        return Path(named).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/pgdyno")
    data_home = os.environ.get("XDG_DATA_HOME")
    if data_home:
        return Path(data_home) / "pgdyno"
    try:
        return Path.home() / ".local/share/pgdyno"
    except RuntimeError as exc:
        raise HostError("there is no home directory", hint="name a folder with --home") from exc


@contextlib.contextmanager
def open_home(root: Path, user: ServerUser) -> Iterator[Home]:
    """Lock a home for this process, end what an earlier one left in it, and give it.

    Raises:
        HostError: Another pgdyno uses it, or it cannot be made.
    """
    home = Home(root, user)
    home.prepare()
    with (root / "lock").open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            lock.seek(0)
            raise HostError(
                "another pgdyno is at work on this machine",
                detail=f"{lock.read().strip() or 'unknown process'} holds {root}",
                hint="wait for it: two at once would spoil each other's figures",
            ) from exc
        lock.truncate(0)
        lock.write(f"pid {os.getpid()}\n")
        lock.flush()
        home.left_overs = home.end_left_overs()
        try:
            yield home
        finally:
            home.end_left_overs()


def free_shared_memory(data_dir: Path, segments_file: Path) -> None:
    """Remove the shared memory of a server in `data_dir` that was killed before it could do so itself.

    Source: PostgreSQL's miscadmin.h, LOCK_FILE_LINE_SHMEM_KEY: the 7th line of postmaster.pid is `key id`.
    """
    with contextlib.suppress(FileNotFoundError, PermissionError):
        lines = (data_dir / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        if len(lines) >= 7 and len(fields := lines[6].split()) == 2:
            # Fails harmlessly when the segment is gone already.
            run(["ipcrm", "-m", fields[1]])
    with contextlib.suppress(FileNotFoundError):
        for segment in segments_file.read_text(encoding="utf-8").splitlines():
            Path(segment).unlink(missing_ok=True)
        segments_file.unlink()


def _processes_in(folder: Path) -> Iterator[tuple[int, str]]:
    # Every PostgreSQL process changes to its data directory; that identifies ours without trusting recorded pids.
    inside = f"{folder.resolve()}/"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            cwd = str((entry / "cwd").readlink())
            name = (entry / "comm").read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if cwd.startswith(inside):
            yield int(entry.name), name
