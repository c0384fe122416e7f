"""Rules about storage: RAID, room, file systems and how they are mounted, schedulers, read-ahead, where WAL lies."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.scene import Rule, Scene
from pgdyno.units import format_bytes

_NEARLY_FULL_RATIO = 0.9
_FULL_RATIO = 0.97
_FEW_INODES_RATIO = 0.05
_AT_REST = frozenset({"idle", "frozen"})
# Work that can be put off without leaving the array short of a disk.
_CAN_WAIT = frozenset({"check", "repair"})
# Source: Linux Documentation/block/bfq-iosched.rst: fairness costs throughput on fast devices; cfq was its ancestor.
_SLOW_SCHEDULERS = frozenset({"bfq", "cfq"})
# What a device gets without being told is 128 kB; beyond 4 MB no scan of PostgreSQL gains.
_READ_AHEAD_KB = (128, 4096)


def _raid(scene: Scene) -> Iterator[Finding]:
    for array in scene.facts.arrays:
        if array.action not in _AT_REST:
            done = "" if array.done_ratio is None else f", {array.done_ratio * 100:.0f} % done"
            file = f"/sys/block/{array.name}/md/sync_action"
            yield Finding(
                rule="raid-sync",
                severity=Severity.CRITICAL,
                claim=f"A RAID array is working on itself: {array.name}.",
                evidence=f"{file}: {array.action}{done} ({array.level})",
                why="It reads all of its disks from end to end, and trials during it are slower than those after it.",
                advice=f"Put it off: `echo idle > {file}`, and afterwards `echo {array.action} > {file}`."
                if array.action in _CAN_WAIT
                else f"Wait until it is done: `mdadm --wait /dev/{array.name}`.",
            )
        if array.missing_count:
            yield Finding(
                rule="raid-degraded",
                severity=Severity.WARNING,
                claim=f"A RAID array lacks disks: {array.name}.",
                evidence=f"{array.missing_count} missing ({array.level})",
                why="It reads what is missing from all the others, and data are at risk.",
                advice=f"`mdadm --detail /dev/{array.name}` tells which; add one with `mdadm --add`.",
            )


def _room(scene: Scene) -> Iterator[Finding]:
    disk, wal = scene.host.data_disk, scene.facts.wal
    places = [("data", disk.path, disk.size_bytes, disk.free_bytes)]
    if (
        wal is not None
        and wal.path != disk.path
        and (wal.size_bytes, wal.free_bytes) != (disk.size_bytes, disk.free_bytes)
    ):
        places.append(("WAL", wal.path, wal.size_bytes, wal.free_bytes))
    for name, path, size_bytes, free_bytes in places:
        used_ratio = 1.0 - free_bytes / max(size_bytes, 1)
        if used_ratio > _NEARLY_FULL_RATIO:
            yield Finding(
                rule="disk-full",
                severity=Severity.CRITICAL if used_ratio > _FULL_RATIO else Severity.WARNING,
                claim=f"The disk of the {name} is nearly full, which slows file systems and SSDs.",
                evidence=f"{used_ratio * 100:.0f} % of {format_bytes(size_bytes)} in use, {format_bytes(free_bytes)} free",
                why="Files are laid out in pieces, an SSD has to clean up while it writes, and a trial may stop for want of room.",
                advice=f"Free some space: `du -xh --max-depth=2 {path} | sort -h | tail`, or use another disk with --home.",
            )
    inodes_ratio = scene.facts.inodes_free_ratio
    if inodes_ratio is not None and inodes_ratio < _FEW_INODES_RATIO:
        yield Finding(
            rule="disk-full",
            severity=Severity.WARNING,
            claim="The file system of the data has few inodes left.",
            evidence=f"{inodes_ratio * 100:.1f} % of them are free",
            why="New files fail while there is room.",
            advice=f"Remove files that are not needed: `du --inodes -x --max-depth=2 {disk.path} | sort -n | tail`.",
        )


def _file_system(scene: Scene) -> Iterator[Finding]:
    disk = scene.host.data_disk
    where = f"File system {disk.filesystem} at {disk.path}"
    if disk.is_in_memory:
        yield Finding(
            rule="data-in-memory",
            severity=Severity.CRITICAL,
            claim="The data lie in memory: no disk is measured, and nothing is durable.",
            evidence=where,
            why="Flushes cost nothing.",
            advice="Put pgdyno's home on a real disk with --home.",
        )
    elif disk.filesystem == "overlay":
        yield Finding(
            rule="container-layer",
            severity=Severity.WARNING,
            claim="The data lie on a container's layer, which is slower than the disk below it.",
            evidence=where,
            why="The first write to each file copies it.",
            advice="Mount a volume (`docker run -v /fast/disk:/var/lib/pgdyno ...`) and put pgdyno's home there with --home.",
        )
    elif disk.is_remote:
        yield Finding(
            rule="remote-file-system",
            severity=Severity.WARNING,
            claim="The data lie on a file system that is not this machine's own.",
            evidence=where,
            why="Its network and its other clients are in the figures, and what a flush means is up to it.",
            advice="Put pgdyno's home on a block device with --home.",
        )


def _mount_options(scene: Scene) -> Iterator[Finding]:
    disk = scene.host.data_disk
    options = set(disk.mount_options.split(","))
    remount = f"mount -o remount,{{}} $(findmnt -no TARGET -T {disk.path})"
    if "ro" in options:
        yield _mount_finding(
            Severity.CRITICAL,
            "The file system of the data is read-only.",
            "ro",
            "Nothing can be written.",
            remount.format("rw"),
        )
    for off in sorted(options & {"nobarrier", "barrier=0"}):
        yield _mount_finding(
            Severity.CRITICAL,
            "Durability is given up: the file system does not flush the disk's cache.",
            off,
            "Commits look fast, and a power failure loses them or the file system.",
            remount.format("barrier=1"),
        )
    if options & {"sync", "dirsync"}:
        yield _mount_finding(
            Severity.WARNING,
            "The file system writes everything at once.",
            ", ".join(sorted(options & {"sync", "dirsync"})),
            "Each write waits for the disk, also those that PostgreSQL flushes later.",
            remount.format("async"),
        )
    if "data=journal" in options:
        yield _mount_finding(
            Severity.WARNING,
            "The file system writes all data twice.",
            "data=journal",
            "PostgreSQL has a log of its own.",
            "tune2fs -o journal_data_ordered DEVICE, and mount it anew",
        )
    has_access_times = disk.filesystem in {"ext3", "ext4", "xfs", "btrfs", "f2fs"} and not options & {
        "noatime",
        "relatime",
    }
    if has_access_times:
        yield _mount_finding(
            Severity.WARNING,
            "The file system notes each access to a file.",
            "neither noatime nor relatime",
            "Reading becomes writing.",
            remount.format("noatime"),
        )
    if "discard" in options:
        yield _mount_finding(
            Severity.NOTE,
            "The file system tells the disk at once what it has freed.",
            "discard",
            "Removing large files, such as temporary ones, makes the disk busy while others wait.",
            f"{remount.format('nodiscard')}` and `systemctl enable --now fstrim.timer",
        )


def _mount_finding(severity: Severity, claim: str, option: str, why: str, command: str) -> Finding:
    return Finding(
        rule="mount-options",
        severity=severity,
        claim=claim,
        evidence=f"Mount options: {option}",
        why=why,
        advice=f"`{command}`, and in /etc/fstab to keep it.",
    )


def _devices(scene: Scene) -> Iterator[Finding]:
    for device in scene.facts.devices:
        queue = f"/sys/block/{device.name}/queue"
        if device.scheduler in _SLOW_SCHEDULERS:
            better = next((one for one in ("none", "mq-deadline", "deadline") if one in device.schedulers), "none")
            yield Finding(
                rule="io-scheduler",
                severity=Severity.WARNING,
                claim=f"The I/O scheduler of {device.name} is made for desktops.",
                evidence=f"{device.scheduler}; it could be {', '.join(one for one in device.schedulers if one != device.scheduler)}",
                why="It holds requests back to be fair, and spends CPU on each.",
                advice=f"`echo {better} > {queue}/scheduler`.",
            )
    for device in scene.facts.devices[:1]:
        # The one that the file system lies on counts: those below it are not asked.
        ahead_kb = device.read_ahead_kb
        if ahead_kb is not None and not _READ_AHEAD_KB[0] <= ahead_kb <= _READ_AHEAD_KB[1]:
            is_small = ahead_kb < _READ_AHEAD_KB[0]
            yield Finding(
                rule="read-ahead",
                severity=Severity.NOTE,
                claim=f"The read-ahead of {device.name} is {'small' if is_small else 'large'}.",
                evidence=f"{ahead_kb} kB; usual are {_READ_AHEAD_KB[0]} to {_READ_AHEAD_KB[1]} kB",
                why="Sequential scans wait for each piece."
                if is_small
                else "Short ranges of a table bring in much that nobody asked for, and push other data out of the cache.",
                advice=f"`blockdev --setra {2 * (128 if is_small else 4096)} /dev/{device.name}` (it counts in 512 bytes).",
            )
    for device in scene.facts.devices:
        if device.kind == "loop":
            yield Finding(
                rule="loop-device",
                severity=Severity.WARNING,
                claim="The data lie in a file that is used as a disk.",
                evidence=f"/dev/{device.name}",
                why="Each write goes through two file systems and two caches.",
                advice="Put pgdyno's home on a real disk with --home.",
            )


def _wal_place(scene: Scene) -> Iterator[Finding]:
    wal, disk, server = scene.facts.wal, scene.host.data_disk, scene.facts.server
    if wal is None or wal.block_device is None or wal.block_device != disk.block_device:
        return
    # A cluster of pgdyno's own keeps them together.
    is_own = server is None or server.data_dir is None
    yield Finding(
        rule="wal-on-data-disk",
        severity=Severity.NOTE if is_own else Severity.WARNING,
        claim="WAL and data share one disk.",
        evidence=f"pg_wal and the data are on {disk.block_device}",
        why="Commits wait behind the pages that a checkpoint writes.",
        advice=""
        if is_own
        else f"Stop the server, then `mv {wal.path} /OTHER/DISK/pg_wal && ln -s /OTHER/DISK/pg_wal {wal.path}`.",
    )


RULES: tuple[Rule, ...] = (_raid, _room, _file_system, _mount_options, _devices, _wal_place)
