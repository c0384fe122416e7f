"""Run one command of pgdyno on a machine: a stdlib-only program that is sent to it and outlives neither its link nor the command.

It imports nothing of pgdyno and runs on Python 3.11 or later. The first line on stdin is the request: `program` and `packages`, the folders
that were carried; `words`, the command; `variables` for it; `silence_s`; `files_bytes`, the size of its files, or null; `folder`, where an earlier command works, or
null; `result`, the path in that folder of what is brought home, or null; and as `out` and `err` the size of the terminal
that shows that output, or null.

Standard output is in frames: a line with a word and a size, and so many bytes. After `ready` the files come, as a compressed tar in
frames: a line with a size, and so many bytes, to a frame of none. Later lines on stdin are words: `stop`,
`fetch`, `remove`, `known`, which says that a record at the other end names this folder, and `home`, which says that all is home that
stays here; an empty line says that the other end lives. `stop` is Ctrl-C for pgdyno; so is the end of stdin, and its
silence. Pgdyno then stops in order, which puts kernel settings back; what is left of it after a while is killed.

A new folder is marked until it is known. What was cut off before is removed, since nobody would find it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import termios
import time
import tty
import zlib
from pathlib import Path
from typing import Any

SILENCE_S = 30
STOPS_WITHIN_S = 180.0
WAITS_S = 240.0
LOOKS_EVERY_S = 0.2
MOST_TRIES = 10
MOST_PENDING_BYTES = 4 << 20
PLACE = "pgdyno-on"
# As `make_folder` names them; whatever else lies there is somebody's own.
NAMES = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9]+")
PART = ".part"
UNKNOWN = ".unknown"
AT_HOME = ".at-home"
FREE = "free some of that disk: `df -h`"
FULL = (errno.ENOSPC, errno.EDQUOT)
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST)
NOTED = ("record.json", "study.toml")
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class GoneError(Exception):
    """Nobody is at the other end any more."""


class Refusal(Exception):  # noqa: N818 - it is an answer
    """An error for pgdyno: fact, detail and hint."""


class Link:
    """The other end: words from there, frames to there; neither blocks."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.searched = 0
        self.left = 0
        self.is_tar = False
        self.pending = b""
        self.heard_s = time.monotonic()
        self.silence_s = SILENCE_S
        self.is_gone = False
        os.set_blocking(0, False)
        os.set_blocking(1, False)

    def send(self, word: str, data: bytes) -> None:
        """Send a frame, as soon as there is room for it."""
        if self.is_gone:
            return
        self.pending += b"%b %d\n" % (word.encode(), len(data)) + data

    def turn(self, others: list[int]) -> list[int]:
        """Wait until there is something to do; return which of the other descriptors can be read."""
        # Should this program hang, the kernel ends it, and with it pgdyno.
        signal.alarm(2 * SILENCE_S)
        if len(self.pending) > MOST_PENDING_BYTES:
            others = []
        ours = [] if self.is_gone else [0]
        readable, writable, _ = select.select(
            [*ours, *others], [1] if self.pending and not self.is_gone else [], [], LOOKS_EVERY_S
        )
        if writable:
            self._write()
        if 0 in readable:
            self._read()
        if time.monotonic() - self.heard_s > self.silence_s:
            self._lose()
        return [one for one in readable if one != 0]

    def take_word(self) -> bytes | None:
        """Return the next line; None if it is not there yet, and nothing for one that says that the other end lives."""
        # A line may be long: it is not looked through again for each of its parts.
        end = self.heard.find(b"\n", self.searched)
        self.searched = len(self.heard)
        if end < 0:
            return None
        word = bytes(self.heard[:end])
        del self.heard[: end + 1]
        self.searched = 0
        return word

    def await_word(self) -> bytes:
        """Wait for the next line that says something."""
        while not (word := self.take_word()):
            if word is None:
                self.await_more()
        return word

    def await_more(self) -> None:
        """Wait for more from the other end."""
        had = len(self.heard)
        while len(self.heard) == had:
            if self.is_gone:
                raise GoneError
            self.turn([])

    def read(self, size: int) -> bytes:
        """Return up to so many bytes of a tar; none after the last."""
        if self.is_tar and self.left == 0:
            self.left = int(self.await_word())
            self.is_tar = self.left > 0
        if not self.is_tar:
            return b""
        if not self.heard:
            self.await_more()
        part = bytes(self.heard[: min(size, self.left)])
        del self.heard[: len(part)]
        self.left -= len(part)
        return part

    def flush(self) -> None:
        """Wait until all was taken."""
        while self.pending:
            if self.is_gone:
                raise GoneError
            self.turn([])

    def write(self, data: bytes) -> None:
        """Take a part of a tar."""
        if data:
            self.send("tar", data)
        if len(self.pending) > MOST_PENDING_BYTES // 4:
            self.flush()

    def _lose(self) -> None:
        self.is_gone = True
        self.pending = b""

    def _write(self) -> None:
        try:
            self.pending = self.pending[os.write(1, self.pending) :]
        except BlockingIOError:
            pass
        except OSError:
            self._lose()

    def _read(self) -> None:
        try:
            more = os.read(0, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        if not more:
            self._lose()
            return
        self.heard_s = time.monotonic()
        self.heard += more


def hold(folder: Path, how: int) -> int | None:
    """Lock a folder and return the descriptor that holds it; None if another process is in the way."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def use(folders: list[Path]) -> list[int]:
    """Return the descriptors that hold what was carried, so that nobody removes it."""
    held = [hold(folder, fcntl.LOCK_SH) if folder.is_dir() else None for folder in folders]
    used = [one for one in held if one is not None]
    if len(used) < len(folders):
        raise Refusal(
            "what was carried is gone", "another pgdyno carries its own version there just now", "call it again"
        )
    return used


def remove_left(place: Path) -> None:
    """Remove the folders of commands that were cut off before they had a record, or before it was known."""
    for folder in place.iterdir():
        if not NAMES.fullmatch(folder.name) or folder.is_symlink():
            continue
        # Another program may have removed it since, or removes it now.
        with contextlib.suppress(OSError):
            held = hold(folder, fcntl.LOCK_EX)
            if held is None:
                continue
            try:
                if (folder / UNKNOWN).exists() or not any(folder.glob(f"**/{NOTED[0]}")):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)


def remove(folder: Path) -> None:
    """Remove a folder to work in, and the place of all if it was the last one."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def hold_earlier(folder: Path, result: str, link: Link) -> int | None:
    """Return the descriptor that holds the folder of an earlier command; None if its record is gone."""
    until_s = time.monotonic() + WAITS_S
    # It comes from a record, which may be of anybody, and is removed in the end: nothing else may be.
    is_ours = folder.parent == Path.home() / PLACE and folder.name != ".."
    while is_ours and (folder / result / NOTED[0]).exists():
        # Who holds it may be about to remove it.
        with contextlib.suppress(FileNotFoundError):
            if (held := hold(folder, fcntl.LOCK_EX)) is not None:
                return held
        if time.monotonic() > until_s or link.is_gone or link.take_word() == b"stop":
            raise Refusal("another pgdyno is at work on this record there", str(folder), "wait for it")
        link.turn([])
    return None


def open_folder(request: dict[str, Any], link: Link) -> tuple[Path, int, bool]:
    """Return the folder to work in, the descriptor that holds it, and whether it is a new one or that of an earlier command."""
    if request["folder"] is not None:
        folder = Path(request["folder"])
        held = hold_earlier(folder, request["result"], link)
        if held is not None:
            for mark in (AT_HOME, UNKNOWN):
                (folder / mark).unlink(missing_ok=True)
            return folder, held, False
    folder, held = make_folder(Path.home() / PLACE)
    # With this folder in it, nobody removes the place meanwhile.
    remove_left(folder.parent)
    return folder, held, True


def make_folder(place: Path) -> tuple[Path, int]:
    """Make a new folder to work in and return it and the descriptor that holds it."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    tries = 0
    while True:
        try:
            return hold_new(place / f"{name}{tries}")
        except (FileNotFoundError, FileExistsError, Refusal):
            # Another program removes the place while it is empty, or a folder that is not held yet.
            tries += 1
            if tries == MOST_TRIES:
                raise


def hold_new(folder: Path) -> tuple[Path, int]:
    """Make a folder, mark it as unknown, and return it and the descriptor that holds it."""
    folder.parent.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir()
    held = hold(folder, fcntl.LOCK_EX)
    if held is None:
        raise Refusal("another pgdyno removes this folder there just now", str(folder), "call it again")
    (folder / UNKNOWN).touch()
    return folder, held


def check_room(folder: Path, size: int) -> None:
    """Make sure that so many bytes have room."""
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if size > free:
        raise Refusal("it has no room for these files", f"{size / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are free", FREE)


def choose_hint(error: OSError) -> str:
    """Return what to try after an error of the machine; nothing if it may have any cause."""
    if error.errno in FULL:
        return FREE
    is_of_place = str(error.filename) == str(Path.home() / PLACE)
    return "the account needs a home folder that it can write to" if is_of_place and error.errno in CLOSED else ""


def take_files(folder: Path, size: int, link: Link) -> None:
    """Take the files that the command names, which come as a tar; they are in their places when all are there."""
    part = folder / PART
    try:
        check_room(folder, size)
        part.mkdir()
        link.send("ready", b"")
        link.is_tar = True
        try:
            put_files(part, link)
        except OSError as exc:
            # Else the writer at the other end waits for a reader.
            while link.read(1 << 16):
                pass
            raise Refusal("these files cannot be written there", str(exc), choose_hint(exc)) from exc
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    for path in part.iterdir():
        path.rename(folder / path.name)
    part.rmdir()


def put_files(folder: Path, incoming: Any) -> None:
    """Write the files of a tar into a folder."""
    with tarfile.open(fileobj=incoming, mode="r|gz") as tar:
        for entry in tar:
            # A name may come from a record, which may be of anybody.
            if Path(entry.name).is_absolute() or ".." in Path(entry.name).parts:
                raise OSError(f"{entry.name} leads out of the folder")
            path = folder / entry.name
            source = tar.extractfile(entry) if entry.isfile() else None
            (path if entry.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
            if source is not None:
                with path.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
                path.chmod(entry.mode & 0o777)
    while incoming.read(1 << 16):
        pass


def open_output(size: list[int] | None) -> tuple[int, int]:
    """Return the two ends of an output: a terminal as it is at the other end, or a pipe."""
    if size is None:
        return os.pipe()
    ours, its = pty.openpty()
    tty.setraw(its)
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    return ours, its


def prepare_child(parent: int) -> None:
    """Let Ctrl-C reach pgdyno, and have the kernel send it Ctrl-C when this program ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.alarm(0)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
    # The kernel sends it only for an end that comes after this.
    if os.getppid() != parent:
        os._exit(1)


class Command:
    """Pgdyno at work."""

    def __init__(self, request: dict[str, Any], link: Link, folder: Path, held: list[int]) -> None:
        self.link = link
        self.folder = folder
        self.result = None if request["result"] is None else folder / request["result"]
        self.is_noted = False
        ends = {word: open_output(request[word]) for word in ("out", "err")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.child = subprocess.Popen(
            [f"{request['program']}/bin/python", "-I", "-m", "pgdyno", *request["words"]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=ends["out"][1],
            stderr=ends["err"][1],
            env={**kept, **request["variables"]},
            start_new_session=True,
            preexec_fn=functools.partial(prepare_child, os.getpid()),  # noqa: PLW1509 - there is no other thread
            # Who looks whether the folders are in use must see it, even when this program was killed.
            pass_fds=held,
        )
        self.outputs = {}
        for word, (ours, its) in ends.items():
            os.close(its)
            self.outputs[ours] = word
        self.stopped_s: float | None = None

    def stop(self) -> None:
        """Send Ctrl-C."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)

    def run(self) -> int:
        """Pass on what it prints until it has ended; return its exit code."""
        while self.outputs or self.child.poll() is None:
            for output in self.link.turn(list(self.outputs)):
                self.pass_on(output)
            self.note_record()
            while (word := self.link.take_word()) is not None:
                if word == b"stop":
                    self.stop()
                self.heed_known(word)
            if self.link.is_gone:
                self.end()
            if self.child.poll() is not None and self.outputs and not select.select(list(self.outputs), [], [], 0.0)[0]:
                # Another process still holds them: they are of no one's interest now.
                break
        self.note_record()
        return self.child.wait()

    def look_back(self) -> dict[str, bool]:
        """Return what it has made: what is brought home, and a record in another place."""
        result = self.result
        others = [one for one in self.folder.glob(f"**/{NOTED[0]}") if result is None or result not in one.parents]
        return {"has_result": result is not None and result.exists(), "has_other_record": bool(others)}

    def end(self) -> None:
        """Stop it in order; kill it if that takes too long."""
        now_s = time.monotonic()
        if self.stopped_s is None:
            self.stopped_s = now_s
            self.stop()
        elif now_s - self.stopped_s > STOPS_WITHIN_S and self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)

    def pass_on(self, output: int) -> None:
        """Pass on what it has printed."""
        try:
            data = os.read(output, 1 << 16)
        except OSError:
            # Of a terminal, this is the end.
            data = b""
        if data:
            self.link.send(self.outputs[output], data)
        else:
            os.close(output)
            del self.outputs[output]

    def heed_known(self, word: bytes) -> None:
        """Take the mark away once a record at the other end names the folder."""
        if word == b"known":
            (self.folder / UNKNOWN).unlink(missing_ok=True)

    def note_record(self) -> None:
        """Send once what its record begins with, as soon as there is one."""
        if self.is_noted or self.result is None or not (self.result / NOTED[0]).exists():
            return
        with contextlib.suppress(OSError):
            texts = {name: (self.result / name).read_text(encoding="utf-8") for name in NOTED}
            self.link.send("began", json.dumps({"folder": str(self.folder), "files": texts}).encode())
            self.is_noted = True


def explain_code(code: int) -> int:
    """Return the exit code as a shell would."""
    return 128 - code if code < 0 else code


def send_tar(folder: Path, link: Link) -> None:
    """Send all that is in a folder, as a compressed tar in frames to an empty one."""
    packer = zlib.compressobj(1, wbits=31)

    class Packed:
        """Compresses little, as tarfile itself does only from Python 3.12 on."""

        def write(self, data: bytes) -> int:
            link.write(packer.compress(data))
            return len(data)

    with tarfile.open(fileobj=Packed(), mode="w|") as tar:  # type: ignore[call-overload]
        tar.add(folder, arcname=".")
    link.write(packer.flush())
    link.send("tar", b"")


def serve(command: Command, link: Link) -> None:
    """Bring the record home, and remove the folder, as asked, and also if its record is unknown to anybody."""
    while not link.is_gone:
        while (word := link.take_word()) is not None:
            if word == b"fetch" and command.result is not None:
                send_tar(command.result, link)
            elif word == b"home":
                (command.folder / AT_HOME).touch()
            elif word == b"remove":
                remove(command.folder)
                link.send("removed", b"")
            command.heed_known(word)
        link.turn([])
    if command.is_noted and (command.folder / UNKNOWN).exists():
        remove(command.folder)


def main() -> None:
    """Run what is asked for."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    link = Link()
    try:
        request = json.loads(link.await_word())
        link.silence_s = request["silence_s"]
        used = use([Path(request[name]) for name in ("program", "packages")])
        folder, held, is_new = open_folder(request, link)
        if request["files_bytes"] is not None and not is_new:
            link.send("kept", b"")
        elif request["files_bytes"] is not None:
            take_files(folder, request["files_bytes"], link)
        command = Command(request, link, folder, [held, *used])
        code = explain_code(command.run())
        link.send("ended", json.dumps({"code": code, "folder": str(folder), **command.look_back()}).encode())
        try:
            serve(command, link)
        except OSError as exc:
            # The other end says where it stays and how to go on.
            raise Refusal("what the command made there cannot be sent", str(exc), "") from exc
    except (Refusal, OSError) as exc:
        fact, detail, hint = (
            exc.args if isinstance(exc, Refusal) else ("pgdyno cannot work there", str(exc), choose_hint(exc))
        )
        link.send("refused", json.dumps({"fact": fact, "detail": detail, "hint": hint}).encode())
        with contextlib.suppress(GoneError):
            link.flush()
    except GoneError:
        pass


if __name__ == "__main__":
    main()
    # Where the other end is silent, nothing more can be read.
    sys.exit()
