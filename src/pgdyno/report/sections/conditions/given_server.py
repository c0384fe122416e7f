"""Build what `pgdyno check --dsn` shows: obstacles, the round trip, what the role may do, and the GRANTs that it lacks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from pgdyno.analyse.transaction_time.exchanges import BUILTIN_EXCHANGES
from pgdyno.explain.finding import Finding
from pgdyno.record.machine.given_server import Capability, GivenServer, RoundTrip
from pgdyno.record.types import UNSEEN_MACHINE
from pgdyno.report.document import Block, Claims, Code, Document, Listing, ListRow, Prose, Section, Tone
from pgdyno.report.format import format_percent, format_seconds
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.lists import join_names
from pgdyno.report.sections.conditions.preflight import make_claim, summarise
from pgdyno.report.table import Table, columns, text

_GROUPS = {
    "load": "To load it",
    "counters": "Counters",
    "waits": "Waits",
    "statements": "Statements",
    "settings": "Settings",
    "storage": "Storage",
    "changes": "Changes of settings",
}
_WIDEST = (27, 7)
_UNSEEN = "the server's machine: SQL shows neither its CPUs and memory nor its disks and kernel"
_BY_SSH = "`--server-host DEST`, the machine as you would give it to ssh, would show it."
_HIDDEN = "hidden from this role"
_UNSEEN_FACTS = {
    "What CPUs, memory, disks and kernel the server's machine has": _BY_SSH,
    "How busy the CPUs and disks were": _BY_SSH,
    "What the disks can do": "`pgdyno disk` on that machine would measure it.",
    "When checkpoints and autovacuum ran": "The server's log there may show it.",
}
"""What nobody saw of a server's machine, and what would show it."""


def build_given_check(server: GivenServer, findings: Sequence[Finding]) -> Document:
    """Return what one role sees of a server, and what stands between it and a fair measurement."""
    subject = describe_given(server)
    refused = _list_refused(server)
    return Document(
        title=subject,
        blocks=(
            Prose(words=subject),
            Claims(claims=tuple(map(make_claim, findings))),
            Section(title="Round trip", blocks=(Prose(words=_describe_round_trip(server)),)),
            Section(title=f"What {server.role} may see and do", blocks=(_list_capabilities(server.capabilities),)),
            *_list_grants(server, refused),
            Section(title="Not observed", blocks=(Prose(words=_describe_unseen(server)),)),
            Prose(
                words=f"{summarise(findings)}; {len(server.capabilities) - len(refused)} of the {len(server.capabilities)}"
                f" sources above are open to {server.role}"
            ),
        ),
        is_titled=False,
    )


def _describe_unseen(server: GivenServer) -> str:
    # Nobody gets a shell on the machine of a managed service.
    way = "" if server.service else "; with `--server-host DEST`, as you would give it to ssh, `bench` watches it"
    return f"{_UNSEEN}{way}"


def describe_given(server: GivenServer) -> str:
    """Name the server, the role, and the way to it."""
    service = f" ({server.service})" if server.service else ""
    return (
        f"PostgreSQL {server.version}{service} at {server.address}, database {server.dbname}, as {_name_role(server)},"
        f" {_name_way(server)}"
    )


def build_given_machine(report: ReportInput, server: GivenServer) -> Iterator[Block]:
    """Yield what a role may see of a given server, what nobody saw, and what was refused with the GRANTs that would give it."""
    granted = [one for one in server.capabilities if one.refusal is None]
    refused = _list_refused(server)
    if granted:
        listing = msgspec.structs.replace(_list_capabilities(granted), level=Level.STANDARD)
        yield Section(title=f"What {server.role} may see and do there", blocks=(listing,))
    unseen = tuple(Prose(words=words) for words in list_unseen(report, server))
    yield Section(title="Not observed", blocks=unseen)
    if refused:
        listing = msgspec.structs.replace(_list_capabilities(refused), level=Level.STANDARD)
        yield Section(title=f"What was refused to {server.role}", blocks=(listing,))
    yield from _list_grants(server, refused)


