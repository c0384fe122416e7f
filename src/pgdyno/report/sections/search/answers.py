"""State the answers of a search for the largest rate that holds a latency limit.

A rate is said to hold or to fail only where that is certain; the rates between are called undecided.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.search.latency_limit import LimitAnswer, RateVerdict
from pgdyno.analyse.search.rate_search import RateSearch
from pgdyno.plan.search import CAPACITY_ROUNDS, Search
from pgdyno.report.charts.search import RATE_HUES
from pgdyno.report.format import format_estimate, format_more_time, format_number, format_roughly, format_share_exactly
from pgdyno.report.input import ReportInput
from pgdyno.report.restore_words import describe_start
from pgdyno.units import count_things

MARKS = {RateVerdict.HOLDS: "▲", RateVerdict.FAILS: "▼", RateVerdict.UNDECIDED: "?"}
"""Beside the colour, for whoever does not see it."""

# With fewer trials, the model of how trials vary is mostly its prior.
_KNOWN_TRIALS = 12

TRIALS_REMARK = (
    "Each row is a trial of the search at its scheduled rate. Only whether the trial held the limit counts towards"
    " the verdict."
)


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a search on one workload."""

    search: RateSearch
    badge: str
    """The verdict in a word or two."""
    hue: str
    claim: str
    """The answer in a sentence."""
    sentences: tuple[str, ...]
    """Further sentences: capacity and, where the search is undecided, what it needs."""

    @property
    def workload(self) -> str:
        """The workload's name."""
        return self.search.workload


def answer_searches(report: ReportInput) -> tuple[SearchAnswer, ...]:
    """Return the answer for each workload; none for a study that searches for nothing."""
    asked = report.record.plan.search
    if asked is None:
        return ()
    return tuple(_answer(search, asked) for search in report.analysis.searches)


def describe_search_method(report: ReportInput) -> tuple[str, ...]:
    """Describe how the search worked and how certain its answers are, a paragraph each; nothing for other studies."""
    asked = report.record.plan.search
    if asked is None:
        return ()
    allowed = format_share_exactly(asked.allowed_ratio)
    how = (
        f"First {CAPACITY_ROUNDS} closed-loop trials, at full speed: their TPS is the capacity, which bounds the"
        f" search. Then trials at scheduled rates (open loop, pgbench's -R), each {describe_start(report.record.study)}. The"
        " results so far determine the next rate: first near the limit, then slightly below and slightly above it."
    )
    what = (
        f"A trial holds the limit when at most {allowed} of all its scheduled transactions exceed it. Latency counts"
        " from"
        " the scheduled start, and late, skipped, failed and never started transactions count as over the limit, for"
        " the whole load."
    )
    return how, what, describe_search_error(asked, len(report.record.plan.workloads))


def describe_search_error(search: Search, workloads_count: int) -> str:
    """State what share of the answers may be false."""
    most = f"{search.alpha * workloads_count * 100:.3g}"
    return (
        "A rate holds when more than half of such trials hold it, and fails when more than half do not. Error rate: of"
        f" 100 such searches at most {most} would give a rate the wrong verdict, however often the data are"
        " evaluated, whenever the search stops, and however trials vary, as long as trials are independent."
    )


def _answer(search: RateSearch, asked: Search) -> SearchAnswer:
    limit, answer = asked.limit, search.answer
    if answer is None:
        claim = (
            f"Nothing is known about {limit} on {search.workload} yet: the closed-loop trials that bound the search"
            " are not finished, or completed no transaction."
        )
        return SearchAnswer(search=search, badge="? not known", hue="slate", claim=claim, sentences=())
    verdict = RateVerdict.UNDECIDED
    if answer.is_settled:
        verdict = RateVerdict.FAILS if answer.holds_tps is None else RateVerdict.HOLDS
    return SearchAnswer(
        search=search,
        badge=_badge(answer, verdict),
        hue=RATE_HUES[verdict],
        claim=f"{search.workload} {_claim(search, answer, limit)}",
        sentences=tuple(filter(None, (_describe_capacity(search, answer, asked), _describe_outlook(search, answer)))),
    )


def _badge(answer: LimitAnswer, verdict: RateVerdict) -> str:
    if verdict is RateVerdict.HOLDS and answer.holds_tps is not None:
        return f"{MARKS[verdict]} holds {_tps(answer.holds_tps)}"
    return f"{MARKS[verdict]} {'does not hold' if verdict is RateVerdict.FAILS else 'not settled'}"


def _claim(search: RateSearch, answer: LimitAnswer, limit: str) -> str:
    holds, fails = answer.holds_tps, answer.fails_tps
    trials = f"{count_things(answer.n, 'trial')} at scheduled rates"
    if holds is not None and fails is not None:
        about = holds if answer.estimate_tps is None else answer.estimate_tps
        return (
            f"holds {limit} at {_tps(holds)} and fails at {_tps(fails)}: the limit is at about"
            f" {_tps(about)} [{format_number(holds)} – {format_number(fails)}], {trials}."
        )
    if holds is not None:
        if holds == search.highest_tps:
            return (
                f"holds {limit} at {_tps(holds)}, more than its closed-loop TPS; no higher rate was tried ({trials})."
            )
        return f"holds {limit} at {_tps(holds)}; the rate from which it fails is undecided ({trials})."
    if fails is not None:
        if fails == search.lowest_tps:
            return f"does not hold {limit} even at {_tps(fails)}, the lowest rate that was tried ({trials})."
        return f"fails {limit} at {_tps(fails)}; the rate up to which it holds is undecided ({trials})."
    return f"is undecided: no rate certainly holds or fails {limit} yet ({trials})."


def _describe_capacity(search: RateSearch, answer: LimitAnswer, asked: Search) -> str:
    capacity = search.capacity
    if capacity.value is None:
        return ""
    shown = format_estimate(capacity)
    words = f"In a closed loop the load reaches {shown.value} TPS {shown.beside}"
    if answer.fails_tps == search.lowest_tps and answer.holds_tps is None:
        return f"{words}; longer trials (--duration) reach lower rates."
    if answer.holds_tps is not None and answer.holds_tps * (1.0 + asked.resolution_ratio) >= capacity.value:
        return f"{words}: the server's capacity is the limit here, not the latency."
    return f"{words}."


def _describe_outlook(search: RateSearch, answer: LimitAnswer) -> str:
    if answer.is_settled:
        return ""
    if search.more_s is not None:
        return f"About {format_more_time(search.more_s)} of this search would settle it."
    if answer.n < _KNOWN_TRIALS:
        return "How much more time it would take is not known yet."
    spread = format_roughly(answer.spread_ratio)
    return (
        f"No affordable number of such trials would settle it: the rate that a trial holds varies by about {spread}"
        " from trial to trial."
    )


def _tps(rate_tps: float) -> str:
    return f"{format_number(rate_tps)} TPS"
