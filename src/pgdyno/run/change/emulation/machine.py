"""Emulate the disks and the size of a declared machine on this one, for the length of a block.

Each disk is a file without a name on this machine's disk, attached as a loop device, with a file system that only this process and
its children see. The device is throttled, system calls that wait for it are delayed, CPUs and memory are limited. After the block
nothing of it is left but this process's private view of the mounts; after kill -9 the kernel undoes most of it, and the next pgdyno the rest (ADR 23).

    with emulated(machine, base=Path("/var/lib/pgdyno")) as folders:
        ...  # folders["data"] is on the emulated disk
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, StepFailedError, why
from pgdyno.run.change.changes import EmulationChange, UndoOutcome
from pgdyno.run.change.emulation.groups import Rates, enter_group, plan_groups, throttle
from pgdyno.run.change.emulation.latency import Latency, check_place, delayed, find_compiler
from pgdyno.run.change.emulation.loop import LoopDevice, attach, check_loops, keep_flushes_above
from pgdyno.run.change.emulation.note import EmulationNote, undo_left_emulations
from pgdyno.run.device.scratch import open_scratch
from pgdyno.run.host import process
from pgdyno.run.host.clock import local_now, monotonic_s
from pgdyno.run.host.ctrl_c import uninterrupted
from pgdyno.run.host.process import find_program, make_reachable
from pgdyno.run.host.process_id import this_process
from pgdyno.units import format_bytes

# Source: Linux, include/uapi/linux/sched.h and mount.h.
_NEW_MOUNTS, _RECURSIVE, _PRIVATE = 0x20000, 0x4000, 0x40000
_FILL_BYTES = 8 * 2**20
_MKFS = {
    "xfs": ("-q", "-K"),
    # ext4 would finish its initialisation later, beside the first measurement.
    "ext4": ("-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"),
}
_PACKAGES = {"xfs": "xfsprogs", "ext4": "e2fsprogs"}
MOST_FOR_DISKS = 0.9
"""Largest share of the free space that emulated disks may take: the study's record may lie on the same disk."""
# Unmounting flushes everything that a study has written.
_UNMOUNT_S = 600.0
# The last processes that a study has ended may still have files open.
_PATIENCE_S, _RETRY_S = 10.0, 0.1


class EmulatedDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk to be emulated."""

    name: str
    """Its purpose: `data` or `wal`."""
    size_bytes: int
    filesystem: str
    """`xfs` or `ext4`."""
    mount_options: str
    """As in fstab; empty for the defaults."""
    rates: Rates
    flush_s: float
    """Seconds that a flush takes."""
    read_s: float
    """Seconds that a read takes."""


class EmulatedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine to be emulated."""

    disks: tuple[EmulatedDisk, ...]
    cpu_count: int | None
    """Number of CPUs; None: all that this machine has."""
    memory_bytes: int | None
    """Bytes of memory; None: all that this machine has."""


def check_emulation(disks: Sequence[EmulatedDisk]) -> None:
    """Make sure that this account and this machine can emulate disks, without changing anything.

    Raises:
        HostError: The account is not root, the machine has no loop devices, or a program is missing.
    """
    if os.geteuid() != 0:
        raise HostError("only root can emulate a machine", hint="run the same command with sudo")
    check_loops()
    find_compiler()
    for disk in disks:
        _find_mkfs(disk.filesystem)


@contextlib.contextmanager
def emulated(
    machine: EmulatedMachine, *, base: Path, on_activity: Callable[[str], None] = lambda _: None
) -> Iterator[dict[str, Path]]:
    """Emulate a machine for the length of a block; yield the folder of each disk by its name.

    Call this from the main thread.

    Args:
        machine: What is emulated.
        base: An existing folder on a disk that is faster than the emulated ones.
        on_activity: Receives a description of the current step.

    Raises:
        HostError: This account or this machine cannot do it, or has too little space, or the base has a name that no library
            can be loaded from.
        StepFailedError: A file system cannot be made or unmounted.
    """
    check_emulation(machine.disks)
    check_place(base)
    undo_left_emulations()
    _leave_mounts()
    folder = base / f"emulated-{os.getpid()}"
    change = EmulationChange(what=str(folder), at=local_now().isoformat(timespec="seconds"), owner=this_process())
    groups = plan_groups(str(os.getpid()), limits_memory=machine.memory_bytes is not None)
    note = EmulationNote(change=change, groups=groups)
    with contextlib.ExitStack() as stack:
        note.write()
        # Of the note as it is then: it gets its devices below.
        stack.callback(lambda: _undo(note))
        enter_group(groups, memory_bytes=machine.memory_bytes)
        if machine.cpu_count is not None:
            stack.enter_context(_on_cpus(machine.cpu_count))
        try:
            make_reachable(folder)
        except OSError as exc:
            raise HostError(f"cannot make {folder}", detail=why(exc)) from exc
        devices = {}
        for disk in machine.disks:
            on_activity(f"writing {format_bytes(disk.size_bytes)} for the emulated {disk.name} disk in {base}")
            devices[disk.name] = stack.enter_context(_made(disk, folder / disk.name))
        note = msgspec.structs.replace(note, devices=tuple(device.numbers for device in devices.values()))
        note.write()
        # Before the file systems are unmounted, which writes all that is left, and while nothing else has taken the devices.
        # What fails here is tried again with the rest of the note.
        stack.callback(note.release_devices)
        for disk in machine.disks:
            numbers = devices[disk.name].numbers
            throttle(groups, numbers, disk.rates)
            keep_flushes_above(numbers, is_kept=True)
        latencies = [
            Latency(device_id=devices[disk.name].device_id, flush_s=disk.flush_s, read_s=disk.read_s)
            for disk in machine.disks
        ]
        stack.enter_context(delayed(latencies, folder))
        yield {disk.name: folder / disk.name for disk in machine.disks}


