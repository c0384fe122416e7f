"""Whether kill -9 ever leaves a given server changed: pgdyno is killed at random instants while it compares a setting there.

The embedded PostgreSQL runs as a cluster that only its socket's connection string names. `pgdyno compare` alternates
commit_delay there for everybody; at a random instant it is killed, and `restore` and `clean` are run. Afterwards
postgresql.auto.conf, all settings in force and the list of databases must be as before, and no process may be left.

Usage: python benchmarks/given_killed.py [--kills 100] [--within 20] [--seed 1] [--server 15]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from figures import say_share

from pgdyno.run.cluster.home import open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.own_server import OwnServer
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.installation import find_installation
from pgdyno.spec.study import DataSpec, ServerKind, ServerSpec

SERVERS = {"18": ServerSpec(), "15": ServerSpec(kind=ServerKind.LOCAL, version=15)}
COMPARE = (
    *("--set", "commit_delay=0", "--set", "commit_delay=1000", "--design", "switchback", "--workload", "select-only"),
    *("--scale", "1", "--clients", "2", "--minutes", "5", "--yes", "--out", "record"),
)
_GONE_WITHIN_S = 60.0


class Killed:
    """A server, and how often something of it was not as before."""

    def __init__(self, server: OwnServer, dsn: str) -> None:
        self.server = server
        self.dsn = dsn
        self.before = self.look()
        self.stages: Counter[str] = Counter()

    def look(self) -> tuple[Any, ...]:
        """Return what must stay: the file of ALTER SYSTEM, all settings in force, all databases."""
        with sql.connect(self.server.address) as connection:
            settings = connection.execute("SELECT name, setting, sourcefile FROM pg_settings ORDER BY 1").fetchall()
            databases = connection.execute("SELECT datname FROM pg_database ORDER BY 1").fetchall()
            conf = connection.execute("SELECT pg_read_file('postgresql.auto.conf') AS text").fetchone()
        return conf, settings, databases

    def kill_once(self, after_s: float, folder: Path) -> bool:
        """Kill a comparison so long after its beginning, undo it, and return whether all is as before."""
        folder.mkdir()
        environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "KILLED": str(folder)}
        child = subprocess.Popen(
            [sys.executable, "-m", "pgdyno", "compare", "--dsn", self.dsn, *COMPARE],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(after_s)
        child.kill()
        child.wait()
        was = "changed" if self.look()[0] != self.before[0] else "not yet changed"
        self.stages[was] += 1
        left = wait_until_gone(folder)
        for words in (("restore",), ("clean", "--yes")):
            argv = [sys.executable, "-m", "pgdyno", words[0], "--dsn", self.dsn, *words[1:]]
            done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"  {words[0]}: {done.returncode}: {done.stderr}", flush=True)
        is_as_before = self.look() == self.before
        print(f"killed after {after_s:.1f} s, {was}: as before: {is_as_before}; left: {left or 'nothing'}", flush=True)
        shutil.rmtree(folder)
        return is_as_before and not left


def wait_until_gone(folder: Path) -> list[str]:
    """Wait for the processes that were started with a folder in their environment; return those that stay."""
    deadline_s = time.monotonic() + _GONE_WITHIN_S
    while left := list_started(folder):
        if time.monotonic() > deadline_s:
            return left
        time.sleep(0.05)
    return []


def list_started(folder: Path) -> list[str]:
    """Return the command lines of the processes whose environment names a folder."""
    mark, found = f"KILLED={folder}\0".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes() + b"\0":
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80])
        except OSError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--within", type=float, default=20.0, help="seconds after the beginning, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=list(SERVERS), default="18")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-killed-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        with open_home(folder / "given", user=find_server_user()) as home:
            installation = find_installation(SERVERS[options.server], user=home.user, software_dir=home.software)
            server = OwnServer(installation=installation, home=home)
            (folder / "init").mkdir()
            server.load(DataSpec(), 1, settings={}, output_dir=folder / "init", on_activity=lambda _: None)
            server.reset()
            with server.running({}, log_path=folder / "server.log"):
                address = server.address
                dsn = f"host={address.host} port={address.port} user={address.user} dbname=postgres"
                killed = Killed(server, dsn)
                kept = [
                    killed.kill_once(draw.uniform(0.0, options.within), folder / f"kill-{number}")
                    for number in range(options.kills)
                ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"when killed, the server was {dict(killed.stages)}")
    say_share(f"given.killed.{options.server}.as_before", kept, target=">= 1")


if __name__ == "__main__":
    main()
