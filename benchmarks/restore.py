"""How long a trial waits for its data: written over where the trial before it changed them, against copied anew.

Between two restorations a load of some seconds runs on a real server, as in a study. Each kind of load has its rounds; in
each of them, after such a load, the cluster is restored in both ways, in random order. Both end with all of it on the disk.

With --ahead, data whose files memory has lost instead: read by two readers that ask ahead, as a study does, against one reader that does not.

With --announced, the time between the loads of two trials instead, under each restoring policy, against what `plan` announced: the
studies run as a user runs them, after a disk card of the same home. The restore command is the guide's example for XFS and btrfs,
whose time no plan knows.

Usage: python benchmarks/restore.py [--scale 50] [--rounds 8] [--seconds 4] [--folder DIR]          (five minutes)
       python benchmarks/restore.py --ahead --scale 150 --rounds 6 --folder DIR                     (ten minutes)
       python benchmarks/restore.py --announced --scale 2000 --rounds 4 --seconds 30 --workload tpcb-like --folder DIR   (half an hour)
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from figures import say

from pgdyno.analyse.estimate import estimate_geometric_mean
from pgdyno.plan.size import BYTES_PER_SCALE
from pgdyno.run.cluster import mirror
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.cluster.restoring import restore_template
from pgdyno.run.cluster.server import Server
from pgdyno.run.cluster.template import Template, prepare_template
from pgdyno.run.host.process import find_server_user
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres.installation import Installation, find_installation
from pgdyno.spec.study import DataSpec, ServerSpec
from pgdyno.spec.table import QueryMode

REFLINK = Path(__file__).parents[1] / "docs/guide/restore-command/reflink.sh"
POLICIES = {"copy": [], "none": ["--restore", "none"], "command": ["--restore-command", str(REFLINK)]}
WARM_UP_S = 5.0
WORKLOADS = ("select-only", "simple-update", "tpcb-like")


def run_load(home: Home, installation: Installation, workload: str, seconds: float, folder: Path) -> None:
    """What a trial does to its cluster."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)
    server = Server(installation=installation, home=home, log_path=folder / "server.log")
    server.start({})
    try:
        load = LoadRun(
            address=server.address,
            scripts=((workload, 1),),
            mode=QueryMode.PREPARED,
            clients=8,
            threads=2,
            duration_s=seconds,
        )
        Pgbench(installation=installation, user=home.user).run_load(load, directory=folder)
    finally:
        server.stop()


def restore(template: Template, home: Home, *, anew: bool) -> float:
    """Seconds that a restoration takes."""
    began_s = time.monotonic()
    if anew:
        shutil.rmtree(home.data)
    restore_template(template, home)
    return time.monotonic() - began_s


def forget(*folders: Path) -> None:
    """Have the kernel drop what it holds of the files, as of data that memory cannot hold."""
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def compare_readers(options: argparse.Namespace, home: Home, installation: Installation, template: Template) -> None:
    """Restore after a load with the readers of a study, and with a plain one, in random order."""
    draw = random.Random(1)
    usual = mirror.READERS, mirror.AHEAD_BYTES
    took: dict[str, list[float]] = {"plain": [], "ahead": []}
    for _ in range(options.rounds):
        for name in draw.sample([*took], k=2):
            run_load(home, installation, "simple-update", options.seconds, home.data.parent / "load")
            forget(template.data_dir, home.data)
            mirror.READERS, mirror.AHEAD_BYTES = usual if name == "ahead" else (1, 0)
            took[name].append(restore(template, home, anew=False))
    for name, values in took.items():
        say_estimate(f"restore.cold.{name}", values, unit="s")
    ratios = [one / other for one, other in zip(took["ahead"], took["plain"], strict=True)]
    say_estimate("restore.cold.ahead_to_plain", ratios, unit="ratio")


