"""Run the trials of a live round together, and make each a part of the record, however it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pgdyno.conduct.ui import Ui
from pgdyno.plan.experiment import Experiment
from pgdyno.plan.plan import PlannedTrial, Step
from pgdyno.record.store import RecordStore
from pgdyno.run.given_server import GivenServerUnderTest
from pgdyno.run.live_member import LiveMember, OtherMemberFailedError
from pgdyno.run.live_round import run_live_round
from pgdyno.run.own_server import OwnServer
from pgdyno.run.trial import TrialOutcome
from pgdyno.run.trial_stage import TrialStage
from pgdyno.run.turn_round import run_turn_round


def live_round_step(
    steps: Sequence[tuple[Step, PlannedTrial]],
    *,
    store: RecordStore,
    experiment: Experiment,
    stages: Mapping[str, TrialStage],
    ui: Ui,
    rounds_count: int,
) -> tuple[TrialOutcome, ...]:
    """Run the trials of one round together, and write them into the record.

    Args:
        steps: Of the trials, those of one round on one workload.
        store: Of the record.
        experiment: Its experiment.
        stages: For each variant that starts.
        ui: Shows the progress.
        rounds_count: How many rounds are planned.
    """
    first = steps[0][1]
    predicted_s = sum(step.predicted_s for step, _ in steps)
    ui.begin_step(f"round {first.round}/{rounds_count} {first.workload}", predicted_s=predicted_s)
    trials = [trial for _, trial in steps]
    if experiment.takes_turns:
        run_round, members = run_turn_round, _make_turns(trials, store, stages)
    else:
        run_round, members = run_live_round, _make_members(trials, store, stages)
    outcomes = run_round(
        members,
        slice_s=experiment.slice_s,
        seed=first.seed,
        on_activity=ui.show_activity,
        on_load=lambda second: ui.show_load(tps=second.tps, latency_ms=second.latency_average_ms),
    )
    for outcome in outcomes:
        store.write_trial(outcome.record)
    return outcomes


def _make_turns(
    trials: Sequence[PlannedTrial], store: RecordStore, stages: Mapping[str, TrialStage]
) -> list[LiveMember]:
    """Give all trials the server of the first."""
    of_trials = [stages[trial.variants[0]] for trial in trials]
    return [
        LiveMember(
            stage=msgspec.structs.replace(stage, server=of_trials[0].server),
            trial=trial,
            folder=store.begin_trial(trial.number),
        )
        for stage, trial in zip(of_trials, trials, strict=True)
    ]


def _make_members(
    trials: Sequence[PlannedTrial], store: RecordStore, stages: Mapping[str, TrialStage]
) -> list[LiveMember]:
    """Give each trial a cluster of its own; since a round's order is drawn, no variant has the same one in all rounds."""
    members = []
    for slot, trial in enumerate(trials):
        (variant,) = trial.variants
        stage = _in_slot(stages[variant], slot)
        members.append(LiveMember(stage=stage, trial=trial, folder=store.begin_trial(trial.number)))
    return members


def find_culprit(outcomes: Sequence[TrialOutcome]) -> TrialOutcome | None:
    """Return the trial whose own error ended a live round; None if none failed."""
    return next((one for one in outcomes if one.error and not isinstance(one.error, OtherMemberFailedError)), None)


def is_of_all(outcomes: Sequence[TrialOutcome]) -> bool:
    """Return whether what ended a live round is the fault of none of its trials, such as the start of the server that all share."""
    return len({id(one.error) for one in outcomes}) == 1


def _in_slot(stage: TrialStage, slot: int) -> TrialStage:
    """Return a stage whose server has a cluster of its own beside those of the other slots."""
    if isinstance(stage.server, GivenServerUnderTest):
        return msgspec.structs.replace(stage, server=stage.server.in_slot(slot))
    if not isinstance(stage.server, OwnServer):
        raise TypeError("this server has no slots")
    server = stage.server.in_slot(slot)
    return msgspec.structs.replace(stage, server=server, generator=server.make_generator())
