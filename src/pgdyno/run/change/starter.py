"""Find what started a running server, so that it can be restarted in the same way, or why it may not be.

A server with a supervisor is left to it: a supervisor that sees the server end may restart it, fail over to another
server, or end a container. Nothing here starts or stops anything.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, PgdynoError
from pgdyno.run.change.changes import Starter
from pgdyno.run.change.named_server import NamedServer, show_unit
from pgdyno.run.host.process_id import look_at

# No match can be taken for an option of systemctl.
_UNIT = re.compile(r"/(?P<unit>\w[\w:.\\@-]*\.service)(/|$)", re.ASCII | re.MULTILINE)
_PATIENCE_S = 10.0
# What systemd stops with a unit, and does not start with it. Source: systemd.unit(5), the inverses of Requires, BindsTo, PartOf.
_STOPPED_WITH = ("RequiredBy", "BoundBy", "ConsistsOf")
# Source: Patroni 4 patroni/config.py, Config.CACHE_FILENAME, which it keeps in the data directory.
_PATRONI = "patroni.dynamic.json"
# What a server looks for from the folder in which it was started. It has entered its data directory before it needs others.
# Source: PostgreSQL 18 src/backend/utils/misc/guc.c, SelectConfigFiles(); postmaster.c, CreateOptsFile().
_RELATIVE = re.compile(
    r' "(?:-D|(?:-c(?:" ")?|--)(?:config_file|hba_file|ident_file|data_directory)=)(?:" ")?(?P<path>[^/"][^"]*)"'
)


class ServerOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The way a running server was started."""

    starter: Starter | None
    """The way to restart the server; None if pgdyno must not restart it."""
    obstacle: str = ""
    """The reason why pgdyno must not restart it, as a clause."""
    environment: dict[str, str] | None = None
    """The environment of the server's process; never written anywhere, because it may hold a password."""


def find_origin(server: NamedServer, pid: int) -> ServerOrigin:
    """Find what started the server whose postmaster has this pid.

    Raises:
        HostError: This account may not see how the server was started.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # Source: proc_pid_stat(5): the fields after the name begin with the 3rd, state; ppid is the 4th.
        parent = int(stat.rpartition(")")[2].split()[1])
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
        output = str(look_at(pid, lambda process: (process / "fd/2").readlink()))
        environment = _read_environment(pid)
        options = (server.path / "postmaster.opts").read_text(encoding="utf-8", errors="replace")
    except OSError as exc:
        raise HostError("cannot see how the server was started", detail=str(exc)) from exc
    # If Patroni is no systemd unit, its servers are children of process 1, as those of pg_ctl are.
    if (server.path / _PATRONI).exists():
        return ServerOrigin(starter=None, obstacle="Patroni watches over it: `patronictl restart` does it")
    units = [found["unit"] for found in _UNIT.finditer(groups)]
    if units:
        return _of_unit(units[-1], pid)
    obstacle = _find_watcher(pid, parent) or _find_relative(options, environment.get("PGDATA", ""))
    if obstacle:
        return ServerOrigin(starter=None, obstacle=obstacle)
    log = None if (server.path / "current_logfiles").exists() else output
    if log is not None and (not log.startswith("/") or _may_not_write(server, log)):
        return ServerOrigin(starter=None, obstacle=f"its log goes to {log}, which a restarted server could not open")
    return ServerOrigin(starter=Starter(log=log), environment=environment)


def _of_unit(unit: str, pid: int) -> ServerOrigin:
    try:
        is_main = show_unit(unit, "MainPID") == str(pid)
        dependents = _list_dependents(unit) if is_main else ()
    except PgdynoError:
        is_main, dependents = False, ()
    if not is_main:
        return ServerOrigin(starter=None, obstacle=f"it runs inside {unit}, which watches over it")
    if os.geteuid() != 0:
        return ServerOrigin(starter=None, obstacle=f"only root may have systemd restart {unit}")
    return ServerOrigin(starter=Starter(unit=unit, dependents=dependents))


def _list_dependents(unit: str) -> tuple[str, ...]:
    """Return the active units that stop together with a unit, directly or by way of others."""
    found = [unit]
    for one in found:
        for name in _STOPPED_WITH:
            found += [other for other in show_unit(one, name).split() if other not in found]
    return tuple(other for other in found[1:] if show_unit(other, "ActiveState") == "active")


def _find_watcher(pid: int, parent: int) -> str:
    if pid == 1:
        return "it is the first process of its container, which ends with it"
    if parent == 1:
        return ""
    try:
        name = Path(f"/proc/{parent}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        name = "a process outside of this container"
    # The systemd of a session adopts the processes that the session leaves behind.
    return "" if name == "systemd" else f"it is a child of {name} (pid {parent}), which may take its end for a failure"


def _find_relative(options: str, folder: str) -> str:
    """Return why the words of postmaster.opts name other files when they are used in another folder."""
    found = _RELATIVE.search(options.replace("-file=", "_file=").replace("data-directory=", "data_directory="))
    path = found["path"] if found else folder
    if not found and (' "-D' in options or path.startswith("/")):
        return ""
    return f"it was started with a relative path, {path}" if path else ""


def _may_not_write(server: NamedServer, log: str) -> bool:
    return server.run("/usr/bin/test", "-w", log, timeout_s=_PATIENCE_S).exit_code != 0


def _read_environment(pid: int) -> dict[str, str]:
    words = look_at(pid, lambda process: (process / "environ").read_bytes()).split(b"\0")
    pairs = (os.fsdecode(word).partition("=") for word in words if b"=" in word)
    # Source: PostgreSQL 18 src/bin/pg_ctl/pg_ctl.c, start_postmaster(): pg_ctl's own.
    return {name: value for name, _, value in pairs if name != "PG_GRANDPARENT_PID"}
