"""Find errors in a server's configuration files, which would prevent its next start.

A running server reports what is wrong with its files as they are now. For a stopped server, its program reads them as a
start would. Nothing is changed.
"""

from __future__ import annotations

import re

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.facts.gucs import Context, VarType, find_guc, read_value
from pgdyno.record.machine.preflight import Unseen
from pgdyno.run.given.data_folder import DataFolder

_WHAT = "errors in the server's configuration files"
_PATIENCE_S = 5.0
# The prefix of a message from a server that has not read its settings yet: time, process and severity.
_PREFIX = re.compile(r"^(\S+ \S+ \S+ \[\d+\] )?\w+:\s+")


class _FileError(msgspec.Struct, frozen=True):
    """A row of pg_file_settings."""

    file: str | None
    line: int | None
    name: str | None
    value: str | None
    error: str


def find_file_errors(folder: DataFolder, *, is_answering: bool, unseen: list[Unseen]) -> tuple[str, ...]:
    """Return each error with its file and line.

    If the errors cannot be read, this returns none and adds the reason to `unseen`.

    Args:
        folder: The server's data directory.
        is_answering: Whether the server runs and accepts pgdyno's connection.
        unseen: The list of what could not be seen; may grow.
    """
    running = folder.postmaster()
    try:
        if running is None:
            errors = _read_as_start(folder)
            unseen += [Unseen(what="the server's settings", reason="its files hold errors")] if errors else []
            return errors
        if not is_answering:
            # The server's files may not be those that are visible from here; this is already reported.
            return ()
        # The import brings psycopg, which only commands that query a server should wait for.
        from pgdyno.run.postgres.sql import FILE_ERRORS  # noqa: PLC0415

        found = folder.ask_once(running, FILE_ERRORS, list[_FileError], patience_s=_PATIENCE_S)
    except PgdynoError as error:
        unseen.append(Unseen(what=_WHAT, reason=error.reason))
        return ()
    return tuple(_describe(one, folder.major) for one in found if not _is_waiting(one, folder.major))


def _read_as_start(folder: DataFolder) -> tuple[str, ...]:
    if not folder.config_file().exists():
        return ()
    # Every server has this setting: an error can only come from the files.
    done = folder.ask_program("shared_buffers", timeout_s=_PATIENCE_S)
    return tuple(_PREFIX.sub("", line) for line in done.stderr.splitlines()) if done.exit_code != 0 else ()


def _is_waiting(one: _FileError, major: int) -> bool:
    """Return whether a row only shows a value that waits for a restart.

    The view describes a waiting value in the same words as a refused one.

    Source: PostgreSQL 18 src/backend/utils/misc/guc.c, ProcessConfigFileInternal().
    """
    guc = find_guc(one.name or "", major)
    if guc is None or guc.context is not Context.POSTMASTER:
        return False
    try:
        read_value(guc, one.value or "")
    except ValueError:
        return False
    return True


def _describe(one: _FileError, major: int) -> str:
    guc = find_guc(one.name or "", major)
    # Text settings may hold passwords, and unknown settings anything.
    shown = f" = {one.value}" if guc is not None and guc.vartype is not VarType.STRING else ""
    setting = f"{one.name}{shown}: " if one.name else ""
    return f"{one.file}, line {one.line}: {setting}{one.error}"
