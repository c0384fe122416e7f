"""Writes tests/data/serverlog/pgNN.log: one real log of each kind of event, for the PostgreSQL whose bindir is given.

Run as a user who may own a server: capture_serverlog.py BINDIR OUTPUT
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg

from pgdyno.record.serverlog import LOG_SETTINGS

SETTINGS = {
    **LOG_SETTINGS,
    "listen_addresses": "",
    "max_wal_size": "32MB",
    "min_wal_size": "32MB",
    "checkpoint_timeout": "30s",
    "checkpoint_warning": "30s",
    "autovacuum_naptime": "1s",
    "deadlock_timeout": "100ms",
    "shared_buffers": "8MB",
    "log_temp_files": "0",
}


def main(bindir: Path, output: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        subprocess.run(
            [bindir / "initdb", "-D", data, "-A", "trust", "--no-sync", "-U", "pgdyno"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        options = [f"-c{name}={value}" for name, value in {**SETTINGS, "unix_socket_directories": folder}.items()]
        with output.open("wb") as log:
            server = subprocess.Popen([bindir / "postgres", "-D", data, *options], stdout=log, stderr=log)
            provoke(folder)
            server.send_signal(signal.SIGINT)
            server.wait()


def connect(folder: str) -> psycopg.Connection:
    for _ in range(200):
        try:
            return psycopg.connect(host=folder, user="pgdyno", dbname="postgres", autocommit=True)
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise SystemExit("no server")


def attempt(connection: psycopg.Connection, query: str) -> None:
    with contextlib.suppress(psycopg.Error):
        connection.execute(query)


def provoke(folder: str) -> None:
    one, two = connect(folder), connect(folder)
    one.execute("CREATE TABLE busy (id int PRIMARY KEY, filler text)")
    one.execute("INSERT INTO busy SELECT i, repeat('x', 200) FROM generate_series(1, 5000) i")
    one.execute("CHECKPOINT")
    for _ in range(12):
        one.execute("UPDATE busy SET filler = filler || 'y'")
        one.execute("SELECT pg_switch_wal()")
    attempt(one, "SELECT 1 /\n  0")
    attempt(one, "SELECT * FROM nowhere")
    one.execute("SET log_min_duration_statement = 0")
    one.execute("SELECT pg_sleep(0.05),\n\t'two lines'")
    one.execute("RESET log_min_duration_statement")
    one.execute("SET work_mem = '64kB'")
    one.execute("SELECT count(*) FROM (SELECT * FROM busy ORDER BY filler) s")
    with contextlib.suppress(psycopg.OperationalError):
        psycopg.connect(host=folder, user="pgdyno", dbname="nowhere")
    deadlock(one, two)
    time.sleep(36)
    os.kill(two.info.backend_pid, signal.SIGKILL)
    time.sleep(1)
    connect(folder).close()


def deadlock(one: psycopg.Connection, two: psycopg.Connection) -> None:
    one.execute("BEGIN; UPDATE busy SET filler = '' WHERE id = 1")
    two.execute("BEGIN; UPDATE busy SET filler = '' WHERE id = 2")
    other = threading.Thread(target=attempt, args=(two, "UPDATE busy SET filler = '' WHERE id = 1"))
    other.start()
    time.sleep(0.3)
    attempt(one, "UPDATE busy SET filler = '' WHERE id = 2")
    other.join()
    attempt(one, "ROLLBACK")
    attempt(two, "ROLLBACK")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
