"""Build the tables of the machine: its CPUs, memory and disks, how it was watched, and the kernel settings."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.explain.preflight.study import list_obstacles
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.host_facts import CpuTopology, HostFacts
from pgdyno.record.types import StudyRecord
from pgdyno.report.clock_words import format_offset
from pgdyno.report.document import Prose, Section, Tone
from pgdyno.report.format import format_bytes, format_number, format_seconds
from pgdyno.report.host_words import name_load_machine
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.lists import join_names
from pgdyno.report.sections.conditions.emulated import emulation_table
from pgdyno.report.sections.conditions.given_server import build_given_machine, given_table
from pgdyno.report.sections.conditions.load_hosts import load_hosts_table
from pgdyno.report.sections.conditions.preflight import summarise
from pgdyno.report.sections.context import gaps_table, versions_table
from pgdyno.report.sections.disk.declared import compare_with_declared, declared_tables, explain_declared
from pgdyno.report.sections.disk.uses import card_tables
from pgdyno.report.sections.head import SIZES_REMARK
from pgdyno.report.severity_words import name_severity
from pgdyno.report.table import Cell, Table, absent, code, columns, text
from pgdyno.units import count_things

# The drivers of virtual disks report no reliable facts about the medium behind them.
_VIRTUAL_DISKS = ("vd", "xvd", "nvme")


def build_machine(report: ReportInput) -> Iterator[Section]:
    """Yield the section on the machine, its disk, the preflight, and the programs; of a given server also on that."""
    host, given = report.record.host, report.record.given
    made = (
        emulation_table(report),
        None if host is None else host_table(host, report.record.wal_disk),
        watched_table(report),
        load_hosts_table(report),
        places_table(report.record),
        None if host is None or not host.kernel_settings else kernel_table(host),
        None if given is None else given_table(given),
        *card_tables(report),
        *declared_tables(report),
        preflight_table(report),
        gaps_table(report),
        msgspec.structs.replace(versions_table(report), level=Level.DETAIL),
    )
    standing = compare_with_declared(report)
    words = tuple(
        Prose(words=one, tone=Tone.SMALL, level=Level.HEADLINE if one in standing else Level.STANDARD)
        for one in explain_declared(report)
    )
    tables = tuple(table for table in made if table is not None)
    seen = () if given is None else tuple(build_given_machine(report, given))
    title = "Server" if host is None else "Machine"
    yield Section(title=title, id="machine", blocks=(*words, *tables, *seen), is_listed=True)


def _describe_topology(seen: CpuTopology) -> str:
    parts = [
        count_things(seen.socket_count, "socket"),
        count_things(seen.core_count, "core"),
        f"{count_things(round(seen.thread_count / seen.core_count), 'thread')} a core",
    ]
    parts += [count_things(seen.numa_node_count, "NUMA node")] if seen.numa_node_count else []
    parts += [f"last-level cache of {seen.last_cache.replace('K', ' kB')}"] if seen.last_cache else []
    return ", ".join(parts)


def host_table(host: HostFacts, wal: DiskFacts | None = None) -> Table:
    """Build the table of the machine's facts.

    Args:
        host: The machine.
        wal: The disk of pg_wal; None if it is that of the data.
    """
    disk = host.data_disk
    limit = None if host.cpu_limit is None else f"{host.cpu_limit:g} of {host.cpu_count} (cgroup limit)"
    memory = format_bytes(host.memory_bytes)
    if host.memory_limit_bytes is not None:
        memory = f"{format_bytes(host.memory_limit_bytes)} of {memory} (cgroup limit)"
    optional = {"virtualization": "Virtualization", "clock_source": "Clock source", "governor": "CPU governor",
                "transparent_huge_pages": "Transparent huge pages"}  # fmt: skip
    facts: list[tuple[str, Cell]] = [
        *([] if host.host_name is None else [("Name", text(host.host_name))]),
        ("System", text(f"{host.os_name}, Linux {host.kernel}, {host.architecture}")),
        ("CPU", text(host.cpu_name)),
        ("CPUs", text(limit or str(host.cpu_count))),
        *([] if host.topology is None else [("Topology of CPUs", text(_describe_topology(host.topology)))]),
        ("Memory", text(memory)),
        ("Swap", text(format_bytes(host.swap_bytes) if host.swap_bytes else "none")),
        *((title, _known_cell(host, name, getattr(host, name))) for name, title in optional.items()),
        ("Load average at the start", text(format_number(host.load_average_1min))),
        *(_list_disk(host, disk, wal) if disk.is_known else [("Disk", absent("the role may not know the data's folder"))]),
    ]  # fmt: skip
    rows = tuple((text(name), cell) for name, cell in facts)
    return Table(caption="Machine", columns=columns("", "Value"), rows=rows, remark=SIZES_REMARK)


def _list_disk(host: HostFacts, disk: DiskFacts, wal: DiskFacts | None) -> list[tuple[str, Cell]]:
    room = f"{format_bytes(disk.free_bytes)} free of {format_bytes(disk.size_bytes)}" if disk.size_bytes else None
    return [
        ("Data directory", code(disk.path)),
        ("Disk", text(_describe_disk(host, disk))),
        ("File system", text(f"{disk.filesystem} ({disk.mount_options})")),
        *([] if wal is None else [
            ("Disk of pg_wal", text(_describe_disk(host, wal))),
            ("File system of pg_wal", text(f"{wal.filesystem} ({wal.mount_options}), {format_bytes(wal.free_bytes)} free of {format_bytes(wal.size_bytes)}")),
        ]),
        ("Disk space", text(room) if room else absent("this account may not look at it")),
        ("I/O scheduler", _known_cell(host, "scheduler", disk.scheduler)),
        ("Read-ahead", _known_cell(host, "read_ahead_kb", None if disk.read_ahead_kb is None else f"{disk.read_ahead_kb} kB")),
    ]  # fmt: skip


def _known_cell(host: HostFacts, name: str, value: str | None) -> Cell:
    return text(value) if value else absent(host.absent.get(name, "not found"))


def kernel_table(host: HostFacts) -> Table:
    """Build the table of the kernel's settings, as they were before the first trial."""
    rows = tuple((code(name), text(value)) for name, value in host.kernel_settings.items())
    remark = "Values before the first trial. What a variant changes is listed with its settings."
    return Table(
        caption="Kernel settings", columns=columns("Setting", "Value"), rows=rows, remark=remark, level=Level.DETAIL
    )


