"""Compare a replica of a given server with its primary, by what SQL shows of both: it shows no CPUs, memory and disks."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pgdyno.analyse.records.context import show_built_in
from pgdyno.analyse.records.difference import RecordDifference, declare
from pgdyno.facts.gucs import find_guc, show_mode
from pgdyno.facts.settings import key_settings
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.units import show_in_unit

# What reading depends on. Paths, addresses, names and secrets of a server are of other categories, and so is what only writes use.
# Source: PostgreSQL 18 manual, chapter 19.
_CATEGORIES = (
    "Resource Usage /",
    "Query Tuning /",
    "Statistics /",
    "Lock Management",
    "Client Connection Defaults / Statement Behavior",
    "Client Connection Defaults / Shared Library Preloading",
    "Reporting and Logging / What to Log",
    "Reporting and Logging / When to Log",
    "Developer Options",
)
_FURTHER = frozenset({"max_connections", "data_checksums", "debug_assertions", "huge_pages_status"})
# They differ wherever a server is a standby, act on one only or on a primary only, or change no speed.
_LEFT_OUT = frozenset(
    {
        *("transaction_deferrable", "transaction_isolation", "transaction_read_only"),
        *("application_name", "log_line_prefix", "log_timezone"),
        *("log_recovery_conflict_waits", "log_startup_progress_interval"),
        *("autovacuum_work_mem", "logical_decoding_work_mem", "maintenance_work_mem"),
    }
)
_FAR_RATIO, _FAR_S = 2.0, 0.0001
"""Round trips are told where one is so many times the other, and so much longer: medians of a moment differ by less on a busy network."""


def compare_with_primary(
    replica: GivenServer, primary: GivenServer, *, asked: Collection[str] = ()
) -> tuple[RecordDifference, ...]:
    """List what makes a replica another server to read from than its primary; the value of the primary comes first.

    Args:
        replica: The replica.
        primary: Its primary.
        asked: Settings, in lower case, that all sessions of the load ask for at both.

    Returns:
        Differences in version and build, the way there, and settings, those that matter most first. Settings are left out where one
        of the two did not show any, or where nothing is known of them, such as those of extensions.
    """
    return (
        *_compare_software(replica, primary),
        *_compare_ways(replica, primary),
        *_compare_encryption(replica, primary),
        *(one for one in _compare_settings(replica, primary) if one.subject.lower() not in asked),
    )


def _compare_software(replica: GivenServer, primary: GivenServer) -> Iterator[RecordDifference]:
    if replica.version != primary.version:
        yield declare("PostgreSQL", primary.version, replica.version)
    builds = [None if one.system is None else one.system.partition(" on ")[2] for one in (primary, replica)]
    if builds[0] and builds[1] and builds[0] != builds[1]:
        yield declare("platform and compiler", builds[0], builds[1])


def _compare_ways(replica: GivenServer, primary: GivenServer) -> Iterator[RecordDifference]:
    if replica.is_local and primary.is_local:
        return
    trips_s = [one.round_trip.median_s for one in (primary, replica)]
    if max(trips_s) >= max(min(trips_s) * _FAR_RATIO, min(trips_s) + _FAR_S):
        shown = [f"{trip_s * 1000:.2g} ms" for trip_s in trips_s]
        yield declare("round trip", *shown, why="each statement takes a round trip")


def _compare_encryption(replica: GivenServer, primary: GivenServer) -> Iterator[RecordDifference]:
    # What a pooler hides of TLS is not told for a difference.
    has_all = all(one.tls is not None for one in (primary, replica) if one.is_encrypted)
    shown = [_name_encryption(one, in_full=has_all) for one in (primary, replica)]
    if shown[0] != shown[1]:
        yield declare("encryption of the connection", *shown)


def _name_encryption(server: GivenServer, *, in_full: bool) -> str:
    if server.has_gss_encryption:
        return "GSSAPI"
    if not server.is_encrypted:
        return "none"
    return server.tls if in_full and server.tls is not None else "TLS"


def _compare_settings(replica: GivenServer, primary: GivenServer) -> Iterator[RecordDifference]:
    ours, theirs, major = replica.settings, primary.settings, primary.major
    if ours is None or theirs is None:
        return
    key_names = [one.name for one in key_settings()]
    for name in (*key_names, *sorted({*ours, *theirs} - {*key_names})):
        if not _matters(name, major):
            continue
        shown = [_show(name, values.get(name), major) for values in (theirs, ours)]
        if shown[0] != shown[1]:
            yield declare(name, *shown)


def _matters(name: str, major: int) -> bool:
    guc = find_guc(name, major)
    if guc is None or name in _LEFT_OUT or name.startswith("vacuum_"):
        return False
    return name in _FURTHER or guc.category.startswith(_CATEGORIES)


def _show(name: str, value: str | None, major: int) -> str:
    if value is None:
        return show_built_in(name, major)
    guc = find_guc(name, major)
    return show_mode(name, show_in_unit(value, None if guc is None else guc.unit)) or "''"
