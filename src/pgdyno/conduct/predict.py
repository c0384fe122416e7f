"""Predict a trial before it runs, and write the predictions into the trial's folder."""

from __future__ import annotations

from pathlib import Path

from pgdyno.analyse.disk.demand import find_limits
from pgdyno.analyse.prediction import PredictionBasis, predict_trial
from pgdyno.plan.plan import PlannedTrial
from pgdyno.record.predictions import write_predictions
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import TrialStatus
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.study import CacheState


def predict_into(folder: Path, store: RecordStore, stage: TrialStage, trial: PlannedTrial) -> None:
    """Write what can be predicted of a trial into its empty folder; of variants that alternate nothing is."""
    if len(trial.variants) > 1:
        return
    card = store.read_card()
    predictions = predict_trial(
        PredictionBasis(
            workload=stage.plan.find_load(trial),
            dataset=stage.dataset,
            settings=stage.settings,
            version_major=stage.server.facts.major,
            cpu_count=stage.cpu_count,
            limits=None if card is None else find_limits(card),
            is_warm=stage.study.trials.cache is CacheState.WARM,
            earlier=_find_earlier(store, trial),
        )
    )
    if predictions:
        write_predictions(folder, predictions)


def _find_earlier(store: RecordStore, trial: PlannedTrial) -> TrialData | None:
    """Return the last finished trial of the same load and variant."""
    alike = [
        other
        for other in store.read_trials()
        if other.status is TrialStatus.FINISHED
        and (other.planned.workload, other.planned.variants) == (trial.workload, trial.variants)
    ]
    return read_trial_data(store.trial_dir(alike[-1].planned.number), alike[-1]) if alike else None
