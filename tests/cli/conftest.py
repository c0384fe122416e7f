"""Benches for tests of the whole program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import GENTLE, SMALL, Bench, some_bench
from tests.homes import reachable_folder


@pytest.fixture(scope="session")
def templates() -> Iterator[Path]:
    """Loaded clusters that a test leaves to those after it."""
    with reachable_folder() as folder:
        yield folder


@pytest.fixture
def empty_bench() -> Iterator[Bench]:
    """One that must load whatever it wants."""
    with some_bench() as made:
        yield made


@pytest.fixture
def bench(templates: Path) -> Iterator[Bench]:
    """One that finds loaded what another has loaded before."""
    with some_bench(templates=templates) as made:
        yield made


@pytest.fixture(scope="module")
def loaded(templates: Path) -> Iterator[Bench]:
    """One whose data are loaded, with the record `first`."""
    with some_bench(templates=templates) as made:
        assert made.run("bench", "--workload", "select-only", *SMALL, *GENTLE, "--out", "first").returncode == 0
        yield made
