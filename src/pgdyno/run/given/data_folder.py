"""Find a data directory's owner, the programs that belong to it, and the server that runs in it.

The owner controls the directory's content and the processes in it, and may have replaced any of them. So root runs each
of the programs as that account, in an environment that reveals nothing of root's own. A process counts as the server
only if it belongs to the owner and works in that very directory. Nothing is changed here.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from pgdyno.errors import HostError, SpecError, StepFailedError, why
from pgdyno.facts.versions import WHAT_IS_SUPPORTED, is_supported
from pgdyno.record.types import ServerFacts
from pgdyno.run.host import process
from pgdyno.run.host.process import Completed, ServerUser
from pgdyno.run.host.process_id import ProcessId, identify, look_at, read_status
from pgdyno.run.postgres.installation import (
    installed_majors,
    is_embedded,
    read_named_facts,
    read_server_facts,
)
from pgdyno.spec.study import ServerSpec

# The role with the account's own name, and the role with which most clusters were made.
_ROLES = (None, "postgres")
# Source: Debian's /etc/login.defs, ENV_PATH and ENV_SUPATH; a server's own PATH is known only while it runs.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_Answer = TypeVar("_Answer")


class Postmaster(msgspec.Struct, frozen=True, kw_only=True):
    """The main process of a running server."""

    id: ProcessId
    port: int
    socket_dir: str
    """The folder of the server's socket; empty until the server listens."""


class DataFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A data directory, with the programs that belong to it."""

    path: Path
    major: int
    bindir: Path
    uid: int
    """The owner of the directory."""
    asker: ServerUser | None
    """The account to run programs as: the owner if pgdyno runs as root; None: the present account."""

    @property
    def pid(self) -> int | None:
        """Return the pid of the server that runs in the directory now."""
        running = self.postmaster()
        return running.id.pid if running else None

    def postmaster(self) -> Postmaster | None:
        """Return the running server; None if none runs. Source: PostgreSQL src/include/utils/pidfile.h."""
        return _read_postmaster(self.path, self.uid)

    def config_file(self) -> Path:
        """Return the configuration file of a server that does not run.

        For /var/lib/postgresql/VERSION/CLUSTER Debian keeps it in /etc/postgresql/VERSION/CLUSTER.
        """
        own = self.path / "postgresql.conf"
        debian = Path("/etc/postgresql", *self.path.parts[-2:], "postgresql.conf")
        return debian if not own.exists() and debian.exists() else own

    def run(
        self,
        program: str,
        *words: str,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        is_foreign: bool = False,
    ) -> Completed:
        """Run one of the server's programs, or one of the machine's, as the owner.

        Args:
            program: Its name, or its path.
            words: Its arguments.
            timeout_s: How long it may take.
            environment: Its environment; None: a clean one.
            is_foreign: True if that is the environment of a process of the owner's; see `process.run`.

        Raises:
            HostError: The program is missing.
            StepFailedError: It does not end in time.
        """
        argv = [program if "/" in program else str(self.bindir / program), *words]
        env = environment or _environment(self.asker)
        return process.run(argv, user=self.asker, timeout_s=timeout_s, env=env, is_foreign=is_foreign)

    def ask_program(
        self, name: str, *, settings: Mapping[str, str] | None = None, config_file: str | None = None, timeout_s: float
    ) -> Completed:
        """Run `postgres -C` to read a setting from the configuration files; no server is started.

        Args:
            name: The setting.
            settings: Settings to apply on top of the files, as on the command line.
            config_file: The configuration file of the running server, if it is known.
            timeout_s: The time after which the program is stopped.

        Raises:
            HostError: The program is missing.
            StepFailedError: It does not end in time.
        """
        given = {"config_file": config_file or str(self.config_file()), **(settings or {})}
        options = [word for key, value in given.items() for word in ("-c", f"{key}={value}")]
        # PostgreSQL run by root accepts -C only as the first word; here the owner runs it.
        return self.run("postgres", "-C", name, "-D", str(self.path), *options, timeout_s=timeout_s)

    def ask_once(
        self,
        running: Postmaster,
        query: str,
        answer: type[_Answer],
        *,
        patience_s: float,
        database: str | None = None,
    ) -> _Answer:
        """Return the one JSON document that a query gives.

        Args:
            running: The server.
            query: The query, as psql takes it.
            answer: The type of the document.
            patience_s: The time limit for psql.
            database: The database to query, with only system catalogues in the search path; None: `postgres` with its
                own search path.

        Raises:
            HostError: psql is missing.
            StepFailedError: The server accepts none of the accounts that pgdyno may use, or does not answer in time;
                the detail has one line for each.
        """
        words = ["-X", "-A", "-t", "-q", "-w", "-h", running.socket_dir, "-p", str(running.port)]
        # -d is avoided, because it takes a name such as `host=elsewhere` for a connection string.
        environment = {
            **_environment(self.asker),
            "PGDATABASE": database or "postgres",
            "PGOPTIONS": "-c search_path=pg_catalog" if database else "",
            "PGCONNECT_TIMEOUT": str(int(patience_s)),
        }
        reasons: list[str] = []
        for role in _ROLES if running.socket_dir else ():
            named = [] if role is None else ["-U", role]
            try:
                done = self.run("psql", *words, "-c", query, *named, timeout_s=patience_s, environment=environment)
                if done.exit_code == 0:
                    return msgspec.json.decode(done.stdout, type=answer)
                reasons.append(f"psql was not let in: {' '.join(done.stderr.split())}")
            except StepFailedError as error:
                reasons.append(error.reason)
            except msgspec.DecodeError as exc:
                reasons.append(f"psql answered something else: {exc}")
        raise StepFailedError("the server does not let pgdyno in", detail="\n".join(dict.fromkeys(reasons)))


def find_meant_folder(path: Path, named: ServerSpec | None) -> tuple[DataFolder, ServerFacts]:
    """Find the data directory that the user named, and the PostgreSQL installation that it belongs to.

    Args:
        path: The path that the user named.
        named: The PostgreSQL version or programs that the user gave; None: those of the directory.

    Raises:
        SpecError: The path is not a data directory, or has another version than the user gave.
        HostError: The directory may not be read, or its programs are missing.
    """
    said = read_named_facts(named) if named else None
    folder = find_data_folder(path, bindir=Path(said.bindir) if said else None)
    facts = said or read_server_facts(folder.bindir, user=folder.asker)
    if facts.major != folder.major:
        raise SpecError(
            f"the data are of PostgreSQL {folder.major}, but {facts.major} was asked for",
            detail=f"{folder.path}/PG_VERSION",
            hint="leave the version out: the data directory states it",
        )
    return folder, facts


def find_data_folder(path: Path, *, bindir: Path | None) -> DataFolder:
    """Check that a path is a data directory, and find programs for it.

    Args:
        path: The path that the user named; links in it are followed.
        bindir: The folder of programs that the user named; None: that of the running server, or else of an installation
            of the same version.

    Raises:
        SpecError: The path is not a data directory, or has a version that pgdyno does not know.
        HostError: The directory may not be read, or no programs of its version are found.
    """
    # As the kernel names it in /proc, by which the server's own processes are told from others.
    # Path.resolve() raises a RuntimeError at a loop of links before Python 3.13.
    path = Path(os.path.realpath(path))
    try:
        version = (path / "PG_VERSION").read_text(encoding="ascii", errors="replace").strip()
        owner = path.stat()
    except PermissionError as exc:
        raise HostError(
            f"this account may not look into {path}", detail=str(exc), hint="run as root or as the server's account"
        ) from exc
    except OSError as exc:
        raise SpecError(
            f"{path} is no data directory of PostgreSQL",
            detail=why(exc),
            hint="name the folder that `SHOW data_directory` prints",
        ) from exc
    if not version.isdigit() or not is_supported(int(version)):
        raise SpecError(f"the data are of PostgreSQL {version}", hint=f"pgdyno takes versions {WHAT_IS_SUPPORTED}")
    running = _read_postmaster(path, owner.st_uid)
    bindir = bindir or (_find_running_bindir(running) if running else None) or installed_majors().get(int(version))
    if bindir is None:
        own = "--server embedded takes pgdyno's own, or " if is_embedded(int(version)) else ""
        raise HostError(
            f"no programs of PostgreSQL {version} are found for {path}", hint=f"{own}name their folder with --pg-bindir"
        )
    return DataFolder(path=path, major=int(version), bindir=bindir, uid=owner.st_uid, asker=find_asker(owner))


def find_asker(owner: os.stat_result) -> ServerUser | None:
    """Return the account, with all its groups, to run an owner's programs as; None: the present one.

    On Debian a server's key is readable through a group.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwuid(owner.st_uid)
    except KeyError:
        return ServerUser(name=str(owner.st_uid), uid=owner.st_uid, gid=owner.st_gid)
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return ServerUser(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, groups=groups)


