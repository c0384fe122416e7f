"""How this program was called, so that what it advises to type works where the user stands."""

from __future__ import annotations

import os

_DEFAULT = "pgdyno"
_VARIABLE = "PGDYNO_PROGRAM"


def program_name() -> str:
    """The name or path that started pgdyno: `./pgdyno` for the script of a clone, which says so."""
    return os.environ.get(_VARIABLE) or _DEFAULT
