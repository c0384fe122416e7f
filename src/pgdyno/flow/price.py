"""Price a record's machine and transactions, or machines alone: look up their prices. Nothing is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.analyse.disk.sold import list_unsold
from pgdyno.errors import SpecError
from pgdyno.flow.disk_view import read_declared
from pgdyno.flow.report import compose_report, price_report
from pgdyno.flow.terminal import print_document
from pgdyno.price.book import PriceBook
from pgdyno.price.study import PriceOptions, find_host, price_machine
from pgdyno.price.topology import Surroundings
from pgdyno.price.worth import Load
from pgdyno.record.store import RecordStore
from pgdyno.report.sections.price.words import PricedRecord, describe_alarm
from pgdyno.spec.host import HostSpec
from pgdyno.spec.prices import read_prices


class Priced(msgspec.Struct, frozen=True, kw_only=True):
    """Records with what they cost."""

    records: tuple[PricedRecord, ...]

    def to_json(self) -> bytes:
        """Return all of it as a JSON document."""
        from pgdyno.report.documents.price import price_document  # noqa: PLC0415 - each form loads what it needs

        return msgspec.json.encode(price_document(self.records))

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        from pgdyno.report.sections.price.section import build_prices  # noqa: PLC0415

        return print_document(build_prices(self.records))


class AskedSurroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around the server, as the user names it."""

    standbys: int | None = None
    standby_host: str | None = None
    pooler_host: str | None = None

    def read(self) -> Surroundings:
        """Read the machines that are named.

        Raises:
            SpecError: One of them is not understood.
        """
        return Surroundings(
            standbys=self.standbys,
            standby_host=read_declared(self.standby_host),
            pooler_host=read_declared(self.pooler_host),
        )


_ALONE = AskedSurroundings()


def price_records(
    stores: Sequence[RecordStore],
    *,
    hosts: Sequence[str],
    prices: Path | None,
    load: Load | None,
    around: AskedSurroundings = _ALONE,
) -> Priced:
    """Price records, and compare them.

    Args:
        stores: Of the records.
        hosts: Machines as the user names them: none, one for all, or one for each record.
        prices: The user's own file of prices; None: only pgdyno's.
        load: The user's own; None: none is said.
        around: What stands around each server.

    Raises:
        SpecError: A machine or the prices are not understood, or a record holds no trial that ended.
    """
    if len(hosts) not in {0, 1, len(stores)}:
        raise SpecError(
            f"--host is given {len(hosts)} times for {len(stores)} records",
            hint="give it once for all, or once for each",
        )
    book, beside = PriceBook(own=None if prices is None else read_prices(prices)), around.read()
    declared = [read_declared(host) for host in hosts] or [None]
    named = declared * len(stores) if len(declared) == 1 else declared
    return Priced(
        records=tuple(
            _price_record(store, PriceOptions(host=host, book=book, load=load, around=beside))
            for store, host in zip(stores, named, strict=True)
        )
    )


def price_machines(
    hosts: Sequence[str],
    *,
    tps: Mapping[str, float],
    prices: Path | None,
    load: Load | None,
    around: AskedSurroundings = _ALONE,
) -> Priced:
    """Price machines without a record, and compare them.

    Args:
        hosts: Machines as the user names them.
        tps: Their TPS at full load, by these names; may lack some, of which only an average load is priced.
        prices: The user's own file of prices; None: only pgdyno's.
        load: The user's own; None: none is said.
        around: What stands around each machine.

    Raises:
        SpecError: A machine or the prices are not understood, or TPS are of none of the machines.
    """
    others = [name for name in tps if name not in hosts]
    if others:
        raise SpecError(
            f"--tps {others[0]}={tps[others[0]]:g}: no --host is {others[0]}", hint="write it as after --host"
        )
    if len(set(hosts)) < len(hosts):
        raise SpecError("--host names a machine twice", hint="name each machine once")
    book, beside = PriceBook(own=None if prices is None else read_prices(prices)), around.read()
    priced = []
    for named in hosts:
        host = read_declared(named)
        options = PriceOptions(host=host, book=book, load=load, around=beside)
        price = price_machine(host or HostSpec(), tps.get(named), options)
        alarm = " ".join(list_unsold(host or HostSpec()))
        priced.append(PricedRecord(record_dir="", name=price.cost.name, price=price, alarm=alarm))
    return Priced(records=tuple(priced))


def _price_record(store: RecordStore, question: PriceOptions) -> PricedRecord:
    report = compose_report(store).report
    unsold = list_unsold(question.host or find_host(report.record, question.book))
    return PricedRecord(
        record_dir=report.record_dir,
        name=report.record.name,
        price=price_report(report, question),
        alarm=" ".join(filter(None, (describe_alarm(report), *unsold))),
    )
