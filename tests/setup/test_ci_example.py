"""The example of a workflow runs commands of this pgdyno, and its page shows the same command."""

from __future__ import annotations

import re

from .conftest import TREE
from .test_papers import find_unknown

WORKFLOW = TREE / "docs" / "guide" / "ci-workflow.yml"
PAGE = TREE / "docs" / "guide" / "ci.md"


def find_commands(text: str) -> list[str]:
    """Commands of pgdyno, each on one line."""
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    return [match[1] for match in re.finditer(r"pgdyno/pgdyno ([a-z].*)", joined)]


def test_the_example_uses_commands_and_options_that_exist() -> None:
    commands = find_commands(WORKFLOW.read_text(encoding="utf-8"))
    assert [command.split()[0] for command in commands] == ["compare"]
    for command in commands:
        name, _, words = command.partition(" ")
        assert "--fail-if slower" in words
        assert not find_unknown(name, words)
    assert find_commands(PAGE.read_text(encoding="utf-8")) == commands


def test_the_example_is_indented_by_twos_and_without_tabs() -> None:
    for line in WORKFLOW.read_text(encoding="utf-8").splitlines():
        assert "\t" not in line
        assert (len(line) - len(line.lstrip(" "))) % 2 == 0
        assert len(line) <= 120
