"""Asks PostgreSQL's own program whether it takes settings, and how many huge pages it wants with them.

`postgres -C shared_memory_size_in_huge_pages` reads all settings as a start would, checks each value and those that
exclude each other, loads the libraries, and sums up the shared memory; it maps none of it. So the answer is exact for a
machine that is not here, too, and quick: no cluster is made. What it cannot tell is whether this machine has the memory:
that takes a start, on an empty cluster, and seconds.

The program wants a data directory, and gets one without data: a version, an empty configuration and a control file,
which is copied from the server that is asked about, or made by pg_resetwal for one that does not exist yet.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.facts.gucs import Context, VarType, find_guc
from pgdyno.run.host.host import THIS_HOST
from pgdyno.run.host.process import ServerUser
from pgdyno.run.host.stale import name_of_this_process, remove_stale_folders
from pgdyno.run.postgres.installation import Installation
from pgdyno.spec.table import LOG_PLACE_SETTINGS

HUGE_PAGES_COUNT = "shared_memory_size_in_huge_pages"
_IN_MEMORY, _ON_DISK = "/dev/shm", "/var/tmp"  # noqa: S108 - folders of random names are made there
# Of a segment of WAL, and of an empty cluster with room for its own segments and shared memory.
_ASKED_BYTES, _CLUSTER_BYTES = 32 * 1024**2, 1024**3
_PLACE_MARK = "pgdyno-tune-"
_PAGE_BYTES, _SEGMENT_BYTES = 8192, 16 * 1024**2
_MOST_CHOSEN_IO = 64
_FEW_BUFFERS = "16MB"
_SIZED_BY_SHARED_BUFFERS = frozenset({"commit_timestamp_buffers", "subtransaction_buffers", "transaction_buffers"})
# Before the server has read its settings each line has the built-in prefix, or none.
_PREFIX = re.compile(r"^(\S+ \S+ \S+ \[\d+\] )?(?P<kind>[A-Z]+\d?|postgres):\s+(?P<text>.*)")
_TOLD = frozenset({"FATAL", "ERROR", "PANIC", "DETAIL", "HINT", "WARNING", "postgres"})


def count_huge_pages(
    installation: Installation,
    settings: Mapping[str, str],
    *,
    user: ServerUser,
    control_file: Path | None = None,
    huge_page_bytes: int | None = None,
) -> int | None:
    """How many huge pages a server with these settings wants; None where its build cannot use any.

    Args:
        installation: Which PostgreSQL.
        settings: What it would be started with.
        user: Whom to run it as.
        control_file: Of the cluster that it is about; None: as a new cluster of that version would have.
        huge_page_bytes: Of a machine that is not this one; None: as this kernel says.

    Raises:
        SpecError: The server refuses a setting, in its own words.
        HostError: The place for it cannot be made.
    """
    given = {**settings, **({} if huge_page_bytes is None else {"huge_page_size": f"{huge_page_bytes // 1024}kB"})}
    with _place(_ASKED_BYTES) as place:
        data = _make_data(place, installation, user, control_file)
        argv = [installation.program("postgres"), "-C", HUGE_PAGES_COUNT, "-D", str(data)]
        argv += [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
        done = THIS_HOST.run(argv, user=user)
    if done.exit_code != 0:
        raise SpecError(
            f"PostgreSQL {installation.facts.version} refuses the settings",
            detail=_words_of(done.stderr),
            hint="leave out or change what --set fixes",
        )
    pages = int(done.stdout.strip())
    return pages if pages >= 0 else None


def shaping_settings(current: Mapping[str, str], major: int) -> dict[str, str]:
    """Those of a server's own settings that shape its shared memory, or exclude others: what only a restart changes.

    Args:
        current: By name, as pg_settings.setting has them.
        major: Of the server.
    """
    kept = {}
    for name, value in current.items():
        guc = find_guc(name, major)
        is_text = guc is not None and guc.vartype is VarType.STRING and name != "shared_preload_libraries"
        if guc is not None and guc.context is Context.POSTMASTER and not is_text and not _is_chosen(name, current):
            kept[name] = value
    return kept


def _is_chosen(name: str, current: Mapping[str, str]) -> bool:
    """Whether a server seems to have chosen a value by its shared_buffers, and would choose another with others.

    Source: PostgreSQL 18 src/backend/access/transam/xlog.c, XLOGChooseNumBuffers(), and slru.c, SimpleLruAutotuneBuffers();
    src/backend/storage/aio/aio_init.c, AioChooseMaxConcurrency().
    """
    pages = int(current.get("shared_buffers", "0"))
    if name == "wal_buffers":
        segment_pages = int(current.get("wal_segment_size", _SEGMENT_BYTES)) // _PAGE_BYTES
        return int(current[name]) == max(8, min(pages // 32, segment_pages))
    if name == "io_max_concurrency":
        return int(current[name]) <= _MOST_CHOSEN_IO
    if name in _SIZED_BY_SHARED_BUFFERS:
        return int(current[name]) == max(16, min(pages // 512, 1024) // 16 * 16)
    return False


@contextlib.contextmanager
def _place(needed_bytes: int) -> Iterator[Path]:
    """A folder for a moment, through which other accounts may pass."""
    try:
        folder = _find_folder(needed_bytes)
        remove_stale_folders(Path(folder), _PLACE_MARK)
        with tempfile.TemporaryDirectory(prefix=name_of_this_process(_PLACE_MARK), dir=folder) as place:
            Path(place).chmod(0o711)
            yield Path(place)
    except OSError as exc:
        raise HostError(
            "cannot try the settings", detail=str(exc), hint="it takes a few MB for temporary files"
        ) from exc


def _find_folder(needed_bytes: int) -> str:
    # Not where TMPDIR says: that is often closed to the server's account. And rather in memory: the programs flush what
    # they write, which on a busy disk takes minutes.
    with contextlib.suppress(OSError):
        usage = os.statvfs(_IN_MEMORY)
        if usage.f_bavail * usage.f_frsize >= needed_bytes and os.access(_IN_MEMORY, os.W_OK | os.X_OK):
            return _IN_MEMORY
    return _ON_DISK


def _make_data(place: Path, installation: Installation, user: ServerUser, control_file: Path | None) -> Path:
    data = place / "data"
    for folder in (data, data / "global", data / "pg_wal", data / "pg_wal/archive_status", data / "pg_wal/summaries"):
        folder.mkdir(mode=0o700)
    (data / "PG_VERSION").write_text(f"{installation.facts.major}\n", encoding="ascii")
    for name in ("postgresql.conf", "postgresql.auto.conf", "global/pg_control"):
        (data / name).touch()
    if control_file is not None:
        shutil.copyfile(control_file, data / "global/pg_control")
    if not user.is_self:
        for path in (data, *data.rglob("*")):
            shutil.chown(path, user.uid, user.gid)
    if control_file is None:
        # An empty control file is the word that it is to guess all of it. Source: pg_resetwal.c, read_controlfile().
        done = THIS_HOST.run([installation.program("pg_resetwal"), "-f", "-D", str(data)], user=user)
        if done.exit_code != 0:
            raise StepFailedError("pg_resetwal made no control file", detail=done.stderr.strip())
    return data


def _words_of(said: str) -> str:
    matches = [found for line in said.splitlines() if (found := _PREFIX.match(line)) and found["kind"] in _TOLD]
    return "\n".join(found["text"] for found in matches) or said.strip()


def start_empty(installation: Installation, settings: Mapping[str, str], *, user: ServerUser) -> bool:
    """Start a server with these settings on an empty cluster of its own, and throw both away. From the main thread.

    Without huge pages: those that are there belong to the server that is to be tuned. So may the ordinary memory; where
    the kernel has none for a second server, it is started with all else, and only few buffers.

    Args:
        installation: Which PostgreSQL.
        settings: What to start it with; its log is pgdyno's to read, whatever they say of it.
        user: Whom to run it as.

    Returns:
        Whether it had its own shared_buffers.

    Raises:
        SpecError: It refuses a setting.
        StepFailedError: initdb failed, or it does not start.
        HostError: The place for it cannot be made.
    """
    # psycopg comes with it: only who starts a server waits for that.
    from pgdyno.run.cluster.home import Home  # noqa: PLC0415
    from pgdyno.run.cluster.server import Server  # noqa: PLC0415
    from pgdyno.run.postgres.hints import lacks_memory  # noqa: PLC0415

    settings = {name: value for name, value in settings.items() if name not in LOG_PLACE_SETTINGS}
    with _place(_CLUSTER_BYTES) as place:
        home = Home(place, user)
        home.prepare()
        server = Server(installation=installation, home=home, log_path=place / "server.log")
        try:
            server.initdb()
            try:
                server.start({**settings, "huge_pages": "off"})
            except StepFailedError as error:
                if not lacks_memory(error.detail):
                    raise
                server.start({**settings, "huge_pages": "off", "shared_buffers": _FEW_BUFFERS})
                return False
            else:
                return True
        finally:
            server.abandon()
