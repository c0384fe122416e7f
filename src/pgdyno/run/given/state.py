"""Read settings, version and state of a server that pgdyno did not create, without starting anything.

A running server answers one query through psql, as the account that owns it and as no other. For a stopped server its
own program reads the configuration files as a start would (`postgres -C`). If this account may do neither, the result
says so, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.facts.durability import judged_settings
from pgdyno.facts.gucs import find_guc
from pgdyno.record.machine.preflight import ServerOrigin, ServerSnapshot, Unseen
from pgdyno.run.given.data_folder import DataFolder
from pgdyno.run.given.file_errors import find_file_errors

PATIENCE_S = 5.0
"""The time limit for each answer of a server or its program."""
SNAPSHOT_SETTINGS = (
    *("huge_pages", "huge_pages_status", "huge_page_size", "shared_buffers", "max_connections", "debug_assertions"),
    *("log_statement", "log_min_duration_statement", "log_duration", "track_io_timing", "data_directory"),
    *("shared_memory_size_in_huge_pages",),
)
ReadFiles = Callable[[DataFolder, Sequence[str], list[Unseen]], dict[str, str]]
"""A function that reads the named settings from a server's files, and adds to the list what it cannot read."""
# Settings that only a running server knows.
_ONLY_RUNNING = frozenset({"huge_pages_status", "data_directory"})


class ServerAnswer(msgspec.Struct, frozen=True):
    """The answer of a running server."""

    settings: dict[str, str | None]
    set_names: frozenset[str]
    """All settings that have been set; the others are built in or chosen by the server itself."""
    waiting_names: frozenset[str]
    """Settings whose files have another value, which takes effect at a restart."""
    is_in_recovery: bool
    active_sessions: int

    @property
    def known_settings(self) -> dict[str, str]:
        """Return the settings that the server knows, by name."""
        return {name: value for name, value in self.settings.items() if value is not None}


def read_server_snapshot(folder: DataFolder) -> tuple[ServerSnapshot, tuple[Unseen, ...]]:
    """Return what can be seen of a server by its data directory, and what cannot."""
    unseen: list[Unseen] = []
    snapshot, _ = read_server_settings(folder, _names_of(folder.major), unseen, read_files=_read_files)
    return snapshot, tuple(unseen)


def read_server_settings(
    folder: DataFolder, names: Sequence[str], unseen: list[Unseen], *, read_files: ReadFiles
) -> tuple[ServerSnapshot, ServerAnswer | None]:
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


def _ask_running(folder: DataFolder, names: Sequence[str], unseen: list[Unseen]) -> ServerAnswer | None:
    """Return the server's answer; None if it gives none, with the reason in `unseen`."""
    running = folder.postmaster()
    if running is None:
        return None
    # The import brings psycopg, which only commands that query a server should wait for.
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
    names = dict.fromkeys((*SNAPSHOT_SETTINGS, *judged_settings()))
    return [name for name in names if find_guc(name, major) is not None]


def read_huge_pages(pid: int) -> int | None:
    """Return the bytes of huge pages that a process has touched; None if the kernel does not say.

    Source: proc_pid_status(5), HugetlbPages.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields: Mapping[str, str] = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    words = fields.get("HugetlbPages", "").split()
    return int(words[0]) * 1024 if words else None
