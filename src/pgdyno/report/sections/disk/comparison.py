"""Build the tables of disk cards side by side: figures, then ratios with intervals and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pgdyno.analyse.comparison.disk_cards import ALPHA, DELTA_RATIO, DiskDifference
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.analyse.disk.entries import DiskFigureKey
from pgdyno.analyse.estimate import is_too_wide
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.report.format import format_bytes, format_estimate, format_number, format_seconds, format_within
from pgdyno.report.input import CardView
from pgdyno.report.lists import name_by_letters
from pgdyno.report.sections.disk.card import ENTRY_WORDS, show_entry
from pgdyno.report.table import Column, Table, columns, text

_TOLD = (VerdictKind.FASTER, VerdictKind.SLOWER, VerdictKind.EQUIVALENT)


DECLARED = "declared"
REMARK = (
    f"At most {ALPHA * 100:.0f} of 100 such comparisons give a false verdict of faster or slower; equivalent means"
    f" within {format_within(DELTA_RATIO)}. Intervals cover only the minutes in which each card was measured, not"
    " changes from hour to hour or between volumes of the same kind."
)


def figures_table(views: Sequence[CardView], places: Sequence[int] | None = None) -> Table:
    """Build the table of every figure of every card, or of the cards at some places."""
    chosen = range(len(views)) if places is None else places
    names = name_by_letters(views)
    keys = [key for key in DiskFigureKey if any(entry.key is key for view in views for entry in view.entries)]
    shown = [{entry.key: show_entry(entry).value for entry in views[place].entries} for place in chosen]
    return Table(
        caption="Figures",
        columns=columns("", *(names[place] for place in chosen), numbers_from=1),
        rows=tuple((text(ENTRY_WORDS[key]), *(text(one.get(key)) for one in shown)) for key in keys),
    )


def ratios_table(views: Sequence[CardView], differences: Sequence[DiskDifference], place: int) -> Table:
    """Build the table of a card against the first."""
    names = name_by_letters(views)
    rows = []
    for one in differences:
        if one.card != place:
            continue
        ratio = format_estimate(one.ratio)
        is_useful = one.ratio.low is not None and not is_too_wide(one.ratio)
        interval = ratio.interval if is_useful else "too few rounds" if one.ratio.n else None
        value = ratio.value if one.ratio.low is not None else format_number(one.ratio.value or 0.0, digits=2)
        rows.append(
            (
                text(ENTRY_WORDS[one.key]),
                text(f"×{value}"),
                text(interval),
                text(one.kind.value if one.ratio.n else DECLARED),
            )
        )
    return Table(
        caption=f"{names[place]} against {names[0]}",
        columns=(*columns("", "ratio", "interval", numbers_from=1), Column(title="verdict")),
        rows=tuple(rows),
        remark="" if rows else "The two cards have no figure in common.",
    )


def describe_comparison(views: Sequence[CardView], differences: Sequence[DiskDifference]) -> Iterator[str]:
    """Describe each card but the first, in a sentence."""
    names = name_by_letters(views)
    for place in range(1, len(views)):
        of = [one for one in differences if one.card == place]
        told = {kind: [ENTRY_WORDS[one.key] for one in of if one.kind is kind and one.ratio.n] for kind in VerdictKind}
        parts = [f"{kind.value} in {_count(told[kind], len(of))}" for kind in _TOLD if told[kind]]
        open_count = len(told[VerdictKind.INCONCLUSIVE])
        parts += [f"{open_count} inconclusive"] if open_count else []
        declared_count = sum(1 for one in of if not one.ratio.n)
        parts += [f"{declared_count} only declared, which has no verdict"] if declared_count else []
        yield f"{names[place]} against {names[0]}: {', '.join(parts) or 'no figure in common'}."


def describe_extents(views: Sequence[CardView]) -> Iterator[str]:
    """Say which cards were measured with another size of the file or time of the runs than the first."""
    names = name_by_letters(views)
    first = views[0].card
    for name, view in zip(names[1:], views[1:], strict=True):
        card = view.card
        pairs = ((first.file_bytes, card.file_bytes), (first.runtime_s, card.runtime_s))
        if any(_differs(before, after) for before, after in pairs):
            yield (
                f"{name} was measured with {_describe_extent(card)}, {names[0]} with {_describe_extent(first)}: a larger"
                " file leaves less to caches, and longer runs outlast bursts. Part of a difference may come from that."
            )


def _differs(first: float | None, other: float | None) -> bool:
    return bool(first and other) and abs(math.log((other or 1) / (first or 1))) > math.log(1 + DELTA_RATIO)


def _describe_extent(card: DiskCard) -> str:
    size = "no file" if card.file_bytes is None else f"a file of {format_bytes(card.file_bytes)}"
    return size if card.runtime_s is None else f"{size} and runs of {format_seconds(card.runtime_s)}"


def _count(names: list[str], total: int) -> str:
    """Count entries: a few are named."""
    if len(names) == total:
        return "everything"
    return ", ".join(names) if len(names) <= 2 else f"{len(names)} figures"
