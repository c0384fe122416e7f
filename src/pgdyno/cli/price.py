"""Define the command `price`: the monthly cost of a record's machine, and the cost of a million transactions."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgdyno.cli.options import DEFAULT_RECORDS, JsonOption, RecordsOption
from pgdyno.cli.session import session
from pgdyno.errors import SpecError

if TYPE_CHECKING:
    from pgdyno.price.worth import Load

PRICE_EXAMPLES = (
    "Examples:\n\n`pgdyno price` · the newest record, on the machine that it names\n\n"
    "`pgdyno price pgdyno-records/20261121-093000-bench --host c7g.2xlarge` · an instance without volumes\n\n"
    "`pgdyno price --host studies/hosts/c7g.2xlarge-gp3-raid10.toml --tps 800` · with volumes, at your own load\n\n"
    "`pgdyno price --prices mine.toml` · with your own prices; studies/prices/template.toml explains them\n\n"
    "`pgdyno price results/graviton results/intel --host c7g.2xlarge --host c7i.2xlarge` · compare two machines"
)


def price(
    records: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RECORD",
            help="Folders of records; several are shown side by side. [default: the newest]",
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
        float | None,
        typer.Option(help="Your average load over the month, which is then priced as well.", show_default=False),
    ] = None,
    utilisation: Annotated[
        str | None, typer.Option(help="Your average load as a share of full load, such as 30%.", show_default=False)
    ] = None,
    folder: RecordsOption = DEFAULT_RECORDS,
    json: JsonOption = False,
) -> None:
    """Show what a record's machine costs per month, and what a million transactions cost on it.

    Nothing is measured. Every price has its date and source; a price without a source stays unknown.
    """
    with session(json=json, quiet=True, yes=True) as (ui, show):
        from pgdyno.flow.find_record import find_record_to_read
        from pgdyno.flow.price import price_records

        load = _read_load(tps, utilisation)
        stores = [find_record_to_read(path, folder, ui=ui) for path in records or (None,)]
        show(price_records(stores, hosts=host or (), prices=prices, load=load))


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
