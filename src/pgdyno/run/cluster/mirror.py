"""Make a folder a copy of another again, by writing only what has changed since the last copy.

A trial changes a part of its cluster. Removing and copying everything takes longer than many a trial, and gives every
file a new place on the disk; overwriting leaves the blocks where they are.

A file with the size and modification time of its source counts as unchanged, as with rsync: any write to a file changes
its time, and a file gets its source's time only after its last byte. All other files are compared page by page. This
handles folders, files and symbolic links, of which a cluster consists, and refuses anything else.

Large files are read ahead of the comparison, and two of them at a time: one reader alone leaves most disks idle. Blocks are never shared
(no reflink, no copy_file_range): the first write to a shared block is slower than others, and trials would measure that.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pgdyno.units import PAGE_BYTES

Bytes = NDArray[np.uint8]

READERS = 2
"""Large files that are read at the same time."""
AHEAD_BYTES = 32 * 1024**2
"""What the kernel is asked for ahead of what is compared, of each file; 0: what it reads ahead by itself."""
_CHUNK_BYTES = 4 * 1024**2
# Smaller files are done before a thread has started.
_LARGE_BYTES = 8 * 1024**2
_TELL_EVERY_S = 0.5
# Changed pages closer than this are written in one piece: a disk does that faster than two small writes.
_GAP_PAGES = 8

_OnBytes = Callable[[int], None]
_Job = Callable[[_OnBytes], int]


class _StoppedError(Exception):
    """Ends a thread whose part of the copy is no longer wanted."""


def mirror_folder(
    source: Path, target: Path, *, without: str | None = None, on_bytes: _OnBytes = lambda _: None
) -> int:
    """Give `target` the contents, modes and modification times of `source`.

    No process may write to either folder meanwhile.

    Args:
        source: A folder.
        target: An existing folder. New files in it belong to the calling account.
        without: The name of an entry that is left as it is in `target`; None: nothing is.
        on_bytes: Receives the size of each part of a source file that is done, in the calling thread.

    Returns:
        The number of bytes that were written.

    Raises:
        OSError: A file cannot be read or written, for want of space say. What was done stays, and a further call can
            complete it.
    """
    written, large = 0, []
    for size, job in _list_jobs(source, target, without):
        if size >= _LARGE_BYTES:
            large.append(job)
        else:
            written += job(on_bytes)
    return written + (_run_together(large, on_bytes) if large else 0)


def _list_jobs(source: Path, target: Path, without: str | None = None) -> Iterator[tuple[int, _Job]]:
    """Make the folders and links of `source` in `target`, remove what is not there, and yield size and work of each file."""
    wanted, found = _list(source, without), {entry.name: entry for entry in _list(target, without)}
    for stray in found.keys() - {entry.name for entry in wanted}:
        _remove(found.pop(stray))
    for entry in wanted:
        place, other = target / entry.name, found.get(entry.name)
        kind = _kind_of(entry)
        if other is not None and (_kind_of(other) != kind or (kind == stat.S_IFLNK and _differ(entry, other))):
            _remove(other)
            other = None
        size = entry.stat(follow_symlinks=False).st_size
        if kind == stat.S_IFDIR:
            if other is None:
                place.mkdir()
                shutil.copymode(entry.path, place)
            yield from _list_jobs(Path(entry.path), place)
        elif other is None:
            yield size, functools.partial(_copy_file, entry, place)
        elif kind == stat.S_IFREG:
            yield size, functools.partial(_mirror_file, entry, other)


def _run_together(jobs: Sequence[_Job], on_bytes: _OnBytes) -> int:
    """Run jobs in threads, and return the sum of their results; the first failure, or Ctrl-C, ends them all."""
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    is_over = threading.Event()

    def count(size: int) -> None:
        if is_over.is_set():
            raise _StoppedError
        done.put(size)

    with ThreadPoolExecutor(READERS, thread_name_prefix="mirror") as pool:
        futures = [pool.submit(job, count) for job in jobs]
        try:
            pending: set[Future[int]] = set(futures)
            while pending:
                ended, pending = wait(pending, timeout=_TELL_EVERY_S, return_when=FIRST_COMPLETED)
                for future in ended:
                    future.result()
                with contextlib.suppress(queue.Empty):
                    while True:
                        on_bytes(done.get_nowait())
        except BaseException:
            is_over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return sum(future.result() for future in futures)


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


def _copy_file(source: os.DirEntry[str], place: Path, on_bytes: _OnBytes) -> int:
    """Copy a file or a link that is not there yet, and return its bytes."""
    known = source.stat(follow_symlinks=False)
    if source.is_symlink():
        shutil.copy2(source.path, place, follow_symlinks=False)
        on_bytes(known.st_size)
        return known.st_size
    offset = 0
    with Path(source.path).open("rb", buffering=0) as old, place.open("xb", buffering=0) as new:
        # A cluster has a thousand small files, which shutil.copy2 takes twice the time for.
        ahead = _ReadAhead(old.fileno()) if known.st_size >= _LARGE_BYTES else None
        while True:
            if ahead is not None:
                ahead.move_to(offset)
            count = os.sendfile(new.fileno(), old.fileno(), offset, _CHUNK_BYTES)
            if not count:
                break
            offset += count
            on_bytes(count)
        os.fchmod(new.fileno(), stat.S_IMODE(known.st_mode))
        os.utime(new.fileno(), ns=(known.st_atime_ns, known.st_mtime_ns))
    return offset


def _mirror_file(source: os.DirEntry[str], target: os.DirEntry[str], on_bytes: _OnBytes) -> int:
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


class _ReadAhead:
    """Has the kernel read a file's next part while the one before it is used."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._asked = 0

    def move_to(self, offset: int) -> None:
        """Ask for what follows an offset."""
        while self._asked < offset + AHEAD_BYTES:
            os.posix_fadvise(self._file, self._asked, _CHUNK_BYTES, os.POSIX_FADV_WILLNEED)
            self._asked += _CHUNK_BYTES


def _write_changes(new: int, old: int, on_bytes: _OnBytes) -> int:
    """Write to the old file the pages that differ from the new one, and return their bytes.

    The old file must not be the longer one.
    """
    # Most files of a cluster are small: to fill two whole chunks with zeros would take longer than all the rest.
    total = os.fstat(new).st_size
    room = min(_CHUNK_BYTES, total)
    wanted, there = bytearray(room), bytearray(room)
    ahead = [_ReadAhead(file) for file in (new, old)] if total >= _LARGE_BYTES else []
    offset = written = 0
    while True:
        for one in ahead:
            one.move_to(offset)
        size = os.preadv(new, [wanted], offset)
        if not size:
            return written
        known = os.preadv(old, [memoryview(there)[:size]], offset)
        parts = (np.frombuffer(part, np.uint8, count) for part, count in ((wanted, size), (there, known)))
        for begin, end in _find_changes(*parts):
            _write_all(old, memoryview(wanted)[begin:end], offset + begin)
            written += end - begin
        offset += size
        on_bytes(size)


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
