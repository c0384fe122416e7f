"""What a study says of derived settings: against the server as it is, and of each layer against the set without it.

Verdicts are those of the comparison, turned so that they always speak of the set: what it gains over stock, what a layer
gains over its absence. A turned verdict is as sure as the one it came from: pairs are log ratios, and intervals and the
bounds of equivalence are symmetric in them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from statistics import median

import msgspec

from pgdyno.analyse.comparison.answers import Comparison
from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.analyse.disk.demand import WRITES_BYTES
from pgdyno.analyse.prediction.models import find_checkpoint_distance_bytes
from pgdyno.analyse.types import WHOLE_CYCLES, StudyAnalysis, TrialAnalysis
from pgdyno.record.tuned import DERIVED, STOCK
from pgdyno.record.types import StudyRecord
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import read_number

_TURNED = {
    VerdictKind.FASTER: VerdictKind.SLOWER,
    VerdictKind.SLOWER: VerdictKind.FASTER,
    VerdictKind.MORE: VerdictKind.LESS,
    VerdictKind.LESS: VerdictKind.MORE,
}


class Advice(enum.Enum):
    """What to do with a layer, as far as one workload tells."""

    KEEP = "keep"
    """It is proven to gain."""
    DROP = "drop"
    """It is proven to cost."""
    EQUIVALENT = "equivalent"
    """With and without it are proven to be close."""
    UNDECIDED = "undecided"
    """The time was too short to tell."""


_ADVICE = {
    VerdictKind.FASTER: Advice.KEEP,
    VerdictKind.SLOWER: Advice.DROP,
    VerdictKind.EQUIVALENT: Advice.EQUIVALENT,
}


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """What the set, or a layer of it, gains on one workload."""

    layer: str | None
    """None: the whole set against stock."""
    workload: str
    verdict: Verdict | None
    """Of the set over what lacks it; None where the variant dropped out or was not measured."""
    round_s: float | None
    """What a pair takes."""

    @property
    def advice(self) -> Advice:
        """What it comes to."""
        return Advice.UNDECIDED if self.verdict is None else _ADVICE.get(self.verdict.kind, Advice.UNDECIDED)


class CheckpointCycle(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the checkpoints' cycle trials of a variant on a workload held."""

    variant: str = msgspec.field(name="arm")
    workload: str
    duration_s: float
    """Of a trial."""
    counts: tuple[int, ...]
    """Checkpoints in each trial."""
    cycle_s: float
    """From one to the next, were the WAL to flow on as seen."""

    @property
    def wanted_s(self) -> float:
        """A trial's length that holds a few of them."""
        return WHOLE_CYCLES * self.cycle_s


def find_gains(record: StudyRecord, analysis: StudyAnalysis) -> tuple[Gain, ...]:
    """The whole set on each workload, then each layer that was taken out, on each workload; none without a derived set."""
    tuned, experiment = record.tuned, record.plan.experiment
    if tuned is None or experiment is None:
        return ()
    names = {STOCK, DERIVED} - {experiment.reference.name}
    wanted: list[tuple[str | None, str]] = [(None, name) for name in names]
    wanted += [(layer.name, layer.variant) for layer in tuned.layers if layer.variant is not None]
    return tuple(
        Gain(layer=layer, workload=one.workload, verdict=_find_verdict(one, variant), round_s=one.round_s)
        for layer, variant in wanted
        for one in analysis.comparisons
    )


def turn(verdict: Verdict) -> Verdict:
    """The verdict on the reference over the variant, of one on the variant over the reference."""
    low, high = _inverse(verdict.high_ratio), _inverse(verdict.low_ratio)
    return msgspec.structs.replace(
        verdict,
        variant=DERIVED,
        kind=_TURNED.get(verdict.kind, verdict.kind),
        effect_ratio=_inverse(verdict.effect_ratio),
        low_ratio=low,
        high_ratio=high,
    )


def find_cycles(record: StudyRecord, analysis: StudyAnalysis) -> tuple[CheckpointCycle, ...]:
    """How trials of stock and of the whole set stood to checkpoints; none for workloads that hardly write."""
    tuned, experiment = record.tuned, record.plan.experiment
    if tuned is None or experiment is None:
        return ()
    found = []
    for workload in analysis.workloads:
        trials = [trial for trial in workload.trials if trial.tps is not None]
        variant = next((trial.record.planned.variants[0] for trial in trials if trial.record.planned.variants), "")
        rates = [rate for trial in trials if (rate := _wal_rate(trial)) is not None]
        if variant not in {STOCK, DERIVED} or not rates:
            continue
        settings = experiment.find_variant(variant).server.settings
        found.append(
            CheckpointCycle(
                variant=variant,
                workload=workload.load.name,
                duration_s=trials[0].record.planned.duration_s,
                counts=tuple(trial.checkpoint_count for trial in trials),
                cycle_s=_find_cycle_s(settings, median(rates), major=record.server.major),
            )
        )
    return tuple(found)


def _find_cycle_s(settings: Mapping[str, SettingValue], rate: float, *, major: int) -> float:
    """From the beginning of one checkpoint to that of the next, by WAL or by the clock."""
    max_wal_mb, timeout_s, completion = (
        read_number(settings, name, major=major)
        for name in ("max_wal_size", "checkpoint_timeout", "checkpoint_completion_target")
    )
    distance = find_checkpoint_distance_bytes(
        max_wal_size_bytes=int(max_wal_mb * 1024**2), completion_target=completion
    )
    return min(timeout_s, distance / rate)


def _find_verdict(comparison: Comparison, variant: str) -> Verdict | None:
    question = comparison.find(variant, comparison.primary)
    if question is None or question.verdict.n == 0:
        return None
    return question.verdict if comparison.reference == STOCK else turn(question.verdict)


def _inverse(ratio: float | None) -> float | None:
    return None if ratio is None or ratio <= -1.0 else 1.0 / (1.0 + ratio) - 1.0


def _wal_rate(trial: TrialAnalysis) -> float | None:
    each, tps = trial.counts_per_transaction.get("wal_bytes"), trial.tps
    return each * tps if each is not None and tps is not None and each > WRITES_BYTES else None
