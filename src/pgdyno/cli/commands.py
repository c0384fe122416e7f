"""Typer's commands, without what takes it long to load.

Its own `--help` needs rich and its reader of Markdown, which take longer than all that a command loads before it begins
its work: here the page is plain text. And it loads pydantic to convert what was typed, also where nothing was.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

# Longer lines are hard to read, and options longer than this have their words below them.
_MOST_COLUMNS = 100
_MOST_NAME_COLUMNS = 26
_BETWEEN_EXAMPLE_AND_WORDS = " · "

Row = tuple[str, str]


class PlainCommand(TyperCommand):
    """Shows the page of a command."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            _keep_default(parameter)

    def get_params(self, ctx: Any) -> Any:
        """Return the options of the command."""
        return _lower_flags(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page into typer's formatter."""
        formatter.write("\n".join(_write_page(self, ctx, commands=())))


class PlainGroup(TyperGroup):
    """Shows the page of the program, with its commands."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options of the program."""
        return _lower_flags(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page into typer's formatter."""
        commands = [(name, _split_paragraphs(self.commands[name])[0]) for name in self.list_commands(ctx)]
        formatter.write("\n".join(_write_page(self, ctx, commands=commands)))


def _keep_default(parameter: Any) -> None:
    """Leave the default of an option that was not given as it is declared, instead of converting it."""
    convert = parameter.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        if value is not parameter.default or parameter.required:
            return convert(ctx, value)
        is_list = parameter.nargs != 1 or getattr(parameter, "multiple", False)
        return () if value is None and is_list else value

    parameter.process_value = process_value


def _lower_flags(parameters: list[Any]) -> list[Any]:
    """Give each flag a default: typer's own have none, which it would convert to learn that they are not given."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.default = parameter.default or False
    return parameters


def _write_page(command: TyperCommand | TyperGroup, ctx: Any, *, commands: Sequence[Row]) -> Iterator[str]:
    """Yield the lines: usage, what it does, arguments, options, commands, examples."""
    width = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
    yield from _wrap(" ".join(["Usage:", ctx.command_path, *command.collect_usage_pieces(ctx)]), width, indent=2)
    for paragraph in _split_paragraphs(command):
        yield from ("", *_wrap(paragraph, width))
    parameters = [(each.param_type_name, each.get_help_record(ctx)) for each in command.get_params(ctx)]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        yield from _write_rows(title, [row for name, row in parameters if name == kind and row is not None], width)
    yield from _write_rows("Commands", commands, width)
    yield from _write_examples(command.epilog or "", width)


def _split_paragraphs(command: Any) -> list[str]:
    """Return what a command says of itself; the first paragraph is for lists."""
    return (command.help or "").split("\n\n")


def _write_rows(title: str, rows: Sequence[Row], width: int) -> Iterator[str]:
    """Yield names with their words beside them, and below a name that is too long for that."""
    if not rows:
        return
    yield from ("", f"{title}:")
    most = min(_MOST_NAME_COLUMNS, width // 3)
    column = 4 + max(min(len(name), most) for name, _ in rows)
    for name, words in rows:
        first, *rest = _wrap(words, width - column) or [""]
        if len(name) <= most:
            yield f"  {name:<{column - 2}}{first}".rstrip()
        else:
            yield from (f"  {name}", " " * column + first)
        yield from (" " * column + line for line in rest)


def _write_examples(epilog: str, width: int) -> Iterator[str]:
    """Yield commands as they can be copied, however long, each with its words below it."""
    title, *examples = epilog.split("\n\n")
    if title:
        yield from ("", title)
    for example in examples:
        command, _, words = example.partition(_BETWEEN_EXAMPLE_AND_WORDS)
        yield "  " + command.strip("`")
        yield from (" " * 6 + line for line in _wrap(words, width - 6))


def _wrap(words: str, width: int, *, indent: int = 0) -> list[str]:
    # A name such as tpcb-like is one word.
    return textwrap.wrap(
        " ".join(words.split()),
        max(width, 20),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
