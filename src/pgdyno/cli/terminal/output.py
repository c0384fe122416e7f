"""Print results and errors, on the terminal or as JSON."""

from __future__ import annotations

import sys
from typing import Protocol, runtime_checkable

from rich.console import Console, RenderableType
from rich.markup import escape

from pgdyno.errors import PgdynoError, with_program
from pgdyno.run.host.program import machine_name, program_name

_UNWRAPPED_WIDTH = 200


@runtime_checkable
class Result(Protocol):
    """The result of a flow."""

    def to_json(self) -> bytes:
        """Return the result as one JSON document."""

    def to_terminal(self) -> RenderableType:
        """Return the result for the terminal."""


class PipedConsole(Console):
    """A console that leaves a closed pipe to `session`: rich would exit with 1, which says that a gate failed."""

    def on_broken_pipe(self) -> None:
        """Raise the error again."""
        raise BrokenPipeError


def show_result(result: Result, *, as_json: bool) -> None:
    """Print a flow's result on stdout."""
    if as_json:
        sys.stdout.buffer.write(result.to_json().rstrip() + b"\n")
        return
    console = PipedConsole(highlight=False)
    if not console.is_terminal:
        # A file or a pipe has no screen width.
        console.width = _UNWRAPPED_WIDTH
    console.print(result.to_terminal())


def show_error(error: PgdynoError, *, as_json: bool) -> None:
    """Print an error (fact, detail, hint) on stderr, and with --json also on stdout."""
    console = PipedConsole(stderr=True, highlight=False, soft_wrap=True)
    machine = machine_name()
    place = "" if machine is None else f" on {machine}"
    console.print(f"[bold red]error{escape(place)}:[/bold red] {escape(error.fact)}")
    for line in error.detail.splitlines():
        console.print(f"  {escape(line)}")
    hint = with_program(error.hint, program_name())
    if hint:
        console.print(f"[bold]hint:[/bold] {escape(hint)}")
    if as_json:
        import msgspec  # noqa: PLC0415 - needed only for JSON

        document = {
            "error": {"fact": error.fact, "detail": error.detail, "hint": hint, "exit_code": int(error.exit_code)}
        }
        sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
