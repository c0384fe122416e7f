"""Define the command `hosts`, which looks at machines that are reached by ssh."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

from typing import Annotated

import typer

from pgdyno.cli.options import JsonOption
from pgdyno.cli.session import session

HOSTS_EXAMPLES = (
    "Examples:\n\n`pgdyno hosts db1` · the machine that `ssh db1` reaches\n\n"
    "`pgdyno hosts hosts.toml` · all machines of a hosts file, or of a study\n\n"
    "`pgdyno hosts hosts.toml --json`"
)


def hosts(
    named: Annotated[
        str,
        typer.Argument(
            metavar="FILE|DESTINATION", help="Hosts file or study, or one machine as for ssh.", show_default=False
        ),
    ],
    *,
    json: JsonOption = False,
) -> None:
    """Check that machines are reached by ssh, and compare their clocks; exit code 1 if one is not reached.

    A load host needs a pgbench, and must reach the server and the replicas that a study names. Python 3.7 or later is needed there; nothing is
    left there.
    """
    with session(json=json, quiet=False, yes=True) as (ui, show):
        from pgdyno.flow.hosts import find_dsns, read_named, view_hosts

        result = view_hosts(read_named(named), dsns=find_dsns(named), ui=ui)
        show(result)
        if result.exit_code:
            raise SystemExit(result.exit_code)
