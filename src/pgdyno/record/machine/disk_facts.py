"""Describe a file system and the device below it as the kernel reports them.

Values are raw, in the kernel's own units. Nothing here is judged or measured: what a disk can do is in its disk card.
"""

from __future__ import annotations

import msgspec

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_REMOTE = ("nfs", "cifs", "smb", "9p", "fuse", "virtiofs", "ceph", "gluster", "lustre", "afs", "gfs", "ocfs")


class DiskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The file system that holds a folder, and the block device below it."""

    path: str
    device: str = ""
    """Name in the mount table, such as /dev/nvme1n1; older records have an empty name for the WAL's device."""
    block_device: str | None
    """Kernel name of the whole device, such as nvme1n1; None without one of its own (tmpfs, overlay, ZFS, btrfs on several)."""
    filesystem: str
    mount_options: str = ""
    """Empty only in older records: a mounted file system is at least `rw` or `ro`."""
    size_bytes: int
    free_bytes: int
    scheduler: str | None = None
    is_rotational: bool | None = None
    read_ahead_kb: int | None = None
    write_cache: str | None = None
    """`write back` if the kernel sends flushes to the device, `write through` if it needs none; None in older records."""

    @property
    def is_known(self) -> bool:
        """False if the file system could not be found out."""
        return bool(self.filesystem)

    @property
    def shown_device(self) -> str:
        """Name of the whole device where there is one, else its name in the mount table."""
        return self.block_device or self.device

    @property
    def lasting_size_bytes(self) -> int | None:
        """The size where a file system has one of its own; None of ZFS, whose pool's other data change it."""
        return None if self.filesystem == "zfs" else self.size_bytes

    @property
    def is_in_memory(self) -> bool:
        """True if its contents are lost when the machine stops."""
        return self.filesystem in _IN_MEMORY

    @property
    def needs_flushes(self) -> bool:
        """False if the device says that it has no cache to lose: then no file system sends it flushes."""
        return self.write_cache != "write through"

    @property
    def is_remote(self) -> bool:
        """True if another machine stores it."""
        return self.filesystem.startswith(_REMOTE)


UNKNOWN_DISK = DiskFacts(path="", block_device=None, filesystem="", size_bytes=0, free_bytes=0)
"""The disk of a server's data where its role may not know the folder."""