def _find_mkfs(filesystem: str) -> str:
    name = f"mkfs.{filesystem}"
    found = find_program(name)
    if found is None:
        raise HostError(f"{name} is missing", hint=f"install it: `apt-get install {_PACKAGES[filesystem]}`")
    return found


def _undo(note: EmulationNote) -> None:
    undone = note.undo()
    if undone.outcome is UndoOutcome.FAILED:
        raise HostError("an emulation could not be undone", detail=undone.reason, hint="`pgdyno restore` tries again")


def _leave_mounts() -> None:
    """Give this process mounts of its own, which go with the last process that uses them.

    Raises:
        HostError: The kernel refuses.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_NEW_MOUNTS) != 0 or library.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise HostError("this machine allows an emulation no mounts of its own", detail=reason)


@contextlib.contextmanager
def _on_cpus(count: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _made(disk: EmulatedDisk, folder: Path) -> Iterator[LoopDevice]:
    """Make a disk and mount it; nothing of it is left after the block."""
    try:
        folder.mkdir()
    except OSError as exc:
        raise HostError(f"cannot make {folder}", detail=why(exc)) from exc
    with open_scratch(folder, disk.size_bytes, most_of_free=MOST_FOR_DISKS) as scratch:
        _fill(scratch.descriptor, disk.size_bytes, is_direct=scratch.takes_direct)
        device = attach(scratch.descriptor)
        try:
            # ext4 writes a 64th of the disk, at the speed of the disk below.
            _run([_find_mkfs(disk.filesystem), *_MKFS[disk.filesystem], str(device.path)], timeout_s=None)
            options = ["-o", disk.mount_options] if disk.mount_options else []
            _run(["mount", "-t", disk.filesystem, *options, str(device.path), str(folder)])
            try:
                yield device
            finally:
                with uninterrupted():
                    _unmount(folder)
        finally:
            os.close(device.descriptor)


def _fill(image: int, size_bytes: int, *, is_direct: bool) -> None:
    """Write all of an image once: the first write to reserved space makes the file system below flush once more.

    A store that compresses keeps no zeros, so that the first write would still be to come.
    """
    path = f"/proc/self/fd/{image}"
    with mmap.mmap(-1, _FILL_BYTES) as noise:
        noise.write(os.urandom(_FILL_BYTES))
        descriptor = os.open(path, os.O_WRONLY | (os.O_DIRECT if is_direct else 0))
        try:
            at = 0
            while at < size_bytes:
                with memoryview(noise)[: size_bytes - at] as part:
                    at += os.pwrite(descriptor, part, at)
            os.fsync(descriptor)
        except OSError as exc:
            raise HostError("the file of an emulated disk cannot be written", detail=why(exc)) from exc
        finally:
            os.close(descriptor)


def _unmount(folder: Path) -> None:
    ends_s = monotonic_s() + _PATIENCE_S
    while True:
        done = process.run(["umount", str(folder)], timeout_s=_UNMOUNT_S)
        if done.exit_code == 0:
            return
        if monotonic_s() > ends_s:
            raise StepFailedError("an emulated disk cannot be unmounted", detail=done.stderr.strip())
        time.sleep(_RETRY_S)


def _run(argv: Sequence[str], *, timeout_s: float | None = 60.0) -> None:
    done = process.run(argv, timeout_s=timeout_s)
    if done.exit_code != 0:
        raise StepFailedError(f"{argv[0]} failed", detail=done.stderr.strip() or f"exit code {done.exit_code}")
