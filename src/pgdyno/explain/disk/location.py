"""Define the rules about the place of a disk card: paths without durability, caches that may answer, shared disks."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.disk.efficiency import ceilings_of, instance_limits_of
from pgdyno.analyse.disk.entries import DiskFigureKey
from pgdyno.explain.disk.rule_input import DiskRuleInput, Rule
from pgdyno.explain.disk.sharing import exceeds_instance
from pgdyno.explain.finding import Finding, Severity
from pgdyno.facts.mount_options import OptionKind, judge_mount_options
from pgdyno.facts.volumes import is_virtual_disk
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.units import format_bytes

# A quarter of the latency that providers publish for their fastest volumes, 0.2 ms for a small write
# (facts/volumes.toml).
_NETWORK_FLUSH_US = 50.0
# A quarter of a revolution at 15,000 per minute: the platter cannot have reached the sector.
_ROTATING_FLUSH_US = 1000.0
# Less than any device needs to answer a command: no command was sent to one.
_ANY_FLUSH_US = 3.0
# The order of magnitude of the caches of drives, controllers and hypervisors.
_SMALL_FILE_BYTES = 256 * 2**20


def _file_system(rule_input: DiskRuleInput) -> Iterator[Finding]:
    if rule_input.card.look is None:
        return
    facts = rule_input.card.look.facts
    where = f"File system {facts.filesystem} at {facts.path}"
    if facts.is_in_memory:
        yield Finding(
            rule="no-durability",
            severity=Severity.CRITICAL,
            claim="This is memory, not a disk: nothing that lies there is durable.",
            evidence=where,
            why="A flush has nothing to write to, and a power failure loses everything.",
            advice="Measure a path on a disk: `pgdyno disk PATH`.",
        )
    elif facts.filesystem == "overlay":
        yield Finding(
            rule="no-durability",
            severity=Severity.WARNING,
            claim="This is a container's own layer: what lies there goes with the container.",
            evidence=where,
            why="No database belongs there; a volume that is mounted may be another disk.",
            advice="Measure the volume that the data will lie on: `pgdyno disk PATH`.",
        )
    elif facts.is_remote:
        yield Finding(
            rule="remote-file-system",
            severity=Severity.WARNING,
            claim="The file system is another machine's: its network, cache and clients are in these figures.",
            evidence=where,
            why="What a flush means is up to it.",
            advice="Read how it is exported (NFS: `sync`) before data lie there.",
        )
    for judged in judge_mount_options(facts.mount_options, facts.filesystem):
        if judged.kind is not OptionKind.UNDURABLE or not facts.needs_flushes:
            continue
        yield Finding(
            rule="no-durability",
            severity=Severity.CRITICAL,
            claim="Durability is given up: the file system does not flush the disk's cache.",
            evidence=f"Mount options: {', '.join(judged.seen)}",
            why="Flushes look fast, and a power failure loses what they promised.",
            advice=f"`{judged.fill_in(f'$(findmnt -no TARGET -T {facts.path})')}`, and measure again.",
        )
    if any(device.kind == "loop" for device in rule_input.card.look.devices):
        yield Finding(
            rule="loop-device",
            severity=Severity.NOTE,
            claim="This is a file that is used as a disk.",
            evidence=", ".join(f"/dev/{one.name}" for one in rule_input.card.look.devices if one.kind == "loop"),
            why="Each write goes through two file systems.",
        )


def _quick_flushes(rule_input: DiskRuleInput) -> Iterator[Finding]:
    flushes, look = rule_input.find(DiskFigureKey.FLUSHES), rule_input.card.look
    if not flushes or look is None or look.facts.is_in_memory:
        return
    flush_us = 1e6 / flushes
    leaves = [device for device in look.devices if device.kind == "disk"]
    virtual = [device.name for device in leaves if is_virtual_disk(device.name, look.models.get(device.name))]
    rotating = [device.name for device in leaves if device.is_rotational and device.name not in virtual]
    for least_us, names, what in (
        (_ROTATING_FLUSH_US, rotating, "a disk that rotates"),
        (_NETWORK_FLUSH_US, virtual, "a virtual disk, which mostly lies in a network"),
        (_ANY_FLUSH_US, [device.name for device in leaves], "any disk"),
    ):
        if names and flush_us < least_us:
            yield Finding(
                rule="flush-too-quick",
                severity=Severity.WARNING,
                claim="Flushes are too quick to have reached a disk: some cache answers for it.",
                evidence=f"{flush_us:.3g} µs each on {', '.join(names)}; {what} takes {least_us:g} µs or more",
                why="If that cache does not outlive a power failure, committed transactions do not either.",
                advice="Make sure that it has a battery or flash behind it: of a controller `storcli /c0/vall show all`,"
                " of a hypervisor its cache mode (`none` or `writethrough`, not `unsafe`).",
            )
            return


def _shared_device(rule_input: DiskRuleInput) -> Iterator[Finding]:
    names = _list_devices(rule_input.card)
    of_others = {one.name: set(_list_devices(one)) for one in rule_input.beside}
    # The first that is shared, from the mounted device down: a volume stands for its disks.
    shared = {
        name: found for name, other in of_others.items() if (found := next(filter(other.__contains__, names), None))
    }
    if shared:
        yield Finding(
            rule="same-device",
            severity=Severity.WARNING,
            claim=f"It shares its disk with {', '.join(shared)}.",
            evidence="With " + "; with ".join(f"{name} on {device}" for name, device in shared.items()),
            why="Each was measured alone: together they get what one of them has.",
            advice="Do not add them up; WAL is apart only on another device.",
        )


def _list_devices(card: DiskCard) -> list[str]:
    """List a card's devices from the mounted one down: volumes of one disk share its speed, as its partitions do."""
    return [] if card.look is None else [device.name for device in card.look.devices]


