"""Bring the working cluster to the state that a trial begins with, by the restoring policy of its study."""

from __future__ import annotations

import contextlib
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from pgdyno.errors import StepFailedError
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.restore_command import restore_by_command
from pgdyno.run.cluster.template import Template, copy_files, remove_folder
from pgdyno.run.cluster.wal_home import WAL_FOLDER
from pgdyno.run.host import process
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.process import ServerUser
from pgdyno.run.postgres.hints import hint_for
from pgdyno.spec.study import DataSpec, RestorePolicy
from pgdyno.units import format_bytes

_TELL_EVERY_S = 1.0


def restore_cluster(
    template: Template, home: Home, data: DataSpec, *, on_activity: Callable[[str], None] = lambda _: None
) -> float:
    """Bring the home's working cluster to the state that a trial begins with, and return the seconds that it took.

    Args:
        template: What the trials' clusters are copies of.
        home: The home of the working cluster.
        data: The study's data, with its restoring policy.
        on_activity: Receives about every second how far a copy is.

    Raises:
        StepFailedError: Copying failed, or the restore command did.
        HostError: The last trial's folder cannot be removed, or the restore command cannot be started.
    """
    if data.restore_command is not None:
        return _restore_by_command(template, home, data.restore_command)
    if data.restore is RestorePolicy.NONE and home.aged_from == template.data_dir:
        began_s = monotonic_s()
        _flush(home)
        return monotonic_s() - began_s
    return restore_template(template, home, on_activity=on_activity)


def _restore_by_command(template: Template, home: Home, command: str) -> float:
    began_s = monotonic_s()
    restore_by_command(command, template=template.data_dir, home=home)
    if home.wal is not None:
        _restore_wal(template, home, home.wal)
    _flush(home)
    return monotonic_s() - began_s


def restore_template(template: Template, home: Home, *, on_activity: Callable[[str], None] = lambda _: None) -> float:
    """Make the home's working cluster a copy of a template, flush it to disk, and return the seconds it took.

    If an earlier trial left a working cluster, only the differences are written; otherwise the template is copied.
    Copies share no blocks with the template, even if the file system supports that (reflink): the first write to each
    shared page would be slower than normal. In a home with a WAL home, pg_wal is restored there, and the cluster has a link.

    Raises:
        StepFailedError: Copying failed, for example for want of space.
        HostError: The last trial's folder cannot be removed.
    """
    began_s = monotonic_s()
    without = None if home.wal is None else WAL_FOLDER
    done = _CopyProgress(template.dataset.total_bytes, on_activity)
    _restore(home.user, template.data_dir, home.data, without=without, on_bytes=done.add)
    if home.wal is not None:
        _restore_wal(template, home, home.wal)
    _flush(home)
    return monotonic_s() - began_s


def _restore_wal(template: Template, home: Home, wal: Path) -> None:
    _restore(home.user, template.data_dir / WAL_FOLDER, wal)
    _link_wal(home.user, home.data / WAL_FOLDER, wal)


def _flush(home: Home) -> None:
    """Write the working cluster to disk: write-back of what the last trial or the copy wrote must end before the load begins."""
    for folder in home.cluster_folders:
        copy_files(["sync", "--file-system", str(folder)])


class _CopyProgress:
    """Tells about every second how far a copy is."""

    def __init__(self, total_bytes: int, on_activity: Callable[[str], None]) -> None:
        self._total = format_bytes(total_bytes)
        self._on_activity = on_activity
        self._done_bytes = 0
        self._told_s = monotonic_s()

    def add(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        if monotonic_s() - self._told_s >= _TELL_EVERY_S:
            self._told_s = monotonic_s()
            self._on_activity(f"restoring: {format_bytes(self._done_bytes)} of about {self._total}")


def _restore(
    user: ServerUser,
    source: Path,
    target: Path,
    *,
    without: str | None = None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> None:
    """Make a folder a copy of another; the entry `without` of a copy that is there may stay as it is."""
    if not _may_write_over(user, source, target):
        remove_folder(target)
        if source.lstat().st_uid != user.uid:
            # The template belongs to the account that loaded it, which may be another one.
            copy_files(["cp", "--archive", "--reflink=never", "--no-target-directory", str(source), str(target)])
            copy_files(["chown", "--recursive", "--no-dereference", f"{user.uid}:{user.gid}", str(target)])
            return
        without = None
    # The import brings numpy.
    from pgdyno.run.cluster.mirror import mirror_folder  # noqa: PLC0415

    def mirror() -> None:
        target.mkdir(mode=0o700, exist_ok=True)
        mirror_folder(source, target, without=without, on_bytes=on_bytes)

    with _restoring():
        # The cluster's account could put a link there, which root must not follow to a place that the account cannot
        # reach.
        process.call_as(user, mirror)


def _link_wal(user: ServerUser, place: Path, wal: Path) -> None:
    """Make pg_wal of a cluster a link to its folder on the other disk."""

    def link() -> None:
        if place.is_symlink() and place.readlink() == wal:
            return
        if place.is_symlink():
            place.unlink()
        else:
            shutil.rmtree(place)
        place.symlink_to(wal)

    with _restoring():
        process.call_as(user, link)


def _may_write_over(user: ServerUser, source: Path, target: Path) -> bool:
    """Return whether both folders belong to this account, so that it may read the one and write the other."""
    try:
        found = [path.lstat() for path in (source, target)]
    except FileNotFoundError:
        return False
    return all(stat.S_ISDIR(one.st_mode) and one.st_uid == user.uid for one in found)


@contextlib.contextmanager
def _restoring() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StepFailedError("cannot restore the loaded cluster", detail=str(exc), hint=hint_for(str(exc))) from exc
