"""What watching a machine through ssh costs it, and how well its clock is known.

An sshd of this account runs on the loopback interface. First the OS sampler watches through it once a second: the CPU seconds of
the sampler and of sshd are the kernel's, in windows of ten samples. Then clocks are compared in bursts of eight or more, with the machine's own
clock, and in time namespaces, which need root, with clocks that are 1,000 s ahead and behind: the offset of each burst is known
to the nanosecond. The interval of a mean is Student's over windows, that of a share Wilson's over bursts.

    python benchmarks/hosts.py [--seconds 120] [--bursts 420]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from figures import say, say_share
from observer import interval

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pgdyno.record.samples.clock import ClockExchange, fit_clock
from pgdyno.run.link import far_program
from pgdyno.run.link.far_program import BURST_COUNT, FarProgram
from pgdyno.run.link.ssh import SshLink, open_link
from pgdyno.run.sample import os_sampler
from pgdyno.spec.hosts import HostEntry, HostRole
from tests.hosts import running_sshd

SAMPLER = Path(os_sampler.__file__)
WINDOW_S = 10.0
OFFSETS_S = (0, 1000, -1000)
BURST_EACH_S = 0.3
SILENCE_S = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="of sampling")
    parser.add_argument("--bursts", type=int, default=420, help="for each clock")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pgdyno-hosts-", dir="/var/tmp") as name:
        folder = Path(name)
        with running_sshd(folder) as daemon:
            os.environ["PATH"] = daemon.path
            with open_link(HostEntry(role=HostRole.SERVER, ssh="db1")) as link:
                measure_cost(link, options.seconds, folder)
            measure_clocks(options.bursts, folder)


def measure_cost(link: SshLink, seconds: float, folder: Path) -> None:
    """Print what a sampler at 1 Hz costs, in shares of one CPU."""
    program = FarProgram(link, SAMPLER, ["1", str(SILENCE_S)], output=folder / "os.jsonl")
    while not program.has_lines(3):
        time.sleep(0.1)
    lines = (json.loads(line) for line in program.path.read_bytes().split(b"\n")[:-1])
    far_pid = next(line["process.sampler_os"][0] for line in lines if "process.sampler_os" in line)
    pids = {"sampler": far_pid, "sshd": int(read(f"/proc/{far_pid}/stat").rpartition(b")")[2].split()[1])}
    assert link._master is not None
    pids["ssh"] = link._master.pid
    spent: dict[str, list[float]] = {name: [] for name in pids}
    for _ in range(int(seconds / WINDOW_S)):
        began = {name: cpu_s(pid) for name, pid in pids.items()}
        began_s = time.monotonic()
        time.sleep(WINDOW_S)
        took_s = time.monotonic() - began_s
        for name, pid in pids.items():
            spent[name].append((cpu_s(pid) - began[name]) / took_s)
    program.stop()
    there = [one + other for one, other in zip(spent["sampler"], spent["sshd"], strict=True)]
    say_mean("hosts.sampler_cpu_ratio", there, target="<= 0.001")
    say_mean("hosts.ssh_cpu_ratio", spent["ssh"])


def measure_clocks(bursts: int, folder: Path) -> None:
    """Print how far bursts were off, and whether their bounds held."""
    far_program._BURSTS_WITHIN_SILENCE = SILENCE_S / BURST_EACH_S
    errors_ms: list[float] = []
    bounds_ms: list[float] = []
    exchanges = 0
    for offset_s in OFFSETS_S if os.geteuid() == 0 else OFFSETS_S[:1]:
        seen = compare(offset_s, bursts, folder)
        exchanges += len(seen)
        for number in {one.burst for one in seen}:
            fit = fit_clock([one for one in seen if one.burst == number])
            errors_ms.append(abs(fit.offset_s - offset_s) * 1000.0)
            bounds_ms.append(fit.uncertainty_s * 1000.0)
    print(f"{exchanges} exchanges, load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
    say_share("hosts.clock_within_1_ms", [error <= 1.0 for error in errors_ms], target=">= 0.99")
    say_share(
        "hosts.clock_within_bound",
        [error <= bound for error, bound in zip(errors_ms, bounds_ms, strict=True)],
        target=">= 1",
    )
    cuts = statistics.quantiles(errors_ms, n=100)
    say("hosts.clock_error_p50", cuts[49], unit="ms", n=len(errors_ms))
    say("hosts.clock_error_p99", cuts[98], unit="ms", n=len(errors_ms))
    say("hosts.clock_error_max", max(errors_ms), unit="ms", n=len(errors_ms))
    say("hosts.clock_bound_p50", statistics.median(bounds_ms), unit="ms", n=len(bounds_ms))


def compare(offset_s: int, bursts: int, folder: Path) -> Sequence[ClockExchange]:
    """Return the exchanges with a clock that is so far ahead."""
    python = folder / f"python{offset_s}"
    python.write_text(
        f'#!/bin/sh\nexec unshare --time --monotonic {offset_s} --fork --kill-child {sys.executable} "$@"\n'
        if offset_s
        else f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    with open_link(HostEntry(role=HostRole.SERVER, ssh="db1", python=str(python))) as link:
        program = FarProgram(link, SAMPLER, ["1", str(SILENCE_S)], output=folder / f"clock{offset_s}.jsonl")
        while len(program.exchanges) < bursts * BURST_COUNT and program.is_alive:
            time.sleep(0.2)
        program.stop()
    return program.exchanges


def say_mean(figure: str, values: Sequence[float], *, target: str | None = None) -> None:
    mean, low, high = interval(values)
    say(figure, mean, low=low, high=high, unit="ratio", n=len(values), target=target)


def cpu_s(pid: int) -> float:
    """The CPU seconds that the scheduler counted for all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int(read(f"{task}/schedstat").split()[0]) for task in tasks) / 1e9


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
