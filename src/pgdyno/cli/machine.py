"""Define the commands on this machine without a study: `check`, `clean` and `restore`."""

# ruff: noqa: PLC0415 - flows are imported when their command runs, which keeps --help fast
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.given_options import DsnOption, PasswordCommandOption, take_password_command
from pgdyno.cli.option_values import put_wal_home, refuse_others, server_table
from pgdyno.cli.options import (
    BindirOption,
    ClientsOption,
    HomeOption,
    JsonOption,
    RunAsOption,
    ServerOption,
    WalHomeOption,
    YesOption,
)
from pgdyno.cli.over import go_over_if_studied
from pgdyno.cli.session import session
from pgdyno.errors import SpecError

CHECK_EXAMPLES = (
    "Examples:\n\n`pgdyno check` · for the embedded PostgreSQL on this machine\n\n"
    "`pgdyno check mine.toml` · for a study\n\n"
    "`pgdyno check --server 15 --set synchronous_commit=off --scale 10 --clients 64`\n\n"
    "`sudo pgdyno check --pgdata /var/lib/postgresql/15/main --clients 64` · for an existing server\n\n"
    "`pgdyno check --dsn postgresql://bench@db1/postgres` · for a server that is reached by a connection string\n\n"
    "`pgdyno check && pgdyno bench` · measure only if no problem is found"
)


CLEAN_EXAMPLES = (
    "Examples:\n\n`pgdyno clean --yes`\n\n"
    "`pgdyno clean --dsn postgresql://bench@db1/postgres` · drop what a bench has loaded there"
)
RESTORE_EXAMPLES = (
    "Examples:\n\n`sudo pgdyno restore`\n\n"
    "`sudo pgdyno restore --restart` · also restart servers where a setting needs it\n\n"
    "`pgdyno restore --dsn postgresql://bench@db1/postgres` · settings that `tune --apply` or a killed compare changed there\n\n"
    "`pgdyno restore --dsn postgresql://bench@db1/postgres --forget` · that server is gone"
)


def check(
    study: Annotated[
        Path | None,
        typer.Argument(help="Study to check for: a file, or a name that `studies` lists.", show_default=False),
    ] = None,
    *,
    server: ServerOption = None,
    pg_bindir: BindirOption = None,
    pgdata: Annotated[
        Path | None,
        typer.Option(
            "--pgdata", "-D", help="Data directory of an existing server, which is only read.", show_default=False
        ),
    ] = None,
    dsn: Annotated[
        str | None,
        typer.Option(
            metavar="CONNINFO",
            help="Connection string of a server of yours, which is only read; '' for what plain psql would reach.",
            show_default=False,
        ),
    ] = None,
    password_command: PasswordCommandOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Server setting NAME=VALUE; may be repeated.", show_default=False),
    ] = None,
    scale: Annotated[
        int | None, typer.Option(help="pgbench's scale factor. [default: from the machine]", show_default=False)
    ] = None,
    clients: ClientsOption = None,
    home: HomeOption = None,
    wal_home: WalHomeOption = None,
    json: JsonOption = False,
) -> None:
    """Check this machine for problems that would distort a measurement; exit code 1 if there are any."""
    with session(json=json, quiet=True, yes=True) as (ui, show):
        table = server_table(server=server, bindir=pg_bindir, port=None, settings=settings or [])
        own = {"server": server, "pg-bindir": pg_bindir, "set": settings, "scale": scale, "pgdata": pgdata}
        if study is not None:
            refuse_others("a study", **own, clients=clients, dsn=dsn is not None)
        take_password_command(password_command, dsn=dsn)
        if dsn is not None:
            from pgdyno.flow.given.check import GivenCheck, check_given

            refuse_others("--dsn", **own, home=home, wal_home=wal_home)
            result: Check | GivenCheck = check_given(dsn, clients=clients)
        else:
            from pgdyno.flow.check import Check, check_data, check_study, make_default_study
            from pgdyno.run.cluster.home import choose_home
            from pgdyno.spec.read import read_study

            asked = read_study(study) if study is not None else make_default_study(table, scale=scale, clients=clients)
            go_over_if_studied(asked, study, ui)
            if pgdata is None:
                asked = put_wal_home(asked, wal_home)
                result = check_study(asked, home=choose_home(home), is_planned=study is not None)
            else:
                refuse_others("--pgdata", set=settings, home=home, wal_home=wal_home)
                is_named = server is not None or pg_bindir is not None
                result = check_data(pgdata, named=asked.server if is_named else None, scale=scale, clients=clients)
        show(result)
        if result.exit_code:
            raise SystemExit(result.exit_code)


def clean(
    *,
    dsn: DsnOption = None,
    password_command: PasswordCommandOption = None,
    home: HomeOption = None,
    run_as: RunAsOption = None,
    json: JsonOption = False,
    yes: YesOption = False,
) -> None:
    """Remove loaded clusters from pgdyno's home, or pgdyno's own databases from a server of yours; records are kept.

    Stopped studies that another machine has sent to this one are removed, too: their records stay there.
    """
    with session(json=json, quiet=True, yes=yes) as (ui, show):
        take_password_command(password_command, dsn=dsn)
        if dsn is not None:
            from pgdyno.flow.given.clean import clean_given

            refuse_others("--dsn", home=home, run_as=run_as)
            show(clean_given(dsn, ui=ui))
            return
        from pgdyno.conduct.workspace import Workspace
        from pgdyno.flow.clean import clean_home

        show(clean_home(Workspace.make(out=None, home=home, run_as=run_as), ui=ui))


def restore(
    *,
    dsn: DsnOption = None,
    password_command: PasswordCommandOption = None,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="Restart servers if a setting needs it.")
    ] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="With --dsn, of a server that is gone: drop what would be put back there from the journal; nothing is connected to.",
        ),
    ] = False,
    json: JsonOption = False,
    yes: YesOption = False,
) -> None:
    """Undo what this account changed with `tune --apply`, and what a killed pgdyno left changed here or in a server of yours."""
    with session(json=json, quiet=True, yes=yes) as (ui, show):
        from pgdyno.flow.restore import forget_given, restore_given, restore_host

        take_password_command(password_command, dsn=dsn)
        if dsn is not None:
            refuse_others("--dsn", restart=restart)
            restored = forget_given(dsn, ui=ui) if forget else restore_given(dsn, ui=ui)
        elif forget:
            raise SpecError(
                "--forget goes with a given server",
                hint="name it with --dsn; plain `pgdyno restore` prints the command",
            )
        else:
            restored = restore_host(may_restart=restart, on_activity=ui.show_activity)
        show(restored)
        if restored.exit_code:
            raise SystemExit(restored.exit_code)
