"""Say how much WAL a disk has room for."""

from __future__ import annotations

# The limits on WAL are soft, and on a shared disk the data grow, too.
_SHARED_DISK_SHARE, _OWN_DISK_SHARE = 0.25, 0.6


def find_wal_room(free_bytes: float, *, is_shared: bool) -> float:
    """Return how many bytes of WAL may lie on a disk.

    Args:
        free_bytes: The free space of the disk.
        is_shared: Whether the data lie there, too.
    """
    return free_bytes * (_SHARED_DISK_SHARE if is_shared else _OWN_DISK_SHARE)
