"""What all that is shown on the terminal has in common: headings, tables under theirs, the colours of severities."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from pgdyno.explain.finding import Severity
from pgdyno.report.grid import Grid
from pgdyno.report.table import Table

SEVERITY_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold"}


def make_heading(words: str) -> Text:
    """What stands above a part."""
    return Text(words, style="bold underline")


def show_table(table: Table) -> tuple[RenderableType, ...]:
    """A table under its caption."""
    return make_heading(table.caption), Grid(table)
