"""Check, read and write options of a mounted file system, which is remounted for that.

A setting is named `mount:/mnt/data:commit`: the mount point, then the option. Like `sysctl`, this module remembers nothing: write a
change to the journal before making it. Options that take an unmount are refused, and so are the system's own file systems.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pgdyno.errors import HostError, RefusedValueError, SpecError
from pgdyno.facts.mount_options import BARRIER, NO_BARRIER, split_mount_name
from pgdyno.run.host.facts import read_mount_words

_ACCESS_TIMES = ("noatime", "relatime", "strictatime")
_SWITCH = ("on", "off")
# Source: mount(8); Linux, Documentation/filesystems/ext4.rst; XFS changes the others at mount only.
_OPTIONS = {"ext4": ("atime", "lazytime", "discard", "commit", BARRIER), "xfs": ("atime", "lazytime")}
# Source: Linux, fs/ext4/super.c, __ext4_remount(): "can't change data mode on remount", and the like.
_AT_MOUNT = frozenset(
    {
        "data",
        "journal_checksum",
        "journal_async_commit",
        "logbufs",
        "logbsize",
        "allocsize",
        "swalloc",
        "stripe",
        "sunit",
    }
    | {"swidth", "largeio", "inode64", "noquota", "dax", "delalloc", "nodelalloc"}
)
# Source: Linux, fs/jbd2/journal.c, JBD2_DEFAULT_MAX_COMMIT_AGE.
_DEFAULT_COMMIT_S, _MOST_COMMIT_S = "5", 300
_SYSTEM = ("/", "/boot", "/etc", "/home", "/opt", "/root", "/usr", "/var", "/var/lib", "/var/log")
# Source: Linux, include/uapi/linux/mount.h. A remount gives up those that it does not name.
_FLAGS = {
    "ro": 1,
    "nosuid": 2,
    "nodev": 4,
    "noexec": 8,
    "sync": 16,
    "dirsync": 128,
    "nosymfollow": 256,
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
    "i_version": 1 << 23,
    "strictatime": 1 << 24,
    "lazytime": 1 << 25,
}
_REMOUNT = 32
_INODE32 = "inode32"
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Mount(NamedTuple):
    filesystem: str
    options: frozenset[str]


def is_known(name: str) -> bool:
    """Return whether a name is that of a mount option."""
    return split_mount_name(name) is not None


def is_barrier(name: str) -> bool:
    """Return whether a name is that of a file system's barriers."""
    return is_known(name) and _split(name)[1] == BARRIER


def find_folder(name: str) -> Path:
    """Return the mount point that a setting names."""
    return Path(_split(name)[0])


def check_mount_options(values: Mapping[str, str]) -> dict[str, str]:
    """Check whether options can be changed here by a remount, and undone, without changing any.

    Raises:
        SpecError: An option is unknown or takes an unmount, a value is invalid, or there is no such mount.
        HostError: This account may not remount.
    """
    for name, value in values.items():
        folder, option = _split(name)
        if folder.rstrip("/") in {one.rstrip("/") for one in _SYSTEM}:
            raise SpecError(
                f"the system's own file system {folder} is not remounted",
                hint="put pgdyno's home on a file system of its own (--home)",
            )
        mount = _find(folder)
        if mount is None:
            raise SpecError(f"no file system is mounted at {folder}", hint="`findmnt` lists the mount points")
        known = _OPTIONS.get(mount.filesystem, ())
        if option == f"no{BARRIER}":
            raise SpecError(f"{option} of {folder} has no value", hint=f"say mount:{folder}:{BARRIER}=off")
        if option == BARRIER and mount.filesystem == "xfs":
            # Source: Linux 4.19, commit 1c02d502c20809a2a5f71ec16a930a61ed779b81.
            raise SpecError(f"{option} of {folder} cannot be changed", detail="since Linux 4.19 XFS has no such option")
        if option in _AT_MOUNT or (option not in known and any(option in each for each in _OPTIONS.values())):
            raise SpecError(
                f"{option} of {folder} cannot be changed by a remount",
                detail=f"{mount.filesystem} takes it only when it is mounted, and pgdyno does not unmount disks",
                hint="unmount and mount it by hand, make a study for each, and put them side by side: compare-records",
            )
        if option not in known:
            words = f"it is one of {', '.join(known)}" if known else f"options of {mount.filesystem} are not changed"
            raise SpecError(f"{option} of {folder} is no option that pgdyno knows how to undo", hint=words)
        _check_value(name, option, value)
    if values and os.geteuid() != 0:
        raise HostError("changing mount options needs root", hint="run pgdyno as root, or leave mount options out")
    return dict(values)


