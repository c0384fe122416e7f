"""Build what `pgdyno check --dsn` shows: obstacles, the round trip, what the role may do, and the GRANTs that it lacks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from pgdyno.explain.finding import Finding
from pgdyno.record.machine.given_server import Capability, GivenServer
from pgdyno.report.document import Claims, Code, Document, Listing, ListRow, Prose, Section, Tone
from pgdyno.report.format import format_seconds
from pgdyno.report.lists import join_names
from pgdyno.report.sections.preflight import make_claim, summarise

_GROUPS = {
    "load": "To load it",
    "counters": "Counters",
    "waits": "Waits",
    "settings": "Settings",
    "storage": "Storage",
    "changes": "Changes of settings",
}
_WIDEST = (27, 7)
_UNSEEN = "the server's machine: SQL shows neither its CPUs and memory nor its disks and kernel"
_NOT_YET = "pgdyno does not run a load on such a server yet: this is what it could see and do there."


def build_given_check(server: GivenServer, findings: Sequence[Finding], *, statements: Mapping[str, int]) -> Document:
    """Return what one role sees of a server.

    Args:
        server: The server.
        findings: What stands between it and a fair measurement.
        statements: Round trips of a transaction, by workload.
    """
    subject = describe_given(server)
    refused = [one for one in server.capabilities if one.refusal is not None]
    return Document(
        title=subject,
        blocks=(
            Prose(words=subject),
            Claims(claims=tuple(map(make_claim, findings))),
            Section(title="Round trip", blocks=(Prose(words=_describe_round_trip(server, statements)),)),
            Section(title=f"What {server.role} may see and do", blocks=(_list_capabilities(server),)),
            *_list_grants(server, refused),
            Section(title="Not observed", blocks=(Prose(words=_UNSEEN),)),
            Prose(words=_NOT_YET),
            Prose(
                words=f"{summarise(findings)}; {len(server.capabilities) - len(refused)} of {len(server.capabilities)}"
                " sources answer"
            ),
        ),
        is_titled=False,
    )


def describe_given(server: GivenServer) -> str:
    """Name the server, the role, and the way to it."""
    is_socket = server.host.startswith(("/", "@"))
    host = f"[{server.host}]" if ":" in server.host else server.host
    place = f"{host}, port {server.port}" if is_socket else f"{host}:{server.port}"
    way = "by its socket" if is_socket else "over TLS" if server.is_encrypted else "without TLS"
    service = f" ({server.service})" if server.service else ""
    role = f"superuser {server.role}" if server.is_superuser else server.role
    return f"PostgreSQL {server.version}{service} at {place}, database {server.dbname}, as {role}, {way}"


def _describe_round_trip(server: GivenServer, statements: Mapping[str, int]) -> str:
    trip = server.round_trip
    taken = (
        f"An empty statement takes {format_seconds(trip.median_s)} there and back (median of {trip.n},"
        f" 95 % interval {format_seconds(trip.low_s)} to {format_seconds(trip.high_s)})."
    )
    if server.is_local:
        return taken
    bounds = [f"{float(f'{1 / (trip.median_s * count):.2g}'):,.0f} of {name}" for name, count in statements.items()]
    return f"{taken} However fast the server is, one client makes at most about {join_names(bounds)} a second."


def _list_capabilities(server: GivenServer) -> Listing:
    grouped = itertools.groupby(server.capabilities, key=lambda one: one.group)
    return Listing(
        groups=tuple((_GROUPS[group], tuple(map(_make_row, ones))) for group, ones in grouped),
        widest=_WIDEST,
        titles=("Source", "Answer"),
        words_title="What it is for, or why it is refused",
    )


def _make_row(one: Capability) -> ListRow:
    if one.refusal is None:
        return ListRow(cells=(one.name, "yes"), words=one.shows)
    return ListRow(cells=(one.name, "refused"), words=f"{one.refusal}. Lost: {one.shows}")


def _list_grants(server: GivenServer, refused: Sequence[Capability]) -> tuple[Section, ...]:
    grants = list(dict.fromkeys(grant for one in refused for grant in one.grants))
    hopeless = [one.name for one in refused if not one.grants]
    remarks = []
    if hopeless:
        remarks.append(Prose(words=f"No GRANT gives {', '.join(hopeless)}.", tone=Tone.SMALL))
    if server.settings_way:
        words = f"{server.service} changes settings of the server {server.settings_way}, not by ALTER SYSTEM."
        remarks.append(Prose(words=words, tone=Tone.SMALL))
    if not grants:
        return (Section(title="More rights", blocks=tuple(remarks)),) if remarks else ()
    purpose = f"In database {server.dbname}, a superuser gives what is refused with these lines; each can be left out"
    return (
        Section(
            title="More rights",
            blocks=(Code(lines="".join(f"{one};\n" for one in grants).rstrip(), purpose=purpose), *remarks),
        ),
    )
