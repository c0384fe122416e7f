"""Everything that was observed in a comparison so far, and which trials are still wanted: its stopping rule.

It keeps nothing that the record does not hold: a resumed study rebuilds it from the finished trials and goes on as if it
had never stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pgdyno.analyse.comparison.answers import Comparison, Round, compare, primary_metric
from pgdyno.analyse.comparison.parts import (
    PartComparison,
    compare_parts,
    find_primary_metrics,
    rounds_of_block_part,
    rounds_of_parts,
)
from pgdyno.analyse.comparison.rounds import rounds_of_block, rounds_of_trials
from pgdyno.analyse.sweep.scaling import list_open_clients
from pgdyno.analyse.sweep.workload import analyse_workload_sweep
from pgdyno.analyse.trial.analysis import measure_trial
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.conduct.comparison_line import describe_progress
from pgdyno.conduct.earlier_run import EarlierRun, find_given_up, find_once_given_up
from pgdyno.plan.experiment import LEAST_TESTED_PAIRS, Experiment, is_client_sweep
from pgdyno.plan.parts import find_least_rounds
from pgdyno.plan.plan import PlannedTrial, count_planned_rounds
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import StudyRecord, TrialStatus
from pgdyno.spec.variant import DesignKind

_NOTHING: Mapping[tuple[str, str], Sequence[Round]] = {}


class SequentialComparison:
    """Takes finished trials and tells which others are wanted.

    Args:
        record: Of a study that compares.
        experiment: Its experiment.
    """

    def __init__(self, record: StudyRecord, experiment: Experiment) -> None:
        self._record = record
        self._experiment = experiment
        self._cpu_count = record.usable_cpu_count
        names = [workload.name for workload in record.plan.workloads]
        self._blocks: dict[str, list[Round]] = {name: [] for name in names}
        self._part_blocks: dict[tuple[str, str], list[Round]] = {
            (workload.name, part.name): [] for workload in record.plan.workloads for part in workload.parts
        }
        self._trials: dict[str, list[TrialAnalysis]] = {name: [] for name in names}
        self._slice_s: dict[str, float] = {}
        self._given_up: set[str] = set(record.refused_variants)
        self._final_looks = dict(record.final_looks or {})
        self._ran: dict[str, dict[int, int]] = {}  # by workload, the round of each finished trial
        self._wanted: dict[str, tuple[str, ...]] = {}  # by workload, what its latest round began with
        self._earlier = dict.fromkeys(names, EarlierRun())  # by workload
        self._undecided: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
        self._review()

    def take_finished(self, store: RecordStore) -> None:
        """Take every trial of a record that is finished."""
        trials = store.read_trials()
        for trial in trials:
            if trial.status is TrialStatus.FINISHED:
                self.take(read_trial_data(store.trial_dir(trial.planned.number), trial))
        failed = {trial.planned.number for trial in trials if trial.status is TrialStatus.FAILED}
        self._earlier |= {workload: self._look_back(workload, failed) for workload in self._ran}
        self._review()

    def take(self, data: TrialData) -> None:
        """Take a finished trial."""
        planned = data.record.planned
        ran = self._ran.setdefault(planned.workload, {})
        if planned.round not in ran.values():
            self._wanted[planned.workload] = self._undecided[planned.workload]
        ran[planned.number] = planned.round
        if planned.is_block:
            self._blocks[planned.workload].extend(rounds_of_block(data))
            for (workload, part), rounds in self._part_blocks.items():
                if workload == planned.workload:
                    rounds.extend(rounds_of_block_part(data, part))
            if data.record.slice_s is not None:
                self._slice_s[planned.workload] = data.record.slice_s
        else:
            load = self._record.plan.find_load(planned)
            # Figures alone: the next trial waits, and a long sweep keeps thousands.
            self._trials[planned.workload].append(measure_trial(self._record, load, data))
        self._review()

    def give_up(self, variant: str) -> None:
        """Leave a variant out from now on."""
        self._given_up.add(variant)
        self._review()

    def plan_more(self, record: StudyRecord) -> None:
        """Take the record whose plan has more rounds."""
        self._record = record

    def find_due_looks(self) -> dict[str, int]:
        """Return the final looks that the planned end asks for: the last trial of each undecided workload's last whole round.

        A workload that has had its look gets no other, and one that is decided needs none. One with too few rounds keeps
        its look for a resumed study.
        """
        if not self._experiment.final_look:
            return {}
        least = max(LEAST_TESTED_PAIRS, self._least_rounds)
        looks = {}
        for workload, round_of in self._ran.items():
            whole = self._list_whole_rounds(workload)
            if self._undecided[workload] and workload not in self._final_looks and len(whole) >= least:
                last = round_of[whole[-1].trial]
                looks[workload] = max(number for number, of in round_of.items() if of == last)
        return looks

    def list_lacking(self) -> list[str]:
        """List the undecided workloads that lack a round for a verdict because the last one was interrupted."""
        return [
            workload for workload in self._undecided if self._earlier[workload].was_cut and self._lacks_round(workload)
        ]

    def can_decide(self, workload: str) -> bool:
        """Return whether the rounds so far are enough for a verdict on a workload."""
        return len(self._list_whole_rounds(workload)) >= self._least_rounds

    def look(self, looks: Mapping[str, int]) -> None:
        """Make final looks: from now on their t-tests count."""
        self._final_looks.update(looks)
        self._review()

    def compare(self, live: Mapping[str, Sequence[Round]] | None = None) -> tuple[Comparison, ...]:
        """Compare the variants on the primary metrics, with the rounds of a block that still runs."""
        primary = {workload.name: primary_metric(workload) for workload in self._record.plan.workloads}
        return compare(
            {name: (*self._list_rounds(name), *(live or {}).get(name, ())) for name in self._blocks},
            self._experiment,
            primary=primary,
            metrics=tuple(dict.fromkeys(primary.values())),
            final_looks=self._final_looks,
            planned_rounds=count_planned_rounds(self._record.plan),
        )

    def compare_workload(self, workload: str, live: Sequence[Round] = ()) -> Comparison:
        """Compare the variants on one workload, with the rounds of a block that still runs."""
        return next(one for one in self.compare({workload: live}) if one.workload == workload)

    def compare_parts(self, live: Mapping[tuple[str, str], Sequence[Round]] = _NOTHING) -> tuple[PartComparison, ...]:
        """Compare the variants on each part of each workload, with the rounds of a block that still runs, by workload and part."""
        if not self._part_blocks:
            return ()
        rounds = {
            (workload, part): (
                *blocks,
                *rounds_of_parts(self._trials[workload], part),
                *live.get((workload, part), ()),
            )
            for (workload, part), blocks in self._part_blocks.items()
        }
        return compare_parts(
            rounds,
            self._experiment,
            primary=find_primary_metrics(self._record.plan.workloads),
            final_looks=self._final_looks,
            planned_rounds=count_planned_rounds(self._record.plan),
        )

    def undecided(
        self,
        workload: str,
        live: Sequence[Round] = (),
        live_parts: Mapping[tuple[str, str], Sequence[Round]] = _NOTHING,
    ) -> tuple[str, ...]:
        """Return the variants that still need rounds on a workload; the rounds of a block that still runs count, too."""
        if not live:
            return self._undecided[workload]
        return self._find_undecided(workload, self.compare({workload: live}), self.compare_parts(live_parts))

    def wants(self, trial: PlannedTrial) -> bool:
        """Return whether a planned trial is still of use."""
        undecided = self._undecided[trial.workload]
        if trial.is_block or trial.variants[0] == self._experiment.reference.name:
            return bool(undecided)
        return trial.variants[0] in undecided

    def is_left(self, trial: PlannedTrial) -> bool:
        """Return whether a planned trial that has not run is still to run: it is of use, and its round is not over."""
        if trial.is_observed:
            return self.wants(trial)
        if trial.number <= self._final_looks.get(trial.workload, 0):
            # The final look is made: what it did not have must not come to it later.
            return False
        return (trial.is_block or self._is_ahead(trial)) and self.wants(trial)

    @property
    def is_settled(self) -> bool:
        """True if everything is decided."""
        return not any(self._undecided.values())

    def find_slice_s(self, workload: str) -> float | None:
        """Return the slice length that was asked for, or that an earlier block's pilot chose; None where no pilot ran."""
        return self._experiment.slice_s or self._slice_s.get(workload)

    @property
    def _least_rounds(self) -> int:
        return find_least_rounds(self._experiment, self._record.plan.workloads)

    def _is_ahead(self, trial: PlannedTrial) -> bool:
        """Return whether a trial's round is still to come, or under way in this run of pgdyno."""
        latest = max(self._ran.get(trial.workload, {}).values(), default=0)
        # The trials of a live round ran together: one that is missing cannot be put beside them later.
        is_over = trial.round <= latest if self._experiment.design is DesignKind.LIVE else trial.round < latest
        earlier = self._earlier[trial.workload]
        if (
            is_client_sweep(self._experiment)
            and trial.round == earlier.last_round
            and earlier.given_up
            and not earlier.was_cut
        ):
            # It was whole but for these, and compares no pairs.
            return not is_over and trial.variants[0] in {self._experiment.reference.name, *earlier.given_up}
        return not is_over and trial.round > earlier.last_round

    def _look_back(self, workload: str, failed: Collection[int]) -> EarlierRun:
        """Return what the run before this one left of a workload, whose finished trials are taken.

        Args:
            workload: The workload, with a finished trial.
            failed: Numbers of trials that failed.
        """
        ran, undecided = self._ran[workload], {*self._undecided[workload]}
        planned = [one for one in self._record.plan.trials if one.workload == workload and not one.is_observed]
        if self._experiment.design is DesignKind.SWITCHBACK:
            blocks = self._blocks[workload]
            given_up = undecided.difference(*(one.values.keys() for one in blocks if one.trial == max(ran)))
            once = {name for name in undecided if any(name not in one.values for one in blocks)}
        else:
            given_up, once = (find(planned, ran, failed) for find in (find_given_up, find_once_given_up))
        given_up &= undecided
        last_round = max(ran.values())
        wanted = {*self._wanted[workload]} & (undecided - given_up)
        cut_off = {
            one.variants[0] for one in planned if one.round == last_round and one.number > max(ran) and not one.is_block
        }
        return EarlierRun(
            last_round=last_round,
            given_up=frozenset(given_up),
            once_given_up=frozenset(once | given_up),
            was_cut=bool(wanted) and not cut_off.isdisjoint({self._experiment.reference.name, *wanted}),
        )

    def _lacks_round(self, workload: str) -> bool:
        left = {one.round for one in self._record.plan.trials if one.workload == workload and self._is_ahead(one)}
        is_open = bool(self._undecided[workload]) and workload not in self._final_looks
        return is_open and len(left) + len(self._list_whole_rounds(workload)) < self._least_rounds

    def _list_rounds(self, workload: str) -> tuple[Round, ...]:
        return (
            *self._blocks[workload],
            *rounds_of_trials(self._trials[workload], cpu_count=self._cpu_count),
        )

    def _list_whole_rounds(self, workload: str) -> list[Round]:
        """Return the rounds that have the reference twice, and every undecided variant but those that were once given up."""
        reference = self._experiment.reference.name
        undecided = {*self._undecided[workload]} - self._earlier[workload].once_given_up
        return [
            one
            for one in self._list_rounds(workload)
            if len(one.values.get(reference, ())) == 2 and one.values.keys() >= undecided
        ]

    def _review(self) -> None:
        comparisons, parts = self.compare(), self.compare_parts()
        self._undecided = {name: self._find_undecided(name, comparisons, parts) for name in self._undecided}

    def _find_undecided(
        self,
        workload: str,
        comparisons: tuple[Comparison, ...],
        parts: tuple[PartComparison, ...],
    ) -> tuple[str, ...]:
        comparison = next(one for one in comparisons if one.workload == workload)
        variants = comparison.undecided
        if of_parts := [one for one in parts if one.workload == workload]:
            # The TPS of unlike transactions added up decides nothing.
            open_ones = {variant for one in of_parts for variant in one.comparison.undecided}
            variants = tuple(one.name for one in self._experiment.variants if one.name in open_ones)
        if is_client_sweep(self._experiment) and self._trials[workload]:
            variants = self._undecided[workload] if self._is_midway(workload) else self._find_open_loads(workload)
        return tuple(variant for variant in variants if variant not in self._given_up)

    def _find_open_loads(self, workload: str) -> tuple[str, ...]:
        """Return the loads of a sweep over clients that another round repeats, and those without a result."""
        sweep = analyse_workload_sweep(self._trials[workload], self._experiment)
        wanted = () if sweep is None else list_open_clients(sweep.points)
        seen = set() if sweep is None else {point.clients for point in sweep.points}
        return tuple(
            variant.name
            for variant in self._experiment.variants
            if variant.clients in wanted or variant.clients not in seen
        )

    def _is_midway(self, workload: str) -> bool:
        """Return whether the latest round has trials to come: a sweep's statuses hold after whole rounds only."""
        ran = self._ran[workload]
        latest = max(ran.values())
        is_under_way = latest > self._earlier[workload].last_round
        return any(
            (trial.workload, trial.round) == (workload, latest)
            and trial.number not in ran
            and (is_under_way or self._is_ahead(trial))
            and self.wants(trial)
            for trial in self._record.plan.trials
        )


def describe_state(
    sequential: SequentialComparison,
    workload: str,
    live: Sequence[Round] = (),
    live_parts: Mapping[tuple[str, str], Sequence[Round]] = _NOTHING,
    *,
    without: Collection[str] = (),
) -> str:
    """Describe the state of every variant on a workload in a line, or on each of its parts."""
    parts = [one for one in sequential.compare_parts(live_parts) if one.workload == workload]
    if not parts:
        return describe_progress(sequential.compare_workload(workload, live), without=without)
    return "; ".join(f"{one.part}: {describe_progress(one.comparison, without=without)}" for one in parts)
