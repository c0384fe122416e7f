"""Writes tests/data/samples/: what both samplers say of a real server under load, of pgbench of PostgreSQL 15.

capture_samples.py MAJOR, from the project's folder, writes pgNN/.
capture_samples.py others, on a machine that has nothing else to do, writes alone/, and beside/ with a busy loop beside
the load.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pgdyno.record.samples import SERVER_FILE
from pgdyno.run import process
from pgdyno.run.samplers import LOAD_LABEL, Samplers
from tests.facts.clusters import made_cluster

PGBENCH = "/usr/lib/postgresql/15/bin/pgbench"


FOLDER = Path("tests/data/samples")


@contextlib.contextmanager
def busy_loop() -> Iterator[None]:
    # Started by a shell that ends at once, so that it is nobody's child here.
    started = subprocess.run(
        ["sh", "-c", "while :; do :; done >/dev/null 2>&1 & echo $!"], capture_output=True, check=True
    )
    try:
        yield
    finally:
        subprocess.run(["kill", started.stdout.decode().strip()], check=True)


def capture_others() -> None:
    capture(15, FOLDER / "alone")
    with busy_loop():
        capture(15, FOLDER / "beside")
    for name in ("alone", "beside"):
        (FOLDER / name / SERVER_FILE).unlink()


def capture(major: int, folder: Path) -> None:
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
    if sys.argv[1] == "others":
        capture_others()
    else:
        capture(int(sys.argv[1]), FOLDER / f"pg{sys.argv[1]}")
