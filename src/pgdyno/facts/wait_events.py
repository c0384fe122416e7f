"""What backends wait for, by the names that each major version of PostgreSQL gives: the typed reader of `wait_events.toml`.

PostgreSQL tells where in its code a backend sleeps, which is not yet what it lacks: followers of a flush sleep on a
lock. It refuses to guess: an event that nobody has told is unknown.
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping

import msgspec

from pgdyno.facts.versions import find_range


class _Type(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    resource: str


class _Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    resource: str
    names: dict[str, tuple[str, ...]]


class _Waits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: tuple[_Type, ...]
    event: tuple[_Event, ...]


def find_waited(version_major: int, wait_event_type: str, wait_event: str) -> str | None:
    """The resource that a wait event of client backends is for, as `wait_events.toml` names it; None where none is known."""
    return list_waited(version_major).get((wait_event_type, wait_event), _list_types().get(wait_event_type))


@functools.cache
def list_waited(version_major: int) -> Mapping[tuple[str, str], str]:
    """Resources by type and name of each event that is told apart from the rest of its type."""
    return {
        (event.type, name): event.resource
        for event in _read_waits().event
        for name in event.names.get(find_range(event.names, version_major) or "", ())
    }


@functools.cache
def _list_types() -> Mapping[str, str]:
    return {each.name: each.resource for each in _read_waits().type}


@functools.cache
def _read_waits() -> _Waits:
    text = importlib.resources.files("pgdyno.facts").joinpath("wait_events.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Waits)
