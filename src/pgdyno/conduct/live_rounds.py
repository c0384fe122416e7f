"""Run the trials of a live round together, and make each a part of the record, however it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pgdyno.conduct.ui import Ui
from pgdyno.plan.experiment import Experiment
from pgdyno.plan.plan import PlannedTrial, Step
from pgdyno.record.pgbench.output import Progress
from pgdyno.record.store import RecordStore
from pgdyno.run.live_member import LiveMember, OtherMemberFailedError
from pgdyno.run.live_round import run_live_round
from pgdyno.run.own_server import OwnServer
from pgdyno.run.trial import TrialOutcome
from pgdyno.run.trial_stage import TrialStage


class LiveRounds:
    """Runs live rounds.

    Args:
        store: Of the record.
        experiment: Its experiment.
        stages: For each variant that starts.
        ui: Shows the progress.
    """

    def __init__(self, *, store: RecordStore, experiment: Experiment, stages: Mapping[str, TrialStage], ui: Ui) -> None:
        self._store = store
        self._experiment = experiment
        self._stages = stages
        self._ui = ui

    def run(self, steps: Sequence[tuple[Step, PlannedTrial]], *, rounds_count: int) -> tuple[TrialOutcome, ...]:
        """Run the trials of one round together, and write them into the record.

        Args:
            steps: Of the trials, those of one round on one workload.
            rounds_count: How many rounds are planned.
        """
        trials = [trial for _, trial in steps]
        first = trials[0]
        predicted_s = sum(step.predicted_s for step, _ in steps)
        self._ui.begin_step(f"round {first.round}/{rounds_count} {first.workload}", predicted_s=predicted_s)
        outcomes = run_live_round(
            self._make_members(trials),
            slice_s=self._experiment.slice_s,
            seed=first.seed,
            on_activity=self._ui.show_activity,
            on_load=self._show_load,
        )
        for outcome in outcomes:
            self._store.write_trial(outcome.record)
        return outcomes

    def _make_members(self, trials: Sequence[PlannedTrial]) -> list[LiveMember]:
        """Give each trial a cluster of its own; since a round's order is drawn, no variant has the same one in all rounds."""
        members = []
        for slot, trial in enumerate(trials):
            (variant,) = trial.variants
            stage = _in_slot(self._stages[variant], slot)
            members.append(LiveMember(stage=stage, trial=trial, folder=self._store.begin_trial(trial.number)))
        return members

    def _show_load(self, second: Progress) -> None:
        self._ui.show_load(tps=second.tps, latency_ms=second.latency_average_ms)


def find_culprit(outcomes: Sequence[TrialOutcome]) -> TrialOutcome | None:
    """Return the trial whose own error ended a live round; None if none failed."""
    return next((one for one in outcomes if one.error and not isinstance(one.error, OtherMemberFailedError)), None)


def _in_slot(stage: TrialStage, slot: int) -> TrialStage:
    """Return a stage whose server has a cluster of its own beside those of the other slots."""
    if not isinstance(stage.server, OwnServer):
        raise TypeError("only pgdyno's own servers can be up side by side")
    server = stage.server.in_slot(slot)
    return msgspec.structs.replace(stage, server=server, generator=server.make_generator())
