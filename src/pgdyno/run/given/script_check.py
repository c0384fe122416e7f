"""Run script files once on a given server, so that a mistake shows before anything is measured.

Those that need pgbench's tables run in a small database of pgdyno's own before the data are loaded, all others on the data; those of
loads that read from replicas run on one of these, which refuses what replicas refuse.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import LiteralString

import msgspec

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.run.given.access import with_settings
from pgdyno.run.given.database import create_database, drop_if_possible
from pgdyno.run.given.poolers import find_statement_refusal
from pgdyno.run.given.replicas import Replicas
from pgdyno.run.given.writing_words import ALLOW_WRITES, refuse_writing
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.load.little_run import (
    NO_PIPELINE,
    PATIENCE_S,
    UNDEFINED_VARIABLE,
    hint_for_mistake,
    list_scripts,
    plan_little_data,
    plan_script_run,
)
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.under_test import LoadServer
from pgdyno.spec.pooler import REPLICAS
from pgdyno.spec.study import BUILTIN_SCRIPTS, DataSpec

# Sessions that end leave their counts before they are gone, which takes them a moment.
_ENDS_WITHIN_S = 10.0
_SESSIONS: LiteralString = """
SELECT a.pid || ' ' || a.backend_start AS session FROM pg_catalog.pg_stat_activity a
WHERE a.datname = pg_catalog.current_database() AND a.usename = current_user AND a.pid <> pg_catalog.pg_backend_pid()"""
# Not of the whole database: ANALYZE writes into its catalogs.
_WRITTEN: LiteralString = """
SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint AS rows FROM pg_catalog.pg_stat_user_tables"""
# What no other data would avoid: PostgreSQL's class 42 in words, since pgbench does not print the class.
_MISTAKES = re.compile(
    f"syntax error|does not exist|{UNDEFINED_VARIABLE}|{NO_PIPELINE}|is ambiguous|invalid command|permission denied"
)


def check_scripts_there(
    address: Address,
    generator: Pgbench,
    *,
    data: DataSpec,
    workloads: tuple[PlannedWorkload, ...],
    replicas: Replicas,
    on_activity: Callable[[str], None],
) -> tuple[str, ...]:
    """Run each script file for a second with one client at scale 1. Call this from the main thread.

    Returns:
        A sentence for each script that failed but may succeed on the study's data.

    Raises:
        SpecError: A script is wrong with any data, cannot be read, or cannot run on a replica that it is for.
        StepFailedError: The server refuses the database, or the tables, or a replica does not get them.
    """
    remarks = []
    made = create_database(address)
    try:
        there = _in_english(msgspec.structs.replace(address, dbname=made.name))
        with TemporaryDirectory(prefix="pgdyno-scripts-") as name:
            folder = Path(name)
            generator.run_init(plan_little_data(there, data), directory=folder / "init")
            replicas.await_replay(address, made.name, on_activity=on_activity)
            places = _find_places(there, replicas.list_readers(made.name, {}))
            for number, (workload, script) in enumerate(list_scripts(workloads)):
                on_activity(script)
                place = places[workload.endpoint == REPLICAS]
                error = _try_script(place, generator, workload, script, folder / str(number))
                if error is None:
                    continue
                if (
                    place != there
                    and _try_script(there, generator, workload, script, folder / f"{number}-there") is None
                ):
                    # In whatever language it said so.
                    raise _refuse_on_replica(script, error) from error
                if _MISTAKES.search(error.reason):
                    raise _refuse(script, error, hint=hint_for_mistake(error.reason)) from error
                remarks.append(f"{script} failed on a little data, where scale is 1: {error.detail or error.fact}")
    finally:
        drop_if_possible(address, made)
    return tuple(remarks)


def check_prepared(address: Address) -> None:
    """Make sure that a pooler of transactions keeps prepared statements, in a database of pgdyno's own: no other client gets its sessions.

    Raises:
        SpecError: It does not keep the statements of its clients apart.
        StepFailedError: The server refuses the database.
    """
    made = create_database(address)
    try:
        refusal = find_statement_refusal(msgspec.structs.replace(address, dbname=made.name))
    finally:
        drop_if_possible(address, made)
    if refusal is not None:
        raise SpecError(
            "the pooler in between loses prepared statements",
            detail=refusal,
            hint="connect to the server itself, use --mode simple or extended, or PgBouncer 1.21 or newer with"
            " max_prepared_statements; nothing is loaded yet",
        )


def check_scripts_on_data(
    address: Address,
    generator: Pgbench,
    *,
    workloads: tuple[PlannedWorkload, ...],
    readers: Sequence[LoadServer] = (),
    read_only: Address | None = None,
    is_busy_allowed: bool = False,
    on_activity: Callable[[str], None],
) -> tuple[str, ...]:
    """Run each script for a second with one client on the data of the study. Call this from the main thread.

    Args:
        address: Where the data are.
        generator: Runs them.
        workloads: Whose scripts.
        readers: Replicas of the data, for the scripts of loads that read from them.
        read_only: Where pgdyno itself reaches the data, where sessions only read them.
        is_busy_allowed: Whether others may write to the data meanwhile.
        on_activity: Is told which script runs.

    Returns:
        A sentence for each script during which rows were written, where that is no error.

    Raises:
        SpecError: A script fails, cannot be read, or writes or asks for transactions that write where none may.
    """
    remarks, places = [], _find_places(_in_english(address), readers)
    with TemporaryDirectory(prefix="pgdyno-scripts-") as name:
        for number, (workload, script) in enumerate(list_scripts(workloads, with_builtin=True)):
            on_activity(script)
            # On a replica as well: a standby takes ALTER SYSTEM.
            if read_only is not None and script not in BUILTIN_SCRIPTS:
                refuse_writing(script, read_only.dbname)
            if workload.endpoint == REPLICAS:
                error = _try_script(places[True], generator, workload, script, Path(name) / str(number))
                if error is not None:
                    raise _refuse_on_replica(script, error) from error
                continue
            begin = None if read_only is None else _WriteCheck(read_only)
            error = _try_script(places[False], generator, workload, script, Path(name) / str(number))
            if error is not None:
                raise _refuse(script, error, hint=_hint(script, error, read_only)) from error
            rows = 0 if begin is None else begin.count_rows()
            if rows and begin is not None:
                fact = f"rows were written to the database {begin.database} while script {script} was tried"
                if not is_busy_allowed:
                    raise SpecError(
                        fact,
                        detail=f"{rows:,} of its tables: by the script, or by others",
                        hint=f"if it was others, `--allow busy` goes on; if it was the script, `--allow writes="
                        f"{begin.database}` lets the load write there, and nothing puts it back",
                    )
                remarks.append(f"{fact}: {rows:,}, by others or by the script")
    return tuple(remarks)


class _WriteCheck:
    """Counts the rows that are written to a database while a script is tried there."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._sessions, self._rows = self._read()

    @property
    def database(self) -> str:
        """Its name."""
        return self._address.dbname

    def count_rows(self) -> int:
        """Return the rows of tables that were written since, once the sessions that began since have ended."""
        deadline_s = monotonic_s() + _ENDS_WITHIN_S
        while True:
            sessions, rows = self._read()
            if sessions <= self._sessions or monotonic_s() > deadline_s:
                return max(0, rows - self._rows)
            time.sleep(0.05)

    def _read(self) -> tuple[frozenset[str], int]:
        with sql.connect(self._address) as connection:
            # In this order: what a session wrote that is no longer there is counted.
            sessions = frozenset(row["session"] for row in connection.execute(_SESSIONS).fetchall())
            return sessions, connection.execute(_WRITTEN).fetchall()[0]["rows"]