def _environment(asker: ServerUser | None) -> dict[str, str]:
    if asker is None or asker.is_self:
        return process.clean_environment()
    return {"PATH": _PATH, "LC_ALL": "C", "LANG": "C"}


def _read_postmaster(path: Path, uid: int) -> Postmaster | None:
    try:
        lines = (path / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        found = identify(abs(int(lines[0])))
        if found is None or not _is_at_work(found.pid, path, uid):
            return None
        # The server writes the file line by line, and its status last.
        is_told = len(lines) > 7
        socket_dir = (lines[4].strip() or "localhost") if is_told else ""
        return Postmaster(id=found, port=int(lines[3]) if is_told else 0, socket_dir=socket_dir)
    except (OSError, ValueError, IndexError):
        return None


def find_strangers(path: Path) -> int | None:
    """Find a PostgreSQL process that works in a directory, whatever postmaster.pid says; None if none is visible."""
    for folder in Path("/proc").iterdir():
        # Processes may end during the loop, and some may not be inspected.
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and _is_of_postgres(folder) and _works_in(int(folder.name), path):
                return int(folder.name)
    return None


def _is_of_postgres(folder: Path) -> bool:
    return (folder / "comm").read_text(encoding="utf-8").strip() in {"postgres", "postmaster"}


def _is_at_work(pid: int, path: Path, uid: int) -> bool:
    """Return whether a process is a PostgreSQL process of this account in this very directory.

    Raises:
        OSError: The process has ended.
    """
    folder = Path("/proc", str(pid))
    if not _is_of_postgres(folder):
        return False
    # Source: proc_pid_status(5): real, effective, saved and file system uid.
    if {int(word) for word in read_status(folder)["Uid"].split()} != {uid}:
        return False
    try:
        return _works_in(pid, path)
    except PermissionError:
        # Another account may not see the folder, but it may not change anything either.
        return True


def _works_in(pid: int, path: Path) -> bool:
    sought = path.stat()
    return os.path.samestat(look_at(pid, lambda process: (process / "cwd").stat()), sought)


def _find_running_bindir(running: Postmaster) -> Path | None:
    try:
        return look_at(running.id.pid, lambda process: (process / "exe").readlink().parent)
    except OSError:
        return None
