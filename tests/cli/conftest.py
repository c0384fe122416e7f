"""Benches for tests of the whole program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.program import SMALL, Bench, some_bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """An empty one."""
    with some_bench() as made:
        yield made


@pytest.fixture(scope="module")
def loaded() -> Iterator[Bench]:
    """One whose data are loaded, with the record `first`: for tests that are about what comes after."""
    with some_bench() as made:
        assert made.run("bench", "--workload", "select-only", *SMALL, "--out", "first").returncode == 0
        yield made
