"""Tell what earlier records answered to the questions of the present one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.estimate import is_too_wide
from pgdyno.analyse.history.histories import History
from pgdyno.report.format import format_estimate
from pgdyno.report.history import (
    describe_change,
    describe_differences,
    describe_move,
    describe_quiet,
    name_history,
    name_record,
    say_when,
)
from pgdyno.units import count_subject


class RecordPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a record answered."""

    name: str
    when: str
    tps: float | None
    low: float | None
    high: float | None
    text: str
    is_changed: bool
    """Whether the level of TPS changed with it."""


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """The TPS of one question by record, the present one last."""

    title: str
    points: tuple[RecordPoint, ...]
    words: tuple[str, ...]


class HistoriesView(msgspec.Struct, frozen=True, kw_only=True):
    """The histories of a record's questions."""

    histories: tuple[HistoryView, ...]
    remark: str
    """What of the earlier records was not read; empty if all were."""


def view_histories(histories: Sequence[History], *, unread_count: int) -> HistoriesView:
    """Tell what earlier records answered.

    Args:
        histories: Those that end with the present record.
        unread_count: Number of earlier records that were not read yet.
    """
    remark = ""
    if unread_count:
        remark = f"{count_subject(unread_count, 'earlier record')} not read yet; `pgdyno history` reads all of them."
    return HistoriesView(histories=tuple(map(_view, histories)), remark=remark)


def _view(history: History) -> HistoryView:
    changed = {one.place for one in history.changes if one.metric == "tps"}
    points = []
    for place, result in enumerate(history.results):
        tps = result.side.workload.tps
        text = format_estimate(tps)
        has_interval = tps.low is not None and not is_too_wide(tps)
        points.append(
            RecordPoint(
                name=name_record(result),
                when=say_when(result),
                tps=tps.value,
                low=tps.low if has_interval else None,
                high=tps.high if has_interval else None,
                text=f"{text.value} {text.beside}".rstrip(),
                is_changed=place in changed,
            )
        )
    return HistoryView(title=name_history(history), points=tuple(points), words=tuple(_list_words(history)))


def _list_words(history: History) -> Iterator[str]:
    for change in history.changes:
        yield f"{describe_change(history, change)} {describe_differences(change)}"
    if not history.changes:
        yield describe_quiet(history)
    if history.move is not None:
        yield describe_move(history.move)
