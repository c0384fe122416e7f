"""Read the data files of this room, which are installed with the package."""

from __future__ import annotations

import importlib.resources
from typing import TypeVar

import msgspec

_T = TypeVar("_T")


def read_data(name: str) -> bytes:
    """Return the content of a data file."""
    return importlib.resources.files("pgdyno.facts").joinpath(name).read_bytes()


def read_toml(name: str, kind: type[_T]) -> _T:
    """Read a data file into its type."""
    return msgspec.toml.decode(read_data(name), type=kind)
