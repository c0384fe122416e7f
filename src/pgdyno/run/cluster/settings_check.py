"""Ask PostgreSQL's own program whether it accepts settings, and how many huge pages it needs with them.

`postgres -C shared_memory_size_in_huge_pages` reads all settings as a start would, checks each value and conflicts
between them, loads the libraries, and sums up the shared memory without mapping it. The answer is quick, because no
cluster is created, and also exact for another machine. It does not show whether this machine has the memory: that takes
a start on an empty cluster, and seconds.

The program needs a data directory, and gets one without data: a version, an empty configuration and a control file. The
control file is copied from the server in question, or created by pg_resetwal for one that does not exist yet.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.facts.gucs import Context, VarType, find_guc
from pgdyno.run.host import process
from pgdyno.run.host.process import ServerUser
from pgdyno.run.host.stale import name_of_this_process, remove_stale_folders
from pgdyno.run.postgres.installation import Installation
from pgdyno.spec.table import LOG_PLACE_SETTINGS

HUGE_PAGES_COUNT = "shared_memory_size_in_huge_pages"
_IN_MEMORY, _ON_DISK = "/dev/shm", "/var/tmp"  # noqa: S108 - folders of random names are made there
# Space for a WAL segment, and for an empty cluster with its own segments and shared memory.
_ASKED_BYTES, _CLUSTER_BYTES = 32 * 1024**2, 1024**3
_PLACE_MARK = "pgdyno-tune-"
_PAGE_BYTES, _SEGMENT_BYTES = 8192, 16 * 1024**2
_MOST_CHOSEN_IO = 64
_FEW_BUFFERS = "16MB"
_SIZED_BY_SHARED_BUFFERS = frozenset({"commit_timestamp_buffers", "subtransaction_buffers", "transaction_buffers"})
# Before the server has read its settings, each line has the built-in prefix or none.
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
    """Return how many huge pages a server with these settings needs; None if its build cannot use any.

    Args:
        installation: The PostgreSQL to ask.
        settings: The settings of the server.
        user: The account to run it as.
        control_file: The control file of the cluster in question; None: that of a new cluster.
        huge_page_bytes: The huge page size of another machine; None: that of this kernel.

    Raises:
        SpecError: The server refuses a setting; the detail quotes its message.
        HostError: The place for it cannot be made.
    """
    given = {**settings, **({} if huge_page_bytes is None else {"huge_page_size": f"{huge_page_bytes // 1024}kB"})}
    with _place(_ASKED_BYTES) as place:
        data = _make_data(place, installation, user, control_file)
        argv = [installation.program("postgres"), "-C", HUGE_PAGES_COUNT, "-D", str(data)]
        argv += [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
        done = process.run(argv, user=user)
    if done.exit_code != 0:
        raise SpecError(
            f"PostgreSQL {installation.facts.version} refuses the settings",
            detail=_words_of(done.stderr),
            hint="leave out or change what --set or the study fixes",
        )
    pages = int(done.stdout.strip())
    return pages if pages >= 0 else None


def find_refused(installation: Installation, settings: Mapping[str, str], *, user: ServerUser) -> dict[str, str]:
    """Find the settings that the program refuses, each tried alone; the values are its words."""
    refused = {}
    with _place(_ASKED_BYTES) as place:
        data = _make_data(place, installation, user, None)
        for name, value in settings.items():
            argv = [installation.program("postgres"), "-C", name, "-D", str(data), "-c", f"{name}={value}"]
            done = process.run(argv, user=user)
            if done.exit_code != 0:
                refused[name] = _words_of(done.stderr)
    return refused


def read_built_in(installation: Installation, names: Iterable[str], *, user: ServerUser) -> dict[str, str]:
    """Ask the program what it has built in for these settings, as pg_settings.setting has it; it may lack some."""
    built_in = {}
    with _place(_ASKED_BYTES) as place:
        data = _make_data(place, installation, user, None)
        for name in names:
            done = process.run([installation.program("postgres"), "-C", name, "-D", str(data)], user=user)
            if done.exit_code == 0:
                built_in[name] = done.stdout.strip()
    return built_in


def shaping_settings(current: Mapping[str, str], major: int) -> dict[str, str]:
    """Return the settings of a server that shape its shared memory or exclude others: those that need a restart.

    Args:
        current: The server's settings by name, in the units of pg_settings.setting.
        major: The server's major version.
    """
    kept = {}
    for name, value in current.items():
        guc = find_guc(name, major)
        is_text = guc is not None and guc.vartype is VarType.STRING and name != "shared_preload_libraries"
        if guc is not None and guc.context is Context.POSTMASTER and not is_text and not _is_chosen(name, current):
            kept[name] = value
    return kept


def _is_chosen(name: str, current: Mapping[str, str]) -> bool:
    """Return whether a server seems to have derived a value from shared_buffers, which would change with it.

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
    """Provide a temporary folder that other accounts may enter."""
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
    # TMPDIR is not used, because it is often closed to the server's account. Memory is preferred: the programs flush
    # what they write, which takes minutes on a busy disk.
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
        _copy_through_no_link(control_file, data / "global/pg_control")
    if not user.is_self:
        # From below: in a folder that it owns, the account could put a link in the place of what root gives it next.
        for path in (*sorted(data.rglob("*"), reverse=True), data):
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
    if control_file is None:
        # An empty control file makes pg_resetwal guess all values. Source: pg_resetwal.c, read_controlfile().
        done = process.run([installation.program("pg_resetwal"), "-f", "-D", str(data)], user=user)
        if done.exit_code != 0:
            raise StepFailedError("pg_resetwal made no control file", detail=done.stderr.strip())
    return data


def _copy_through_no_link(control_file: Path, copy: Path) -> None:
    # Its folder is the server account's, which must not choose what root reads for it.
    with os.fdopen(os.open(control_file, os.O_RDONLY | os.O_NOFOLLOW), "rb") as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)


def _words_of(said: str) -> str:
    matches = [found for line in said.splitlines() if (found := _PREFIX.match(line)) and found["kind"] in _TOLD]
    return "\n".join(found["text"] for found in matches) or said.strip()


def start_empty(installation: Installation, settings: Mapping[str, str], *, user: ServerUser) -> bool:
    """Start a server with these settings on a temporary empty cluster. Call this from the main thread.

    The server starts without huge pages, because the existing ones belong to the server that is to be tuned. The
    ordinary memory may also be in use: if the kernel has none for a second server, the server is started with all other
    settings and few buffers.

    Args:
        installation: The PostgreSQL to start.
        settings: The settings to start it with, except those that move its log.
        user: The account to run it as.

    Returns:
        Whether the server started with the shared_buffers of these settings.

    Raises:
        SpecError: The server refuses a setting.
        StepFailedError: initdb failed, or the server does not start.
        HostError: The place for it cannot be made.
    """
    # The import brings psycopg, which only commands that start a server should wait for.
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
