"""Run the trials of a comparison one after the other: which are of use, what a failure means, and when time is over.

A trial that fails is repeated once. One that fails again ends the study, unless it is one variant's alone, or a block that
failed both times in the same variant: then that variant is given up, and the others go on. Whether it was its fault shows
when the next trial succeeds.

A round is run as a whole or not at all: what was left out of one is never made up for later, when the machine may be
another. No round begins that would end after the announced time, unless the fewest rounds that can decide anything are not
complete: then it may take as long again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pgdyno.conduct.block_schedule import BlockSchedule
from pgdyno.conduct.comparison_line import describe_loads
from pgdyno.conduct.live_rounds import find_culprit, is_of_all, live_round_step
from pgdyno.conduct.sequential import SequentialComparison, describe_state
from pgdyno.conduct.short_pool import is_derived
from pgdyno.conduct.steps import TRIES, describe_outcome, find_overrun_s, list_open_trials, tell_failure, trial_step
from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError, PgdynoError, RefusedValueError, ShortPoolError
from pgdyno.plan.experiment import Experiment, is_client_sweep
from pgdyno.plan.extra_rounds import Pace, add_rounds, count_fitting
from pgdyno.plan.plan import Plan, PlannedTrial, Step, StepKind
from pgdyno.record.samples.server_machine import SERVER_LOG
from pgdyno.record.serverlog import ErrorReport, read_serverlog
from pgdyno.record.store import RecordStore
from pgdyno.record.transactions.slices import read_slices
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import ErrorFact, StudyRecord, TrialRecord
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.ctrl_c import taking_ctrl_c
from pgdyno.run.host.log import LOG
from pgdyno.run.measured_load import LostLogError
from pgdyno.run.trial import TrialOutcome, fact_of
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.variant import DesignKind
from pgdyno.units import count_things

# Less holds too few rounds for the restoring that it takes.
_LEAST_REST_S = 20.0
# How often the reference runs in a round.
_REFERENCES = 2


class TrialRunner:
    """Runs the trials of a comparison's plan that are still of use.

    Args:
        store: Of the record.
        record: As it is on disk.
        experiment: Its experiment.
        stages: For each variant that starts.
        sequential: The comparison so far, with all finished trials.
        ui: Shows the progress.
    """

    def __init__(
        self,
        *,
        store: RecordStore,
        record: StudyRecord,
        experiment: Experiment,
        stages: Mapping[str, TrialStage],
        sequential: SequentialComparison,
        ui: Ui,
    ) -> None:
        self._store = store
        self._record = record
        self._experiment = experiment
        self._stages = stages
        self._sequential = sequential
        self._ui = ui
        # What was given up since a trial last succeeded, with the error.
        self._suspects: dict[str, ErrorFact] = {}
        self._pace = Pace()
        self._steps = list_open_trials(store, record)

    def run(self) -> None:
        """Run until everything is decided, all trials are run, or the time is over; then make the final looks.

        Raises:
            PgdynoError: A trial failed twice, and the study cannot go on without it.
            KeyboardInterrupt: The user has stopped it.
        """
        self._replace_interrupted()
        allowed_s = self._find_allowed_s()
        ends_s = monotonic_s() + allowed_s
        is_over = self._run_wanted(allowed_s)
        while not is_over and self._plan_more(within_s=ends_s - monotonic_s()):
            is_over = self._run_wanted(ends_s - monotonic_s())
        self._make_final_looks()
        if is_over and not self._sequential.is_settled:
            what = "sweep" if is_client_sweep(self._experiment) else "comparison"
            follows = "; the sweep follows" if self._record.study.scaling is not None else ""
            self._ui.say(
                f"the {what}'s time is over, and not everything is decided: `pgdyno resume` runs what is left of it{follows}"
            )

    def _find_allowed_s(self) -> float:
        """Return the time that is left of the budget, by the plan's predictions."""
        plan = self._record.plan
        if plan.first_extra is None:
            return _allowed_s(plan, self._experiment, self._steps)
        # The time of what was left out before belongs to the extra rounds already.
        return sum(step.predicted_s for step, trial in self._steps if self._sequential.is_left(trial))

    def _plan_more(self, *, within_s: float) -> bool:
        """Plan more rounds for what is open, if the study wants them and one fits; return whether it does."""
        looks = self._sequential.find_due_looks() if self._experiment.extra_rounds else {}
        undecided = {workload: self._sequential.undecided(workload) for workload in looks}
        rounds = count_fitting(self._record.plan, undecided, within_s=within_s / self._pace.find_ratio())
        if rounds == 0:
            return False
        first = len(self._record.plan.trials) + 1
        plan = add_rounds(self._record.plan, undecided, rounds=rounds)
        self._set_plan(msgspec.structs.replace(plan, first_extra=plan.first_extra or first))
        # What was left out of an earlier round stays out.
        self._steps = [one for one in self._steps if one[1].number >= first]
        self._ui.say(f"minutes are left: {count_things(rounds, 'more round')} of {', '.join(undecided)}")
        return True

    def _replace_interrupted(self) -> None:
        """Plan a round in place of one that an interruption cut in two, where the rest are too few for a verdict."""
        for workload in self._sequential.list_lacking():
            undecided = {workload: self._sequential.undecided(workload)}
            self._set_plan(add_rounds(self._record.plan, undecided, rounds=1))
            self._ui.say(f"a round of {workload} was interrupted: one more is planned")

    def _set_plan(self, plan: Plan) -> None:
        self._record = msgspec.structs.replace(self._record, plan=plan)
        self._store.write_record(self._record)
        self._sequential.plan_more(self._record)
        self._stages = {name: msgspec.structs.replace(one, plan=plan) for name, one in self._stages.items()}
        self._steps = list_open_trials(self._store, self._record)

    def _run_wanted(self, allowed_s: float) -> bool:
        """Run the trials that are wanted, and return whether the time is over before the last of them."""
        began_s, is_told = monotonic_s(), False
        self._limit(self._steps, allowed_s)
        last: tuple[int, str] | None = None
        for place, (step, trial) in enumerate(self._steps):
            if not self._sequential.is_left(trial):
                continue
            turn = (trial.round, trial.workload if len(trial.variants) == 1 else str(trial.number))
            if last not in {None, turn}:
                next_s = self._pace.find_ratio(is_observed=trial.is_observed) * self._find_planned_s(step, trial)
                over_s = find_overrun_s(monotonic_s(), began_s=began_s, allowed_s=allowed_s, next_s=next_s)
                if over_s > 0 and (self._can_decide(trial) or over_s > allowed_s):
                    return True
                if over_s > 0 and not is_told:
                    is_told = True
                    self._ui.say(
                        "trials take longer than predicted: the study continues until it has the pairs that a verdict needs"
                    )
                    self._limit(self._steps[place:], allowed_s)
            last = turn
            self._run_next(step, trial)
        return False

    def _run_next(self, step: Step, trial: PlannedTrial) -> None:
        """Run a trial, or all trials of its live round, and note how long that takes."""
        undecided = self._sequential.undecided(trial.workload)
        LOG.info("next is trial %d: undecided on %s: %s", trial.number, trial.workload, ", ".join(undecided))
        began_s = monotonic_s()
        if self._experiment.design is DesignKind.LIVE and not trial.is_observed:
            planned_s = self._find_planned_s(step, trial)
            self._run_live(trial)
        else:
            planned_s = step.predicted_s
            self._run_trial(step, trial)
        self._pace.add(planned_s, monotonic_s() - began_s, is_observed=trial.is_observed)

    def _find_planned_s(self, step: Step, trial: PlannedTrial) -> float:
        """Return the predicted seconds of a block, or of what is wanted of a trial's round on its workload."""
        return step.predicted_s if trial.is_block else sum(one.predicted_s for one, _ in self._wanted_beside(trial))

    def _make_final_looks(self) -> None:
        """Make the final look at every undecided workload that has had none, and note its place in the record for good.

        It follows the end of the plan or of its time. A study that a failure or the user ends has none.
        """
        looks = self._sequential.find_due_looks()
        if not looks:
            return
        self._record = msgspec.structs.replace(self._record, final_looks={**(self._record.final_looks or {}), **looks})
        self._store.write_record(self._record)
        self._sequential.look(looks)
        for workload in looks:
            told = describe_state(self._sequential, workload, without=self._gone)
            LOG.info("final look at %s: %s", workload, told)
            self._ui.say(f"final look at {workload}: {told}")

    def _limit(self, left: list[tuple[Step, PlannedTrial]], within_s: float) -> None:
        self._ui.limit(predicted_s=sum(step.predicted_s for step, _ in left), within_s=within_s)

    def _can_decide(self, trial: PlannedTrial) -> bool:
        """Return whether the rounds before this trial's are enough for a verdict; a block holds many rounds."""
        return trial.is_block or self._sequential.can_decide(trial.workload)

    def _run_trial(self, step: Step, trial: PlannedTrial) -> None:
        """Run a trial until it succeeds or is given up."""
        failed_in: list[str] = []
        while self._sequential.wants(trial):
            outcome, variant = self._try_block(step, trial) if trial.is_block else self._try_single(step, trial)
            if outcome.error is None:
                self._take(trial, outcome)
                return
            # No variant drops out for what is the fault of none.
            failed_in.append("" if isinstance(outcome.error, LostLogError) else variant)
            if tell_failure(trial, outcome.error, tries=len(failed_in), ui=self._ui):
                continue
            # Under one load it is a variant's fault only if the load fails in the same one again.
            if trial.is_block and failed_in != [variant] * TRIES:
                raise outcome.error
            self._give_up(variant, outcome.error)
            failed_in = []

    def _run_live(self, trial: PlannedTrial) -> None:
        """Run the trials of a round together, until all succeed or nothing is left to compare."""
        failed_in: list[str] = []
        while len(steps := self._wanted_beside(trial)) > _REFERENCES:
            outcomes = live_round_step(
                steps,
                store=self._store,
                experiment=self._experiment,
                stages=self._stages,
                ui=self._ui,
                rounds_count=max(trial.round for trial in self._record.plan.trials),
            )
            culprit = find_culprit(outcomes)
            if culprit is None or culprit.error is None:
                for outcome in outcomes:
                    self._sequential.take(
                        read_trial_data(self._store.trial_dir(outcome.record.planned.number), outcome.record)
                    )
                state = self._describe_state(trial.workload)
                self._ui.show_verdicts(f"{trial.workload}: {state}")
                self._ui.end_step(state)
                self._refuse_suspects()
                return
            (variant,) = culprit.record.planned.variants
            # As in `_run_trial`.
            failed_in.append("" if is_of_all(outcomes) else variant)
            if tell_failure(culprit.record.planned, culprit.error, tries=len(failed_in), ui=self._ui):
                continue
            if failed_in != [variant] * TRIES:
                raise culprit.error
            self._give_up(variant, culprit.error)
            failed_in = []

    def _wanted_beside(self, trial: PlannedTrial) -> list[tuple[Step, PlannedTrial]]:
        """Return the trials of a trial's round on its workload that are still of use."""
        return [
            (step, other)
            for step, other in self._steps
            if (other.round, other.workload) == (trial.round, trial.workload) and self._sequential.is_left(other)
        ]

    def _try_single(self, step: Step, trial: PlannedTrial) -> tuple[TrialOutcome, str]:
        (variant,) = trial.variants
        return trial_step(step, trial, store=self._store, stage=self._stages[variant], ui=self._ui), variant

    def _try_block(self, step: Step, trial: PlannedTrial) -> tuple[TrialOutcome, str]:
        """Run a block and return the variant that was in force when it failed. Keep one that Ctrl-C ended, and plan its rest."""
        schedule = BlockSchedule(self._experiment, trial, self._sequential, without=self._gone)
        stage = self._stages[self._experiment.reference.name]
        with taking_ctrl_c(schedule.stop):
            outcome = trial_step(step, trial, store=self._store, stage=stage, ui=self._ui, schedule=schedule)
            if schedule.is_stopped and outcome.error is None:
                self._take(trial, outcome)
                self._plan_rest(step, trial, outcome.record)
        if schedule.is_stopped:
            raise KeyboardInterrupt
        folder = self._store.trial_dir(trial.number)
        return outcome, schedule.variant_at(read_slices(folder), _find_complaint_s(folder, outcome))

    def _take(self, trial: PlannedTrial, outcome: TrialOutcome) -> None:
        self._sequential.take(read_trial_data(self._store.trial_dir(trial.number), outcome.record))
        if not trial.is_observed:
            self._ui.show_verdicts(f"{trial.workload}: {self._describe_state(trial.workload)}")
        self._ui.end_step(self._describe_result(trial, outcome))
        self._refuse_suspects()

    def _refuse_suspects(self) -> None:
        if self._suspects:
            # The machine is well: those that failed did so by themselves.
            self._record = refuse_variants(self._store, self._record, self._suspects)
            self._suspects = {}

    def _give_up(self, variant: str, error: PgdynoError) -> None:
        if variant == self._experiment.reference.name or self._suspects:
            raise error
        # A bound on what a study may write, or another pgdyno, is no variant's fault; what the kernel refuses is.
        if isinstance(error, HostError) and not isinstance(error, RefusedValueError):
            raise error
        # Huge pages that pgdyno derived are short for every variant that has them.
        if isinstance(error, ShortPoolError) and is_derived(error, self._record.tuned):
            raise error
        self._sequential.give_up(variant)
        if self._sequential.is_settled:
            raise error
        self._suspects = {variant: fact_of(error)}
        self._ui.say(f"{variant} is given up, the others go on: {error.fact}")

    def _plan_rest(self, step: Step, trial: PlannedTrial, seen: TrialRecord) -> None:
        """Plan what is left of a block that was ended early, for a resumed study."""
        if not self._sequential.undecided(trial.workload):
            return
        began_s, ended_s = seen.load_start_monotonic_s or 0.0, seen.load_end_monotonic_s or 0.0
        rest_s = max(_LEAST_REST_S, float(round(trial.duration_s - (ended_s - began_s))))
        rest = msgspec.structs.replace(
            trial,
            number=len(self._record.plan.trials) + 1,
            round=max(other.round for other in self._record.plan.trials if other.workload == trial.workload) + 1,
            seed=random.Random(trial.seed).randrange(1, 2**31),  # noqa: S311 - another order, not a secret
            duration_s=rest_s,
        )
        added = Step(kind=StepKind.TRIAL, predicted_s=step.predicted_s - trial.duration_s + rest_s, trial=rest)
        *steps, report = self._record.plan.steps
        plan = msgspec.structs.replace(self._record.plan, steps=(*steps, added, report))
        self._record = msgspec.structs.replace(self._record, plan=plan)
        self._store.write_record(self._record)

    def _describe_result(self, trial: PlannedTrial, outcome: TrialOutcome) -> str:
        """Describe a trial's figures and, where a round ends with it, the state of the comparison."""
        state = self._describe_round_end(trial)
        # A block has no figures of its own: its variants alternate.
        return "; ".join(filter(None, ("" if trial.is_block else describe_outcome(outcome), state)))

    def _describe_round_end(self, trial: PlannedTrial) -> str:
        """Describe the state after a block, or after the last trial of a round; empty after any other trial."""
        if trial.is_observed:
            return ""
        same_round = [other for _, other in self._steps if other.round == trial.round]
        is_last = not any(
            other.workload == trial.workload and other.number > trial.number and self._sequential.is_left(other)
            for other in same_round
        )
        return self._describe_state(trial.workload) if trial.is_block or is_last else ""

    def _describe_state(self, workload: str) -> str:
        if is_client_sweep(self._experiment):
            return describe_loads(len(self._sequential.undecided(workload)), len(self._experiment.variants))
        return describe_state(self._sequential, workload, without=self._gone)

    @property
    def _gone(self) -> set[str]:
        """The variants that were given up."""
        return {*self._record.refused_variants, *self._suspects}


