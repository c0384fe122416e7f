"""Describe a document's field beside its definition; the schema has the same words."""

from __future__ import annotations

import msgspec


def says(description: str) -> msgspec.Meta:
    """Return the metadata that describes a field, for its `Annotated`."""
    return msgspec.Meta(description=description)
