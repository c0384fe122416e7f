"""Read the devices below a file system, how software RAID and LVM stripe them, and what each device did.

A file system may lie on a logical volume over a RAID of encrypted disks: every layer has a scheduler and a read-ahead
of its own, and a check of a RAID reads all of its disks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from pgdyno.record.machine.dm_table import parse_dm_table
from pgdyno.record.machine.preflight import BlockDevice, DiskActivity, RaidArray, Unseen
from pgdyno.record.machine.tunables import Stripe
from pgdyno.run.host.process import find_program, run
from pgdyno.run.host.tree import Tree, bracketed, find_mounted_device

# Source: Linux Documentation/admin-guide/iostats.rst: a sector counts 512 bytes, whatever the device's own sectors are.
_SECTOR_BYTES = 512
_READ_SECTORS, _WRITTEN_SECTORS, _BUSY_MS = _COUNTED = 5, 9, 12


def read_devices(tree: Tree, names: Iterable[str]) -> tuple[BlockDevice, ...]:
    """Read whole devices and all devices that they are made of, each once.

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
        waiting += found[name].below
    return tuple(found.values())


def whole_device(tree: Tree, name: str) -> str:
    """Return the disk of a partition, or the name itself for a whole device."""
    if tree.exists(f"sys/block/{name}"):
        return name
    holder = next(tree.glob(f"sys/block/*/{name}/partition"), None)
    return holder.split("/")[2] if holder else name


def find_members(tree: Tree, filesystem: str, source: str) -> list[str]:
    """Return all whole devices of a btrfs, whose mount names one of them; none of other file systems.

    Args:
        tree: The machine.
        filesystem: Its type.
        source: The device that its mount names.

    Source: Linux Documentation/ABI/testing/sysfs-fs-btrfs and fs/btrfs/sysfs.c: `devices` has a link for each.
    """
    mounted = find_mounted_device(tree.root, source) if filesystem == "btrfs" else None
    if mounted is None:
        return []
    each = (tree.list(folder) for folder in tree.glob("sys/fs/btrfs/*/devices"))
    names = next((names for names in each if mounted.name in names), [])
    return list(dict.fromkeys(whole_device(tree, name) for name in names))


def find_siblings(tree: Tree, devices: Sequence[BlockDevice]) -> tuple[str, ...]:
    """Return the names of other volumes and partitions on the disks of a stack: what they move, these disks move as well.

    Volumes that others are made of are left out, because those above them count the same traffic.

    Args:
        tree: The machine.
        devices: The stack, as `read_devices` returns it for one device.
    """
    if not devices:
        return ()
    top, below = devices[0].name, {device.name for device in devices[1:]}
    found = []
    for name in tree.list("sys/block"):
        names = {device.name for device in read_devices(tree, [name])}
        # What lies on the stack's own top moves through that.
        if name not in below and names & below and top not in names and not tree.list(f"sys/block/{name}/holders"):
            found.append(name)
    partitions = (path.split("/") for name in sorted(below) for path in tree.glob(f"sys/block/{name}/*/partition"))
    found += [name for _, _, disk, name, _ in partitions if not tree.list(f"sys/block/{disk}/{name}/holders")]
    return tuple(found)


def read_sync_bytes_per_s(tree: Tree, devices: Sequence[BlockDevice]) -> float:
    """Return the bytes per second that software RAID moves on the disks of a stack to check or rebuild arrays, over the last half minute.

    The array may be the stack's own, or a neighbour with partitions of the same disks. What the top itself does it counts itself.

    Args:
        tree: The machine.
        devices: The stack, as `read_devices` returns it for one device.

    Source: Linux Documentation/admin-guide/md.rst: sync_speed is in KiB/s of each disk, and `none` at rest.
    """
    below = {device.name for device in devices[1:]}
    moved = 0.0
    for folder in tree.glob("sys/block/md*/md"):
        members = _read_device(tree, folder.split("/")[2]).below
        shared = [one for one in members if below & {device.name for device in read_devices(tree, [one])}]
        moved += 1024.0 * (tree.read_int(f"{folder}/sync_speed") or 0) * len(shared)
    return moved


def read_dm_table(title: str) -> str | None:
    """Read a volume's table from device-mapper; None without dmsetup, or if this account cannot read it."""
    dmsetup = find_program("dmsetup")
    if dmsetup is None or os.geteuid() != 0:
        return None
    done = run([dmsetup, "table", title])
    return done.stdout if done.exit_code == 0 else None


def read_stripes(
    tree: Tree, devices: Iterable[BlockDevice], ask: Callable[[str], str | None] = read_dm_table
) -> tuple[dict[str, Stripe], tuple[Unseen, ...]]:
    """Read how composed devices spread their data, by name, and list those whose layout cannot be seen.

    Args:
        tree: The machine.
        devices: The devices, as `read_devices` returns them.
        ask: Returns the table of a device-mapper volume; a captured tree has none.
    """
    stripes: dict[str, Stripe] = {}
    unseen = []
    for device in devices:
        stripe = None
        if tree.exists(f"sys/block/{device.name}/md"):
            stripe = _read_md(tree, device.name)
        elif device.kind == "lvm" and device.below:
            table = ask(device.title or device.name)
            stripe = _read_limits(tree, device) if table is None else parse_dm_table(table)
            if table is None and stripe is None and len(device.below) > 1:
                reason = "the kernel does not report it, and dmsetup is not installed, failed, or needs root"
                unseen.append(Unseen(what=f"how {device.title or device.name} spreads its data", reason=reason))
        if stripe is not None:
            stripes[device.name] = stripe
    return stripes, tuple(unseen)


