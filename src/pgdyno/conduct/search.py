"""Search for the largest rate that holds a latency limit: closed-loop trials, then trials at rates chosen one by one.

It keeps nothing that the record does not hold: a resumed search reads the finished trials, finds the same rate again and
goes on. No trial begins once the announced time is over.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.search.rate_search import NextTrial, RateSearch, WorkloadSearch
from pgdyno.analyse.trial.analysis import measure_trial
from pgdyno.conduct.steps import describe_outcome, find_overrun_s, list_open_trials, try_trial
from pgdyno.conduct.ui import Ui
from pgdyno.plan.plan import PlannedTrial, Step
from pgdyno.plan.search import Search
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import StudyRecord, TrialRecord, TrialStatus
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.log import LOG
from pgdyno.run.trial import TrialOutcome
from pgdyno.run.trial_stage import TrialStage


def run_search(store: RecordStore, record: StudyRecord, search: Search, stage: TrialStage, *, ui: Ui) -> None:
    """Run trials until every workload's limit is found, the plan has no more, or the time is over."""
    searcher = Searcher(record, search)
    searcher.take_finished(store)
    steps = list_open_trials(store, record)
    planned_s = sum(step.predicted_s for step, _ in steps)
    began_s, turns = monotonic_s(), 0
    ui.limit(predicted_s=planned_s, within_s=planned_s)
    is_longer_told = False
    for step, trial in steps:
        wanted = searcher.next_trial(trial.workload)
        if wanted is None:
            continue
        if turns:
            now_s = monotonic_s()
            # Trials may become longer than planned, for the percentile's sake.
            next_s = max((now_s - began_s) / turns, step.predicted_s + wanted.duration_s - trial.duration_s)
            if find_overrun_s(now_s, began_s=began_s, allowed_s=planned_s, next_s=next_s) > 0:
                ui.say("the time is over before all is settled: `pgdyno resume` runs what is left of the plan")
                return
        if wanted.duration_s > trial.duration_s and not is_longer_told:
            ui.say(
                f"trials at scheduled rates take {wanted.duration_s:.0f} s each: the percentile needs so many transactions"
            )
            is_longer_told = True
        aim = "closed loop" if wanted.rate_tps is None else f"at {wanted.rate_tps:g} tps"
        stand = describe_search(searcher.stand(trial.workload), left=searcher.count_left(trial))
        LOG.info("next is trial %d: %s, %s: %s", trial.number, trial.workload, aim, stand)
        aimed_step, aimed = _aim(step, trial, wanted)
        outcome = try_trial(aimed_step, aimed, store=store, stage=stage, ui=ui)
        searcher.take(store, outcome.record)
        ui.end_step(_describe(aimed, outcome, searcher))
        turns += 1


class Searcher:
    """Everything that was observed in a search so far, and what is tried next.

    Args:
        record: Of a study that searches.
        search: What for.
    """

    def __init__(self, record: StudyRecord, search: Search) -> None:
        self._record = record
        planned_s = record.plan.trials[0].duration_s
        self._searches = {
            workload.name: WorkloadSearch(workload.name, search, planned_s=planned_s)
            for workload in record.plan.workloads
        }

    def take_finished(self, store: RecordStore) -> None:
        """Take every trial of a record that is finished."""
        for trial in store.read_trials():
            if trial.status is TrialStatus.FINISHED:
                self.take(store, trial)

    def take(self, store: RecordStore, trial: TrialRecord) -> None:
        """Take a finished trial."""
        data = read_trial_data(store.trial_dir(trial.planned.number), trial)
        load = self._record.plan.find_load(trial.planned)
        figures = measure_trial(self._record, load, data) if trial.planned.rate_tps is None else None
        tps = None if figures is None else figures.tps or figures.pgbench_tps
        self._searches[trial.planned.workload].add(data, tps=tps)

    def next_trial(self, workload: str) -> NextTrial | None:
        """Return what to try next on a workload; None when it is settled."""
        return self._searches[workload].next_trial()

    def stand(self, workload: str) -> RateSearch:
        """Return the state of a workload's search."""
        return self._searches[workload].state()

    def count_left(self, trial: PlannedTrial) -> int:
        """Count the trials of a workload that the plan has after this one."""
        planned = self._record.plan.trials
        return sum(other.workload == trial.workload and other.number > trial.number for other in planned)

    @property
    def is_settled(self) -> bool:
        """True if nothing is left to try."""
        return all(search.next_trial() is None for search in self._searches.values())


def describe_search(search: RateSearch, *, left: int) -> str:
    """Describe the state of a search, in a line that a person reads while it runs.

    Args:
        search: Of a workload.
        left: Trials of the plan that are left. Where more are needed, their number is not told: the estimate jumps by
            hundreds from trial to trial.
    """
    answer = search.answer
    if answer is None or not search.levels:
        return f"capacity {search.capacity.value:,.0f} tps" if search.capacity.value else "no capacity yet"
    known = {"holds": answer.holds_tps, "fails": answer.fails_tps}
    settled = [f"{tps:,g} tps {word}" for word, tps in known.items() if tps is not None] or ["no rate settled yet"]
    about = "" if answer.estimate_tps is None else f"limit about {float(f'{answer.estimate_tps:.3g}'):,.0f} tps, "
    needed = answer.trials_needed
    is_enough = needed is not None and needed <= left
    more = f"about {needed} more trials" if is_enough else f"more than the {left} trial{'s' * (left != 1)} left"
    return f"{about}{', '.join(settled)}" + ("" if answer.is_settled or not left else f", needs {more}")


def _aim(step: Step, trial: PlannedTrial, wanted: NextTrial) -> tuple[Step, PlannedTrial]:
    aimed = msgspec.structs.replace(trial, rate_tps=wanted.rate_tps, duration_s=wanted.duration_s)
    longer_s = wanted.duration_s - trial.duration_s
    return msgspec.structs.replace(step, trial=aimed, predicted_s=step.predicted_s + longer_s), aimed


def _describe(trial: PlannedTrial, outcome: TrialOutcome, searcher: Searcher) -> str:
    search = searcher.stand(trial.workload)
    if trial.rate_tps is None:
        return f"{describe_outcome(outcome)}; closed loop"
    seen = next((one for level in search.levels for one in level.trials if one.number == trial.number), None)
    missed = "misses not known" if seen is None else f"{seen.misses.share_ratio * 100:.3g} % missed"
    word = "" if seen is None else f", {'held' if seen.is_held else 'not held'}"
    return f"{missed}{word}; {describe_search(search, left=searcher.count_left(trial))}"
