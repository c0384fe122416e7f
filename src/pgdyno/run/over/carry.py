"""Carry pgdyno to another machine, as far as it is not there: its packages, and itself."""

from __future__ import annotations

import platform
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from pgdyno.errors import HostError
from pgdyno.run.over import far_carry, far_run
from pgdyno.run.over.parcels import Parcel, Platform, ProgramFiles, pack_packages
from pgdyno.run.over.talk import FarTalk
from pgdyno.run.over.tar_sender import TarSender

_WORKS_WITHIN_S = 900.0
_FREE = "free some of it there: `df -h`"
# What Python compiles there takes less than this share of the files.
_COMPILED_SHARE = 0.3


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What lies on a machine, ready to be run."""

    program: str
    """The folder of pgdyno there."""
    packages: str
    """The folder of its packages there."""
    python: str
    """The version of the Python that runs it."""
    sent_bytes: int
    """How much went through the link for it, compressed; 0: all was there."""


class _FarMachine(msgspec.Struct, frozen=True):
    python: tuple[int, int, int]
    is_cpython: bool
    machine: str
    libc: tuple[str, str]


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    failure: str = ""
    errno: int | None = None


class _FarFolders(_Failure, frozen=True, kw_only=True):
    base: str
    missing: tuple[str, ...] = ()
    room_bytes: int = 0


def carry(
    talk: FarTalk,
    *,
    tell: Callable[[str], None],
    pack: Callable[[Platform, Platform], Parcel] = pack_packages,
) -> Carried:
    """Carry what is missing on a machine.

    Args:
        talk: The machine.
        tell: Shows what is being done, and how far it is.
        pack: Chooses the packages for that machine, from its platform and the one here.

    Raises:
        HostError: There is no suitable Python, or no room.
        StepFailedError: The packages cannot be fetched, or the link is lost.
    """
    program_here = ProgramFiles()
    talk.begin(Path(far_carry.__file__), meanwhile=program_here.read)
    seen = msgspec.json.decode(talk.hear(), type=_FarMachine)
    there = read_platform(talk.destination, seen)
    here = _FarMachine(
        python=sys.version_info[:3], is_cpython=True, machine=platform.machine(), libc=platform.libc_ver()
    )
    packages = pack(there, read_platform("this machine", here))
    program = program_here.pack(there, packages)
    talk.ask([packages.name, program.name])
    folders = msgspec.json.decode(talk.hear(_WORKS_WITHIN_S), type=_FarFolders)
    if folders.failure:
        raise _refuse(talk.destination, folders.base, folders)
    sender = _Sender(talk, folders, tell)
    for parcel in (packages, program):
        if parcel.name in folders.missing:
            sender.send(parcel)
    return Carried(
        program=f"{folders.base}/{program.name}",
        packages=f"{folders.base}/{packages.name}",
        python=".".join(map(str, seen.python)),
        sent_bytes=sender.sent_bytes,
    )


def read_platform(name: str, seen: _FarMachine) -> Platform:
    """Return the platform that packages for a machine must be built for.

    Raises:
        HostError: There are no packages for such a machine.
    """
    words = seen.libc[1].split(".")
    if not seen.is_cpython or seen.libc[0] != "glibc" or len(words) < 2 or not words[1].isdigit():
        raise HostError(
            f"pgdyno does not run on {name}",
            detail=f"{seen.machine}, {' '.join(seen.libc) or 'no glibc'}"
            + ("" if seen.is_cpython else ", not CPython"),
            hint="it needs Linux with glibc, and CPython 3.11 or later",
        )
    return Platform(minor=seen.python[1], architecture=seen.machine, glibc_minor=int(words[1]))


def _as_packed(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    # Root may run it, and the account of the server reads it, whatever this account's umask was.
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry


def _refuse(name: str, base: str, seen: _Failure) -> HostError:
    hint = ""
    if seen.errno in far_run.FULL:
        hint = _FREE
    elif seen.errno in far_run.CLOSED:
        hint = f"pgdyno is carried to {base} there: make it a folder that the account can write to"
    return HostError(f"{name} does not take pgdyno", detail=f"{base}: {seen.failure}", hint=hint)


class _Sender:
    """Sends parcels, and says how far it is."""

    def __init__(self, talk: FarTalk, folders: _FarFolders, tell: Callable[[str], None]) -> None:
        self._talk, self._folders, self._tell = talk, folders, tell
        self._room_bytes = folders.room_bytes
        self._tars = TarSender(talk)

    @property
    def sent_bytes(self) -> int:
        """How much went through the link."""
        return self._tars.sent_bytes

    def send(self, parcel: Parcel) -> None:
        """Send a parcel, and wait until it is whole there."""
        self._tell(f"collecting {parcel.title}")
        with self._talk.kept_alive():
            files = parcel.list_files()
        sizes = {path: source.stat().st_size for path, source in files.items()}
        total = sum(sizes.values())
        needed = int(total * (1.0 + _COMPILED_SHARE))
        if needed > self._room_bytes:
            raise HostError(
                f"{self._talk.destination} has no room for pgdyno",
                detail=f"{parcel.title}: {needed / 1e6:,.0f} MB are needed in {self._folders.base},"
                f" {self._room_bytes / 1e6:,.0f} MB are free",
                hint=_FREE,
            )
        self._room_bytes -= needed
        self._talk.ask({"take": parcel.name, "packages": parcel.packages})
        done = 0
        with self._tars.packing() as tar:
            for path, source in files.items():
                tar.add(source.resolve(), arcname=path, recursive=False, filter=_as_packed)
                done += sizes[path]
                self._tell(f"carrying {parcel.title}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")
        self._tell(f"unpacking {parcel.title} there")
        taken = msgspec.json.decode(self._talk.hear(_WORKS_WITHIN_S), type=_Failure)
        if taken.failure:
            raise _refuse(self._talk.destination, self._folders.base, taken)
