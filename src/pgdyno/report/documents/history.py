"""Make the published document of histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.history.histories import METRICS, History
from pgdyno.analyse.records.difference import RecordDifference
from pgdyno.report.documents.described import says
from pgdyno.report.history import describe_change, describe_move

HISTORY_VERSION = 1


class ResultDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a record answered."""

    path: str
    began: Annotated[str, says("In UTC.")]
    version: Annotated[str, says("Of PostgreSQL.")]
    trials: int
    figures: Annotated[dict[str, Estimate], says("By metric.")]


class ChangeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the level."""

    metric: str
    path: Annotated[str, says("The first record after it.")]
    p_value: float
    ratio: Annotated[Estimate, says("The level after it over the level before it.")]
    sentence: str
    differences: Annotated[tuple[RecordDifference, ...], says("Between the records before and after it.")]


class MoveDocument(msgspec.Struct, frozen=True, kw_only=True):
    """From which machine the question came."""

    path: Annotated[str, says("The last record there.")]
    sentence: str
    differences: Annotated[tuple[RecordDifference, ...], says("Between that record and the history's first.")]


class HistoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one question to one machine, by time."""

    workload: str
    variant: str | None
    is_long_enough: Annotated[bool, says("Whether there are enough results to show a change.")]
    results: tuple[ResultDocument, ...]
    changes: tuple[ChangeDocument, ...]
    move: Annotated[
        MoveDocument | None, says("None if no machine that is known to be another one was asked the same before.")
    ]


class HistoriesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All histories, the longest first."""

    version: int
    histories: tuple[HistoryDocument, ...]
    unreadable: tuple[str, ...]


def history_document(histories: Sequence[History], unreadable: Sequence[str]) -> HistoriesDocument:
    """Return the document."""
    return HistoriesDocument(
        version=HISTORY_VERSION, histories=tuple(map(_make_history, histories)), unreadable=tuple(unreadable)
    )


def _make_history(history: History) -> HistoryDocument:
    side = history.latest.side
    return HistoryDocument(
        workload=side.load_name,
        variant=None if side.variant is None else side.variant.name,
        is_long_enough=history.is_long_enough,
        results=tuple(
            ResultDocument(
                path=one.path,
                began=one.began.isoformat(),
                version=one.side.version,
                trials=len(one.side.trials),
                figures={metric: figure for metric in METRICS if (figure := one.find(metric)) is not None},
            )
            for one in history.results
        ),
        changes=tuple(
            ChangeDocument(
                metric=one.metric,
                path=history.results[one.place].path,
                p_value=one.p_value,
                ratio=one.ratio,
                sentence=describe_change(history, one),
                differences=one.differences,
            )
            for one in history.changes
        ),
        move=None
        if history.move is None
        else MoveDocument(
            path=history.move.last.path,
            sentence=describe_move(history.move),
            differences=history.move.differences,
        ),
    )
