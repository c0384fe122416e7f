"""Build the tables of a disk card: headline, fio's jobs, pg_test_fsync, ceilings."""

from __future__ import annotations

import math

from pgdyno.analyse.disk.card import PLATEAU_GAIN, JobFigures, LatencyFigures, Plateau, PlateauKind
from pgdyno.analyse.disk.efficiency import Efficiency
from pgdyno.analyse.estimate import Estimate
from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.record.device.disk_card import CardScope
from pgdyno.report.format import ABSENT, format_bytes, format_number, format_percent
from pgdyno.report.input import CardView
from pgdyno.report.sections.disk.card import ENTRY_WORDS, format_latency, format_rate, show_entry
from pgdyno.report.sections.disk.layout import LayoutView
from pgdyno.report.table import Cell, Column, Table, columns, text

_JOB_WORDS = {
    Pattern.RANDOM_READ: "random read",
    Pattern.RANDOM_WRITE: "random write",
    Pattern.SEQUENTIAL_READ: "seq. read",
    Pattern.SEQUENTIAL_WRITE: "seq. write",
    Pattern.MIXED: "mixed",
    Pattern.WRITE_AND_FLUSH: "write+flush",
    Pattern.WAL: "WAL",
}
_BEGUN = {PlateauKind.REACHED, PlateauKind.LIKELY}
_STAR, _LARGE = "*", "large"
_FLUSH_GROUPS = ("one 8kB write", "two 8kB writes")


def headline_table(view: CardView) -> Table:
    """Build the table of the main figures of a disk, with their intervals."""
    rows = []
    for entry in view.entries:
        shown = show_entry(entry)
        interval = ABSENT if shown.interval == "measured once" else shown.interval
        rows.append((text(ENTRY_WORDS[entry.key]), text(shown.value), text(interval), text(entry.how)))
    return Table(
        caption="Disk performance",
        columns=(*columns("", "figure", "95 % interval", numbers_from=1), Column(title="how")),
        rows=tuple(rows),
    )


def jobs_table(view: CardView) -> Table | None:
    """Build the table of every job of fio; None where fio was not run."""
    if not view.figures.jobs:
        return None
    rows = tuple(_job_row(one, view.figures.plateaus) for one in view.figures.jobs)
    titles = columns("fio", "depth", "IOPS", "±", "MB/s", "p50", "p99", "p99.9", numbers_from=1)
    has_plateau = any(one.kind in _BEGUN for one in view.figures.plateaus)
    star = (
        f" {_STAR} marks the queue depth beyond which a deeper queue gains less than {PLATEAU_GAIN * 100:.0f} %."
        if has_plateau
        else ""
    )
    large = f" {_LARGE}: {_explain_large(view)}" if any(row[3].text == _LARGE for row in rows) else ""
    shared = (
        " 64 /2: 2 processes of fio shared the depth, because the CPU of one was the limit."
        if any(one.job.processes > 1 for one in view.figures.jobs)
        else ""
    )
    return Table(
        caption="Performance by pattern and queue depth",
        columns=titles,
        rows=rows,
        remark=(
            f"± is half of the 95 % interval.{large}{star}{shared} Latency is that of reads in mixed jobs, and of the flush"
            " where the job has one."
        ),
    )


def flush_table(view: CardView) -> Table | None:
    """Build the table of pg_test_fsync's methods; None where it was not run."""
    by_name: dict[str, dict[str, str]] = {}
    others: dict[str, list[str]] = {}
    for test in view.card.flush_tests:
        shown = format_number(test.ops_per_s) if test.ops_per_s is not None else ABSENT
        if test.group in _FLUSH_GROUPS:
            name = f"{test.name} (default)" if test.is_default else test.name
            by_name.setdefault(name, {})[test.group] = shown
        else:
            others.setdefault(test.group, []).append(f"{' '.join(test.name.split())}: {shown}")
    if not by_name:
        return None
    rows = tuple((text(name), *(text(found.get(group)) for group in _FLUSH_GROUPS)) for name, found in by_name.items())
    return Table(
        caption="pg_test_fsync: flushes per second",
        columns=columns("wal_sync_method", "one 8 kB write", "two", numbers_from=1),
        rows=rows,
        remark=" ".join(f"{group}, operations a second: {'; '.join(shown)}." for group, shown in others.items()),
    )


def efficiency_table(view: CardView) -> Table | None:
    """Build the table of measured figures beside declared ones; None where nothing is declared."""
    if not view.efficiencies:
        return None
    return Table(
        caption="Measured and declared",
        columns=(*columns("", "measured", "lasts", "reached", "for a while", numbers_from=1), Column(title="bound by")),
        rows=tuple(_efficiency_row(one) for one in view.efficiencies),
    )


def layout_of(view: CardView) -> LayoutView | None:
    """Return the layout that a card declares; None where it declares no volumes. An emulation makes one disk of an array."""
    card = view.card
    if view.ceilings is None or card.declared is None:
        return None
    look = None if card.is_emulated else card.look
    return LayoutView(title=card.name, look=look, declared=card.declared, limits=view.limits, ceilings=view.ceilings)


def name_job(job: DiskJob) -> str:
    """Name a job as fio tables do: `random read 8kB`."""
    size = format_bytes(job.block_bytes).replace(" ", "")
    if job.pattern is Pattern.MIXED and job.read_ratio is not None:
        reads = round(job.read_ratio * 100)
        return f"{_JOB_WORDS[job.pattern]} {reads}/{100 - reads} {size}"
    return f"{_JOB_WORDS[job.pattern]} {size}"


def _job_row(one: JobFigures, plateaus: tuple[Plateau, ...]) -> tuple[Cell, ...]:
    latency = one.flush or one.read or one.write
    begins = any(
        (each.pattern, each.block_bytes, each.depth) == (one.job.pattern, one.job.block_bytes, one.job.depth)
        and each.kind in _BEGUN
        for each in plateaus
    )
    iops, rate = one.iops.value, one.bytes_per_s.value
    return (
        text(f"{name_job(one.job)}{_STAR if begins else ''}"),
        text(f"{one.job.depth}{f' /{one.job.processes}' if one.job.processes > 1 else ''}"),
        text(None if iops is None else format_number(iops)),
        text(_half_width(one.iops)),
        text(None if rate is None else format_number(rate / 1e6)),
        *(text(_percentile(latency, name)) for name in ("p50_us", "p99_us", "p999_us")),
    )


def _explain_large(view: CardView) -> str:
    count = view.figures.round_count
    more = "; a run without --quick has more rounds." if view.card.scope is CardScope.QUICK else "."
    return f"{count} rounds that differ this much leave the figure uncertain by more than a factor of 2{more}"


def _percentile(latency: LatencyFigures | None, name: str) -> str | None:
    value: float | None = None if latency is None else getattr(latency, name).value
    return None if value is None else format_latency(value)


def _half_width(estimate: Estimate) -> str | None:
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return None
    half_width = math.sqrt(estimate.high / estimate.low) - 1
    return f"{half_width * 100:.0f} %" if half_width < 1 else _LARGE


def _efficiency_row(one: Efficiency) -> tuple[Cell, ...]:
    def show(value: float | None) -> str | None:
        if value is None:
            return None
        return format_rate(value) if one.measured.unit == "bytes/s" else format_number(value)

    ratio = one.ratio.value
    return (
        text(ENTRY_WORDS[one.key]),
        text(show(one.measured.value)),
        text(show(one.ceiling.value)),
        text(None if ratio is None else format_percent(ratio)),
        text(show(one.ceiling.burst_value)),
        text(one.ceiling.binds.value),
    )
