"""Whether a server that is reached by a connection string is measured as the same server is as pgdyno's own.

The embedded PostgreSQL runs once as pgdyno's own cluster, and once as a cluster that only its socket's connection string
names, through a role that has CREATEDB and nothing else. Each question is put to both in paired trials, or in live slices
with --design live, one after the other in random order: the same verdict, each estimate in the other's 95 % interval, and the
shares of the clients' time that go to waits inside the server. With --again, the first questions are put to the own server
twice: what do two runs there differ by? With --alike, identical variants are compared on the given server only: how many of
these are called different?

The shares are compared like with like. Of its own server pgdyno knows from the kernel how long backends had no CPU, and takes
that out of their waits; of a given one nobody counts it. So the own server's trials are read a second time without its
machine, and those shares are compared. What the kernel's count takes out is a figure of its own.

Usage: python benchmarks/given.py [--minutes 2] [--scale 10] [--questions 10] [--again 0] [--alike 0] [--design paired]
       [--duration 4s] [--warm-up 1s] [--folder DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from causes import hide_machine
from figures import say, say_share

from pgdyno.analyse.transaction_time.model import measure_time
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data
from pgdyno.run.cluster.home import open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.own_server import OwnServer
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.installation import find_installation
from pgdyno.spec.study import DataSpec, ServerSpec

# Effects that are large, and none at all: what is undecided on a noisy machine would only show how noisy it is.
QUESTIONS = (
    ("--workload simple-update", "--set synchronous_commit=on --set synchronous_commit=off"),
    ("--workload tpcb-like", "--set synchronous_commit=on --set synchronous_commit=off"),
    ("--workload tpcb-like", "--clients 1 --clients 8"),
    ("--workload select-only", "--clients 1 --clients 4"),
    ("--workload select-only", "--mode simple --mode prepared"),
    ("--workload tpcb-like", "--mode simple --mode prepared"),
    ("--workload select-only", "--set work_mem=4MB --set work_mem=8MB"),
    ("--workload simple-update", "--set work_mem=4MB --set work_mem=8MB"),
    ("--workload select-only", "--set enable_indexscan=on --set 'enable_indexscan=off enable_bitmapscan=off'"),
    ("--workload simple-update", "--set jit=on --set jit=off"),
)
ALIKE = ("--workload select-only", "--set work_mem=4MB --set work_mem=8MB")


WAITS = {
    "WAL flush",
    "WAL insertion and write locks",
    "data reads",
    "data writes and checkpoints",
    "row and lock contention",
    "lightweight locks",
}
NEAR = 0.05
SAID = {"faster", "slower", "equivalent"}


@contextlib.contextmanager
def given_server(folder: Path) -> Iterator[str]:
    """Start the embedded PostgreSQL with its defaults; yield the connection string of a role that has CREATEDB."""
    with open_home(folder / "given", user=find_server_user()) as home:
        installation = find_installation(ServerSpec(), user=home.user, software_dir=home.software)
        server = OwnServer(installation=installation, home=home)
        (folder / "init").mkdir()
        server.load(DataSpec(), 1, settings={}, output_dir=folder / "init", on_activity=lambda _: None)
        server.reset()
        with server.running({}, log_path=folder / "server.log"):
            with sql.connect(server.address) as connection:
                connection.execute("CREATE ROLE bench LOGIN CREATEDB")
            yield f"host={server.address.host} port={server.address.port} user=bench dbname=postgres"


def ask(question: tuple[str, ...], place: list[str], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run a comparison; return its report."""
    words = [word for part in question for word in shlex.split(part)]
    if "--clients" not in words:
        words += ["--clients", "8"]
    trials = [
        "--design",
        options.design,
        "--duration",
        options.duration,
        "--warm-up",
        options.warm_up,
        "--minutes",
        str(options.minutes),
    ]
    argv = [sys.executable, "-m", "pgdyno", "compare", *words, *trials, "--scale", str(options.scale), *place, "--json"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: {done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
    report["unseen"] = read_unseen_waits(folder)
    shutil.rmtree(folder / "pgdyno-records")
    return report


def verdict_of(report: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict on TPS."""
    (comparison,) = report["experiment"]["comparisons"]
    (verdict,) = [one["verdict"] for one in comparison["questions"] if one["metric"] == "tps"]
    return dict(verdict)


def waits_of(report: dict[str, Any]) -> dict[tuple[str, str], float]:
    """Return the mean share of the clients' time in each wait as the report has it, by variant and resource."""
    found: dict[tuple[str, str], list[float]] = {}
    for workload in report["workloads"]:
        for trial in workload["trials"]:
            shares = {one["resource"]: one["ratio"] for one in (trial["time"] or {"shares": ()})["shares"]}
            for wait in WAITS if trial["time"] else ():
                found.setdefault((trial["arms"][0], wait), []).append(shares.get(wait, 0.0))
    return {key: statistics.mean(ratios) for key, ratios in found.items()}


def read_unseen_waits(folder: Path) -> dict[tuple[str, str], float]:
    """Return the same shares of the folder's only record, read without the server's machine."""
    (place,) = (folder / "pgdyno-records").iterdir()
    store = open_record(place)
    plan = store.read_record().plan
    found: dict[tuple[str, str], list[float]] = {}
    for trial in store.read_trials():
        data = read_trial_data(store.trial_dir(trial.planned.number), trial)
        time = measure_time(hide_machine(data) if data.os is not None else data, plan.find_load(trial.planned))
        shares = {one.resource.value: one.ratio for one in (time.shares if time else ())}
        for wait in WAITS if time else ():
            found.setdefault((trial.planned.variants[0], wait), []).append(shares.get(wait, 0.0))
    return {key: statistics.mean(ratios) for key, ratios in found.items()}


def find_farthest(one: dict[tuple[str, str], float], other: dict[tuple[str, str], float]) -> list[float]:
    """Return by how much the shares differ where they do most; nothing where none is known of both."""
    both = one.keys() & other.keys()
    return [max(abs(one[key] - other[key]) for key in both)] if both else []


def show(where: str, verdict: dict[str, Any]) -> str:
    """Return a verdict in a line."""
    numbers = [verdict[name] for name in ("effect_ratio", "low_ratio", "high_ratio")]
    effect, low, high = ("-" if number is None else f"{100 * number:+.1f} %" for number in numbers)
    return f"{where} {verdict['kind']} {effect} [{low}, {high}], {verdict['n']} pairs"


def name_figures(options: argparse.Namespace) -> str:
    """Return the beginning of the figures' names."""
    return "given" if options.design == "paired" else f"given.{options.design}"


def compare_both(dsn: str, options: argparse.Namespace, folder: Path) -> None:
    """Put each question to both servers, and say how far the answers agree."""
    name = name_figures(options)
    same, contradicted, inside, apart, null, counted = [], [], [], [], [], []
    own_place = ["--home", str(folder / "own"), "--no-disk"]
    for number, question in enumerate(QUESTIONS[: options.questions]):
        places = {"own": own_place, "given": ["--dsn", dsn]}
        if number < options.again:
            # Two runs on one server differ, too: by the seconds in which other programs were at work, and by chance.
            places["own again"] = own_place
        order = sorted(places)
        random.Random(number).shuffle(order)
        reports = {place: ask(question, places[place], options, folder) for place in order}
        own, given = (verdict_of(reports[name]) for name in ("own", "given"))
        print(f"{' '.join(question)}: {show('own', own)}; {show('given', given)}", flush=True)
        same.append(own["kind"] == given["kind"])
        contradicted.append({own["kind"], given["kind"]} <= SAID and own["kind"] != given["kind"])
        inside += [
            one["low_ratio"] <= other["effect_ratio"] <= one["high_ratio"]
            for one, other in ((own, given), (given, own))
        ]
        unseen = {name: report["unseen"] for name, report in reports.items()}
        apart += find_farthest(unseen["own"], unseen["given"])
        null += find_farthest(unseen["own"], unseen["own again"]) if "own again" in unseen else []
        counted += find_farthest(waits_of(reports["own"]), unseen["own"])
        print(f"  waits apart: {apart[-1:]}; taken out by the kernel's count: {counted[-1:]}", flush=True)
    say_share(f"{name}.same_verdict", same, target=">= 1")
    say_share(f"{name}.contradicted", contradicted, target="<= 0")
    say_share(f"{name}.estimate_inside", inside)
    if apart:
        say(f"{name}.waits_apart", statistics.median(apart), unit="ratio", n=len(apart), target="<= 0.05")
        say_share(f"{name}.waits_near", [one <= NEAR for one in apart])
    for figure, seen in (("waits_apart_null", null), ("waits_counted", counted)):
        if seen:
            say(f"{name}.{figure}", statistics.median(seen), unit="ratio", n=len(seen))


def compare_alike(dsn: str, options: argparse.Namespace, folder: Path) -> None:
    """Compare identical variants, and say how many were called different."""
    called: list[bool] = []
    # Ctrl-C ends it with what was asked so far: how many comparisons were made does not depend on their answers.
    with contextlib.suppress(KeyboardInterrupt):
        for number in range(options.alike):
            verdict = verdict_of(ask(ALIKE, ["--dsn", dsn], options, folder))
            print(f"alike {number}: {show('given', verdict)}", flush=True)
            called.append(verdict["kind"] in {"faster", "slower"})
    say_share(f"{name_figures(options)}.alike_called_different", called, target="<= 0.05")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--duration", default="4s")
    parser.add_argument("--warm-up", default="1s")
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--questions", type=int, default=len(QUESTIONS))
    parser.add_argument("--again", type=int, default=0)
    parser.add_argument("--design", choices=("paired", "live"), default="paired")
    parser.add_argument("--alike", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the clusters lie [default: below /var/tmp]")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-given-", dir=options.folder or "/var/tmp"))
    folder.chmod(0o755)
    try:
        with given_server(folder) as dsn:
            compare_both(dsn, options, folder)
            compare_alike(dsn, options, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
