"""Run a PgBouncer in front of a server of pgdyno's own, for the length of a trial.

It runs as the server's account, listens on a socket beside the server's, and dies with pgdyno as the server does. Its
configuration says what the study says, and otherwise what PgBouncer has built in.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, PgdynoError, StepFailedError
from pgdyno.plan.types import PlannedPooler
from pgdyno.record.durable import writing
from pgdyno.record.samples.pooler import POOLER_INI, POOLER_LOG
from pgdyno.run.cluster.server import Server, read_tail
from pgdyno.run.host import process
from pgdyno.run.host.log import LOG
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.pooler_console import CONSOLE, SilentPoolerError, find_silence, open_console
from pgdyno.run.under_test import WatchedPooler

# The socket lies in a folder of this server alone.
_PORT = 6432
_START_PATIENCE_S = 20.0
_LOOK_EVERY_S = 0.02
# pgdyno's own connections: the console, and one that shows that transactions get through.
_OWN_CLIENTS = 10
_LOG_TAIL_LINES = 8
# More than the statements of any script.
_KEPT_STATEMENTS = 200
_HINT = "see pooler.log in the trial's folder; what was finished is kept, and `pgdyno resume` continues"


class Pgbouncer:
    """One PgBouncer. Use it from the main thread.

    Args:
        planned: What to run.
        server: The server behind it, which runs.
        log_folder: The folder for its log, and for a copy of its configuration.
        dbname: The database that it leads to; None: the loaded one.
    """

    def __init__(self, planned: PlannedPooler, server: Server, *, log_folder: Path, dbname: str | None = None) -> None:
        self._planned = planned
        self._dbname = dbname or server.address.dbname
        self._server = server
        self._log_path = log_folder / POOLER_LOG
        self._ini_copy = log_folder / POOLER_INI
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Address:
        """Where clients of this machine reach the server's database through it."""
        return msgspec.structs.replace(self._server.address, port=self._port, dbname=self._dbname)

    @property
    def _port(self) -> int:
        access = self._server.access
        return _PORT if access is None else access.pooler_port

    @property
    def watched(self) -> WatchedPooler:
        """What samplers look at."""
        if self._process is None:
            raise RuntimeError("the pooler was not started")
        console = msgspec.structs.replace(self.address, dbname=CONSOLE)
        return WatchedPooler(name=self._planned.name, pid=self._process.pid, console=console)

    def start(self) -> None:
        """Start it, and return once transactions get through.

        Raises:
            HostError: The plan's program is not there.
            StepFailedError: It does not start, or lets nothing through.
        """
        if self._planned.program is None:
            raise HostError(f"the pooler {self._planned.name} has no program", hint="install the package pgbouncer")
        home = self._server.home
        ini = home.work / "pgbouncer.ini"
        text = self._format_ini()
        self._server.write_file(ini, text)
        with writing(self._log_path):
            self._ini_copy.write_text(text, encoding="utf-8")
            log_file = self._log_path.open("ab")
        with log_file as log:
            self._process = process.start(
                [self._planned.program.path, str(ini)],
                user=home.user,
                stdout=log,
                stderr=log,
                # Where it is found after a kill -9.
                cwd=home.sockets,
            )
        try:
            self._await_answer()
        except PgdynoError:
            self.abandon()
            raise
        LOG.info("the pooler %s, pid %d, lets transactions through", self._planned.name, self._process.pid)

    def _format_ini(self) -> str:
        """Format the configuration, and write the files that it names."""
        folder, access, address = self._server.home.work, self._server.access, self.address
        secrets, listens_on, hba = {address.user: ""}, "", None
        if access is not None:
            access.check_free(is_pooled=True)
            listens_on, hba = access.listens_on, folder / "pgbouncer-hba.conf"
            with self._server.connect(database=self._dbname) as connection:
                secrets[sql.LOAD_ROLE] = sql.read_scram_verifier(connection, sql.LOAD_ROLE)
            self._server.write_file(hba, access.format_pooler_hba())
        users = folder / "pgbouncer-users.txt"
        self._server.write_file(users, "".join(f'"{name}" "{secret}"\n' for name, secret in secrets.items()))
        port = self._server.port
        return format_ini(self._planned, address, server_port=port, users=users, listens_on=listens_on, hba=hba)

    def find_failure(self) -> StepFailedError | None:
        """Return the error to raise if it has ended, with the end of its log; None while it lives."""
        if self._process is None or self._process.poll() is None:
            return None
        how = process.describe_end(self._process.returncode)
        return StepFailedError(
            f"the pooler {self._planned.name} {how}", detail=read_tail(self._log_path, _LOG_TAIL_LINES), hint=_HINT
        )

    def find_silence(self) -> SilentPoolerError | None:
        """Return the error to raise if it does not answer a new connection, with the end of its log; None if it does."""
        silence = find_silence(self._planned.name, self.watched.console, hint=_HINT)
        if silence is not None:
            silence.detail = f"{silence.detail}\n{read_tail(self._log_path, _LOG_TAIL_LINES)}".strip()
        return silence

    def abandon(self) -> None:
        """End it at once."""
        if self._process is not None:
            process.stop(self._process)
            self._process = None

    def _await_answer(self) -> None:
        deadline_s = time.monotonic() + _START_PATIENCE_S
        last = ""
        while time.monotonic() < deadline_s:
            if (failure := self.find_failure()) is not None:
                raise failure
            try:
                # A client gets its login before any server connection is there.
                with sql.connect(self.address) as connection:
                    sql.read_setting(connection, "server_version")
            except StepFailedError as error:
                last = error.reason
                time.sleep(_LOOK_EVERY_S)
                continue
            with contextlib.closing(open_console(self.watched.console)):
                return
        detail = f"{last}\n{read_tail(self._log_path, _LOG_TAIL_LINES)}".strip()
        raise StepFailedError(
            f"the pooler {self._planned.name} lets nothing through within {_START_PATIENCE_S:g} s", detail=detail
        )


def format_ini(
    planned: PlannedPooler,
    address: Address,
    *,
    server_port: int,
    users: Path,
    listens_on: str = "",
    hba: Path | None = None,
) -> str:
    """Format the configuration of a PgBouncer, as far as it is not what PgBouncer has built in.

    Args:
        planned: What to run.
        address: Where it listens; its folder is also that of the server's socket.
        server_port: Port of the server's socket.
        users: Its file of users.
        listens_on: The address at which load hosts reach it; empty: it listens on the socket only.
        hba: Its file of who may come from where; None: everybody who reaches the socket.
    """
    values: dict[str, object] = {
        "listen_port": address.port,
        "listen_addr": listens_on,
        "unix_socket_dir": address.host,
        # The folder's permissions protect the socket.
        "auth_type": "trust" if hba is None else "hba",
        **({} if hba is None else {"auth_hba_file": hba}),
        "auth_file": users,
        "admin_users": address.user,
        "pool_mode": planned.mode.value,
        "default_pool_size": planned.size,
        "max_client_conn": planned.most_clients + _OWN_CLIENTS,
        # Built in are 120 s, after which PgBouncer would disconnect a client of a full pool, which ends the load.
        "query_wait_timeout": 0,
    }
    if planned.program is not None and planned.program.keeps_statements:
        values["max_prepared_statements"] = _KEPT_STATEMENTS
    host = address.host.replace("'", "''")
    lines = [
        "[databases]",
        f"{address.dbname} = host='{host}' port={server_port} dbname={address.dbname}",
        "",
        "[pgbouncer]",
        *(f"{name} = {value}".rstrip() for name, value in values.items()),
    ]
    return "\n".join(lines) + "\n"
