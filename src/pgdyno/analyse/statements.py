"""Divide the execution time of a load, or other work, among its statements, as pg_stat_statements counted them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from pgdyno.analyse.estimate import Estimate, estimate_mean_of_trials, keep_above_0
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.statements import StatementCounts
from pgdyno.record.types import TrialStatus
from pgdyno.units import sum_if_known

_MOST = 10
EXECUTION = ("exec_ms",)


class StatementUse(msgspec.Struct, frozen=True, kw_only=True):
    """A statement over the trials of a load. Only its share has an interval; None where nothing can be divided."""

    query: str | None
    """As the server normalised it; None for all others together."""
    share: Estimate
    """Of what was divided, as a ratio; the interval is over trials."""
    calls_per_transaction: float | None
    mean_ms: float
    """Execution of one call."""
    rows_per_call: float
    read_pages_per_call: float
    wal_bytes_per_call: float


def rank_statements(trials: Iterable[TrialAnalysis], *, divided: Sequence[str] = EXECUTION) -> tuple[StatementUse, ...]:
    """Return the statements with the largest shares, largest first, and the others together.

    Trials in slices are left out: while their server is frozen, time goes on for the statements that are running.

    Args:
        trials: Of one load.
        divided: The counters of which shares are wanted, added together.
    """
    counted = [
        trial
        for trial in trials
        if trial.record.status is TrialStatus.FINISHED
        and not trial.record.is_in_slices
        and _sum(trial.record.statements or (), divided) > 0
    ]
    by_query: dict[str, list[tuple[StatementCounts, ...]]] = defaultdict(lambda: [()] * len(counted))
    for place, trial in enumerate(counted):
        for one in trial.record.statements or ():
            by_query[one.query][place] = (*by_query[one.query][place], one)

    def use(query: str | None, groups: Sequence[tuple[StatementCounts, ...]]) -> StatementUse:
        return _estimate_use(query, groups, counted, divided)

    ranked = sorted(
        (use(query, groups) for query, groups in by_query.items()), key=lambda one: -(one.share.value or 0.0)
    )
    if len(ranked) <= _MOST + 1:
        return tuple(ranked)
    others = [by_query[one.query or ""] for one in ranked[_MOST:]]
    merged = [tuple(one for groups in others for one in groups[place]) for place in range(len(counted))]
    return (*ranked[:_MOST], use(None, merged))


def _estimate_use(
    query: str | None,
    groups: Sequence[tuple[StatementCounts, ...]],
    trials: Sequence[TrialAnalysis],
    divided: Sequence[str],
) -> StatementUse:
    shares = [
        _sum(group, divided) / _sum(trial.record.statements or (), divided)
        for group, trial in zip(groups, trials, strict=True)
    ]
    rounds = [trial.record.planned.round for trial in trials]
    share = keep_above_0(estimate_mean_of_trials(shares, unit="ratio", rounds=rounds))
    if share.high is not None:
        share = msgspec.structs.replace(share, high=min(1.0, share.high))
    transactions = sum_if_known([trial.transactions_count for trial in trials])
    every = [one for group in groups for one in group]
    calls = _sum(every, ("calls",))
    return StatementUse(
        query=query,
        share=share,
        calls_per_transaction=calls / transactions if transactions else None,
        mean_ms=_sum(every, EXECUTION) / calls,
        rows_per_call=_sum(every, ("rows",)) / calls,
        read_pages_per_call=_sum(every, ("read_pages",)) / calls,
        wal_bytes_per_call=_sum(every, ("wal_bytes",)) / calls,
    )


def _sum(statements: Iterable[StatementCounts], names: Sequence[str]) -> float:
    return float(sum(getattr(one, name) for one in statements for name in names))
