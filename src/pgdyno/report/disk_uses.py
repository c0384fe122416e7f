"""How much of what its disk can do a workload used: sentences and a table for every form, and its part of report.json."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Annotated

import msgspec

from pgdyno.analyse.disk_entries import Entry
from pgdyno.analyse.disk_join import DiskJoin, DiskUse, UseKind
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.record.preflight import Unseen
from pgdyno.record.types import TrialStatus
from pgdyno.report.disk import CardView, describe_making, describe_place, format_rate
from pgdyno.report.disk_tables import headline_table
from pgdyno.report.format import format_number, format_percent, format_seconds
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
}
REMARK = (
    "Each against the limit of its own kind on this disk's card: shares do not add up, since a disk does less of each when"
    " it does all at once. Reads are the device's own: what the kernel's cache answers is none. A queue of many requests"
    " keeps a disk busy long before it is full."
)


class DiskUseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one limit of the disk a trial used."""

    kind: UseKind
    used: float
    limit: float
    unit: str
    ratio: Annotated[float, msgspec.Meta(description="Of used to limit.")]
    how: str


class DiskJoinDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's load on the data's device, against the device's card."""

    device: str | None
    busy_ratio: float | None
    read_await_ms: float | None
    write_await_ms: float | None
    flush_await_ms: float | None
    missed_blocks_per_s: Annotated[
        float | None, msgspec.Meta(description="That shared_buffers missed; the kernel's cache may have had them.")
    ]
    uses: tuple[DiskUseDocument, ...]


class OwnDiskDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The card of the data's disk."""

    path: str | None
    made_at: Annotated[
        str, msgspec.Meta(description="ISO 8601 with offset; it may have been made for an earlier study.")
    ]
    entries: tuple[Entry, ...]
    unseen: Annotated[tuple[Unseen, ...], msgspec.Meta(description="What could not be measured, with the reason.")]


def make_own_disk(view: CardView | None) -> OwnDiskDocument | None:
    """As a document; None where it was not measured."""
    if view is None:
        return None
    card = view.card
    return OwnDiskDocument(path=card.path, made_at=card.made_at.isoformat(), entries=view.entries, unseen=card.unseen)


def own_disk_table(view: CardView) -> Table:
    """What the data's disk can do, and when that was measured."""
    missing = "".join(f" Not measured: {one.what} ({one.reason})." for one in view.card.unseen)
    remark = f"{describe_place(view.card)}; {describe_making(view.card, view.figures)}.{missing}"
    return msgspec.structs.replace(headline_table(view), caption="This disk", remark=remark)


def make_join(join: DiskJoin | None) -> DiskJoinDocument | None:
    """As a document; None for a trial without a card."""
    if join is None:
        return None
    uses = tuple(DiskUseDocument(**msgspec.structs.asdict(use), ratio=use.ratio) for use in join.uses)
    return DiskJoinDocument(**{**msgspec.structs.asdict(join), "uses": uses})


def uses_table(workload: WorkloadAnalysis) -> Table | None:
    """Each limit with what was used of it; None without a card."""
    joins = _joins(workload)
    kinds = {use.kind: use for join in joins for use in join.uses}
    rows = []
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
                text(uses[0].how),
            )
        )
    if not rows:
        return None
    titles = columns("", "used", "limit", "share", numbers_from=1)
    return Table(
        caption="What it used of this disk",
        columns=(*titles, *columns("limit of")),
        rows=(*rows, *_latency_rows(joins)),
        remark=REMARK,
    )


def describe_uses(workload: WorkloadAnalysis) -> tuple[str, ...]:
    """`You reach 71 % of what this disk allows for flushes; reads are at 3 %.` Nothing without a card."""
    joins = _joins(workload)
    shares = {
        kind: median(use.ratio for join in joins if (use := join.find(kind)) is not None)
        for kind in UseKind
        if any(join.find(kind) is not None for join in joins)
    }
    if not shares:
        return ()
    flushes = shares.pop(UseKind.FLUSHES, None)
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
        return (f"Of what this disk can do, {', '.join(rest)}.",) if rest else ()
    first = f"You reach {_percent(flushes)} of what this disk allows for flushes"
    beyond = " (they took less here than when the card was made)" if flushes > 1.0 else ""
    return (f"{'; '.join([first + beyond, *rest])}.",)


def _latency_rows(joins: list[DiskJoin]) -> Iterator[tuple[Cell, ...]]:
    def row(name: str, values: list[float], *, is_share: bool) -> tuple[Cell, ...]:
        value = median(values) if values else None
        shown = number(value, format_percent if is_share else lambda ms: format_seconds(ms / 1000), _NOT_SEEN)
        return text(name), shown, text(None), text(None), text("")

    busy = [join.busy_ratio for join in joins if join.busy_ratio is not None]
    yield row("Time with any request under way", busy, is_share=True)
    for name, field in (("read", "read_await_ms"), ("write", "write_await_ms"), ("flush", "flush_await_ms")):
        values = [value for join in joins if (value := getattr(join, field)) is not None]
        if values:
            yield row(f"Mean time of a {name}", values, is_share=False)


def _percent(share: float) -> str:
    """A share as one says it."""
    return "less than 1 %" if share < 0.01 else f"{share * 100:,.0f} %"


def _joins(workload: WorkloadAnalysis) -> list[DiskJoin]:
    finished = [trial for trial in workload.trials if trial.record.status is TrialStatus.FINISHED]
    return [trial.disk for trial in finished if trial.disk is not None]


def _largest(shares: dict[UseKind, float], *kinds: UseKind) -> float | None:
    return max((shares[kind] for kind in kinds if kind in shares), default=None)


def _show(value: float, use: DiskUse) -> str:
    return format_rate(value) if use.unit == "bytes/s" else f"{format_number(value)} {use.unit}".replace(" /s", "/s")
