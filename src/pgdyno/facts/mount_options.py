"""Judge mount options: those that give up durability, those that cost speed, and those to know of."""

from __future__ import annotations

import enum
import re

import msgspec

_WITH_ACCESS_TIMES = frozenset({"ext3", "ext4", "xfs", "btrfs", "f2fs"})
_NO_ACCESS_TIMES = frozenset({"noatime", "relatime"})
_ACCESS_TIMES = "neither noatime nor relatime"
# The name of a setting: `mount:/mnt/data:commit`.
_NAME = re.compile(r"mount:(?P<folder>/[^:=]*):(?P<option>[a-z_]+)")
BARRIER = "barrier"
"""The option of ext4 that has the disk's cache flushed."""
NO_BARRIER = frozenset({"nobarrier", "barrier=0"})
"""Spellings of the option with which a file system does not flush the disk's cache."""


class OptionKind(enum.Enum):
    """The consequence of a mount option."""

    READ_ONLY = "read-only"
    UNDURABLE = "undurable"
    """A power failure loses what was committed."""
    COSTLY = "costly"
    """The file system is slower."""
    NOTED = "noted"
    """It is worth knowing, and needs no change."""


class JudgedOption(msgspec.Struct, frozen=True, kw_only=True):
    """A mount option with its consequence."""

    names: frozenset[str]
    """Spellings of the option; in a judgement, `seen` has those that are there."""
    kind: OptionKind
    claim: str
    """What the file system does, as the end of a sentence that begins with it."""
    why: str
    command: str | None
    """Command that changes it, with `{mount}` for the mount point; None if nothing need be done."""
    seen: tuple[str, ...] = ()

    def fill_in(self, mount: str) -> str:
        """Return the command that changes it; empty if nothing need be done."""
        return "" if self.command is None else self.command.format(mount=mount)

    def advice(self, mount: str) -> str:
        """Return what to do about it, in a sentence; empty if nothing need be done."""
        command = self.fill_in(mount)
        return command and f"`{command}`, and in /etc/fstab to keep it."


_JUDGED_OPTIONS = (
    JudgedOption(
        names=frozenset({"ro"}),
        kind=OptionKind.READ_ONLY,
        claim="is read-only.",
        why="Nothing can be written.",
        command="mount -o remount,rw {mount}",
    ),
    JudgedOption(
        names=NO_BARRIER,
        kind=OptionKind.UNDURABLE,
        claim="does not flush the disk's cache: durability is given up.",
        why="Commits look fast, and a power failure loses them or the file system.",
        # Source: Linux, fs/btrfs/super.c: the option takes no value there. That of ext4 may have one.
        command="mount -o remount,barrier {mount}",
    ),
    JudgedOption(
        names=frozenset({"sync", "dirsync"}),
        kind=OptionKind.COSTLY,
        claim="writes everything at once.",
        why="Each write waits for the disk, also those that PostgreSQL flushes later.",
        command="mount -o remount,async {mount}",
    ),
    JudgedOption(
        names=frozenset({"data=journal"}),
        kind=OptionKind.COSTLY,
        claim="writes all data twice.",
        why="PostgreSQL has a log of its own.",
        command="tune2fs -o journal_data_ordered DEVICE, and mount it again",
    ),
    JudgedOption(
        names=frozenset({_ACCESS_TIMES}),
        kind=OptionKind.COSTLY,
        claim="notes each access to a file.",
        why="Reading becomes writing.",
        command="mount -o remount,noatime {mount}",
    ),
    JudgedOption(
        names=frozenset({"discard"}),
        kind=OptionKind.NOTED,
        claim="discards freed blocks at once.",
        why="Removing large files, such as temporary ones, makes the disk busy while others wait.",
        command="mount -o remount,nodiscard {mount}` and `systemctl enable --now fstrim.timer",
    ),
    # Source: Linux, Documentation/filesystems/ext4.rst, "Data Mode".
    JudgedOption(
        names=frozenset({"data=writeback"}),
        kind=OptionKind.NOTED,
        claim="may show old content of the disk in files that were not flushed before a crash.",
        why="What PostgreSQL flushes is safe. Files that it does not flush, such as logs, and other programs' files are not.",
        command=None,
    ),
)


def split_mount_name(name: str) -> tuple[str, str] | None:
    """Split the name of a mount option, such as `mount:/mnt/data:commit`, into mount point and option; None for other names."""
    found = _NAME.fullmatch(name)
    return None if found is None else (found["folder"], found["option"])


def judge_mount_options(options: str, filesystem: str | None) -> tuple[JudgedOption, ...]:
    """Judge mount options as in fstab or /proc/mounts; a path without any, such as an unknown one, gives none.

    Args:
        options: Options, separated by commas.
        filesystem: Type of the file system; None: nothing is said of access times, as for options that are declared,
            where the kernel's default holds.
    """
    there = {option.strip() for option in options.split(",")} - {""}
    if there and filesystem in _WITH_ACCESS_TIMES and not there & _NO_ACCESS_TIMES:
        there.add(_ACCESS_TIMES)
    return tuple(
        msgspec.structs.replace(judged, seen=tuple(sorted(seen)))
        for judged in _JUDGED_OPTIONS
        if (seen := there & judged.names)
    )
