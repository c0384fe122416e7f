"""Pass the trials of a sweep over clients to `scaling`, by number of clients.

A trial in which no transaction ended is the worst result of a load, and not a gap: it counts as in comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgdyno.analyse.comparison.rounds import tps_of_trial
from pgdyno.analyse.sweep.client_trials import ClientTrial
from pgdyno.analyse.sweep.scaling import ClientSweep, analyse_client_sweep
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.experiment import Experiment
from pgdyno.record.types import TrialStatus


def analyse_workload_sweep(trials: Iterable[TrialAnalysis], experiment: Experiment) -> ClientSweep | None:
    """Analyse how TPS of one workload follows the number of clients; None before a round of two loads is finished."""
    seen = [
        ClientTrial(clients=clients, round_index=trial.record.planned.round, tps=tps)
        for trial in trials
        if trial.record.status is TrialStatus.FINISHED
        and (tps := tps_of_trial(trial)) is not None
        and (clients := experiment.find_variant(trial.record.planned.variants[0]).clients) is not None
    ]
    if len({one.clients for one in seen}) < 2:
        return None
    return analyse_client_sweep(seen, delta_ratio=experiment.detect_ratio, confidence=1.0 - experiment.alpha)
