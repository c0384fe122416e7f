"""Sample the server: a child program with one connection that prints a JSON line each second.

Where the load connects to several servers, such as standbys, there is a connection to each, and a line has the sums over all.

Counters are read once a second, wait events ten times, and the observations of a second are added up into one line, so
that the record stays small. The program prints what PostgreSQL reports, under canonical names: which state or process
type counts as load is decided from the record. The program ends with its connection: the last line reports a lost
server, and the parent process records a gap.

The first line is the header. In each later line `t` and `until` are CLOCK_MONOTONIC before and after the counters were
read, `c` the counters in the header's order, `io` those rows of pg_stat_io that changed since the line before,
`waits` the observed backends by type, state and wait event over `n` looks since the line before, and `cost_s` the CPU
seconds of this program so far (those of its backend are the OS sampler's to see). Where there are standbys to watch,
`standbys` has the lags of each, and `look` the clients' backends in the last of the looks, which is of the same moment.
The last line carries `end`.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import psycopg

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.facts.readable_counters import without_refused
from pgdyno.facts.views import IO_DIMENSIONS, STANDBY_DIMENSIONS, TIMING_SETTINGS, standby_columns
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.sample.lines import STOP_SIGNALS, await_stop, write_line

FORMAT_VERSION = 1
APPLICATION_NAME = "pgdyno-sampler"
# Compiling or planning these queries each time would cost more than running them. A function that somebody else made in the
# user's database must not run as the role of the sampler.
SESSION_OPTIONS = "-c jit=off -c plan_cache_mode=force_generic_plan -c search_path=pg_catalog"
WAIT_COLUMNS = ("backend_type", "state", "wait_event_type", "wait_event")
CLIENT_BACKEND = "client backend"
PREPARED_WAITS = b"pgdyno_waits"

WaitKey = tuple["str | None", ...]


class ServerReader:
    """The prepared queries of one connection."""

    def __init__(self, connection: sql.Connection, *, watched_database: str) -> None:
        self._connection = connection
        self._database = watched_database
        self.state: dict[str, Any] = connection.execute(sql.SERVER_STATE).fetchall()[0]
        known = sql.find_counters(connection, self.state["version_num"])
        self.refused = sql.find_refused(connection, known)
        facts = without_refused(known, self.refused)
        self.counter_names = tuple(counter.name for counter in facts.direct)
        self.io_names = tuple(column.name for column in facts.io)
        self._counters = sql.counters_query(facts)
        self._io = sql.io_query(facts)
        self._standbys: str | None = None
        self.standby_names: tuple[str, ...] = ()
        self.last_io: dict[tuple[str, ...], list[Any]] = {}
        """The rows of pg_stat_io at the last call of `changed_io`, by their dimensions."""
        # libpq's own call costs a third less CPU than a cursor, which matters at ten a second.
        prepared = connection.pgconn.prepare(PREPARED_WAITS, sql.WAITS.encode())
        if prepared.status != psycopg.pq.ExecStatus.COMMAND_OK:
            raise psycopg.OperationalError(prepared.get_error_message())

    def counters(self) -> list[Any]:
        """Read the direct counters in the order of `counter_names`; empty if the watched database is gone."""
        rows = self._connection.execute(self._counters, (self._database,), prepare=True).fetchall()
        return [rows[0][name] for name in self.counter_names] if rows else []

    def changed_io(self) -> list[tuple[str, ...]]:
        """Read pg_stat_io, and return the dimensions of the rows that changed since the last call."""
        if self._io is None:
            return []
        changed = []
        for row in self._connection.execute(self._io, prepare=True):
            key = tuple(row[name] for name in IO_DIMENSIONS)
            values = [row[name] for name in self.io_names]
            if self.last_io.get(key) != values:
                self.last_io[key] = values
                changed.append(key)
        return changed

    def standbys(self) -> list[list[Any]]:
        """Read how far each standby lags, in the order of `standby_names`."""
        if self._standbys is None:
            return []
        rows = self._connection.execute(self._standbys, prepare=True)
        return [[row[name] for name in self.standby_names] for row in rows]

    def watch_standbys(self) -> None:
        """Prepare to read how far the standbys of this server lag."""
        major = self.state["version_num"] // 10_000
        try:
            sql.read_standbys(self._connection, major)
        except StepFailedError as error:
            if self._connection.broken:
                raise
            # A version that pgdyno was not tried with may have changed the view.
            self.refused["pg_stat_replication"] = error.detail.partition("\n")[0]
            return
        self._standbys = sql.standbys_query(major)
        self.standby_names = (*STANDBY_DIMENSIONS, *(column.name for column in standby_columns(major)))

    def observe_waits(self, counts: Counter[WaitKey]) -> None:
        """Add the present backends to `counts`, without this sampler's own."""
        result = self._connection.pgconn.exec_prepared(PREPARED_WAITS, None)
        if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
            raise psycopg.OperationalError(result.get_error_message())
        place = {result.fname(i): i for i in range(result.nfields)}
        columns = [place[name.encode()] for name in WAIT_COLUMNS]
        count = place[b"observed_count"]
        for row in range(result.ntuples):
            counts[tuple(map(_text, (result.get_value(row, c) for c in columns)))] += int(
                result.get_value(row, count) or 0
            )
        result.clear()


