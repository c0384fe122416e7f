"""Define the command `publish`, which makes a static site of records."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.options import JsonOption
from pgdyno.cli.session import session

DEFAULT_SITE = Path("pgdyno-site")
PUBLISH_EXAMPLES = (
    "Examples:\n\n`pgdyno publish pgdyno-records/* --to site`\n\n"
    "`pgdyno publish c7g/20261121-093000-bench r8g/20261121-093000-bench --to /srv/www/postgresql --json`"
)


def publish(
    records: Annotated[list[Path], typer.Argument(metavar="RECORD", help="Folders of records.")],
    *,
    to: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the site; one of an earlier call is replaced.")
    ] = DEFAULT_SITE,
    json: JsonOption = False,
) -> None:
    """Make a static site of records: an index with the conditions and an audit of each, and their reports.

    The pages load nothing from elsewhere. Only loads that answer one question share a table, and every figure has its
    interval, its trials, its spread, its doubts, what limited it, and the durability that was given up.
    """
    with session(json=json, quiet=True, yes=True) as (ui, show):
        from pgdyno.flow.records.publish import publish as publish_records

        show(publish_records(records, to=to, ui=ui))
