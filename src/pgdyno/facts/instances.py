"""What cloud instances are: the typed reader of `instances.csv`.

So that settings can be derived for a machine that one does not have, and a disk be held against what its instance lets
through. Facts of a day: every row has its source and the day of its look-up, every price its date, and what no source says
is None. It prices nothing and refuses to guess at a name.
"""

from __future__ import annotations

import csv
import datetime as dt
import difflib
import functools
import importlib.resources

import msgspec

from pgdyno.errors import SpecError

_MEBIBYTE, _MEGABYTE, _GIGABYTE = 2**20, 10**6, 10**9


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance; the limits hold for all of its network volumes together."""

    name: str
    provider: str
    """`aws` or `alibaba`."""
    cpu_count: int
    memory_bytes: int
    architecture: str
    """`x86_64` or `arm64`."""
    disk_iops: int
    """Lasting."""
    disk_burst_iops: int
    disk_bytes_per_s: float
    """Lasting."""
    disk_burst_bytes_per_s: float
    local_bytes: int | None
    """Of disks in the machine itself; None where it has none."""
    usd_per_hour: float | None
    """On demand, with Linux; None where no source was found."""
    price_date: dt.date | None
    date: dt.date
    """Of the look-up of shape and limits."""
    source: str


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    provider: str
    cpu_count: int
    memory_mib: int
    architecture: str
    disk_iops: int
    disk_burst_iops: int
    disk_mb_s: float
    disk_burst_mb_s: float
    date: dt.date
    source: str
    local_gb: int | None = None
    usd_per_hour: float | None = None
    price_date: dt.date | None = None


def find_instance(name: str) -> Instance:
    """The instance of that name, in any case.

    Raises:
        SpecError: None is known by it.
    """
    known = _instances()
    try:
        return known[name.lower()]
    except KeyError:
        nearest = difflib.get_close_matches(name.lower(), known, n=3)
        raise SpecError(
            f"no instance is known as {name}",
            detail=f"known are {len(known)} of EC2 and ECS",
            hint=f"did you mean {' or '.join(nearest)}?" if nearest else "describe the machine in a host file instead",
        ) from None


def list_instances() -> tuple[Instance, ...]:
    """All that are known, in the order of the file."""
    return tuple(_instances().values())


@functools.cache
def _instances() -> dict[str, Instance]:
    text = importlib.resources.files("pgdyno.facts").joinpath("instances.csv").read_text(encoding="utf-8")
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
        disk_bytes_per_s=row.disk_mb_s * _MEGABYTE,
        disk_burst_bytes_per_s=row.disk_burst_mb_s * _MEGABYTE,
        local_bytes=None if row.local_gb is None else row.local_gb * _GIGABYTE,
        usd_per_hour=row.usd_per_hour,
        price_date=row.price_date,
        date=row.date,
        source=row.source,
    )
