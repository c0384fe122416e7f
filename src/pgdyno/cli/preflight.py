"""`check`: what would spoil a measurement on this machine, before anybody has waited for one."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help quick
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.options import BindirOption, ClientsOption, HomeOption, JsonOption, ServerOption, server_table
from pgdyno.cli.session import session
from pgdyno.errors import SpecError

CHECK_EXAMPLES = (
    "Examples:\n\n`pgdyno check` · this machine, for the embedded PostgreSQL\n\n"
    "`pgdyno check mine.toml` · for a study\n\n"
    "`pgdyno check --server 15 --set synchronous_commit=off --scale 10 --clients 64`\n\n"
    "`sudo pgdyno check --pgdata /var/lib/postgresql/15/main --clients 64` · for a server that is already here\n\n"
    "`pgdyno check && pgdyno bench` · measure only where nothing spoils it"
)


def check(
    study: Annotated[Path | None, typer.Argument(help="A study file that is to be run.", show_default=False)] = None,
    *,
    server: ServerOption = None,
    pg_bindir: BindirOption = None,
    pgdata: Annotated[
        Path | None,
        typer.Option(
            "--pgdata", "-D", help="Data directory of a server of yours; it is only looked at.", show_default=False
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A server setting, NAME=VALUE; may be repeated.", show_default=False),
    ] = None,
    scale: Annotated[
        int | None, typer.Option(help="pgbench's scale. [default: from the machine]", show_default=False)
    ] = None,
    clients: ClientsOption = None,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Look for what would spoil a measurement here; exit code 1 when something would."""
    with session(json=json, quiet=True, yes=True) as (_, show):
        from pgdyno.flow.check import ask_default, check_data, check_study
        from pgdyno.run.cluster.home import default_home
        from pgdyno.spec.read import read_study

        table = server_table(server=server, bindir=pg_bindir, port=None, settings=settings or [])
        if study is not None:
            _refuse_beside("a study", **table, scale=scale, clients=clients, pgdata=pgdata)
        asked = read_study(study) if study is not None else ask_default(table, scale=scale, clients=clients)
        if pgdata is not None:
            _refuse_beside("--pgdata", set=settings, home=home)
            is_named = server is not None or pg_bindir is not None
            result = check_data(pgdata, named=asked.server if is_named else None, scale=scale, clients=clients)
        else:
            place = home.absolute() if home else default_home()
            result = check_study(asked, home=place, is_planned=study is not None)
        show(result)
        if result.exit_code:
            raise SystemExit(result.exit_code)


def _refuse_beside(what: str, **options: object) -> None:
    others = [name.replace("_", "-") for name, value in options.items() if value]
    if others:
        raise SpecError(f"{what} says all there is to know: leave out {', '.join(others)}")
