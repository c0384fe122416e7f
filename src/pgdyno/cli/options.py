"""Define the options that several commands share, each with one name, meaning and help text."""

from __future__ import annotations

import difflib
import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pgdyno.errors import SpecError
from pgdyno.units import parse_in_unit

if TYPE_CHECKING:
    from pgdyno.spec.allowed import Allowed
    from pgdyno.spec.study import Study

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Answer every question with yes.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
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
        help="The machine of a given server as you would give it to ssh: it is watched while a load runs.",
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
        " wal=200GB: end the study when the server has written this much WAL, and not 50 GB.",
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
HomeOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder for pgdyno's clusters, on the disk to measure. [default: /var/lib/pgdyno for root,"
        " else ~/.local/share/pgdyno]",
        show_default=False,
    ),
]
WalHomeOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for pg_wal, on a disk of its own; it must exist. [default: pg_wal lies with the data]",
        show_default=False,
    ),
]
EmulateOption = Annotated[
    Path | None,
    typer.Option(
        metavar="HOST.toml",
        help="Run on an emulation of the disks and the size of a host file's machine; `studies` lists some. Needs root.",
        show_default=False,
    ),
]
RestoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="WORD",
        help="copy: each trial begins with the data as loaded. none: with what the trial before left, for loads that only read,"
        " or whose data may age. [default: copy]",
        show_default=False,
    ),
]
RestoreCommandOption = Annotated[
    str | None,
    typer.Option(
        metavar="CMD",
        help="Have this command restore the data before each trial, such as from a snapshot; docs/guide/restoring.md has examples.",
        show_default=False,
    ),
]
RunAsOption = Annotated[
    str | None,
    typer.Option(
        help="Account for PostgreSQL when pgdyno runs as root. [default: postgres, else nobody]",
        show_default=False,
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(help="`embedded` or an installed major version such as 15. [default: embedded]", show_default=False),
]
BindirOption = Annotated[
    Path | None, typer.Option(help="Folder with the programs of another PostgreSQL.", show_default=False)
]
StandbysOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Standbys on this machine that stream from the server, each with a copy of the data. [default: none]",
        show_default=False,
    ),
]
ScaleOption = Annotated[
    int | None,
    typer.Option(help="pgbench's scale factor, 15 MB per unit. [default: from the machine]", show_default=False),
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
ClientsOption = Annotated[
    int | None, typer.Option("--clients", "-c", help="Connections. [default: 4 for each CPU]", show_default=False)
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", "-j", help="pgbench's threads. [default: one for each CPU]", show_default=False),
]
ModeOption = Annotated[
    str | None,
    typer.Option("--mode", "-M", help="simple, extended or prepared. [default: simple]", show_default=False),
]
RateOption = Annotated[
    float | None, typer.Option(help="Open loop: schedule this many transactions per second.", show_default=False)
]
DiskOption = Annotated[
    bool,
    typer.Option(
        "--disk/--no-disk",
        help="First measure the disks of data and --wal-home, each in up to 40 s, unless the home has a card of the last"
        " 24 hours.",
    ),
]
OutOption = Annotated[
    Path | None, typer.Option(help="Folder for the record. [default: pgdyno-records/TIME-NAME]", show_default=False)
]
RecordArgument = Annotated[
    Path | None, typer.Argument(help="Folder of a record. [default: the newest]", show_default=False)
]
RecordsOption = Annotated[Path, typer.Option("--records", help="Folder that holds records.")]
DEFAULT_RECORDS = Path("pgdyno-records")
# Upper limit of bytes (an exabyte) or seconds.
_MOST = 1e18
# A command of the user's has an option of its own.
_RESTORE_WORDS = ("copy", "none")
_Choice = TypeVar("_Choice", bound=enum.Enum)


def given(**options: object) -> dict[str, object]:
    """Return the options that were given, by name."""
    return {key: value for key, value in options.items() if value is not None}


def read_pairs(settings: list[str]) -> dict[str, str]:
    """Parse the values of --set, by name.

    Raises:
        SpecError: A value is not of the form NAME=VALUE.
    """
    pairs = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SpecError(f"--set {text}: not of the form NAME=VALUE", hint="for example --set shared_buffers=2GB")
        pairs[name.strip()] = value.strip()
    return pairs


def data_table(
    *,
    scale: int | None,
    init: Path | None,
    database: str | None,
    workloads: list[str] | None,
    wal_home: Path | None = None,
    restore: str | None = None,
    restore_command: str | None = None,
) -> dict[str, object]:
    """Build a study's [data] table from options.

    Raises:
        SpecError: The default workload, which writes, would run in a database that is there; or the options for restoring
            contradict each other.
    """
    if database and not workloads:
        raise SpecError(
            "--database: name the load with --workload",
            hint="a script file that only reads; `select-only` where the database has pgbench's tables",
        )
    places = {"init": init, "wal_home": wal_home}
    restoring = _restore_keys(restore, restore_command)
    return given(
        scale=scale,
        database=database,
        **restoring,
        **{key: str(path) for key, path in places.items() if path is not None},
    )


def read_init_steps(steps: str | None) -> dict[str, object]:
    """Read pgbench's own notation of the steps of loading into keys of [data].

    Raises:
        SpecError: It is none that pgdyno's trials can begin with.
    """
    if steps is None:
        return {}
    known = {
        f"dt{generate}vp{keys}": {"generate": side, "foreign_keys": bool(keys)}
        for generate, side in (("g", "client"), ("G", "server"))
        for keys in ("", "f")
    }
    if steps not in known:
        raise SpecError(
            f"--init-steps {steps}: not one of {', '.join(known)}",
            hint="g: pgbench generates the rows, G: the server does; f: also foreign keys",
        )
    return dict(known[steps])


def put_wal_home(study: Study, wal_home: Path | None) -> Study:
    """Return a study whose pg_wal lies in the folder that was named, if one was.

    Raises:
        SpecError: It measures a server of the user's.
    """
    if wal_home is None:
        return study
    import msgspec  # noqa: PLC0415 - --help needs no types

    if study.server.dsn is not None:
        raise SpecError("--wal-home is for pgdyno's own servers: pg_wal of a given server stays where it is")
    return msgspec.structs.replace(study, data=msgspec.structs.replace(study.data, wal_home=str(wal_home.absolute())))


def put_emulated(study: Study, host_file: Path | None) -> Study:
    """Return a study that runs on an emulation of the machine of a host file, if one was named.

    Raises:
        SpecError: The file cannot be read, or the study measures a server of the user's.
    """
    if host_file is None:
        return study
    import msgspec  # noqa: PLC0415 - --help needs no types

    from pgdyno.spec.host import read_host  # noqa: PLC0415 - likewise

    if study.server.dsn is not None:
        raise SpecError("--emulate is for pgdyno's own servers: a given server stays where it is")
    return msgspec.structs.replace(study, host=msgspec.structs.replace(read_host(host_file), emulate=True))


def emulate_host(study: Study, *, is_asked: bool) -> Study:
    """Return a study that runs on an emulation of the machine that it declares, if that was asked for.

    Raises:
        SpecError: It declares none.
    """
    if not is_asked:
        return study
    import msgspec  # noqa: PLC0415 - --help needs no types

    if study.host is None:
        raise SpecError("--emulate needs a machine to emulate", hint="declare it in the study: [host] and [host.disk]")
    return msgspec.structs.replace(study, host=msgspec.structs.replace(study.host, emulate=True))


def put_restoring(study: Study, restore: str | None, restore_command: str | None) -> Study:
    """Return a study that restores its data as the options say, if they say anything.

    Raises:
        SpecError: It measures a server of the user's, or the options contradict each other.
    """
    if restore is None and restore_command is None:
        return study
    import msgspec  # noqa: PLC0415 - --help needs no types

    from pgdyno.spec.read import RESTORE_USE, resolve_command  # noqa: PLC0415 - the same
    from pgdyno.spec.study import RestorePolicy  # noqa: PLC0415 - the same

    if study.server.dsn is not None:
        raise SpecError("--restore is for pgdyno's own servers: a given server's data are not copied")
    keys = _restore_keys(restore, restore_command)
    command = None if restore_command is None else resolve_command(restore_command, Path.cwd(), RESTORE_USE)
    data = msgspec.structs.replace(study.data, restore=RestorePolicy(keys["restore"]), restore_command=command)
    return msgspec.structs.replace(study, data=data)


def _restore_keys(restore: str | None, restore_command: str | None) -> dict[str, str]:
    """Return the keys of [data] that options for restoring stand for."""
    if restore_command is not None:
        if restore is not None:
            raise SpecError("--restore and --restore-command exclude each other", hint="leave one of them out")
        return {"restore": "command", "restore_command": restore_command}
    if restore is None:
        return {}
    if restore not in _RESTORE_WORDS:
        choose_one = f"choose one of {', '.join(_RESTORE_WORDS)}, or name a command with --restore-command"
        raise SpecError(f"--restore {restore}: not one of {', '.join(_RESTORE_WORDS)}", hint=choose_one)
    return {"restore": restore}


def split_places(named: list[Path] | None) -> tuple[Path | None, list[str]]:
    """Return the folder that holds for a whole comparison, and the folders that it compares: one of the two is empty."""
    folders = named or []
    return (folders[0], []) if len(folders) == 1 else (None, [str(folder) for folder in folders])


def server_table(
    *,
    server: str | None,
    bindir: Path | None,
    port: int | None,
    settings: list[str],
    standbys: int | None = None,
) -> dict[str, object]:
    """Build a study's [server] table from options.

    Raises:
        SpecError: An option is invalid.
    """
    table = given(port=port, standbys=standbys, settings=read_pairs(settings) or None)
    if bindir is not None:
        return {**table, "kind": "local", "bindir": str(bindir.absolute())}
    if server is None or server == "embedded":
        return table
    if not server.isdigit():
        raise SpecError(f"--server {server}: neither `embedded` nor a major version", hint="for example --server 15")
    return {**table, "kind": "local", "version": int(server)}


def choose(option: str, text: str, kind: type[_Choice]) -> _Choice:
    """Return the member of an enumeration that an option names.

    Raises:
        SpecError: It names none.
    """
    words = [member.value for member in kind]
    if text in words:
        return kind(text)
    near = difflib.get_close_matches(text, words, n=1)
    raise SpecError(
        f"{option} {text}: not one of {', '.join(words)}",
        hint=f"did you mean {near[0]}?" if near else "choose one of them",
    )


def read_amount(option: str, text: str | None, unit: str, example: str) -> float | None:
    """Parse a size in bytes or a time in seconds, whose unit is required; None stays None.

    Raises:
        SpecError: It is none, or not above 0.
    """
    return (
        None if text is None else _parse_amount(f"{option} {text}", text, unit, hint=f"for example {option} {example}")
    )


def _parse_amount(said: str, text: str, unit: str, *, hint: str) -> float:
    try:
        value = parse_in_unit(text, unit, is_integer=False)
    except ValueError as exc:
        raise SpecError(f"{said}: {exc}", hint=hint) from exc
    if text.strip()[-1:].isdigit():
        raise SpecError(f"{said}: it has no unit", hint=hint)
    if not 0 < value <= _MOST:
        raise SpecError(f"{said}: not above 0, or implausibly large", hint=hint)
    return value


def refuse_others(what: str, **options: object) -> None:
    """Refuse options that something else determines already.

    Raises:
        SpecError: One was given.
    """
    others = [name.replace("_", "-") for name, value in options.items() if value]
    if others:
        raise SpecError(f"{what} already determines these options: leave out {', '.join(others)}")


def check_apply_with(command: str | None, *, dsn: str | None) -> None:
    """Refuse a command that applies settings without a server of the user's.

    Raises:
        SpecError: No server of the user's is named.
    """
    if command is not None and dsn is None:
        raise SpecError("--apply-with goes with a given server: --dsn, or apply in a study that names one")


def check_server_host(destination: str | None, *, dsn: str | None) -> None:
    """Refuse the machine of a server that is not given.

    Raises:
        SpecError: No server of the user's is named.
    """
    if destination is not None and dsn is None:
        raise SpecError("--server-host goes with a given server: --dsn")


def take_password_command(command: str | None, *, dsn: str | None) -> None:
    """Have connections to a given server ask a command for their password.

    Raises:
        SpecError: No server of the user's is named, or it is no command line.
    """
    if command is None:
        return
    if dsn is None:
        raise SpecError("--password-command goes with a given server: --dsn, or a study that names one")
    from pgdyno.run.given.conninfo import use_password_command  # noqa: PLC0415 - --help needs no libpq
    from pgdyno.run.given.password_command import read_password_command  # noqa: PLC0415

    use_password_command(read_password_command(command))


def read_allowed(words: list[str] | None, *, dsn: str | None) -> Allowed:
    """Return what the user allows to do to a given server.

    Raises:
        SpecError: Something else was named, or no server of the user's.
    """
    from pgdyno.spec.allowed import DEFAULT_WAL_BYTES, Allowed  # noqa: PLC0415 - --help needs no types

    if words and dsn is None:
        raise SpecError("--allow goes with a given server: --dsn, or a study that names one")
    is_busy, writes, wal_bytes = False, None, DEFAULT_WAL_BYTES
    for word in words or []:
        what, _, name = word.partition("=")
        if word == "busy":
            is_busy = True
        elif what == "writes" and name:
            writes = name
        elif what == "wal" and name:
            wal_bytes = _parse_amount(f"--allow wal={name}", name, "B", hint="for example --allow wal=200GB")
        else:
            raise SpecError(
                f"--allow {word}: not known",
                hint="--allow busy loads a server that others use, --allow writes=NAME lets the load write to a database,"
                " --allow wal=200GB lets the study write that much WAL",
            )
    return Allowed(is_busy=is_busy, writes=writes, wal_bytes=wal_bytes)
