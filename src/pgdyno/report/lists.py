"""Name things by letters, join names into a list in words, and merge sentences that end alike, so that a list does not repeat their ending."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence, Sized

_BETWEEN_CLAUSES = re.compile(r"(?<=[,;:]) ")
# A shorter ending is read faster than its merged form is understood.
_LEAST_LENGTH = 20


def name_by_letters(things: Sized) -> list[str]:
    """Name things A, B, C and so on."""
    letters = string.ascii_uppercase
    return [letters[place] if place < len(letters) else f"{place + 1}" for place in range(len(things))]


def join_names(names: Iterable[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`."""
    listed = list(names)
    return "".join(listed) if len(listed) < 2 else f"{', '.join(listed[:-1])} and {listed[-1]}"


def split_shared_end(texts: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the texts without the clauses that all of them end in, and those clauses."""
    if len(texts) < 2:
        return tuple(texts), ""
    split = [_BETWEEN_CLAUSES.split(text) for text in texts]
    shared = 0
    for clauses in zip(*map(reversed, split), strict=False):
        if len(set(clauses)) > 1:
            break
        shared += 1
    # Something is left of each text, and no interval is cut at the comma between its ends.
    shared = min(shared, *(len(clauses) - 1 for clauses in split), len(split[0]))
    while shared and _is_cut(_end_of(split[0], shared)):
        shared -= 1
    end = _end_of(split[0], shared)
    if len(end) < _LEAST_LENGTH:
        return tuple(texts), ""
    return tuple(" ".join(clauses[:-shared]).rstrip(",;:") for clauses in split), end


def join_by_place(told: Iterable[tuple[str, str]]) -> str:
    """Join the words on each place in one line."""
    places, texts = zip(*dict.fromkeys(told), strict=True)
    parts, end = split_shared_end(texts)
    line = "; ".join(": ".join(filter(None, one)) for one in zip(places, parts, strict=True))
    return f"{line}, {end}" if end else line


def _end_of(clauses: Sequence[str], count: int) -> str:
    return " ".join(clauses[len(clauses) - count :])


def _is_cut(end: str) -> bool:
    return any(end.count(opened) != end.count(closed) for opened, closed in ("[]", "()"))
