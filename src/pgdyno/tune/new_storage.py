"""Decide how the declared disks of a machine are made into file systems, by the same rules as the advice of `tune`."""

from __future__ import annotations

import re

import msgspec

from pgdyno.errors import SpecError
from pgdyno.facts.mount_options import JudgedOption, judge_mount_options
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.tune.hosts import make_shape
from pgdyno.tune.rules.storage import (
    MOUNT_OPTION,
    READ_AHEAD_STOCK_KB,
    SCHEDULERS,
    advise_chunk_kb,
    compute_read_ahead_kb,
    format_mkfs_options,
)
from pgdyno.tune.types import Disk

_FILESYSTEMS = ("xfs", "ext4")
# Options of access times, of which a file system has one. Source: Linux, mount(8).
_ACCESS_TIMES = frozenset({"atime", "noatime", "relatime", "norelatime", "strictatime", "nostrictatime"})
# Options, without their values, that the other file system refuses, so that mount fails. XFS has taken neither word for
# barriers since Linux 4.19. Source: ext4(5); xfs(5); each was tried on both file systems of Linux 6.18.
_OWN_OPTIONS = {
    "ext4": frozenset({
        "acl", "user_xattr", "auto_da_alloc", "noauto_da_alloc", "barrier", "nobarrier", "block_validity", "commit",
        "data", "data_err", "delalloc", "nodelalloc", "dioread_lock", "dioread_nolock", "errors", "init_itable",
        "inode_readahead_blks", "journal_checksum", "max_batch_time", "min_batch_time", "noload", "resuid", "stripe",
    }),
    "xfs": frozenset({
        "allocsize", "attr2", "filestreams", "ikeep", "noikeep", "inode32", "inode64", "largeio", "nolargeio",
        "logbsize", "logbufs", "noalign", "nouuid", "sunit", "swalloc", "swidth", "wsync",
    }),
}  # fmt: skip
# Whatever else is in a mount option could end the word in a shell or in fstab.
_MOUNT_OPTIONS = re.compile(r"[A-Za-z0-9_.,:=/+-]*")


class NewFileSystem(msgspec.Struct, frozen=True, kw_only=True):
    """A file system that is to be made on new disks."""

    role: str
    """Its use: `data` or `wal`."""
    declared: DiskSpec
    filesystem: str
    """`xfs` or `ext4`."""
    chunk_kb: int | None
    """Chunk of the array or of LVM's stripes; None where there is none."""
    mkfs_options: str
    """Options of mkfs that align it with the array; empty where there is no stripe."""
    mount_options: str
    judged: tuple[JudgedOption, ...]
    """What the declared mount options do, where it is worth knowing."""
    scheduler: str | None
    """Scheduler of each disk; None: each keeps its own."""
    read_ahead_kb: int | None
    """Read-ahead of the file system's device; None: the kernel's own is enough."""


def plan_file_systems(host: HostSpec) -> tuple[NewFileSystem, ...]:
    """Decide how the declared disks are made: the data's first, then the WAL's if it has one.

    Raises:
        SpecError: No disk of the data is declared, or a file system that cannot be made or mounted as declared.
    """
    if host.disk is None:
        raise SpecError(
            "the host declares no disk of the data, so there is nothing to make",
            hint="name a host file with a table [disk]: `pgdyno studies hosts/template` shows every key",
        )
    shape = make_shape(host)
    declared = (("data", host.disk, shape.disk), ("wal", host.wal_disk, shape.wal_disk))
    return tuple(_plan(role, spec, disk) for role, spec, disk in declared if spec is not None and disk is not None)


def _plan(role: str, spec: DiskSpec, disk: Disk) -> NewFileSystem:
    filesystem = spec.filesystem or _FILESYSTEMS[0]
    if filesystem not in _FILESYSTEMS:
        raise SpecError(
            f"filesystem {filesystem} of the {role}: commands are known of {' and '.join(_FILESYSTEMS)} only",
            hint="declare one of them, or make this one by hand",
        )
    declared = spec.mount_options or ""
    if not _MOUNT_OPTIONS.fullmatch(declared):
        raise SpecError(
            f"mount_options {declared!r} of the {role} are no options of fstab", hint='for example "noatime"'
        )
    _check_own_options(role, declared, filesystem)
    array = next((one for one in disk.devices if one.data_disks > 1), None)
    chunk_kb = None if array is None else advise_chunk_kb(array)
    others = [one for one in declared.split(",") if one and one not in _ACCESS_TIMES]
    read_ahead_kb = compute_read_ahead_kb(disk)
    return NewFileSystem(
        role=role,
        declared=spec,
        filesystem=filesystem,
        chunk_kb=chunk_kb,
        mkfs_options=""
        if array is None or chunk_kb is None
        else format_mkfs_options(filesystem, chunk_kb=chunk_kb, data_disks=array.data_disks),
        mount_options=",".join((MOUNT_OPTION, *others)),
        judged=judge_mount_options(declared, None),
        scheduler=SCHEDULERS.get(disk.kind),
        read_ahead_kb=read_ahead_kb if read_ahead_kb > READ_AHEAD_STOCK_KB else None,
    )


def _check_own_options(role: str, declared: str, filesystem: str) -> None:
    for option in declared.split(","):
        owner = next((one for one, names in _OWN_OPTIONS.items() if option.partition("=")[0] in names), filesystem)
        if owner != filesystem:
            raise SpecError(
                f"mount_options {option} of the {role}: {filesystem} refuses it, so that mount would fail after the file system"
                " was made",
                hint=f'leave it out, or declare filesystem = "{owner}"',
            )