class SummedReader:
    """All servers that the load connects to, whose counters and waits are added up.

    Args:
        readers: One for each server. All are of one version, and their roles may read the same.
        primary: That of the server whose standbys are watched; None without any.
    """

    def __init__(self, readers: Sequence[ServerReader], primary: ServerReader | None) -> None:
        self._readers = readers
        self._primary = primary
        first = readers[0]
        self.state = first.state
        self.counter_names, self.io_names = first.counter_names, first.io_names
        self.standby_names = () if primary is None else primary.standby_names
        self.backend_pids = tuple(reader.state["backend_pid"] for reader in readers)
        """Those of this program's sessions on the servers that it adds up."""
        self.refused = {**first.refused, **({} if primary is None else primary.refused)}

    def counters(self) -> list[Any]:
        """Read the direct counters in the order of `counter_names`; empty if the watched database is gone."""
        return [
            sql.add_counts(values) for values in zip(*(reader.counters() for reader in self._readers), strict=False)
        ]

    def changed_io(self) -> list[list[Any]]:
        """Read the rows of pg_stat_io that changed since the last call: the dimensions, then `io_names`."""
        changed = dict.fromkeys(key for reader in self._readers for key in reader.changed_io())
        found = {key: [reader.last_io[key] for reader in self._readers if key in reader.last_io] for key in changed}
        return [[*key, *(sql.add_counts(values) for values in zip(*rows, strict=True))] for key, rows in found.items()]

    def standbys(self) -> list[list[Any]]:
        """Read how far each standby lags, in the order of `standby_names`."""
        return [] if self._primary is None else self._primary.standbys()

    def observe_waits(self, counts: Counter[WaitKey]) -> None:
        """Add the present backends to `counts`, without this sampler's own."""
        for reader in self._readers:
            reader.observe_waits(counts)


def watch(reader: SummedReader, *, interval_s: float, looks: int) -> str:
    """Print a line each interval, with `looks` observations of waits in each; return the reason for ending."""
    parent = os.getppid()
    tick_s = interval_s / looks
    waits: Counter[WaitKey] = Counter()
    observed = 0
    next_line_s = due_s = time.monotonic()
    while os.getppid() == parent:
        stop = await_stop(due_s)
        if stop is not None:
            # The last sample is left out if its interval would be too short to give rates.
            if next_line_s - time.monotonic() < interval_s / 2:
                write_line(_sample(reader, waits, observed))
            return f"signal {stop}"
        look: Counter[WaitKey] = Counter()
        reader.observe_waits(look)
        waits.update(look)
        observed += 1
        if due_s >= next_line_s - tick_s / 2:
            write_line(_sample(reader, waits, observed, look))
            waits.clear()
            observed = 0
            next_line_s = _next(next_line_s, interval_s)
        due_s = _next(due_s, tick_s)
    return "parent gone"


