"""How much later a command on another machine begins than the same command here, once pgdyno was carried there.

An sshd of this account runs on the loopback interface, so that both are one machine, and the network takes no time. pgdyno is carried
there as it is, 600 MB; then `pgdyno plan` is started here and there in turns, and the time to its first output is taken.

Usage: python benchmarks/over_start.py [--pairs 20]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import say

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.hosts import running_sshd

COMMAND = ("plan", "tpcb-like")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pgdyno-start-", dir="/var/tmp") as name:
        folder = Path(name)
        with running_sshd(folder) as daemon:
            environment = {**os.environ, "PATH": daemon.path}
            carried_s = time_first_output(("on", "db1", *COMMAND), folder, environment)
            here, there = [], []
            for _ in range(options.pairs):
                here.append(time_first_output(COMMAND, folder, environment))
                there.append(time_first_output(("on", "db1", *COMMAND), folder, environment))
    later = [far - near for near, far in zip(here, there, strict=True)]
    ratios = [far / near for near, far in zip(here, there, strict=True)]
    print(f"load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
    say("over.start.first_s", carried_s, unit="s", n=1)
    say("over.start.here_s", statistics.median(here), unit="s", n=len(here))
    say("over.start.there_s", statistics.median(there), unit="s", n=len(there))
    say("over.start.later_s", statistics.median(later), unit="s", n=len(later), target="<= 1")
    say("over.start.ratio", statistics.median(ratios), unit="ratio", n=len(ratios))


def time_first_output(words: tuple[str, ...], folder: Path, environment: dict[str, str]) -> float:
    """Return the seconds until a command prints the first byte of its result."""
    began_s = time.monotonic()
    argv = [sys.executable, "-m", "pgdyno", *words]
    with subprocess.Popen(
        argv, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdout is not None
        assert child.stdout.read(1), words
        took_s = time.monotonic() - began_s
        child.stdout.read()
    return took_s


if __name__ == "__main__":
    main()
