"""Say of an emulated machine how near it came to the declared one, and what it cannot show."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.disk.efficiency import CEILINGS
from pgdyno.analyse.disk.entries import DiskFigureKey
from pgdyno.report.document import Block, Prose, Tone
from pgdyno.report.format import format_bytes, format_cpus, format_percent
from pgdyno.report.input import CardView, ReportInput
from pgdyno.report.level import Level
from pgdyno.report.lists import join_names
from pgdyno.report.sections.disk.card import ENTRY_WORDS, format_latency, show_like
from pgdyno.report.table import Cell, Table, columns, text
from pgdyno.spec.host import HostSpec
from pgdyno.tune.hosts import make_shape
from pgdyno.tune.types import Disk, DiskKind, Known, Origin

_NEVER = (
    "the speed of its CPUs and of its memory",
    "bursts, since each disk has what lasts",
    "a limit that reads and writes, or data and WAL, share, since each is held for itself",
)


def build_emulated(report: ReportInput) -> Iterator[Block]:
    """Yield what readers must know of an emulation; nothing of a real machine."""
    host = report.record.study.host
    if host is None or not host.emulate:
        return
    shape = make_shape(host)
    near = [words for name, view, disk in _list_cards(report, host) if (words := _describe_nearness(name, view, disk))]
    came = f" {'; '.join(near)} (measured over declared)." if near else " The emulated disks were not measured."
    yield Prose(
        strong="Emulated:",
        words=f"these figures are of {shape.name} as this machine could act it, not of {shape.name}.{came}{_describe_cost(report)} The emulation"
        f" cannot show: {'; '.join([*_list_excess(report, host), *_NEVER])}.",
        brief=f"{shape.name} as this machine could act it.{came}",
        tone=Tone.ALARM,
        level=Level.HEADLINE,
    )


def _describe_cost(report: ReportInput) -> str:
    """Say what the emulated disks took of the CPUs, if that was seen."""
    most = max((trial.shares.get("cpu_emulation_ratio") or 0.0 for trial in report.analysis.trials), default=0.0)
    return f" The kernel's threads of its disks used at most {format_percent(most)} of the CPUs." if most > 0.0 else ""


def emulation_table(report: ReportInput) -> Table | None:
    """Build the table of each emulated disk's figures beside the declared ones; None for a real machine."""
    host = report.record.study.host
    if host is None or not host.emulate:
        return None
    rows = [row for name, view, disk in _list_cards(report, host) for row in _list_rows(name, view, disk)]
    if not rows:
        return None
    return Table(
        caption="Emulated disks, declared and measured",
        columns=columns("Disk", "What", "Declared", "Emulated", "Ratio", numbers_from=2),
        rows=tuple(rows),
        remark="Measured with the disk card on the emulated disks, before the trials. A flush is the median; reads that wait"
        " for the disk take as long as a flush.",
    )


def _list_cards(report: ReportInput, host: HostSpec) -> Iterator[tuple[str, CardView, Disk | None]]:
    """Yield the cards that there are, each with the disk that it should be like; None where none is declared."""
    shape = make_shape(host)
    for name, view, disk in (("data", report.disk, shape.disk), ("WAL", report.wal, shape.wal_disk)):
        if view is not None:
            yield name, view, disk


def _list_excess(report: ReportInput, host: HostSpec) -> Iterator[str]:
    """Yield what the declared machine has more of than this one."""
    here, shape = report.record.host, make_shape(host)
    if here is not None and shape.cpus.value > here.usable_cpu_count:
        yield f"its {format_cpus(shape.cpus.value)}, of which here are {format_cpus(here.usable_cpu_count)}"
    if here is not None and shape.memory.value > 1.01 * here.usable_memory_bytes:
        size, ours = format_bytes(round(shape.memory.value)), format_bytes(here.usable_memory_bytes)
        yield f"its {size} of memory, of which here are {ours}"
    if here is not None and here.memory_limit_bytes is not None:
        yield "its limits of dirty pages where they are a share of memory: with control groups of version 1, of this machine's"
    if DiskKind.HDD in {disk.kind for disk in (shape.disk, shape.wal_disk) if disk is not None}:
        yield "how fast a spinning disk writes pages in a row, such as WAL, without seeks: here its IOPS limit these, too"


def _describe_nearness(name: str, view: CardView, disk: Disk | None) -> str:
    ratios = [one.ratio.value for one in view.efficiencies if one.key is not DiskFigureKey.FLUSHES and one.ratio.value]
    flush_us = _find_flush_us(view)
    parts = []
    if ratios:
        low, high = format_percent(min(ratios)), format_percent(max(ratios))
        parts.append(f"{low} of IOPS and MB/s" if low == high else f"{low} to {high} of IOPS and MB/s")
    if flush_us and disk is not None:
        parts.append(f"{format_percent(flush_us / (disk.flush_s.value * 1e6))} of the time of a flush")
    return f"{name}: {join_names(parts)}" if parts else ""


def _list_rows(name: str, view: CardView, disk: Disk | None) -> Iterator[tuple[Cell, ...]]:
    if disk is None:
        return
    for one in view.efficiencies:
        if one.key is not DiskFigureKey.FLUSHES and one.measured.value is not None:
            note = _note_assumed(getattr(disk, CEILINGS[one.key]))
            declared = text(show_like(one.key, one.measured, one.ceiling.value), note=note)
            measured = show_like(one.key, one.measured, one.measured.value)
            ratio = None if one.ratio.value is None else format_percent(one.ratio.value)
            yield text(name), text(ENTRY_WORDS[one.key]), declared, text(measured), text(ratio)
    flush_us = _find_flush_us(view)
    if flush_us is not None:
        wanted_us = disk.flush_s.value * 1e6
        declared = text(format_latency(wanted_us), note=_note_assumed(disk.flush_s))
        ratio = format_percent(flush_us / wanted_us)
        yield text(name), text("a flush"), declared, text(format_latency(flush_us)), text(ratio)


def _note_assumed(wanted: Known) -> str | None:
    return f"assumed: {wanted.how}" if wanted.origin is Origin.ASSUMED else None


def _find_flush_us(view: CardView) -> float | None:
    """Return the median time of a flush."""
    return next((one.estimate.value for one in view.entries if one.key is DiskFigureKey.FLUSH_P50), None)
