"""Define the rules about storage: RAID, free space, file systems and mount options, schedulers, read-ahead, place of the WAL."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.rule_input import Rule, RuleInput, ServerFolder
from pgdyno.facts.mount_options import OptionKind, judge_mount_options
from pgdyno.record.machine.preflight import BlockDevice
from pgdyno.units import format_bytes

_NEARLY_FULL_RATIO = 0.9
_FULL_RATIO = 0.97
_FEW_INODES_RATIO = 0.05
_ELSEWHERE = ", which holds neither data nor WAL"
_PERHAPS_OURS = ", which may hold data or WAL, or not"
_AT_REST = frozenset({"idle", "frozen"})
# Work that can be postponed without leaving the array short of a disk.
_CAN_WAIT = frozenset({"check", "repair"})
# Source: Linux Documentation/block/bfq-iosched.rst: fairness costs throughput on fast devices; cfq was its ancestor.
_SLOW_SCHEDULERS = frozenset({"bfq", "cfq"})
_OPTION_SEVERITIES = {
    OptionKind.READ_ONLY: Severity.CRITICAL,
    OptionKind.UNDURABLE: Severity.CRITICAL,
    OptionKind.COSTLY: Severity.WARNING,
    OptionKind.NOTED: Severity.NOTE,
}
# The kernel's default is 128 kB; beyond 4 MB no scan of PostgreSQL gains.
_READ_AHEAD_KB = (128, 4096)


def _raid(rule_input: RuleInput) -> Iterator[Finding]:
    ours = rule_input.device_names
    for array in rule_input.facts.arrays:
        # Where either is unknown, they may be the same.
        is_ours = not ours.isdisjoint(array.devices)
        is_elsewhere = not is_ours and bool(rule_input.knows_all_devices and array.devices)
        named = f"{array.name}{'' if is_ours else _ELSEWHERE if is_elsewhere else _PERHAPS_OURS}"
        if array.action not in _AT_REST:
            done = "" if array.done_ratio is None else f", {array.done_ratio * 100:.0f} % done"
            file = f"/sys/block/{array.name}/md/sync_action"
            yield Finding(
                rule="raid-sync",
                severity=Severity.NOTE if is_elsewhere else Severity.CRITICAL,
                claim=f"A RAID array is working on itself: {named}.",
                evidence=f"{file}: {array.action}{done} ({array.level})",
                why="It reads all of its disks from end to end"
                + ("." if is_elsewhere else ", and trials on them are slower until it is done."),
                advice=""
                if is_elsewhere
                else f"Put it off: `echo idle > {file}`, and afterwards `echo {array.action} > {file}`."
                if array.action in _CAN_WAIT
                else f"Wait until it is done: `mdadm --wait /dev/{array.name}`.",
            )
        if array.missing_count:
            yield Finding(
                rule="raid-degraded",
                severity=Severity.NOTE if is_elsewhere else Severity.WARNING,
                claim=f"A RAID array lacks disks: {named}.",
                evidence=f"{array.missing_count} missing ({array.level})",
                why="It reads what is missing from all the others, and data are at risk.",
                advice=f"`mdadm --detail /dev/{array.name}` tells which; add one with `mdadm --add`.",
            )


def _room(rule_input: RuleInput) -> Iterator[Finding]:
    for folder in rule_input.folders:
        disk = folder.disk
        used_ratio = 1.0 - disk.free_bytes / max(disk.size_bytes, 1)
        if used_ratio > _NEARLY_FULL_RATIO:
            yield Finding(
                rule="disk-full",
                severity=Severity.CRITICAL if used_ratio > _FULL_RATIO else Severity.WARNING,
                claim=f"The disk of the {folder.named} is nearly full, which slows file systems and SSDs.",
                # What root keeps back is neither in use, as df counts, nor free for the server.
                evidence=f"{format_bytes(disk.free_bytes)} free, {(1 - used_ratio) * 100:.0f} % of {format_bytes(disk.size_bytes)}",
                why="Files are laid out in pieces, an SSD has to clean up while it writes, and a trial may stop for want of room.",
                advice=f"Free some space, `du -xh --max-depth=2 {disk.path} | sort -h | tail`. Or: {_move(folder, rule_input)}",
            )
        if folder.inodes_free_ratio is not None and folder.inodes_free_ratio < _FEW_INODES_RATIO:
            yield Finding(
                rule="disk-full",
                severity=Severity.WARNING,
                claim=f"The file system of the {folder.named} has few inodes left.",
                evidence=f"{folder.inodes_free_ratio * 100:.1f} % of them are free",
                why="New files fail while there is room.",
                advice=f"Remove files that are not needed: `du --inodes -x --max-depth=2 {disk.path} | sort -n | tail`.",
            )


def _move(folder: ServerFolder, rule_input: RuleInput) -> str:
    """Describe how to move a folder; pgdyno's own follows its home."""
    data_dir = _users_data_dir(rule_input)
    if folder.variants:
        return f"Give the {folder.named} another folder, by {'home' if folder.content == 'data' else 'wal_home'} of the variant."
    if data_dir is None:
        if folder.content == "data":
            return "Put pgdyno's home on another disk with --home."
        return "Put pg_wal on another disk with --wal-home."
    if folder.content == "data":
        return f"Stop the server and move {data_dir} to another disk."
    # The folder may have been found through the link pg_wal.
    return f"Stop the server, then `mv {folder.disk.path} /OTHER/DISK/pg_wal && ln -sfn /OTHER/DISK/pg_wal {data_dir}/pg_wal`."


