"""Whether a command on another machine ever leaves something there: a study over ssh is killed at random instants, in a random place.

An sshd of this account runs on the loopback interface. `pgdyno on db1 run` compares two settings there, as root also of the
kernel; at a random instant one of five processes gets SIGKILL: pgdyno here, its ssh, its session of sshd, the program there that
runs pgdyno, or pgdyno there. After 35 s at the latest, no process may be left that works in the folder or names it, the
kernel setting must be as before (where pgdyno there was killed: after the next command there), and `~/pgdyno-on` there may hold nothing
but a record that the one here names. Every twentieth study is then resumed, and must come to its end.

Usage: python benchmarks/over_killed.py [--kills 200] [--minutes 30] [--within 30] [--seed 1]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from figures import say, say_share

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pgdyno.run.host.processes import descend, read_processes
from pgdyno.run.host.tree import Tree
from tests.carrying import carry_in_a_line
from tests.cli.experiments import QUICK_COMMITS, SLOW_COMMITS, write_study
from tests.cli.program import Bench
from tests.hosts import Sshd, running_sshd
from tests.sysctls import machine_settings, read_sysctl

# No test of pgdyno changes it, and none waits for its lock.
SETTING, VALUE = "vm.watermark_scale_factor", 11
GONE_WITHIN_S = 35.0
PLACES = ("pgdyno here", "ssh", "sshd", "the runner there", "pgdyno there")
RESUMED_EVERY = 20


class Killed:
    """A machine there, and what was killed."""

    def __init__(self, bench: Bench, sshd: Sshd, draw: random.Random) -> None:
        self.bench, self.sshd, self.draw = bench, sshd, draw
        self.before = read_sysctl(SETTING)
        self.study = write_some(bench)
        self.stages: Counter[str] = Counter()
        self.gone_s: list[float] = []
        self.resumed: list[bool] = []

    def kill_once(self, number: int, after_s: float) -> bool:
        """Kill something so long after the beginning, and return whether nothing was left."""
        record = f"mine-{number}"
        argv = self.bench.argv("on", "db1", "run", self.study, "--home", str(self.bench.home), "--out", record)
        environment = {**os.environ, "PATH": self.sshd.path}
        child = subprocess.Popen(
            argv, cwd=self.bench.folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(after_s)
        place = self.draw.choice(PLACES)
        victims = self.find(place, child.pid) if child.poll() is None else []
        was = (
            f"{place}{', set' if read_sysctl(SETTING) != self.before else ''}" if victims else "over, or not there yet"
        )
        killed_s = time.monotonic()
        for pid in (self.draw.choice(victims),) if victims else (child.pid,):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Where something there was killed, the one here ends by itself.
        left = self.wait_until_gone(child, killed_s)
        child.kill()
        child.wait()
        self.stages[was] += 1
        self.gone_s.append(time.monotonic() - killed_s)
        if place == PLACES[-1] and victims:
            self.call("on", "db1", "restore")
        stays = [] if read_sysctl(SETTING) == self.before else [f"{SETTING} = {read_sysctl(SETTING)}"]
        if number % RESUMED_EVERY == 0 and (self.bench.folder / record / "record.json").exists():
            self.resumed.append(self.call("resume", record))
        self.call("on", "db1", "plan", self.study)
        stays += self.list_unknown(record, child.pid)
        if left or stays:
            print("LEFT", left, stays, flush=True)
        print(
            f"{number}: {was}, after {after_s:.1f} s; gone within {self.gone_s[-1]:.1f} s; left: {left + stays or 'nothing'}",
            flush=True,
        )
        shutil.rmtree(self.bench.folder / record, ignore_errors=True)
        shutil.rmtree(self.sshd.home / "pgdyno-on", ignore_errors=True)
        return not left and not stays

    def find(self, place: str, here: int) -> list[int]:
        """Return the processes at a place."""
        processes = read_processes(Tree())
        daemon = next(pid for pid, command in list_commands() if f"-f {self.sshd.folder}/sshd_config" in command)
        ours, theirs = descend(processes, here), descend(processes, daemon)
        commands = dict(list_commands())
        return {
            PLACES[0]: [here],
            PLACES[1]: [
                pid for pid in ours if commands.get(pid, "").startswith("ssh ") or "/ssh -F" in commands.get(pid, "")
            ],
            PLACES[2]: [pid for pid in theirs if pid != daemon and commands.get(pid, "").startswith("sshd:")],
            PLACES[3]: [pid for pid in theirs if " -S -I -c " in commands.get(pid, "")],
            PLACES[4]: [pid for pid in theirs if " -I -m pgdyno " in commands.get(pid, "")],
        }[place]

    def wait_until_gone(self, child: subprocess.Popen[bytes], since_s: float) -> list[str]:
        """Wait until nothing works in the folders any more; return what stays too long."""
        while True:
            left = [command for pid, command in list_commands() if pid != child.pid and self.is_ours(pid, command)]
            if not left and child.poll() is not None:
                return []
            if time.monotonic() - since_s > GONE_WITHIN_S:
                return [*left, *(["pgdyno here"] if child.poll() is None else [])]
            time.sleep(0.05)

    def is_ours(self, pid: int, command: str) -> bool:
        """Return whether a process names or works in one of the folders."""
        if "sshd_config" in command:
            return False
        folders = (str(self.bench.folder), str(self.sshd.home))
        try:
            where = str(Path(f"/proc/{pid}/cwd").readlink())
        except OSError:
            where = ""
        return any(folder in command or folder in where for folder in folders)

    def list_unknown(self, record: str, pid: int) -> list[str]:
        """Return what lies there but the folder that the record here names."""
        note = self.bench.folder / record / "ssh.json"
        known = json.loads(note.read_text())["folder"] if note.exists() else None
        far = self.sshd.home / "pgdyno-on"
        unknown = [str(path) for path in far.glob("*") if str(path) != known]
        # Others may be at work, and be killed, too.
        mine = [str(path) for path in Path(tempfile.gettempdir()).glob(f"pgdynossh-{pid}-*")]
        return [*unknown, *mine, *(str(path) for path in self.bench.folder.glob(".bringing-*"))]

    def call(self, *words: str) -> bool:
        """Run a command, and return whether it succeeded."""
        argv = [sys.executable, "-m", "pgdyno", *words]
        environment = {**os.environ, "PATH": self.sshd.path}
        done = subprocess.run(
            argv,
            cwd=self.bench.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            print(f"  {' '.join(words)}: {done.returncode}: {done.stderr}", flush=True)
        return done.returncode == 0


def write_some(bench: Bench) -> str:
    is_root = os.geteuid() == 0
    return write_study(
        bench,
        f'name = "as it is"\nsettings = {{ {SLOW_COMMITS} }}',
        f'name = "changed"\nsettings = {{ {QUICK_COMMITS} }}'
        + (f'\nsysctl = {{ "{SETTING}" = {VALUE} }}' if is_root else ""),
        confidence="60%",
        experiment='design = "paired"\ndetect = "50%"',
        warm_up="0s",
        duration="1s",
    )


def list_commands() -> list[tuple[int, str]]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append(
                (int(process.name), (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=30.0, help="no kill begins later")
    parser.add_argument("--within", type=float, default=30.0, help="seconds after the beginning, at most")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    until_s = time.monotonic() + 60.0 * options.minutes
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-over-killed-", dir="/var/tmp"))
    folder.chmod(0o755)
    nothing: list[bool] = []
    try:
        (folder / "sshd").mkdir()
        (folder / "bench").mkdir()
        (folder / "bench").chmod(0o755)
        kernel = machine_settings(SETTING) if os.geteuid() == 0 else contextlib.nullcontext()
        with running_sshd(folder / "sshd") as sshd, kernel:
            os.environ["PATH"] = sshd.path
            carry_in_a_line(folder)
            killed = Killed(Bench(folder / "bench"), sshd, random.Random(options.seed))
            while len(nothing) < options.kills and time.monotonic() < until_s:
                after_s = killed.draw.uniform(0.0, options.within)
                nothing.append(killed.kill_once(len(nothing), after_s))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"killed: {dict(killed.stages)}")
    say_share("over.killed.nothing_left", nothing, target=">= 1")
    say_share("over.killed.resumed", killed.resumed, target=">= 1")
    say("over.killed.gone_s_max", max(killed.gone_s), unit="s", n=len(killed.gone_s), target=f"<= {GONE_WITHIN_S:g}")


if __name__ == "__main__":
    main()
