"""Writes tests/data/samples/: what both samplers say of a real server under load, of pgbench of PostgreSQL 15.

capture_samples.py MAJOR, from the project's folder, writes pgNN/.
capture_samples.py others, as root, writes alone/, and beside/ with a busy loop beside the load. Both run with real-time
priority for two seconds, so that whatever else the machine has to do gets next to nothing of its CPUs meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pgdyno.record.samples.files import SERVER_FILE
from pgdyno.run.host import process
from pgdyno.run.sample.samplers import LOAD_LABEL, Samplers
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


@contextlib.contextmanager
def first_in_line(*others: int) -> Iterator[None]:
    """Run this process, what it starts, and others by their ids before everything else on the machine."""
    for pid in (0, *others):
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def capture_others() -> None:
    with made_cluster(15) as cluster:
        cluster.start(shared_buffers="64MB")
        connection = ["-h", str(cluster.root), "-U", "postgres", "postgres"]
        assert process.run([PGBENCH, "-i", "-s", "2", "-q", *connection]).exit_code == 0
        postmaster = int((cluster.root / "data" / "postmaster.pid").read_text().split()[0])
        for name, beside in (("alone", contextlib.nullcontext), ("beside", busy_loop)):
            folder = FOLDER / name
            folder.mkdir(parents=True)
            with first_in_line(postmaster), beside():
                # It leaves no CPU idle for others to use, and is there before and after the samples.
                load = process.start(
                    [PGBENCH, "-n", "-S", "-c", "4", "-j", "2", "-T", "4", *connection], stdout=subprocess.DEVNULL
                )
                with Samplers(directory=folder, address=cluster.address, interval_s=0.5) as samplers:
                    samplers.follow(LOAD_LABEL, load.pid)
                    time.sleep(2)
            process.stop(load)
            assert samplers.gaps == ()
            (folder / SERVER_FILE).unlink()


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
