"""Define typer commands that load neither rich nor pydantic.

Typer's own `--help` needs rich and its Markdown parser, which take longer to load than everything else that a command
needs: here the page is plain text. Typer also loads pydantic to convert values, even if none were given.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from typer import BadParameter, echo
from typer.core import TyperCommand, TyperGroup

# Longer lines are hard to read. Longer options have their help text on the next line.
_MOST_COLUMNS = 100
_MOST_NAME_COLUMNS = 26
_BETWEEN_EXAMPLE_AND_WORDS = " · "

_PLACEHOLDERS = {
    "<int>": "N",
    "<float>": "NUMBER",
    "<str>": "TEXT",
    "<list[str]>": "TEXT",
    "<path>": "PATH",
    "<list[Path]>": "PATH",
}
_PAIR = "NAME=VALUE"
VARIED = frozenset(
    {"clients", "threads", "mode", "scale", "endpoint", "pool_size", "server", "cache", "home", "wal_home"}
)
"""Options that have axes of a sweep of the same names."""
# What says how long and how exactly something is measured may come twice, as where an alias has it: the last one holds, and
# a note says so.
_OF_SUBJECT = VARIED | {"rate", "standbys", "pool_mode", "sysctl", "initdb"}

Row = tuple[str, str]


class RepeatedOptionError(BadParameter):
    """An option that takes one value was given several.

    Args:
        option: Its name.
        values: What it was given.
        given: All that the command line gave, by name.
    """

    def __init__(self, option: str, values: Sequence[str], given: Mapping[str, Any]) -> None:
        super().__init__(f"{option} takes one value")
        self.option = option
        self.values = values
        self.given = given


class PlainCommand(TyperCommand):
    """A command whose help page is plain text, and whose options drop no value without a word."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            _keep_default(parameter)

    def get_params(self, ctx: Any) -> Any:
        """Return the options of the command."""
        return _set_flag_defaults(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command line."""
        if not ctx.resilient_parsing:
            _tell_repeated(self, ctx, args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page into typer's formatter."""
        formatter.write("\n".join(_write_page(self, ctx, commands=())))


class PlainGroup(TyperGroup):
    """The program, whose help page is plain text and lists the commands."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options of the program."""
        return _set_flag_defaults(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page into typer's formatter."""
        commands = [(name, _split_paragraphs(self.commands[name])[0]) for name in self.list_commands(ctx)]
        formatter.write("\n".join(_write_page(self, ctx, commands=commands)))


def _keep_default(parameter: Any) -> None:
    """Return the declared default of an option that was not given, without converting it."""
    convert = parameter.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        if value is not parameter.default or parameter.required:
            return convert(ctx, value)
        is_list = parameter.nargs != 1 or getattr(parameter, "multiple", False)
        return () if value is None and is_list else value

    parameter.process_value = process_value


def _tell_repeated(command: PlainCommand, ctx: Any, words: Sequence[str]) -> None:
    """Refuse unlike values of an option that takes one value and says what is measured; note those of any other option.

    Typer drops all but the last without a word.

    Raises:
        RepeatedOptionError: An option was given several.
    """
    parser = command.make_parser(ctx)
    options = [each for each in command.get_params(ctx) if each.param_type_name == "option"]
    once = [each for each in options if not each.multiple and not each.is_flag]
    for option in once:
        twin = copy(option)
        # Of such an option, which takes the place of the other, the parser keeps every value.
        twin.multiple = True
        twin.add_to_parser(parser, ctx)
    given, _, _ = parser.parse_args(args=[*words])
    for option in once:
        if len(set(values := given.get(option.name) or ())) < 2:
            continue
        if option.name in _OF_SUBJECT:
            raise RepeatedOptionError(option.opts[0], values, given)
        echo(f"note: {option.opts[0]} takes one value: the last one given holds", err=True)


def _set_flag_defaults(parameters: list[Any]) -> list[Any]:
    """Give each flag a default, because typer would convert the missing default of its own flags."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.default = parameter.default or False
    return parameters


def _write_page(command: TyperCommand | TyperGroup, ctx: Any, *, commands: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of the help page: usage, description, arguments, options, commands, examples."""
    width = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
    yield from _wrap(" ".join(["Usage:", ctx.command_path, *command.collect_usage_pieces(ctx)]), width, indent=2)
    for paragraph in _split_paragraphs(command):
        yield from ("", *_wrap(paragraph, width))
    parameters = [(each.param_type_name, _read_row(each, ctx)) for each in command.get_params(ctx)]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        yield from _write_rows(title, [row for name, row in parameters if name == kind and row is not None], width)
    yield from _write_rows("Commands", commands, width)
    yield from _write_examples(command.epilog or "", width)


def _read_row(parameter: Any, ctx: Any) -> Row | None:
    """Return the name and help text of a parameter, with a placeholder instead of the type of its value."""
    row = parameter.get_help_record(ctx)
    if row is None:
        return None
    name, words = row
    for kind, placeholder in _PLACEHOLDERS.items():
        if parameter.param_type_name == "argument":
            name = name.removesuffix(f" {kind}")
        else:
            name = name.replace(kind, _PAIR if words.startswith(_PAIR) or f" {_PAIR}" in words else placeholder)
    return name, words


def _split_paragraphs(command: Any) -> list[str]:
    """Return the paragraphs of a command's description; the first one is the summary for lists."""
    return (command.help or "").split("\n\n")


def _write_rows(title: str, rows: Sequence[Row], width: int) -> Iterator[str]:
    """Yield rows of names and help texts; the text of a long name begins on the next line."""
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
    """Yield example commands unwrapped, so that they can be copied, each with its description below."""
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
