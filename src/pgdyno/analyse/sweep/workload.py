"""Analyse the sweep over clients of one workload from the trials of its study."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pgdyno.analyse.comparison.rounds import tps_of_trial
from pgdyno.analyse.sweep.client_trials import ClientTrial
from pgdyno.analyse.sweep.outlook import predict_rounds
from pgdyno.analyse.sweep.scaling import ClientSweep, analyse_client_sweep
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.record.types import TrialStatus


def _find_clients(variant: Variant) -> int | None:
    return variant.clients


def analyse_workload_sweep(
    trials: Iterable[TrialAnalysis],
    experiment: Experiment,
    *,
    level_of: Callable[[Variant], int | None] = _find_clients,
) -> ClientSweep | None:
    """Analyse how TPS of one workload follows the number of clients; None before a round of two loads is finished.

    A trial in which no transaction ended is the worst result of a load, and not a gap: it counts as in comparisons.

    Args:
        trials: Trials of one workload.
        experiment: What was swept.
        level_of: Returns how many sessions a variant may have at work; None for a variant that does not belong to the sweep.
    """
    seen = _list_trials(trials, experiment, level_of)
    if len({one.clients for one in seen}) < 2:
        return None
    return analyse_client_sweep(seen, delta_ratio=experiment.detect_ratio, confidence=1.0 - experiment.alpha)


def predict_workload_rounds(trials: Iterable[TrialAnalysis], experiment: Experiment) -> dict[int, int | None]:
    """Predict the further rounds that decide each undecided number of clients of one workload, as `predict_rounds` does."""
    seen = _list_trials(trials, experiment, _find_clients)
    return predict_rounds(
        seen,
        delta_ratio=experiment.detect_ratio,
        confidence=1.0 - experiment.alpha,
        reference_clients=experiment.reference.clients,
    )


def _list_trials(
    trials: Iterable[TrialAnalysis], experiment: Experiment, level_of: Callable[[Variant], int | None]
) -> list[ClientTrial]:
    return [
        ClientTrial(clients=clients, round_index=trial.record.planned.round, tps=tps)
        for trial in trials
        if trial.record.status is TrialStatus.FINISHED
        and not trial.record.planned.is_observed
        and (tps := tps_of_trial(trial)) is not None
        and (clients := level_of(experiment.find_variant(trial.record.planned.variants[0]))) is not None
    ]
