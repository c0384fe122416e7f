"""The papers and the tree agree: every file and heading that a page names exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import TREE

# The changelog tells of files as they were at its time.
PAGES = sorted(
    path
    for pattern in ("*.md", "deploy/*.md", "docs/**/*.md", "changelog.d/*.md")
    for path in TREE.glob(pattern)
    if path.name != "CHANGELOG.md"
)
CODE = sorted(
    path for pattern in ("src/**/*.py", "benchmarks/*.py", "studies/**/*.toml") for path in TREE.glob(pattern)
)
FOLDERS = ("benchmarks", "changelog.d", "deploy", "docs", "src", "studies", "tests", "tools", ".ci")
PACKAGE = TREE / "src" / "pgdyno"
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name.isalpha())
HELP = TREE / "tests" / "cli" / "golden"
COMMAND = re.compile(r"(?:`|\./|sudo )pgdyno ([a-z][a-z-]*)([^`|\n]*)")
WORD = re.compile(r"[\w./*<>{}$…:+-]+")


def read_prose(page: Path) -> str:
    """The text of a page without its blocks of code, which show what programs print."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def find_links(page: Path) -> Iterator[str]:
    for match in re.finditer(r"\]\(([^)\s]+)\)", read_prose(page)):
        if not re.match(r"[a-z]+://|mailto:", match[1]):
            yield match[1]


def find_paths(text: str) -> Iterator[str]:
    """Words that begin like a path of this tree, or of the package; those with a placeholder are left out."""
    for match in WORD.finditer(text):
        path = match[0].removeprefix("./").split("::")[0].rstrip(".:,")
        first, slash, rest = path.partition("/")
        if not slash or re.search(r"[*<>{}$…]|NAME|NNNN", path):
            continue
        if (first in FOLDERS and rest) or (first in ROOMS and path.endswith((".py", "/"))):
            yield path


def name_heading(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def find_anchors(page: Path) -> set[str]:
    return {name_heading(match[1]) for match in re.finditer(r"^#+ (.+)$", read_prose(page), re.MULTILINE)}


def is_broken(link: str, page: Path) -> bool:
    target, _, anchor = link.partition("#")
    file = page.parent / target if target else page
    return not file.exists() or bool(anchor and anchor not in find_anchors(file))


def is_gone(path: str) -> bool:
    return not (TREE / path).exists() and not (PACKAGE / path).exists()


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(TREE)}: {link}" for page in PAGES for link in find_links(page) if is_broken(link, page)
    ]
    assert not broken, "links to what is not there:\n" + "\n".join(broken)


def test_named_files_exist() -> None:
    named = [(page, path) for page in PAGES for path in find_paths(read_prose(page))]
    named += [
        (file, path)
        for file in CODE
        for path in find_paths(file.read_text(encoding="utf-8"))
        if path.startswith("docs/")
    ]
    gone = [f"{page.relative_to(TREE)}: {path}" for page, path in named if is_gone(path)]
    assert len(named) > 100
    assert not gone, "names of files that are not there:\n" + "\n".join(gone)


@pytest.mark.parametrize("wrong", ["[x](gone.md)", "[x](#gone)", "[x](../page.md)"])
def test_a_broken_link_is_found(tmp_path: Path, wrong: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A `b`, c\n[x](#a-b-c) {wrong}\n```\n[x](none.md)\n```\n", encoding="utf-8")
    assert [is_broken(link, page) for link in find_links(page)] == [False, True]


def test_a_wrong_path_is_found() -> None:
    text = "`tests/gone.py`, run/host/gone.py. `README.md` (docs/adr/) tests/NAME.py and/or run/host/process.py"
    assert [path for path in find_paths(text) if is_gone(path)] == ["tests/gone.py", "run/host/gone.py"]


def find_unknown(command: str, words: str) -> list[str]:
    """What the help of a command does not know, of words that follow it; the command itself if there is none of that name."""
    file = HELP / f"{command}.txt"
    if not file.exists():
        return [command]
    known = set(re.findall(r"--[a-z-]+", file.read_text(encoding="utf-8")))
    return [option for option in re.findall(r"(?<!\S)--[a-z-]+", words) if option not in known]


def test_shown_commands_exist() -> None:
    """Commands to type, and the options in the tables of a command's page."""
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    typed = [(page, match[1], match[2]) for page, text in texts.items() for match in COMMAND.finditer(text)]
    typed += [
        (page, page.stem, match[1])
        for page, text in texts.items()
        if (HELP / f"{page.stem}.txt").exists()
        for match in re.finditer(r"^\| `(--[^`]*)`", text, re.MULTILINE)
    ]
    unknown = [
        f"{page.relative_to(TREE)}: {command} {words}" for page, command, words in typed if find_unknown(command, words)
    ]
    assert len(typed) > 60
    assert not unknown, "commands that are not there:\n" + "\n".join(unknown)
    assert (find_unknown("bench", " --quick --gone"), find_unknown("gone", "")) == (["--gone"], ["gone"])


def test_readme_is_short() -> None:
    assert len((TREE / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
