"""Read a server that pgdyno did not create, by its data directory: settings, state and data. Start nothing.

A running server answers one query through psql, as the account that owns it and as no other; what is asked reads only
system catalogues, because what bears a table's name may be a view that runs anyone's functions. For a server that is
stopped or accepts no connection, its own program reads the configuration files as a start would (`postgres -C`). It
takes one name at a time, so of many settings only those that occur in the files are read; the others have their built-in
values and are missing in the result. If this account may do neither, the result says so, and nothing is guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.facts.durability import judged_settings, names_wal_file
from pgdyno.facts.gucs import all_gucs, find_guc
from pgdyno.record.machine.preflight import ServerOrigin, ServerSnapshot, Unseen
from pgdyno.record.machine.tunables import ServerState, SlotState
from pgdyno.run.given.data_folder import DataFolder, Postmaster
from pgdyno.run.given.file_errors import find_file_errors
from pgdyno.run.host.process_id import read_status
from pgdyno.run.host.tunables import read_data_bytes, read_wal_bytes

# For each answer of a server or its program.
_PATIENCE_S = 5.0
# Each database takes one start of psql.
_MOST_DATABASES = 20
_ASKED_AT_ONCE = 4
# The name at the beginning of a line, and the value, which may be a file or folder to include.
# Source: PostgreSQL 18 src/backend/utils/misc/guc-file.l: STRING, UNQUOTED_STRING.
_LINE = re.compile(
    r"^[ \t]*(?P<name>[A-Za-z_][\w$.]*)[ \t]*=?[ \t]*(?:'(?P<quoted>[^'\n]*)'|(?P<bare>[^\W\d][\w.:/-]*))?",
    re.MULTILINE,
)
# Source: PostgreSQL 18 manual, section 19.1.5: files within files, at most ten deep.
_DEEPEST = 10
SNAPSHOT_SETTINGS = (
    *("huge_pages", "huge_pages_status", "huge_page_size", "shared_buffers", "max_connections", "debug_assertions"),
    *("log_statement", "log_min_duration_statement", "log_duration", "track_io_timing", "data_directory"),
    *("shared_memory_size_in_huge_pages", "wal_buffers", "max_worker_processes", "config_file"),
    *("archive_mode", "archive_command", "archive_library", "log_min_duration_sample", "log_statement_sample_rate"),
)
# Settings that make the shared memory of the next start larger or smaller.
_SHAPING = ("shared_buffers", "huge_pages", "huge_page_size", "max_connections", "max_worker_processes")
_ReadFiles = Callable[[DataFolder, Sequence[str], list[Unseen]], dict[str, str]]
"""A function that reads the named settings from a server's files, and adds to the list what it cannot read."""
# Settings that only a running server knows.
_ONLY_RUNNING = frozenset({"huge_pages_status", "data_directory", "config_file"})


class _ServerAnswer(msgspec.Struct, frozen=True):
    """The answer of a running server."""

    settings: dict[str, str | None]
    set_names: frozenset[str]
    """All settings that have been set; the others are built in or chosen by the server itself."""
    waiting_names: frozenset[str]
    """Settings whose files have another value, which takes effect at a restart."""
    start_names: frozenset[str]
    """Settings of the command line or environment of its start, which the files do not change."""
    is_in_recovery: bool
    slots: tuple[SlotState, ...]
    active_sessions: int

    @property
    def known_settings(self) -> dict[str, str]:
        """Return the settings that the server knows, by name."""
        return {name: value for name, value in self.settings.items() if value is not None}


def read_server_snapshot(folder: DataFolder) -> tuple[ServerSnapshot, tuple[Unseen, ...]]:
    """Return what can be seen of a server by its data directory, and what cannot."""
    unseen: list[Unseen] = []
    snapshot, answer = _read_settings(folder, _names_of(folder.major), unseen, read_files=_read_each)
    settings = dict(snapshot.settings)
    if names_wal_file(settings.get("archive_command", "")):
        # It may hold a password, and all that is asked of it is whether it archives.
        settings["archive_command"] = "%p"
    waiting = {} if answer is None or snapshot.file_errors else _read_waiting(folder, answer, unseen)
    return msgspec.structs.replace(snapshot, settings=settings, waiting=waiting), tuple(unseen)


