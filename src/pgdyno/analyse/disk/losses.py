"""Tell what loses the data of a declared layout: one of its disks, or the machine that they are in."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.disk.raid import count_survived
from pgdyno.facts.instances import find_instance
from pgdyno.spec.host import DiskSpec

# Source: Amazon EC2 user guide, data persistence for instance store volumes; Alibaba Cloud ECS user guide, local disks.
_LOST_IF = {"aws": "it is stopped or its machine fails", "alibaba": "its machine fails"}


def list_losses(instance: str | None, disk: DiskSpec | None) -> Iterator[str]:
    """Yield a sentence on each single failure that loses all data of a layout."""
    if disk is None:
        return
    if disk.count > 1 and not count_survived(disk):
        yield f"None of the {disk.count} disks may fail: the loss of one loses all data."
    machine = None if instance is None else find_instance(instance)
    if machine is not None and machine.local_bytes is not None and disk.disk_kind == "local-ssd":
        yield (
            f"The data on local disks of {machine.name} are lost if {_LOST_IF[machine.provider]}, and no snapshot can be taken"
            " of them: only a standby or a backup elsewhere keeps them."
        )
