"""Define the options of commands on a server of the user's, and read what they say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgdyno.cli.option_values import parse_amount
from pgdyno.errors import SpecError

if TYPE_CHECKING:
    from pgdyno.spec.allowed import Allowed
    from pgdyno.spec.study import Study

DsnOption = Annotated[
    str | None,
    typer.Option(
        metavar="CONNINFO",
        help="Connection string of a server of yours; '' for what plain psql would reach.",
        show_default=False,
    ),
]
ServerHostOption = Annotated[
    str | None,
    typer.Option(
        metavar="DEST",
        help="A machine as you would give it to ssh. Without --dsn: everything but the load of load hosts runs there, with pgdyno's own"
        " server, and the record comes here. With --dsn: the machine of that server, which is watched while a load runs.",
        show_default=False,
    ),
]
LoadHostOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DEST",
        help="A machine that the load comes from, as you would give it to ssh; may be repeated.",
        show_default=False,
    ),
]
ServerAddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDR",
        help="Of pgdyno's own server: the name or IP address by which load hosts reach its machine. [default: the one that ssh"
        " shows]",
        show_default=False,
    ),
]
PasswordCommandOption = Annotated[
    str | None,
    typer.Option(
        metavar="CMD",
        help="Of a given server: the command that prints the password, such as a token; asked again every five minutes.",
        show_default=False,
    ),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WORD",
        help="busy: load a given server although others use or follow it. writes=NAME: let the load write to the database NAME."
        " wal=200GB: end the study when the server has written this much WAL, and not 50 GB."
        " data=200GB: let pgdyno's databases take this much there, and not 50 GB.",
        show_default=False,
    ),
]
ApplyWithOption = Annotated[
    str | None,
    typer.Option(
        metavar="CMD",
        help="Of a given server: have this command put settings in force; it gets NAME=VALUE lines on its standard input.",
        show_default=False,
    ),
]
InitOption = Annotated[
    Path | None,
    typer.Option(
        help="SQL file that makes the data of a given server, in place of pgbench's tables. It has all rights of the role.",
        show_default=False,
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Database of a given server to measure as it is; sessions begin read-only. Needs --workload.",
        show_default=False,
    ),
]


def check_apply_with(command: str | None, *, dsn: str | None) -> None:
    """Refuse a command that applies settings without a server of the user's.

    Raises:
        SpecError: No server of the user's is named.
    """
    if command is not None and dsn is None:
        raise SpecError(
            "--apply-with goes with a given server",
            hint="name it with --dsn, or write apply into a study that names one",
        )


def put_load_hosts(study: Study, named: list[str] | None, *, address: str | None) -> Study:
    """Return a study of pgdyno's own server with its machine, if it is not the user's, and the load hosts that were named.

    Args:
        study: The study.
        named: As for ssh.
        address: By which these machines reach the server.

    Raises:
        SpecError: The load cannot come from there, or there is an address and no load host.
    """
    import msgspec  # noqa: PLC0415 - --help needs no types

    from pgdyno.run.host.program import machine_name  # noqa: PLC0415 - likewise
    from pgdyno.spec.hosts import make_named_hosts  # noqa: PLC0415 - likewise

    if address is not None and not named:
        raise SpecError(
            "--server-address is where load hosts reach the server, and there are none",
            hint="name the machine that the load comes from: --load-host DEST",
        )
    server = msgspec.structs.replace(study.server, address=address)
    # From another machine, the study and the commands of the report must lead to this one again.
    hosts = make_named_hosts(machine_name(), named or ())
    try:
        return msgspec.structs.replace(study, server=server, hosts=hosts)
    except ValueError as exc:
        raise SpecError(str(exc)) from exc


def take_password_command(command: str | None, *, dsn: str | None) -> None:
    """Have connections to a given server ask a command for their password.

    Raises:
        SpecError: No server of the user's is named, or it is no command line.
    """
    if command is None:
        return
    if dsn is None:
        raise SpecError(
            "--password-command goes with a given server", hint="name it with --dsn, or run a study that names one"
        )
    from pgdyno.run.given.conninfo import use_password_command  # noqa: PLC0415 - --help needs no libpq
    from pgdyno.run.given.password_command import read_password_command  # noqa: PLC0415

    use_password_command(read_password_command(command))


def read_allowed(words: list[str] | None, *, dsn: str | None) -> Allowed:
    """Return what the user allows to do to a given server.

    Raises:
        SpecError: Something else was named, or one thing twice, or no server of the user's.
    """
    from pgdyno.spec.allowed import Allowed  # noqa: PLC0415 - --help needs no types

    if words and dsn is None:
        raise SpecError("--allow goes with a given server", hint="name it with --dsn, or run a study that names one")
    named = [word.partition("=")[0] for word in words or []]
    if repeated := next((what for what in named if named.count(what) > 1), None):
        raise SpecError(f"--allow {repeated} comes twice", hint="give it once")
    is_busy, writes = False, None
    most_bytes: dict[str, float | None] = {"wal": None, "data": None}
    for word in words or []:
        what, _, name = word.partition("=")
        if word == "busy":
            is_busy = True
        elif what == "writes" and name:
            writes = name
        elif what in most_bytes and name:
            most_bytes[what] = parse_amount(f"--allow {word}", name, "B", hint=f"for example --allow {what}=200GB")
        else:
            raise SpecError(
                f"--allow {word}: not known",
                hint="--allow busy loads a server that others use, --allow writes=NAME lets the load write to a database,"
                " --allow wal=200GB lets the study write that much WAL, --allow data=200GB lets pgdyno's databases take that much",
            )
    return Allowed(is_busy=is_busy, writes=writes, wal_bytes=most_bytes["wal"], data_bytes=most_bytes["data"])
