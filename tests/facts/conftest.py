from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.facts.clusters import Cluster, made_cluster


@pytest.fixture(scope="session")
def cluster_of() -> Iterator[Callable[[int], Cluster]]:
    """Gives the started server of a major version, one for all tests here."""
    with contextlib.ExitStack() as stack:
        made: dict[int, Cluster] = {}

        def give(major: int) -> Cluster:
            if major not in made:
                made[major] = stack.enter_context(made_cluster(major))
                made[major].start(
                    track_io_timing="on",
                    track_wal_io_timing="on",
                    shared_buffers="1MB",
                    autovacuum="off",
                    checkpoint_timeout="1h",
                )
            return made[major]

        yield give
