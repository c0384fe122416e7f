"""Reads all settings of somebody's server, by its data directory, as they are now. Nothing is started.

A running server answers one query, through psql as the account that owns it. Of one that does not run, or does not let
us in, its own program tells what its configuration files say (`postgres -C`). It takes one name at a time, so only those
that stand in the files are asked for; the others are what is built in, and missing here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.facts.gucs import all_gucs
from pgdyno.record.preflight import ServerLook, ServerOrigin, Unseen
from pgdyno.record.tunables import ServerState
from pgdyno.run import process
from pgdyno.run.server_look import DataFolder
from pgdyno.run.tunables import read_data_bytes

_PATIENCE_S = 5.0
# The account's own name, and the one that most clusters were made with.
_ROLES = (None, "postgres")
_ASKED_AT_ONCE = 4
# A name at the beginning of a line, and what may be a file or folder to include.
_LINE = re.compile(r"^[ \t]*(?P<name>[A-Za-z_][\w$.]*)\s*=?[ \t]*(?:'(?P<value>[^'\n]*)')?", re.MULTILINE)
# Source: PostgreSQL 18 manual, section 19.1.5: files within files, at most ten deep.
_DEEPEST = 10


class _Answer(msgspec.Struct, frozen=True):
    settings: dict[str, str | None]
    is_in_recovery: bool
    active_sessions: int


def read_server_state(folder: DataFolder, *, named_major: int | None = None) -> ServerState:
    """A server's settings, as pg_settings.setting has them, and the size of its data.

    Args:
        folder: Its data directory.
        named_major: Of the version that the user asked for.
    """
    unseen: list[Unseen] = []
    names = [guc.name for guc in all_gucs(folder.major)]
    answer = _ask_running(folder, names, unseen) if folder.pid is not None else None
    settings = answer.settings if answer else _ask_program(folder, names, unseen)
    look = ServerLook(
        origin=ServerOrigin.RUNNING if answer else ServerOrigin.FILES,
        major=folder.major,
        data_dir=str(folder.path),
        data_major=folder.major,
        named_major=named_major,
        settings={name: value for name, value in settings.items() if value is not None},
        is_in_recovery=answer.is_in_recovery if answer else None,
        active_sessions=answer.active_sessions if answer else None,
    )
    return ServerState(look=look, unseen=tuple(unseen), data_bytes=read_data_bytes(folder.path))


def find_config(folder: DataFolder) -> Path:
    """The configuration file of a data directory.

    Debian keeps /etc/postgresql/VERSION/CLUSTER for /var/lib/postgresql/VERSION/CLUSTER.
    """
    own = folder.path / "postgresql.conf"
    debian = Path("/etc/postgresql", *folder.path.parts[-2:], "postgresql.conf")
    return debian if not own.exists() and debian.exists() else own


def _ask_running(folder: DataFolder, names: Sequence[str], unseen: list[Unseen]) -> _Answer | None:
    # psycopg comes with it: only who asks a server waits for that.
    from pgdyno.run.sql import server_look_query  # noqa: PLC0415

    reasons = []
    try:
        # Source: PostgreSQL src/include/utils/pidfile.h.
        lines = (folder.path / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        argv = [str(folder.bindir / "psql"), "-X", "-A", "-t", "-q", "-w", "-h", lines[4].strip() or "localhost"]
        argv += ["-p", lines[3].strip(), "-d", "postgres", "-c", server_look_query(names)]
        for role in _ROLES:
            try:
                return _ask_as(argv, role, folder)
            except PgdynoError as error:
                reasons.append(f"{error.fact}: {error.detail}".rstrip(": "))
    except (OSError, IndexError) as exc:
        reasons.append(str(exc))
    what = "what the running server itself has in force (its configuration files were read instead)"
    unseen.append(Unseen(what=what, reason="; ".join(dict.fromkeys(reasons))))
    return None


def _ask_as(argv: Sequence[str], role: str | None, folder: DataFolder) -> _Answer:
    environment = {**process.clean_environment(), "PGCONNECT_TIMEOUT": str(int(_PATIENCE_S))}
    named = [] if role is None else ["-U", role]
    done = process.run([*argv, *named], user=folder.asker, timeout_s=_PATIENCE_S, env=environment)
    if done.exit_code != 0:
        raise StepFailedError("psql was not let in", detail=" ".join(done.stderr.split()))
    try:
        return msgspec.json.decode(done.stdout, type=_Answer)
    except msgspec.DecodeError as exc:
        raise StepFailedError("psql answered something else", detail=str(exc)) from exc


def _ask_program(folder: DataFolder, names: Sequence[str], unseen: list[Unseen]) -> dict[str, str | None]:
    config = find_config(folder)
    head = [str(folder.bindir / "postgres"), "-C"]
    tail = ["-D", str(folder.path), "-c", f"config_file={config}"]
    mentioned = _find_names([config, folder.path / "postgresql.auto.conf"])

    def ask(name: str) -> str | Unseen:
        # PostgreSQL takes -C only as the first word when root asks; the owner needs no such leave.
        try:
            done = process.run([*head, name, *tail], user=folder.asker, timeout_s=_PATIENCE_S)
        except PgdynoError as error:
            return Unseen(what=f"the server's setting {name}", reason=f"{error.fact}: {error.detail}".rstrip(": "))
        last = " ".join(done.stderr.strip().splitlines()[-1:])
        return done.stdout.strip() if done.exit_code == 0 else Unseen(what=f"the server's setting {name}", reason=last)

    asked = [name for name in names if name.lower() in mentioned]
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        answers = dict(zip(asked, pool.map(ask, asked), strict=True))
    unseen += [answer for answer in answers.values() if isinstance(answer, Unseen)]
    return {name: answer for name, answer in answers.items() if isinstance(answer, str)}


def _find_names(files: Sequence[Path]) -> set[str]:
    """The names, in lower case, that stand at the beginning of a line of these files and of those they include."""
    return {name.lower() for file in files for name in _names_in(file, deep=0)}


def _names_in(file: Path, *, deep: int) -> Iterator[str]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        # The program itself will say so.
        return
    for found in _LINE.finditer(text):
        name, value = found["name"].lower(), found["value"]
        if not name.startswith("include"):
            yield name
        elif value and deep < _DEEPEST:
            place = file.parent / value
            inner = sorted(place.glob("*.conf")) if name == "include_dir" else [place]
            for one in inner:
                yield from _names_in(one, deep=deep + 1)
