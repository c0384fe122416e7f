"""What an hour of an instance costs: the typed reader of `prices.toml`, and of the prices on demand in `instances.csv`.

Prices of a day, in a region: each has its date and source, and what no source says is None. It neither guesses at another
region nor at next month.
"""

from __future__ import annotations

import datetime as dt
import enum
import functools
import importlib.resources

import msgspec

from pgdyno.facts.instances import find_instance

REGION = "us-east-1"
"""That all prices here and in volumes.toml are of."""
CURRENCY = "USD"
"""That they are in."""


class Term(enum.Enum):
    """On which terms one has a machine."""

    ON_DEMAND = "on demand"
    RESERVED_1Y = "reserved 1 year"
    RESERVED_3Y = "reserved 3 years"
    SPOT = "spot"
    """Until the provider wants it back, which it may at any time."""
    OWN = "your own"
    """At what its owner says that it costs."""


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """What an hour costs."""

    per_hour: float
    how: str
    """In a clause; empty where there is nothing to say."""
    date: dt.date | None
    source: str


class _SpotAdvice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the provider says of an instance on the spot market."""

    saving_percent: int
    """Of the price on demand, on average over 30 days."""
    reclaimed: str
    """How many of them were taken back within a month."""


class _Spot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    region: str
    date: dt.date
    source: str
    instances: dict[str, _SpotAdvice]


class _Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    spot: _Spot


def find_rate(instance: str, region: str, term: Term) -> Rate | None:
    """What an hour of an instance costs; None where no source says it.

    Raises:
        SpecError: No such instance is known.
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
    text = importlib.resources.files("pgdyno.facts").joinpath("prices.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Prices)
