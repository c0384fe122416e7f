"""Remember the analysis of each trial that ended, for a reader that comes back to a record that grows."""

from __future__ import annotations

from pgdyno.analyse.disk.demand import DiskLimits
from pgdyno.analyse.trial.analysis import analyse_trial
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import StudyRecord


class TrialMemory:
    """Analyses each trial once, until it is forgotten."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, PlannedWorkload], TrialAnalysis] = {}

    def analyse(
        self, record: StudyRecord, workload: PlannedWorkload, data: TrialData, *, limits: DiskLimits | None = None
    ) -> TrialAnalysis:
        """Analyse a trial as `analyse_trial` does, or return what that gave before."""
        key = (data.record.planned.number, workload)
        if key not in self._known:
            self._known[key] = analyse_trial(record, workload, data, limits=limits)
        return self._known[key]

    def forget(self, number: int) -> None:
        """Forget a trial, which is gone or was run again."""
        self._known = {key: known for key, known in self._known.items() if key[0] != number}
