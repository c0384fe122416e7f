"""Describe how much of its disk a workload used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

import msgspec

from pgdyno.analyse.disk.demand import DiskDemand, DiskUse, UseKind
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.record.types import TrialStatus
from pgdyno.report.format import format_number, format_percent, format_seconds
from pgdyno.report.input import CardView, ReportInput
from pgdyno.report.lists import join_names
from pgdyno.report.sections.disk.card import describe_making, describe_place, format_rate
from pgdyno.report.sections.disk.tables import headline_table
from pgdyno.report.table import Cell, Table, columns, number, text

_NOT_SEEN = "the disk was not observed"
_NAMES = {
    UseKind.FLUSHES: "Commits that wait for flushes",
    UseKind.WAL: "WAL written",
    UseKind.READS: "Reads of the device",
    UseKind.READ_BYTES: "Bytes read from the device",
    UseKind.WRITES: "Writes of the device",
    UseKind.WRITTEN_BYTES: "Bytes written to the device",
    UseKind.CHECKPOINTS: "Pages of checkpoints, while they write",
    UseKind.INSTANCE_IOPS: "I/Os through the instance",
    UseKind.INSTANCE_BYTES: "Bytes through the instance",
}
REMARK = (
    "Each use is compared with the limit of the same kind on the disk's card. Shares do not add up: a disk does less"
    " of each under mixed load. Only reads that reach the device count, not those that the kernel's cache answers. A"
    " busy disk is not a full one: it can serve many requests at once."
)
_WAL_REMARK = (
    " Commits, WAL and the time of a flush are those of pg_wal's own disk, and are compared with its own card."
)
_INSTANCE = frozenset({UseKind.INSTANCE_IOPS, UseKind.INSTANCE_BYTES})
_LASTING_WORDS = {
    UseKind.FLUSHES: "flushes",
    UseKind.WAL: "WAL",
    UseKind.READS: "random reads",
    UseKind.READ_BYTES: "bytes read",
    UseKind.WRITES: "random writes",
    UseKind.WRITTEN_BYTES: "bytes written",
}
LASTING_REMARK = (
    " The sustained limit is the declared one; measured performance above it is a burst, paid for with credits, and"
    " ends."
)


def card_tables(report: ReportInput) -> Iterator[Table]:
    """Yield a table for each disk of a study that was measured: of data, of pg_wal, and of variants with places of their own."""
    named = [("Data disk", report.disk), ("WAL disk", report.wal)]
    for one in report.further:
        disk = "WAL disk" if one.content == "WAL" else "Data disk"
        named.append((f"{disk} of {join_names(one.variants)}", one.view))
    yield from (_card_table(view, caption) for caption, view in named if view is not None)


def _card_table(view: CardView, caption: str) -> Table:
    """Build the table of a disk: its figures, and when they were measured."""
    missing = "".join(f" Not measured: {one.what}: {one.reason}." for one in view.card.unseen)
    remark = f"{describe_place(view.card)}; {describe_making(view.card, view.figures)}.{missing}"
    return msgspec.structs.replace(headline_table(view), caption=caption, remark=remark)


def uses_table(workload: WorkloadAnalysis) -> Table | None:
    """Build the table of each limit and how much of it was used; None without a card."""
    joins = _joins(workload)
    kinds = {use.kind: use for join in joins for use in join.uses}
    rows: list[tuple[Cell, ...]] = []
    for kind, name in _NAMES.items():
        if kind not in kinds:
            continue
        uses = [use for join in joins if (use := join.find(kind)) is not None]
        used, limit = median(use.used for use in uses), median(use.limit for use in uses)
        rows.append(
            (
                text(name),
                text(_show(used, uses[0])),
                text(_show(limit, uses[0])),
                Cell(text=format_percent(median(use.ratio for use in uses)), is_strong=True),
                *_lasting_cells(uses),
                text(uses[0].how),
            )
        )
    if not rows:
        return None
    has_lasting = any(use.lasts is not None for join in joins for use in join.uses)
    has_wal_disk = any(join.wal_device for join in joins)
    titles = columns("", "used", "limit", "share", *(("lasts", "share used") if has_lasting else ()), numbers_from=1)
    rows += _latency_rows(joins)
    return Table(
        caption="Use of the data disk",
        columns=(*titles, *columns("source")),
        rows=tuple(row if has_lasting else (*row[:4], *row[-1:]) for row in rows),
        remark=f"{REMARK}{_WAL_REMARK if has_wal_disk else ''}{LASTING_REMARK if has_lasting else ''}",
    )


def _lasting_cells(uses: list[DiskUse]) -> tuple[Cell, Cell]:
    """Return the cells of a limit's sustained value, and the share of it that was used."""
    lasts, ratios = [], []
    for use in uses:
        if use.lasts is not None and use.lasting_ratio is not None:
            lasts.append(use.lasts)
            ratios.append(use.lasting_ratio)
    if not lasts:
        return text(None), text(None)
    return text(_show(median(lasts), uses[0])), Cell(text=format_percent(median(ratios)), is_strong=True)