def is_there(name: str) -> bool:
    """Return whether a file system is still mounted there."""
    return _find(_split(name)[0]) is not None


def read_value(name: str) -> str:
    """Read an option as it is in force.

    Raises:
        HostError: Nothing is mounted there.
    """
    folder, option = _split(name)
    options = _find_or_raise(folder).options
    if option == "atime":
        return next((word for word in _ACCESS_TIMES if word in options), "strictatime")
    if option == "commit":
        return next((word.partition("=")[2] for word in options if word.startswith("commit=")), _DEFAULT_COMMIT_S)
    if option == BARRIER:
        return "off" if options & NO_BARRIER else "on"
    return "on" if option in options else "off"


def write_values(expected: Mapping[str, str]) -> None:
    """Set these options by a remount each, and read all of them back.

    Raises:
        SpecError: The kernel refuses an option.
        RefusedValueError: The file system cannot be remounted, or the kernel took an option differently.
        HostError: Nothing is mounted there.
    """
    for name, value in expected.items():
        if read_value(name) != value:
            _remount(name, value)
    for name, value in expected.items():
        if (found := read_value(name)) != value:
            raise RefusedValueError(
                f"the kernel did not take {name} = {value}", detail=f"it is {found} after the remount"
            )


def _remount(name: str, value: str) -> None:
    folder, option = _split(name)
    options = set(_find_or_raise(folder).options)
    options.add(read_value(f"mount:{folder}:atime"))
    # Source: Linux 5.6, fs/xfs/xfs_super.c, xfs_fs_reconfigure(): without either word it goes over to inode64.
    data = _INODE32 if _INODE32 in options else ""
    if option == "atime":
        options = options.difference(_ACCESS_TIMES) | {value}
    elif option == "lazytime":
        options = options | {option} if value == "on" else options - {option}
    elif option == "discard":
        data = option if value == "on" else f"no{option}"
    elif option == BARRIER:
        data = f"{option}={int(value == 'on')}"
    else:
        data = f"{option}={value}"
    flags = _REMOUNT
    for word in options & _FLAGS.keys():
        flags |= _FLAGS[word]
    if _LIBC.mount(b"none", os.fsencode(folder), None, ctypes.c_ulong(flags), data.encode()) == 0:
        return
    code = ctypes.get_errno()
    if code == errno.EINVAL:
        raise SpecError(f"the kernel refuses {name} = {value}", detail=os.strerror(code))
    raise RefusedValueError(f"cannot remount {folder}", detail=os.strerror(code))


def _check_value(name: str, option: str, value: str) -> None:
    if option == "commit":
        is_valid = value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST_COMMIT_S
        words = f"it takes seconds, from 1 to {_MOST_COMMIT_S}"
    else:
        choices = _ACCESS_TIMES if option == "atime" else _SWITCH
        is_valid, words = value in choices, f"it is one of {', '.join(choices)}"
    if not is_valid or value != str(value).lstrip("0"):
        raise SpecError(f"{name} cannot be {value or 'empty'}", hint=words)


def _split(name: str) -> tuple[str, str]:
    found = split_mount_name(name)
    assert found is not None, name  # noqa: S101 - only names of options come here
    return found


def _find_or_raise(folder: str) -> _Mount:
    mount = _find(folder)
    if mount is None:
        raise HostError(f"no file system is mounted at {folder}")
    return mount


def _find(folder: str) -> _Mount | None:
    """Return the file system at a mount point: of several over one another, the last."""
    for words in reversed(read_mount_words()):
        if words[4] == folder:
            end = words.index("-")
            return _Mount(words[end + 1], frozenset(f"{words[5]},{words[end + 3]}".split(",")))
    return None
