"""A look at a server that pgdyno did not make, by its data directory: settings, version, state. Nothing is started.

A running server is asked through psql, as the account that owns it and as nobody else; it answers one query. What one
that does not run would take is told by its own program (`postgres -C`), which reads the configuration files as a start
would. Where this account may do neither, that is said, and nothing is guessed.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, PgdynoError, SpecError, StepFailedError
from pgdyno.facts.durability import judged_settings
from pgdyno.facts.gucs import find_guc
from pgdyno.record.preflight import ServerLook, ServerOrigin, Unseen
from pgdyno.run import process
from pgdyno.run.installation import SUPPORTED_MAJORS, installed_majors
from pgdyno.run.process import ServerUser

_PATIENCE_S = 3.0
# The account's own name, and the one that most clusters were made with.
_ROLES = (None, "postgres")
LOOKED_AT = (
    *("huge_pages", "huge_pages_status", "huge_page_size", "shared_buffers", "max_connections", "debug_assertions"),
    *("log_statement", "log_min_duration_statement", "log_duration", "track_io_timing", "data_directory"),
    *("shared_memory_size_in_huge_pages",),
)
# Known while a server runs, and of no one that does not.
_ONLY_RUNNING = frozenset({"huge_pages_status", "data_directory"})


class _Answer(msgspec.Struct, frozen=True):
    settings: dict[str, str]
    is_in_recovery: bool
    active_sessions: int


class _PidFile(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    port: int
    socket_dir: str


class DataFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A data directory, with the programs that belong to it."""

    path: Path
    major: int
    bindir: Path
    asker: ServerUser | None
    """Whom to run programs as: the data's owner where root asks, who must not run what somebody else may have put there;
    None: as ourselves."""
    pid: int | None
    """Of the postmaster that runs in it."""


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
        owner_uid, owner_gid = path.stat().st_uid, path.stat().st_gid
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
    running = _read_pid_file(path)
    bindir = bindir or (_find_running_bindir(running.pid) if running else None) or installed_majors().get(int(version))
    if bindir is None:
        raise HostError(
            f"no programs of PostgreSQL {version} are found for {path}", hint="name their folder with --pg-bindir"
        )
    return DataFolder(
        path=path,
        major=int(version),
        bindir=bindir,
        asker=_find_user(owner_uid, owner_gid) if os.geteuid() == 0 else None,
        pid=running.pid if running else None,
    )


def look_at_server(folder: DataFolder, *, major: int, named_major: int | None) -> tuple[ServerLook, tuple[Unseen, ...]]:
    """What can be seen of a server, and what cannot.

    Args:
        folder: Its data directory.
        major: Of the programs.
        named_major: Of the version that the user asked for.
    """
    unseen: list[Unseen] = []
    answer = _ask_running(folder, unseen)
    settings = answer.settings if answer else _read_files(folder, unseen)
    look = ServerLook(
        origin=ServerOrigin.RUNNING if answer else ServerOrigin.FILES,
        major=major,
        data_dir=str(folder.path),
        data_major=folder.major,
        named_major=named_major,
        settings=settings,
        is_in_recovery=answer.is_in_recovery if answer else None,
        active_sessions=answer.active_sessions if answer else None,
        huge_pages_bytes=_read_huge_pages(folder.pid) if folder.pid else None,
        has_assertions=None if "debug_assertions" not in settings else settings["debug_assertions"] == "on",
    )
    return look, tuple(unseen)


def _ask_running(folder: DataFolder, unseen: list[Unseen]) -> _Answer | None:
    running = _read_pid_file(folder.path)
    if running is None:
        return None
    # psycopg comes with it: only who asks a server waits for that.
    from pgdyno.run.sql import server_look_query  # noqa: PLC0415

    argv = [str(folder.bindir / "psql"), "-X", "-A", "-t", "-q", "-w", "-h", running.socket_dir]
    argv += ["-p", str(running.port), "-d", "postgres", "-c", server_look_query(_names_of(folder.major))]
    reasons = []
    for role in _ROLES:
        try:
            return _ask_as(argv, role, folder)
        except PgdynoError as error:
            reasons.append(f"{error.fact}: {error.detail}".rstrip(": "))
    what = "what the running server itself has in force (its configuration files were read instead)"
    unseen.append(Unseen(what=what, reason="; ".join(dict.fromkeys(reasons))))
    return None


def _ask_as(argv: list[str], role: str | None, folder: DataFolder) -> _Answer:
    environment = {**process.clean_environment(), "PGCONNECT_TIMEOUT": str(int(_PATIENCE_S))}
    named = [] if role is None else ["-U", role]
    done = process.run([*argv, *named], user=folder.asker, timeout_s=_PATIENCE_S, env=environment)
    if done.exit_code != 0:
        raise StepFailedError("psql was not let in", detail=" ".join(done.stderr.split()))
    try:
        return msgspec.json.decode(done.stdout, type=_Answer)
    except msgspec.DecodeError as exc:
        raise StepFailedError("psql answered something else", detail=str(exc)) from exc


def _read_files(folder: DataFolder, unseen: list[Unseen]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name in _names_of(folder.major):
        if name in _ONLY_RUNNING:
            continue
        # PostgreSQL takes -C only as the first word when root asks; the owner needs no such leave.
        argv = [str(folder.bindir / "postgres"), "-C", name, "-D", str(folder.path), *_config_argument(folder)]
        try:
            done = process.run(argv, user=folder.asker, timeout_s=_PATIENCE_S)
        except PgdynoError as error:
            unseen.append(Unseen(what="the server's settings", reason=f"{error.fact}: {error.detail}".rstrip(": ")))
            return settings
        if done.exit_code == 0:
            settings[name] = done.stdout.strip()
        elif "runtime-computed" not in done.stderr and folder.pid is None:
            last = done.stderr.strip().splitlines()[-1:]
            unseen.append(Unseen(what=f"the server's setting {name}", reason=" ".join(last)))
    return settings


def _names_of(major: int) -> list[str]:
    names = dict.fromkeys((*LOOKED_AT, *judged_settings()))
    return [name for name in names if find_guc(name, major) is not None]


def _config_argument(folder: DataFolder) -> list[str]:
    # Debian keeps /etc/postgresql/VERSION/CLUSTER for /var/lib/postgresql/VERSION/CLUSTER.
    if (folder.path / "postgresql.conf").exists():
        return []
    config = Path("/etc/postgresql", *folder.path.parts[-2:], "postgresql.conf")
    return ["-c", f"config_file={config}"] if config.exists() else []


def _read_pid_file(path: Path) -> _PidFile | None:
    """Of a postmaster that lives. Source: PostgreSQL src/include/utils/pidfile.h."""
    try:
        lines = (path / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        pid = abs(int(lines[0]))
        is_postgres = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() in {"postgres", "postmaster"}
        if not is_postgres:
            return None
        return _PidFile(pid=pid, port=int(lines[3]), socket_dir=lines[4].strip() or "localhost")
    except (OSError, ValueError, IndexError):
        return None


def _find_running_bindir(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/exe").readlink().parent
    except OSError:
        return None


def _find_user(uid: int, gid: int) -> ServerUser:
    try:
        return ServerUser(name=pwd.getpwuid(uid).pw_name, uid=uid, gid=gid)
    except KeyError:
        return ServerUser(name=str(uid), uid=uid, gid=gid)


def _read_huge_pages(pid: int) -> int | None:
    """Source: proc_pid_status(5), HugetlbPages."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields: Mapping[str, str] = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    words = fields.get("HugetlbPages", "").split()
    return int(words[0]) * 1024 if words else None
