"""Read `instances.csv`: the CPUs, memory, disk limits and prices of cloud instances.

With them, settings can be derived for a machine that is not at hand, and a disk be compared with the limits of its
instance. The facts change over time: every row has its source and the date of its look-up, and every price has its
date. What no source states is None. Unknown names are refused, not guessed.
"""

from __future__ import annotations

import csv
import datetime as dt
import difflib
import functools

import msgspec

from pgdyno.errors import SpecError, did_you_mean
from pgdyno.facts.data_file import read_data

_MEBIBYTE, _MEGABYTE, _GIGABYTE = 2**20, 10**6, 10**9


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A cloud instance; its limits apply to all its network volumes together."""

    name: str
    provider: str
    """Provider: `aws` or `alibaba`."""
    cpu_count: int
    memory_bytes: int
    architecture: str
    """Architecture: `x86_64` or `arm64`."""
    disk_iops: int | None
    """Sustained IOPS; None, as for the next three, if no source says it."""
    disk_burst_iops: int | None
    disk_bytes_per_s: float | None
    """Sustained throughput."""
    disk_burst_bytes_per_s: float | None
    local_bytes: int | None
    """Size of all its local disks together; None without local disks. How many they are is not kept."""
    usd_per_hour: float | None
    """Price on demand with Linux; None if no source was found."""
    price_date: dt.date | None
    date: dt.date
    """Date on which size and limits were looked up."""
    source: str


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    provider: str
    cpu_count: int
    memory_mib: int
    architecture: str
    date: dt.date
    source: str
    disk_iops: int | None = None
    disk_burst_iops: int | None = None
    disk_mb_s: float | None = None
    disk_burst_mb_s: float | None = None
    local_gb: int | None = None
    usd_per_hour: float | None = None
    price_date: dt.date | None = None


def find_instance(name: str) -> Instance:
    """Find an instance by name, in any case.

    Raises:
        SpecError: No instance has that name.
    """
    known = _instances()
    try:
        return known[name.lower()]
    except KeyError:
        nearest = difflib.get_close_matches(name.lower(), known, n=3)
        raise SpecError(
            f"no instance is known as {name}",
            detail=f"known are {len(known)} of EC2 and ECS",
            hint=did_you_mean(nearest) if nearest else "describe the machine in a host file instead",
        ) from None


def list_instances() -> tuple[Instance, ...]:
    """Return all known instances, in the order of the file."""
    return tuple(_instances().values())


def list_larger(name: str) -> tuple[Instance, ...]:
    """List the instances of an instance's family with more CPUs, the smallest first; none of a name that is not known."""
    own = _instances().get(name.lower())
    if own is None:
        return ()
    family = f"{own.name.rpartition('.')[0]}."
    larger = (one for one in list_instances() if one.name.startswith(family) and one.cpu_count > own.cpu_count)
    return tuple(sorted(larger, key=lambda one: one.cpu_count))


@functools.cache
def _instances() -> dict[str, Instance]:
    text = read_data("instances.csv").decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    filled = ({key: cell for key, cell in row.items() if cell} for row in csv.DictReader(lines))
    return {row.name: _make(row) for row in msgspec.convert(list(filled), list[_Row], strict=False)}


def _make(row: _Row) -> Instance:
    return Instance(
        name=row.name,
        provider=row.provider,
        cpu_count=row.cpu_count,
        memory_bytes=row.memory_mib * _MEBIBYTE,
        architecture=row.architecture,
        disk_iops=row.disk_iops,
        disk_burst_iops=row.disk_burst_iops,
        disk_bytes_per_s=row.disk_mb_s and row.disk_mb_s * _MEGABYTE,
        disk_burst_bytes_per_s=row.disk_burst_mb_s and row.disk_burst_mb_s * _MEGABYTE,
        local_bytes=None if row.local_gb is None else row.local_gb * _GIGABYTE,
        usd_per_hour=row.usd_per_hour,
        price_date=row.price_date,
        date=row.date,
        source=row.source,
    )
