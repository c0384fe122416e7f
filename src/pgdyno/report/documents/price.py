"""Make the published document of prices: every amount in the unit of its currency, every estimate with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.report.sections.price.words import PricedRecord

PRICE_VERSION = 1


class PriceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `pgdyno price --json`. Fields may be added; renaming one needs a new version."""

    format: str = "pgdyno-price"
    version: int = PRICE_VERSION
    records: tuple[PricedRecord, ...]


def price_document(priced: Sequence[PricedRecord]) -> PriceDocument:
    """Return prices of records as a document."""
    return PriceDocument(records=tuple(priced))
