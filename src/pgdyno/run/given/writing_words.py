"""Find words in a script by which a session that was asked to only read would write all the same."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pgdyno.errors import SpecError, why

# What takes back that a session only reads, or changes the server all the same.
_WRITING_WORDS = ("transaction_read_only", "default_transaction_read_only")
_WRITING_PAIRS = (("read", "write"), ("alter", "system"))
_PARTS = re.compile(r"/\*|\*/|--|\n|\w+|\S")
ALLOW_WRITES = (
    "the database {name} is only read, and nothing was measured: `--allow writes={name}` lets the load write there, "
    "and nothing puts it back"
)
"""What lets a load write to a database that is named, and what that means."""


def refuse_writing(script: str, database: str) -> None:
    """Refuse a script that would take back what its session was asked for when it began, or change the server.

    Args:
        script: Its path.
        database: What may only be read.

    Raises:
        SpecError: It may write, or cannot be read.
    """
    try:
        text = Path(script).read_text(errors="replace")
    except OSError as exc:
        raise SpecError(f"cannot read script file {script}", detail=why(exc)) from exc
    parts = _PARTS.findall(text.lower())
    said = [word for word in _WRITING_WORDS if word in parts]
    said += [f"{first} {second}".upper() for first, second in _WRITING_PAIRS if _has_pair(parts, first, second)]
    if said:
        raise SpecError(
            f"script {script} may write",
            detail=f"it says {said[0]}, and comments count, too",
            hint=ALLOW_WRITES.format(name=database),
        )


def _has_pair(parts: Iterable[str], first: str, second: str) -> bool:
    """Return whether a word follows another one, with only white space and comments in between.

    Words in comments are searched, too: where comments begin and end depends on dollar quotes, escapes and settings.
    """
    depth, is_in_line = 0, False
    # How deep block comments are nested where the second word is looked for. Source: PostgreSQL's documentation, 4.1.5 Comments.
    awaited: list[int] = []
    for part in parts:
        is_next = awaited[-1:] == [depth]
        if is_next and part == second:
            return True
        if part == "/*":
            depth += 1
            continue
        if part == "\n":
            if is_in_line and not is_next:
                awaited.append(depth)
            is_in_line = False
            continue
        if is_next:
            awaited.pop()
        if part == "*/":
            depth -= 1
        elif part == "--":
            is_in_line = is_in_line or is_next
        elif part == first:
            awaited.append(depth)
    return False
