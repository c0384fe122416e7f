"""Manage pgdyno's home: templates of loaded clusters, the working cluster, and the lock against other pgdynos.

Two studies at once would distort each other's figures, so a home serves one at a time. Whatever a killed pgdyno left
running in it is found by its working directory and stopped before anything new starts; no other process is ever
touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import IO

from pgdyno.errors import HostError, why
from pgdyno.plan.places import Place
from pgdyno.run.cluster.home_mark import mark_home
from pgdyno.run.cluster.lock import held_by_another, take_lock, write_holder
from pgdyno.run.cluster.shared_memory import free_shared_memory
from pgdyno.run.cluster.wal_home import SLOT, WAL_FOLDER, open_wal_home, read_notes, remove_left_wal
from pgdyno.run.host import process
from pgdyno.run.host.mounts import list_mounts, unmount_all
from pgdyno.run.host.process import ServerUser
from pgdyno.run.host.process_id import ProcessId, find_working_in, identify, is_running, read_status
from pgdyno.run.host.session import end_session

# Source: Linux sun_path is 108 bytes (unix(7)); the socket's own name takes up to 22.
_MAX_SOCKET_DIR = 85
_PROGRAM = "postgres"
_POOLER = "pgbouncer"
_SLOT_SOCKETS = "sock"
_SCRIPTS = "scripts-"
# Source: proc_pid_cwd(5), as for /proc/PID/exe.
_REMOVED = " (deleted)"
OTHER_HOME = "other-home"
"""The kind of a note that names a home in use beside its own."""
_ROOTS_HOME = Path("/var/lib/pgdyno")


class Home:
    """The folders of one pgdyno home, which `open_home` locks, or of a slot in it.

    Args:
        root: The home's folder.
        user: The account that owns the server and its files.
        work: The folder of the working cluster; None: the home's own.
        wal: The folder that pg_wal of the working cluster is a link to; None: pg_wal is a folder of the cluster.
    """

    def __init__(self, root: Path, user: ServerUser, *, work: Path | None = None, wal: Path | None = None) -> None:
        self.root = root
        self.user = user
        self.templates = root / "templates"
        self.software = root / "software"
        self.clock_test = root / "clock.json"
        self.work = root / "work" if work is None else work
        self.data = self.work / "data"
        # A slot's lie no deeper than the home's own: a slot is made once the data are loaded, too late to find its path too long.
        self.sockets = self.work / "sockets" if work is None else work.with_name(work.name.replace(SLOT, _SLOT_SOCKETS))
        # Beside the folder of the server's account, whose links root must not follow.
        self.scripts = root / f"{_SCRIPTS}{self.work.name}"
        self.wal = wal
        self.restore_session = root / "restore-command"
        """The file that tells what still runs of a restore command whose pgdyno was killed."""
        self.aged_from: Path | None = None
        """The template that the working cluster was a copy of before trials that ended in order; None: a copy is due."""
        self.own_wal = self.work / "wal"
        self.places: Mapping[Place, Home] = {}
        """Where the clusters of a study's variants lie, if not all lie in one place; this home is that of the reference."""
        self.left_overs: list[str] = []
        """Processes that ran here, or in homes used beside this one, when this pgdyno began, and were stopped, and mounts, which were
        unmounted."""

    def prepare(self) -> None:
        """Create the folders; those of the server belong to the server's user and are closed to others.

        Raises:
            HostError: As for `claim`, or the server's user cannot reach the folders.
        """
        self.claim()
        with self._making():
            for folder in (self.templates, self.work):
                self._make_folder(folder)
            process.make_reachable(self.software)
        if process.run(["test", "-w", str(self.work)], user=self.user).exit_code != 0:
            raise HostError(
                f"the user {self.user.name} cannot reach {self.work}",
                detail="each folder above it must be open to that user",
                hint="choose another folder with --home",
            )
        with self._making():
            self._make_folder(self.sockets)

    def claim(self) -> None:
        """Make the home's folder and mark it as pgdyno's own, unless it is.

        Raises:
            HostError: The path is too long for a socket or has a comma, the folder has something else of a name that pgdyno
                would use, a disk is mounted at its `work`, or it cannot be used.
        """
        if "," in str(self.root):
            raise HostError(
                f"the path {self.root} has a comma",
                detail="PostgreSQL and its clients would take it for the paths of several sockets",
                hint="choose another folder with --home",
            )
        path_bytes = len(os.fsencode(self.sockets))
        if path_bytes > _MAX_SOCKET_DIR:
            raise HostError(
                f"the path {self.sockets} is too long for a socket",
                detail=f"{path_bytes} bytes; PostgreSQL allows {_MAX_SOCKET_DIR}",
                hint="choose a shorter one with --home",
            )
        if self.work.resolve() in list_mounts(self.work):
            raise HostError(
                f"something is mounted at {self.work}",
                detail="pgdyno empties that folder, and takes the disk of the home for that of the data",
                hint="mount it at a folder of its own, and name that with --home",
            )
        with self._making():
            process.make_reachable(self.root)
            mark_home(self.root)

    def find(self, place: Place) -> Home:
        """Return the home of a cluster in a place of the study."""
        return self.places.get(place, self)

    def slot(self, number: int) -> Home:
        """Return a home within this one, for a cluster that runs beside others.

        Templates are shared; the working cluster and its sockets are the slot's own, and stay until those of this home are
        removed.

        Raises:
            HostError: As for `prepare`.
        """
        name = f"{SLOT}{number}"
        wal = None if self.wal is None else self.wal.with_name(name)
        slot = Home(self.root, self.user, work=self.work / name, wal=wal)
        slot.prepare()
        return slot

    def make_own_wal(self) -> Path:
        """Return the place of pg_wal on the data's disk, for clusters that take turns with some whose WAL is elsewhere.

        All of them then have pg_wal as a link, and none is copied in vain. `end_left_overs` removes it.
        """
        self._make_folder(self.own_wal)
        return self.own_wal / WAL_FOLDER

    @property
    def cluster_folders(self) -> tuple[Path, ...]:
        """The folders of the working cluster: that of its data, and that of its WAL if it is elsewhere."""
        return (self.data, *(() if self.wal is None else (self.wal,)))

    def end_left_overs(self) -> list[str]:
        """Stop every process of this home's clusters, free their shared memory, and remove the clusters, their sockets and scripts.

        Returns:
            A description of each process that was stopped, and of each mount that was unmounted, for the report.

        Raises:
            HostError: What a restore command has left here cannot be ended, or not be unmounted.
        """
        found = self.end_servers(_POOLER, _PROGRAM)
        end_session(self.restore_session)
        found += [f"the mount at {place}" for place in unmount_all(self.work)]
        self.clear_data()
        sockets, scripts = self.work.glob(f"{_SLOT_SOCKETS}[0-9]*"), self.root.glob(f"{_SCRIPTS}*")
        for folder in (self.own_wal, *self._slot_folders(), *sockets, *scripts):
            shutil.rmtree(folder, ignore_errors=True)
        self._clear_sockets()
        return found

    def say_left_overs(self, say: Callable[[str], None]) -> None:
        """Say what was ended when this home was opened; a mount may be the user's."""
        for left_over in self.left_overs:
            say(f"ended what was left behind: {left_over}")

    def clear_data(self) -> None:
        """Remove the working cluster as far as possible; what a restore command has mounted or linked there is only let go.

        Raises:
            HostError: A mount cannot be unmounted.
        """
        self.aged_from = None
        # What a killed initdb had started goes on for a moment, and would make files again.
        self.end_servers()
        unmount_all(self.data)
        if self.data.is_symlink():
            self.data.unlink()
        shutil.rmtree(self.data, ignore_errors=True)

    def end_servers(self, *programs: str) -> list[str]:
        """Stop every process of this home's cluster, and of those in its slots, and free their shared memory.

        Args:
            programs: The names of the programs that are stopped; none: PostgreSQL only.

        Returns:
            A description of each process that was stopped.
        """
        named = frozenset(programs or (_PROGRAM,))
        found = [f"{name} (pid {pid})" for pid, name in self._find_processes(named, self.work)]
        known: set[ProcessId] = set()

        def find_left() -> list[int]:
            # What outlives its postmaster may no longer be told from its command line.
            known.update(one for pid, _ in self._find_processes(named, self.work) if (one := identify(pid)) is not None)
            return [one.pid for one in known if is_running(one)]

        for sign in (signal.SIGQUIT, signal.SIGKILL):
            for pid in find_left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sign)
                    # A process that a live round froze takes no other signal before it continues.
                    os.kill(pid, signal.SIGCONT)
            deadline = time.monotonic() + 10.0
            while find_left() and time.monotonic() < deadline:
                time.sleep(0.05)
        for data in self._data_folders():
            free_shared_memory(data, self.user)
        return found

    @contextlib.contextmanager
    def _making(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise HostError(
                f"cannot use {self.root} as pgdyno's home", detail=why(exc), hint="choose another folder with --home"
            ) from exc

    def _make_folder(self, folder: Path) -> None:
        """Make a folder of the server's, which belongs to its account.

        In a folder of that account, root follows no link: the account could have put it there.
        """
        is_within = self.root / "work" in folder.parents

        def make() -> None:
            if is_within and folder.is_symlink():
                folder.unlink()
            folder.mkdir(exist_ok=True, mode=0o700)

        if is_within:
            process.call_as(self.user, make)
        else:
            make()
        if not self.user.is_self:
            # It may be of another account that earlier studies ran as.
            os.chown(folder, self.user.uid, self.user.gid, follow_symlinks=not is_within)

    def _clear_sockets(self) -> None:
        """Remove what killed servers left: another account could not open the lock file of a socket."""
        # The account may have put a link in place of the folder.
        with contextlib.suppress(NotADirectoryError):
            folder = os.open(self.sockets, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                for name in os.listdir(folder):  # noqa: PTH208 - Path takes no descriptor of a folder
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)

    def _slot_folders(self) -> list[Path]:
        return list(self.work.glob(f"{SLOT}*"))

    def server_pids(self) -> Iterator[int]:
        """Find the processes of this home's cluster, without those of clusters in its slots."""
        return (pid for pid, _ in self._find_processes({_PROGRAM}, self.data))

    def _find_processes(self, programs: Collection[str], place: Path) -> Iterator[tuple[int, str]]:
        # Every PostgreSQL process changes to its data directory, and a pooler is started in the folder of its socket, which
        # identifies this home's processes without trusting recorded pids. A shell or an editor in that directory is left alone.
        for pid, folder in find_working_in(place):
            try:
                # In another container the same path is another folder.
                if folder and not folder.endswith(_REMOVED) and not Path(f"/proc/{pid}/cwd").samefile(folder):
                    continue
                facts = read_status(Path(f"/proc/{pid}"))
            except OSError:
                continue
            uid, name = int(facts["Uid"].split()[0]), facts["Name"]
            if name in programs and (uid == self.user.uid or uid in self._find_owners()):
                yield pid, name

    def _find_owners(self) -> set[int]:
        """Return the accounts of the clusters here: a killed pgdyno may have run them as another one."""
        owners = set()
        for data in self._data_folders():
            with contextlib.suppress(FileNotFoundError):
                owners.add(data.lstat().st_uid)
        return owners

    def _data_folders(self) -> tuple[Path, ...]:
        return (self.data, *(folder / self.data.name for folder in self._slot_folders()))


def default_home() -> Path:
    """Return PGDYNO_HOME, else /var/lib/pgdyno for root, else a folder in the user's data folder.

    Other accounts could not enter root's own home directory.

    Raises:
        HostError: There is no home directory to put it in.
    """
    named = os.environ.get("PGDYNO_HOME")
    if named:
        return Path(named).absolute()
    if os.geteuid() == 0:
        return _ROOTS_HOME
    data_home = os.environ.get("XDG_DATA_HOME")
    if data_home:
        return Path(data_home) / "pgdyno"
    try:
        return Path.home() / ".local/share/pgdyno"
    except RuntimeError as exc:
        raise HostError("there is no home directory", hint="name a folder with --home") from exc


def choose_home(named: Path | None) -> Path:
    """Return the absolute path of the home that the user named, else the default home.

    Raises:
        HostError: There is no home directory to put it in.
    """
    return default_home() if named is None else named.absolute()


def find_existing_folder(folder: Path) -> Path:
    """Return the folder, or the nearest folder above it that exists and may be entered."""
    return next(one for one in (folder, *folder.parents) if os.access(one, os.R_OK | os.X_OK))


def check_home(root: Path) -> None:
    """Check that a folder can be a home, or can be made, by what can be seen without writing.

    Raises:
        HostError: It, or what stands for a folder above it, is none.
    """
    # Path.exists raises an error where this account may not look.
    there = next(one for one in (root, *root.parents) if os.access(one, os.F_OK))
    if not there.is_dir():
        raise HostError(
            f"cannot use {root} as pgdyno's home",
            detail=f"{there} is no folder",
            hint="choose another folder with --home",
        )


def homes_to_read(home: Path) -> tuple[Path, ...]:
    """Return the homes to search for earlier measurements: a home and, unless the user chose it, root's as well.

    Disks are equally fast for both accounts.

    Raises:
        HostError: There is no home directory.
    """
    is_chosen = bool(os.environ.get("PGDYNO_HOME")) or home != default_home()
    return (home,) if is_chosen or home == _ROOTS_HOME else (home, _ROOTS_HOME)


@contextlib.contextmanager
def open_home(root: Path, user: ServerUser, *, wal_home: Path | None = None) -> Iterator[Home]:
    """Lock a home for this process, stop what an earlier process left in it, and yield it.

    Args:
        root: The home's folder.
        user: The account that owns the server and its files.
        wal_home: The folder on the disk of pg_wal; None: pg_wal lies with the data.

    Raises:
        HostError: Another pgdyno uses one of the two, or they cannot be used.
    """
    home = Home(root, user)
    home.claim()
    with _open_lock(root / "lock") as lock:
        if not take_lock(lock):
            raise held_by_another(lock, root)
        write_holder(lock)
        # Not before: folders that another pgdyno uses would change their owner.
        home.prepare()
        home.left_overs = home.end_left_overs()
        remove_left_wal(root)
        home.left_overs += _clear_left_homes(root, user)
        with contextlib.ExitStack() as stack:
            if wal_home is not None:
                home.wal = stack.enter_context(open_wal_home(wal_home, home=root, user=user)) / WAL_FOLDER
            stack.callback(home.end_left_overs)
            yield home


def _clear_left_homes(root: Path, user: ServerUser) -> list[str]:
    """Clean up the homes that a killed pgdyno of this home has used beside it; one that another pgdyno uses stays as it is.

    Returns:
        What was ended there, as for `Home.end_left_overs`.
    """
    found: list[str] = []
    for note, other in read_notes(root, OTHER_HOME):
        # The disk of one that is not there may not be mounted.
        if (other / "work").is_dir():
            with contextlib.suppress(HostError), open_home(other, user) as beside:
                found += beside.left_overs
                note.unlink(missing_ok=True)
    return found


def _open_lock(path: Path) -> IO[str]:
    try:
        return path.open("a+", encoding="utf-8")
    except OSError as exc:
        raise HostError(
            f"cannot lock {path.parent}",
            detail=why(exc),
            hint="it is the home of another account: choose another folder with --home",
        ) from exc