def refuse_variants(store: RecordStore, record: StudyRecord, errors: Mapping[str, ErrorFact]) -> StudyRecord:
    """Note in the record which variants are left out, and why."""
    record = msgspec.structs.replace(record, refused_variants={**record.refused_variants, **errors})
    store.write_record(record)
    return record


def _find_complaint_s(folder: Path, outcome: TrialOutcome) -> float:
    """Return when the server logged what ended the load, on the monotonic clock; infinity where its log does not say."""
    log = folder / SERVER_LOG
    if outcome.error is None or not log.exists():
        return math.inf
    for event in read_serverlog(log, clock_offset_s=outcome.record.clock_offset_s):
        if isinstance(event, ErrorReport) and event.origin is not None and event.message in outcome.error.detail:
            return event.origin.monotonic_s
    return math.inf


def _allowed_s(plan: Plan, experiment: Experiment, left: list[tuple[Step, PlannedTrial]]) -> float:
    """Return the share of the budget that belongs to the trials that are left."""
    trials_s = sum(step.predicted_s for step in plan.steps if step.kind is StepKind.TRIAL)
    others_s = plan.predicted_s - trials_s
    spare_s = max(trials_s, (experiment.budget_s or 0.0) - others_s)
    return spare_s * sum(step.predicted_s for step, _ in left) / max(trials_s, 1.0)
