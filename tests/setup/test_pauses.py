"""Pausing tests: only their own code, where the seed says, and what a test takes for granted meanwhile is found."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

import pytest

from tests.pauses import Pauser

RACE = """
from textwrap import dedent

held = {"it": "here"}

def look():
    return read() if "it" in held else "not there"

def read():
    return dedent(held["it"])
"""


def look(folder: Path, monkeypatch: pytest.MonkeyPatch, *, seed: int) -> tuple[str, list[str]]:
    """Run code that looks and then reads, while each pause takes away what it saw; return what it found, and its pauses."""
    (folder / "race.py").write_text(RACE)
    space = runpy.run_path(str(folder / "race.py"))
    monkeypatch.setattr("time.sleep", lambda _: space["held"].clear())
    pauser = Pauser(folder, seed=str(seed))
    with pauser.pausing():
        try:
            found = space["look"]()
        except KeyError:
            found = "gone between two looks"
    return found, pauser.told


def test_what_a_test_takes_for_granted_between_two_looks_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [look(tmp_path, monkeypatch, seed=seed) for seed in range(40)]
    assert Counter(found for found, _ in seen).keys() == {"here", "gone between two looks"}
    # Paused before each of two calls of its own, and never within textwrap.
    assert {line.partition(": ")[0] for _, told in seen for line in told} == {"race.py:7", "race.py:10"}
    assert [look(tmp_path, monkeypatch, seed=seed) for seed in range(40)] == seen