def main() -> int:
    """Read the arguments, sample to the end, and print the reason for ending."""
    parser = argparse.ArgumentParser(description="Print a PostgreSQL server's counters and waits as JSON lines.")
    # The sampler's own transactions and page reads count for the database it is connected to.
    parser.add_argument(
        "--conninfo", required=True, action="append", help="of another database than the watched; once for each server"
    )
    parser.add_argument("--watched-database", required=True, help="whose counters are read")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S")
    parser.add_argument("--primary", metavar="CONNINFO", help="of the server whose standbys are watched")
    parser.add_argument("--looks", type=int, default=10, help="observations of wait events in an interval")
    arguments = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        reader = _make_reader(arguments)
        write_line(_header(reader, arguments))
        reason = watch(reader, interval_s=arguments.interval, looks=arguments.looks)
    except PgdynoError as exc:
        reason = f"failed: {exc.reason}"
    except psycopg.Error as exc:
        reason = f"failed: {str(exc).strip()}"
    try:
        write_line({"t": time.monotonic(), "cost_s": time.process_time(), "end": reason})
    except OSError:
        return 1
    return 1 if reason.startswith("failed") else 0


def _make_reader(arguments: argparse.Namespace) -> SummedReader:
    readers = {
        conninfo: ServerReader(_connect(Address.read(conninfo)), watched_database=arguments.watched_database)
        for conninfo in dict.fromkeys((*arguments.conninfo, *filter(None, (arguments.primary,))))
    }
    primary = readers.get(arguments.primary)
    if primary is not None:
        primary.watch_standbys()
    return SummedReader([readers[conninfo] for conninfo in arguments.conninfo], primary)


def _connect(address: Address) -> sql.Connection:
    """Connect with options of the session's own, or without where a pooler refuses them."""
    try:
        return sql.connect(address, application_name=APPLICATION_NAME, options=SESSION_OPTIONS)
    except StepFailedError as error:
        if "unsupported startup parameter" not in error.detail:
            raise
        return sql.connect(address, application_name=APPLICATION_NAME)


def _sample(
    reader: SummedReader, waits: Counter[WaitKey], observed: int, look: Counter[WaitKey] | None = None
) -> dict[str, Any]:
    before_s = time.monotonic()
    counters = reader.counters()
    standbys = reader.standbys()
    after_s = time.monotonic()
    return {
        "t": before_s,
        "until": after_s,
        "cost_s": time.process_time(),
        "c": counters,
        "io": reader.changed_io(),
        **({"standbys": standbys, "look": _list_clients(look or Counter())} if reader.standby_names else {}),
        "n": observed,
        "waits": [[*key, count] for key, count in waits.items()],
    }


def _list_clients(look: Counter[WaitKey]) -> list[list[Any]]:
    return [[*key[1:], count] for key, count in look.items() if key[0] == CLIENT_BACKEND]


def _header(reader: SummedReader, arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "format": FORMAT_VERSION,
        "kind": "server",
        "wall_s": time.time(),
        "monotonic_s": time.monotonic(),
        "interval_s": arguments.interval,
        "looks": arguments.looks,
        "version_num": reader.state["version_num"],
        "block_bytes": reader.state["block_bytes"],
        "backend_pid": reader.backend_pids[0],
        "backend_pids": reader.backend_pids,
        "settings": {name: reader.state[name] for name in TIMING_SETTINGS},
        "watched_database": arguments.watched_database,
        "counters": reader.counter_names,
        "io": (*IO_DIMENSIONS, *reader.io_names),
        "standbys": reader.standby_names,
        "waits": (*WAIT_COLUMNS, "observed_count"),
        "refused": reader.refused,
    }


def _next(due_s: float, step_s: float) -> float:
    """Return the first multiple of the step after now; missed steps are skipped, not made up for."""
    late_s = max(0.0, time.monotonic() - due_s)
    return due_s + step_s * (1 + late_s // step_s)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
