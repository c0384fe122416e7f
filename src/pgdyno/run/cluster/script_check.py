"""Run script files once on a little data, so that a mistake shows before the study's data are loaded.

The check uses its own temporary cluster, because a script may change anything in it. It refuses errors that no data can
avoid: what pgbench cannot parse, and errors of PostgreSQL's class 42, such as wrong syntax or an unknown column. Other
failures may come from the small amount of data; they are only reported, and the trial decides. Scripts of loads that read from
standbys are run on one: the cluster is restarted as a standby.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, SpecError, StepFailedError
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.serverlog import parse_serverlog
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.load_access import LoadAccess
from pgdyno.run.cluster.server import DATABASE, Server
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.process import make_reachable
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
from pgdyno.run.load.process import INVOCATION_FILE, Invocation
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.installation import Installation
from pgdyno.spec.pooler import REPLICAS
from pgdyno.spec.study import DataSpec
from pgdyno.spec.table import SettingValue

# Source: PostgreSQL 18 manual, pgbench, "Exit Status": errors before the first transaction.
_REFUSED_EXIT_CODE = 1
# Source: PostgreSQL 18 manual, appendix A: "Syntax Error or Access Rule Violation".
_MISTAKE_CLASS = "42"
# Source: PostgreSQL 18 manual, appendix A: what a standby answers to statements that write, lock or ask for more than it can do:
# read_only_sql_transaction, object_not_in_prerequisite_state, feature_not_supported.
_REFUSED_BY_STANDBY = frozenset({"25006", "55000", "0A000"})
_STANDBY_SIGNAL = "standby.signal"
_DENIED = "permission denied"


def check_scripts(
    *,
    installation: Installation,
    home: Home,
    data: DataSpec,
    workloads: tuple[PlannedWorkload, ...],
    settings: Mapping[str, SettingValue],
    access: LoadAccess | None = None,
    on_activity: Callable[[str], None],
) -> tuple[str, ...]:
    """Run each script file for a second with one client at scale 1. Call this from the main thread.

    Args:
        installation: The PostgreSQL.
        home: Where a server runs for that.
        data: The study's data.
        workloads: What has the scripts.
        settings: Of the server.
        access: How load hosts will reach the server: then the scripts have the rights of their role only.
        on_activity: Receives what is being done.

    Returns:
        A sentence for each script that failed but may succeed on the study's data.

    Raises:
        SpecError: A script is wrong with any data, cannot be read, or the server refuses a setting.
        HostError: The server's account cannot read a script.
        StepFailedError: The server does not start or dies.
    """
    folder = home.work / "script-check"
    shutil.rmtree(folder, ignore_errors=True)
    make_reachable(folder)
    server = Server(installation=installation, home=home, log_path=folder / "server.log")
    remarks = []
    try:
        on_activity("initdb")
        server.initdb(data)
        server.start(settings)
        _load_a_little(server, data, folder / "init")
        address = server.address if access is None else _take_role(server, access)
        scripts = sorted(list_scripts(workloads), key=lambda one: _reads_standbys(one[0]))
        is_standby = False
        for number, (workload, name) in enumerate(scripts):
            if _reads_standbys(workload) and not is_standby:
                is_standby = True
                on_activity("starting a standby")
                _restart_as_standby(server, settings)
            on_activity(name)
            remark = _try_script(server, address, workload, name, folder / str(number))
            if remark is not None:
                remarks.append(f"{name} failed on a little data, where scale is 1: {remark}")
    except PgdynoError as exc:
        failure = server.find_failure()
        if failure is not None:
            raise failure from exc
        raise
    finally:
        server.abandon()
        home.clear_data()
        shutil.rmtree(folder, ignore_errors=True)
    return tuple(remarks)


def _reads_standbys(workload: PlannedWorkload) -> bool:
    return workload.endpoint == REPLICAS


def _restart_as_standby(server: Server, settings: Mapping[str, SettingValue]) -> None:
    """Go on as a standby that has replayed all there is: it refuses what standbys refuse, and follows nobody."""
    server.stop()
    server.write_file(server.home.data / _STANDBY_SIGNAL, "")
    server.start({**settings, "hot_standby": True})


def _load_a_little(server: Server, data: DataSpec, directory: Path) -> None:
    with server.connect(database="postgres") as connection:
        sql.create_database(connection, DATABASE)
    run = plan_little_data(server.address, data)
    pgbench = Pgbench(installation=server.installation, user=server.home.user)
    pgbench.run_init(run, directory=directory, should_abort=server.find_failure)


def _take_role(server: Server, access: LoadAccess) -> Address:
    """Make the role of load hosts, and return where sessions of this machine have its rights."""
    with server.connect() as connection:
        access.make_role(connection)
    return msgspec.structs.replace(server.address, parameters={"options": f"-c role={sql.LOAD_ROLE}"})


def _try_script(server: Server, address: Address, workload: PlannedWorkload, name: str, directory: Path) -> str | None:
    """Run one script and describe its failure; None if it succeeded or only took too long."""
    run = plan_script_run(address, workload, name)
    too_long = StepFailedError("the script takes longer than its check")
    began_s = monotonic_s()

    def find_reason() -> PgdynoError | None:
        return server.find_failure() or (too_long if monotonic_s() - began_s > PATIENCE_S else None)

    log_start = server.log_path.stat().st_size
    make_reachable(directory)
    pgbench = Pgbench(installation=server.installation, user=server.home.user)
    try:
        pgbench.run_load(run, directory=directory, should_abort=find_reason)
    except StepFailedError as exc:
        if exc is too_long:
            return None
        if server.find_failure() is not None:
            raise
        # pgbench names a copy of the script; the user knows the original.
        words = exc.detail.replace(str(directory / f"script-1-{Path(name).name}"), name)
        log = server.log_path.read_bytes()[log_start:].decode(errors="replace")
        if _reads_standbys(workload) and (statement := _find_refused_statement(log)) is not None:
            raise SpecError(
                f"script {name} cannot run on a standby",
                detail=f"{words}\n{statement}".strip(),
                hint="a standby only reads: leave that statement out, or use the endpoint primary; nothing is loaded yet",
            ) from exc
        if not _is_mistake(directory, words, log):
            return words or exc.fact
        hint = hint_for_mistake(words)
        if not address.is_plain and _DENIED in words:
            hint = f"load hosts come by the role {sql.LOAD_ROLE}, which reads and writes all data, and makes tables; nothing is loaded yet"
        raise SpecError(f"script {name} fails", detail=words, hint=hint) from exc
    return None


def _is_mistake(directory: Path, words: str, log: str) -> bool:
    """Return whether the script would fail with any data."""
    done = msgspec.json.decode((directory / INVOCATION_FILE).read_bytes(), type=Invocation)
    if done.exit_code == _REFUSED_EXIT_CODE or UNDEFINED_VARIABLE in words or NO_PIPELINE in words:
        return True
    states = [event.origin.sqlstate for event in parse_serverlog(log, clock_offset_s=0.0) if event.origin is not None]
    return any(state.startswith(_MISTAKE_CLASS) for state in states)


def _find_refused_statement(log: str) -> str | None:
    """Return the first statement that a standby refused because it is one, by its log; None without any."""
    for event in parse_serverlog(log, clock_offset_s=0.0):
        if event.origin is not None and event.origin.sqlstate in _REFUSED_BY_STANDBY:
            return event.attached.get("STATEMENT", "")
    return None
