"""Find what weakens a search for a rate: an early end, a limit that moved, a saturated pgbench, lost trials.

The rules work as in `doubts.study`, over search results instead of trials.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.search.latency_limit import Probe
from pgdyno.analyse.search.limit_drift import find_drift
from pgdyno.analyse.search.rate_search import RateSearch
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import LOAD_THREAD_RATIO
from pgdyno.explain.finding import Finding, Severity
from pgdyno.record.types import StudyRecord


def find_search_doubts(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield everything that weakens a search's answers; nothing for a study without a search."""
    for search in analysis.searches:
        yield from _early_end(record, search)
        yield from _drift(search)
        yield from _load_generator(search, analysis)
        yield from _uncounted(search)


def _early_end(record: StudyRecord, search: RateSearch) -> Iterator[Finding]:
    if search.is_settled:
        return
    ran = {trial.number for level in search.levels for trial in level.trials}
    last = max(ran, default=0)
    left = [t for t in record.plan.trials if t.workload == search.workload and t.number > last]
    advice = "`pgdyno resume` continues." if left else "More --minutes, longer trials or a larger --detect would."
    yield Finding(
        severity=Severity.WARNING,
        claim="The search ended before its limit was found as closely as was asked for.",
        evidence=f"{len(ran)} trials at scheduled rates, {len(left)} of the plan are left",
        advice=advice,
        workload=search.workload,
    )


def _drift(search: RateSearch) -> Iterator[Finding]:
    trials = sorted((trial for level in search.levels for trial in level.trials), key=lambda trial: trial.number)
    drift = find_drift([Probe(trial.misses.rate_tps, trial.is_held) for trial in trials])
    if drift is not None:
        yield Finding(
            severity=Severity.CRITICAL,
            claim="The limit moved while it was searched for.",
            evidence=(
                f"At the end it was about {drift.ratio * 100:.0f} % of what it was at the beginning; "
                f"what was seen is {drift.bayes_factor:,.0f} times likelier so than with a limit that stands"
            ),
            advice=(
                "Look for what began or ended meanwhile (other loads, burst credits, growing tables) and search again: "
                "a rate that holds is one of the best of these times, a rate that fails one of the worst."
            ),
            workload=search.workload,
        )


def _load_generator(search: RateSearch, analysis: StudyAnalysis) -> Iterator[Finding]:
    failed = {trial.number for level in search.levels for trial in level.trials if not trial.is_held}
    shares = [
        share
        for workload in analysis.workloads
        for trial in workload.trials
        if trial.record.planned.number in failed
        and (share := trial.shares.get("load_generator_thread_ratio")) is not None
    ]
    busy = [share for share in shares if share > LOAD_THREAD_RATIO]
    if busy:
        yield Finding(
            severity=Severity.WARNING,
            claim="Rates may have failed because pgbench was at its limit, and not the server.",
            evidence=f"Its busiest thread was up to {max(busy) * 100:.0f} % busy in {len(busy)} of {len(shares)} trials that did not hold",
            advice="Raise --threads, or load from another host; rates that hold are not in doubt.",
            workload=search.workload,
        )


def _uncounted(search: RateSearch) -> Iterator[Finding]:
    if search.uncounted:
        yield Finding(
            severity=Severity.WARNING,
            claim="Trials of the search do not count: how many transactions missed the limit is not known.",
            evidence=f"Trials {', '.join(map(str, search.uncounted))}",
            advice="The reasons are under what was not observed.",
            workload=search.workload,
        )