def _read_waiting(folder: DataFolder, answer: _ServerAnswer, unseen: list[Unseen]) -> dict[str, str]:
    """Return what a running server's files say of its shared memory, where that differs from what is in force."""
    in_force, waiting = answer.known_settings, {}
    try:
        for name in _SHAPING:
            if name in answer.start_names:
                continue
            done = folder.ask_program(name, config_file=in_force.get("config_file"), timeout_s=_PATIENCE_S)
            value = done.stdout.strip()
            if done.exit_code == 0 and value != in_force.get(name, value):
                waiting[name] = value
    except PgdynoError as error:
        unseen.append(Unseen(what="settings that wait for a restart", reason=error.reason))
    return waiting


def read_server_and_data(folder: DataFolder, *, wants_branches: bool) -> tuple[ServerSnapshot, tuple[Unseen, ...]]:
    """Return what can be seen of a server with its data, and what cannot.

    Args:
        folder: Its data directory.
        wants_branches: Whether to search its databases for pgbench's tables.
    """
    snapshot, unseen = read_server_snapshot(folder)
    running = folder.postmaster()
    branches: dict[str, int] = {}
    if wants_branches:
        branches, reason = _count_branches(folder, running)
        unseen += (Unseen(what="pgbench's tables in this server", reason=reason),) if reason else ()
    port = os.environ.get("PGPORT", "")
    snapshot = msgspec.structs.replace(
        snapshot,
        data_bytes=read_data_bytes(folder.path),
        branches=branches,
        port=running.port or None if running else None,
        client_port=int(port) if port.isdigit() else None,
    )
    return snapshot, unseen


def read_server_state(folder: DataFolder) -> ServerState:
    """Read a server's settings in the units of pg_settings.setting, and the sizes of its data and WAL."""
    unseen: list[Unseen] = []
    names = [guc.name for guc in all_gucs(folder.major)]
    snapshot, answer = _read_settings(folder, names, unseen, read_files=_read_mentioned)
    return ServerState(
        look=snapshot,
        set_names=answer.set_names if answer else frozenset(snapshot.settings),
        waiting_names=answer.waiting_names if answer else frozenset(),
        unseen=tuple(unseen),
        data_bytes=read_data_bytes(folder.path),
        wal_bytes=read_wal_bytes(folder.path),
        slots=answer.slots if answer else (),
    )


def _read_settings(
    folder: DataFolder, names: Sequence[str], unseen: list[Unseen], *, read_files: _ReadFiles
) -> tuple[ServerSnapshot, _ServerAnswer | None]:
    """Read these settings of a server; also return the server's own answer if it gave one.

    Args:
        folder: Its data directory.
        names: The settings to read.
        unseen: The list of what cannot be seen; may grow.
        read_files: Reads the settings from the server's files, if the server does not answer and the files hold no
            errors.
    """
    answer, pid = _ask_running(folder, names, unseen), folder.pid
    errors = find_file_errors(folder, is_answering=answer is not None, unseen=unseen)
    settings = answer.known_settings if answer else {} if errors else read_files(folder, names, unseen)
    snapshot = ServerSnapshot(
        origin=ServerOrigin.RUNNING if answer else ServerOrigin.FILES,
        major=folder.major,
        data_dir=str(folder.path),
        settings=settings,
        file_errors=errors,
        is_in_recovery=answer.is_in_recovery if answer else None,
        active_sessions=answer.active_sessions if answer else None,
        huge_pages_bytes=None if pid is None else read_huge_pages(pid),
        has_assertions=None if "debug_assertions" not in settings else settings["debug_assertions"] == "on",
    )
    return snapshot, answer


