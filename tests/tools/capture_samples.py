"""Writes tests/data/samples/pgNN/: what both samplers say of a real server under load, for the major version given.

capture_samples.py MAJOR, from the project's folder; the load is pgbench of PostgreSQL 15.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pgdyno.run import process
from pgdyno.run.samplers import LOAD_LABEL, Samplers
from tests.facts.clusters import made_cluster

PGBENCH = "/usr/lib/postgresql/15/bin/pgbench"


def main(major: int) -> None:
    folder = Path("tests/data/samples") / f"pg{major}"
    folder.mkdir(parents=True)
    with made_cluster(major) as cluster:
        cluster.start(track_io_timing="on", shared_buffers="8MB", max_wal_size="64MB")
        connection = ["-h", str(cluster.root), "-U", "postgres", "postgres"]
        assert process.run([PGBENCH, "-i", "-s", "2", "-q", *connection]).exit_code == 0
        with Samplers(directory=folder, address=cluster.address, interval_s=0.5) as samplers:
            load = process.start(
                [PGBENCH, "-n", "-c", "4", "-j", "2", "-T", "6", *connection], stdout=subprocess.DEVNULL
            )
            samplers.follow(LOAD_LABEL, load.pid)
            load.wait()
        assert samplers.gaps == ()


if __name__ == "__main__":
    main(int(sys.argv[1]))
