"""Make the part of report.json on the disk: a short card, and how much of the disk a load used."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pgdyno.analyse.disk.ceiling import StorageCeilings
from pgdyno.analyse.disk.demand import DiskDemand, UseKind
from pgdyno.analyse.disk.efficiency import Efficiency
from pgdyno.analyse.disk.entries import DiskFigure
from pgdyno.record.machine.preflight import Unseen
from pgdyno.report.documents.described import says
from pgdyno.report.input import CardView
from pgdyno.spec.host import DiskSpec


class DiskUseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one limit of the disk a trial used."""

    kind: UseKind
    used: float
    limit: float
    unit: str
    ratio: Annotated[float, says("Of used to limit.")]
    how: str
    lasts: Annotated[
        float | None,
        says("Of the limit, as declared; null where all of it lasts or none is declared."),
    ]
    lasting_ratio: Annotated[float | None, says("Of used to what lasts.")]


class DiskJoinDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's load on the data's device, against the device's card."""

    device: str | None
    wal_device: Annotated[str | None, says("Of pg_wal, with its flushes and WAL; null where that is the data's.")] = (
        None
    )
    busy_ratio: float | None
    read_await_ms: float | None
    write_await_ms: float | None
    flush_await_ms: float | None
    missed_blocks_per_s: Annotated[
        float | None, says("That shared_buffers missed; the kernel's cache may have had them.")
    ]
    uses: tuple[DiskUseDocument, ...]


class OwnDiskDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The card of the data's disk."""

    path: str | None
    made_at: Annotated[str, says("ISO 8601 with offset; it may have been made for an earlier study.")]
    entries: tuple[DiskFigure, ...]
    unseen: Annotated[tuple[Unseen, ...], says("What could not be measured, with the reason.")]
    instance: Annotated[str | None, says("Of a cloud, as declared.")]
    declared: Annotated[DiskSpec | None, says("Its layout, as declared.")]
    ceilings: Annotated[StorageCeilings | None, says("What is declared allows at most; null without a declaration.")]
    efficiencies: Annotated[tuple[Efficiency, ...], says("What was measured beside what is declared to last.")]


def make_own_disk(view: CardView | None) -> OwnDiskDocument | None:
    """Return the card of the data's disk as a document; None where the disk was not measured."""
    if view is None:
        return None
    card = view.card
    return OwnDiskDocument(
        path=card.path,
        made_at=card.made_at.isoformat(),
        entries=view.entries,
        unseen=card.unseen,
        instance=card.instance,
        declared=card.declared,
        ceilings=view.ceilings,
        efficiencies=view.efficiencies,
    )


def make_join(join: DiskDemand | None) -> DiskJoinDocument | None:
    """Return a trial's use of the disk as a document; None for a trial without a card."""
    if join is None:
        return None
    uses = tuple(
        DiskUseDocument(**msgspec.structs.asdict(use), ratio=use.ratio, lasting_ratio=use.lasting_ratio)
        for use in join.uses
    )
    facts = {name: getattr(join, name) for name in DiskJoinDocument.__struct_fields__}
    return DiskJoinDocument(**{**facts, "uses": uses})
