"""Name this program as the user called it, so that suggested commands work as they are printed."""

from __future__ import annotations

import os

_DEFAULT = "pgdyno"
_VARIABLE = "PGDYNO_PROGRAM"


def program_name() -> str:
    """Return the name or path that started pgdyno, such as `./pgdyno` for the script in a clone."""
    return os.environ.get(_VARIABLE) or _DEFAULT
