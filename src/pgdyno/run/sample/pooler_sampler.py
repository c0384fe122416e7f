"""Sample a pooler: a child program with one connection to its console that prints a JSON line each second.

The first line is the header. In each later line `t` is CLOCK_MONOTONIC before the console was asked, and `stats` and `pools` are
the rows of SHOW STATS and SHOW POOLS for the watched database, as the pooler names their columns. The last line carries `end`.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from typing import Any

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.record.samples.pooler import FORMAT_VERSION
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.pooler_console import Console, open_console
from pgdyno.run.sample.lines import STOP_SIGNALS, await_stop, write_line

# Some poolers send their counters as decimals.
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def main() -> int:
    """Read the arguments, sample to the end, and print the reason for ending."""
    parser = argparse.ArgumentParser(description="Print a pooler's counters as JSON lines.")
    parser.add_argument("--conninfo", required=True, help="of its console")
    parser.add_argument("--watched-database", required=True, help="whose rows are printed")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S")
    arguments = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        console = _open(Address.read(arguments.conninfo))
        reason = _watch(console, database=arguments.watched_database, interval_s=arguments.interval)
    except PgdynoError as exc:
        reason = f"failed: {exc.reason}"
    try:
        write_line({"t": time.monotonic(), "end": reason})
    except OSError:
        return 1
    return 1 if reason.startswith("failed") else 0


def _open(address: Address) -> Console:
    version = ""
    try:
        console = open_console(address)
        version = next((str(value) for row in console.show("VERSION") for value in row.values()), "")
        return console
    finally:
        # A file without a header counts as damaged, and the reason that ends it would not be read.
        write_line({"format": FORMAT_VERSION, "kind": "pooler", "version": version})


def _watch(console: Console, *, database: str, interval_s: float) -> str:
    parent = os.getppid()
    due_s = time.monotonic()
    while os.getppid() == parent:
        stop = await_stop(due_s)
        began_s = time.monotonic()
        rows = {what: _select(console.show(what.upper()), database) for what in ("stats", "pools")}
        write_line({"t": began_s, **rows}, _ENCODER)
        if stop is not None:
            return f"signal {stop}"
        # What was missed is not made up for.
        due_s = max(due_s + interval_s, time.monotonic())
    return "parent gone"


def _select(rows: list[dict[str, Any]], database: str) -> list[dict[str, Any]]:
    return [row for row in rows if row.get("database") == database]
