"""Make the part of report.json on a search: every rate, trial and verdict, at full precision."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pgdyno.analyse.search.rate_search import RateSearch
from pgdyno.report.documents.described import says
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.search.answers import answer_searches, describe_search_error


class WorkloadSearchDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The search on one workload."""

    workload: str
    sentences: Annotated[tuple[str, ...], says("The answer in words.")]
    found: Annotated[RateSearch, says("Capacity, answer, and every rate with its trials.")]


class SearchDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What was searched for, and the answers."""

    limit_ms: float
    percentile: float
    allowed_ratio: Annotated[float, says("The share of scheduled transactions that may miss the limit.")]
    resolution_ratio: float
    alpha: Annotated[float, says("The share of false answers that each workload's search was allowed.")]
    budget_s: float | None
    error_rate: Annotated[str, says("What share of answers may be false, in words.")]
    workloads: tuple[WorkloadSearchDocument, ...]


def make_search(report: ReportInput) -> SearchDocument | None:
    """Return the search as a document; None for a study that searches for nothing."""
    asked = report.record.plan.search
    if asked is None:
        return None
    return SearchDocument(
        limit_ms=asked.limit_ms,
        percentile=asked.percentile,
        allowed_ratio=asked.allowed_ratio,
        resolution_ratio=asked.resolution_ratio,
        alpha=asked.alpha,
        budget_s=asked.budget_s,
        error_rate=describe_search_error(asked, len(report.record.plan.workloads)),
        workloads=tuple(
            WorkloadSearchDocument(workload=one.workload, sentences=(one.claim, *one.sentences), found=one.search)
            for one in answer_searches(report)
        ),
    )
