"""A copy of the program that knows nothing of the newest PostgreSQL: its files of facts lack that version.

So the real newest server is, for this copy, newer than all that it was tried with. Nothing else of it differs.
"""

from __future__ import annotations

import importlib.resources
import json
import re
import shutil
from pathlib import Path
from typing import Any

from pgdyno.facts.versions import NEWEST_TRIED_MAJOR, TRIED_MAJORS, covers

UNKNOWN = NEWEST_TRIED_MAJOR
LEFT = tuple(major for major in TRIED_MAJORS if major != UNKNOWN)
_RANGED_LINE = re.compile(r'^(?P<key>read|names)\."(?P<versions>[^"]+)" = .*\n', re.MULTILINE)


def copy_with_older_facts(folder: Path) -> Path:
    """Make the copy in `folder`; returns what PYTHONPATH must name."""
    package = folder / "pgdyno"
    with importlib.resources.as_file(importlib.resources.files("pgdyno")) as source:
        # With the compiled modules, whose sources keep their times: none is compiled again. Those that another test is just
        # compiling have other names until they are whole.
        shutil.copytree(source, package, ignore=shutil.ignore_patterns("*.pyc.*"))
    facts = package / "facts"
    _edit(facts / "versions.py", _forget_majors)
    _edit(facts / "views.toml", _cut_lines)
    _edit(facts / "wait_events.toml", _cut_lines)
    _edit(facts / "gucs.json", _cut_catalogue)
    return folder


def _edit(path: Path, change: Any) -> None:
    text = path.read_text(encoding="utf-8")
    changed = change(text)
    assert changed != text, path
    path.write_text(changed, encoding="utf-8")


def _forget_majors(text: str) -> str:
    text = re.sub(r"^TRIED_MAJORS = .*$", f"TRIED_MAJORS = {LEFT}", text, flags=re.MULTILINE)
    return re.sub(r"^CATALOGUED_MAJORS = .*$", "CATALOGUED_MAJORS = ()", text, flags=re.MULTILINE)


def _cut_lines(text: str) -> str:
    return _RANGED_LINE.sub(_cut_line, text)


def _cut_line(line: re.Match[str]) -> str:
    kept = _cut_range(line["versions"])
    return "" if kept is None else line[0].replace(f'"{line["versions"]}"', f'"{kept}"', 1)


def _cut_catalogue(text: str) -> str:
    document = json.loads(text)
    del document["servers"][str(UNKNOWN)]
    rows = [_cut_row(row) for row in document["settings"] if _cut_range(row.get("versions", "15")) is not None]
    return json.dumps({**document, "settings": rows})


def _cut_row(row: dict[str, Any]) -> dict[str, Any]:
    cut = {key: _cut_value(value) if key != "aliases" else value for key, value in row.items()}
    return {**cut, "versions": _cut_range(row["versions"])} if "versions" in row else cut


def _cut_value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {kept: one for versions, one in value.items() if (kept := _cut_range(versions)) is not None}


def _cut_range(versions: str) -> str | None:
    """What is left of `15-18` or `16, 18`, one by one; None where nothing is."""
    return ", ".join(str(major) for major in LEFT if covers(versions, major)) or None
