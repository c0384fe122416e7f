"""`compare-records` and `journal`: what records that were made already say together."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help quick
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.options import DEFAULT_RECORDS, JsonOption, RecordsOption
from pgdyno.cli.session import session

COMPARE_RECORDS_EXAMPLES = (
    "Examples:\n\n`pgdyno compare-records pgdyno-records/20261120-bench pgdyno-records/20261121-bench`\n\n"
    "`pgdyno compare-records c7g/20261121-bench r8g/20261121-bench m7i/20261121-bench` · two machines against the first\n\n"
    "`pgdyno compare-records before after --out before-after.html` · as a page; .md and .json as well"
)
JOURNAL_EXAMPLES = (
    "Examples:\n\n`pgdyno journal` · what was asked and answered here, and the best settings so far\n\n"
    "`pgdyno journal --records /srv/results --json`"
)


def compare_records(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORD", help="Folders of two records or more; the first is the reference."),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Also write it into this file: NAME.html, NAME.md or NAME.json.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Set records side by side, of one machine or of several, where they answer the same question.

    What would compare different questions is refused with the reasons: figures are then shown without a ratio, and the
    exit code is 2. Between records there is never a verdict: their trials did not alternate.
    """
    with session(json=json, quiet=True, yes=True) as (ui, show):
        from pgdyno.flow.compare_records import compare_named
        from pgdyno.flow.find_record import find_record_to_read

        for record in records:
            find_record_to_read(record, DEFAULT_RECORDS, ui=ui)
        result = compare_named(records, out=out)
        show(result)
        if result.exit_code:
            raise SystemExit(result.exit_code)


def journal(*, records: RecordsOption = DEFAULT_RECORDS, json: JsonOption = False) -> None:
    """List a folder's studies by machine and time: question, answer, and the best settings so far."""
    with session(json=json, quiet=True, yes=True) as (_, show):
        from pgdyno.flow.journal import read_journal

        show(read_journal(records))
