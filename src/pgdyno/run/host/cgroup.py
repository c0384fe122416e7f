"""Read the limits of control groups, versions 1 and 2 and both at once, from this process's group upward.

A limit binds everything below it, so the tightest limit on the path counts. In a container the path that the kernel
names may not exist below the mount: the mount itself is then the container's own group.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from pgdyno.record.machine.preflight import CgroupLimit, LimitKind
from pgdyno.run.host.tree import Tree, find_block_device, split_mounts

# cgroup v1 writes "no limit" as a number near 2^63, rounded to pages.
_NO_LIMIT = 1 << 60
# Source: Linux Documentation/admin-guide/cgroup-v2.rst, io.max.
_IO_KEYS = {
    "rbps": LimitKind.READ_BYTES,
    "wbps": LimitKind.WRITE_BYTES,
    "riops": LimitKind.READ_COUNT,
    "wiops": LimitKind.WRITE_COUNT,
}
# Source: Linux Documentation/admin-guide/cgroup-v1/blkio-controller.rst.
_BLKIO_FILES = {
    "blkio.throttle.read_bps_device": LimitKind.READ_BYTES,
    "blkio.throttle.write_bps_device": LimitKind.WRITE_BYTES,
    "blkio.throttle.read_iops_device": LimitKind.READ_COUNT,
    "blkio.throttle.write_iops_device": LimitKind.WRITE_COUNT,
}
_SINGLE_FILES = {
    "memory.max": LimitKind.MEMORY,
    "memory.limit_in_bytes": LimitKind.MEMORY,
    "memory.high": LimitKind.MEMORY_HIGH,
    "pids.max": LimitKind.TASKS,
}


def read_limits(tree: Tree) -> tuple[CgroupLimit, ...]:
    """Read the limits of this process: the tightest of each kind and device."""
    tightest: dict[tuple[LimitKind, str | None], CgroupLimit] = {}
    for group, folder in _groups(tree):
        for limit in _read_folder(tree, group, folder):
            key = (limit.kind, limit.device)
            if key not in tightest or limit.value < tightest[key].value:
                tightest[key] = limit
    return tuple(tightest.values())


def _groups(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield names and folders of this process's group and of all groups above it, in every hierarchy."""
    mounts = _mounts(tree)
    for line in (tree.read("proc/self/cgroup") or "").splitlines():
        _, controllers, name = line.split(":", 2)
        mount = mounts.get(frozenset(filter(None, controllers.split(","))))
        for base in [mount] if mount else _usual_places(controllers):
            relative = PurePosixPath(name.lstrip("/"))
            for part in (relative, *relative.parents):
                yield "/" if part == PurePosixPath() else f"/{part}", f"{base}/{part}"


def _mounts(tree: Tree) -> dict[frozenset[str], str]:
    """Return the mount point of each hierarchy by its controllers; version 2 has the empty set."""
    found = {}
    for words in split_mounts(tree.read("proc/self/mountinfo") or ""):
        separator = words.index("-")
        kind, options = words[separator + 1], words[separator + 3].split(",")
        if kind == "cgroup2":
            found[frozenset[str]()] = words[4].lstrip("/")
        elif kind == "cgroup":
            controllers = frozenset(one for one in options if one not in {"rw", "ro", "xattr", "clone_children"})
            found[controllers] = words[4].lstrip("/")
    return found


def _usual_places(controllers: str) -> list[str]:
    base = "sys/fs/cgroup"
    return [f"{base}/{controllers.removeprefix('name=')}"] if controllers else [base, f"{base}/unified"]


def _read_folder(tree: Tree, group: str, folder: str) -> Iterator[CgroupLimit]:
    cpus = _read_cpus(tree, folder)
    if cpus is not None:
        yield CgroupLimit(kind=LimitKind.CPU, group=group, value=cpus)
    for file, kind in _SINGLE_FILES.items():
        value = tree.read_int(f"{folder}/{file}")
        if value is not None and value < _NO_LIMIT:
            yield CgroupLimit(kind=kind, group=group, value=value)
    for line in (tree.read(f"{folder}/io.max") or "").splitlines():
        numbers, *pairs = line.split()
        for key, value_text in (pair.split("=", 1) for pair in pairs):
            if value_text != "max" and key in _IO_KEYS:
                yield CgroupLimit(
                    kind=_IO_KEYS[key], group=group, value=int(value_text), device=_name_device(tree, numbers)
                )
    for file, kind in _BLKIO_FILES.items():
        for line in (tree.read(f"{folder}/{file}") or "").splitlines():
            numbers, value_text = line.split()
            yield CgroupLimit(kind=kind, group=group, value=int(value_text), device=_name_device(tree, numbers))


def _read_cpus(tree: Tree, folder: str) -> float | None:
    quota, _, period = (tree.read(f"{folder}/cpu.max") or "max").partition(" ")
    if quota != "max":
        return int(quota) / int(period)
    quota_us = tree.read_int(f"{folder}/cpu.cfs_quota_us") or -1
    if quota_us <= 0:
        return None
    return quota_us / (tree.read_int(f"{folder}/cpu.cfs_period_us") or 100_000)


def _name_device(tree: Tree, numbers: str) -> str:
    device = find_block_device(tree.root, numbers)
    return numbers if device is None else device.name
