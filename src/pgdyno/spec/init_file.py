r"""Read the SQL file that makes the data of a study: what psql would run, without psql's own commands.

A backslash command could connect to another database or run a program, so all are refused. `\restrict` and `\unrestrict`,
which pg_dump writes with a new key each time, become comments: two dumps of the same data are the same file here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from pgdyno.errors import SpecError, why

# Rows follow until a line that is `\.` alone. Source: PostgreSQL 18 manual, psql, \copy, and COPY, "Text Format".
_COPY = re.compile(rb"\s*COPY\b.*\bFROM\s+STDIN\b.*;\s*", re.IGNORECASE)
_END_OF_ROWS = b"\\."
_OF_PG_DUMP = re.compile(rb"\\(un)?restrict\b")


def read_init_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of an SQL file, as psql is to run them.

    Raises:
        SpecError: The file cannot be read, is empty, or has a backslash command.
    """
    number, is_in_rows = 0, False
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                said = line.strip()
                if is_in_rows:
                    is_in_rows = said != _END_OF_ROWS
                elif _OF_PG_DUMP.match(said):
                    yield b"--\n"
                    continue
                elif said.startswith(b"\\"):
                    raise SpecError(
                        f"{path.name}, line {number}: backslash commands are not run",
                        detail=said.decode(errors="replace"),
                        hint="write it in SQL; rows after COPY ... FROM STDIN may stay",
                    )
                else:
                    is_in_rows = _COPY.fullmatch(line) is not None
                yield line
    except OSError as exc:
        raise SpecError(f"cannot read the SQL file {path}", detail=why(exc), hint="correct `init` of [data]") from exc
    if not number:
        raise SpecError(f"the SQL file {path} is empty")


def hash_init_file(path: Path) -> str:
    """Return what tells the data that an SQL file makes from others: the SHA-256 of its lines, in hexadecimal digits.

    Raises:
        SpecError: As for `read_init_lines`.
    """
    digest = hashlib.sha256()
    for line in read_init_lines(path):
        digest.update(line)
    return digest.hexdigest()
