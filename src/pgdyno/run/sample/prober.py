"""Write a row every 10 ms beside a load, through libpq's list of hosts, and note which writes were confirmed: a child program.

It is the client that a failover is timed with: it loses its session when the primary ends, and tries every host of the list
until one takes writes. The first line is the header. Each later one is a write: its number, CLOCK_MONOTONIC when it was begun and
when it was confirmed, and if it was not, why. A number is used once, so that each confirmed row can be looked for afterwards.
A halt of this program, between two writes or in one, would pass for a time without service: it is the end, with an error.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time

from psycopg import pq
from psycopg.pq.abc import PGconn

from pgdyno.run.postgres import sql
from pgdyno.run.sample.lines import STOP_SIGNALS, await_stop, watch_for_halt, write_line

FORMAT_VERSION = 1
_PERIOD_S = 0.01


def main() -> None:
    """Read the arguments, and write until a signal comes, the parent is gone, or this program was halted."""
    parser = argparse.ArgumentParser(description="Write a row every 10 ms to whichever host takes writes.")
    parser.add_argument("--conninfo", required=True, help="with all hosts, and target_session_attrs=read-write")
    conninfo = parser.parse_args().conninfo.encode()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    halted = watch_for_halt()
    write_line({"format": FORMAT_VERSION, "kind": "probe", "period_s": _PERIOD_S})
    _probe(conninfo, halted)
    if halted.is_set():
        sys.exit("it was halted, and cannot tell for how long no write was taken")


def _probe(conninfo: bytes, halted: threading.Event) -> None:
    parent, number = os.getppid(), 0
    session: PGconn | None = None
    due_s = time.monotonic()
    while os.getppid() == parent and not await_stop(due_s) and not halted.is_set():
        number += 1
        began_s = time.monotonic()
        # libpq itself goes through the list, as it does for any client.
        session = session or pq.PGconn.connect(conninfo)
        failure = _try_write(session, number)
        ended_s = time.monotonic()
        if failure is None:
            write_line((number, began_s, ended_s))
        else:
            session.finish()
            session = None
            write_line((number, began_s, ended_s, failure))
        # What was missed is not made up for.
        due_s = max(due_s + _PERIOD_S, ended_s)


def _try_write(session: PGconn, number: int) -> str | None:
    """Write one row, and return why that failed; None if the server confirmed it."""
    if session.status != pq.ConnStatus.OK:
        return session.get_error_message()
    result = session.exec_((sql.PROBE % number).encode())
    return None if result.status == pq.ExecStatus.COMMAND_OK else result.get_error_message()
