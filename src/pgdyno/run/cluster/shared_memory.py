"""Free the shared memory that a killed PostgreSQL server leaves behind, which would stay until the next boot.

The server's main segment names the one that lists all others (`dynamic_shared_memory_type`), which are files below
/dev/shm or System V segments; those of type mmap lie in the data folder. Nothing is removed that belongs to another
account, that does not have PostgreSQL's format, or whose main segment another server has made: ids are used again.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from pathlib import Path

import msgspec

from pgdyno.run.host import process
from pgdyno.run.host.process import ServerUser

_SEGMENT_DIR = Path("/dev/shm")  # noqa: S108 - PostgreSQL's own place
_SYSTEM_V_LIST = Path("/proc/sysvipc/shm")
# Source: PGShmemHeader in src/include/storage/pg_shmem.h, the same in versions 15 to 18 where pointers have 64 bits: magic,
# creator's pid, total size, free offset, dsm_control, index, and the data folder's device and inode.
_SHMEM_HEADER = struct.Struct("=iiQQI4xQQQ")
_SHMEM_MAGIC = 679834894
# Source: Linux shmat(2), include/uapi/linux/shm.h.
_SHM_RDONLY = 0o10000
# Source: dsm_control_header and dsm_control_item in src/backend/storage/ipc/dsm.c, the same in versions 15 to 18 where
# pointers have 64 bits: magic, nitems, maxitems, padding; handle, refcnt, first_page, npages, private handle, pinned.
_DSM_HEADER = struct.Struct("=III4x")
_DSM_MAGIC = 0x9A503D32
_DSM_ITEM = struct.Struct("=IIQQQ?7x")


class _SystemV(msgspec.Struct, frozen=True, kw_only=True):
    """A System V segment. Source: proc_sysvipc_shm(5)."""

    key: int
    id: int
    size_bytes: int
    attached_count: int
    uid: int


def free_shared_memory(data_dir: Path, user: ServerUser) -> None:
    """Free the memory that an ended server of `user` on `data_dir` has left; do nothing after a clean shutdown."""
    # In a clean shutdown a server removes postmaster.pid after its shared memory.
    try:
        lines = (data_dir / "postmaster.pid").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    if len(lines) < 7 or len(fields := lines[6].split()) != 2:
        return
    main_id = int(fields[1])
    main = _read_system_v(main_id, _SHMEM_HEADER.size)
    if not _is_made_by(main, lines[0], data_dir) or _is_attached(main_id):
        return
    control = _parse_control(main)
    if control is not None:
        # All segments are of one type; a file's handle says nothing about System V keys.
        is_posix = _segment_path(control).exists()
        segments = {} if is_posix else {one.key: one for one in _list_system_v() if one.uid == user.uid}
        for handle in (*_parse_handles(_read_segment(control, segments)), control):
            _remove_segment(handle, segments, user)
    _remove_system_v(main_id, user)


def _list_system_v() -> list[_SystemV]:
    try:
        lines = _SYSTEM_V_LIST.read_text(encoding="utf-8").splitlines()[1:]
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [
        _SystemV(key=int(row[0]), id=int(row[1]), size_bytes=int(row[3]), attached_count=int(row[6]), uid=int(row[7]))
        for row in rows
    ]


def _is_attached(segment_id: int) -> bool:
    return any(one.id == segment_id and one.attached_count > 0 for one in _list_system_v())


def _segment_path(handle: int) -> Path:
    return _SEGMENT_DIR / f"PostgreSQL.{handle}"


def _key_of(handle: int) -> int:
    # Source: dsm_impl_sysv in src/backend/storage/ipc/dsm_impl.c: the handle as a signed key, made positive.
    signed = handle - (1 << 32) if handle >= 1 << 31 else handle
    return abs(signed)


def _read_segment(handle: int, system_v: dict[int, _SystemV]) -> bytes:
    with contextlib.suppress(OSError):
        return _segment_path(handle).read_bytes()
    segment = system_v.get(_key_of(handle))
    return b"" if segment is None else _read_system_v(segment.id, segment.size_bytes)


def _remove_segment(handle: int, system_v: dict[int, _SystemV], user: ServerUser) -> None:
    path = _segment_path(handle)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_uid == user.uid:
            path.unlink()
    segment = system_v.get(_key_of(handle))
    if segment is not None:
        _remove_system_v(segment.id, user)


def _remove_system_v(segment_id: int, user: ServerUser) -> None:
    # The command runs as the server's user, who can remove no other account's segments; it fails harmlessly if the
    # segment is gone.
    process.run(["ipcrm", "-m", str(segment_id)], user=user)


def _read_system_v(segment_id: int, size_bytes: int) -> bytes:
    """Read the beginning of a segment; empty if it is missing, or not readable for this account."""
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
    libc.shmdt.argtypes = (ctypes.c_void_p,)
    address = libc.shmat(segment_id, None, _SHM_RDONLY)
    if address in {None, ctypes.c_void_p(-1).value}:
        return b""
    try:
        return ctypes.string_at(address, size_bytes)
    finally:
        libc.shmdt(address)


def _is_made_by(main: bytes, pid: str, data_dir: Path) -> bool:
    """Return whether a main segment is that of a data folder's server, whose pid is as in the first line of postmaster.pid."""
    if len(main) < _SHMEM_HEADER.size:
        return False
    magic, creator, total_bytes, _, _, _, device, inode = _SHMEM_HEADER.unpack_from(main)
    facts = data_dir.stat()
    if (device, inode) != (facts.st_dev, facts.st_ino):
        return False
    # Source: CreateLockFile() in src/backend/utils/init/miscinit.c: a server without a postmaster writes a negative one.
    return magic == _SHMEM_MAGIC and total_bytes >= _SHMEM_HEADER.size and str(creator) == pid.strip().lstrip("-")


def _parse_control(main: bytes) -> int | None:
    """Parse a server's main segment into the handle of the segment that lists all others; None if there is none."""
    control: int = _SHMEM_HEADER.unpack_from(main)[4]
    return control or None


def _parse_handles(content: bytes) -> list[int]:
    """Parse a control segment into the handles of segments in use, except those within the main shared memory."""
    if len(content) < _DSM_HEADER.size:
        return []
    magic, item_count, _ = _DSM_HEADER.unpack_from(content)
    room_count = (len(content) - _DSM_HEADER.size) // _DSM_ITEM.size
    if magic != _DSM_MAGIC or item_count > room_count:
        return []
    end = _DSM_HEADER.size + item_count * _DSM_ITEM.size
    items = _DSM_ITEM.iter_unpack(content[_DSM_HEADER.size : end])
    # Source: dsm.c, is_main_region_dsm_handle: odd handles.
    return [handle for handle, reference_count, *_ in items if reference_count > 0 and handle % 2 == 0]
