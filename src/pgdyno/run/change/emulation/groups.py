"""Hold emulated disks to their IOPS and throughput, and a study to its memory limit, by control groups of version 1 or 2.

With version 1 the root group throttles the devices: a child group would let the kernel's own write-back escape. With version 2
the root group has no limits; there a group for the study throttles them, and write-back is charged to it because it also
accounts for memory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, why
from pgdyno.run.host.clock import monotonic_s

# Source: Linux, block/blk-cgroup.c, blkg_conf_open_bdev().
_GONE = {errno.ENOENT, errno.ENODEV}
_ROOT = Path("/sys/fs/cgroup")
_THROTTLES = {
    "read_iops": ("blkio.throttle.read_iops_device", "riops"),
    "write_iops": ("blkio.throttle.write_iops_device", "wiops"),
    "read_bytes_per_s": ("blkio.throttle.read_bps_device", "rbps"),
    "write_bytes_per_s": ("blkio.throttle.write_bps_device", "wbps"),
}
# Processes that were killed leave their group only when the kernel has ended them.
_PATIENCE_S, _RETRY_S = 10.0, 0.05
_CONTROLLERS = ("io", "memory")
_CONTROL_FILE = "cgroup.subtree_control"
_NAME = "pgdyno-"


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What a disk lets through at most."""

    read_iops: int
    write_iops: int
    read_bytes_per_s: int
    write_bytes_per_s: int


class GroupFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The places of an emulation in the control groups, written down before anything is changed there."""

    throttle_folder: str
    """The group that throttles the devices."""
    is_v1: bool
    own_folder: str | None
    """The group that pgdyno makes for the study; None where it needs none."""
    parent_folder: str | None
    """The group that the study's processes come from and go back to."""
    lacked: tuple[str, ...] = ()
    """The controllers that the root group of version 2 gave none of its groups before."""


def plan_groups(owner: str, *, limits_memory: bool) -> GroupFiles:
    """Choose the control groups of an emulation.

    Args:
        owner: What tells the group to make from those of other emulations.
        limits_memory: Whether the study may use only a part of the memory.

    Raises:
        HostError: This machine's control groups cannot throttle a disk for this account.
    """
    blkio, name = _ROOT / "blkio", f"{_NAME}{owner}"
    if os.access(blkio / _THROTTLES["read_iops"][0], os.W_OK):
        parent = _ROOT / "memory" / _own_group("memory").lstrip("/")
        own = str(parent / name) if limits_memory else None
        return GroupFiles(
            throttle_folder=str(blkio), is_v1=True, own_folder=own, parent_folder=None if own is None else str(parent)
        )
    if os.access(_ROOT / _CONTROL_FILE, os.W_OK):
        parent, own = _ROOT / _own_group("").lstrip("/"), str(_ROOT / name)
        given = (_ROOT / _CONTROL_FILE).read_text(encoding="ascii").split()
        lacked = tuple(one for one in _CONTROLLERS if one not in given)
        return GroupFiles(throttle_folder=own, is_v1=False, own_folder=own, parent_folder=str(parent), lacked=lacked)
    raise HostError(
        "the control groups of this machine cannot limit a disk",
        detail=f"neither {blkio} nor {_ROOT}/{_CONTROL_FILE} can be written",
        hint="run it as root on a machine or in a virtual machine, and not in a container",
    )


