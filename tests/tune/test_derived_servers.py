"""Derived sets on real servers: they start with them, and show them as they were derived."""

from __future__ import annotations

import contextlib
import math
import os

import msgspec
import pytest

from pgdyno.facts.gucs import same_value
from pgdyno.report.sections.tuning.files import format_pgbouncer_file
from pgdyno.report.sections.tuning.view import Tried, TuningView
from pgdyno.run.host import process
from pgdyno.run.pooler.program import find_pgbouncer
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.pooler_console import CONSOLE, open_console
from pgdyno.tune.derive import derive
from pgdyno.tune.draft import Draft
from pgdyno.tune.memory import shared_bytes
from pgdyno.tune.types import Target, WorkloadClass
from tests.facts.clusters import made_cluster
from tests.run.test_privileges import pooling
from tests.tools.pgcluster import PORT, running
from tests.tune.subjects import GB, MB, known, make_pooling, make_subject

MISSING = {"wal_compression": ("lz4", "zstd"), "io_method": ("io_uring",)}


@pytest.mark.cluster
@pytest.mark.parametrize("major", [15, 16, 18])
def test_servers_start_with_derived_sets_and_show_them(major: int) -> None:
    missing = {} if major == 15 else MISSING
    with made_cluster(major) as cluster:
        for workload, cpus in ((WorkloadClass.OLTP_WRITE, 2), (WorkloadClass.ANALYTIC, 64)):
            subject = make_subject(
                "vm", memory=2 * GB, connections=40, cpus=cpus, major=major, workload=workload, missing_values=missing,
                standbys=known(2, name="standbys"), pooling=make_pooling(40),
            )  # fmt: skip
            derived = {one.name: one.value for one in derive(subject).of(Target.POSTGRESQL)}
            cluster.start(**derived)
            with sql.connect(cluster.address) as connection:
                for name, value in derived.items():
                    row = connection.execute("SELECT current_setting(%s) AS shown", [name]).fetchone()
                    assert row is not None
                    assert same_value(name, row["shown"], value, major), f"{name}: {row['shown']} for {value}"
                # Why kernel.sched_autogroup_enabled is left alone: no two processes share a session, and thus a group.
                # A worker of autovacuum may be gone by then.
                lasting = "SELECT pid FROM pg_stat_activity WHERE backend_type <> 'autovacuum worker'"
                pids = [row["pid"] for row in connection.execute(lasting)]
                assert len(pids) > 4
                assert pids == list(map(os.getsid, pids))
            cluster.stop()
        _compare_shared_memory(cluster.bindir, cluster.root / "data", major)


@pytest.mark.cluster
def test_a_real_pgbouncer_starts_with_the_derived_file_and_lets_queries_through() -> None:
    version = find_pgbouncer().version
    subject = make_subject("vm", connections=700, pooling=make_pooling(700, version=version))
    tuning = derive(subject)
    view = TuningView(
        tuning=tuning, server="PostgreSQL", machine="this machine", is_workload_said=True, now={}, now_of="", tried=Tried.VALUES,
        version="15", is_named=False,
    )  # fmt: skip
    with running(15) as cluster:
        cluster.sql("CREATE ROLE plain LOGIN")
        (cluster.root / "pgdyno.ini").write_text(format_pgbouncer_file(view))
        more = f"admin_users = plain\n%include {cluster.root}/pgdyno.ini"
        with pooling(cluster, mode="session", more=more) as folder:
            address = Address(host=str(folder), port=PORT, user="plain", dbname="postgres")
            with sql.connect(address) as connection:
                assert sql.read_setting(connection, "server_version")
            console = msgspec.structs.replace(address, dbname=CONSOLE)
            with contextlib.closing(open_console(console)) as opened:
                shown = {row["key"]: row["value"] for row in opened.show("CONFIG")}
    derived = tuning.values_of(Target.POOLER)
    assert {"pool_mode", "default_pool_size", "max_client_conn"} <= derived.keys()
    assert {name: shown[name] for name in derived} == derived


def _compare_shared_memory(bindir, data, major: int) -> None:
    """The estimate is near what the server computes, and rarely below it: huge pages that are too few are none."""
    user = process.find_server_user()
    for buffers, connections in (("128MB", 30), ("6GB", 120), ("64GB", 500)):
        settings = {"shared_buffers": buffers, "max_connections": str(connections)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        done = process.run([str(bindir / "postgres"), "-D", str(data), *options, "-C", "shared_memory_size"], user=user)
        estimate = shared_bytes(Draft(make_subject("large", major=major), settings)) / MB
        assert math.isclose(estimate, int(done.stdout), rel_tol=0.02, abs_tol=20), (buffers, estimate, done.stdout)
