"""Translate the errors of damaged JSON in a record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from pgdyno.errors import SpecError

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError)
"""What decoding raises. A byte that is not UTF-8 raises UnicodeDecodeError, which is no DecodeError."""


@contextlib.contextmanager
def refusing_damage(fact: str, *, hint: str = "") -> Iterator[None]:
    """Translate the errors of JSON that is decoded in the block into SpecError.

    Args:
        fact: What is damaged, as the error says it.
        hint: What the user can do.

    Raises:
        SpecError: It is damaged.
    """
    try:
        yield
    except NOT_JSON as exc:
        raise SpecError(fact, detail=str(exc), hint=hint) from exc
