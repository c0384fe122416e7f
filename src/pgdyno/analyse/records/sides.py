"""What of a record can be set beside another one: a load with trials of its own, under one variant.

It refuses mixtures: where variants alternated within a trial, a trial's figures are nobody's. Trials of a search at one
rate of many are no result either; its closed loop and its answer are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.types import StudyAnalysis, TrialAnalysis, WorkloadAnalysis
from pgdyno.plan.experiment import Variant
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.types import StudyRecord


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """A load of a record under one variant, with its finished trials."""

    record: StudyRecord
    name: str
    """As the record's report has it."""
    load: PlannedWorkload
    variant: Variant | None
    """None where the record compares nothing."""
    workload: WorkloadAnalysis
    scripts: tuple[tuple[str, int], ...]
    """What was run, by its content, with its weight."""
    doubts: tuple[str, ...] = ()
    """What spoils a measurement on its machine, as its own report has it, a sentence each."""
    limit: str | None = None
    """What its search was for, such as `p99 < 20 ms`."""
    limit_tps: Estimate | None = None
    """The largest rate that holds it; the interval is from the rate that surely holds to the one that surely does not."""

    @property
    def trials(self) -> tuple[TrialAnalysis, ...]:
        """Those that have a result."""
        return tuple(trial for trial in self.workload.trials if trial.tps is not None)

    @property
    def settings(self) -> dict[str, str]:
        """The server's settings that were not built in, by name."""
        return self.trials[0].record.values if self.trials else {}

    @property
    def version_major(self) -> int:
        """Of its server."""
        named = None if self.variant is None else self.variant.server.version
        return named or self.record.server.major

    @property
    def version(self) -> str:
        """Of its server, as it calls itself where that is recorded."""
        if self.version_major != self.record.server.major:
            return str(self.version_major)
        if self.variant is not None and self.variant.server.bindir is not None:
            return self.variant.server.bindir
        return self.record.server.version.partition(" ")[0]

    @property
    def scale(self) -> int:
        """Of its data."""
        named = None if self.variant is None else self.variant.scale
        return named or self.record.plan.scale

    @property
    def data_bytes(self) -> float:
        """Of its data when they were loaded; reckoned by scale where another one was recorded."""
        loaded = self.record.dataset
        if loaded is None:
            return self.record.plan.dataset_bytes * self.scale / self.record.plan.scale
        return loaded.total_bytes * self.scale / loaded.scale


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """Which sides of two records belong together, and which have nothing to stand beside."""

    pairs: tuple[tuple[Side, Side], ...]
    only_first: tuple[str, ...]
    only_other: tuple[str, ...]


def list_sides(
    record: StudyRecord, analysis: StudyAnalysis, *, script_hashes: Mapping[str, str], doubts: Sequence[str] = ()
) -> tuple[Side, ...]:
    """All loads of a record that have a result of their own.

    Args:
        record: The study's.
        analysis: Of it.
        script_hashes: Of each script file's content, by its name in the plan.
        doubts: What spoils a measurement on its machine, a sentence each.
    """
    sides = []
    for workload in analysis.workloads:
        tried = {(trial.record.planned.variants, trial.record.planned.rate_tps) for trial in workload.trials}
        finished = any(trial.tps is not None for trial in workload.trials)
        if not finished or len(tried) != 1:
            continue
        variants, rate_tps = tried.pop()
        if len(variants) > 1 or rate_tps is not None:
            continue
        side = Side(
            record=record,
            name=workload.name,
            load=workload.load,
            variant=None
            if record.plan.experiment is None or not variants
            else record.plan.experiment.find_variant(variants[0]),
            workload=workload,
            scripts=tuple((script_hashes.get(name, name), weight) for name, weight in workload.load.scripts),
            doubts=tuple(doubts),
        )
        sides.append(_with_limit(side, analysis))
    return tuple(sides)


def pair_sides(first: Sequence[Side], other: Sequence[Side]) -> Pairing:
    """Each side of the first record with that of the other: of the same workload and variant, by name.

    A record that compares nothing stands beside the variant that only loads as it does, or else beside the reference.
    """
    ranked = sorted(
        (rank, here, there)
        for here, side in enumerate(first)
        for there, one in enumerate(other)
        if (rank := _rank(side, one)) is not None
    )
    taken: dict[int, int] = {}
    for _, here, there in ranked:
        if here not in taken and there not in taken.values():
            taken[here] = there
    return Pairing(
        pairs=tuple((first[here], other[taken[here]]) for here in sorted(taken)),
        only_first=tuple(side.name for here, side in enumerate(first) if here not in taken),
        only_other=tuple(one.name for there, one in enumerate(other) if there not in taken.values()),
    )


def look_alike(one: HostFacts, other: HostFacts) -> bool:
    """Whether two records may be of one machine: nothing but a name, which may change, tells those of one make apart."""
    return _outline(one) == _outline(other)


def hours_apart(first: Side, other: Side) -> float | None:
    """Hours from the beginning of one record to that of the other; None where one does not say when it was."""
    try:
        begun = [datetime.fromisoformat(side.record.started_at) for side in (first, other)]
        return abs((begun[1] - begun[0]).total_seconds()) / 3600.0
    except (ValueError, TypeError):
        return None


def _outline(host: HostFacts) -> tuple[object, ...]:
    disk = host.data_disk
    return host.cpu_model, host.cpu_count, host.memory_bytes, disk.size_bytes, disk.block_device, disk.filesystem


def _rank(one: Side, other: Side) -> int | None:
    """How well two sides belong together, 0 best; None where they do not."""
    if one.load.name != other.load.name:
        return None
    if one.variant is not None and other.variant is not None:
        return 0 if one.variant.name == other.variant.name else None
    named = one if one.variant is not None else other
    if named.variant is None or (_loads_alike(one, other) and not named.variant.changed and not named.variant.sysctl):
        return 0
    return 1 if _is_reference(named) else None


def _loads_alike(one: Side, other: Side) -> bool:
    loads = [(side.load.clients, side.load.mode, side.version_major) for side in (one, other)]
    return loads[0] == loads[1]


def _is_reference(side: Side) -> bool:
    experiment = side.record.plan.experiment
    return experiment is not None and side.variant is not None and side.variant.name == experiment.reference.name


def _with_limit(side: Side, analysis: StudyAnalysis) -> Side:
    """The side with the answer of its record's search."""
    asked = side.record.plan.search
    found = next((one for one in analysis.searches if one.workload == side.load.name), None)
    if asked is None or found is None or found.answer is None:
        return side
    answer = found.answer
    rates = [rate for rate in (answer.holds_tps, answer.fails_tps) if rate is not None]
    estimate = Estimate(
        value=answer.estimate_tps or (rates[0] if rates else None),
        low=answer.holds_tps,
        high=answer.fails_tps,
        n=answer.n,
        unit="tps",
        confidence=1 - answer.alpha,
        reason=None if len(rates) == 2 else "the search is not settled",
    )
    return msgspec.structs.replace(side, limit=asked.limit, limit_tps=estimate)
