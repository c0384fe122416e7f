"""Find declared disks that no provider sells with the declared instance. They are computed with all the same."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.facts.instances import find_instance
from pgdyno.facts.volumes import find_volume
from pgdyno.spec.host import DiskSpec, HostSpec

# Sizes of single disks are rounded.
_ROUNDED = 1.01
_PROVIDERS = {"aws": "AWS", "alibaba": "Alibaba Cloud"}


def tell_unsold(instance: str | None, disk: DiskSpec | None) -> str:
    """Tell in a sentence why no such disk is sold with an instance; empty where it may be."""
    if instance is None or disk is None or disk.volume is None:
        return ""
    machine, volume = find_instance(instance), find_volume(disk.volume)
    if volume.provider not in {None, machine.provider}:
        theirs, ours = (_PROVIDERS[name or ""] for name in (volume.provider, machine.provider))
        return f"No such pair is sold: {volume.name} is a volume of {theirs}, and {machine.name} an instance of {ours}."
    if volume.kind != "local-ssd":
        return ""
    if machine.local_bytes is None:
        return f"No such pair is sold: {machine.name} has no local disks, and {volume.name} is one."
    declared_bytes = disk.count * disk.volume_gib * 2**30
    if declared_bytes > _ROUNDED * machine.local_bytes:
        has, asked = (f"{one / 10**9:,.0f} GB" for one in (machine.local_bytes, declared_bytes))
        return f"No such pair is sold: the local disks of {machine.name} have {has} in all by its data sheet, and {asked} are declared."
    return ""


def list_unsold(host: HostSpec) -> Iterator[str]:
    """Yield a sentence on each disk of a machine that is not sold with its instance; the same sentence once."""
    disks = (host.disk, host.wal_disk, host.root_disk)
    yield from dict.fromkeys(words for disk in disks if (words := tell_unsold(host.instance, disk)))
