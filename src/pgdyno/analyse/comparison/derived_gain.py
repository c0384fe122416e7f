"""Find what a derived set of settings gains over the server as it is, and what each layer gains over the set without it.

Verdicts are those of the comparison, inverted where needed so that they always describe the set: its gain over stock,
and the gain of a layer over its absence. Inverting loses no certainty: pairs are log ratios, and their intervals and
equivalence bounds are symmetric.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from pgdyno.analyse.comparison.answers import Comparison
from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.analyse.disk.demand import MIN_WRITING_WAL_BYTES
from pgdyno.analyse.models.checkpoints import find_checkpoint_distance_bytes
from pgdyno.analyse.types import WHOLE_CYCLES, TrialAnalysis, WorkloadAnalysis
from pgdyno.record.tuned import DERIVED, STOCK, Tuned
from pgdyno.record.types import StudyRecord
from pgdyno.spec.initdb import SEGMENTS_OF_MAX_WAL
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import read_number

_OF_CHECKPOINTS = frozenset({"max_wal_size", "checkpoint_timeout"})
_INVERTED_KINDS = {
    VerdictKind.FASTER: VerdictKind.SLOWER,
    VerdictKind.SLOWER: VerdictKind.FASTER,
    VerdictKind.MORE: VerdictKind.LESS,
    VerdictKind.LESS: VerdictKind.MORE,
}


class Advice(enum.Enum):
    """The advice on a layer, as far as one workload supports it."""

    KEEP = "keep"
    """The layer is proven to gain."""
    DROP = "drop"
    """The layer is proven to cost."""
    EQUIVALENT = "equivalent"
    """The set with the layer and the set without it are proven to be equivalent."""
    UNDECIDED = "undecided"
    """The measurement was too short for a decision."""


_ADVICE = {
    VerdictKind.FASTER: Advice.KEEP,
    VerdictKind.SLOWER: Advice.DROP,
    VerdictKind.EQUIVALENT: Advice.EQUIVALENT,
}


class CheckpointCycle(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint cycle of a variant on a workload, and how much of it the trials held."""

    variant: str = msgspec.field(name="arm")
    workload: str
    duration_s: float
    """Duration of a trial."""
    counts: tuple[int, ...]
    """Number of checkpoints in each trial."""
    cycle_s: float
    """Time from one checkpoint to the next at the observed WAL rate."""

    @property
    def wanted_s(self) -> float:
        """The length of a trial that holds a few checkpoint cycles."""
        return WHOLE_CYCLES * self.cycle_s


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """The gain of the derived set, or of one layer of it, on one workload."""

    layer: str | None
    """Name of the layer; None for the whole set against stock."""
    workload: str
    verdict: Verdict | None
    """Verdict on the set over the variant that lacks it; None if that variant dropped out or was not measured."""
    round_s: float | None
    """Duration of a round, which is one pair."""
    short: CheckpointCycle | None = None
    """The checkpoint cycle that the trials were too short for; None if they were not, or it does not matter."""

    @property
    def is_slower(self) -> bool:
        """Whether it was slower in these trials, however long they were."""
        return self.verdict is not None and self.verdict.kind is VerdictKind.SLOWER

    @property
    def advice(self) -> Advice:
        """The advice that follows from the verdict; undecided where the trials were too short to judge rarer checkpoints."""
        if self.verdict is None or (self.is_slower and self.short is not None):
            return Advice.UNDECIDED
        return _ADVICE.get(self.verdict.kind, Advice.UNDECIDED)


def find_gains(
    record: StudyRecord, comparisons: Sequence[Comparison], workloads: Sequence[WorkloadAnalysis]
) -> tuple[Gain, ...]:
    """Find the gain of the whole set on each workload, then of each layer that was left out; empty without a derived set."""
    tuned, experiment = record.tuned, record.plan.experiment
    if tuned is None or experiment is None:
        return ()
    names = {STOCK, DERIVED} - {experiment.reference.name}
    wanted: list[tuple[str | None, str]] = [(None, name) for name in names]
    wanted += [(layer.name, layer.variant) for layer in tuned.layers if layer.variant is not None]
    cycles = _find_short_cycles(record, workloads)
    return tuple(
        Gain(
            layer=layer,
            workload=one.workload,
            verdict=_find_verdict(one, variant),
            round_s=one.round_s,
            short=cycles.get(one.workload) if _acts_on_checkpoints(tuned, layer) else None,
        )
        for layer, variant in wanted
        for one in comparisons
    )