def _ask_running(folder: DataFolder, names: Sequence[str], unseen: list[Unseen]) -> _ServerAnswer | None:
    """Return the server's answer; None if it gives none, with the reason in `unseen`."""
    running = folder.postmaster()
    if running is None:
        return None
    # The import brings psycopg, which only commands that query a server should wait for.
    from pgdyno.run.postgres.sql import server_look_query  # noqa: PLC0415

    try:
        return folder.ask_once(running, server_look_query(names), _ServerAnswer, patience_s=_PATIENCE_S)
    except PgdynoError as error:
        what = "what the running server itself has in force (its configuration files were read instead)"
        unseen.append(Unseen(what=what, reason="; ".join((error.detail or error.fact).splitlines())))
        return None


def _read_each(folder: DataFolder, names: Sequence[str], unseen: list[Unseen]) -> dict[str, str]:
    settings: dict[str, str] = {}
    is_running = folder.pid is not None
    for name in names:
        if name in _ONLY_RUNNING:
            continue
        try:
            done = folder.ask_program(name, timeout_s=_PATIENCE_S)
        except PgdynoError as error:
            unseen.append(Unseen(what="the server's settings", reason=error.reason))
            return settings
        if done.exit_code == 0:
            settings[name] = done.stdout.strip()
        elif "runtime-computed" not in done.stderr and not is_running:
            last = done.stderr.strip().splitlines()[-1:]
            unseen.append(Unseen(what=f"the server's setting {name}", reason=" ".join(last)))
    return settings


def _read_mentioned(folder: DataFolder, names: Sequence[str], unseen: list[Unseen]) -> dict[str, str]:
    mentioned = _find_names([folder.config_file(), folder.path / "postgresql.auto.conf"])
    if folder.pid is None:
        # From the control file; the program refuses to tell it of a server that runs.
        mentioned.add("wal_segment_size")

    def ask(name: str) -> str | Unseen:
        try:
            done = folder.ask_program(name, timeout_s=_PATIENCE_S)
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
        name, value = found["name"].lower(), found["quoted"] or found["bare"]
        if not name.startswith("include"):
            yield name
        elif value and deep < _DEEPEST:
            place = file.parent / value
            inner = sorted(place.glob("*.conf")) if name == "include_dir" else [place]
            for one in inner:
                yield from _names_in(one, deep=deep + 1)


def _names_of(major: int) -> list[str]:
    names = dict.fromkeys((*SNAPSHOT_SETTINGS, *judged_settings()))
    return [name for name in names if find_guc(name, major) is not None]


def _count_branches(folder: DataFolder, running: Postmaster | None) -> tuple[dict[str, int], str]:
    """Return the number of pgbench's branches by database, and the reason if some databases are missing."""
    # The import brings psycopg, which only commands that query a server should wait for.
    from pgdyno.run.postgres.sql import BRANCHES, DATABASES  # noqa: PLC0415

    if running is None:
        return {}, "it does not run"
    found: dict[str, int] = {}
    try:
        databases = folder.ask_once(running, DATABASES, list[str], patience_s=_PATIENCE_S, database="postgres")
        for database in databases[:_MOST_DATABASES]:
            seen = folder.ask_once(running, BRANCHES, list[float], patience_s=_PATIENCE_S, database=database)
            if seen:
                found[database] = round(max(seen))
    except PgdynoError as error:
        return found, error.reason
    is_whole = len(databases) <= _MOST_DATABASES
    return (
        found,
        "" if is_whole else f"only the newest {_MOST_DATABASES} of {len(databases)} databases were looked into",
    )


def read_huge_pages(pid: int) -> int | None:
    """Return the bytes of huge pages that a process has touched; None if the kernel does not say.

    Source: proc_pid_status(5), HugetlbPages.
    """
    try:
        words = read_status(Path("/proc", str(pid))).get("HugetlbPages", "").split()
    except OSError:
        return None
    return int(words[0]) * 1024 if words else None
