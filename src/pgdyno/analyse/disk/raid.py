"""Compute the figures of an array of equal disks as multiples of one disk's figures, by the textbook's arithmetic.

It serves declared arrays and detected ones, of md and LVM. It ignores partially written stripes, write-intent bitmaps
and missing disks: those only make an array slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from pgdyno.analyse.disk.ceiling import Transfer
from pgdyno.record.machine.tunables import StorageStack, Stripe
from pgdyno.spec.host import DiskSpec


class ArrayTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of an array as multiples of one disk's."""

    disk_count: int
    reads: float
    """Small reads at random places."""
    sharing: int
    """Disks that share the work of small writes at random places: all, or the parity disk of RAID 4, which has most of it."""
    written: int
    """Writes to these for each small write."""
    read_first: int
    """Reads from these before each small write, of what parity is computed from."""
    copies: int
    """Reads and writes of all disks for each small write."""
    data: float
    """Disks of data in a full stripe: for long writes, and for capacity."""
    long_reads: float
    """Disks that serve long reads with several requests under way: all that serve small ones, unless they would have to seek."""

    def of(self, figure: Transfer, *, write_ratio: float = 1.0) -> float:
        """Return the multiple for a kind of transfer.

        Args:
            figure: The kind of transfer.
            write_ratio: Small writes that one disk does in the time of a small read: what is read first takes that share of a write's time.
        """
        if figure.unit == "bytes/s":
            return self.data if figure.is_write else self.long_reads
        if not figure.is_write:
            return self.reads
        return self.sharing / (self.written + write_ratio * self.read_first)

    def copies_of(self, figure: Transfer) -> float:
        """Return the transfers to the disks for each of ours: a read goes to one disk, a write to each mirror."""
        if not figure.is_write:
            return 1.0
        return self.disk_count / self.data if figure.unit == "bytes/s" else self.copies


# Disks of a level that may fail at once, whichever they are; of a mirror all but one. Source: md(4).
_SURVIVED: dict[int | None, int] = {5: 1, 6: 2, 10: 1}
_PARITY = frozenset({"raid4", "raid5", "raid6"})
# Of n disks, by level as md calls it: those that serve small reads, those of data, and the writes and reads of all for a small
# write. A write waits for all mirrors. One with parity reads the old data and parity and writes both again, which is 4 I/Os,
# and 6 with two parities; or it reads the rest of the stripe where that is less: 3 I/Os of three disks.
# The one parity disk of RAID 4 serves no reads.
# Source: md(4); Patterson, Gibson & Katz 1988, doi:10.1145/50202.50214; Chen et al. 1994, doi:10.1145/176979.176981, table 1.
_LEVELS: dict[str, Callable[[int], tuple[float, float, int, int]]] = {
    "raid0": lambda n: (n, n, 1, 0),
    "raid1": lambda n: (n, 1, n, 0),
    "raid10": lambda n: (n, n / 2, 2, 0),
    "raid4": lambda n: (n - 1, n - 1, 2, min(2, n - 2)),
    "raid5": lambda n: (n, n - 1, 2, min(2, n - 2)),
    "raid6": lambda n: (n, n - 2, 3, min(3, n - 3)),
}
# Up to so many disks, the parity disk of RAID 4 is not read before a write: the rest of the stripe takes no more reads.
# Source: Linux, drivers/md/raid5.c, handle_stripe_dirtying().
_PARITY_UNREAD = 4


def array_times(level: str, disk_count: int, *, can_seek: bool = True) -> ArrayTimes:
    """Return the multiples of an array; for an unknown level, all disks read and one writes.

    Args:
        level: Level as md calls it, such as `raid10`; an LVM stripe is `raid0`.
        disk_count: Number of equal disks, including mirrors and parity.
        can_seek: False for disks that spin, for which leaving out what another mirror reads, or parity, saves no time.
    """
    if level == "linear" or disk_count < 2:
        # The disks of linear stand one behind the other, so that a file lies on one of them. Source: md(4).
        level, disk_count = "raid0", 1
    reads, data, written, read_first = _LEVELS.get(level, _LEVELS["raid1"])(disk_count)
    data, read_first = max(1, data), max(0, read_first)
    copies, sharing = written + read_first, disk_count
    if level == "raid4":
        sharing, written, read_first = 1, 1, int(disk_count > _PARITY_UNREAD)
    # A published array of eight gp3 in RAID 10 read 1,003 MiB/s with 16 requests of 1 MiB under way, and wrote 509: eight and
    # four times the 125 MiB/s of each. Parity that no read needs leaves its disk free for other data in the same way.
    # Source: github.com/ecraftagency/postgres_10k_tps_olap, data_throughput_fio and data_seq_write_fio of 2026-01-03.
    long_reads = reads if can_seek else data
    return ArrayTimes(
        disk_count=disk_count,
        reads=reads,
        sharing=sharing,
        written=written,
        read_first=read_first,
        copies=copies,
        data=data,
        long_reads=long_reads,
    )


def times_of(disk: DiskSpec) -> ArrayTimes:
    """Return the multiples of a declared layout; one disk is an array of one."""
    if disk.lvm_stripes is not None:
        # Space beyond the first set of stripes is elsewhere: no file is faster because of it.
        return array_times("raid0", disk.lvm_stripes)
    return array_times(f"raid{disk.raid or 0}", disk.count, can_seek=disk.disk_kind != "hdd")


def is_single(level: str) -> bool:
    """Return whether a level keeps data on one disk each, so that no other can be read in its place."""
    return keeps_parity(level) or level in {"raid0", "linear"}


def keeps_parity(level: str) -> bool:
    """Return whether a level keeps parity, for which a small write reads before it writes."""
    return level in _PARITY


def has_parity(disk: DiskSpec) -> bool:
    """Return whether a declared array keeps parity."""
    return keeps_parity(f"raid{disk.raid}")


def count_survived(disk: DiskSpec) -> int:
    """Return how many disks of a declared array may fail, whichever they are, before data are lost."""
    return disk.count - 1 if disk.raid == 1 else _SURVIVED.get(disk.raid, 0)


def list_arrays(look: StorageStack) -> list[Stripe]:
    """List detected arrays from the mounted device down; of arrays on the same level, the first stands for all."""
    devices = {device.name: device for device in look.devices}
    found, device = [], next(iter(look.devices), None)
    while device is not None:
        found += [look.stripes[device.name]] if device.name in look.stripes else []
        device = next((devices[name] for name in device.below if name in devices), None)
    return found


def count_copies(look: StorageStack | None, figure: Transfer) -> float:
    """Return the transfers to the disks for each of ours, by the arrays that were detected; 1 without any."""
    arrays = [] if look is None else list_arrays(look)
    return math.prod(array_times(one.level, one.disk_count).copies_of(figure) for one in arrays)


def array_words(disk: DiskSpec) -> str:
    """Describe how several disks are combined."""
    return f"in RAID {disk.raid}" if disk.lvm_stripes is None else f"striped by LVM over {disk.lvm_stripes}"