def _find_short_cycles(record: StudyRecord, workloads: Sequence[WorkloadAnalysis]) -> dict[str, CheckpointCycle]:
    """Find stock's checkpoint cycle on each workload whose trials were too short to show what rarer checkpoints gain."""
    return {
        cycle.workload: cycle
        for cycle in find_checkpoint_cycles(record, workloads)
        if cycle.variant == STOCK and cycle.duration_s < cycle.wanted_s
    }


def _acts_on_checkpoints(tuned: Tuned, layer: str | None) -> bool:
    """Return whether a layer makes checkpoints rarer or more frequent; None: the whole derived set."""
    return any(_OF_CHECKPOINTS & set(one.settings) for one in tuned.layers if layer in {None, one.name})


def invert_verdict(verdict: Verdict) -> Verdict:
    """Invert a verdict on the variant over the reference into one on the reference over the variant."""
    low, high = _inverse(verdict.high_ratio), _inverse(verdict.low_ratio)
    return msgspec.structs.replace(
        verdict,
        variant=DERIVED,
        kind=_INVERTED_KINDS.get(verdict.kind, verdict.kind),
        effect_ratio=_inverse(verdict.effect_ratio),
        low_ratio=low,
        high_ratio=high,
    )


def find_checkpoint_cycles(record: StudyRecord, workloads: Sequence[WorkloadAnalysis]) -> tuple[CheckpointCycle, ...]:
    """Find the checkpoint cycles of stock and of the whole set; workloads that hardly write are left out."""
    tuned, experiment = record.tuned, record.plan.experiment
    if tuned is None or experiment is None:
        return ()
    found = []
    for workload in workloads:
        trials = [t for t in workload.trials if t.tps is not None and not t.record.planned.is_observed]
        variant = next((trial.record.planned.variants[0] for trial in trials if trial.record.planned.variants), "")
        rates = [rate for trial in trials if (rate := _wal_rate(trial)) is not None]
        if variant not in {STOCK, DERIVED} or not rates:
            continue
        settings = experiment.find_variant(variant).server.settings
        counts = tuple(count for trial in trials if (count := trial.checkpoint_count) is not None)
        if not counts:
            continue
        found.append(
            CheckpointCycle(
                variant=variant,
                workload=workload.load.name,
                duration_s=trials[0].record.planned.duration_s,
                counts=counts,
                cycle_s=_find_cycle_s(
                    settings,
                    median(rates),
                    segment_bytes=trials[0].record.wal_segment_bytes,
                    major=record.server.major,
                ),
            )
        )
    return tuple(found)


def _find_cycle_s(settings: Mapping[str, SettingValue], rate: float, *, segment_bytes: int, major: int) -> float:
    """Compute the time from the beginning of one checkpoint to the next, whether WAL or the timeout triggers it."""
    made_by_initdb = {"max_wal_size": f"{SEGMENTS_OF_MAX_WAL * segment_bytes // 1024**2}MB"}
    max_wal_mb, timeout_s, completion = (
        read_number({**made_by_initdb, **settings}, name, major=major)
        for name in ("max_wal_size", "checkpoint_timeout", "checkpoint_completion_target")
    )
    distance = find_checkpoint_distance_bytes(
        max_wal_size_bytes=int(max_wal_mb * 1024**2), completion_target=completion, segment_bytes=segment_bytes
    )
    return min(timeout_s, distance / rate)


def _find_verdict(comparison: Comparison, variant: str) -> Verdict | None:
    question = comparison.find(variant, comparison.primary)
    if question is None or question.verdict.n == 0:
        return None
    return question.verdict if comparison.reference == STOCK else invert_verdict(question.verdict)


def _inverse(ratio: float | None) -> float | None:
    return None if ratio is None or ratio <= -1.0 else 1.0 / (1.0 + ratio) - 1.0


def _wal_rate(trial: TrialAnalysis) -> float | None:
    each, tps = trial.counts_per_transaction.get("wal_bytes"), trial.tps
    return each * tps if each is not None and tps is not None and each > MIN_WRITING_WAL_BYTES else None
