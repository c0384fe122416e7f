"""Compute the monthly cost of a machine: its instance on each known term, its volumes, its system disk.

A month is 730 hours. If a part has no price, the total is absent and names that part. What was not declared is named
with the total, because the total is too small without it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import msgspec

from pgdyno.facts.instances import find_instance
from pgdyno.facts.prices import PRICE_LISTS, Term
from pgdyno.facts.volumes import Volume, count_paid, find_volume, price_of
from pgdyno.price.book import RATE_KEYS, PriceBook
from pgdyno.spec.host import DiskSpec, HostSpec

# Source: AWS Pricing Calculator: 8,760 hours of a year over 12 months.
MONTH_H = 730.0
_TERMS = (Term.ON_DEMAND, Term.RESERVED_1Y, Term.RESERVED_3Y, Term.SPOT)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the cost."""

    what: str
    """Name of the part, such as `c7g.2xlarge` or `data`."""
    per_month: float
    how: str
    """Explanation in a clause, such as `8 × 4.00 of gp3 of 50GB`."""
    date: dt.date | None
    source: str


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a machine on one of the terms."""

    term: Term
    parts: tuple[Part, ...]
    per_month: float
    """Sum of all parts."""


class HostCost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a machine on all known terms. `absent` has the reason for each other term, by its name."""

    name: str
    region: str
    is_region_declared: bool
    currency: str
    costs: tuple[Cost, ...]
    absent: dict[str, str]
    left_out: tuple[str, ...]
    """Further parts with a cost that were not declared, in clauses."""
    look_up: str = ""
    """Where to look up which missing prices, named as in a file of prices, in clauses; empty if none is missing."""

    def find(self, term: Term) -> Cost | None:
        """Return the cost on one of the terms; None if unknown."""
        return next((cost for cost in self.costs if cost.term is term), None)


def price_host(host: HostSpec, book: PriceBook) -> HostCost:
    """Compute the monthly cost of a machine.

    Args:
        host: The machine, declared or observed.
        book: Prices to use.
    """
    region = book.region_of(host)
    volumes, unpriced = _price_volumes(host, book, region)
    costs, absent, missing = [], {}, []
    for term in _TERMS if host.instance is not None else ():
        found = _price_instance(host.instance, book, region, term)
        missing += [RATE_KEYS[term]] if isinstance(found, str) else []
        if isinstance(found, str) or unpriced is not None:
            absent[term.value] = found if isinstance(found, str) else unpriced or ""
        else:
            costs.append(add_up(term, found, *volumes))
    if host.instance is None:
        own = _price_machine(host, book)
        if own is None:
            absent[Term.OWN.value] = "this machine is no cloud instance that pgdyno knows"
        else:
            costs.append(add_up(Term.OWN, own))
    return HostCost(
        name=host.name or host.instance or "This machine",
        region=region,
        is_region_declared=host.region is not None,
        currency=book.currency,
        costs=tuple(costs),
        absent=absent,
        left_out=() if host.instance is None else tuple(_list_left_out(host)),
        look_up="; ".join(_list_sources(host, book, region, missing)),
    )


def _list_sources(host: HostSpec, book: PriceBook, region: str, missing: list[str]) -> Iterator[str]:
    """List the pages that publish missing prices, each with the keys of a file of prices that take them."""
    if host.instance is None:
        return
    keys: dict[str, list[str]] = {}
    if missing:
        instances, _ = PRICE_LISTS[find_instance(host.instance).provider]
        keys[instances] = [f'{", ".join(missing)} of an `[[instance]]` with `name = "{host.instance}"`']
    for volume, paid in _list_unpriced(host, book, region).items():
        _, volumes = PRICE_LISTS[volume.provider or "aws"]
        wanted = ", ".join(name.removeprefix("usd_") for name in dict.fromkeys(paid))
        keys.setdefault(volumes, []).append(f'{wanted} of a `[[volume]]` with `name = "{volume.name}"`')
    for page, wants in keys.items():
        yield f"{page} for {' and '.join(wants)} ({region}, {book.currency})"


