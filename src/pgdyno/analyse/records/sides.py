"""List the parts of a record that can be compared with another record: a load with trials of its own, under one variant.

Mixtures are left out: if variants alternated within a trial, its figures belong to none of them. Trials of a search at
one of many rates are left out, too; the search's closed loop and its answer are not. Of a load in parts each part is listed, and
not their sum, which rises where slow transactions give way to quick ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.plan.experiment import Variant
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.machine.host_facts import KERNELS_MEMORY_RATIO, HostFacts, match_known
from pgdyno.record.types import StudyRecord
from pgdyno.spec.initdb import InitdbChoices, combine_choices, show_choices
from pgdyno.spec.table import CacheState
from pgdyno.spec.variant import OF_PLACE


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """A load of a record under one variant, or one part of such a load, with its finished trials."""

    record: StudyRecord
    name: str
    """The name in the record's report."""
    part: str | None = None
    """The part that all figures are of; None for a whole load."""
    load: PlannedWorkload
    variant: Variant | None
    """None if the record compares no variants."""
    workload: WorkloadAnalysis
    scripts: tuple[tuple[str, int], ...]
    """The content of each script, with its weight."""
    doubts: tuple[str, ...] = ()
    """Disturbances of measurements on the machine, one sentence each, as in the record's own report."""
    limit: str | None = None
    """The limit that the search was for, such as `p99 < 20 ms`."""
    limit_tps: Estimate | None = None
    """The highest rate that keeps it; the interval is from the rate that certainly holds to the one that certainly fails."""

    @property
    def hosts(self) -> int:
        """How many load hosts the load came from; 0 if it came from the machine that pgdyno ran on."""
        return self.load.count_hosts(len(self.record.load_hosts))

    @property
    def load_name(self) -> str:
        """The name of its load, or of the part of it."""
        return self.load.name if self.part is None else f"part {self.part} of {self.load.name}"

    @property
    def trials(self) -> tuple[TrialAnalysis, ...]:
        """The trials that have a result."""
        return _list_results(self.workload)

    @property
    def settings(self) -> dict[str, str]:
        """The server's settings that differ from built-in values, by name."""
        return self.trials[0].record.values if self.trials else {}

    @property
    def version_major(self) -> int:
        """The server's major version."""
        named = None if self.variant is None else self.variant.server.version
        return named or self.record.server.major

    @property
    def version(self) -> str:
        """The server's version, as the server reports it if that was recorded."""
        if self.version_major != self.record.server.major:
            return str(self.version_major)
        if self.variant is not None and self.variant.server.bindir is not None:
            return self.variant.server.bindir
        return self.record.server.version.partition(" ")[0]

    @property
    def initdb(self) -> InitdbChoices:
        """What initdb was told of the cluster; what it was not told is as ever."""
        return combine_choices(self.record.study.data) if self.variant is None else self.variant.initdb

    @property
    def cache(self) -> CacheState:
        """The state of the caches when its trials began."""
        return (None if self.variant is None else self.variant.cache) or self.record.study.trials.cache

    @property
    def scale(self) -> int:
        """The scale of the data."""
        named = None if self.variant is None else self.variant.scale
        return named or self.record.plan.scale

    @property
    def data_name(self) -> str:
        """The name of the data: of a database or an SQL file of the user's, or their scale."""
        return self.record.plan.data_name or f"scale {self.scale:,}"

    @property
    def data_bytes(self) -> float:
        """The size of the data when they were loaded; computed from the scale if another scale was recorded."""
        loaded = self.record.dataset
        if loaded is None:
            return (self.record.plan.dataset_bytes or 0) * self.scale / self.record.plan.scale
        return loaded.total_bytes * self.scale / loaded.scale


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """The pairs of sides of two records, and the sides without a counterpart."""

    pairs: tuple[tuple[Side, Side], ...]
    only_first: tuple[str, ...]
    only_other: tuple[str, ...]


def _list_results(workload: WorkloadAnalysis) -> tuple[TrialAnalysis, ...]:
    return tuple(trial for trial in workload.trials if trial.tps is not None and not trial.record.planned.is_observed)


