"""A sweep over clients as `scaling` wants it: the trials of each number of clients.

A trial in which nothing ended is the worst that a load can do, and no gap: it counts as in comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgdyno.analyse.comparison.rounds import tps_of_trial
from pgdyno.analyse.sweep.client_trials import ClientTrial
from pgdyno.analyse.sweep.scaling import ClientSweep, analyse_client_sweep
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.experiment import Experiment
from pgdyno.record.types import TrialStatus


def analyse_clients(trials: Iterable[TrialAnalysis], experiment: Experiment) -> ClientSweep | None:
    """The curve over clients of one workload; None before a round of two loads is finished."""
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
