"""Make the part of report.json on derived settings: the set with its reasons, and every gain at full precision."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pgdyno.analyse.comparison.derived_gain import Advice, CheckpointCycle, Gain, find_checkpoint_cycles, find_gains
from pgdyno.analyse.comparison.verdict import Verdict
from pgdyno.record.tuned import TunedSetting
from pgdyno.report.documents.described import says
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.layers import describe_proofs, describe_trades


class GainDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The gain of the set, or of one layer of it, on a workload."""

    workload: str
    advice: Annotated[Advice, says("What it comes to, for this workload.")]
    verdict: Annotated[
        Verdict | None,
        says("Of the whole set over stock, or over the set without the layer; null where not measured."),
    ]


class LayerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that are kept or dropped together."""

    name: str
    settings: Annotated[tuple[str, ...], says("Those that were tried, by name.")]
    variant: Annotated[str | None, says("The variant without it; null where layers were not taken apart.")] = (
        msgspec.field(name="arm")
    )
    trades: Annotated[str, says("What it costs beside speed.")]
    gains: tuple[GainDocument, ...]


class TunedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Derived settings and their measured gains."""

    derived_for: str
    sentences: Annotated[tuple[str, ...], says("Whether they are faster than stock, in words.")]
    gains: Annotated[tuple[GainDocument, ...], says("Of the whole set over stock.")]
    layers: tuple[LayerDocument, ...]
    settings: tuple[TunedSetting, ...]
    checkpoints: Annotated[tuple[CheckpointCycle, ...], says("How much of the checkpoints' cycle trials held.")]
    notes: tuple[str, ...]


def make_tuned(report: ReportInput) -> TunedDocument | None:
    """Return the derived set as a document; None for a study without one."""
    tuned = report.record.tuned
    if tuned is None:
        return None
    gains = find_gains(report.record, report.analysis.comparisons, report.analysis.workloads)
    return TunedDocument(
        derived_for=tuned.derived_for,
        sentences=tuple(f"{claim}: {figures}." for claim, figures in describe_proofs(report)),
        gains=_make_gains(gains, None),
        layers=tuple(
            LayerDocument(
                name=layer.name,
                settings=layer.settings,
                variant=layer.variant,
                trades=describe_trades(tuned, layer),
                gains=_make_gains(gains, layer.name),
            )
            for layer in tuned.layers
        ),
        settings=tuned.settings,
        checkpoints=find_checkpoint_cycles(report.record, report.analysis.workloads),
        notes=tuned.notes,
    )


def _make_gains(gains: tuple[Gain, ...], layer: str | None) -> tuple[GainDocument, ...]:
    return tuple(
        GainDocument(workload=gain.workload, advice=gain.advice, verdict=gain.verdict)
        for gain in gains
        if gain.layer == layer
    )
