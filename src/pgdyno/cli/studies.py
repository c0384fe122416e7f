"""Define the command `studies`, which lists and prints the files that pgdyno ships."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

import sys
from typing import Annotated

import typer

from pgdyno.cli.options import JsonOption
from pgdyno.cli.session import session
from pgdyno.errors import SpecError

STUDIES_EXAMPLES = (
    "Examples:\n\n`pgdyno studies`\n\n"
    "`pgdyno studies template > mine.toml` · every key of a study, explained; then `pgdyno run mine.toml`\n\n"
    "`pgdyno studies hosts/template > host.toml` · the same of a machine, for --host and --emulate"
)


def studies(
    name: Annotated[str | None, typer.Argument(help="Print this file, to be changed.", show_default=False)] = None,
    *,
    json: JsonOption = False,
) -> None:
    """List the studies, host files and templates that pgdyno ships, or print one of them.

    `run`, `plan` and `check` take the name of a study as it stands in the list, --host and --emulate that of a host file.
    """
    with session(json=json, quiet=True, yes=True) as (ui, show):
        from pgdyno.flow.studies import read_shipped, view_shipped

        if name is None:
            show(view_shipped())
            return
        if json:
            raise SpecError("a study is printed as TOML", hint="leave --json out; the list has the path of each file")
        text = read_shipped(name)
        ui.close()
        sys.stdout.write(text)
