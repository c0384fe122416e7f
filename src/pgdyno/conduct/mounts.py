"""Make sure that a study remounts only file systems of its own, and ask first where other files lie on one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pgdyno.conduct.ui import Ui
from pgdyno.errors import InterruptedStudyError, SpecError
from pgdyno.plan.variants import list_specs
from pgdyno.run.change.mount_option import find_folder, is_barrier, is_known
from pgdyno.run.cluster.home_mark import is_made_in_home
from pgdyno.run.cluster.wal_home import WAL_LOCK
from pgdyno.run.host.facts import read_mount_words
from pgdyno.spec.study import Study

_HARMLESS = frozenset({"lost+found", WAL_LOCK})
_MOST_NAMED = 5


def check_mounts(study: Study, own: Iterable[Path], ui: Ui) -> None:
    """Ask before varying the options of a mount that holds more than pgdyno's own folders.

    Args:
        study: The study.
        own: The folders of its clusters and of their pg_wal.
        ui: Asks the user.

    Raises:
        SpecError: Nothing of the study lies on a file system whose options it varies, or other files lie on one whose
            barriers it varies.
        InterruptedStudyError: The user does not want it.
    """
    names = {name for spec, _ in (list_specs(study) if study.is_comparison else ()) for name in spec.sysctl}
    folders = [path.resolve() for path in own]
    for mount in sorted({find_folder(name) for name in names if is_known(name)}):
        here = [folder for folder in folders if _find_mount(folder) == mount]
        if not here:
            raise SpecError(
                f"nothing of this study lies on {mount}",
                hint="name the mount point of the file system that holds pgdyno's home (--home) or its --wal-home",
            )
        others = [*sorted(set(_list_others(mount, here))), *_list_other_mounts(mount)]
        named = ", ".join([*others[:_MOST_NAMED], *(["…"] if len(others) > _MOST_NAMED else [])])
        if others and any(is_barrier(name) and find_folder(name) == mount for name in names):
            raise SpecError(
                f"pgdyno does not vary the barriers of {mount}, because other files lie there",
                detail=f"a power failure could damage {named} as well",
                hint="give pgdyno's home a file system of its own (--home)",
            )
        if others and not ui.confirm(
            f"Trials will remount {mount} with other options, and it also holds {named}. Continue?",
            default=False,
        ):
            raise InterruptedStudyError("not started")


def _find_mount(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if os.path.ismount(one))


def _list_other_mounts(mount: Path) -> Iterator[str]:
    """Yield the other mount points of a file system: most options hold for all mounts of a file system."""
    words = read_mount_words()
    devices = {one[2] for one in words if one[4] == str(mount)}
    yield from (one[4] for one in words if one[2] in devices and one[4] != str(mount))


def _list_others(mount: Path, own: Sequence[Path]) -> Iterator[str]:
    """Yield what others have on a file system: beside a study's folders, from the mount point down to them.

    In a home that is the mount point, all that pgdyno does not make there is of others.
    """
    outer = [folder for folder in own if not any(one in folder.parents for one in own)]
    above = {mount, *(parent for folder in outer for parent in folder.parents if parent.is_relative_to(mount))}
    for parent in above:
        for path in parent.iterdir():
            is_own = path in own or (parent in own and is_made_in_home(path.name))
            if path not in above and not is_own and path.name not in _HARMLESS:
                yield str(path)