def watched_table(report: ReportInput) -> Table | None:
    """Build the table of how the machine of a given server was watched; None where it was not."""
    watched = report.record.server_host
    if watched is None:
        return None
    clocks = [trial.server_clock for trial in report.analysis.trials if trial.server_clock is not None]
    is_same = watched.is_load_host and not report.record.load_hosts
    rows: list[tuple[Cell, ...]] = [
        (text("Reached by"), code(f"ssh {watched.ssh}")),
        (text("Watched with"), text(f"Python {watched.python}, which was sent there and left nothing")),
        (text("The load came from"), text("the same machine" if is_same else name_load_machine(report.record))),
    ]
    if clocks:
        worst = max(clocks, key=lambda one: one.uncertainty_s)
        rows.append((text("Its clock, ahead of the load's"), text(f"{format_offset(clocks[0])}, in the first trial")))
        rows.append((text("Largest error of its times"), text(format_seconds(worst.uncertainty_s))))
    remark = "Its samples are on its own clock in the record, and are converted when the record is read."
    return Table(caption="Watched by ssh", columns=columns("", "Value"), rows=tuple(rows), remark=remark)


def places_table(record: StudyRecord) -> Table | None:
    """Build the table of the places of the variants' clusters; None if all lay in one."""
    names = record.name_by_place()
    if not names:
        return None
    rows = []
    for number, of in names.items():
        disk, wal = record.places[number].data_disk, record.places[number].wal
        rows.append(
            (
                text(join_names(of)),
                code(disk.path),
                text(_describe_system(disk)),
                text("with the data" if wal.device == disk.device else f"{_describe_system(wal)}, {wal.path}"),
                text(disk.scheduler),
                text(None if disk.read_ahead_kb is None else f"{disk.read_ahead_kb} kB"),
            )
        )
    titles = columns("Variants", "Data directory", "Disk", "pg_wal", "I/O scheduler", "Read-ahead")
    return Table(caption="Disks of the variants", columns=titles, rows=tuple(rows))


def _describe_system(disk: DiskFacts) -> str:
    return f"{disk.filesystem} ({disk.mount_options}) on {disk.shown_device}, {format_bytes(disk.size_bytes)}"


def preflight_table(report: ReportInput) -> Table | None:
    """Build the table of a study's preflight; None for records that have none."""
    facts, given = report.record.preflight, report.record.given
    if facts is None and given is None:
        return None
    unseen = () if facts is None else facts.unseen
    findings = list_obstacles(report.record, report.analysis)
    rows = [
        (text(name_severity(one)), text(one.claim), text(one.evidence), text(one.why), text(one.advice))
        for one in findings
    ]
    rows += [(text("not checked"), text(one.what), text(one.reason), text(None), text(None)) for one in unseen]
    return Table(
        caption=f"Preflight: state of the {'server' if report.record.given else 'machine'} before the first trial",
        columns=columns("", "What", "Seen", "Effect", "Fix"),
        rows=tuple(rows),
        remark=f"In all: {summarise(findings)}.",
    )


def _describe_disk(host: HostFacts, disk: DiskFacts) -> str:
    parts = [disk.device]
    if disk.block_device is not None and disk.block_device != disk.device.removeprefix("/dev/"):
        parts.append(f"on {disk.block_device}")
    is_virtual = (disk.block_device or "").startswith(_VIRTUAL_DISKS) or host.virtualization not in {None, "none"}
    if disk.is_rotational is not None and not is_virtual:
        parts.append("rotating" if disk.is_rotational else "solid state")
    return ", ".join(parts)
