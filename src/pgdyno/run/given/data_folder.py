"""A data directory that the user named: whose it is, the programs that belong to it, and the server that runs in it.

What lies in it and what runs there belong to its owner, who may have put anything in the place of anything. So root runs
each of its programs as that account and in an environment that tells nothing of root's own; a process is taken for its
server only when it is the owner's and works in that very directory. Nothing is changed here.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.record.types import ServerFacts
from pgdyno.run.host import process
from pgdyno.run.host.host import THIS_HOST
from pgdyno.run.host.process import Completed, ServerUser
from pgdyno.run.host.process_id import ProcessId, identify
from pgdyno.run.postgres.installation import (
    SUPPORTED_MAJORS,
    installed_majors,
    is_embedded,
    read_named_facts,
    read_server_facts,
)
from pgdyno.spec.study import ServerSpec

# The account's own name, and the one that most clusters were made with.
_ROLES = (None, "postgres")
# Source: Debian's /etc/login.defs, ENV_PATH and ENV_SUPATH; a server's own PATH is known while it runs only.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_Answer = TypeVar("_Answer")


class Postmaster(msgspec.Struct, frozen=True, kw_only=True):
    """A server that runs in a data directory."""

    id: ProcessId
    port: int
    socket_dir: str
    """Empty as long as it does not listen."""


class DataFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A data directory, with the programs that belong to it."""

    path: Path
    major: int
    bindir: Path
    uid: int
    """Its owner's."""
    asker: ServerUser | None
    """Whom to run programs as: the owner where root asks; None: as ourselves."""

    @property
    def pid(self) -> int | None:
        """Of the postmaster that runs in it now."""
        running = self.postmaster()
        return running.id.pid if running else None

    def postmaster(self) -> Postmaster | None:
        """Of a server that lives. Source: PostgreSQL src/include/utils/pidfile.h."""
        return _read_postmaster(self.path, self.uid)

    def config_file(self) -> Path:
        """Where a server that does not run has its configuration.

        Debian keeps /etc/postgresql/VERSION/CLUSTER for /var/lib/postgresql/VERSION/CLUSTER.
        """
        own = self.path / "postgresql.conf"
        debian = Path("/etc/postgresql", *self.path.parts[-2:], "postgresql.conf")
        return debian if not own.exists() and debian.exists() else own

    def run(
        self, program: str, *words: str, timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> Completed:
        """Run one of its programs, or one of the machine's, as its owner.

        Raises:
            HostError: The program is missing.
            StepFailedError: It does not end in time.
        """
        argv = [program if "/" in program else str(self.bindir / program), *words]
        return THIS_HOST.run(argv, user=self.asker, timeout_s=timeout_s, env=environment or _environment(self.asker))

    def ask_program(
        self, name: str, *, settings: Mapping[str, str] | None = None, config_file: str | None = None, timeout_s: float
    ) -> Completed:
        """What `postgres -C` says of a setting, by the configuration files; nothing is started.

        Args:
            name: The setting.
            settings: What it is to read beside the files, as if they stood on the command line.
            config_file: Of the running server, where that is known.
            timeout_s: How long it may take.

        Raises:
            HostError: The program is missing.
            StepFailedError: It does not end in time.
        """
        given = {"config_file": config_file or str(self.config_file()), **(settings or {})}
        options = [word for key, value in given.items() for word in ("-c", f"{key}={value}")]
        # PostgreSQL takes -C only as the first word when root asks; the owner needs no such leave.
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
        """What a query says, which gives one JSON document.

        Args:
            running: The server.
            query: In psql's words.
            answer: What the document is.
            patience_s: How long it may take.
            database: Which; what anybody made in it is then out of sight. None: `postgres`, as it is.

        Raises:
            HostError: psql is missing.
            StepFailedError: The server lets nobody in whom we may be, or does not answer in time, in one line for each.
        """
        words = ["-X", "-A", "-t", "-q", "-w", "-h", running.socket_dir, "-p", str(running.port)]
        # Not with -d, which takes a name such as `host=elsewhere` for a place to connect to.
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
    """The data directory that the user named, and the PostgreSQL that it is of.

    Args:
        path: What the user named.
        named: The server that the user says it is; None: whatever it is.

    Raises:
        SpecError: It is no data directory, or of another version than the user says.
        HostError: It may not be read, or its programs are missing.
    """
    said = read_named_facts(named) if named else None
    folder = find_data_folder(path, bindir=Path(said.bindir) if said else None)
    facts = said or read_server_facts(folder.bindir, user=folder.asker)
    if facts.major != folder.major:
        raise SpecError(
            f"the data are of PostgreSQL {folder.major}, asked for is {facts.major}",
            detail=f"{folder.path}/PG_VERSION",
            hint="leave the version out: the data tell it",
        )
    return folder, facts


def find_data_folder(path: Path, *, bindir: Path | None) -> DataFolder:
    """Recognise a data directory and find programs for it.

    Args:
        path: What the user named.
        bindir: Programs that the user named; else those of the running server, else installed ones of its version.

    Raises:
        SpecError: It is no data directory, or of a version that pgdyno does not know.
        HostError: It may not be read, or no programs of its version are found.
    """
    path = path.absolute()
    try:
        version = (path / "PG_VERSION").read_text(encoding="ascii").strip()
        owner = path.stat()
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise SpecError(
            f"{path} is no data directory of PostgreSQL",
            detail=str(exc),
            hint="name the folder that `SHOW data_directory` prints",
        ) from exc
    except PermissionError as exc:
        raise HostError(
            f"this account may not look into {path}", detail=str(exc), hint="run as root or as the server's account"
        ) from exc
    if not version.isdigit() or int(version) not in SUPPORTED_MAJORS:
        known = f"{SUPPORTED_MAJORS[0]} to {SUPPORTED_MAJORS[-1]}"
        raise SpecError(f"the data are of PostgreSQL {version}", hint=f"pgdyno knows versions {known}")
    running = _read_postmaster(path, owner.st_uid)
    bindir = bindir or (_find_running_bindir(running) if running else None) or installed_majors().get(int(version))
    if bindir is None:
        own = "--server embedded takes pgdyno's own, or " if is_embedded(int(version)) else ""
        raise HostError(
            f"no programs of PostgreSQL {version} are found for {path}", hint=f"{own}name their folder with --pg-bindir"
        )
    return DataFolder(path=path, major=int(version), bindir=bindir, uid=owner.st_uid, asker=find_asker(owner))


def find_asker(owner: os.stat_result) -> ServerUser | None:
    """Whom to run an owner's programs as; with all its groups, for on Debian a server's key is readable through one."""
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
        # It tells its place bit by bit, and its state last.
        is_told = len(lines) > 7
        socket_dir = (lines[4].strip() or "localhost") if is_told else ""
        return Postmaster(id=found, port=int(lines[3]) if is_told else 0, socket_dir=socket_dir)
    except (OSError, ValueError, IndexError):
        return None


def find_strangers(path: Path) -> int | None:
    """A process of PostgreSQL's that works in a directory, whatever its postmaster.pid says; None: none is seen."""
    for folder in Path("/proc").iterdir():
        # Others end while we look, and may not be looked into.
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and _is_of_postgres(folder) and (folder / "cwd").samefile(path):
                return int(folder.name)
    return None


def _is_of_postgres(folder: Path) -> bool:
    return (folder / "comm").read_text(encoding="utf-8").strip() in {"postgres", "postmaster"}


def _is_at_work(pid: int, path: Path, uid: int) -> bool:
    """Whether a process is one of PostgreSQL's, of that account, in that very directory.

    Raises:
        OSError: It has ended.
    """
    folder = Path("/proc", str(pid))
    if not _is_of_postgres(folder):
        return False
    fields = dict(line.split(":", 1) for line in (folder / "status").read_text(encoding="utf-8").splitlines())
    # Source: proc_pid_status(5): real, effective, saved and file system's.
    if {int(word) for word in fields["Uid"].split()} != {uid}:
        return False
    try:
        return (folder / "cwd").samefile(path)
    except PermissionError:
        # Another account may not see that; nor may it change anything.
        return True


def _find_running_bindir(running: Postmaster) -> Path | None:
    try:
        return Path(f"/proc/{running.id.pid}/exe").readlink().parent
    except OSError:
        return None
