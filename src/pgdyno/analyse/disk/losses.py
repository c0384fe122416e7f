"""Tell what loses the data of a layout: one of its disks, or the machine that they are in."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pgdyno.analyse.disk.raid import count_survived, list_arrays
from pgdyno.facts.instances import find_instance
from pgdyno.record.machine.tunables import StorageStack
from pgdyno.spec.host import DiskSpec

# Source: md(4). An LVM stripe is raid0 here.
_NO_COPY = frozenset({"raid0", "linear"})
# Source: Amazon EC2 user guide, data persistence for instance store volumes; Alibaba Cloud ECS user guide, local disks.
_LOST_IF = {"aws": "it is stopped or its machine fails", "alibaba": "its machine fails"}


def list_losses(instance: str | None, disk: DiskSpec | None, look: StorageStack | None) -> Iterator[str]:
    """Yield a sentence on each single failure that loses all data of a layout, as it is declared or else as it was found."""
    count = _count_found(look) if disk is None else 0 if count_survived(disk) else disk.count
    if count > 1:
        yield f"None of the {count} disks may fail: the loss of one loses all data."
    if instance is None or disk is None or disk.disk_kind != "local-ssd":
        return
    machine = find_instance(instance)
    if machine.local_bytes is not None:
        yield (
            f"The data on local disks of {machine.name} are lost if {_LOST_IF[machine.provider]}, and no snapshot can be taken"
            " of them: only a standby or a backup elsewhere keeps them."
        )


def _count_found(look: StorageStack | None) -> int:
    """Count the disks that found arrays spread data over; 0 if any of them keeps copies or parity, or was not seen."""
    # What cannot be seen may be a mirror.
    arrays = [] if look is None or look.unseen else list_arrays(look)
    return math.prod(one.disk_count for one in arrays) if all(one.level in _NO_COPY for one in arrays) else 0
