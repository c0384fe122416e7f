"""Read `wait_events.toml`: the resource behind each wait event of each major version of PostgreSQL.

A wait event says where in the code a backend sleeps, which is not always the resource that it lacks: backends that wait
for another one's WAL flush sleep on a lock. Unlisted events are unknown; nothing is guessed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from pgdyno.facts.data_file import read_toml
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


def find_resource(version_major: int, wait_event_type: str, wait_event: str) -> str | None:
    """Find the resource behind a wait event of client backends, by its name in `wait_events.toml`; None if unknown."""
    return list_event_resources(version_major).get((wait_event_type, wait_event), _list_types().get(wait_event_type))


@functools.cache
def list_event_resources(version_major: int) -> Mapping[tuple[str, str], str]:
    """Return the resources of the events that differ from the rest of their type, by type and name."""
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
    return read_toml("wait_events.toml", _Waits)
