"""Say on which disk each variant's cluster lay, where they had places of their own."""

from __future__ import annotations

from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.types import StudyRecord
from pgdyno.report.format import format_bytes
from pgdyno.report.lists import join_names
from pgdyno.report.table import Table, code, columns, text


def places_table(record: StudyRecord) -> Table | None:
    """Build the table of the places of the variants' clusters; None if all lay in one."""
    experiment = record.plan.experiment
    if not record.places or experiment is None:
        return None
    names: dict[int, list[str]] = {}
    for variant in experiment.variants:
        names.setdefault(record.find_place((variant.name,)), []).append(variant.name)
    rows = []
    for number, of in names.items():
        disk, wal = record.places[number].data_disk, record.places[number].wal
        rows.append(
            (
                text(join_names(of)),
                code(disk.path),
                text(_describe(disk)),
                text("with the data" if wal.device == disk.device else f"{_describe(wal)}, {wal.path}"),
                text(disk.scheduler),
                text(None if disk.read_ahead_kb is None else f"{disk.read_ahead_kb} kB"),
            )
        )
    titles = columns("Variants", "Data directory", "Disk", "pg_wal", "I/O scheduler", "Read-ahead")
    return Table(caption="Disks of the variants", columns=titles, rows=tuple(rows))


def _describe(disk: DiskFacts) -> str:
    return f"{disk.filesystem} ({disk.mount_options}) on {disk.shown_device}, {format_bytes(disk.size_bytes)}"
