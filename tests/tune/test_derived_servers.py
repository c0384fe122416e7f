"""Derived sets on real servers: they start with them, and show them as they were derived."""

from __future__ import annotations

import math

import pytest

from pgdyno.facts.gucs import same_value
from pgdyno.run.host import process
from pgdyno.run.postgres import sql
from pgdyno.tune.derive import derive
from pgdyno.tune.draft import Draft
from pgdyno.tune.memory import shared_bytes
from pgdyno.tune.types import Target, WorkloadClass
from tests.facts.clusters import made_cluster
from tests.tune.subjects import GB, MB, make_subject

MISSING = {"wal_compression": ("lz4", "zstd"), "io_method": ("io_uring",)}


@pytest.mark.cluster
@pytest.mark.parametrize("major", [15, 16, 18])
def test_servers_start_with_derived_sets_and_show_them(major: int) -> None:
    missing = {} if major == 15 else MISSING
    with made_cluster(major) as cluster:
        for workload, cpus in ((WorkloadClass.OLTP_WRITE, 2), (WorkloadClass.ANALYTIC, 64)):
            subject = make_subject(
                "vm", memory=2 * GB, connections=40, cpus=cpus, major=major, workload=workload, missing_values=missing
            )
            derived = {one.name: one.value for one in derive(subject).of(Target.POSTGRESQL)}
            cluster.start(**derived)
            with sql.connect(cluster.address) as connection:
                for name, value in derived.items():
                    row = connection.execute("SELECT current_setting(%s) AS shown", [name]).fetchone()
                    assert row is not None
                    assert same_value(name, row["shown"], value, major), f"{name}: {row['shown']} for {value}"
            cluster.stop()
        _compare_shared_memory(cluster.bindir, cluster.root / "data", major)


def _compare_shared_memory(bindir, data, major: int) -> None:
    """The estimate is near what the server computes, and rarely below it: huge pages that are too few are none."""
    user = process.find_server_user()
    for buffers, connections in (("128MB", 30), ("6GB", 120), ("64GB", 500)):
        settings = {"shared_buffers": buffers, "max_connections": str(connections)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        done = process.run([str(bindir / "postgres"), "-D", str(data), *options, "-C", "shared_memory_size"], user=user)
        estimate = shared_bytes(Draft(make_subject("large", major=major), settings)) / MB
        assert math.isclose(estimate, int(done.stdout), rel_tol=0.02, abs_tol=20), (buffers, estimate, done.stdout)
