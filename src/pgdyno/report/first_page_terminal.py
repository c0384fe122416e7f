"""The first page on the terminal: in short at the end of a study, in full where somebody asked for the explanation."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from pgdyno.report.finding_words import FindingText
from pgdyno.report.first_page import FirstPage
from pgdyno.report.next_steps import NextStep
from pgdyno.report.paragraph import Paragraph
from pgdyno.report.places import describe_places
from pgdyno.report.terminal_parts import make_heading

_STYLES = {
    "critical": "bold red", "warning": "bold yellow", "note": "bold",
    "proven": "bold green", "strong": "bold green", "likely": "bold yellow", "expected": "bold cyan", "what-if": "bold red",
}  # fmt: skip
_MOST_SHORT_STEPS = 3


def list_first_page(page: FirstPage, *, is_full: bool = False) -> Iterator[RenderableType]:
    """What limits the server, what to do next, what it costs.

    Args:
        page: To show.
        is_full: With all evidence, with what else it could be, and with the charts that show it.
    """
    if page.alarm:
        yield Paragraph(Text(page.alarm, style="bold red"), by=0)
        yield ""
    yield make_heading("what limits this server")
    for one in page.explained if is_full else page.shown:
        yield from _list_explained(one, is_full=is_full)
    if page.folded and not is_full:
        yield Paragraph(f"{len(page.folded)} more: `pgdyno explain`")
    for words in page.not_judged:
        yield Paragraph(Text.assemble(("not judged: ", "bold"), words))
    steps = page.steps if is_full else page.next_steps[:_MOST_SHORT_STEPS]
    if steps:
        yield ""
        yield make_heading("what to do next")
    for number, step in enumerate(steps, start=1):
        yield from _list_step(number, step)
    if page.costs:
        yield ""
        yield make_heading("what it costs")
        yield from (Paragraph(words) for words in page.costs)


def _list_explained(one: FindingText, *, is_full: bool) -> Iterator[RenderableType]:
    yield Paragraph(Text.assemble((f"{one.badge}: ", _style(one.badge)), one.claim, _of(one.of)))
    yield from (Paragraph(words, by=4) for words in (one.evidence if is_full else one.lead[:1]))
    if not is_full:
        return
    if one.why:
        yield Paragraph(one.why, by=4)
    for rival in one.rivals:
        yield Paragraph(f"it could also be: {rival.cause} ({rival.against})", by=4)
    if one.confirm:
        yield Paragraph(f"what would settle it: {one.confirm}", by=4)
    if one.places:
        yield Paragraph(Text(f"see {describe_places(one.places)} in report.html", style="dim"), by=4)


def _list_step(number: int, step: NextStep) -> Iterator[RenderableType]:
    head = Text.assemble(f"{number}. ", (f"{step.standing.value}: ", _style(step.standing.value)))
    yield Paragraph(Text.assemble(head, step.words, _of(step.of)))
    yield from (Paragraph(words, by=5) for words in (step.gain, step.caution) if words)


def _of(workloads: str) -> str:
    return f" ({workloads})" if workloads else ""


def _style(badge: str) -> str:
    return _STYLES.get(badge, "bold")
