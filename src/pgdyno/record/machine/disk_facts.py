"""A file system and the device below it as the machine shows them: of the data, and of a WAL that lies elsewhere.

Raw values in the kernel's own units. Nothing here judges, and nothing is measured: what a disk can do is its card's.
"""

from __future__ import annotations

import msgspec

_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_REMOTE = ("nfs", "cifs", "smb", "9p", "fuse", "virtiofs", "ceph", "gluster", "lustre", "afs", "gfs", "ocfs")


class DiskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The file system that holds a folder, and the block device below it."""

    path: str
    device: str = ""
    """As the mount table names it, such as /dev/nvme1n1; empty of a WAL's in records from before it was noted."""
    block_device: str | None
    """The whole device's kernel name, such as nvme1n1; None where there is none (tmpfs, overlay)."""
    filesystem: str
    mount_options: str = ""
    """Never empty where they were noted: a file system is at least `rw` or `ro`."""
    size_bytes: int
    free_bytes: int
    scheduler: str | None = None
    is_rotational: bool | None = None
    read_ahead_kb: int | None = None

    @property
    def shown_device(self) -> str:
        """The whole device where there is one, else as the mount table names it."""
        return self.block_device or self.device

    @property
    def is_in_memory(self) -> bool:
        """Whether nothing of it outlives the machine."""
        return self.filesystem in _IN_MEMORY

    @property
    def is_remote(self) -> bool:
        """Whether another machine keeps it."""
        return self.filesystem.startswith(_REMOTE)
