"""Compare what surrounds two records' results: whether figures are the server's own, and the software and machine.

These are the rules of `comparison` on validity, software and machines; most of their differences are what records are
compared for.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.records.difference import UNSEEN, RecordDifference, declare, free, refuse
from pgdyno.analyse.records.sides import Side
from pgdyno.analyse.types import LOAD_THREAD_RATIO, OTHERS_RATIO, STEAL_RATIO
from pgdyno.facts.gucs import find_guc, show_mode
from pgdyno.facts.settings import key_settings
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.types import StudyRecord
from pgdyno.spec.initdb import INITDB_KEYS, show_choices, show_usual
from pgdyno.spec.table import NOT_RECORDED, SettingValue
from pgdyno.units import format_bytes, format_cpus, show_in_unit

_FAILED_RATIO = 0.01
# Our reasoning: a median of one moment differs by a few per cent from the next. Where it is a tenth longer, and statements
# wait for the network alone, TPS is a tenth lower.
_OTHER_WAY_RATIO = 1.1


def validity(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare whether each figure is the server's own."""
    generator, steal, others = (
        [_mean_share(side, name) for side in (first, other)]
        for name in ("load_generator_thread_ratio", "cpu_steal_ratio", "cpu_others_ratio")
    )
    if _any_above(generator, LOAD_THREAD_RATIO):
        yield refuse("pgbench's busiest thread", *map(_percent, generator), why="the figures show pgbench's own limit",
                      hint="more --threads, or pgbench on another machine")  # fmt: skip
    if _any_above(steal, STEAL_RATIO):
        yield declare("CPU taken by the hypervisor", *map(_percent, steal), why="neighbours affect the figures")
    if _any_above(others, OTHERS_RATIO):
        yield declare("CPU used by other programs", *map(_percent, others), why="they affect the figures")
    busy = [_mean_share(side, "cpu_busy_ratio") for side in (first, other)]
    if None in busy:
        shown = ["not sampled" if one is None else "sampled" for one in busy]
        yield declare("the machine under the load", *shown, why="it is not known whether other programs used its CPUs")
    if first.doubts or other.doubts:
        shown = [f"{len(side.doubts)} of them" if side.doubts else "none" for side in (first, other)]
        why = " ".join(dict.fromkeys((*first.doubts, *other.doubts)))
        yield declare("disturbances of the measurement", *shown, why=why)
    failed = [_failed_ratio(side) for side in (first, other)]
    if _any_above(failed, _FAILED_RATIO):
        yield declare("failed transactions", *map(_percent, failed), why="they took time and count for nothing")
    lost = [len(side.workload.trials) - len(side.trials) for side in (first, other)]
    if any(lost):
        yield declare("trials without a result", *map(str, lost))