def _users_data_dir(rule_input: RuleInput) -> str | None:
    return rule_input.facts.server.data_dir if rule_input.facts.server else None


def _file_system(rule_input: RuleInput) -> Iterator[Finding]:
    for folder in rule_input.folders:
        disk = folder.disk
        where = f"File system {disk.filesystem} at {disk.path}"
        if disk.is_in_memory:
            yield Finding(
                rule="data-in-memory" if folder.content == "data" else "wal-in-memory",
                severity=Severity.CRITICAL,
                claim=f"{folder.lies} in memory: no disk is measured, and nothing is durable.",
                evidence=where,
                why="Flushes cost nothing."
                if folder.content == "data"
                else "Commits cost no flush, and after a power failure the data are of no use without it.",
                advice=_move(folder, rule_input),
            )
        elif disk.filesystem == "overlay":
            yield Finding(
                rule="container-layer",
                severity=Severity.WARNING,
                claim=f"{folder.lies} on a container's layer, which is slower than the disk below it.",
                evidence=where,
                why="The first write to each file copies it.",
                advice=f"Mount a volume, such as `docker run -v /fast/disk:/var/lib/pgdyno ...`. {_move(folder, rule_input)}",
            )
        elif disk.is_remote:
            yield Finding(
                rule="remote-file-system",
                severity=Severity.WARNING,
                claim=f"{folder.lies} on a file system that is not this machine's own.",
                evidence=where,
                why="Its network and its other clients are in the figures, and what a flush means is up to it.",
                advice=_move(folder, rule_input),
            )


def _mount_options(rule_input: RuleInput) -> Iterator[Finding]:
    for folder in rule_input.folders:
        disk = folder.disk
        for judged in judge_mount_options(disk.mount_options, disk.filesystem):
            if judged.kind is OptionKind.UNDURABLE and not disk.needs_flushes:
                continue
            yield Finding(
                rule="mount-options",
                severity=_OPTION_SEVERITIES[judged.kind],
                claim=f"The file system of the {folder.named} {judged.claim}",
                evidence=f"Mount options: {', '.join(judged.seen)}",
                why=judged.why,
                advice=judged.advice(f"$(findmnt -no TARGET -T {disk.path})"),
            )


def _devices(rule_input: RuleInput) -> Iterator[Finding]:
    for folder in rule_input.folders:
        for device in folder.devices:
            yield from _scheduler(device)
            if device.kind == "loop":
                yield Finding(
                    rule="loop-device",
                    severity=Severity.WARNING,
                    claim=f"{folder.lies} in a file that is used as a disk.",
                    evidence=f"/dev/{device.name}",
                    why="Each write goes through two file systems and two caches.",
                    advice=_move(folder, rule_input),
                )
        # Only the device that the file system is on counts, not those below it.
        for device in folder.devices[:1]:
            yield from _read_ahead(device)


def _scheduler(device: BlockDevice) -> Iterator[Finding]:
    if device.scheduler in _SLOW_SCHEDULERS:
        better = next((one for one in ("none", "mq-deadline", "deadline") if one in device.schedulers), "none")
        yield Finding(
            rule="io-scheduler",
            severity=Severity.WARNING,
            claim=f"The I/O scheduler of {device.name} is made for desktops.",
            evidence=f"{device.scheduler}; it could be {', '.join(one for one in device.schedulers if one != device.scheduler)}",
            why="It holds requests back to be fair, and spends CPU on each.",
            advice=f"`echo {better} > /sys/block/{device.name}/queue/scheduler`.",
        )


def _read_ahead(device: BlockDevice) -> Iterator[Finding]:
    ahead_kb = device.read_ahead_kb
    if ahead_kb is not None and not _READ_AHEAD_KB[0] <= ahead_kb <= _READ_AHEAD_KB[1]:
        is_small = ahead_kb < _READ_AHEAD_KB[0]
        yield Finding(
            rule="read-ahead",
            severity=Severity.NOTE,
            claim=f"The read-ahead of {device.name} is {'small' if is_small else 'large'}.",
            evidence=f"{ahead_kb} kB; usual are {_READ_AHEAD_KB[0]} to {_READ_AHEAD_KB[1]} kB",
            why="What is read from end to end, as by scans and recovery, waits for each piece."
            if is_small
            else "Short ranges of a table bring in pages that are not needed, and push other data out of the cache.",
            advice=f"`blockdev --setra {2 * (128 if is_small else 4096)} /dev/{device.name}` (it counts in 512 bytes).",
        )


def _wal_on_data_disk(rule_input: RuleInput) -> Iterator[Finding]:
    wal, disk = rule_input.facts.wal, rule_input.host.data_disk
    if wal is None:
        return
    of_data = (disk.block_device, *(device.name for device in rule_input.facts.devices))
    of_wal = {wal.block_device, *(device.name for device in rule_input.facts.wal_devices)}
    shared = next((name for name in of_data if name is not None and name in of_wal), None)
    if shared is None:
        return
    # A cluster of pgdyno's own keeps them together unless the user names a WAL home.
    is_own = _users_data_dir(rule_input) is None
    folder = ServerFolder(content="WAL", disk=wal, devices=())
    yield Finding(
        rule="wal-on-data-disk",
        severity=Severity.NOTE if is_own else Severity.WARNING,
        claim="WAL and data share one disk.",
        evidence=f"pg_wal and the data are on {shared}",
        why="Commits wait behind the pages that a checkpoint writes.",
        advice=_move(folder, rule_input),
    )


RULES: tuple[Rule, ...] = (_raid, _room, _file_system, _mount_options, _devices, _wal_on_data_disk)
