"""Read all settings of a server as they are now, by its data directory, without starting anything.

A running server answers one query, through psql as the account that owns it. For a server that is stopped or accepts no
connection, its own program reads the configuration files (`postgres -C`). It takes one name at a time, so only the
settings that occur in the files are read; the others have their built-in values and are missing in the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pgdyno.errors import PgdynoError
from pgdyno.facts.gucs import all_gucs
from pgdyno.record.machine.preflight import Unseen
from pgdyno.record.machine.tunables import ServerState
from pgdyno.run.given.data_folder import DataFolder
from pgdyno.run.given.state import PATIENCE_S, read_server_settings
from pgdyno.run.host.tunables import read_data_bytes, read_wal_bytes

_ASKED_AT_ONCE = 4
# The name at the beginning of a line, and the value, which may be a file or folder to include.
_LINE = re.compile(r"^[ \t]*(?P<name>[A-Za-z_][\w$.]*)\s*=?[ \t]*(?:'(?P<value>[^'\n]*)')?", re.MULTILINE)
# Source: PostgreSQL 18 manual, section 19.1.5: files within files, at most ten deep.
_DEEPEST = 10


def read_server_state(folder: DataFolder) -> ServerState:
    """Read a server's settings in the units of pg_settings.setting, and the sizes of its data and WAL."""
    unseen: list[Unseen] = []
    names = [guc.name for guc in all_gucs(folder.major)]
    snapshot, answer = read_server_settings(folder, names, unseen, read_files=_ask_program)
    return ServerState(
        look=snapshot,
        set_names=answer.set_names if answer else frozenset(snapshot.settings),
        waiting_names=answer.waiting_names if answer else frozenset(),
        unseen=tuple(unseen),
        data_bytes=read_data_bytes(folder.path),
        wal_bytes=read_wal_bytes(folder.path),
    )


def _ask_program(folder: DataFolder, names: Sequence[str], unseen: list[Unseen]) -> dict[str, str]:
    mentioned = _find_names([folder.config_file(), folder.path / "postgresql.auto.conf"])

    def ask(name: str) -> str | Unseen:
        try:
            done = folder.ask_program(name, timeout_s=PATIENCE_S)
        except PgdynoError as error:
            return Unseen(what=f"the server's setting {name}", reason=error.reason)
        last = " ".join(done.stderr.strip().splitlines()[-1:])
        return done.stdout.strip() if done.exit_code == 0 else Unseen(what=f"the server's setting {name}", reason=last)

    asked = [name for name in names if name.lower() in mentioned]
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        answers = dict(zip(asked, pool.map(ask, asked), strict=True))
    unseen += [answer for answer in answers.values() if isinstance(answer, Unseen)]
    return {name: answer for name, answer in answers.items() if isinstance(answer, str)}


def _find_names(files: Sequence[Path]) -> set[str]:
    """Return the names, in lower case, at the beginning of a line in these files and in those they include."""
    return {name.lower() for file in files for name in _names_in(file, deep=0)}


def _names_in(file: Path, *, deep: int) -> Iterator[str]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        # `postgres -C` reports such a file.
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
