"""Moves the fragments of changelog.d into CHANGELOG.md, each as an item below the heading of its type.

    .venv/bin/python tools/changelog.py 0.3.0 2026-11-30

A version that the changelog has already gets the items added to it; a new one is put first. Edit the result for readers.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
HEADINGS = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "measurement": "Measurements"}


def add_items(changelog: str, items: dict[str, list[str]], *, version: str, date: str) -> str:
    """Return the changelog with items, by type, in the section of a version."""
    sections = re.split(r"^(?=## )", changelog, flags=re.MULTILINE)
    head = f"## {version} ({date})\n"
    numbers = [number for number, section in enumerate(sections) if section.startswith(f"## {version} ")]
    if not numbers:
        sections.insert(1, head)
    number = numbers[0] if numbers else 1
    parts = re.split(r"^(?=### )", sections[number], flags=re.MULTILINE)
    held = {part.split("\n", 1)[0].removeprefix("### "): part.rstrip() for part in parts[1:]}
    for kind, heading in HEADINGS.items():
        for item in items.get(kind, []):
            before = held.setdefault(heading, f"### {heading}\n")
            held[heading] = f"{before}\n{_indent(item)}"
    order = sorted(held, key=lambda heading: list(HEADINGS.values()).index(heading))
    sections[number] = "\n\n".join([parts[0].strip(), *(held[heading] for heading in order)]) + "\n\n"
    return "".join(sections).rstrip() + "\n"


def main() -> None:
    """Add all fragments, then remove them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("date")
    asked = parser.parse_args()
    paths = sorted(path for path in (TREE / "changelog.d").glob("*.md") if path.name != "README.md")
    items: dict[str, list[str]] = {}
    for path in paths:
        kind = path.stem.rpartition(".")[2]
        if kind not in HEADINGS:
            parser.error(f"{path} has none of the types {', '.join(HEADINGS)}")
        items.setdefault(kind, []).append(path.read_text(encoding="utf-8").strip())
    changelog = TREE / "CHANGELOG.md"
    text = add_items(changelog.read_text(encoding="utf-8"), items, version=asked.version, date=asked.date)
    changelog.write_text(text, encoding="utf-8")
    for path in paths:
        path.unlink()


def _indent(text: str) -> str:
    return "- " + re.sub(r"\n(?=[^\n])", "\n  ", text)


if __name__ == "__main__":
    main()
