"""Turn the values of options into parts of a study, with errors that name the option."""

from __future__ import annotations

import difflib
import enum
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pgdyno.errors import SpecError, did_you_mean
from pgdyno.units import parse_in_unit

if TYPE_CHECKING:
    from pgdyno.spec.study import Study

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
        SpecError: A value is not of the form NAME=VALUE, or a name comes twice.
    """
    pairs: dict[str, str] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SpecError(f"--set {text}: not of the form NAME=VALUE", hint="for example --set shared_buffers=2GB")
        name, value = name.strip(), value.strip()
        # PostgreSQL's names are case-insensitive.
        before = next((one for one in pairs if one.lower() == name.lower()), None)
        if before is not None:
            both = shlex.join(["--set", f"{before}={pairs[before]}", "--set", f"{name}={value}"])
            raise SpecError(
                f"{both}: {name} comes twice", hint=f"give it once; `pgdyno compare {both}` compares the two"
            )
        pairs[name] = value
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
        SpecError: These are no steps of pgbench, or none that pgdyno's trials can begin with.
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
    """Return the one folder of a whole comparison, and the folders that it compares; one of the two is empty."""
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
    if not (server.isascii() and server.isdigit()):
        raise SpecError(
            f"--server {server}: neither `embedded` nor a major version",
            hint="for example --server 15; --pg-bindir takes a folder of programs",
        )
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
        hint=did_you_mean(near) if near else "choose one of them",
    )


def read_amount(option: str, text: str | None, unit: str, example: str) -> float | None:
    """Parse a size in bytes or a time in seconds, whose unit is required; None stays None.

    Raises:
        SpecError: The text is no amount with a unit, or the amount is not above 0.
    """
    return (
        None if text is None else parse_amount(f"{option} {text}", text, unit, hint=f"for example {option} {example}")
    )


def parse_amount(said: str, text: str, unit: str, *, hint: str) -> float:
    """Parse a size in bytes or a time in seconds, whose unit is required.

    Args:
        said: What the user wrote, for the error.
        text: The amount.
        unit: `B` or `s`.
        hint: Of the error.

    Raises:
        SpecError: The text is no amount with a unit, or the amount is not above 0.
    """
    try:
        value = parse_in_unit(text, unit, is_integer=False)
    except ValueError as exc:
        raise SpecError(f"{said}: {exc}", hint=hint) from exc
    if text.strip()[-1:].isdigit():
        raise SpecError(f"{said}: it has no unit", hint=hint)
    if not 0 < value <= _MOST:
        raise SpecError(f"{said}: not above 0, or implausibly large", hint=hint)
    return value


# Where another command does what an option asks for.
_INSTEAD = {
    "--dsn": {
        "endpoint": "a pooler that runs in front of that server is measured by"
        " `pgdyno compare --dsn CONNINFO --endpoint primary --endpoint NAME=CONNINFO`",
        "minutes": "--rounds and --duration say how long it takes",
    }
}


def refuse_others(what: str, **options: object) -> None:
    """Refuse options that something else determines already.

    Raises:
        SpecError: One was given.
    """
    others = [name.replace("_", "-") for name, value in options.items() if value]
    if others:
        hint = _INSTEAD.get(what, {}).get(others[0], "")
        raise SpecError(f"{what} already determines these options: leave out {', '.join(others)}", hint=hint)
