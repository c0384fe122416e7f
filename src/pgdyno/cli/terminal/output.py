"""Print results and errors, on the terminal or as JSON."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import NoReturn, Protocol, runtime_checkable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.segment import Segment

from pgdyno.errors import PgdynoError, with_program
from pgdyno.run.host.program import machine_name, program_name

_UNWRAPPED_WIDTH = 200
# Names in a record that somebody else made could move the cursor, or set the terminal's title.
_CONTROLS = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")})


@runtime_checkable
class Result(Protocol):
    """The result of a flow."""

    def to_json(self) -> bytes:
        """Return the result as one JSON document."""

    def to_terminal(self) -> RenderableType:
        """Return the result for the terminal."""


class ClosedStdout(io.TextIOBase):
    """Stands for a stdout that is closed, into which Python, click and rich write nothing without a word."""

    @property
    def buffer(self) -> NoReturn:
        """Refuse to be written."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdout")

    def write(self, _text: str, /) -> NoReturn:
        """Refuse to be written."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdout")


class PipedConsole(Console):
    """A console that leaves a closed pipe to `session`: rich would exit with 1, which says that a gate failed."""

    def on_broken_pipe(self) -> None:
        """Raise the error again."""
        raise BrokenPipeError


def write_out(content: str | bytes) -> None:
    """Write to stdout and flush it: a failure at exit would have a code of Python's own.

    Raises:
        OSError: It cannot be written, or is closed.
    """
    if isinstance(content, str):
        sys.stdout.write(content)
    else:
        sys.stdout.buffer.write(content)
    sys.stdout.flush()


def show_result(result: Result, *, as_json: bool) -> None:
    """Print a flow's result on stdout."""
    if as_json:
        write_out(result.to_json().rstrip() + b"\n")
        return
    # A path may hold what rich takes for a style.
    console = PipedConsole(highlight=False, markup=False)
    if not console.is_terminal:
        # A file or a pipe has no screen width.
        console.width = _UNWRAPPED_WIDTH
    console.print(_Harmless(result.to_terminal()))


class _Harmless:
    """What is printed, without the control characters that its words may have.

    Args:
        content: What is printed.
    """

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the pieces of the content."""
        for piece in console.render(self._content, options):
            yield piece if piece.control else Segment(piece.text.translate(_CONTROLS), piece.style)


def show_error(error: PgdynoError, *, as_json: bool) -> None:
    """Print an error (fact, detail, hint) on stderr, and with --json also on stdout."""
    console = PipedConsole(stderr=True, highlight=False, soft_wrap=True)
    machine = machine_name()
    place = "" if machine is None else f" on {machine}"
    fact, detail, hint = map(_as_utf8, (error.fact, error.detail, with_program(error.hint, program_name())))
    console.print(f"[bold red]error{escape(place)}:[/bold red] {_escape(fact)}")
    for line in detail.splitlines():
        console.print(f"  {_escape(line)}")
    if hint:
        console.print(f"[bold]hint:[/bold] {_escape(hint)}")
    if as_json:
        import msgspec  # noqa: PLC0415 - needed only for JSON

        document = {"error": {"fact": fact, "detail": detail, "hint": hint, "exit_code": int(error.exit_code)}}
        write_out(msgspec.json.encode(document) + b"\n")


def _as_utf8(words: str) -> str:
    """Return words with escapes for bytes of file names that are not UTF-8, which JSON cannot hold."""
    return words.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _escape(words: str) -> str:
    return escape(words.translate(_CONTROLS))
