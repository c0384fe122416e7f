"""Disks: the devices that a file system is made of, software RAID, and what each device did.

A file system may lie on a partition of a RAID of encrypted volumes: every layer has a scheduler and a read-ahead of its
own, and a RAID that is checked reads all of its disks.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgdyno.record.preflight import BlockDevice, DiskActivity, RaidArray
from pgdyno.run.host_tree import Tree, bracketed

# Source: Linux Documentation/admin-guide/iostats.rst: sectors are of 512 bytes whatever the device has.
_SECTOR_BYTES = 512
_READ_SECTORS, _WRITTEN_SECTORS, _BUSY_MS = 5, 9, 12


def read_devices(tree: Tree, names: Iterable[str]) -> tuple[BlockDevice, ...]:
    """Whole devices and all that they are made of, each once.

    Args:
        tree: The machine.
        names: Kernel names such as `nvme0n1` or `md0`.
    """
    found: dict[str, BlockDevice] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name in found or not tree.exists(f"sys/block/{name}"):
            continue
        found[name] = _read_device(tree, name)
        waiting += [whole_device(tree, part) for part in tree.list(f"sys/block/{name}/slaves")]
    return tuple(found.values())


def whole_device(tree: Tree, name: str) -> str:
    """The disk of a partition; a whole device is itself."""
    if tree.exists(f"sys/block/{name}"):
        return name
    holder = next(tree.glob(f"sys/block/*/{name}/partition"), None)
    return holder.split("/")[2] if holder else name


def read_arrays(tree: Tree) -> tuple[RaidArray, ...]:
    """The software RAID arrays of this machine."""
    arrays = []
    for folder in tree.glob("sys/block/md*/md"):
        done, _, total = (tree.read(f"{folder}/sync_completed") or "").partition("/")
        is_counted = done.strip().isdigit() and total.strip().isdigit() and int(total) > 0
        arrays.append(
            RaidArray(
                name=folder.split("/")[2],
                level=tree.read(f"{folder}/level") or "unknown",
                # Linear and RAID 0 have nothing to synchronise, and no such file.
                action=tree.read(f"{folder}/sync_action") or "idle",
                done_ratio=int(done) / int(total) if is_counted else None,
                missing_count=tree.read_int(f"{folder}/degraded") or 0,
            )
        )
    return tuple(arrays)


def read_disk_counters(tree: Tree) -> dict[str, list[int]]:
    """The fields of /proc/diskstats by device, numbers and name included so that places are those of the manual."""
    rows = (line.split() for line in (tree.read("proc/diskstats") or "").splitlines())
    return {row[2]: [int(field) if field.isdigit() else 0 for field in row] for row in rows if len(row) > _BUSY_MS}


def compare_disk_counters(
    before: dict[str, list[int]], after: dict[str, list[int]], *, window_s: float
) -> tuple[DiskActivity, ...]:
    """What each device did in between; those that did nothing are left out."""
    found = []
    for device, now in after.items():
        then = before.get(device)
        if then is None or now == then or window_s <= 0:
            continue
        found.append(
            DiskActivity(
                device=device,
                busy_ratio=min(1.0, (now[_BUSY_MS] - then[_BUSY_MS]) / 1000 / window_s),
                read_bytes_per_s=(now[_READ_SECTORS] - then[_READ_SECTORS]) * _SECTOR_BYTES / window_s,
                written_bytes_per_s=(now[_WRITTEN_SECTORS] - then[_WRITTEN_SECTORS]) * _SECTOR_BYTES / window_s,
            )
        )
    return tuple(found)


def _read_device(tree: Tree, name: str) -> BlockDevice:
    queue = f"sys/block/{name}/queue"
    spins = tree.read(f"{queue}/rotational")
    scheduler = tree.read(f"{queue}/scheduler")
    return BlockDevice(
        name=name,
        kind=_kind(tree, name),
        is_rotational=None if spins is None else spins == "1",
        scheduler=bracketed(scheduler),
        schedulers=tuple((scheduler or "").replace("[", "").replace("]", "").split()),
        read_ahead_kb=tree.read_int(f"{queue}/read_ahead_kb"),
    )


def _kind(tree: Tree, name: str) -> str:
    if name.startswith("md"):
        return "raid"
    if name.startswith("dm-"):
        # Source: cryptsetup names its volumes so for the kernel.
        return "crypt" if (tree.read(f"sys/block/{name}/dm/uuid") or "").startswith("CRYPT-") else "mapper"
    return "loop" if name.startswith("loop") else "disk"
