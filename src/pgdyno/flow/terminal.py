"""Print a document on the terminal, with the program's name as the user calls it now in all commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgdyno.report.level import Level
from pgdyno.run.host.program import program_name

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pgdyno.report.document import Document


def print_document(document: Document, *, level: Level = Level.STANDARD, recorded: str = "pgdyno") -> RenderableType:
    """Return a document for the terminal.

    Args:
        document: The document.
        level: How much of it is shown.
        recorded: The name of the program in the document's commands, as a record keeps it.
    """
    from pgdyno.report.document import name_program  # noqa: PLC0415 - commands that print no document need no forms
    from pgdyno.report.forms.terminal import print_terminal  # noqa: PLC0415

    return print_terminal(name_program(document, program_name(), recorded=recorded), level=level)
