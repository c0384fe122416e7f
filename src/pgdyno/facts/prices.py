"""Look up the hourly price of an instance: from `prices.toml`, and on demand from `instances.csv`.

Each price is for one region and has its date and source. A price that no source states is None. Prices of other regions
are not guessed.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools

import msgspec

from pgdyno.facts.data_file import read_toml
from pgdyno.facts.instances import find_instance

REGION = "us-east-1"
"""Region of all prices in prices.toml, instances.csv and volumes.toml."""
CURRENCY = "USD"
"""Currency of those prices."""
PRICE_LISTS = {
    "aws": ("https://aws.amazon.com/ec2/pricing/", "https://aws.amazon.com/ebs/pricing/"),
    "alibaba": ("https://www.alibabacloud.com/pricing", "https://www.alibabacloud.com/pricing"),
}
"""Where providers publish the prices of instances and of volumes, by provider."""


class Term(enum.Enum):
    """Terms on which a machine is paid for."""

    ON_DEMAND = "on demand"
    RESERVED_1Y = "reserved 1 year"
    RESERVED_3Y = "reserved 3 years"
    SPOT = "spot"
    """The provider may reclaim the machine at any time."""
    OWN = "your own"
    """The user's own figure."""


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Price of an hour."""

    per_hour: float
    how: str
    """Explanation in a clause; may be empty."""
    date: dt.date | None
    source: str


class _SpotAdvice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The provider's statistics of an instance on the spot market."""

    saving_percent: int
    """Saving compared with the on-demand price, on average over 30 days."""
    reclaimed: str
    """Share of instances that were reclaimed within a month."""


class _Spot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    region: str
    date: dt.date
    source: str
    instances: dict[str, _SpotAdvice]


class _Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    spot: _Spot


def find_rate(instance: str, region: str, term: Term) -> Rate | None:
    """Find the hourly price of an instance; return None if no source states it.

    Raises:
        SpecError: The instance is unknown.
    """
    sheet = find_instance(instance)
    if region != REGION or sheet.usd_per_hour is None or term not in {Term.ON_DEMAND, Term.SPOT}:
        return None
    if term is Term.ON_DEMAND:
        return Rate(per_hour=sheet.usd_per_hour, how="", date=sheet.price_date, source=sheet.source)
    spot = _read().spot
    advice = spot.instances.get(sheet.name)
    if advice is None:
        return None
    return Rate(
        per_hour=sheet.usd_per_hour * (1 - advice.saving_percent / 100),
        how=f"{advice.saving_percent} % less than on demand over 30 days; {advice.reclaimed} were taken back within a month",
        date=spot.date,
        source=spot.source,
    )


@functools.cache
def _read() -> _Prices:
    return read_toml("prices.toml", _Prices)
