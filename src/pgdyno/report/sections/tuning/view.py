"""Compare derived settings with those in force, for all that `pgdyno tune` shows."""

from __future__ import annotations

import enum

import msgspec

from pgdyno.facts.gucs import ChangeCost, show_mode
from pgdyno.record.machine.preflight import Unseen
from pgdyno.report.format import format_bytes, format_bytes_per_s, format_number, format_seconds
from pgdyno.report.lists import join_names
from pgdyno.report.setting_words import show_setting
from pgdyno.tune.differences import find_difference
from pgdyno.tune.types import Derived, DerivedSettings, DiskKind, Known, Origin, Target, TuningSubject
from pgdyno.units import count_things

COST_WORDS = {
    ChangeCost.SESSION: "reload",
    ChangeCost.RELOAD: "reload",
    ChangeCost.KERNEL: "root",
    ChangeCost.NEW_SESSIONS: "new sessions",
    ChangeCost.RESTART: "restart",
    ChangeCost.INITDB: "initdb",
    ChangeCost.FIXED: "never",
    None: "advice",
}


class Tried(enum.Enum):
    """How PostgreSQL has tried the settings before they were shown."""

    VALUES = "values"
    """PostgreSQL accepted all values and computed the total of memory."""
    STARTED = "started"
    """PostgreSQL also started an empty cluster with them."""
    STARTED_SMALL = "started with few buffers"
    """PostgreSQL also started an empty cluster, but with a small shared_buffers: memory was short at that moment."""
    NAMES = "names"
    """The server has all of these settings, and their values are among those that its version takes."""


class GivenRole(msgspec.Struct, frozen=True, kw_only=True):
    """The role through which a given server is seen, and what it may change there."""

    name: str
    """As SQL takes it."""
    settable: frozenset[str]
    """The derived settings that it may change by ALTER SYSTEM."""
    way: str
    """How users of a managed service change settings; empty where none was recognised."""


class TuningView(msgspec.Struct, frozen=True, kw_only=True):
    """A set of derived settings with everything that is shown beside it."""

    tuning: DerivedSettings
    server: str
    """Such as `PostgreSQL 18.6, not started`."""
    machine: str
    """Such as `this machine` or `r8g.2xlarge`."""
    is_workload_said: bool
    now: dict[str, str]
    """The values in force, by name; settings of PostgreSQL as in pg_settings.setting."""
    now_of: str
    """The source of the values in force: `what the running server has`."""
    tried: Tried
    unchecked: tuple[str, ...] = ()
    """Names of settings whose values the PostgreSQL that tried the others was built without."""
    version: str
    """The full version of PostgreSQL."""
    is_named: bool
    """True if the user named a server, to which the settings can be applied."""
    given: GivenRole | None = None
    """Of a server that is reached by a connection string."""
    waiting: frozenset[str] = frozenset()
    """Settings that stay in force until a restart replaces them by what the server's files say."""
    unseen: tuple[Unseen, ...] = ()
    file_errors: tuple[str, ...] = ()
    """The errors in the server's configuration files, as in `ServerSnapshot`."""
    program: str = "pgdyno"
    """The name under which the user called pgdyno."""


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A derived setting beside the value in force."""

    name: str
    target: Target
    now: str | None
    """The value in force; None where it cannot be observed, and for advice."""
    value: str
    takes: ChangeCost | None
    is_same: bool


def list_changes(view: TuningView) -> tuple[SettingChange, ...]:
    """Return each derived setting beside the value in force, in the set's order."""
    return tuple(change_of(view, derived) for derived in view.tuning.settings)


def change_of(view: TuningView, derived: Derived) -> SettingChange:
    """Return a derived setting beside the value in force."""
    major = view.tuning.subject.major
    found = find_difference(derived, view.now, major=major, waiting=view.waiting)
    now = found.now
    if now is not None and derived.target is Target.POSTGRESQL:
        now = show_setting(derived.name, now, major)
    return SettingChange(
        name=derived.name,
        target=derived.target,
        now=now,
        value=show_mode(derived.name, derived.value),
        takes=derived.change,
        is_same=found.is_same,
    )