def list_sides(
    record: StudyRecord, analysis: StudyAnalysis, *, script_hashes: Mapping[str, str], doubts: Sequence[str] = ()
) -> tuple[Side, ...]:
    """List all loads of a record that have a result of their own.

    Args:
        record: The study's record.
        analysis: The analysis of the study.
        script_hashes: Hash of each script file's content, by its name in the plan.
        doubts: Disturbances of measurements on the machine, one sentence each.
    """
    sides: list[Side] = []
    for workload in analysis.workloads:
        tried = {(trial.record.planned.variants, trial.record.planned.rate_tps) for trial in workload.trials}
        if not _list_results(workload) or len(tried) != 1:
            continue
        variants, rate_tps = tried.pop()
        if len(variants) > 1 or rate_tps is not None:
            continue
        experiment = record.plan.experiment
        variant = None if experiment is None or not variants else experiment.find_variant(variants[0])
        scripts = workload.load.scripts if variant is None or not variant.scripts else variant.scripts
        side = Side(
            record=record.at(variants),
            name=workload.name,
            load=msgspec.structs.replace(workload.load, scripts=scripts),
            variant=variant,
            workload=workload,
            scripts=tuple((script_hashes.get(name, name), weight) for name, weight in scripts),
            doubts=tuple(doubts),
        )
        sides += _list_parts(side) if side.load.parts else [_with_limit(side, analysis)]
    return tuple(sides)


def _list_parts(side: Side) -> Iterator[Side]:
    """Yield each part of a load: it ran beside the others, so that rules still look at the whole load."""
    for part in side.workload.parts:
        trials = tuple(_narrow(trial, part.name) for trial in side.workload.trials)
        of_part = msgspec.structs.replace(side.workload, tps=part.tps, latency_ms=part.latency_ms, trials=trials)
        yield msgspec.structs.replace(side, name=f"part {part.name} of {side.name}", part=part.name, workload=of_part)


def _narrow(trial: TrialAnalysis, name: str) -> TrialAnalysis:
    """Return a trial with the TPS and latencies of one part in place of the whole load's."""
    part = next((one for one in trial.parts if one.name == name), None)
    return msgspec.structs.replace(
        trial,
        tps=None if part is None else part.tps,
        pgbench_tps=None,
        latency_mean_ms=None if part is None else part.latency_mean_ms,
        percentiles=() if part is None else part.percentiles,
    )


def pair_sides(first: Sequence[Side], other: Sequence[Side]) -> Pairing:
    """Pair the sides of two records by the names of workload and variant.

    A record without variants is paired with the variant that has its load and changes no setting, or else with the
    reference.
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


def look_alike(one: HostFacts | None, other: HostFacts | None) -> bool:
    """Return whether two records may come from one machine; machines of one model differ only in their names, which may change.

    Containers that may use unlike shares of one machine are two. A machine that nobody saw is like no other.
    """
    if one is None or other is None or not match_known(_outline(one), _outline(other)):
        return False
    sizes = zip(_list_memory_bytes(one), _list_memory_bytes(other), strict=True)
    return all(math.isclose(*size, rel_tol=KERNELS_MEMORY_RATIO) for size in sizes)


def hours_apart(first: Side, other: Side) -> float | None:
    """Compute the hours between the beginnings of two records; None if one does not say when it began."""
    try:
        begun = [datetime.fromisoformat(side.record.started_at) for side in (first, other)]
        return abs((begun[1] - begun[0]).total_seconds()) / 3600.0
    except (ValueError, TypeError):
        return None


def _outline(host: HostFacts) -> tuple[object, ...]:
    disk = host.data_disk
    of_disk = disk.lasting_size_bytes, disk.block_device, disk.filesystem
    return *host.cpu_identity, host.usable_cpu_count, *of_disk


def _list_memory_bytes(host: HostFacts) -> tuple[int, int]:
    return host.memory_bytes, host.usable_memory_bytes


def _rank(one: Side, other: Side) -> int | None:
    """Rank how well two sides match, 0 best; None if they do not."""
    if one.load_name != other.load_name:
        return None
    if one.variant is not None and other.variant is not None:
        return 0 if one.variant.name == other.variant.name else None
    named = one if one.variant is not None else other
    if named.variant is None or (_loads_alike(one, other) and not _sets_anything(named.variant)):
        return 0
    return 1 if _is_reference(named) else None


def _loads_alike(one: Side, other: Side) -> bool:
    loads = [(side.load.clients, side.load.mode, side.version_major, side.hosts) for side in (one, other)]
    return loads[0] == loads[1]


def _sets_anything(variant: Variant) -> bool:
    places = [getattr(variant, key) for key in OF_PLACE]
    return bool(variant.changed or variant.sysctl or variant.cache or show_choices(variant.initdb)) or any(places)


def _is_reference(side: Side) -> bool:
    experiment = side.record.plan.experiment
    return experiment is not None and side.variant is not None and side.variant.name == experiment.reference.name


def _with_limit(side: Side, analysis: StudyAnalysis) -> Side:
    """Add the answer of the record's search to a side."""
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
