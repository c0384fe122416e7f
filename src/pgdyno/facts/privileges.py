"""Read `privileges.toml`: what a role may see and do in a server that pgdyno did not start, and what would give it more.

Nothing is inferred from a version, a role or a service: each probe asks the server itself, and makes nothing there. The probes of counters are
made from `views.toml`, so that what is probed is what samplers read.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator

import msgspec

from pgdyno.facts.data_file import read_toml
from pgdyno.facts.readable_counters import name_functions
from pgdyno.facts.views import FromColumn, FromFunction, FromIoColumn, FromSum, ServerCounters

_VIEW_QUERY = "SELECT {columns} FROM pg_catalog.{view} LIMIT 1"


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question to a server. It is refused by an error, or by a row whose column `refusal` is not null."""

    name: str
    group: str
    """`load`, `counters`, `waits`, `statements`, `settings`, `storage` or `changes`."""
    shows: str
    """What it is needed for."""
    sql: str
    """One statement, which changes nothing once its transaction is rolled back."""
    grants: tuple[str, ...] = ()
    """Statements that give it, with `{role}` for the role; empty if no GRANT does."""

    @property
    def only_asks(self) -> bool:
        """Whether it asks for a right instead of trying it: the refusal is in its row."""
        return " AS refusal" in self.sql


class Service(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A managed service, and how its servers are recognised."""

    name: str
    settings: str
    """How its users change settings of the server."""
    prefix: str = ""
    """The first part of its own settings' names; empty: it is not recognised by them."""
    function: str = ""
    """A function that only its servers have; empty: it is not recognised by one."""


class _SessionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: tuple[str, ...]
    group: str
    shows: str
    sql: str
    grant: str


class _Privileges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    probe: tuple[Probe, ...]
    session_settings: _SessionSettings
    counters: dict[str, str]
    service: tuple[Service, ...]


def make_probes(facts: ServerCounters) -> tuple[Probe, ...]:
    """List the probes of a server, those of the load first.

    Args:
        facts: The counters of its version.
    """
    known = _privileges()
    of_load = [probe for probe in known.probe if probe.group == "load"]
    others = [probe for probe in known.probe if probe.group != "load"]
    return (*of_load, *probe_counters(facts), *others, *_probe_session_settings())


def list_services() -> tuple[Service, ...]:
    """List the known services, the more specific ones first."""
    return _privileges().service


def recognise_service(prefixes: Collection[str], functions: Collection[str]) -> Service | None:
    """Return the service whose server has settings with such prefixes or such functions; None if none is known."""
    return next((one for one in list_services() if one.prefix in prefixes or one.function in functions), None)


def probe_counters(facts: ServerCounters) -> Iterator[Probe]:
    """Yield a probe of each view and function that counters are read from, named as `views.name_place` names it."""
    columns: dict[str, list[str]] = {}
    functions: dict[str, str] = {}
    for counter in facts.direct:
        source = counter.source
        if isinstance(source, FromColumn | FromSum):
            columns.setdefault(source.view, []).append(source.column)
        elif isinstance(source, FromFunction):
            functions |= dict.fromkeys(name_functions(source.call), source.call)
    for column in facts.io:
        if isinstance(column.source, FromIoColumn):
            columns.setdefault("pg_stat_io", []).append(column.source.sql)
    shows = _privileges().counters
    for view, read in sorted(columns.items()):
        yield Probe(
            name=view,
            group="counters",
            shows=shows[view],
            sql=_VIEW_QUERY.format(columns=", ".join(dict.fromkeys(read)), view=view),
            grants=(f"GRANT SELECT ON pg_catalog.{view} TO {{role}}",),
        )
    for function, call in sorted(functions.items()):
        yield Probe(
            name=f"{function}()",
            group="counters",
            shows=shows[function],
            sql=f"SELECT {call}",
            grants=(f"GRANT EXECUTE ON FUNCTION pg_catalog.{function}() TO {{role}}",),
        )


def _probe_session_settings() -> Iterator[Probe]:
    known = _privileges().session_settings
    for name in known.names:
        yield Probe(
            name=f"SET {name}",
            group=known.group,
            shows=known.shows,
            sql=known.sql.format(name=name),
            grants=(known.grant.format(name=name, role="{role}"),),
        )


@functools.cache
def _privileges() -> _Privileges:
    return read_toml("privileges.toml", _Privileges)
