"""Benches for tests of the whole program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.program import GENTLE, SMALL, Bench, some_bench


@pytest.fixture
def empty_bench() -> Iterator[Bench]:
    """One that must load whatever it wants."""
    with some_bench() as made:
        yield made


@pytest.fixture
def bench() -> Iterator[Bench]:
    """One that finds loaded what another has loaded before."""
    with some_bench(is_empty=False) as made:
        yield made


@pytest.fixture(scope="module")
def loaded() -> Iterator[Bench]:
    """One whose data are loaded, with the record `first`."""
    with some_bench(is_empty=False) as made:
        assert made.run("bench", "--workload", "select-only", *SMALL, *GENTLE, "--out", "first").returncode == 0
        yield made
