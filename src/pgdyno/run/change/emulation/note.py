"""Note each emulation before it begins, so that the next pgdyno undoes what a killed one has left.

An emulation belongs to one process: its mounts are in a namespace of its own, its devices detach themselves, and its files have
no names, so the kernel undoes those when the last process of the study ends. Throttles, the mode of the devices' write caches,
the control group, its controllers and an empty folder stay, and are in the note. Servers that were frozen stay until the note is undone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, why
from pgdyno.record.damage import NOT_JSON
from pgdyno.record.durable import write_durably
from pgdyno.run.change.changes import EmulationChange, Undo, UndoOutcome
from pgdyno.run.change.emulation.groups import GroupFiles, lift_throttles, remove_group
from pgdyno.run.change.emulation.loop import keep_flushes_above
from pgdyno.run.change.journal import HOST_FOLDER
from pgdyno.run.host.process import make_reachable
from pgdyno.run.host.process_id import find_working_in, is_running, read_boot_id

_FOLDER = HOST_FOLDER / "emulations"


class EmulationNote(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of an emulation that outlives its processes."""

    change: EmulationChange
    groups: GroupFiles
    devices: tuple[str, ...] = ()
    """The major and minor numbers of the throttled devices."""

    def write(self) -> None:
        """Write the note; it is on disk when this returns.

        Raises:
            HostError: It cannot be written.
        """
        try:
            make_reachable(_FOLDER)
            write_durably(self._path, msgspec.json.encode(self))
        except OSError as exc:
            raise HostError("cannot write the journal of changes to this host", detail=why(exc)) from exc

    def undo(self) -> Undo:
        """Undo what the note tells, and remove it when all of that is undone."""
        left = ""
        if self.change.owner.boot_id == read_boot_id():
            left = self.release_devices()
            _thaw(Path(self.change.what))
            left = left or remove_group(self.groups)
        if left:
            return Undo(change=self.change, outcome=UndoOutcome.FAILED, reason=left)
        # Nothing is mounted there: the mounts were in the namespace of the study.
        shutil.rmtree(self.change.what, ignore_errors=True)
        self._path.unlink(missing_ok=True)
        return Undo(change=self.change, outcome=UndoOutcome.UNDONE)

    def release_devices(self) -> str:
        """Let the devices flush, and work at their own speed, again.

        Returns:
            What refused; empty if nothing did.
        """
        try:
            for device in self.devices:
                # The mode outlasts the file, but not the device.
                with contextlib.suppress(FileNotFoundError):
                    keep_flushes_above(device, is_kept=False)
        except OSError as exc:
            return why(exc)
        return lift_throttles(self.groups, self.devices)

    @property
    def _path(self) -> Path:
        owner = self.change.owner
        return _FOLDER / f"{owner.pid}-{owner.start_ticks}.json"


def undo_left_emulations() -> tuple[Undo, ...]:
    """Undo what emulations of killed pgdynos have left; those of running ones stay."""
    if os.geteuid() != 0:
        return ()
    return tuple(note.undo() for note in _read_notes() if not is_running(note.change.owner))


def _thaw(folder: Path) -> None:
    """Let what works in a folder go on: servers that a live round froze then take the signal that waits for them, and end."""
    for pid, _ in find_working_in(folder):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def _read_notes() -> Iterator[EmulationNote]:
    for path in sorted(_FOLDER.glob("*.json")):
        # Another pgdyno may undo the same at the same time.
        with contextlib.suppress(FileNotFoundError, *NOT_JSON):
            yield msgspec.json.decode(path.read_bytes(), type=EmulationNote)
