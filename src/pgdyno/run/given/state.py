"""A look at a server that pgdyno did not make, by its data directory: settings, version, state. Nothing is started.

A running server is asked through psql, as the account that owns it and as nobody else; it answers one query. What one
that does not run would take is told by its own program (`postgres -C`), which reads the configuration files as a start
would. Where this account may do neither, that is said, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.facts.durability import judged_settings
from pgdyno.facts.gucs import find_guc
from pgdyno.record.machine.preflight import ServerLook, ServerOrigin, Unseen
from pgdyno.run.given.data_folder import DataFolder
from pgdyno.run.given.file_errors import find_file_errors

PATIENCE_S = 5.0
"""With a server or its program, for each answer."""
LOOKED_AT = (
    *("huge_pages", "huge_pages_status", "huge_page_size", "shared_buffers", "max_connections", "debug_assertions"),
    *("log_statement", "log_min_duration_statement", "log_duration", "track_io_timing", "data_directory"),
    *("shared_memory_size_in_huge_pages",),
)
ReadFiles = Callable[[DataFolder, Sequence[str], list[Unseen]], dict[str, str]]
"""Gives the named settings by a server's files, and adds to the list what it cannot."""
# Known while a server runs, and of no one that does not.
_ONLY_RUNNING = frozenset({"huge_pages_status", "data_directory"})


class ServerAnswer(msgspec.Struct, frozen=True):
    """What a running server says."""

    settings: dict[str, str | None]
    set_names: frozenset[str]
    """Of all that somebody has set: the others are built in, or chosen by the server itself."""
    waiting_names: frozenset[str]
    """Of those whose files say something else, which a restart brings."""
    is_in_recovery: bool
    active_sessions: int

    @property
    def known_settings(self) -> dict[str, str]:
        """By name."""
        return {name: value for name, value in self.settings.items() if value is not None}


def look_at_server(folder: DataFolder) -> tuple[ServerLook, tuple[Unseen, ...]]:
    """What can be seen of a server, by its data directory, and what cannot."""
    unseen: list[Unseen] = []
    look, _ = look_for(folder, _names_of(folder.major), unseen, read_files=_read_files)
    return look, tuple(unseen)


def look_for(
    folder: DataFolder, names: Sequence[str], unseen: list[Unseen], *, read_files: ReadFiles
) -> tuple[ServerLook, ServerAnswer | None]:
    """What is seen of a server with these settings, and its own answer where it gave one.

    Args:
        folder: Its data directory.
        names: Of the settings.
        unseen: What cannot be seen is added to it.
        read_files: Asked for what it would have by its files, where it says nothing itself and they hold no errors.
    """
    answer, pid = _ask_running(folder, names, unseen), folder.pid
    errors = find_file_errors(folder, is_answering=answer is not None, unseen=unseen)
    settings = answer.known_settings if answer else {} if errors else read_files(folder, names, unseen)
    look = ServerLook(
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
    return look, answer


def _ask_running(folder: DataFolder, names: Sequence[str], unseen: list[Unseen]) -> ServerAnswer | None:
    """None where it says nothing, which is added to what is unseen."""
    running = folder.postmaster()
    if running is None:
        return None
    # psycopg comes with it: only who asks a server waits for that.
    from pgdyno.run.postgres.sql import server_look_query  # noqa: PLC0415

    try:
        return folder.ask_once(running, server_look_query(names), ServerAnswer, patience_s=PATIENCE_S)
    except PgdynoError as error:
        what = "what the running server itself has in force (its configuration files were read instead)"
        unseen.append(Unseen(what=what, reason="; ".join((error.detail or error.fact).splitlines())))
        return None


def _read_files(folder: DataFolder, names: Sequence[str], unseen: list[Unseen]) -> dict[str, str]:
    settings: dict[str, str] = {}
    is_running = folder.pid is not None
    for name in names:
        if name in _ONLY_RUNNING:
            continue
        try:
            done = folder.ask_program(name, timeout_s=PATIENCE_S)
        except PgdynoError as error:
            unseen.append(Unseen(what="the server's settings", reason=error.reason))
            return settings
        if done.exit_code == 0:
            settings[name] = done.stdout.strip()
        elif "runtime-computed" not in done.stderr and not is_running:
            last = done.stderr.strip().splitlines()[-1:]
            unseen.append(Unseen(what=f"the server's setting {name}", reason=" ".join(last)))
    return settings


def _names_of(major: int) -> list[str]:
    names = dict.fromkeys((*LOOKED_AT, *judged_settings()))
    return [name for name in names if find_guc(name, major) is not None]


def read_huge_pages(pid: int) -> int | None:
    """Bytes of huge pages that a process has touched; None where the kernel does not say.

    Source: proc_pid_status(5), HugetlbPages.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields: Mapping[str, str] = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    words = fields.get("HugetlbPages", "").split()
    return int(words[0]) * 1024 if words else None
