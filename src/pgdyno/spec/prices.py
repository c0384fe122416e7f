"""Prices of one's own, as a TOML file: what a contract says, other regions, other currencies, a machine in the cellar.

They stand before pgdyno's. Errors name the file, the line and the key. It refuses a price that is none (0, negative), an
instance or volume that it does not know, and the same thing priced twice; it converts no currency into another.
"""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from pgdyno.errors import SpecError
from pgdyno.facts.instances import find_instance
from pgdyno.facts.prices import CURRENCY, REGION
from pgdyno.facts.volumes import find_volume
from pgdyno.spec.complaint import find_line, read_complaint
from pgdyno.spec.table import StudyTable

_TEMPLATE = "studies/prices/template.toml explains every key"
_CURRENCY = re.compile(r"[A-Z]{3}")


class InstancePrices(StudyTable, frozen=True, kw_only=True):
    """What an hour of an instance costs, with Linux.

    Attributes:
        name: Such as `c7g.2xlarge`.
        on_demand_per_hour: Likewise all that follow; what is absent is taken from pgdyno's, in the same currency.
        reserved_1y_per_hour: With what is paid in advance spread over its hours; so are savings plans.
        reserved_3y_per_hour: Likewise.
        spot_per_hour: On average over the time that one looks at.
        region: Absent: the file's.
        date: Likewise, as `source`.
        source: Of this price.
    """

    name: str
    on_demand_per_hour: float | None = None
    reserved_1y_per_hour: float | None = None
    reserved_3y_per_hour: float | None = None
    spot_per_hour: float | None = None
    region: str | None = None
    date: dt.date | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is not known and what is no price."""
        _check_known(find_instance, self.name)
        rates = [name for name in self.__struct_fields__ if name.endswith("_per_hour")]
        for name in rates:
            _check_price(name, getattr(self, name))
        if all(getattr(self, name) is None for name in rates):
            raise ValueError(f"name {self.name} has no price: give one of {', '.join(rates)}")


class VolumePrices(StudyTable, frozen=True, kw_only=True):
    """What a volume costs a month.

    Attributes:
        name: Such as `gp3`.
        per_gib_month: Of its size.
        per_iops_month: Of each that is bought beyond those that come with it.
        per_mb_month: Likewise of each MB/s, in the provider's megabytes.
        region: Absent: the file's.
        date: Likewise, as `source`.
        source: Of this price.
    """

    name: str
    per_gib_month: float
    per_iops_month: float | None = None
    per_mb_month: float | None = None
    region: str | None = None
    date: dt.date | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is not known and what is no price."""
        _check_known(find_volume, self.name)
        _check_price("per_gib_month", self.per_gib_month)
        for name in ("per_iops_month", "per_mb_month"):
            # What costs nothing is 0; what is not known is left out.
            if (value := getattr(self, name)) != 0:
                _check_price(name, value)


class MachinePrice(StudyTable, frozen=True, kw_only=True):
    """What a machine costs that is no instance pgdyno knows, with its disks.

    Attributes:
        per_month: With everything that is to be counted: the purchase over its life, power, place.
        name: Of a host file; absent: of whatever machine has no other price.
    """

    per_month: float
    name: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no price."""
        _check_price("per_month", self.per_month)


class OwnPrices(StudyTable, frozen=True, kw_only=True):
    """A file of prices.

    Attributes:
        date: Of which the prices are.
        source: Where they are from: a contract, a bill, a price list.
        currency: Of all of them; pgdyno's own count only where it is theirs.
        region: That they hold in, and that a host is in that names none.
        instance: Of instances.
        volume: Of volumes.
        machine: Of machines that are neither.
    """

    date: dt.date
    source: str
    currency: str = CURRENCY
    region: str = REGION
    instance: tuple[InstancePrices, ...] = ()
    volume: tuple[VolumePrices, ...] = ()
    machine: tuple[MachinePrice, ...] = ()

    def __post_init__(self) -> None:
        """Refuse no price at all, the same thing twice, and a currency that is no code."""
        if not _CURRENCY.fullmatch(self.currency):
            raise ValueError(f"currency {self.currency!r} is no code of three capital letters such as EUR")
        if not (self.instance or self.volume or self.machine):
            raise ValueError("no price: give an [[instance]], a [[volume]] or a [[machine]]")
        _check_once("instance", ((row.name.lower(), row.region or self.region) for row in self.instance))
        _check_once("volume", ((row.name.lower(), row.region or self.region) for row in self.volume))
        _check_once("machine", ((row.name,) for row in self.machine))


def read_prices(path: Path) -> OwnPrices:
    """Read a file of prices.

    Raises:
        SpecError: It cannot be read, is no TOML, or says something that pgdyno does not understand.
    """
    try:
        return parse_prices(path.read_text(encoding="utf-8"), source=str(path))
    except OSError as exc:
        raise SpecError(f"cannot read the prices {path}", detail=exc.strerror or str(exc), hint=_TEMPLATE) from exc
    except UnicodeDecodeError as exc:
        raise SpecError(f"{path} is not UTF-8 text", detail=str(exc), hint=_TEMPLATE) from exc


def parse_prices(text: str, *, source: str) -> OwnPrices:
    """Parse the text of a file of prices; errors call it `source`.

    Raises:
        SpecError: As for `read_prices`.
    """
    try:
        return msgspec.convert(tomllib.loads(text), OwnPrices)
    except tomllib.TOMLDecodeError as exc:
        raise SpecError(f"{source} is not valid TOML", detail=str(exc), hint=_TEMPLATE) from exc
    except msgspec.ValidationError as exc:
        found = read_complaint(str(exc), OwnPrices)
        line = find_line(text, found.path) if found.path else None
        raise SpecError(
            f"{source}, line {line}: {found.fact}" if line else f"{source}: {found.fact}",
            detail=f"key {found.path}" if found.path else "",
            hint=f"did you mean {found.nearest}?" if found.nearest else _TEMPLATE,
        ) from exc


def _check_known(find: Callable[[str], object], name: str) -> None:
    try:
        find(name)
    except SpecError as exc:
        raise ValueError(f"name {name!r} is unknown; {exc.hint}") from exc


def _check_price(key: str, value: float | None) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise ValueError(f"{key} {value} is not above 0")


def _check_once(what: str, keys: Iterable[tuple[str | None, ...]]) -> None:
    seen = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"{what} {' in '.join(filter(None, key)) or 'without a name'} has two prices")
        seen.add(key)