def _shared_instance(rule_input: DiskRuleInput) -> Iterator[Finding]:
    limits = instance_limits_of(rule_input.card)
    sharing = [one for one in rule_input.beside if limits is not None and instance_limits_of(one) is not None]
    if limits is None or not sharing:
        return
    if exceeds_instance([found for one in (rule_input.card, *sharing) if (found := ceilings_of(one)) is not None]):
        yield Finding(
            rule="shared-instance",
            severity=Severity.NOTE,
            claim=f"It shares the limit of {limits.name} with {', '.join(one.name for one in sharing)}.",
            evidence="Each was measured alone, and is compared with the whole limit",
            why="Together they get what one of them could have alone.",
            advice="Do not add them up: WAL and checkpoints write at the same time.",
        )


def _neighbours(rule_input: DiskRuleInput) -> Iterator[Finding]:
    if rule_input.card.neighbours:
        yield Finding(
            rule="servers-on-device",
            severity=Severity.NOTE,
            claim="A PostgreSQL server that was running lies on this disk.",
            evidence=", ".join(rule_input.card.neighbours),
            why="What it did meanwhile is missing from these figures, and it was slower.",
        )


def _small_file(rule_input: DiskRuleInput) -> Iterator[Finding]:
    file_bytes = rule_input.card.file_bytes
    if file_bytes is not None and file_bytes < _SMALL_FILE_BYTES:
        yield Finding(
            rule="small-file",
            severity=Severity.WARNING,
            claim="The test file was small: a cache of the drive or its controller may have answered for the disk.",
            evidence=f"{format_bytes(file_bytes)}: all reads and writes went to it",
            why="What a database reads lies all over the disk.",
            advice="Measure again with a larger --file-size; if it does not fit, free space on the disk.",
        )


RULES: tuple[Rule, ...] = (_file_system, _small_file, _quick_flushes, _shared_device, _shared_instance, _neighbours)
