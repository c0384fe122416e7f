"""Plan how settings are applied: what each file will hold, and what the journal needs to undo everything.

This module reads the present state, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from pgdyno.errors import HostError
from pgdyno.run.change import sysctl, sysfs
from pgdyno.run.change.boot_files import BootFile, plan_boot_files
from pgdyno.run.change.changes import (
    AppliedTuning,
    Change,
    ChangeKind,
    FileChange,
    SavedFile,
    ServerChange,
    TuningState,
    begin_change,
)
from pgdyno.run.change.kept_file import FileCopy, read_copy
from pgdyno.run.change.kernel import with_partners
from pgdyno.run.change.named_server import NamedServer
from pgdyno.run.change.prepare_apply import Prepared
from pgdyno.run.change.server_conf import NAME, put_settings
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.process_id import this_process

_Change = TypeVar("_Change", Change, FileChange, ServerChange)


class FileStep(msgspec.Struct, frozen=True, kw_only=True):
    """The replacement of one file."""

    path: Path
    uid: int
    old: FileCopy | None
    new: FileCopy


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that will be done, and the resulting tuning."""

    tuning: AppliedTuning
    files: tuple[FileStep, ...]
    boot_files: tuple[BootFile, ...]
    """The files that set kernel settings again at each boot."""
    sysctls: dict[str, str]

    def load(self, saved: SavedFile) -> FileCopy:
        """Return the file before the change."""
        return next(file.old for file in self.files if file.old is not None and file.old.saved == saved)


def plan_steps(prepared: Prepared, previous: AppliedTuning | None, *, may_restart: bool) -> Steps:
    """Plan the steps that apply the prepared settings to the present state.

    Args:
        prepared: The result of a recent `prepare_apply`.
        previous: Earlier tunings that are in force.
        may_restart: Whether the server may be restarted, now and when this is undone.

    Raises:
        HostError: A file or setting can no longer be read, or has changed since the preparation.
    """
    _check_unmoved(prepared)
    sysctls = with_partners(prepared.sysctls)
    kernel = (*map(_begin_sysctl, sysctls, sysctls.values()), *_begin_sysfs(prepared.sysfs))
    conf = _plan_conf(prepared)
    boot_files = tuple(
        plan_boot_files(
            prepared.etc,
            previous.kernel if previous else (),
            sysctls=prepared.sysctls,
            sysfs_values=prepared.sysfs,
        )
    )
    at_boot = [_plan_boot_file(file) for file in boot_files]
    tuning = AppliedTuning(
        state=TuningState.APPLYING,
        owner=this_process(),
        at=local_now().isoformat(timespec="seconds"),
        may_restart=may_restart,
        kernel=kernel,
        files=tuple(
            FileChange(what=str(file.path), old=file.old.saved if file.old else None, new_sha256s=(file.new.sha256,))
            for file in at_boot
        ),
        servers=tuple(_server_change(prepared.server, prepared, file) for file in conf if prepared.server),
    )
    return Steps(tuning=tuning, files=(*at_boot, *conf), boot_files=boot_files, sysctls=sysctls)


def _check_unmoved(prepared: Prepared) -> None:
    # Any amount of time may pass between the preparation and the user's confirmation.
    now = prepared.server.postmaster() if prepared.server else None
    before = prepared.running.postmaster if prepared.running else None
    if (now.id if now else None) != (before.id if before else None):
        raise HostError("the server was started or stopped meanwhile", hint="try again")


def _plan_conf(prepared: Prepared) -> list[FileStep]:
    server = prepared.server
    if server is None:
        return []
    path = server.path / NAME
    old = read_copy(path, uid=server.uid)
    if old != prepared.conf:
        raise HostError(f"another program has changed {path} meanwhile", hint="try again")
    content = put_settings(old.content if old else None, prepared.settings)
    gid = server.path.stat().st_gid
    new = msgspec.structs.replace(old or FileCopy(content=b"", uid=server.uid, gid=gid, mode=0o600), content=content)
    return [FileStep(path=path, uid=server.uid, old=old, new=new)]


def _plan_boot_file(file: BootFile) -> FileStep:
    new = FileCopy(content=file.content, uid=0, gid=0, mode=0o644)
    return FileStep(path=file.path, uid=0, old=read_copy(file.path, uid=0), new=new)


def _server_change(server: NamedServer, prepared: Prepared, file: FileStep) -> ServerChange:
    running = prepared.running
    return ServerChange(
        what=str(server.path),
        uid=server.uid,
        mount_point=str(next(folder for folder in (server.path, *server.path.parents) if folder.is_mount())),
        old=file.old.saved if file.old else None,
        settings={name: (value,) for name, value in prepared.settings.items()},
        bindir=str(server.bindir),
        postmaster=running.postmaster.id if running else None,
        starter=running.origin.starter if running else None,
    )


def _begin_sysctl(name: str, value: str) -> Change:
    namespace = sysctl.find_namespace(name)
    change = begin_change(kind=ChangeKind.SYSCTL, what=name, namespace=namespace, old_value=sysctl.read_value(name))
    return msgspec.structs.replace(change, new_values=(value,))


def _begin_sysfs(values: Mapping[str, str]) -> list[Change]:
    reset = (other for name in values for other in sysfs.reset_with(name) if other not in values)
    wanted: dict[str, tuple[str, ...]] = {name: (value,) for name, value in values.items()}
    wanted |= dict.fromkeys(reset, ())
    return [
        msgspec.structs.replace(
            begin_change(kind=ChangeKind.SYSFS, what=name, namespace=None, old_value=sysfs.read_value(name)),
            new_values=new_values,
        )
        for name, new_values in wanted.items()
    ]


def merge_tunings(previous: AppliedTuning | None, fresh: AppliedTuning) -> AppliedTuning:
    """Combine two tunings into one whose undoing restores the state before the first."""
    if previous is None:
        return fresh
    return msgspec.structs.replace(
        fresh,
        kernel=_merge(previous.kernel, fresh.kernel, _merge_kernel),
        files=_merge(previous.files, fresh.files, _merge_files),
        servers=_merge(previous.servers, fresh.servers, _merge_servers),
    )


def _merge(
    first: Sequence[_Change], second: Sequence[_Change], merge: Callable[[_Change, _Change], _Change]
) -> tuple[_Change, ...]:
    merged = {change.what: change for change in first}
    for change in second:
        merged[change.what] = merge(merged[change.what], change) if change.what in merged else change
    return tuple(merged.values())


def _merge_kernel(first: Change, second: Change) -> Change:
    is_lasting = first.kind is not ChangeKind.SYSFS or sysfs.is_same_after_boot(first.what)
    if not is_lasting and first.owner.boot_id != second.owner.boot_id:
        return second
    new_values = _join(first.new_values, second.new_values)
    return msgspec.structs.replace(second, old_value=first.old_value, new_values=new_values)


def _merge_files(first: FileChange, second: FileChange) -> FileChange:
    return msgspec.structs.replace(second, old=first.old, new_sha256s=_join(first.new_sha256s, second.new_sha256s))


def _merge_servers(first: ServerChange, second: ServerChange) -> ServerChange:
    joined = {name: _join(first.settings.get(name, ()), values) for name, values in second.settings.items()}
    old = second.old if first.is_put_back else first.old
    return msgspec.structs.replace(second, old=old, settings={**first.settings, **joined})


def _join(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Return each value once, the newest last."""
    return (*(value for value in first if value not in second), *second)
