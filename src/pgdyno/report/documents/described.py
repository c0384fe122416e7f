"""What a field of a document means, kept beside it: the schema that programs read has the same words."""

from __future__ import annotations

import msgspec


def says(description: str) -> msgspec.Meta:
    """What a field means, for its `Annotated`."""
    return msgspec.Meta(description=description)
