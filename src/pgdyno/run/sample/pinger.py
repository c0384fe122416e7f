"""Time empty statements beside a load: a child program with one connection, over the way that the load takes.

About ten times a second, at random instants, so that nothing else that comes regularly meets them always or never. An empty
statement takes no lock and reads no page. The first line is the header. Each later one is a pair: CLOCK_MONOTONIC when the
statement was sent, and the seconds until its answer was there.

Source for the random instants: Wolff 1982, "Poisson arrivals see time averages", Operations Research 30.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time

import psycopg

from pgdyno.errors import PgdynoError
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.sample.lines import STOP_SIGNALS, await_stop, write_line

FORMAT_VERSION = 1
APPLICATION_NAME = "pgdyno-ping"
STATEMENT = "SELECT"
_RATE_PER_S = 10.0


def main() -> None:
    """Read the arguments, and ping until a signal comes or the parent is gone; an error ends it with its words."""
    parser = argparse.ArgumentParser(description="Print how long empty statements take to a server and back.")
    # Its transactions count for the database that it is connected to.
    parser.add_argument("--conninfo", required=True, help="of another database than the watched")
    address = Address.read(parser.parse_args().conninfo)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        with sql.connect(address, application_name=APPLICATION_NAME) as connection:
            write_line({"format": FORMAT_VERSION, "kind": "ping", "statement": STATEMENT, "rate_per_s": _RATE_PER_S})
            _ping(connection)
    except PgdynoError as exc:
        sys.exit(exc.reason)
    except psycopg.Error as exc:
        sys.exit(str(exc).strip())


def _ping(connection: sql.Connection) -> None:
    parent = os.getppid()
    due_s = time.monotonic()
    while os.getppid() == parent and not await_stop(due_s):
        began_s = time.monotonic()
        # A cursor of psycopg takes longer than a near server.
        result = connection.pgconn.exec_(STATEMENT.encode())
        ended_s = time.monotonic()
        if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
            raise psycopg.OperationalError(result.get_error_message())
        write_line((began_s, ended_s - began_s))
        # What was missed is not made up for.
        due_s = max(due_s + random.expovariate(_RATE_PER_S), ended_s)
