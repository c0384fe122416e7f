"""Run a command of pgdyno on another machine: its output appears here, Ctrl-C goes there, and what it has made comes home."""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

import msgspec

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.host.ctrl_c import interrupt
from pgdyno.run.host.program import COMMAND_VARIABLE, MACHINE_VARIABLE, PROGRAM_VARIABLE, program_name, typed_command
from pgdyno.run.link.boot import SILENCE_S
from pgdyno.run.over import far_run
from pgdyno.run.over.carry import Carried
from pgdyno.run.over.talk import FarTalk
from pgdyno.run.over.tar_sender import TarSender

_LOOKS_EVERY_S = 0.25
# After so many, this program ends at once; the one there then stops by itself.
_MOST_STOPS = 3
_SHOWN = ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A command for another machine."""

    words: tuple[str, ...]
    """What follows the program's name."""
    files: Mapping[str, Path] = {}
    """The files here that it names, by their paths there."""
    texts: Mapping[str, str] = {}
    """Further files, by their paths there."""
    folder: str | None = None
    """Where an earlier command has worked there: if that is gone, the files go into a new folder. None: a new folder."""
    result: str | None = None
    """The path in that folder of what is brought home; None: nothing is."""
    variables: Mapping[str, str] = {}
    """Further variables for it."""
    shows_result: bool = True
    """Whether what it writes to standard output appears here."""

    @property
    def size_bytes(self) -> int:
        """What goes there for it."""
        return sum(path.stat().st_size for path in self.files.values()) + sum(map(len, self.texts.values()))


class Began(msgspec.Struct, frozen=True, kw_only=True):
    """A record there has begun."""

    folder: str
    files: dict[str, str]
    """The texts of the record's first files."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a command has ended."""

    code: int
    folder: str
    has_result: bool
    has_other_record: bool
    """Whether a record lies in that folder which is not brought home."""


class FarCommand:
    """A command that runs on another machine; see `running`."""

    def __init__(self, talk: FarTalk, *, shows_result: bool = True) -> None:
        self._talk = talk
        self._shows_result = shows_result
        self._stop_count = self._passed_count = 0

    def run(self, *, began: Callable[[Began], None]) -> Ended:
        """Show what it prints until it has ended.

        Args:
            began: Called when its record has begun.

        Raises:
            HostError: It cannot be run there.
            StepFailedError: The link is lost: it then stops there by itself.
            KeyboardInterrupt: The user has asked for it several times.
        """
        with self._passing_signals():
            while True:
                word, data = self._hear_frame()
                if word == "out":
                    if self._shows_result:
                        _show(sys.stdout, data)
                elif word == "err":
                    _show(sys.stderr, data)
                elif word == "began":
                    began(msgspec.json.decode(data, type=Began))
                elif word == "ended":
                    return msgspec.json.decode(data, type=Ended)

    def stop(self) -> None:
        """Send it Ctrl-C."""
        self._stop_count += 1

    def send_files(self, order: Order, tell: Callable[[str], None]) -> None:
        """Send the files of a command, unless they are there; it begins when it has them.

        Raises:
            HostError: It cannot be run there.
            StepFailedError: The link is lost.
        """
        while (word := self._hear_frame()[0]) not in {"ready", "kept"}:
            pass
        if word == "kept":
            return
        done, total = 0, order.size_bytes
        with TarSender(self._talk).packing() as tar:
            for name, text in order.texts.items():
                entry, data = tarfile.TarInfo(name), text.encode()
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
            for name, source in order.files.items():
                tar.add(source.resolve(), arcname=name, recursive=False)
                done += source.stat().st_size
                tell(f"sending {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

    def fetch(self, folder: Path) -> None:
        """Bring home what it has made, into a new folder.

        Raises:
            StepFailedError: The link is lost, or what comes cannot be written.
        """
        self._talk.send(b"fetch\n")
        try:
            folder.mkdir(parents=True)
            with tarfile.open(fileobj=_Incoming(self._hear_tar), mode="r|gz") as tar:  # type: ignore[call-overload]
                for entry in tar:
                    _extract(tar, entry, folder)
        except (OSError, tarfile.TarError) as exc:
            raise StepFailedError(
                f"what comes from {self._talk.destination} cannot be written", detail=str(exc)
            ) from exc
        while self._hear_tar():
            pass

    def note_known(self) -> None:
        """Note there that a record here names its folder: until then, it is removed there when the link is lost.

        Raises:
            StepFailedError: The link is lost.
        """
        self._talk.send(b"known\n")

    def note_home(self) -> None:
        """Note there that all that its folder holds is here, too.

        Raises:
            StepFailedError: The link is lost.
        """
        self._talk.send(b"home\n")

    def remove(self) -> None:
        """Remove its folder there.

        Raises:
            StepFailedError: The link is lost.
        """
        self._talk.send(b"remove\n")
        while self._hear_frame()[0] != "removed":
            pass

    def _hear_tar(self) -> bytes:
        while (frame := self._hear_frame())[0] != "tar":
            pass
        return frame[1]

    def _hear_frame(self) -> tuple[str, bytes]:
        while not self._talk.has_line():
            self._pass_stops()
            if select.select([self._talk.output], [], [], _LOOKS_EVERY_S)[0]:
                self._talk.fill()
        self._pass_stops()
        word, size = self._talk.hear().decode().split(" ")
        data = self._talk.take(int(size))
        if word == "refused":
            refused = msgspec.json.decode(data, type=dict[str, str])
            raise HostError(
                f"{self._talk.destination}: {refused['fact']}", detail=refused["detail"], hint=refused["hint"]
            )
        return word, data

    def _pass_stops(self) -> None:
        while self._passed_count < self._stop_count:
            self._passed_count += 1
            self._talk.send(b"stop\n")

    @contextmanager
    def _passing_signals(self) -> Iterator[None]:
        """Pass Ctrl-C and its like on; the program there decides what becomes of it."""

        def pass_on(number: int, frame: FrameType | None) -> None:
            # Nothing is sent from here, which may be in the middle of sending something.
            self._stop_count += 1
            if self._stop_count >= _MOST_STOPS:
                interrupt(number, frame)

        numbers = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
        earlier = {number: signal.signal(number, pass_on) for number in numbers}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)


