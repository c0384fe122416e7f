"""Define the analysis of a whole study: its loads, and what their comparison, sweep or search shows.

Results are recomputed from the record and never stored in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.analyse.capacity.types import Capacity
from pgdyno.analyse.comparison.answers import SPEED_METRICS, Comparison
from pgdyno.analyse.comparison.parts import PartComparison
from pgdyno.analyse.comparison.pilot import SliceChoice
from pgdyno.analyse.search.rate_search import RateSearch
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.record.types import StudyRecord


class StudyAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """The analysis of all workloads of a study, in its order; one entry per variant of a comparison or rate of a search."""

    workloads: tuple[WorkloadAnalysis, ...]
    comparisons: tuple[Comparison, ...] = ()
    """One comparison for each workload, in a study that compares variants."""
    part_comparisons: tuple[PartComparison, ...] = ()
    """One comparison for each part of each load that has parts."""
    sweeps: dict[str, ClientSweep] = {}
    """How TPS follows the number of clients, by workload, in a sweep over clients."""
    rounds_needed: dict[str, dict[int, int | None]] = {}
    """By workload, the further rounds that would decide each undecided number of clients; None where too many would."""
    crossed: dict[str, dict[str, ClientSweep]] = {}
    """The same for each level of the axis that was swept beside clients, by workload and level, such as `mode=prepared`."""
    pilots: dict[str, SliceChoice] = {}
    """Why the slices of a switchback are as long as they are, by workload."""
    searches: tuple[RateSearch, ...] = ()
    """One search per workload, in a search for the highest rate that keeps a latency limit."""
    capacities: tuple[Capacity, ...] = ()
    """How much of each load the machine can carry; one entry per workload in a sweep over clients."""
    scaling: ScalingStudy | None = None
    """The sweep over clients that followed the study; None without one."""

    @property
    def trials(self) -> tuple[TrialAnalysis, ...]:
        """The trials of all workloads."""
        return tuple(trial for workload in self.workloads for trial in workload.trials)

    def list_trials(self, workload: str) -> tuple[TrialAnalysis, ...]:
        """List the trials of a workload, under whichever variant or rate."""
        return tuple(trial for one in self.workloads if one.load.name == workload for trial in one.trials)

    def compared_parts(self, workload: str) -> tuple[Comparison, ...]:
        """Return the comparisons of the parts of a workload; none of a load without parts."""
        return tuple(one.comparison for one in self.part_comparisons if one.workload == workload)

    def list_judged(self) -> Iterator[Comparison]:
        """Yield the comparisons that verdicts are taken from: of a load in parts those of its parts, and its own without speeds."""
        for whole in self.comparisons:
            parts, own = self.compared_parts(whole.workload), self.find_own_questions(whole)
            yield from parts
            if own.questions or not parts:
                yield own

    def find_own_questions(self, comparison: Comparison) -> Comparison:
        """Return the comparison on a workload without the questions that its parts answer.

        The TPS of unlike transactions added up says nothing of either, and counts are known of all parts together only.
        """
        if not self.compared_parts(comparison.workload):
            return comparison
        questions, noise = (
            tuple(one for one in of if one.metric not in SPEED_METRICS)
            for of in (comparison.questions, comparison.noise)
        )
        return msgspec.structs.replace(comparison, questions=questions, noise=noise)

    def count_families(self) -> int:
        """Return the number of families of questions about speed, each with an error rate of its own: of whole loads, and of parts."""
        with_parts = {one.workload for one in self.part_comparisons}
        return max(1, bool(with_parts) + any(one.workload not in with_parts for one in self.comparisons))

    def list_undecided(self, comparison: Comparison) -> tuple[str, ...]:
        """List the variants that are undecided on a workload; of a load in parts, on any of its parts."""
        parts = self.compared_parts(comparison.workload)
        return tuple(dict.fromkeys(variant for one in parts or (comparison,) for variant in one.undecided))


class ScalingStudy(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep over clients that followed a comparison, run under the winning settings and kept as a study of its own."""

    record: StudyRecord
    analysis: StudyAnalysis
    variant: str | None
    """The variant of the comparison whose settings the sweep used; None if nothing was compared."""