def describe_uses(workload: WorkloadAnalysis) -> tuple[str, ...]:
    """Describe the use: `Commits use 71 % of the flush capacity of this disk; reads are at 3 %.` Nothing without a card."""
    joins = _joins(workload)
    uses = [use for join in joins for use in join.uses]
    shares = _medians((use.kind, use.ratio) for use in uses)
    if not shares:
        return ()
    instance = shares.pop(UseKind.INSTANCE_IOPS, None), shares.pop(UseKind.INSTANCE_BYTES, None)
    lasting = _medians((use.kind, ratio) for use in uses if (ratio := use.lasting_ratio) is not None)
    of_instance = next((use.how.partition(",")[0] for use in uses if use.kind in _INSTANCE), "")
    disk = "pg_wal's own disk" if any(join.wal_device for join in joins) else "this disk"
    return (*_describe_measured(shares, flushed=disk), *_describe_lasting(lasting, instance, of_instance))


def _describe_measured(shares: dict[UseKind, float], *, flushed: str) -> tuple[str, ...]:
    flushes = shares.get(UseKind.FLUSHES)
    reads = _largest(shares, UseKind.READS, UseKind.READ_BYTES)
    writes = _largest(shares, UseKind.WRITES, UseKind.WRITTEN_BYTES)
    rest = [
        f"{name} are at {_percent(share)}"
        for name, share in (("reads", reads), ("writes", writes))
        if share is not None
    ]
    if UseKind.WAL in shares and flushes is not None:
        rest.append(f"WAL is at {_percent(shares[UseKind.WAL])} of sequential writing")
    if flushes is None:
        return (f"Of this disk's capacity, {', '.join(rest)}.",) if rest else ()
    first = f"Commits use {_percent(flushes)} of the flush capacity of {flushed}"
    beyond = " (flushes were faster here than when the card was made)" if flushes > 1.0 else ""
    return (f"{'; '.join([first + beyond, *rest])}.",)


def _describe_lasting(
    lasting: dict[UseKind, float], instance: tuple[float | None, float | None], name: str
) -> tuple[str, ...]:
    """Describe the use of sustained limits, and of the instance's limits."""
    said = []
    if lasting:
        parts = [f"{_percent(lasting[kind])} of {_LASTING_WORDS[kind]}" for kind in _LASTING_WORDS if kind in lasting]
        said.append(f"The declared sustained limits are lower; of them, trials used {', '.join(parts)}.")
    taken = max((share for share in instance if share is not None), default=None)
    if taken is not None:
        what = "I/Os" if taken == instance[0] else "MB/s"
        said.append(f"Reads and writes together use {_percent(taken)} of the {what} that {name} sustains.")
    return tuple(said)


def _medians(shares: Iterable[tuple[UseKind, float]]) -> dict[UseKind, float]:
    found: dict[UseKind, list[float]] = {}
    for kind, share in shares:
        found.setdefault(kind, []).append(share)
    return {kind: median(of) for kind, of in found.items()}


def _latency_rows(joins: list[DiskDemand]) -> Iterator[tuple[Cell, ...]]:
    def row(name: str, values: list[float], *, is_share: bool) -> tuple[Cell, ...]:
        value = median(values) if values else None
        shown = number(value, format_percent if is_share else lambda ms: format_seconds(ms / 1000), _NOT_SEEN)
        return text(name), shown, *(text(None),) * 4, text("")

    busy = [join.busy_ratio for join in joins if join.busy_ratio is not None]
    yield row("Time with at least one request in progress", busy, is_share=True)
    for name, field in (("read", "read_await_ms"), ("write", "write_await_ms"), ("flush", "flush_await_ms")):
        values = [value for join in joins if (value := getattr(join, field)) is not None]
        if values:
            yield row(f"Mean time of a {name}", values, is_share=False)


def _percent(share: float) -> str:
    """Format a share for a sentence."""
    return "less than 1 %" if share < 0.01 else f"{share * 100:,.0f} %"


def _joins(workload: WorkloadAnalysis) -> list[DiskDemand]:
    finished = [trial for trial in workload.trials if trial.record.status is TrialStatus.FINISHED]
    return [trial.disk for trial in finished if trial.disk is not None]


def _largest(shares: dict[UseKind, float], *kinds: UseKind) -> float | None:
    return max((shares[kind] for kind in kinds if kind in shares), default=None)


def _show(value: float, use: DiskUse) -> str:
    return format_rate(value) if use.unit == "bytes/s" else f"{format_number(value)} {use.unit}".replace(" /s", "/s")
