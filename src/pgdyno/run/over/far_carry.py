"""Keep what is carried to a machine: a stdlib-only program that is sent to it and unpacks folders that come through its stdin.

It imports nothing of pgdyno and runs on Python 3.11 or later. It says in one JSON document a line what it sees. It reads
lines of JSON: first the names of the folders that are wanted, then for each one that is missing `take`, followed by a compressed tar in
frames: a line with a number of bytes, those bytes, and so on to a frame of none.

A folder is made under a name of its own and renamed when it is whole. It holds what it should hold as `whole.json`: without
that, or with files missing, it is made again. Folders that are not wanted and that no process uses are removed. A process uses a
folder as long as it holds a shared lock on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
import signal
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SILENCE_S = 30
NOTE = "whole.json"
PART = ".part-"
COMPILED = "__pycache__"


class Input:
    """Standard input: lines, and the tar in frames that may follow one."""

    def __init__(self) -> None:
        self.data = b""
        self.left = 0
        self.is_over = True

    def fill(self) -> None:
        """Read more; without more, end."""
        more = os.read(0, 1 << 18)
        signal.alarm(SILENCE_S)
        if not more:
            sys.exit(0)
        self.data += more

    def line(self) -> bytes:
        """Return the next line that is not empty: empty ones say that the other end lives."""
        line = b""
        while not line:
            while b"\n" not in self.data:
                self.fill()
            line, _, self.data = self.data.partition(b"\n")
        return line

    def read(self, size: int) -> bytes:
        """Return up to so many bytes of the frames; none after the last."""
        if self.left == 0 and not self.is_over:
            self.left = int(self.line())
            self.is_over = self.left == 0
        if self.is_over:
            return b""
        if not self.data:
            self.fill()
        part = self.data[: min(size, self.left)]
        self.data = self.data[len(part) :]
        self.left -= len(part)
        return part


def say(value: Any) -> None:
    """Write a line for pgdyno."""
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


@contextlib.contextmanager
def taking_its_time() -> Iterator[None]:
    """Let work take longer than a line from the other machine may be late: none is read meanwhile."""
    signal.alarm(0)
    try:
        yield
    finally:
        signal.alarm(SILENCE_S)


def choose_base() -> Path:
    """Return the folder of all that is carried."""
    named = os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named, "pgdyno", "carried")
    # Root's own folder is closed to the account that PostgreSQL runs as.
    own = Path.home() / ".cache" if os.geteuid() else Path("/var/cache")
    return own / "pgdyno" / "carried"


def count(folder: Path) -> list[int]:
    """Return how many files a folder has, and their bytes; what Python has compiled does not count."""
    files = size = 0
    for where, below, names in os.walk(folder):
        if COMPILED in below:
            below.remove(COMPILED)
        for name in names:
            files += 1
            size += os.lstat(os.path.join(where, name)).st_size  # noqa: PTH118 - a Path of each of 10,000 files takes a while
    return [files, size]


def is_whole(folder: Path) -> bool:
    """Return whether a folder holds all that it should hold."""
    try:
        noted = json.loads((folder / NOTE).read_text())
        seen = count(folder)
    except (OSError, ValueError):
        return False
    note_bytes = (folder / NOTE).stat().st_size
    is_runnable = not (folder / "pyvenv.cfg").exists() or os.access(folder / "bin" / "python", os.X_OK)
    return is_runnable and [seen[0] - 1, seen[1] - note_bytes] == noted


def hold(folder: Path, how: int) -> int | None:
    """Lock a folder and return the descriptor that holds it; None if another process is in the way."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def remove_unused(base: Path, wanted: list[str]) -> None:
    """Remove the folders that are not wanted and that no process uses, and those that were never whole."""
    for folder in base.iterdir():
        if folder.name in wanted:
            continue
        try:
            held = hold(folder, fcntl.LOCK_EX)
        except OSError:
            continue
        if held is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)


def make_environment(folder: Path, packages: Path) -> None:
    """Make a folder of packages a virtual environment that sees those of another folder, too.

    Source: PEP 405. Nothing of the module `venv` is needed, which some machines lack.
    """
    python = Path(sys._base_executable)  # type: ignore[attr-defined]
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(python)
    cfg = f"home = {python.parent}\ninclude-system-site-packages = false\nversion = {platform.python_version()}\n"
    (folder / "pyvenv.cfg").write_text(cfg)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"import site; site.addsitedir({str(packages)!r})\n")


def put_in_place(part: Path, final: Path) -> None:
    """Give a whole folder its name."""
    if is_whole(final):
        # Another one has made it meanwhile.
        shutil.rmtree(part, ignore_errors=True)
        return
    if final.exists() or final.is_symlink():
        old = final.with_name(f"{final.name}{PART}old-{os.getpid()}")
        final.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    part.rename(final)


def take(base: Path, wanted: dict[str, Any], incoming: Input) -> None:
    """Unpack what comes into a folder, compile it, and give it its name."""
    name = wanted["take"]
    part = base / f"{name}{PART}{os.getpid()}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o755)
    held = hold(part, fcntl.LOCK_SH)
    try:
        with tarfile.open(fileobj=incoming, mode="r|gz") as tar:  # type: ignore[call-overload]
            # Python has it since 3.11.4.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(part)  # noqa: S202 - it is our own
        while incoming.read(1 << 18):
            pass
        with taking_its_time():
            if wanted["packages"] is not None:
                make_environment(part, base / wanted["packages"])
            (part / NOTE).write_text(json.dumps(count(part)))
            # To import it takes a while, and seldom is anything missing.
            import compileall  # noqa: PLC0415

            compileall.compile_dir(part, quiet=2, workers=0)
            put_in_place(part, base / name)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        if held is not None:
            os.close(held)


def main() -> None:
    """Keep what is carried readable to the account of the server, which runs programs from here."""
    usual = os.umask(0o022)
    try:
        keep()
    finally:
        # The next program makes files of the user's.
        os.umask(usual)


def keep() -> None:
    """Say what this machine is, and take what is missing."""
    signal.alarm(SILENCE_S)
    base = choose_base()
    incoming = Input()
    say(
        {
            "python": sys.version_info[:3],
            "is_cpython": platform.python_implementation() == "CPython",
            "machine": platform.machine(),
            # Without a file named it asks the library itself; of a file it reads the symbols that the file wants.
            "libc": platform.libc_ver(),
        }
    )
    names = json.loads(incoming.line())
    try:
        base.mkdir(parents=True, exist_ok=True, mode=0o755)
        with taking_its_time():
            missing = [name for name in names if not is_whole(base / name)]
            if missing:
                remove_unused(base, names)
        room = os.statvfs(base)
        say({"base": str(base), "missing": missing, "room_bytes": room.f_bavail * room.f_frsize})
        for _ in missing:
            wanted = json.loads(incoming.line())
            incoming.is_over = False
            take(base, wanted, incoming)
            say({"taken": wanted["take"]})
    except (OSError, tarfile.TarError) as exc:
        say({"failure": str(exc), "errno": getattr(exc, "errno", None), "base": str(base)})
        # Else the writer at the other end waits for a reader.
        while True:
            incoming.data = b""
            incoming.fill()


if __name__ == "__main__":
    main()
