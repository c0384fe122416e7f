"""Keep loaded clusters as templates, so that all trials begin alike and nothing is loaded twice.

Each trial begins with a copy of a template, which is a stopped cluster with the facts of its dataset beside it. A
template gets its name when it is whole and on disk, and is never changed afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, PgdynoError, StepFailedError
from pgdyno.record.durable import write_durably
from pgdyno.record.types import Dataset
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.server import DATABASE, Server
from pgdyno.run.host import process
from pgdyno.run.load.argv import make_init_run
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.load.watch import LoadWatch
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.hints import hint_for
from pgdyno.run.postgres.installation import Installation
from pgdyno.spec.initdb import combine_choices, show_choices
from pgdyno.spec.study import DataSpec, ServerKind

EMPTY = 0
"""The scale of a cluster whose database has no tables."""
_FACTS_FILE = "dataset.json"
_SCALE_IN_NAME = re.compile(r"-scale(\d+)-")
_READ_BYTES = 2**20
# Loading runs with fewer checkpoints; the times of the init steps then reflect the disk, not the checkpointer.
_LOAD_SETTINGS = {"max_wal_size": "4GB", "maintenance_work_mem": "256MB"}


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded cluster in a home's template folder."""

    data_dir: Path
    dataset: Dataset


def template_name(installation: Installation, data: DataSpec, scale: int) -> str:
    """Return a template's name, which holds everything that makes its content differ from another template's."""
    # Builds of one version can differ in what they write, for example in block size.
    place = str(installation.bindir) if installation.kind is ServerKind.LOCAL else ""
    build = hashlib.sha256(f"{installation.facts.configure}\n{place}".encode()).hexdigest()[:8]
    parts = [f"pg{installation.facts.version_num}", build]
    chosen = [f"{key}={value}" for key, value in show_choices(combine_choices(data)).items()]
    if scale == EMPTY:
        return "-".join([*parts, "empty", *chosen])
    parts += [f"scale{scale}", f"fillfactor{data.fillfactor}"]
    if data.partitions:
        parts.append(f"{data.partition_method.value}{data.partitions}")
    if data.foreign_keys:
        parts.append("fk")
    return "-".join([*parts, *chosen, data.generate.value])


def find_loaded_scales(home: Home, installation: Installation, data: DataSpec) -> frozenset[int]:
    """Return the scales for which a home holds usable templates with this PostgreSQL and all other options of `data`."""
    numbers = (int(found[1]) for folder in home.templates.iterdir() if (found := _SCALE_IN_NAME.search(folder.name)))
    return frozenset(
        n for n in numbers if _is_usable(home.templates / template_name(installation, data, n), installation)
    )


def prepare_template(
    *,
    installation: Installation,
    home: Home,
    data: DataSpec,
    scale: int,
    settings: Mapping[str, str | int | float | bool],
    output_dir: Path,
    on_activity: Callable[[str], None],
) -> Template:
    """Return the loaded cluster that a study needs, and load it if there is none.

    Args:
        installation: The PostgreSQL to load with.
        home: The home that keeps the templates.
        data: The data to load.
        scale: pgbench's scale; `EMPTY` for a database without tables.
        settings: The settings of the trials. The empty cluster is started once with them, so that a refused setting
            fails before the load.
        output_dir: The folder for the outputs of loading.
        on_activity: Called with a description of what loading does now.

    Raises:
        SpecError: The server refuses a setting.
        StepFailedError: Loading failed, its output cannot be kept, or the server did not shut down cleanly; no partial
            template stays.
        HostError: An old folder cannot be removed.
    """
    folder = home.templates / template_name(installation, data, scale)
    if _is_usable(folder, installation):
        dataset = msgspec.json.decode((folder / _FACTS_FILE).read_bytes(), type=Dataset)
        return Template(data_dir=folder / "data", dataset=msgspec.structs.replace(dataset, is_reused=True))
    server = Server(installation=installation, home=home, log_path=output_dir / "server.log")
    # The working cluster of the last trial.
    home.clear_data()
    remove_folder(home.data)
    try:
        on_activity("initdb")
        server.initdb(data)
        server.start(settings)
        server.stop()
        server.start(_LOAD_SETTINGS)
        dataset = _load(server, data=data, scale=scale, output_dir=output_dir, on_activity=on_activity)
        on_activity("writing to disk")
        server.stop()
    except PgdynoError as exc:
        # The end of the server explains the failure of its clients.
        failure = server.find_failure()
        server.abandon()
        if failure is not None:
            raise failure from exc
        raise
    except BaseException:
        server.abandon()
        raise
    return _keep(folder, dataset, home)


