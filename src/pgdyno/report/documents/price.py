"""What it costs, for programs: every amount in the unit of its currency, every estimate with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.report.sections.price.words import PricedRecord

PRICE_VERSION = 1


class PriceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `pgdyno price --json` prints. Fields may be added; none is renamed without a new version."""

    format: str = "pgdyno-price"
    version: int = PRICE_VERSION
    records: tuple[PricedRecord, ...]


def price_document(priced: Sequence[PricedRecord]) -> PriceDocument:
    """Prices of records as a document."""
    return PriceDocument(records=tuple(priced))