def list_unseen(report: ReportInput, server: GivenServer) -> Iterator[str]:
    """Yield a sentence on everything that is not known of a server whose machine nobody saw: why, and what would show it."""
    if report.record.host is not None:
        return
    console = f"The console of {server.service} may show it." if server.service else ""
    for what, would in _UNSEEN_FACTS.items():
        yield f"{what} is not known: {UNSEEN_MACHINE}. {console or would}"
    shares = list(_list_thread_shares(report))
    if shares:
        yield (
            "How busy the busiest of pgbench's threads was is not known: the machine of the load was not sampled."
            f" On average its threads ran {format_percent(median(shares))} of the time. More --threads would show whether"
            " pgbench is the limit."
        )


def _list_thread_shares(report: ReportInput) -> Iterator[float]:
    """Yield the mean share of time that pgbench's threads ran, for each trial whose busiest thread is not known."""
    for workload in report.analysis.workloads:
        for trial in workload.trials:
            cpu_s, load_s = trial.record.load_cpu_s, trial.record.load_s
            if trial.record.slice_s is not None and not trial.record.planned.is_block:
                # Frozen for most of its time; an observed trial has what is asked here.
                continue
            if "load_generator_thread_ratio" not in trial.shares and cpu_s is not None and load_s is not None:
                yield cpu_s / load_s / workload.load.threads


def given_table(server: GivenServer, caption: str = "Server") -> Table:
    """Build the table of what one connection saw of the server, or of a replica of it."""
    trip = server.round_trip
    state = "a standby" if server.is_in_recovery else "sessions only read" if server.is_read_only else "takes writes"
    facts: dict[str, str | None] = {
        "Address": server.address,
        "Database of the first connection": server.dbname,
        "Role": _name_role(server),
        "Connection": _name_way(server),
        "PostgreSQL": server.version,
        "System": server.system,
        "State": state,
        "Managed service": server.service or "none recognised",
        "Pooler in between": server.pooler or "none seen",
        "Round trip of an empty statement": f"{format_seconds(trip.median_s)}, {_name_median(trip)}",
        "Sessions of others at work": None if server.active_sessions is None else str(server.active_sessions),
        "Connections that were left": None if server.free_connections is None else str(server.free_connections),
    }
    if server.sslmode is not None and not _is_socket(server):
        facts["sslmode"] = server.sslmode
    if server.tls is not None:
        facts["TLS"] = server.tls
    if server.system is None:
        del facts["System"]
    rows = tuple((text(name), text(value, note=None if value else _HIDDEN)) for name, value in facts.items())
    remark = "As one connection saw it before the first trial."
    return Table(caption=caption, columns=columns("", "Value"), rows=rows, remark=remark)


def _name_role(server: GivenServer) -> str:
    return f"superuser {server.role}" if server.is_superuser else server.role


def _name_way(server: GivenServer) -> str:
    if _is_socket(server):
        return "by its socket"
    if server.has_gss_encryption:
        return "with GSSAPI encryption"
    return "over TLS" if server.is_encrypted else "without TLS"


def _is_socket(server: GivenServer) -> bool:
    return server.host.startswith(("/", "@"))


def _list_refused(server: GivenServer) -> list[Capability]:
    return [one for one in server.capabilities if one.refusal is not None]


def _describe_round_trip(server: GivenServer) -> str:
    trip = server.round_trip
    taken = f"An empty statement takes {format_seconds(trip.median_s)} there and back ({_name_median(trip)})."
    if server.is_local:
        return taken
    bounds = [
        f"{float(f'{1 / (trip.median_s * count):.2g}'):,.0f} of {name}" for name, count in BUILTIN_EXCHANGES.items()
    ]
    return f"{taken} However fast the server is, one client makes at most about {join_names(bounds)} a second."


def _name_median(trip: RoundTrip) -> str:
    return f"median of {trip.n}, one right after the other"


def _list_capabilities(capabilities: Sequence[Capability]) -> Listing:
    grouped = itertools.groupby(capabilities, key=lambda one: one.group)
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
