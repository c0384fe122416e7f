"""Describe the storage below a path as it was found: its file system, its devices, and where the declared ones differ."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.tunables import StorageStack, Stripe
from pgdyno.report.format import format_bytes
from pgdyno.report.table import Cell, Column, Table, columns, text
from pgdyno.spec.host import PATH_FIGURES, DiskSpec


def describe_look(look: StorageStack) -> str:
    """Describe the layout that was found: `xfs on /dev/md0 (rw,noatime), 150 GB free of 200 GB`."""
    facts = look.facts
    room = f"{format_bytes(facts.free_bytes)} free of {format_bytes(facts.size_bytes)}"
    return f"{facts.filesystem} on {facts.device} ({facts.mount_options}), {room}"


def say_no_device(facts: DiskFacts) -> str:
    """Say why no devices are shown below a file system."""
    if facts.is_in_memory:
        return "No block device is below it: it is in memory."
    if facts.is_remote:
        return "No block device is below it: it is on another machine."
    return f"Its devices are not known: the kernel does not show which ones are below {facts.filesystem}."


def devices_table(look: StorageStack) -> Table | None:
    """Build the table of the devices below a file system, each below what it is part of; None without devices."""
    if not look.devices:
        return None
    devices = {device.name: device for device in look.devices}
    rows = []
    # A file system such as btrfs may lie on several.
    below = {name for device in look.devices for name in device.below}
    tops = [name for name in devices if name not in below]
    for name, depth in (one for top in tops for one in _walk(look, top, 0)):
        device = devices[name]
        read_ahead = None if device.read_ahead_kb is None else format_bytes(device.read_ahead_kb * 1024)
        words = (device.title, _say_stripe(look.stripes.get(name)), look.models.get(name))
        rows.append(
            (
                text(f"{'  ' * depth}{name}"),
                text(device.kind),
                text(None if device.size_bytes is None else format_bytes(device.size_bytes)),
                text(device.scheduler),
                text(read_ahead),
                Cell(text=", ".join(filter(None, words))),
            )
        )
    titles = (*columns("device", "kind"), Column(title="size", is_number=True), Column(title="scheduler"))
    return Table(
        caption="Devices",
        columns=(*titles, Column(title="read-ahead", is_number=True), Column(title="")),
        rows=tuple(rows),
    )


def describe_differences(look: StorageStack, disk: DiskSpec) -> Iterator[str]:
    """Describe where the declared layout differs from the one that was found."""
    stripe = next(iter(look.stripes.values()), None)
    level = "raid0" if disk.lvm_stripes else None if disk.raid is None else f"raid{disk.raid}"
    pairs = [("file system", disk.filesystem, look.facts.filesystem)]
    if stripe is not None:
        chunk = None if disk.chunk_bytes is None else format_bytes(disk.chunk_bytes)
        pairs += [
            ("array", level, stripe.level),
            ("number of disks", str(disk.lvm_stripes or disk.count) if level else None, str(stripe.disk_count)),
            ("chunk", chunk, format_bytes(stripe.chunk_bytes or 0)),
        ]
    for what, declared, found in pairs:
        if declared is not None and declared != found:
            yield f"The declared {what} differs from the one found: {declared}, not {found}."
    # Figures without a volume type may be of the whole array.
    may_be_array = disk.volume is None and any(getattr(disk, name) is not None for name in PATH_FIGURES)
    if stripe is not None and level is None and not may_be_array:
        yield f"One disk is declared; found is an array, {stripe.level} of {stripe.disk_count}."
    if stripe is None and level is not None and look.devices and not look.unseen:
        array = f"{level} of {disk.lvm_stripes or disk.count}"
        yield f"An array is declared, {array}; none was found. A controller's own array shows as one disk."


def _walk(look: StorageStack, name: str, depth: int) -> Iterator[tuple[str, int]]:
    """Return names from the top down, each with its depth; a part of several devices appears below each."""
    device = next((one for one in look.devices if one.name == name), None)
    if device is not None:
        yield name, depth
        for below in device.below:
            yield from _walk(look, below, depth + 1)


def _say_stripe(stripe: Stripe | None) -> str | None:
    if stripe is None:
        return None
    chunk = f", chunk {format_bytes(stripe.chunk_bytes)}" if stripe.chunk_bytes else ""
    return f"{stripe.level} of {stripe.disk_count}{chunk}"