def describe_subject(view: TuningView) -> str:
    """Describe the machine and server that the settings are for, with the source of each figure."""
    subject = view.tuning.subject
    workload = f"{subject.workload.value}{'' if view.is_workload_said else ' (assumed)'}"
    size = (
        f"{format_known(subject.cpus)} CPU{'' if subject.cpus.value == 1 else 's'}, {format_known(subject.memory)} of"
        f" memory, data on {_describe_disk(subject)}"
    )
    load = f"{workload}, {_with_origin(subject.dataset)} of data, {_describe_sessions(subject)}"
    standbys = f"; {count_things(round(subject.standbys.value), 'standby')}" if subject.standbys is not None else ""
    return f"{view.server}; {view.machine}: {size}; {load}{standbys}"


def describe_trial(view: TuningView) -> str:
    """Describe how PostgreSQL has tried the settings."""
    but = f" but {join_names(view.unchecked)}, whose value this build lacks" if view.unchecked else ""
    takes, empty = f"PostgreSQL {view.version} accepts all of these values{but} (`postgres -C`)", "on an empty cluster"
    match view.tried:
        case Tried.VALUES:
            return f"{takes}; none was started with them."
        case Tried.STARTED:
            return f"PostgreSQL {view.version} was started with these settings {empty}, without huge pages."
        case Tried.STARTED_SMALL:
            return (
                f"{takes}, and was started with them {empty}, without huge pages and with few shared_buffers: the"
                " memory was not enough for all of them beside the running programs."
            )
        case Tried.NAMES:
            return f"The server has all of these settings, and PostgreSQL {view.version} takes these values; none was tried."


def describe_file_errors(view: TuningView) -> list[str]:
    """Describe what the errors in the server's own files mean for it; nothing without errors."""
    said = (
        "the server's configuration files contain errors that prevent its start: {}. Fix them first: until then"
        " --apply refuses."
    )
    return [said.format("; ".join(view.file_errors))] if view.file_errors else []


def describe_rights(view: TuningView) -> list[str]:
    """Describe what the role of a given server may change of what differs; nothing for other servers."""
    if view.given is None:
        return []
    role, way = view.given.name, view.given.way
    changes = [one.name for one in list_changes(view) if one.target is Target.POSTGRESQL and not one.is_same]
    lacking = [name for name in changes if name not in view.given.settable]
    if not lacking:
        said = f"{role} may change all of these by ALTER SYSTEM."
    else:
        may = (
            f"{len(changes) - len(lacking)} of these {len(changes)}" if len(lacking) < len(changes) else "none of these"
        )
        said = (
            f"{role} may change {may} by ALTER SYSTEM; the others take a superuser, or"
            f" `GRANT ALTER SYSTEM ON PARAMETER {', '.join(lacking)} TO {role}`."
        )
    return [said, *([f"This is a managed service: {way}."] if way else [])]


def format_known(known: Known) -> str:
    """Format an input's value."""
    return format_quantity(known.value, known.unit)


def format_quantity(value: float, unit: str) -> str:
    """Format a figure with its unit: of `bytes/s`, 131072000 is `131 MB/s`."""
    if unit == "bytes/s":
        return format_bytes_per_s(value)
    if unit == "bytes":
        return format_bytes(value)
    if unit == "s":
        return format_seconds(value)
    number = f"{value:,.0f}" if value == round(value) else format_number(value)
    return f"{number}{'/s' if unit == '1/s' else ''}"


def _describe_sessions(subject: TuningSubject) -> str:
    pooling = subject.pooling
    if pooling is None:
        return f"{_with_origin(subject.connections)} connections, {_with_origin(subject.active)} of them active"
    clients, pool = _with_origin(pooling.clients), _with_origin(subject.connections)
    return f"{clients} clients through PgBouncer in {pooling.mode.value} mode, whose pool has a size of {pool}"


def _with_origin(known: Known) -> str:
    return f"{format_known(known)}{' (assumed)' if known.origin is Origin.ASSUMED else ''}"


def _describe_disk(subject: TuningSubject) -> str:
    disk = subject.disk
    kinds = {DiskKind.LOCAL_SSD: "a local SSD", DiskKind.NETWORK_SSD: "a network SSD", DiskKind.HDD: "a hard disk"}
    kind = kinds[disk.kind]
    measured = f", measured: {disk.card}" if disk.card else ""
    if disk.path and disk.filesystem is not None and not disk.devices:
        return f"{disk.filesystem} (treated as {kind}{measured})"
    place = " on ".join(filter(None, (disk.filesystem, *(device.name for device in disk.devices[:1]))))
    inside = f"{place}{measured}".removeprefix(", ")
    return f"{kind} ({inside})" if inside else kind