@contextmanager
def running(
    talk: FarTalk,
    carried: Carried,
    order: Order,
    *,
    tell: Callable[[str], None] = lambda _: None,
    silence_s: int = SILENCE_S,
) -> Iterator[FarCommand]:
    """Start a command on another machine; it ends with the talk.

    Args:
        talk: The machine.
        carried: pgdyno there.
        order: The command.
        tell: Shows how much of its files is there.
        silence_s: Seconds without a word from here after which it is stopped there.

    Raises:
        HostError: There is no connection, or no Python that is new enough.
        StepFailedError: The program does not start.
    """
    request = {
        "program": carried.program,
        "packages": carried.packages,
        "words": order.words,
        "variables": {**_choose_variables(talk.destination), **order.variables},
        "files_bytes": order.size_bytes if order.files or order.texts else None,
        "folder": order.folder,
        "result": order.result,
        "silence_s": silence_s,
        "out": _measure(sys.stdout),
        "err": _measure(sys.stderr),
    }
    talk.begin(Path(far_run.__file__))
    talk.ask(request)
    # Not from the main thread: a terminal that takes nothing, after Ctrl-S, must not end the command there.
    with talk.kept_alive():
        command = FarCommand(talk, shows_result=order.shows_result)
        if order.files or order.texts:
            command.send_files(order, tell)
        yield command


class _Incoming:
    """Frames of a tar as a file."""

    def __init__(self, hear: Callable[[], bytes]) -> None:
        self._hear = hear
        self._data = b""
        self._is_over = False

    def read(self, size: int) -> bytes:
        while not self._data and not self._is_over:
            self._data = self._hear()
            self._is_over = not self._data
        part, self._data = self._data[:size], self._data[size:]
        return part


def _extract(tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    """Extract files and folders that lie in the folder, and nothing else."""
    target = folder / entry.name
    if ".." in target.parts or entry.name.startswith("/"):
        raise tarfile.TarError(f"{entry.name} leads elsewhere")
    if entry.isdir():
        target.mkdir(exist_ok=True)
    elif entry.isfile() and (source := tar.extractfile(entry)) is not None:
        with target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        os.utime(target, (entry.mtime, entry.mtime))


def _choose_variables(name: str) -> dict[str, str]:
    shown = {key: os.environ[key] for key in _SHOWN if key in os.environ}
    typed = msgspec.json.encode(typed_command()).decode()
    return {**shown, PROGRAM_VARIABLE: program_name(), COMMAND_VARIABLE: typed, MACHINE_VARIABLE: name}


def _measure(stream: TextIO) -> tuple[int, int] | None:
    """Return the columns and lines of the terminal that a stream goes to; None if it goes elsewhere."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return None
    return size.columns, size.lines


def _show(stream: TextIO, data: bytes) -> None:
    # A closed terminal or pipe must not keep the record from coming home.
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()
