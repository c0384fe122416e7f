"""Benches for tests of the whole program."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.run.over.far_run import PLACE
from tests.carrying import carry_in_a_line
from tests.cli.program import GENTLE, SMALL, Bench, some_bench
from tests.hosts import Sshd


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


@pytest.fixture
def carried(by_ssh: Sshd, tmp_path: Path) -> Sshd:
    """Put this environment's packages where they are carried to: as one line that names them, instead of 600 MB."""
    carry_in_a_line(tmp_path)
    # All tests of a process share that machine, and what one of them stopped stays there for `resume`.
    shutil.rmtree(by_ssh.home / PLACE, ignore_errors=True)
    return by_ssh
