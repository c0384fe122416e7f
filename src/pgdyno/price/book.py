"""Look up prices: in the user's own file first, then in pgdyno's prices for the same region and currency.

All prices are in the currency of the user's file. Currencies are not converted, and prices of other regions are not
used.
"""

from __future__ import annotations

import msgspec

from pgdyno.facts.prices import CURRENCY, REGION, Rate, Term, find_rate
from pgdyno.facts.volumes import Volume, find_volume
from pgdyno.spec.host import HostSpec
from pgdyno.spec.prices import MachinePrice, OwnPrices

RATE_KEYS = {
    Term.ON_DEMAND: "on_demand_per_hour",
    Term.RESERVED_1Y: "reserved_1y_per_hour",
    Term.RESERVED_3Y: "reserved_3y_per_hour",
    Term.SPOT: "spot_per_hour",
}
"""The keys of an instance's prices in a file of the user's own."""


class PriceBook(msgspec.Struct, frozen=True, kw_only=True):
    """All prices to use."""

    own: OwnPrices | None = None
    """The user's own prices; None to use only pgdyno's."""

    @property
    def currency(self) -> str:
        """Currency of all amounts."""
        return CURRENCY if self.own is None else self.own.currency

    def region_of(self, host: HostSpec) -> str:
        """Return the region whose prices apply to a machine."""
        return host.region or (REGION if self.own is None else self.own.region)

    def find_hourly(self, instance: str, region: str, term: Term) -> Rate | None:
        """Find the hourly price of an instance; return None if unknown."""
        if self.own is not None:
            for row in self.own.instance:
                per_hour = getattr(row, RATE_KEYS[term])
                is_it = (row.name.lower(), row.region or self.own.region) == (instance.lower(), region)
                if is_it and per_hour is not None:
                    return Rate(
                        per_hour=per_hour,
                        how="",
                        date=row.date or self.own.date,
                        source=row.source or self.own.source,
                    )
        return find_rate(instance, region, term) if self.currency == CURRENCY else None

    def find_volume(self, name: str, region: str) -> Volume:
        """Find a type of volume with the prices to use, which are None if unknown."""
        volume = find_volume(name)
        if self.own is not None:
            for row in self.own.volume:
                if (row.name.lower(), row.region or self.own.region) == (volume.name, region):
                    return msgspec.structs.replace(
                        volume,
                        usd_per_gib_month=row.per_gib_month,
                        usd_per_iops_month=row.per_iops_month,
                        usd_per_mb_month=row.per_mb_month,
                        cheaper_iops=(),
                        price_date=row.date or self.own.date,
                        price_source=row.source or self.own.source,
                    )
        if self.currency == CURRENCY and region == REGION:
            return volume
        return msgspec.structs.replace(
            volume, usd_per_gib_month=None, usd_per_iops_month=None, usd_per_mb_month=None, price_source=None
        )

    def find_machine(self, name: str | None) -> MachinePrice | None:
        """Find the user's price of a machine that is not an instance: by its name, else the price for any machine."""
        machines = () if self.own is None else self.own.machine
        by_name = {machine.name: machine for machine in machines}
        return by_name.get(name) or by_name.get(None)

    def has_own_machine(self, name: str | None) -> bool:
        """Return whether the user's prices name this machine."""
        return name is not None and self.own is not None and any(machine.name == name for machine in self.own.machine)

    def describe(self, region: str) -> str:
        """Describe these prices for a message about a missing one: `in eu-central-1, in EUR`."""
        return f"in {region}, in {self.currency}"
