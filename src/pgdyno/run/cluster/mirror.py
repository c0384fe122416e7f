"""Make a folder a copy of another again, by writing only what has changed since the last copy.

A trial changes a part of its cluster. Removing and copying everything takes longer than many a trial, and gives every
file a new place on the disk; overwriting leaves the blocks where they are.

A file with the size and modification time of its source counts as unchanged, as with rsync: any write to a file changes
its time, and a file gets its source's time only after its last byte. All other files are compared page by page. This
handles folders, files and symbolic links, of which a cluster consists, and refuses anything else.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pgdyno.units import PAGE_BYTES

Bytes = NDArray[np.uint8]

_CHUNK_BYTES = 4 * 1024**2
# Changed pages closer than this are written in one piece: a disk does that faster than two small writes.
_GAP_PAGES = 8


def mirror_folder(
    source: Path, target: Path, *, without: str | None = None, on_bytes: Callable[[int], None] = lambda _: None
) -> int:
    """Give `target` the contents, modes and modification times of `source`.

    No process may write to either folder meanwhile.

    Args:
        source: A folder.
        target: An existing folder. New files in it belong to the calling account.
        without: The name of an entry that is left as it is in `target`; None: nothing is.
        on_bytes: Receives the size of each part of a source file that is done.

    Returns:
        The number of bytes that were written.

    Raises:
        OSError: A file cannot be read or written, for want of space say. What was done stays, and a further call can
            complete it.
    """
    wanted, found = _list(source, without), {entry.name: entry for entry in _list(target, without)}
    written = 0
    for entry in wanted:
        place, other = target / entry.name, found.pop(entry.name, None)
        kind = _kind_of(entry)
        if other is not None and (_kind_of(other) != kind or (kind == stat.S_IFLNK and _differ(entry, other))):
            _remove(other)
            other = None
        if kind == stat.S_IFDIR:
            if other is None:
                place.mkdir()
                shutil.copymode(entry.path, place)
            written += mirror_folder(Path(entry.path), place, on_bytes=on_bytes)
        elif other is None:
            shutil.copy2(entry.path, place, follow_symlinks=False)
            size = entry.stat(follow_symlinks=False).st_size
            written += size
            on_bytes(size)
        elif kind == stat.S_IFREG:
            written += _mirror_file(entry, other, on_bytes)
    for stray in found.values():
        _remove(stray)
    return written


def _list(folder: Path, without: str | None) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.name != without]


def _kind_of(entry: os.DirEntry[str]) -> int:
    kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    if kind not in {stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK}:
        raise OSError(f"{entry.path} is neither file nor folder")
    return kind


def _differ(link: os.DirEntry[str], other: os.DirEntry[str]) -> bool:
    return Path(link.path).readlink() != Path(other.path).readlink()


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):  # novm - of an os.DirEntry, which has it since 3.5
        shutil.rmtree(entry.path)
    else:
        Path(entry.path).unlink()


def _mirror_file(source: os.DirEntry[str], target: os.DirEntry[str], on_bytes: Callable[[int], None]) -> int:
    wanted, there = source.stat(follow_symlinks=False), target.stat(follow_symlinks=False)
    if stat.S_IMODE(wanted.st_mode) != stat.S_IMODE(there.st_mode):
        shutil.copymode(source.path, target.path)
    if (wanted.st_size, wanted.st_mtime_ns) == (there.st_size, there.st_mtime_ns):
        on_bytes(wanted.st_size)
        return 0
    with Path(source.path).open("rb", buffering=0) as new, Path(target.path).open("r+b", buffering=0) as old:
        if there.st_size > wanted.st_size:
            old.truncate(wanted.st_size)
        written = _write_changes(new.fileno(), old.fileno(), on_bytes)
    os.utime(target.path, ns=(wanted.st_atime_ns, wanted.st_mtime_ns))
    return written


def _write_changes(new: int, old: int, on_bytes: Callable[[int], None]) -> int:
    """Write to the old file the pages that differ from the new one, and return their bytes.

    The old file must not be the longer one.
    """
    # Most files of a cluster are small: to fill two whole chunks with zeros would take longer than all the rest.
    room = min(_CHUNK_BYTES, os.fstat(new).st_size)
    wanted, there = bytearray(room), bytearray(room)
    offset = written = 0
    while size := os.preadv(new, [wanted], offset):
        known = os.preadv(old, [memoryview(there)[:size]], offset)
        parts = (np.frombuffer(part, np.uint8, count) for part, count in ((wanted, size), (there, known)))
        for begin, end in _find_changes(*parts):
            _write_all(old, memoryview(wanted)[begin:end], offset + begin)
            written += end - begin
        offset += size
        on_bytes(size)
    return written


def _find_changes(wanted: Bytes, there: Bytes) -> list[tuple[int, int]]:
    """Return begin and end of each piece to write, in whole pages except for the last."""
    size, whole = len(wanted), len(there) // PAGE_BYTES
    has_changed = np.ones(-(-size // PAGE_BYTES), dtype=np.bool_)
    pages = (part[: whole * PAGE_BYTES].view(np.uint64).reshape(whole, PAGE_BYTES // 8) for part in (wanted, there))
    has_changed[:whole] = np.not_equal(*pages).any(axis=1)
    if len(there) == size:
        # The last page may be incomplete.
        has_changed[whole:] = (wanted[whole * PAGE_BYTES :] != there[whole * PAGE_BYTES :]).any()
    places = np.flatnonzero(has_changed)
    pieces = np.split(places, np.flatnonzero(np.diff(places) > _GAP_PAGES) + 1) if len(places) else []
    return [(int(one[0]) * PAGE_BYTES, min(int(one[-1] + 1) * PAGE_BYTES, size)) for one in pieces]


def _write_all(file: int, content: memoryview, offset: int) -> None:
    while content:
        count = os.pwrite(file, content, offset)
        content, offset = content[count:], offset + count