def enter_group(files: GroupFiles, *, memory_bytes: int | None) -> None:
    """Make the study's group, limit its memory, and move this process there; children follow.

    Raises:
        HostError: The kernel refuses.
    """
    if files.own_folder is None:
        return
    own = Path(files.own_folder)
    try:
        if not files.is_v1:
            (_ROOT / _CONTROL_FILE).write_text(" ".join(f"+{one}" for one in _CONTROLLERS), encoding="ascii")
        own.mkdir()
        if memory_bytes is not None:
            _limit_memory(own, memory_bytes, is_v1=files.is_v1)
        (own / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    except OSError as exc:
        raise HostError("the control group of the emulation cannot be made", detail=why(exc)) from exc


def _limit_memory(own: Path, memory_bytes: int, *, is_v1: bool) -> None:
    """Limit a group's memory, and leave it no swap of this machine in addition.

    Source: Linux, Documentation/admin-guide/cgroup-v1/memory.rst: memsw counts memory and swap together; cgroup-v2.rst: swap.max.
    """
    limit, swap, swap_bytes = (
        ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", memory_bytes)
        if is_v1
        else ("memory.max", "memory.swap.max", 0)
    )
    (own / limit).write_text(str(memory_bytes), encoding="ascii")
    # Absent where the kernel does not count swap by groups.
    if (own / swap).exists():
        (own / swap).write_text(str(swap_bytes), encoding="ascii")


def throttle(files: GroupFiles, numbers: str, rates: Rates) -> None:
    """Hold a device to its rates, including the kernel's own write-back.

    Args:
        files: The control groups.
        numbers: The device's major and minor number.
        rates: The most that it lets through.

    Raises:
        HostError: The kernel refuses.
    """
    folder = Path(files.throttle_folder)
    try:
        if files.is_v1:
            for name, (file, _) in _THROTTLES.items():
                (folder / file).write_text(f"{numbers} {getattr(rates, name)}", encoding="ascii")
        else:
            pairs = " ".join(f"{key}={getattr(rates, name)}" for name, (_, key) in _THROTTLES.items())
            (folder / "io.max").write_text(f"{numbers} {pairs}", encoding="ascii")
    except OSError as exc:
        raise HostError("the emulated disk cannot be throttled", detail=why(exc)) from exc


def lift_throttles(files: GroupFiles, devices: Iterable[str]) -> str:
    """Let devices work at their own speed again.

    Returns:
        Why a throttle is left; empty if none is.
    """
    if files.is_v1:
        lines = [(file, "0") for file, _ in _THROTTLES.values()]
    else:
        lines = [("io.max", " ".join(f"{key}=max" for _, key in _THROTTLES.values()))]
    left = ""
    for numbers in devices:
        for file, value in lines:
            try:
                (Path(files.throttle_folder) / file).write_text(f"{numbers} {value}", encoding="ascii")
            except OSError as exc:
                # Without the device, or the group, there is no throttle.
                left = left if exc.errno in _GONE else why(exc)
    return left


def remove_group(files: GroupFiles) -> str:
    """Move this process out of the study's group, remove the group if it is still there, and leave the root group as it was.

    Returns:
        Why something is left; empty if nothing is.
    """
    left = "" if files.own_folder is None else _remove(Path(files.own_folder), files.parent_folder)
    return left or _take_controllers(files.lacked)


def _take_controllers(lacked: Iterable[str]) -> str:
    """Take back the controllers that the root group's children lacked before; return why one is left, or an empty text.

    Controllers stay while another emulation runs, and where a group has handed them on to groups below.
    """
    left = ""
    if any(_ROOT.glob(f"{_NAME}*")):
        return left
    for controller in lacked:
        try:
            (_ROOT / _CONTROL_FILE).write_text(f"-{controller}", encoding="ascii")
        except OSError as exc:
            left = left if exc.errno == errno.EBUSY else why(exc)
    return left


def _remove(own: Path, parent_folder: str | None) -> str:
    if not own.exists():
        return ""
    with contextlib.suppress(OSError):
        if str(os.getpid()) in (own / "cgroup.procs").read_text(encoding="ascii").split():
            (Path(parent_folder or _ROOT) / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    patience_ends = monotonic_s() + _PATIENCE_S
    while True:
        try:
            own.rmdir()
        except FileNotFoundError:
            return ""
        except OSError as exc:
            if monotonic_s() > patience_ends:
                return why(exc)
            time.sleep(_RETRY_S)
        else:
            return ""


def _own_group(controller: str) -> str:
    """Return this process's group in a hierarchy of version 1, or in that of version 2 for an empty name."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, name = line.split(":", 2)
        if controller in controllers.split(","):
            return name
    return "/"
