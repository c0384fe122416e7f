"""Writes the tables of docs/how-we-know.md from the figures that the benchmarks printed, kept in docs/figures/*.jsonl.

A table of the page stands behind a comment that has the same table with a name in place of each figure:

    <!-- figures
    | transactions a second | {ingest.rate.value / 1e6 : .1f} million | {ingest.rate.n} |
    -->

A name is that of a figure, then one of its fields: value, low, high or n. It may be followed by a factor (* or /) and by a
format of Python. In a name, `[a,b,c]` makes a cell of each. What a figure lacks is an empty cell.

    .venv/bin/python tools/figures.py                     writes the page's tables
    .venv/bin/python benchmarks/ingest.py | .venv/bin/python tools/figures.py ingest
                                                          first takes the new figures into docs/figures/ingest.jsonl
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[1]
PAGE = TREE / "docs" / "how-we-know.md"
FIGURES = TREE / "docs" / "figures"
FIELDS = ("figure", "value", "low", "high", "n", "unit", "target", "holds", "command", "date")

Figures = dict[str, dict[str, Any]]

_TABLE = re.compile(r"(<!-- figures\n)(.*?)(\n-->\n)(?:\|[^\n]*\n)*", re.DOTALL)
_NAME = re.compile(
    r"\{(?P<figure>[^{}:*/\s]+)\.(?P<field>value|low|high|n)"
    r"(?: (?P<sign>[*/]) (?P<factor>[0-9.e]+))?(?: : (?P<format>[^}]+))?\}"
)
_SEVERAL = re.compile(r"\[([^\[\]{}]*,[^\[\]{}]*)\](?=[^{}|]*\})")


def read_figures(folder: Path = FIGURES) -> Figures:
    """Read all figures, by name.

    Raises:
        ValueError: Two lines have the same name.
    """
    figures: Figures = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if line["figure"] in figures:
                raise ValueError(f"{path}: {line['figure']} is there twice")
            figures[line["figure"]] = line
    return figures


def fill_page(page: str, figures: Figures) -> str:
    """Return the page with each table written from its comment.

    Raises:
        KeyError: A table names a figure that is not there.
    """
    return _TABLE.sub(lambda match: "".join((*match.groups(), fill_table(match[2], figures), "\n")), page)


def fill_table(table: str, figures: Figures) -> str:
    """Return a table with figures in place of their names."""
    return _NAME.sub(lambda match: _show(match, figures), "\n".join(map(_expand, table.splitlines())))


def list_names(page: str) -> set[str]:
    """List the figures that a page's tables name."""
    tables = [_expand(line) for match in _TABLE.finditer(page) for line in match[2].splitlines()]
    return {match["figure"] for line in tables for match in _NAME.finditer(line)}


def merge_lines(kept: Iterable[str], printed: Iterable[str], *, date: str) -> list[str]:
    """Return the lines of a file of figures, with those that a benchmark has just printed in place of the old ones."""
    lines = {line["figure"]: line for line in map(json.loads, kept)}
    for text in printed:
        if text.startswith('{"figure"'):
            line = json.loads(text)
            command = lines.get(line["figure"], {}).get("command")
            lines[line["figure"]] = {"command": command, **line, "date": date}
    return [json.dumps({field: line.get(field) for field in FIELDS}, ensure_ascii=False) for line in lines.values()]


def main() -> None:
    """Take the figures on stdin into the named file, if one is named; then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="of the file that the figures on stdin belong to")
    if (name := parser.parse_args().name) is not None:
        path = FIGURES / f"{name}.jsonl"
        kept = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        lines = merge_lines(kept, sys.stdin, date=dt.datetime.now(dt.UTC).date().isoformat())
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8"), read_figures()), encoding="utf-8")


def _expand(row: str) -> str:
    """Return a row with a cell for each of the words in brackets."""
    cells = row.split("|")
    expanded = []
    for cell in cells:
        several = _SEVERAL.search(cell)
        words = several[1].split(",") if several else [""]
        expanded += [
            cell[: several.start()] + word.strip() + cell[several.end() :] if several else cell for word in words
        ]
    return "|".join(expanded)


def _show(match: re.Match[str], figures: Figures) -> str:
    value = figures[match["figure"]][match["field"]]
    if value is None:
        return ""
    if match["factor"]:
        value = value * float(match["factor"]) if match["sign"] == "*" else value / float(match["factor"])
    return format(value, (match["format"] or "").strip())


if __name__ == "__main__":
    main()
