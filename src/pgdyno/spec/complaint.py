"""Translate msgspec's validation errors of a TOML file into messages for its author.

The module knows TOML and the types of tables, but not their meaning; the module that reads the file gives the hint.
"""

from __future__ import annotations

import difflib
import enum
import re
import typing

import msgspec

_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_EXPECTED = re.compile(r"expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`", re.IGNORECASE)
_NO_CHOICE = re.compile(r"invalid enum value (?P<value>.*)", re.IGNORECASE)
_UNKNOWN = re.compile(r"unknown field `(?P<key>[^`]*)`")
_MISSING = re.compile(r"object missing required field `(?P<key>[^`]*)`", re.IGNORECASE)
_PATH = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_HEADER = re.compile(r"\s*(?P<brackets>\[{1,2})\s*(?P<name>[^\]]+?)\s*\]")
_KEY = re.compile(r"\s*(?P<name>[\w\"'.-]+)\s*=")
_PART = re.compile(r"(?P<name>[^\[]+)(?:\[(?P<index>\d+)\])?")


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """A validation error: its location, the fact, and what would be valid."""

    path: str
    """Path of the key or table, such as `workload[1].clients`; empty for the whole document."""
    fact: str
    """The error, in lower case."""
    keys: tuple[str, ...]
    """Keys that the table accepts."""
    nearest: str
    """Known key that is similar to an unknown one; empty if there is none, and for known keys."""
    is_unknown: bool
    """Whether the table has no such key."""
    choices: tuple[str, ...]
    """Values that the key accepts, if their number is limited."""

    @property
    def key(self) -> str:
        """Last part of the path."""
        return self.path.rpartition(".")[2]


def read_complaint(message: str, root: type[msgspec.Struct]) -> Complaint:
    """Parse a validation error of msgspec.

    Args:
        message: Text of the ValidationError.
        root: Type into which the document was converted.
    """
    found = _PATH.search(message)
    path = found["path"].lstrip(".") if found else ""
    fact = _PATH.sub("", message)
    name = _split_index(path.replace("[...]", "").rpartition(".")[2])[0]
    if name:
        fact = _NO_CHOICE.sub(rf"{name} \g<value> is not known", _EXPECTED.sub(rf"{name}: \g<0>", fact))
    fact = _MISSING.sub(r"\g<key> is missing", _EXPECTED.sub(_format_type_mismatch, fact))
    unknown = _UNKNOWN.search(fact)
    if unknown:
        path = f"{path}.{unknown['key']}".lstrip(".")
        fact = f"unknown key {unknown['key']}"
    # Messages of our own checks begin with the key; msgspec names only the table.
    first = fact.split(maxsplit=1)[0]
    if first in _all_keys(root) and path.rpartition(".")[2] != first:
        path = f"{path}.{first}".lstrip(".")
    fields, key = _fields_at(root, path), path.rpartition(".")[2]
    nearest = difflib.get_close_matches(key, fields, n=1) if unknown else []
    return Complaint(
        path=path,
        fact=fact[:1].lower() + fact[1:],
        keys=tuple(fields),
        nearest=next(iter(nearest), ""),
        is_unknown=unknown is not None,
        choices=_choices_of(fields.get(key)),
    )


def find_line(text: str, path: str) -> int | None:
    """Find the 1-based line of a dotted key such as `workload[1].clients` in a TOML text, or else of its table.

    Headers and `key =` lines are read one by one, which is how studies are written. Return None if nothing matches.
    """
    wanted = [_split_index(part) for part in path.replace("[...]", "").split(".")]
    table: list[tuple[str, int | None]] = []
    counts: dict[tuple[str, ...], int] = {}
    line_number, depth = None, 0
    for number, line in enumerate(text.splitlines(), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header is not None:
            names = tuple(_split_names(header["name"]))
            if len(header["brackets"]) == 2:
                counts = _count_table(names, counts)
            table = [(name, counts.get(names[:length])) for length, name in enumerate(names, start=1)]
            here = table
        elif key is not None:
            here = [*table, *((name, None) for name in _split_names(key["name"]))]
        else:
            continue
        common = min(len(here), len(wanted))
        if common > depth and all(map(_is_same, here[:common], wanted[:common])):
            line_number, depth = number, common
    return line_number


def name_line(source: str, text: str, path: str) -> str:
    """Name where a dotted key stands, for an error: the file with the line, or the file alone if none is found."""
    line = find_line(text, path)
    return f"{source}, line {line}" if line else source


def suggest_toml(message: str, example: str) -> str:
    """Return the hint of a text that is no TOML; `example` is a line of such a file with a value in quotes."""
    if message.startswith(("Invalid value", "Expected newline")):
        return f"text needs quotes: {example}"
    if message.startswith(("Unclosed array", "Unclosed inline table")):
        # For the parser, 30s without quotes leaves its list unclosed, too.
        return f"a list ends with ], an inline table with }} in the same line, and text needs quotes: {example}"
    if message.startswith(("Cannot ", "Duplicate inline table key")):
        return "name each key and each table once"
    return f"a line is a [table], or a key and its value: {example}"


def _count_table(names: tuple[str, ...], counts: dict[tuple[str, ...], int]) -> dict[tuple[str, ...], int]:
    """Return the indices of the last tables of each list, after one more of a list; the lists within it begin anew."""
    others = {table: count for table, count in counts.items() if table[: len(names)] != names}
    return {**others, names: counts.get(names, -1) + 1}


def _split_names(dotted: str) -> list[str]:
    return [name.strip().strip("\"'") for name in dotted.split(".")]


def _split_index(part: str) -> tuple[str, int | None]:
    found = _PART.fullmatch(part)
    if found is None:
        return part, None
    return found["name"], None if found["index"] is None else int(found["index"])


def _is_same(here: tuple[str, int | None], wanted: tuple[str, int | None]) -> bool:
    return here[0] == wanted[0] and (None in {here[1], wanted[1]} or here[1] == wanted[1])


def _format_type_mismatch(found: re.Match[str]) -> str:
    """Format a mismatch of types in plain words."""
    wanted = [_TYPES.get(name, name) for name in found["wanted"].split(" | ") if name != "null"]
    return f"expected {' or '.join(wanted)}, got {_TYPES.get(found['got'], found['got'])}"


def _fields_at(root: type[msgspec.Struct], path: str) -> dict[str, object]:
    """Return the types of the keys in the table that contains a path's last key; empty if there is no such table."""
    table: type[msgspec.Struct] | None = root
    for part in path.replace("[...]", "").split(".")[:-1]:
        if table is not None:
            table = _table_of(_fields_of(table).get(_split_index(part)[0]))
    return {} if table is None else _fields_of(table)


def _fields_of(table: type[msgspec.Struct]) -> dict[str, object]:
    return {field.name: field.type for field in msgspec.structs.fields(table)}


def _table_of(kind: object) -> type[msgspec.Struct] | None:
    """Return the table type that a key accepts, alone or in a list; None if it accepts none."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next(filter(None, map(_table_of, typing.get_args(kind))), None)


def _all_keys(table: type[msgspec.Struct]) -> set[str]:
    fields = _fields_of(table)
    below = (_all_keys(inner) for kind in fields.values() if (inner := _table_of(kind)) is not None)
    return set(fields).union(*below)


def _choices_of(kind: object) -> tuple[str, ...]:
    """Return the values that a key accepts, if their number is limited."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return tuple(str(member.value) for member in kind)
    if typing.get_origin(kind) is typing.Literal:
        return tuple(map(str, typing.get_args(kind)))
    return next(filter(None, map(_choices_of, typing.get_args(kind))), ())
