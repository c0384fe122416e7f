"""How results and errors look on the terminal and as JSON."""

from __future__ import annotations

import sys
from typing import Protocol, runtime_checkable

from rich.console import Console, RenderableType
from rich.markup import escape

from pgdyno.errors import PgdynoError, with_program
from pgdyno.run.host.program import program_name

_UNWRAPPED_WIDTH = 200


@runtime_checkable
class Result(Protocol):
    """What every flow gives back."""

    def to_json(self) -> bytes:
        """One JSON document."""

    def to_terminal(self) -> RenderableType:
        """What a person reads."""


def show_result(result: Result, *, as_json: bool) -> None:
    """Print a flow's result on stdout."""
    if as_json:
        sys.stdout.buffer.write(result.to_json().rstrip() + b"\n")
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        # Whoever reads a file or a pipe has no edge of the screen.
        console.width = _UNWRAPPED_WIDTH
    console.print(result.to_terminal())


def show_error(error: PgdynoError, *, as_json: bool) -> None:
    """Print an error: fact, detail, hint; on stdout too when JSON was asked for."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[bold red]error:[/bold red] {escape(error.fact)}")
    for line in error.detail.splitlines():
        console.print(f"  {escape(line)}")
    hint = with_program(error.hint, program_name())
    if hint:
        console.print(f"[bold]hint:[/bold] {escape(hint)}")
    if as_json:
        import msgspec  # noqa: PLC0415 - only JSON needs it

        document = {
            "error": {"fact": error.fact, "detail": error.detail, "hint": hint, "exit_code": int(error.exit_code)}
        }
        sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
