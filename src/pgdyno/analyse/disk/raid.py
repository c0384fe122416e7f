"""What an array of equal disks does, as a multiple of what one of them does: the textbook's arithmetic, said once.

Declared arrays and those that are seen, of md and of LVM, are reckoned with it alike. It knows nothing of stripes that are
written in part, of write-intent bitmaps, or of a disk that is missing: those only make an array slower.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pgdyno.analyse.disk.ceiling import CeilingFigure
from pgdyno.spec.host import DiskSpec


class ArrayTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How many times one disk's figures an array has."""

    disk_count: int
    reads: float
    """Small ones, anywhere."""
    writes: float
    """Likewise; parity costs reads and writes of its own."""
    data: float
    """Disks' worth of data in a full stripe: of long transfers either way, and of space. A stream that is read from
    mirrors is served by one half."""

    def of(self, figure: CeilingFigure) -> float:
        """How many times one disk's it is."""
        return self.data if figure.unit == "bytes/s" else self.writes if figure.is_write else self.reads

    def copies_of(self, figure: CeilingFigure) -> float:
        """What goes to the disks for one of ours: reads go to one, writes to each mirror."""
        return self.disk_count / self.of(figure) if figure.is_write else 1.0


# Of n disks, by level as md calls it. A write waits for all mirrors; one of parity reads the old data and parity and
# writes both anew, which is 4 I/Os, and 6 where there are two parities.
# Source: md(4); Patterson, Gibson & Katz 1988, doi:10.1145/50202.50214.
_TIMES: dict[str, Callable[[int], tuple[float, float, float]]] = {
    "raid0": lambda n: (n, n, n),
    "raid1": lambda n: (n, 1, 1),
    "raid10": lambda n: (n, n / 2, n / 2),
    "raid5": lambda n: (n, n / 4, n - 1),
    "raid6": lambda n: (n, n / 6, n - 2),
}


def array_times(level: str, disk_count: int) -> ArrayTimes:
    """What an array does; of a level that is not known all disks read, and one writes.

    Args:
        level: As md calls it, such as `raid10`; an LVM stripe is `raid0`.
        disk_count: Of equal disks, those that mirror or hold parity included.
    """
    times = _TIMES.get(level, _TIMES["raid1"])(disk_count)
    reads, writes, data = (max(1.0, float(one)) for one in times)
    return ArrayTimes(disk_count=disk_count, reads=reads, writes=writes, data=data)


def times_of(disk: DiskSpec) -> ArrayTimes:
    """What a declared layout does; one disk is an array of one."""
    if disk.lvm_stripes is not None:
        # What lies beyond the first set of stripes is another place: no file is faster for it.
        return array_times("raid0", disk.lvm_stripes)
    return array_times(f"raid{disk.raid or 0}", disk.count)


def array_words(disk: DiskSpec) -> str:
    """How more than one are put together."""
    return f"in RAID {disk.raid}" if disk.lvm_stripes is None else f"striped by LVM over {disk.lvm_stripes}"
