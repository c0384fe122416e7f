"""Tell whether a load at a scheduled rate kept its schedule: then the schedule limits it, and no resource of the server."""

from __future__ import annotations

import math

from pgdyno.analyse.bottleneck.signs import percent
from pgdyno.analyse.bottleneck.thresholds import THRESHOLDS
from pgdyno.analyse.bottleneck.time_share import Bottleneck, Certainty, Resource
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.plan import PlannedWorkload


def judge_schedule(load: PlannedWorkload, trial: TrialAnalysis) -> Bottleneck | None:
    """Name the client as the bottleneck if a trial kept its schedule; None if it has none, fell behind or may have.

    A load that falls behind by one percent has a backlog that grows until it ends. So the schedule counts as kept if random
    arrivals explain the number of completed transactions, and few of them were late.
    """
    load_s, count = trial.record.load_s, trial.transactions_count
    if load.rate_tps is None or load_s is None or not count:
        return None
    due_count = load.rate_tps * load_s
    if count < due_count - THRESHOLDS.short_deviations * math.sqrt(due_count):
        return None
    missed_ratio = ((trial.skipped_count or 0) + (trial.late_count or 0)) / due_count
    lag_ratio = _find_lag_ratio(trial)
    if missed_ratio > THRESHOLDS.missed_ratio or (lag_ratio or 0.0) > THRESHOLDS.lag_ratio:
        return None
    kept = f"{count:,} transactions of {due_count:,.0f} scheduled, which chance explains"
    if lag_ratio is None:
        absent = ("how late transactions of the schedule began",)
        return Bottleneck(resource=Resource.CLIENT, certainty=Certainty.LIKELY, evidence=(kept,), absent=absent)
    late = f"they began {trial.schedule_lag_ms:.2g} ms late in the mean, {percent(lag_ratio)} of their latency"
    return Bottleneck(resource=Resource.CLIENT, certainty=Certainty.STRONG, evidence=(kept, late))


def _find_lag_ratio(trial: TrialAnalysis) -> float | None:
    lag_ms, latency_ms = trial.schedule_lag_ms, trial.latency_mean_ms
    return None if lag_ms is None or not latency_ms else lag_ms / latency_ms
