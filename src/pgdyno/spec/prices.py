"""Read the user's own prices from a TOML file: contracts, other regions and currencies, own machines.

They take precedence over pgdyno's prices. Errors name the file, the line and the key. Prices of 0 or less, unknown
instances and volumes, and two prices of the same thing are refused. Currencies are not converted.
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
from pgdyno.spec.complaint import name_line, read_complaint
from pgdyno.spec.shipped import find_shipped
from pgdyno.spec.table import StudyTable, check_above_0

_TEMPLATE = "`pgdyno studies prices/template` explains every key"
_CURRENCY = re.compile(r"[A-Z]{3}")


class InstancePrices(StudyTable, frozen=True, kw_only=True):
    """Price of one hour of an instance with Linux.

    Attributes:
        name: Type of the instance, such as `c7g.2xlarge`.
        on_demand_per_hour: On-demand price; an absent rate is taken from pgdyno's prices in the same currency.
        reserved_1y_per_hour: Price when reserved for a year, with upfront payments spread over its hours; also savings
            plans.
        reserved_3y_per_hour: Price when reserved for three years.
        spot_per_hour: Average spot price over the period of interest.
        region: Region of the price; absent: the file's.
        date: Date of the price; absent: the file's.
        source: Source of the price; absent: the file's.
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
        """Refuse an unknown name and invalid prices."""
        _check_known(find_instance, self.name)
        rates = [name for name in self.__struct_fields__ if name.endswith("_per_hour")]
        for name in rates:
            check_above_0(name, getattr(self, name))
        if all(getattr(self, name) is None for name in rates):
            raise ValueError(f"name {self.name} has no price: give one of {', '.join(rates)}")


class VolumePrices(StudyTable, frozen=True, kw_only=True):
    """Price of a volume per month.

    Attributes:
        name: Type of the volume, such as `gp3`.
        per_gib_month: Price per GiB.
        per_iops_month: Price per provisioned IOPS beyond the included ones.
        per_mb_month: Price per provisioned MB/s beyond the included ones, in the provider's megabytes.
        region: Region of the price; absent: the file's.
        date: Date of the price; absent: the file's.
        source: Source of the price; absent: the file's.
    """

    name: str
    per_gib_month: float
    per_iops_month: float | None = None
    per_mb_month: float | None = None
    region: str | None = None
    date: dt.date | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown name and invalid prices."""
        _check_known(find_volume, self.name)
        check_above_0("per_gib_month", self.per_gib_month)
        for name in ("per_iops_month", "per_mb_month"):
            # 0 means free; an unknown price is left out.
            if (value := getattr(self, name)) != 0:
                check_above_0(name, value)


class MachinePrice(StudyTable, frozen=True, kw_only=True):
    """Price of a machine with its disks that is not a known cloud instance.

    Attributes:
        per_month: All costs per month: depreciation, power, housing.
        name: Name in the host file; absent: any machine without another price.
    """

    per_month: float
    name: str | None = None

    def __post_init__(self) -> None:
        """Refuse an invalid price."""
        check_above_0("per_month", self.per_month)


class OwnPrices(StudyTable, frozen=True, kw_only=True):
    """The contents of a price file.

    Attributes:
        date: Date of the prices.
        source: Source of the prices: a contract, a bill, a price list.
        currency: Currency of all prices; pgdyno's own prices are used only in the same currency.
        region: Region of the prices, and of hosts that name none.
        instance: Prices of instances.
        volume: Prices of volumes.
        machine: Prices of other machines.
    """

    date: dt.date
    source: str
    currency: str = CURRENCY
    region: str = REGION
    instance: tuple[InstancePrices, ...] = ()
    volume: tuple[VolumePrices, ...] = ()
    machine: tuple[MachinePrice, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an empty file, two prices of the same thing, and an invalid currency code."""
        if not _CURRENCY.fullmatch(self.currency):
            raise ValueError(f"currency {self.currency!r} is not a code of three capital letters such as EUR")
        if not (self.instance or self.volume or self.machine):
            raise ValueError("no price: add an [[instance]], a [[volume]] or a [[machine]]")
        _check_once("instance", ((row.name.lower(), row.region or self.region) for row in self.instance))
        _check_once("volume", ((row.name.lower(), row.region or self.region) for row in self.volume))
        _check_once("machine", ((row.name,) for row in self.machine))


def read_prices(path: Path) -> OwnPrices:
    """Read a price file, the user's or the shipped template.

    Raises:
        SpecError: The file cannot be read, is not TOML, or has invalid keys or values.
    """
    path = find_shipped(path)
    try:
        return parse_prices(path.read_text(encoding="utf-8-sig"), source=str(path))
    except OSError as exc:
        raise SpecError(f"cannot read the prices {path}", detail=exc.strerror or str(exc), hint=_TEMPLATE) from exc
    except UnicodeDecodeError as exc:
        raise SpecError(f"{path} is not UTF-8 text", detail=str(exc), hint=_TEMPLATE) from exc


def parse_prices(text: str, *, source: str) -> OwnPrices:
    """Parse the text of a price file; errors name it `source`.

    Raises:
        SpecError: As for `read_prices`.
    """
    try:
        return msgspec.convert(tomllib.loads(text), OwnPrices)
    except tomllib.TOMLDecodeError as exc:
        raise SpecError(f"{source} is not valid TOML", detail=str(exc), hint=_TEMPLATE) from exc
    except msgspec.ValidationError as exc:
        found = read_complaint(str(exc), OwnPrices)
        raise SpecError(
            f"{name_line(source, text, found.path)}: {found.fact}",
            detail=f"key {found.path}" if found.path else "",
            hint=f"did you mean {found.nearest}?" if found.nearest else _TEMPLATE,
        ) from exc


def _check_known(find: Callable[[str], object], name: str) -> None:
    try:
        find(name)
    except SpecError as exc:
        raise ValueError(f"name {name!r} is unknown; {exc.hint}") from exc


def _check_once(what: str, keys: Iterable[tuple[str | None, ...]]) -> None:
    seen = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"{what} {' in '.join(filter(None, key)) or 'without a name'} has two prices")
        seen.add(key)
