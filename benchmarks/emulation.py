"""How near an emulated disk comes to the declared one, by pgdyno's own disk card, and whether a card sees a planted lack.

Emulates each of four declared disks in turn, round after round, measures a quick card of it, and divides what was measured by what
is declared: IOPS, MB/s, and the median time of a flush. A disk that lets through 30 % less than declared is planted beside
them: the card must show it within 10 %, and calls it below what is declared where its interval is narrow. Run it as root, on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
from figures import say, say_share

from pgdyno.analyse.disk.card import estimate_card
from pgdyno.analyse.disk.efficiency import Attainment, Efficiency, compare_with_ceilings
from pgdyno.analyse.disk.entries import DiskFigureKey, list_entries
from pgdyno.analyse.disk.layout_ceiling import compute_ceilings, limits_of
from pgdyno.conduct.emulation import plan_emulation
from pgdyno.conduct.workspace import Workspace
from pgdyno.record.device.disk_card import DiskCard, read_card
from pgdyno.run.change.emulation.groups import Rates
from pgdyno.run.change.emulation.machine import EmulatedDisk, EmulatedMachine, emulated
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.spec.read import read_study

_GIBIBYTE = 2**30
_PLANTED_RATIO = 0.7
_SIZE_BYTES = 3 * _GIBIBYTE
_LIMITS = {"instance": "c7g.2xlarge"}
# What no data sheet says of a flush is declared here, as a user would.
DISKS = {
    "gp3-raid10": DiskSpec(
        volume="gp3", count=8, size="50GB", raid=10, chunk="64kB", filesystem="xfs", volume_latency_ms=1.85
    ),
    "gp3": DiskSpec(volume="gp3", size="100GB", filesystem="xfs", volume_latency_ms=1.0),
    "io2": DiskSpec(volume="io2", size="100GB", filesystem="ext4", volume_iops=6_000),
    "essd-pl1": DiskSpec(volume="essd-pl1", size="200GB", filesystem="ext4", volume_latency_ms=0.5),
}
_FIGURES = {
    DiskFigureKey.RANDOM_READ: "read_iops",
    DiskFigureKey.RANDOM_WRITE: "write_iops",
    DiskFigureKey.SEQUENTIAL_READ: "read_mb_s",
    DiskFigureKey.SEQUENTIAL_WRITE: "write_mb_s",
}


def make_disk(spec: DiskSpec, base: Path, *, ratio: float = 1.0) -> EmulatedDisk:
    """Return the emulated disk of a declared one, with a share of its rates."""
    study = read_study(Path(__file__).parents[1] / "studies" / "tpcb-like.toml")
    study = msgspec.structs.replace(study, host=HostSpec(disk=spec, emulate=True, **_LIMITS))
    disk = plan_emulation(study, Workspace.make(home=base, out=None, run_as=None)).disks[0]
    rates = Rates(**{name: round(value * ratio) for name, value in msgspec.structs.asdict(disk.rates).items()})
    return msgspec.structs.replace(disk, size_bytes=_SIZE_BYTES, rates=rates)


def measure(disk: EmulatedDisk, base: Path) -> DiskCard:
    """Emulate a disk and measure its quick card."""
    machine = EmulatedMachine(disks=(disk,), cpu_count=None, memory_bytes=None)
    with tempfile.TemporaryDirectory() as cards, emulated(machine, base=base) as folders:
        card = Path(cards, "card.json")
        argv = [sys.executable, "-m", "pgdyno", "disk", str(folders[disk.name]), "--quick", "--out", str(card)]
        environment = {**os.environ, "PGDYNO_HOME": str(base / "home")}
        # It may end with 1, of a card that has much against it.
        subprocess.run([*argv, "--json", "--yes"], check=False, stdout=subprocess.DEVNULL, env=environment)
        return read_card(card)


def compare(card: DiskCard, spec: DiskSpec) -> tuple[Efficiency, ...]:
    """Compare a card with what is declared."""
    ceilings = compute_ceilings(spec, limits_of(HostSpec(disk=spec, **_LIMITS)))
    return compare_with_ceilings(list_entries(card, estimate_card(card)), ceilings)


def list_ratios(card: DiskCard, spec: DiskSpec, disk: EmulatedDisk) -> Iterator[tuple[str, float]]:
    """Yield what was measured, divided by what is declared."""
    for one in compare(card, spec):
        if one.key in _FIGURES and one.ratio.value is not None:
            yield _FIGURES[one.key], one.ratio.value
    for entry in list_entries(card, estimate_card(card)):
        if entry.key is DiskFigureKey.FLUSH_P50 and entry.estimate.value is not None:
            yield "flush_ms", entry.estimate.value / 1e6 / disk.flush_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="cards of each disk")
    parser.add_argument("--base", default="/var/tmp", help="a folder on the disk that holds the emulated ones")
    asked = parser.parse_args()
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    shown: list[bool] = []
    called: list[bool] = []
    with tempfile.TemporaryDirectory(dir=asked.base) as folder:
        base = Path(folder)
        base.chmod(0o755)
        for number in range(asked.rounds):
            for name, spec in DISKS.items():
                disk = make_disk(spec, base)
                found = dict(list_ratios(measure(disk, base), spec, disk))
                for figure, ratio in found.items():
                    ratios[name, figure].append(ratio)
                said = ", ".join(f"{figure} {ratio:.3f}" for figure, ratio in found.items())
                print(f"round {number + 1}, {name}: {said}; load average {os.getloadavg()[0]:.1f}", flush=True)
            spec = DISKS["gp3"]
            lack = compare(measure(make_disk(spec, base, ratio=_PLANTED_RATIO), base), spec)
            held = [one for one in lack if one.key in {DiskFigureKey.RANDOM_READ, DiskFigureKey.RANDOM_WRITE}]
            planted = [one.ratio.value or 0.0 for one in held]
            shown.append(len(held) == 2 and all(abs(ratio / _PLANTED_RATIO - 1) <= 0.1 for ratio in planted))
            called.append(len(held) == 2 and all(one.standing is Attainment.BELOW for one in held))
            said = ", ".join(f"{one.ratio.value or 0.0:.3f} ({one.standing.value})" for one in held)
            print(f"round {number + 1}, planted {_PLANTED_RATIO}: {said}", flush=True)
    for (name, figure), values in ratios.items():
        middle = statistics.median(values)
        say(
            f"emulation.{name}.{figure}",
            middle,
            unit="ratio",
            n=len(values),
            # Of six or more, all of them are an interval of at least 95 % of their median.
            low=min(values) if len(values) > 5 else None,
            high=max(values) if len(values) > 5 else None,
            target="0.9 to 1.1",
            holds=0.9 <= middle <= 1.1,
        )
    say_share("emulation.planted.shown", shown, target=">= 0.9")
    say_share("emulation.planted.called_below", called)


if __name__ == "__main__":
    main()
