"""How long it takes from `pipx install` of the wheel in a bare Debian root to the first trial, beside the time to download.

mmdebstrap makes the root: Debian's essential packages, and pipx with what it needs. An ordinary account of that root installs the
wheel with pipx from a folder of wheels that were downloaded before, which is timed apart: once, without pip's cache. Then it runs
`pgdyno bench` with one short workload and no disk card. The seconds run from the start of pipx to the start of the first trial's
load. Each round begins with a new root. The CPU seconds of pipx, and of pipx and the bench to its end, stand beside it, since a
busy machine has few of them to give. Needs root, mmdebstrap, and Debian's packages.

    python benchmarks/install.py [--suite bookworm] [--rounds 6]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import say
from startup import interval

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT / "tools"))

from bare_root import SHORT_BENCH, BareRoot, make_archive, unpack  # noqa: E402

_ACCOUNT, _HOME, _WHEELS = "dba", "/home/dba", "/var/wheels"
_PYTHON = {"bookworm": "3.11", "trixie": "3.13"}
# pipx installs them into an environment that all its programs share.
_OF_PIPX = ("pip", "setuptools", "wheel")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="bookworm", choices=sorted(_PYTHON), help="of Debian")
    parser.add_argument("--rounds", type=int, default=6, help="two or more")
    parser.add_argument("--root", type=Path, help="an archive of such a root, in place of a new one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pgdyno-wheels-", dir="/var/tmp") as folder:
        wheels = Path(folder)
        download_s = download(wheels, _PYTHON[options.suite])
        size_mb = sum(path.stat().st_size for path in wheels.iterdir()) / 1e6
        print(f"{size_mb:.0f} MB in {download_s:.1f} s; now {options.rounds} rounds", flush=True)
        with make_archive(options.suite, ["ca-certificates", "pipx"], made=options.root) as archive:
            rounds = [measure(archive, wheels) for _ in range(options.rounds)]
    say(f"install.{options.suite}.download", download_s, unit="s", n=1)
    say(f"install.{options.suite}.download_size", size_mb, unit="MB", n=1)
    for number, name in enumerate(("pipx", "to_first_trial", "pipx_cpu", "all_cpu")):
        values = [one[number] for one in rounds]
        target = "<= 60" if name == "to_first_trial" else None
        say(f"install.{options.suite}.{name}", **interval(values), unit="s", n=len(values), target=target)


def download(wheels: Path, python: str) -> float:
    """Build the wheel, and download all that it needs; return the seconds of the download."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels, PROJECT]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = wheels.iterdir()
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        fetch = [
            venv / "bin/pip",
            "download",
            "--quiet",
            "--no-cache-dir",
            "--only-binary=:all:",
            "--python-version",
            python,
        ]
        began = time.monotonic()
        subprocess.run([*fetch, "--dest", wheels, wheel], check=True)
        took_s = time.monotonic() - began
        subprocess.run([*fetch, "--dest", wheels, *_OF_PIPX], check=True)
    return took_s


def measure(archive: Path, wheels: Path) -> tuple[float, float, float, float]:
    """Return the seconds that pipx took, those until the first trial began, and CPU seconds of pipx and of all."""
    with unpack(archive) as root:
        root.run("useradd", "--create-home", _ACCOUNT)
        root.copy_in(wheels, _WHEELS)
        (wheel,) = wheels.glob("pgdyno-*.whl")
        began, cpu_s = time.monotonic(), cpu_s_of_children()
        act(root, "pipx", "install", f"{_WHEELS}/{wheel.name}")
        installed, pipx_cpu_s = time.monotonic(), cpu_s_of_children() - cpu_s
        act(root, "pgdyno", *SHORT_BENCH)
        trial = json.loads((root.path / _HOME.lstrip("/") / "record/trials/0001/trial.json").read_bytes())
        if trial["status"] != "finished":
            raise RuntimeError(f"the first trial has {trial['status']}: {trial['error']}")
        first = trial["load_start_monotonic_s"]
        all_cpu_s = cpu_s_of_children() - cpu_s
    print(
        f"pipx {installed - began:.1f} s, CPU {pipx_cpu_s:.1f} s; to the first trial {first - began:.1f} s", flush=True
    )
    return installed - began, first - began, pipx_cpu_s, all_cpu_s


def cpu_s_of_children() -> float:
    """CPU seconds, user and system, of programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def act(root: BareRoot, *argv: str) -> None:
    """Run a program as the ordinary account, which reaches no package index."""
    environment = {
        "HOME": _HOME,
        "PATH": f"{_HOME}/.local/bin:/usr/local/bin:/usr/bin:/bin",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": _WHEELS,
    }
    root.run(*argv, user=_ACCOUNT, folder=_HOME, environment=environment)


if __name__ == "__main__":
    main()
