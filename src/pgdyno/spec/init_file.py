r"""Read the SQL file that makes the data of a study, as psql is to run it.

`\restrict` and `\unrestrict`, which pg_dump writes around a file with a new key each time, become comments: two dumps of the same
data are the same file here. psql itself refuses all other commands of its own, since only psql knows where a statement ends.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pgdyno.errors import SpecError, why

_BEGIN = re.compile(rb"\\restrict (\w+)")
_COMMENT = b"--\n"
# Longer than the last lines of pg_dump.
_TAIL_BYTES = 1024


def read_init_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of an SQL file, as psql is to run them.

    Raises:
        SpecError: The file cannot be read, or is empty.
    """
    try:
        with path.open("rb") as file:
            if not file.read(1):
                raise SpecError(f"the SQL file {path} is empty")
            of_pg_dump = _find_pair(file)
            file.seek(0)
            for line in file:
                # A key is random: no other line is the same.
                yield _COMMENT if line.strip() in of_pg_dump else line
    except OSError as exc:
        hint = "correct --init, or `init` in the study"
        raise SpecError(f"cannot read the SQL file {path}", detail=why(exc), hint=hint) from exc


def _find_pair(file: IO[bytes]) -> frozenset[bytes]:
    """Return the lines that pg_dump writes before and after everything else; none unless there are both."""
    file.seek(0)
    begin = next((line.strip() for line in file if line.strip() and not line.startswith(b"--")), b"")
    found = _BEGIN.fullmatch(begin)
    if found is None:
        return frozenset()
    end = b"\\unrestrict " + found[1]
    file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
    return frozenset({begin, end}) if file.read().rstrip().endswith(b"\n" + end) else frozenset()


def hash_init_file(path: Path) -> str:
    """Return what tells the data that an SQL file makes from others: the SHA-256 of its lines, in hexadecimal digits.

    Raises:
        SpecError: As for `read_init_lines`.
    """
    digest = hashlib.sha256()
    for line in read_init_lines(path):
        digest.update(line)
    return digest.hexdigest()