def _read_md(tree: Tree, name: str) -> Stripe:
    """Read the layout of a software RAID.

    Source: Linux Documentation/admin-guide/md.rst: chunk_size is in bytes.
    """
    folder = f"sys/block/{name}/md"
    return Stripe(
        level=tree.read(f"{folder}/level") or "unknown",
        disk_count=tree.read_int(f"{folder}/raid_disks") or 1,
        chunk_bytes=tree.read_int(f"{folder}/chunk_size") or None,
    )


def _read_limits(tree: Tree, device: BlockDevice) -> Stripe | None:
    """Infer a stripe from the I/O sizes that the kernel recommends; None if they show none.

    Any account may read these sizes. The least size of a stripe is its chunk, and its best size is the chunk times the
    disks; the devices below may recommend sizes of their own. Source: Linux drivers/md/dm-stripe.c, stripe_io_hints().
    A RAID of LVM recommends such sizes, too, whatever its level, and so does a thin pool; those lie on other volumes, and a
    stripe on disks. Source: drivers/md/dm-raid.c, raid_io_hints(); drivers/md/dm-thin.c, pool_io_hints(); lvmraid(7).
    """
    if any(_kind(tree, name) == "lvm" for name in device.below):
        return None
    least, best = _io_sizes(tree, device.name)
    if not least or best % least or any(best == _io_sizes(tree, name)[1] for name in device.below):
        return None
    count = best // least
    return Stripe(level="raid0", disk_count=count, chunk_bytes=least) if 2 <= count <= len(device.below) else None


def _io_sizes(tree: Tree, name: str) -> tuple[int, int]:
    queue = f"sys/block/{name}/queue"
    return tree.read_int(f"{queue}/minimum_io_size") or 0, tree.read_int(f"{queue}/optimal_io_size") or 0


def read_arrays(tree: Tree) -> tuple[RaidArray, ...]:
    """Read the software RAID arrays of this machine."""
    arrays = []
    for folder in tree.glob("sys/block/md*/md"):
        name = folder.split("/")[2]
        done, _, total = (tree.read(f"{folder}/sync_completed") or "").partition("/")
        is_counted = done.strip().isdigit() and total.strip().isdigit() and int(total) > 0
        arrays.append(
            RaidArray(
                name=name,
                level=tree.read(f"{folder}/level") or "unknown",
                # Linear and RAID 0 have nothing to synchronise, and no such file.
                action=tree.read(f"{folder}/sync_action") or "idle",
                done_ratio=int(done) / int(total) if is_counted else None,
                missing_count=tree.read_int(f"{folder}/degraded") or 0,
                devices=tuple(device.name for device in read_devices(tree, [name])),
            )
        )
    return tuple(arrays)


def read_disk_counters(tree: Tree) -> dict[str, list[int]]:
    """Read the rows of /proc/diskstats by device, with major, minor and name first: field n of the manual is at index n + 2."""
    rows = (line.split() for line in (tree.read("proc/diskstats") or "").splitlines())
    return {row[2]: [int(field) if field.isdigit() else 0 for field in row] for row in rows if len(row) > _BUSY_MS}


def compare_disk_counters(
    before: dict[str, list[int]], after: dict[str, list[int]], *, window_s: float
) -> tuple[DiskActivity, ...]:
    """Return what each device did between two readings; idle devices are left out."""
    found = []
    for device, now in after.items():
        then = before.get(device)
        # A device that was taken out and put in again counts from 0.
        if then is None or now == then or window_s <= 0 or any(now[at] < then[at] for at in _COUNTED):
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
    sectors = tree.read_int(f"sys/block/{name}/size")
    below = (whole_device(tree, part) for part in tree.list(f"sys/block/{name}/slaves"))
    return BlockDevice(
        name=name,
        kind=_kind(tree, name),
        is_rotational=None if spins is None else spins == "1",
        scheduler=bracketed(scheduler),
        schedulers=tuple((scheduler or "").replace("[", "").replace("]", "").split()),
        read_ahead_kb=tree.read_int(f"{queue}/read_ahead_kb"),
        title=tree.read(f"sys/block/{name}/dm/name"),
        below=tuple(dict.fromkeys(below)),
        size_bytes=None if sectors is None else sectors * _SECTOR_BYTES,
    )


def _kind(tree: Tree, name: str) -> str:
    if name.startswith("md"):
        return "raid"
    if name.startswith("dm-"):
        # Source: the uuids that cryptsetup and LVM give their volumes in the kernel.
        owner = (tree.read(f"sys/block/{name}/dm/uuid") or "").partition("-")[0]
        return {"CRYPT": "crypt", "LVM": "lvm"}.get(owner, "mapper")
    return "loop" if name.startswith("loop") else "disk"