def _find_places(primary: Address, readers: Sequence[LoadServer]) -> dict[bool, Address]:
    """Return where scripts are tried, by whether their load reads from replicas."""
    return {False: primary, True: _in_english(readers[0].load_address) if readers else primary}


def _refuse_on_replica(script: str, error: StepFailedError) -> SpecError:
    return SpecError(
        f"script {script} cannot run on a replica",
        detail=error.detail or error.fact,
        hint="a replica only reads: leave that statement out, or use the endpoint primary; nothing was measured",
    )


def _in_english(address: Address) -> Address:
    """Return the address of sessions that get English messages, which are read here, where the role may ask for that."""
    asking = with_settings(address, {"lc_messages": "C"})
    try:
        sql.connect(asking).close()
    except StepFailedError:
        return address
    return asking


def _hint(script: str, error: StepFailedError, read_only: Address | None) -> str:
    if read_only is not None and "read-only transaction" in error.detail:
        return ALLOW_WRITES.format(name=read_only.dbname)
    if script in BUILTIN_SCRIPTS:
        return "it needs pgbench's tables: name script files with --workload"
    return "correct the script; nothing was measured"


def _refuse(script: str, error: StepFailedError, *, hint: str) -> SpecError:
    return SpecError(f"script {script} fails", detail=error.detail or error.fact, hint=hint)


def _try_script(
    address: Address, generator: Pgbench, workload: PlannedWorkload, script: str, folder: Path
) -> StepFailedError | None:
    """Run one script and return why it failed; None if it succeeded or only took too long."""
    too_long = StepFailedError("the script takes longer than its check")
    began_s = monotonic_s()
    try:
        generator.run_load(
            plan_script_run(address, workload, script),
            directory=folder,
            should_abort=lambda: too_long if monotonic_s() - began_s > PATIENCE_S else None,
        )
    except StepFailedError as error:
        if error is too_long:
            return None
        # pgbench names a copy of the script; the user knows the original.
        error.detail = error.detail.replace(str((folder / f"script-1-{Path(script).name}").absolute()), script)
        return error
    return None
