"""Attach files as block devices, which the kernel detaches by itself when nothing uses them any more."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, why

_CONTROL = Path("/dev/loop-control")
# Source: Linux, include/uapi/linux/loop.h; LOOP_CONFIGURE is there since Linux 5.8.
_GET_FREE, _CONFIGURE = 0x4C82, 0x4C0A
_AUTOCLEAR, _DIRECT_IO = 4, 16
# struct loop_config: file and block size, struct loop_info64 with the flags among its fields, and what is reserved.
_CONFIG = struct.Struct("=II 5Q 4I 64s 64s 32s 2Q 64x")
_BLOCK_BYTES = 4096
# Another process may take the free device first.
_ATTEMPTS = 20


class LoopDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A file as a block device."""

    path: Path
    descriptor: int
    """Keeps the device until it is mounted; the owner closes it."""

    @property
    def numbers(self) -> str:
        """The device's major and minor number, such as `7:0`."""
        device = os.fstat(self.descriptor).st_rdev
        return f"{os.major(device)}:{os.minor(device)}"

    @property
    def device_id(self) -> int:
        """The device's number, as in `st_dev` of its files."""
        return os.fstat(self.descriptor).st_rdev


def check_loops() -> None:
    """Make sure that this machine has loop devices for this account.

    Raises:
        HostError: It has none, or this account may not use them.
    """
    try:
        os.close(os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC))
    except OSError as exc:
        raise _make_lack(exc) from exc


def attach(image: int) -> LoopDevice:
    """Attach an open file as a block device that detaches itself after its last use.

    Raises:
        HostError: This machine has no loop devices, or this account may not use them.
    """
    try:
        control = os.open(_CONTROL, os.O_RDWR)
        try:
            for _ in range(_ATTEMPTS):
                device = _attach_free(control, image)
                if device is not None:
                    return device
        finally:
            os.close(control)
    except OSError as exc:
        raise _make_lack(exc) from exc
    raise HostError("other programs take every free loop device", hint="try again when they have ended")


def _make_lack(exc: OSError) -> HostError:
    return HostError(
        "this machine gives an emulation no loop device",
        detail=why(exc),
        hint="an emulation needs the kernel's loop devices, Linux 5.8 or later, and root outside of most containers",
    )


def _attach_free(control: int, image: int) -> LoopDevice | None:
    path = Path(f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}")
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # Direct, unless the file system below refuses it.
        for flags in (_AUTOCLEAR | _DIRECT_IO, _AUTOCLEAR):
            config = _CONFIG.pack(image, _BLOCK_BYTES, *[0] * 5, 0, 0, 0, flags, b"", b"", b"", 0, 0)
            try:
                fcntl.ioctl(descriptor, _CONFIGURE, config)
            except OSError as exc:
                if exc.errno == errno.EBUSY:
                    os.close(descriptor)
                    return None
                if exc.errno != errno.EINVAL or not flags & _DIRECT_IO:
                    raise
            else:
                return LoopDevice(path=path, descriptor=descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return None


def keep_flushes_above(device: str, *, is_kept: bool) -> None:
    """Choose whether a device takes a write for durable, so that no flush reaches the file system below.

    There a flush waits for whatever other programs flush. An emulated disk is thrown away, and needs none. The choice outlasts the
    device's file: left as it is, it would keep flushes from the next file that any program attaches there.

    Args:
        device: The device's major and minor number.
        is_kept: True: flushes stay above; False: as the kernel has it at first.

    Raises:
        OSError: The kernel refuses.
    """
    mode = "write through" if is_kept else "write back"
    (Path("/sys/dev/block") / device / "queue/write_cache").write_text(mode, encoding="ascii")
