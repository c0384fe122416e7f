"""How long it takes to freeze and to thaw a server with its load: by signals, and by the kernel's freezers of cgroups.

Each turn freezes and thaws a PostgreSQL with 8 clients and their pgbench once by each way, in random order. Freezing
ends when every process stands still; thawing, when every order to run again was given. Needs root for cgroups.

Usage: python benchmarks/freezing.py [--turns 300] [--folder DIR]                                  (one minute)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pgdyno.run.cluster.home import open_home
from pgdyno.run.cluster.restoring import restore_template
from pgdyno.run.cluster.server import Server
from pgdyno.run.cluster.template import prepare_template
from pgdyno.run.host.freezer import Freezer
from pgdyno.run.host.process import find_server_user
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres.installation import find_installation
from pgdyno.spec.study import DataSpec, ServerSpec
from pgdyno.spec.table import QueryMode

V1 = Path("/sys/fs/cgroup/freezer")
V2 = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
Way = tuple[Callable[[], None], Callable[[], None]]


@contextlib.contextmanager
def a_group(root: Path, pids: list[int]) -> Iterator[Path]:
    """Put processes into a control group of their own; at the end back into the root."""
    folder = root / "pgdyno-freezing"
    folder.mkdir()
    try:
        for pid in pids:
            (folder / "cgroup.procs").write_text(str(pid))
        yield folder
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (root / "cgroup.procs").write_text(pid)
        folder.rmdir()


def version_1(folder: Path) -> Way:
    """Return how to freeze and to thaw a group of cgroup v1."""
    state = folder / "freezer.state"

    def freeze() -> None:
        state.write_text("FROZEN")
        while state.read_text().strip() != "FROZEN":
            time.sleep(0.0002)

    return freeze, lambda: void(state.write_text("THAWED"))


def version_2(folder: Path) -> Way:
    """Return how to freeze and to thaw a group of cgroup v2."""

    def freeze() -> None:
        (folder / "cgroup.freeze").write_text("1")
        while "frozen 1" not in (folder / "cgroup.events").read_text():
            time.sleep(0.0002)

    return freeze, lambda: void((folder / "cgroup.freeze").write_text("0"))


def void(_: object) -> None:
    """Drop a value: a way returns none."""


def measure(ways: dict[str, Way], turns: int) -> dict[str, dict[str, float]]:
    """Measure each way so many times; return the median and the p95 of freezing and of thawing."""
    took: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ways}
    draw = random.Random(1)
    for _ in range(turns):
        for name in draw.sample(list(ways), len(ways)):
            time.sleep(draw.uniform(0.01, 0.05))
            for action, times in zip(ways[name], took[name], strict=True):
                began_s = time.perf_counter()
                action()
                times.append(time.perf_counter() - began_s)
                time.sleep(0.01)
    return {
        name: {
            f"{what}_{which}_us": round(1e6 * value)
            for what, times in (("freeze", freezing), ("thaw", thawing))
            for which, value in (("median", statistics.median(times)), ("p95", statistics.quantiles(times, n=20)[-1]))
        }
        for name, (freezing, thawing) in took.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-freezing-", dir=options.folder))
    folder.chmod(0o755)
    user = find_server_user()
    try:
        with open_home(folder / "home", user) as home, contextlib.ExitStack() as stack:
            installation = find_installation(ServerSpec(), user=user, software_dir=home.software)
            template = prepare_template(
                installation=installation,
                home=home,
                data=DataSpec(),
                scale=10,
                settings={},
                output_dir=folder,
                on_activity=lambda _: None,
            )
            restore_template(template, home)
            server = Server(installation=installation, home=home, log_path=folder / "server.log")
            server.start({})
            stack.callback(server.abandon)
            run = LoadRun(
                address=server.address,
                scripts=(("tpcb-like", 1),),
                mode=QueryMode.PREPARED,
                clients=8,
                threads=2,
                duration_s=3600.0,
            )
            load = stack.enter_context(Pgbench(installation=installation, user=user).start_load(run, directory=folder))
            time.sleep(2)
            roots = [load.pid, server.pid]
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
            pids = [*roots, *map(int, children)]
            freezer = Freezer()
            ways: dict[str, Way] = {"signals": (lambda: freezer.freeze(roots), freezer.thaw)}
            if (V1 / "cgroup.procs").exists():
                ways["cgroup v1"] = version_1(stack.enter_context(a_group(V1, pids)))
            for root in V2:
                if (root / "cgroup.controllers").exists():
                    ways["cgroup v2"] = version_2(stack.enter_context(a_group(root, pids)))
            print(json.dumps({"processes": len(pids), **measure(ways, options.turns)}, indent=1))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
