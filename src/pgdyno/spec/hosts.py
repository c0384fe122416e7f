"""Define the machines of a study that are reached by ssh: `[hosts.NAME]`, in a study or in a hosts file of its own."""

from __future__ import annotations

import enum
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import SpecError
from pgdyno.spec.complaint import name_line, read_complaint, suggest_toml
from pgdyno.spec.table import StudyTable

# Older versions of ssh hand a name as it is to the shell that runs a ProxyCommand. Source: OpenSSH 9.6, ssh.c, valid_hostname().
_OF_SHELLS = frozenset("'`\"$\\;&<>|(){}")


class HostRole(enum.Enum):
    """What a machine is in a study."""

    SERVER = "server"
    """The server runs there: a given one, whose machine is watched while a load runs, or pgdyno's own, with pgdyno itself."""
    LOAD = "load"
    """pgbench runs there."""


class HostEntry(StudyTable, frozen=True, kw_only=True):
    """A machine that is reached by ssh.

    Attributes:
        role: What it is in a study.
        ssh: The destination as the user would give it to `ssh`: a host, an alias of ~/.ssh/config, or account@host.
        python: A Python on that machine: 3.7 or later, or 3.11 or later if all of pgdyno runs there; absent: python3, or the
            newest python3.N in its PATH. `~/` is the account's home there.
        pgbench: The pgbench of a load host, as for `python`; absent: the newest in its PATH and where Debian, Ubuntu and PGDG
            install it.
    """

    role: HostRole
    ssh: str
    python: str | None = None
    pgbench: str | None = None

    def __post_init__(self) -> None:
        """Refuse what ssh or its shell would take for something else."""
        is_odd = any(c.isspace() or not c.isprintable() or c in _OF_SHELLS for c in self.ssh)
        if not self.ssh or self.ssh.startswith("-") or is_odd:
            raise ValueError(f"ssh {self.ssh!r} is no destination: name it as for `ssh`, such as db1 or postgres@db1")
        if self.python is not None and (not self.python or self.python.startswith("-")):
            raise ValueError(f"python {self.python!r} names no program")
        if self.pgbench is not None and (not self.pgbench or self.pgbench.startswith("-")):
            raise ValueError(f"pgbench {self.pgbench!r} names no program")
        if self.pgbench is not None and self.role is not HostRole.LOAD:
            raise ValueError(f"pgbench runs on hosts with the role {HostRole.LOAD.value}")


def read_hosts(path: Path) -> dict[str, HostEntry]:
    """Read the machines that a hosts file or a study names; none of a study that names none.

    Raises:
        SpecError: The file cannot be read, or has invalid keys or values; a hosts file also if it has others.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        raw = tomllib.loads(text)
    except OSError as exc:
        raise SpecError(
            f"cannot read the hosts of {path}",
            detail=exc.strerror or str(exc),
            hint='it is a file of tables [hosts.NAME] with role = "server" and ssh = "db1"; a machine alone is named as for ssh',
        ) from exc
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        hint = suggest_toml(str(exc), 'ssh = "db1"')
        raise SpecError(f"{path} is not valid TOML", detail=str(exc), hint=hint) from exc
    others = [key for key in raw if key != "hosts"]
    if others and "workload" not in raw:
        raise SpecError(
            f"{path}: unknown key {others[0]}", hint="a hosts file has tables [hosts.NAME] and nothing else"
        )
    return make_hosts(raw.get("hosts", {}), source=str(path), text=text)


def read_server_dsns(path: Path) -> tuple[str, ...]:
    """Return the connection strings of the given server and its replicas in a file that `read_hosts` has read; none if it has none."""
    server = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("server")
    if not isinstance(server, dict) or not isinstance(dsn := server.get("dsn"), str):
        return ()
    replicas = server.get("replicas")
    return (dsn, *(one for one in (replicas if isinstance(replicas, list) else ()) if isinstance(one, str)))


def make_hosts(raw: object, *, source: str, text: str = "") -> dict[str, HostEntry]:
    """Make the machines of a TOML document.

    Args:
        raw: Its table `hosts`.
        source: Name of the file in errors.
        text: The TOML text, so that errors can name lines.

    Raises:
        SpecError: A key or a value is invalid.
    """
    tables = raw if isinstance(raw, dict) else {}
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            raise SpecError(
                f"{source}: {name!r} cannot name a host", hint="names of hosts have letters, digits, . _ - @"
            )
        if isinstance(table, dict) and isinstance(role := table.get("role"), str) and role not in _ROLES:
            where = name_line(source, text, f"hosts.{name}.role")
            raise SpecError(
                f"{where}: role {role} of {name} does nothing here",
                detail="pgdyno watches the machine of a given server, and runs pgbench on load hosts",
                hint=f"role is one of {', '.join(_ROLES)}",
            )
        try:
            msgspec.convert(table, HostEntry)
        except msgspec.ValidationError as exc:
            found = read_complaint(str(exc), HostEntry)
            where = name_line(source, text, f"hosts.{name}.{found.path}".rstrip("."))
            hint = f"its keys are {', '.join(_KEYS)}"
            if found.nearest:
                hint = f"did you mean {found.nearest}?"
            elif found.choices:
                hint = f"{found.key} is one of {', '.join(found.choices)}"
            raise SpecError(f"{where}: host {name}: {found.fact}", hint=hint) from exc
    try:
        return msgspec.convert(raw, dict[str, HostEntry])
    except msgspec.ValidationError as exc:
        raise SpecError(f"{source}: hosts is no table", hint="each machine has a table [hosts.NAME]") from exc


def list_option_values(words: Sequence[str], option: str) -> Iterator[str]:
    """Yield the values that the words of a command line give to an option."""
    for place, word in enumerate(words):
        if word == option and place + 1 < len(words):
            yield words[place + 1]
        if word.startswith(f"{option}="):
            yield word.partition("=")[2]


def make_named_hosts(server: str | None, loads: Sequence[str] = ()) -> dict[str, HostEntry]:
    """Return the hosts of a study whose machines the command line names as for ssh.

    Args:
        server: The server's machine; None: it is not watched.
        loads: The load hosts, which are named as they are reached. The server's machine is named otherwise if it is one of them.

    Raises:
        SpecError: A name is no ssh destination, or a load host is named twice.
    """
    repeated = sorted({name for name in loads if loads.count(name) > 1})
    if repeated:
        raise SpecError(f"--load-host {repeated[0]} is named twice", hint="name each load host once")
    try:
        hosts = {name: HostEntry(role=HostRole.LOAD, ssh=name) for name in loads}
        if server is not None:
            # Reports name load hosts by these names, and the server's machine by its own host name.
            fit = _OF_NO_NAME.sub("-", server)
            name = fit if _NAME.fullmatch(fit) and fit not in hosts else f"server-{fit}"
            hosts = {name: HostEntry(role=HostRole.SERVER, ssh=server), **hosts}
    except ValueError as exc:
        raise SpecError(str(exc)) from exc
    for name in hosts:
        if not _NAME.fullmatch(name):
            raise SpecError(f"{name!r} cannot name a host", hint="give it an alias in ~/.ssh/config, and name that")
    return hosts


# They name folders of a record, too.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]*")
_OF_NO_NAME = re.compile(r"[^A-Za-z0-9._@-]")
_ROLES = tuple(role.value for role in HostRole)
_KEYS = tuple(field.name for field in msgspec.structs.fields(HostEntry))
