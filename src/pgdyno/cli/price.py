"""Define the command `price`: the monthly cost of a machine, and the cost of a million transactions."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgdyno.cli.endpoints import check_standbys
from pgdyno.cli.options import DEFAULT_RECORDS, JsonOption, RecordsOption
from pgdyno.cli.session import session
from pgdyno.errors import SpecError

if TYPE_CHECKING:
    from pgdyno.price.worth import Load

PRICE_EXAMPLES = (
    "Examples:\n\n`pgdyno price` · the newest record, on the machine that it names\n\n"
    "`pgdyno price pgdyno-records/20261121-093000-bench --host c7g.2xlarge` · an instance without volumes\n\n"
    "`pgdyno price --host hosts/c7g.2xlarge-gp3-raid10 --tps 800` · with volumes, at your own load\n\n"
    "`pgdyno price --prices mine.toml` · with your own prices; `pgdyno studies prices/template` explains them\n\n"
    "`pgdyno price results/graviton results/intel --host c7g.2xlarge --host c7i.2xlarge` · compare two machines\n\n"
    "`pgdyno price --host c7g.2xlarge --host c7i.2xlarge --tps c7g.2xlarge=15000 --tps c7i.2xlarge=17000` · the same"
    " without records\n\n"
    "`pgdyno price --host r8g.2xlarge --standbys 2 --pooler-host c7g.large` · with two standbys, and a machine for the pooler"
)


def price(
    records: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RECORD",
            help="Folders of records; several are shown side by side. [default: the newest; with several --host, or"
            " where there is no record, the machines alone]",
            show_default=False,
        ),
    ] = None,
    *,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="The machine: an instance such as c7g.2xlarge, or a host file with its volumes; once for all records, or"
            " once for each. [default: as in the record]",
            show_default=False,
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="File with your own prices, which take precedence over pgdyno's.", show_default=False),
    ] = None,
    tps: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[HOST=]TPS",
            help="Your average load over the month, which is then priced as well. HOST=TPS: what a --host does at full"
            " load, without a record; once for each.",
            show_default=False,
        ),
    ] = None,
    utilisation: Annotated[
        str | None, typer.Option(help="Your average load as a share of full load, such as 30%.", show_default=False)
    ] = None,
    standbys: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Standbys of each server, which are paid for, too. [default: as in the record or the host file]",
            show_default=False,
        ),
    ] = None,
    standby_host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="The machine of each standby, as for --host; an instance has the server's volumes. [default: the server's]",
            show_default=False,
        ),
    ] = None,
    pooler_host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="A machine that the pooler has for itself, as for --host. [default: it runs beside the server]",
            show_default=False,
        ),
    ] = None,
    folder: RecordsOption = DEFAULT_RECORDS,
    json: JsonOption = False,
) -> None:
    """Show what a machine costs per month, and what a million transactions cost on it.

    Nothing is measured. Every price has its date and source; a price without a source stays unknown.
    """
    with session(json=json, quiet=True, yes=True) as (ui, show):
        from pgdyno.flow.price import AskedSurroundings, price_machines, price_records
        from pgdyno.flow.records.find import find_record_to_read
        from pgdyno.record.store import find_records

        average, by_host = _read_tps(tps or ())
        load = _read_load(average, utilisation)
        hosts = host or ()
        if standbys is not None:
            check_standbys(standbys, none="0 prices the server alone")
        around = AskedSurroundings(standbys=standbys, standby_host=standby_host, pooler_host=pooler_host)
        if not records and (by_host or len(hosts) > 1 or (hosts and not find_records(folder))):
            if utilisation is not None and not by_host:
                raise SpecError(
                    f"--utilisation {utilisation}: of how many TPS?",
                    hint=f"without a record, say what a machine does at full load: --tps {next(iter(hosts))}=TPS",
                )
            show(price_machines(hosts, tps=by_host, prices=prices, load=load, around=around))
            return
        if by_host:
            raise SpecError("a record has TPS of its own", hint="leave out either the record or --tps HOST=TPS")
        stores = [find_record_to_read(path, folder, ui=ui) for path in records or (None,)]
        show(price_records(stores, hosts=hosts, prices=prices, load=load, around=around))


def _read_tps(texts: Sequence[str]) -> tuple[float | None, dict[str, float]]:
    """Return the average load, and the TPS at full load by machine."""
    average: float | None = None
    by_host: dict[str, float] = {}
    for said in texts:
        name, equals, number = said.rpartition("=")
        try:
            value = float(number)
        except ValueError as exc:
            raise SpecError(f"--tps {said}: not a number", hint="for example --tps 800 or --tps c7g.large=800") from exc
        if not equals and average is not None:
            raise SpecError("--tps is given twice", hint="one average load, or HOST=TPS for each machine")
        if not equals:
            average = value
        elif not (math.isfinite(value) and value > 0) or name in by_host:
            raise SpecError(f"--tps {said}: not one number above 0 for {name}", hint="for example --tps c7g.large=800")
        else:
            by_host[name] = value
    return average, by_host


def _read_load(tps: float | None, utilisation: str | None) -> Load | None:
    from pgdyno.price.worth import Load
    from pgdyno.spec.table import check_share

    if tps is not None and utilisation is not None:
        raise SpecError("--tps and --utilisation exclude each other", hint="leave one of them out")
    if tps is not None:
        if not (math.isfinite(tps) and tps > 0):
            raise SpecError(f"--tps {tps:g}: not above 0", hint="for example --tps 800")
        return Load(tps=tps)
    if utilisation is None:
        return None
    try:
        ratio = check_share("--utilisation", utilisation, 0.0001, 1.0)
    except ValueError as exc:
        raise SpecError(str(exc), hint="for example --utilisation 30%") from exc
    return Load(utilisation_ratio=ratio)
