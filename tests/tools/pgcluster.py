"""A throw-away real PostgreSQL cluster for tests: initdb, start, stop, in a folder that the server's account may read."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pgdyno.run.host import process
from pgdyno.run.host.process import ServerUser
from tests.facts.clusters import find_bindir
from tests.shared import make_folder, make_once, remove_folder
from tests.waiting import wait_until

PORT = 54321
"""Names the socket file: the clusters listen on no address unless a test says so."""
LOOPBACK = f"127.{64 + (os.getpid() >> 16)}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
"""Where a test lets one listen: servers of other processes' tests have the same port."""
_PATIENCE_S = 600.0
_WAITING = ("-w", "-t", "500", "-s")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running cluster with one superuser, `postgres`, whom everyone on the private socket may be."""

    version_major: int
    bin_directory: Path
    root: Path
    user: ServerUser

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def postmaster_pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])

    @property
    def is_ready(self) -> bool:
        """Whether the server says in its postmaster.pid that it answers."""
        try:
            return (self.data / "postmaster.pid").read_text().rstrip().endswith("ready")
        except FileNotFoundError:
            return False

    def run(self, program: str, *arguments: str) -> str:
        """Run one of the cluster's own programs as its account, and return what it printed."""
        done = process.run([str(self.bin_directory / program), *arguments], user=self.user, timeout_s=_PATIENCE_S)
        assert done.exit_code == 0, f"{done.stdout}{done.stderr}{self._log_end()}"
        return done.stdout

    def _log_end(self) -> str:
        """What the server said last: of one that is not there, nothing else tells why."""
        log = self.root / "server.log"
        return "".join(log.read_text(errors="replace").splitlines(keepends=True)[-20:]) if log.exists() else ""

    def sql(self, text: str, *, database: str = "postgres") -> str:
        """Run SQL text through psql and return its unaligned rows."""
        arguments = ("-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", str(self.root), "-p", str(PORT))
        return self.run("psql", *arguments, "-U", "postgres", "-d", database, "-c", text).strip()

    def dump(self, database: str | None = None) -> str:
        """Return what pg_dump says of a database, or pg_dumpall of all, once its sessions are gone, which others would see."""
        program, named = ("pg_dumpall", ()) if database is None else ("pg_dump", (database,))
        said = self.run(program, "-h", str(self.root), "-p", str(PORT), "-U", "postgres", *named)
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('pg_dump', 'pg_dumpall')"
        assert wait_until(lambda: self.sql(sessions) == "0")
        # A random key that newer ones write against injection.
        return re.sub(r"^\\(un)?restrict .*$", "", said, flags=re.MULTILINE)

    def start(self, *options: str) -> None:
        """Start the server with `name=value` settings, and wait until it answers."""
        settings = (f"unix_socket_directories={self.root}", "listen_addresses=", "fsync=off", *options)
        text = " ".join(f"-c {setting}" for setting in settings)
        log = str(self.root / "server.log")
        self.run("pg_ctl", "-D", str(self.data), *_WAITING, "-l", log, "-o", f"-p {PORT} {text}", "start")

    def listen(self, method: str = "trust", *, trusted: str = "") -> None:
        """Start it again so that it listens on LOOPBACK, too, where roles but the `trusted` one show who they are by a method."""
        self.stop()
        first = f"host all {trusted} all trust\n" if trusted else ""
        (self.data / "pg_hba.conf").write_text(f"local all all trust\n{first}host all all all {method}\n")
        self.start(f"listen_addresses={LOOPBACK}")

    def make_certificate(self) -> Path:
        """Give the server a key and a certificate of its own for `localhost`, which `ssl=on` uses; return the certificate."""
        key, certificate = self.data / "server.key", self.data / "server.crt"
        subject = ("-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate))
        command = ["openssl", "req", "-new", "-x509", "-nodes", "-days", "2", *subject]
        subprocess.run(command, check=True, capture_output=True)
        for file in (key, certificate):
            shutil.chown(file, self.user.uid, self.user.gid)
            file.chmod(0o600)
        return certificate

    def stop(self) -> None:
        """Stop the server at once, if it runs."""
        program = [str(self.bin_directory / "pg_ctl"), "-D", str(self.data), "-m", "immediate", *_WAITING, "stop"]
        process.run(program, user=self.user, timeout_s=_PATIENCE_S)


@contextlib.contextmanager
def running(
    version_major: int, *, root: Path | None = None, conf: str = "", initdb: tuple[str, ...] = ()
) -> Iterator[Cluster]:
    """Make, start, yield and remove a cluster.

    Args:
        version_major: 15, 16 or 18.
        root: The folder to make; a new one of a random name by default.
        conf: Lines for the end of its postgresql.conf.
        initdb: More options of initdb.
    """
    user = process.find_server_user()
    root = root or make_folder()
    root.mkdir(exist_ok=True)
    root.chmod(0o755)
    shutil.chown(root, user.uid, user.gid)
    bin_directory = find_bindir(version_major, root)
    cluster = Cluster(version_major=version_major, bin_directory=bin_directory, root=root, user=user)
    try:
        arguments = ("-D", str(cluster.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", *initdb)
        make_once(
            bin_directory,
            " ".join(("tools", str(user.uid), *initdb)),
            cluster.data,
            lambda: cluster.run("initdb", *arguments),
        )
        with (cluster.data / "postgresql.conf").open("a") as file:
            file.write(conf)
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        remove_folder(root)


@contextlib.contextmanager
def running_given(version_major: int) -> Iterator[Cluster]:
    """Run a cluster with a plain role, `bench`, which may create databases."""
    with running(version_major) as made:
        made.sql("CREATE ROLE bench LOGIN CREATEDB")
        yield made
