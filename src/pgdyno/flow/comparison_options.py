"""Read what the command line says of variants and axes: pairs of a name and a value, servers, and levels."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from pgdyno.errors import SpecError
from pgdyno.spec.variant import SweepSpec, fold_name, is_server_folder

_EXAMPLES = {
    "clients": "1..64",
    "threads": "1,2,4",
    "load_hosts": "1,2",
    "mode": "simple,prepared",
    "scale": "1,10,100",
    "endpoint": "primary,pool",
    "pool_size": "2..32",
    "server": "15,embedded",
    "cache": "warm,cold",
    "home": "/mnt/a,/mnt/b",
    "wal_home": "none,/mnt/wal",
    "checksums": "on,off",
    "wal_segment_size": "16MB,64MB",
    "encoding": "UTF8,SQL_ASCII",
    "locale": "C,C.UTF-8",
    "locale_provider": "libc,icu",
    "commit_delay": "0,50,100",
}
_AXIS = re.compile(r"(?P<name>[A-Za-z_][\w./:-]*)=(?P<levels>.+)")
# A comma in quotes or parentheses, of which one pair may hold others, belongs to its level, as in synchronous_standby_names=ANY 1 (standby1,standby2),standby1.
_LEVEL = re.compile(r"""((?:\((?:[^()]|\([^()]*\))*\)|"[^"]*"|'[^']*'|[^,])*),""")
_RANGE = re.compile(r"(?P<first>[0-9]{1,12})\.\.(?P<last>[0-9]{1,12})")


def read_server(said: str, text: str, folder: Path) -> str:
    """Read a server that an option names: `embedded`, a major version, or a folder, whose absolute path is returned.

    Args:
        said: The option or axis, for errors.
        text: The name.
        folder: Where relative paths begin.

    Raises:
        SpecError: It is none of these.
    """
    if not is_server_folder(text):
        return text
    if not text or not os.path.isdir(folder / text):  # noqa: PTH112 - False, not an error, in a folder that is closed to us
        raise SpecError(
            f"{said}: neither `embedded` nor a major version nor a folder",
            hint="for example --server 15 --server embedded, or the folder with postgres and initdb in it",
        )
    return str((folder / text).absolute())


def parse_pairs(said: str, text: str) -> dict[str, str]:
    """Parse `NAME=VALUE` pairs, with quotes and spaces as the shell has them.

    Args:
        said: The option, for errors.
        text: The pairs.

    Raises:
        SpecError: A word is no such pair, or a name comes twice.
    """
    pairs: dict[str, str] = {}
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise SpecError(f"{said}: {exc}", hint="quotes come in pairs") from exc
    for word in words or [""]:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise SpecError(
                f"{said}: not of the form NAME=VALUE",
                hint='for example --set commit_delay=50, or several at once: --set "commit_delay=50 commit_siblings=10"',
            )
        if fold_name(name) in map(fold_name, pairs):
            raise SpecError(f"{said}: {name} comes twice", hint="a variant for each value takes an option for each")
        pairs[name] = value
    return pairs


def read_axis(text: str, folder: Path) -> SweepSpec:
    """Read an axis of a sweep, `NAME=LEVEL,LEVEL,…`.

    Args:
        text: The axis.
        folder: Where relative paths of servers begin.

    Raises:
        SpecError: It is no axis, or has a level that its name does not take.
    """
    found = _AXIS.fullmatch(text)
    if found is None and "<" in text:
        raise SpecError(f"{text} is no axis", hint="a latency limit is written `pgdyno sweep 'latency<20ms@p99'`")
    if found is None:
        raise SpecError(
            f"{text} is no axis",
            hint="an axis is NAME=LEVEL,LEVEL,… or NAME=FIRST..LAST: for example clients=1..64, commit_delay=0,50,100 or"
            " mode=simple,prepared",
        )
    name, levels = found["name"], read_levels(text, found["levels"])
    if name == "server":
        levels = [read_server(text, level, folder) for level in levels]
    try:
        return SweepSpec(name=name, levels=tuple(levels))
    except ValueError as exc:
        reason = str(exc).removeprefix(f"levels of {name}: ")
        raise SpecError(f"{text}: {reason}", hint=_give_example(name)) from exc


def _give_example(name: str) -> str:
    """Give an example of an axis with this name, or with one that is similar."""
    near = next(iter(difflib.get_close_matches(name.lower(), _EXAMPLES, n=1, cutoff=0.8)), None)
    asked = "" if near in {None, name} else f"did you mean {near}? "
    known = near or "commit_delay"
    return f"{asked}for example {known}={_EXAMPLES[known]}; `pgdyno sweep --help` explains axes"


def refuse_held(axes: Sequence[SweepSpec], held: Collection[str]) -> None:
    """Refuse an axis of what an option fixes for all levels.

    Args:
        axes: The axes.
        held: Names of what options fix.

    Raises:
        SpecError: There is one.
    """
    for axis in axes:
        if fold_name(axis.name) in map(fold_name, held):
            raise SpecError(
                f"an axis varies {axis.name}, and an option says what it is for all levels",
                hint="leave one of them out",
            )


def read_levels(text: str, levels: str) -> list[str]:
    """Read the levels of the axis `text`: `level,level,...`, in which `first..last` doubles from level to level.

    Raises:
        SpecError: One is empty, or no range.
    """
    return [level for piece in _LEVEL.findall(f"{levels},") for level in _read_piece(text, piece.strip())]


def _read_piece(text: str, piece: str) -> list[str]:
    """Read one level, or all levels of a range."""
    span = _RANGE.fullmatch(piece)
    if span is None:
        if not piece:
            raise SpecError(f"{text}: a level is empty", hint="a comma stands between two levels: clients=1,8,64")
        if ".." in piece.partition("/")[0]:
            raise SpecError(
                f"{text}: {piece} is no range", hint="a range is of two whole numbers, the smaller first: clients=1..64"
            )
        return [piece]
    first, last = int(span["first"]), int(span["last"])
    if first >= last:
        raise SpecError(
            f"{text}: {piece} is no range", hint=f"the smaller first: {min(first, last)}..{max(first, last)}"
        )
    return [str(level) for level in _double(first, last)]


def _double(first: int, last: int) -> list[int]:
    levels = [first]
    while (level := max(1, levels[-1] * 2)) < last:
        levels.append(level)
    return [*levels, last]