def compare_announced(options: argparse.Namespace, folder: Path) -> None:
    """Plan and run a study under each policy, and say how long a trial waited for its data, and how long it was to wait."""
    home = options.home or folder / "home"
    # Half of the data: a cache behind the disk would hold the usual test file, and not them.
    size = f"{max(1, round(options.scale * BYTES_PER_SCALE / 2**31))}GB"
    pgdyno("disk", "--home", str(home), "--quick", "--file-size", size, "--out", str(folder / "card.json"))
    for workload in options.workload or ("select-only", "tpcb-like"):
        study = folder / f"{workload}.toml"
        study.write_text(
            f"[data]\nscale = {options.scale}\n[[workload]]\nname = '{workload}'\nclients = 8\n"
            f"[trials]\nrounds = {options.rounds}\nduration = '{options.seconds:g}s'\nwarm_up = '{WARM_UP_S:g}s'\n"
        )
        for policy in options.policy or POLICIES:
            words = [str(study), "--home", str(home), *POLICIES[policy]]
            plan = json.loads(pgdyno("plan", *words, "--json"))["plan"]
            between, load_s = (
                plan["between"],
                next(one["predicted_s"] for one in plan["steps"] if one["kind"] == "load"),
            )
            announced_s = between["restore_s"] + between["warm_s"] + between["server_s"]
            record = folder / f"record-{workload}-{policy}"
            pgdyno("run", *words, "--out", str(record), "--quiet")
            trials = [json.loads(path.read_bytes()) for path in sorted(record.glob("trials/*/trial.json"))]
            if load_s:
                took_s = json.loads((record / "record.json").read_bytes())["dataset"]["init_total_s"]
                say("restore.announced.loading.measured", took_s, unit="s", n=1)
                say("restore.announced.loading.measured_to_announced", took_s / load_s, unit="ratio", n=1)
            name = f"restore.announced.{workload}.{policy}"
            say(f"{name}.announced", announced_s, unit="s", n=1)
            measured = [gap_s(one, other) for one, other in pairwise(trials)]
            say_estimate(f"{name}.measured", measured, unit="s")
            ratios = [each / announced_s for each in measured]
            say_estimate(f"{name}.measured_to_announced", ratios, unit="ratio", target="<= 1.25")
            say_estimate(f"{name}.restoring", [trial["restore_s"] for trial in trials[1:]], unit="s")
            say(f"{name}.first_restoring", trials[0]["restore_s"], unit="s", n=1)
            say(f"{name}.first_restoring_announced", between["restore_s"] + between["first_s"], unit="s", n=1)


def gap_s(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Seconds from the end of a trial's load to the next one's warm-up; checkpoints are part of it."""
    passed_s: float = other["load_start_monotonic_s"] - one["load_end_monotonic_s"]
    return passed_s - WARM_UP_S


def pgdyno(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "pgdyno", *words], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"pgdyno {' '.join(words)}: {done.stderr}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a load")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on the disk that is meant")
    parser.add_argument(
        "--ahead", action="store_true", help="compare reading ahead with plain reading, of data not in memory"
    )
    parser.add_argument("--announced", action="store_true", help="compare plan with studies, of each policy")
    parser.add_argument("--home", type=Path, help="with --announced: one that has the data already")
    parser.add_argument("--policy", choices=[*POLICIES], action="append", help="with --announced: only this one")
    parser.add_argument("--workload", choices=WORKLOADS, action="append", help="with --announced: only this one")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-restore-", dir=options.folder))
    folder.chmod(0o755)
    user = find_server_user()
    try:
        if options.announced:
            compare_announced(options, folder)
            return
        with open_home(folder / "home", user) as home:
            installation = find_installation(ServerSpec(), user=user, software_dir=home.software)
            template = prepare_template(
                installation=installation,
                home=home,
                data=DataSpec(),
                scale=options.scale,
                settings={},
                output_dir=folder,
                on_activity=lambda _: None,
            )
            restore_template(template, home)
            if options.ahead:
                compare_readers(options, home, installation, template)
                return
            draw = random.Random(1)
            for workload in WORKLOADS:
                took: dict[bool, list[float]] = {True: [], False: []}
                for _ in range(options.rounds):
                    for anew in draw.sample([True, False], k=2):
                        run_load(home, installation, workload, options.seconds, folder / "load")
                        took[anew].append(restore(template, home, anew=anew))
                for anew, name in ((True, "copied"), (False, "written_over")):
                    say_estimate(f"restore.{workload}.{name}", took[anew], unit="s")
                ratios = [one / other for one, other in zip(took[False], took[True], strict=True)]
                say_estimate(f"restore.{workload}.written_over_to_copied", ratios, unit="ratio")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def say_estimate(figure: str, values: list[float], *, unit: str, target: str | None = None) -> None:
    found = msgspec.to_builtins(estimate_geometric_mean(values, unit=unit))
    say(figure, found["value"], low=found["low"], high=found["high"], unit=unit, n=len(values), target=target)


if __name__ == "__main__":
    main()