def _list_unpriced(host: HostSpec, book: PriceBook, region: str) -> dict[Volume, list[str]]:
    """List the types of volumes that lack a price, with all that is paid for: a user's price replaces a type's as a whole."""
    unpriced: dict[Volume, list[str]] = {}
    for what, disk in paths_of(host).items():
        try:
            price_disk(what, disk, book, region)
        except ValueError:
            volume = find_volume(disk.volume or "")
            paid = count_paid(volume, disk.volume_gib, iops=disk.volume_iops, mb_s=disk.volume_mb_s)
            unpriced.setdefault(volume, []).extend(paid)
    return unpriced


def price_disk(what: str, disk: DiskSpec, book: PriceBook, region: str) -> Part | None:
    """Compute the cost of a path's volumes; return None for disks without a price of their own.

    Raises:
        ValueError: A part of the price is unknown.
    """
    if disk.volume is None or disk.disk_kind != "network-ssd":
        return None
    volume = book.find_volume(disk.volume, region)
    each = price_of(volume, disk.volume_gib, iops=disk.volume_iops, mb_s=disk.volume_mb_s)
    bought = f" with {disk.volume_iops:,} IOPS" if disk.volume_iops is not None else ""
    bought += f" and {disk.volume_mb_s:,} MB/s" if disk.volume_mb_s is not None else ""
    return Part(
        what=what,
        per_month=each * disk.count,
        how=f"{disk.count} × {each:,.2f}, {disk.volume} of {disk.size}{bought}",
        date=volume.price_date,
        source=volume.price_source or volume.source,
    )


def paths_of(host: HostSpec) -> dict[str, DiskSpec]:
    """Return the declared disks of a machine, by what is stored there."""
    declared = {"data": host.disk, "WAL": host.wal_disk, "system": host.root_disk}
    return {what: disk for what, disk in declared.items() if disk is not None}


def add_up(term: Term, *parts: Part) -> Cost:
    """Add up the parts of a cost."""
    return Cost(term=term, parts=parts, per_month=sum(part.per_month for part in parts))


def _price_instance(instance: str | None, book: PriceBook, region: str, term: Term) -> Part | str:
    """Return the instance as a part of the cost, or the reason why it has no price."""
    rate = None if instance is None else book.find_hourly(instance, region, term)
    if rate is None:
        return f"no source says what an hour of {instance} costs {book.describe(region)}"
    how = f"{rate.per_hour:,.5g} an hour{f': {rate.how}' if rate.how else ''}"
    return Part(
        what=instance or "",
        per_month=rate.per_hour * MONTH_H,
        how=how,
        date=rate.date,
        source=rate.source,
    )


def _price_volumes(host: HostSpec, book: PriceBook, region: str) -> tuple[tuple[Part, ...], str | None]:
    """Return all volumes as parts of the cost, and why one of them has no price; None if all have one."""
    parts = []
    for what, disk in paths_of(host).items():
        try:
            part = price_disk(what, disk, book, region)
        except ValueError as exc:
            return (), f"{what} on {disk.volume}, {book.describe(region)}: {exc}"
        if part is not None:
            parts.append(part)
    return tuple(parts), None


def _price_machine(host: HostSpec, book: PriceBook) -> Part | None:
    own, machine = book.own, book.find_machine(host.name)
    if own is None or machine is None:
        return None
    how = "with its disks, as you say"
    return Part(what=host.name or "machine", per_month=machine.per_month, how=how, date=own.date, source=own.source)


def _list_left_out(host: HostSpec) -> Iterator[str]:
    if host.disk is None:
        yield "the data's volume (not declared)"
    for what, disk in paths_of(host).items():
        if disk.volume is None and disk.disk_kind != "local-ssd":
            yield f"the disks of {what} (declared as no volume that has a price)"
    if host.root_disk is None:
        yield "the system's disk (not declared)"