def trials(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare the variant and the number of trials."""
    counts = [len(side.trials) for side in (first, other)]
    if first.variant is not None or other.variant is not None:
        names = ["–" if side.variant is None else side.variant.name for side in (first, other)]
        if names[0] != names[1]:
            yield declare("variant", *names, why="only its record compares variants")
    if min(counts) == 1:
        yield declare("trials", *map(str, counts), why="one trial has no interval")
    elif counts[0] != counts[1]:
        yield free("trials", *map(str, counts))


def software(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare versions of PostgreSQL, pgdyno and the kernel."""
    if first.version_major != other.version_major:
        yield declare("PostgreSQL", first.version, other.version, why="its pgbench differs, too")
    elif first.version != other.version:
        yield free("PostgreSQL", first.version, other.version)
    tools = [side.record.tool_versions.get("pgdyno", "not recorded") for side in (first, other)]
    if tools[0] != tools[1]:
        yield declare("pgdyno", *tools, why="what it measures may have changed: see its changelog")
    kernels = [UNSEEN if side.record.host is None else side.record.host.kernel for side in (first, other)]
    if kernels[0] != kernels[1]:
        yield free("kernel", *kernels)


def machine(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare CPUs, memory, disk and settings."""
    yield from _way_to_server(first, other)
    hosts = [side.record.host for side in (first, other)]
    facts = [_list_facts(side.record) for side in (first, other)]
    is_seen = all(host is not None for host in hosts)
    for subject in dict.fromkeys((*facts[0], *facts[1])):
        one, two = (of.get(subject, "" if is_seen else UNSEEN) for of in facts)
        # What an earlier record lacks says nothing of its machine.
        if one != two and "" not in {one, two}:
            yield free(subject, one, two)
    for key in INITDB_KEYS:
        shown = [show_choices(side.initdb).get(key) or show_usual(key) for side in (first, other)]
        if shown[0] != shown[1]:
            yield free(f"initdb's {key}", *shown)
    # The settings that decide a bench, and those that a user set.
    named = dict.fromkeys(one.name for one in key_settings())
    named |= dict.fromkeys(name for side in (first, other) for name in _requested_settings(side))
    for name in named:
        one, two = (_describe_setting(side, name) for side in (first, other))
        if one != two:
            yield free(name, one, two)


def _way_to_server(first: Side, other: Side) -> Iterator[RecordDifference]:
    """Compare how far pgbench was from the server."""
    given = [side.record.given for side in (first, other)]
    one, two = trips = [None if server is None or server.is_local else server.round_trip for server in given]
    if one is None and two is None:
        return
    if one is None or two is None or max(one.median_s / two.median_s, two.median_s / one.median_s) > _OTHER_WAY_RATIO:
        shown = ["beside it" if trip is None else f"a round trip of {trip.median_s * 1000:.3g} ms" for trip in trips]
        yield declare("pgbench's way to the server", *shown, why="each statement takes a round trip")


def _list_facts(record: StudyRecord) -> dict[str, str]:
    """List what is known of a record's machine by subject; what the record does not say is empty."""
    host = record.host
    if host is None:
        return {}
    disk = host.data_disk
    return {
        "machine's name": host.host_name or "",
        "CPUs": f"{format_cpus(host.usable_cpu_count)} ({host.cpu_model})",
        "Arm cores": host.cpu_core or "",
        "memory": format_bytes(host.usable_memory_bytes),
        "disk": _describe_disk(disk),
        "disk of pg_wal": _describe_wal_disk(record),
        "hypervisor": host.virtualization or "none seen",
        "mount options": disk.mount_options,
        "I/O scheduler": disk.scheduler or "",
        "read-ahead": "" if disk.read_ahead_kb is None else f"{disk.read_ahead_kb} kB",
        "transparent huge pages": host.transparent_huge_pages or "",
        "clock source": host.clock_source or "",
        "CPU governor": host.governor or "",
        **host.kernel_settings,
    }


def _describe_setting(side: Side, name: str) -> str:
    fact = next((one for one in side.trials[0].record.settings if one.name == name), None)
    if fact is not None and fact.value == NOT_RECORDED and name in (asked := _requested_settings(side)):
        # What a study asks for is in its record all the same.
        return str(asked[name])
    return (
        show_built_in(name, side.version_major)
        if fact is None
        else show_mode(name, show_in_unit(fact.value, fact.unit))
    )


def show_built_in(name: str, major: int) -> str:
    """Show the built-in value of a setting exactly: rounded, two values may look alike."""
    guc = find_guc(name, major)
    return "not known" if guc is None or guc.boot is None else show_mode(name, show_in_unit(guc.boot, guc.unit))


def _requested_settings(side: Side) -> dict[str, SettingValue]:
    server = side.record.study.server if side.variant is None else side.variant.server
    return server.settings


def _mean_share(side: Side, name: str) -> float | None:
    seen = [value for trial in side.trials if (value := trial.shares.get(name)) is not None]
    return sum(seen) / len(seen) if seen else None


def _failed_ratio(side: Side) -> float | None:
    done = sum(trial.transactions_count or 0 for trial in side.trials)
    failed = sum(trial.failed_count or 0 for trial in side.trials)
    return failed / (done + failed) if done + failed else None


def _any_above(values: list[float | None], bound: float) -> bool:
    return any(value is not None and value > bound for value in values)


def _percent(value: float | None) -> str:
    return "not seen" if value is None else f"{value * 100:.3g} %"


def _describe_wal_disk(record: StudyRecord) -> str:
    wal = None if record.preflight is None else record.preflight.wal
    # Older records have no device of the WAL's file system.
    if wal is None or not wal.device:
        return ""
    return "that of the data" if record.wal_disk is None else _describe_disk(wal)


def _describe_disk(disk: DiskFacts) -> str:
    return f"{disk.filesystem} on {disk.shown_device}, {format_bytes(disk.size_bytes)}"
