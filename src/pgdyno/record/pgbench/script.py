r"""Split a pgbench script into its commands, as pgbench does, and find the variables of its statements.

Source: PostgreSQL 18 src/fe_utils/psqlscan.l, and ParseScript(), parseVariable() and parseQuery() of src/bin/pgbench/pgbench.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

_TOKEN = re.compile(
    r"""(?P<line_comment>--[^\n]*)
      | (?P<block_comment>/\*)
      | [eE]'(?:[^'\\]|\\.|'')*'?
      | '[^']*'?
      | "[^"]*"?
      | (?P<dollar>\$(?:[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*)?\$)
      | [A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]*
      | (?P<escaped>\\[;:])
      | (?P<backslash>\\)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_META = re.compile(r"(?:\\\r?\n|[^\n])*")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_PLANNABLE = re.compile(
    r"(?:\s|\(|/\*.*?\*/)*(?:SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|VALUES|TABLE)\b", re.IGNORECASE | re.DOTALL
)
# A run of several colons is a cast.
_VARIABLE = re.compile(r"(?<!:):([A-Za-z_\x80-\U0010ffff][A-Za-z_0-9\x80-\U0010ffff]*)")
_SET = re.compile(r"\\set\s+(\S+)\s+(.*)", re.DOTALL)
_SET_BY_SHELL = re.compile(r"\\setshell\s+(\S+)")
_KNOWN = ("scale", "client_id", "random_seed", "default_seed")
_PRINTED = re.compile(r"debug\(script=0,command=(\d+)\): \w+(?: (.*))?")


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command of a script: an SQL statement without its semicolon, or a meta-command."""

    text: str

    @property
    def is_plannable(self) -> bool:
        """True for a statement that has a plan."""
        return _PLANNABLE.match(self.text) is not None

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables in it, as often as they occur."""
        return tuple(_VARIABLE.findall(self.text))

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text that pgbench sends in simple mode."""
        return _VARIABLE.sub(lambda found: values.get(found[1], found[0]), self.text)

    def number(self) -> str:
        """Return the text that pgbench sends in the other modes, with a parameter for each occurrence of a variable."""
        numbers = iter(range(1, len(self.variables) + 1))
        return _VARIABLE.sub(lambda _: f"${next(numbers)}", self.text)


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A script without SQL, with which pgbench prints the values of variables."""

    text: str
    """Empty where no value can be drawn."""
    printed: Mapping[int, tuple[int, str]]
    """The number of each command that prints: the place of a command of the script, and its variable."""


def parse_script(text: str) -> tuple[Command, ...]:
    """Return the commands of a script in their order; statements joined by a backslash and a semicolon each by itself."""
    return tuple(Command(text=stripped) for part in _split(text) if (stripped := part.strip()))


def plan_drawing(commands: Sequence[Command]) -> Drawing:
    r"""Return what lets pgbench draw the variables of plannable statements.

    All branches of an \if are taken. What only a statement or a shell would tell stays unknown.
    """
    lines: list[str] = []
    printed: dict[int, tuple[int, str]] = {}
    known = set(_KNOWN)
    for place, command in enumerate(commands):
        if (shell := _SET_BY_SHELL.match(command.text)) is not None:
            known.discard(shell[1])
        elif (setting := _SET.match(command.text)) is not None:
            known.discard(setting[1])
            if known.issuperset(_VARIABLE.findall(setting[2])):
                lines.append(command.text)
                known.add(setting[1])
        elif command.is_plannable:
            for name in sorted(known.intersection(command.variables)):
                lines.append(f"\\set pgdyno_value debug(:{name})")
                printed[len(lines)] = (place, name)
    return Drawing(text="".join(f"{line}\n" for line in lines) if printed else "", printed=printed)


def read_drawing(drawing: Drawing, stderr: str) -> tuple[dict[int, dict[str, str]], ...]:
    """Return the values of each transaction that pgbench printed: by the place of a command, by variable."""
    draws: list[dict[int, dict[str, str]]] = []
    last = 0
    for number, value in _list_printed(stderr):
        if number not in drawing.printed:
            continue
        if not draws or number <= last:
            draws.append({})
        last = number
        place, name = drawing.printed[number]
        draws[-1].setdefault(place, {})[name] = value
    return tuple(draws)


def _list_printed(stderr: str) -> Iterator[tuple[int, str]]:
    for line in stderr.splitlines():
        if (found := _PRINTED.fullmatch(line)) is not None:
            yield int(found[1]), found[2] or "NULL"


def _split(text: str) -> Iterator[str]:
    kept: list[str] = []
    depth = at = 0
    while (token := _TOKEN.match(text, at)) is not None:
        kind, part, at = token.lastgroup, token[0], token.end()
        if kind == "backslash":
            yield "".join(kept)
            meta = _META.match(text, token.start())
            part, at = (part, at) if meta is None else (meta[0], meta.end())
            yield part
            kept, depth = [], 0
            continue
        if kind == "block_comment":
            at = _end_comment(text, at)
        elif kind == "dollar":
            end = text.find(part, at)
            at = len(text) if end < 0 else end + len(part)
        depth = max(0, depth + (part == "(") - (part == ")"))
        if part == "\\;" or (part == ";" and depth == 0):
            yield "".join(kept)
            kept = []
        elif kind == "escaped":
            kept.append(part[1:])
        elif kind != "line_comment":
            kept.append(text[token.start() : at])
    yield "".join(kept)


def _end_comment(text: str, at: int) -> int:
    """Return where a comment ends whose beginning was read; comments nest."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