def remove_template(folder: Path) -> None:
    """Remove a template; a removal that is interrupted leaves no valid template.

    Raises:
        HostError: A file in it cannot be removed.
    """
    try:
        (folder / _FACTS_FILE).unlink(missing_ok=True)
    except OSError as exc:
        raise _removal_error(folder, exc) from exc
    remove_folder(folder)


def drop_file_cache(folder: Path) -> None:
    """Ask the kernel to drop the cached pages of every file below `folder`.

    This needs no root and affects no other files.

    Source: posix_fadvise(2), POSIX_FADV_DONTNEED; dirty pages would stay, so each file is synced first.
    """
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def warm_file_cache(folder: Path) -> None:
    """Read every file below `folder` once, so that the kernel caches it as far as memory allows."""
    # A running server removes files and folders meanwhile, over which rglob() would stumble.
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISREG(path.lstat().st_mode):
                    with path.open("rb", buffering=0) as file:
                        while file.read(_READ_BYTES):
                            pass


def _is_usable(folder: Path, installation: Installation) -> bool:
    facts = folder / _FACTS_FILE
    if not facts.exists() or not (folder / "data/PG_VERSION").exists():
        return False
    if installation.kind is not ServerKind.LOCAL:
        return True
    # A build that was installed anew in its place may write other data. Not st_mtime, which copies and packages keep.
    return Path(installation.program("postgres")).stat().st_ctime_ns <= facts.stat().st_mtime_ns


def _load(
    server: Server, *, data: DataSpec, scale: int, output_dir: Path, on_activity: Callable[[str], None]
) -> Dataset:
    with server.connect(database="postgres") as connection:
        sql.create_database(connection, DATABASE)
    if scale == EMPTY:
        with server.connect() as connection:
            sql.checkpoint(connection)
        return Dataset(
            scale=scale,
            relations=(),
            total_bytes=0,
            init_argv=(),
            init_steps_s={},
            init_total_s=0.0,
            is_reused=False,
        )
    run = make_init_run(server.address, data, scale)
    pgbench = Pgbench(installation=server.installation, user=server.home.user)
    watch = LoadWatch(server)
    done = pgbench.run_init(run, directory=output_dir, on_activity=on_activity, should_abort=watch.find_failure)
    with server.connect() as connection:
        relations = sql.read_dataset(connection)
        sql.checkpoint(connection)
    return Dataset(
        scale=scale,
        relations=relations,
        total_bytes=sum(relation.bytes for relation in relations),
        init_argv=done.argv,
        init_steps_s=done.steps_s,
        init_total_s=done.total_s,
        is_reused=False,
    )


def _keep(folder: Path, dataset: Dataset, home: Home) -> Template:
    remove_template(folder)
    try:
        folder.mkdir()
        home.data.rename(folder / "data")
        copy_files(["sync", "--file-system", str(folder)])
        write_durably(folder / _FACTS_FILE, msgspec.json.encode(dataset))
        # Last: root writes nothing into a folder where the account could put a link.
        os.chown(folder, home.user.uid, home.user.gid)
    except OSError as exc:
        raise StepFailedError("cannot keep the loaded cluster", detail=str(exc), hint=hint_for(str(exc))) from exc
    return Template(data_dir=folder / "data", dataset=dataset)


def copy_files(argv: list[str]) -> None:
    """Run a command that copies or flushes files, without a time limit.

    Raises:
        StepFailedError: It failed.
    """
    # A copy of terabytes takes hours, and a disk that hangs is the user's to see.
    done = process.run(argv, timeout_s=None)
    if done.exit_code != 0:
        raise StepFailedError("cannot copy the loaded cluster", detail=done.stderr.strip(), hint=hint_for(done.stderr))


def remove_folder(folder: Path) -> None:
    """Remove a folder, or nothing.

    Raises:
        HostError: A file in it cannot be removed.
    """
    # An ending process may remove a file first; it only matters that nothing is left.
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        try:
            shutil.rmtree(folder)
        except OSError as exc:
            raise _removal_error(folder, exc) from exc


def _removal_error(folder: Path, exc: OSError) -> HostError:
    return HostError(f"cannot remove {folder}", detail=str(exc), hint="remove it by hand, or use another --home")
