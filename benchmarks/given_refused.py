"""Whether a source that a role may not read costs a run that source alone: each is revoked once, and `pgdyno bench` run.

The embedded PostgreSQL, or Debian's 15, runs as a cluster that only its socket's connection string names. A role gets every
GRANT that `pgdyno check --dsn` names; then each source is taken away alone, in every database, and a short bench runs. It
must end with a figure, its record must say that this source was refused in the server's own words, and no counter of another
source may be missing. What every study needs must be refused before anything is loaded, with the GRANT that gives it.

Usage: python benchmarks/given_refused.py [--server 15]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from figures import say_share

from pgdyno.facts.privileges import make_probes
from pgdyno.facts.readable_counters import name_place
from pgdyno.facts.views import server_counters
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.run.cluster.home import open_home
from pgdyno.run.given.probe import probe_server
from pgdyno.run.host.process import find_server_user
from pgdyno.run.own_server import OwnServer
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.installation import find_installation
from pgdyno.spec.study import DataSpec, ServerKind, ServerSpec

SERVERS = {"18": ServerSpec(), "15": ServerSpec(kind=ServerKind.LOCAL, version=15)}
ROLE = "watcher"
BENCH = (
    *("--workload", "tpcb-like", "--scale", "1", "--clients", "2", "--rounds", "1"),
    *("--duration", "2s", "--warm-up", "1s", "--yes"),
)
NEEDED = frozenset({"CREATE DATABASE", "own sessions"})
DATABASES = ("postgres", "template1")


def execute(address: Address, statements: list[str]) -> None:
    """Run statements as superuser in each database from which others are made."""
    for name in DATABASES:
        with sql.connect(msgspec.structs.replace(address, dbname=name)) as connection:
            for statement in statements:
                connection.execute(statement.encode())


def list_refused(server: GivenServer) -> dict[str, str]:
    """Return what a server refuses, with its words."""
    return {one.name: one.refusal for one in server.capabilities if one.refusal is not None}


def reverse(grant: str) -> str:
    """Return the statement that takes back what a GRANT gave."""
    if "CREATEDB" in grant:
        return grant.replace("CREATEDB", "NOCREATEDB")
    return grant.replace("GRANT", "REVOKE").replace(" TO ", " FROM ")


@contextmanager
def without(address: Address, grants: tuple[str, ...], given: set[str]) -> Iterator[None]:
    """Take a source away for the length of a block: from the role, or from everybody who has it without a GRANT."""
    own = [grant for grant in grants if grant in given]
    taken = own or [grant.replace(f" TO {ROLE}", " TO PUBLIC") for grant in grants]
    execute(address, [reverse(grant) for grant in taken])
    try:
        yield
    finally:
        execute(address, taken)


def run_bench(dsn: str, folder: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any] | None]:
    """Run a short bench, and return its trial's record; None if there is none."""
    argv = [sys.executable, "-m", "pgdyno", "bench", "--stock-only", "--dsn", dsn, *BENCH, "--out", "record"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    trials = sorted((folder / "record").glob("trials/*/trial.json"))
    return done, json.loads(trials[0].read_bytes()) if trials else None


def is_lost_alone(name: str, words: str, trial: dict[str, Any], *, whole: dict[str, Any], major: int) -> bool:
    """Whether a trial has all counters but those of one source, and says why these are missing."""
    missing = {
        key
        for key, value in whole["counters_after"].items()
        if value is not None and trial["counters_after"][key] is None
    }
    own = {one.name for one in server_counters(major).counters if name_place(one.source) == name}
    said = {gap["source"]: gap["reason"] for gap in trial["gaps"]}
    news = said.keys() - {gap["source"] for gap in whole["gaps"]}
    is_counted = name in {name_place(one.source) for one in server_counters(major).counters}
    is_said = said.get(name) == words if is_counted else True
    return missing <= own and news <= {name} and is_said and trial["status"] == "finished"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", choices=list(SERVERS), default="18")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-refused-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        with open_home(folder / "given", user=find_server_user()) as home:
            installation = find_installation(SERVERS[options.server], user=home.user, software_dir=home.software)
            server = OwnServer(installation=installation, home=home)
            (folder / "init").mkdir()
            server.load(DataSpec(), 1, settings={}, output_dir=folder / "init", on_activity=lambda _: None)
            server.reset()
            with server.running({}, log_path=folder / "server.log"):
                held = list(ask_all(server.address, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say_share(f"given.refused.{options.server}.lost_alone", held, target=">= 1")


def ask_all(address: Address, folder: Path) -> Iterator[bool]:
    """Take each source away, run a bench, and yield whether that source alone was lost."""
    with sql.connect(address) as connection:
        connection.execute(f"CREATE ROLE {ROLE} LOGIN".encode())
    dsn = f"host={address.host} port={address.port} user={ROLE} dbname=postgres"
    given = {grant for one in probe_server(dsn).capabilities for grant in one.grants}
    execute(address, sorted(given))
    full = probe_server(dsn)
    (folder / "whole").mkdir()
    done, whole = run_bench(dsn, folder / "whole")
    if whole is None:
        raise SystemExit(done.stderr)
    before = list_refused(full)
    print(
        f"{len(full.capabilities)} sources; refused in spite of every GRANT: {', '.join(before) or 'none'}", flush=True
    )
    for number, grants in enumerate(sorted(set(list_grants(address)))):
        with without(address, grants, given):
            lost = {k: v for k, v in list_refused(probe_server(dsn)).items() if k not in before}
            if not lost:
                print(f"not lost: another GRANT gives what {grants[0]} does", flush=True)
                continue
            place = folder / f"run-{number}"
            place.mkdir()
            done, trial = run_bench(dsn, place)
        if NEEDED & lost.keys():
            holds = done.returncode == 3 and trial is None and all(grant in done.stderr for grant in grants)
        else:
            holds = done.returncode == 0 and trial is not None
            holds = holds and all(is_lost_alone(*one, trial, whole=whole, major=full.major) for one in lost.items())
        print(f"{'holds' if holds else 'FAILS'}: {lost}, exit code {done.returncode}", flush=True)
        if not holds:
            print(done.stderr[-1500:], flush=True)
        yield holds


def list_grants(address: Address) -> Iterator[tuple[str, ...]]:
    """Yield the GRANTs of each source that a GRANT gives."""
    with sql.connect(address) as connection:
        facts = sql.find_counters(connection, connection.info.server_version)
    for probe in make_probes(facts):
        if probe.grants:
            yield tuple(grant.format(role=ROLE) for grant in probe.grants)


if __name__ == "__main__":
    main()
