"""Streaming standbys of a test's own cluster, as a user's replicas."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.cli.program import wait_until
from tests.cli.test_apply_given import cloned
from tests.tools.pgcluster import PORT, Cluster

_LAG = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) FROM pg_stat_replication WHERE application_name = '{name}'"


def follow(standby: Cluster, primary: Cluster, *, name: str = "walreceiver") -> None:
    """Let a standby stream from a primary, and wait until it has caught up."""
    conninfo = f"host={primary.root} port={PORT} user=postgres application_name={name}"
    with (standby.data / "postgresql.auto.conf").open("a") as conf:
        conf.write(f"primary_conninfo = '{conninfo}'\n")
    standby.sql("SELECT pg_reload_conf()")
    assert wait_until(lambda: primary.sql(_LAG.format(name=name)) == "0")


@contextlib.contextmanager
def streaming(primary: Cluster, count: int = 1) -> Iterator[tuple[Cluster, ...]]:
    """Run so many standbys of a cluster, which is restarted for that."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(cloned(primary)) for _ in range(count)]
        for number, standby in enumerate(made, start=1):
            follow(standby, primary, name=f"db{number + 1}")
        yield tuple(made)
