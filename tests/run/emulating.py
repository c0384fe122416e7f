"""Emulate disks in this process, which is one of a test's own, and print what a program there sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pgdyno.run.change.emulation.groups import Rates
from pgdyno.run.change.emulation.machine import EmulatedDisk, EmulatedMachine, emulated
from pgdyno.run.host.cgroup import read_limits
from pgdyno.run.host.tree import Tree

LATENCY_S, IOPS, MEMORY_BYTES = 0.03, 321, 2**30


def read_cache(device: Path) -> str:
    return (device / "queue/write_cache").read_text().strip()


def find_groups(root: str, name: str) -> list[Path]:
    """Control groups of that name below a root, in which those of others come and go."""
    return [Path(folder, name) for folder, names, _ in os.walk(root) if name in names]


def main(base: Path) -> None:
    rates = Rates(read_iops=IOPS, write_iops=IOPS, read_bytes_per_s=10**8, write_bytes_per_s=10**8)
    disks = [
        EmulatedDisk(
            name=name,
            size_bytes=size_bytes,
            filesystem=filesystem,
            mount_options="noatime",
            rates=rates,
            flush_s=LATENCY_S,
            read_s=LATENCY_S,
        )
        for name, filesystem, size_bytes in (("data", "xfs", 320 * 2**20), ("wal", "ext4", 64 * 2**20))
    ]
    machine = EmulatedMachine(disks=tuple(disks), cpu_count=1, memory_bytes=MEMORY_BYTES)
    with emulated(machine, base=base) as folders:
        child = Path(__file__).with_name("emulated_child.py")
        argv = [sys.executable, str(child), *map(str, folders.values())]
        seen = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        limits = [(one.kind.value, one.value, one.device) for one in read_limits(Tree())]
        devices = {name: path.stat().st_dev for name, path in folders.items()}
        places = [Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}") for device in devices.values()]
        # Open, a device stays as the block leaves it until it is looked at.
        held = [os.open(Path("/dev") / place.resolve().name, os.O_RDONLY) for place in places]
        group = find_groups("/sys/fs/cgroup/memory", f"pgdyno-{os.getpid()}")
        swap = [file for folder in group if (file := folder / "memory.memsw.limit_in_bytes").exists()]
        # In the midst of free space, where no file system has written.
        seen |= {
            "swap": [int(file.read_text()) for file in swap],
            "is_filled": any(os.pread(held[0], 2**16, 300 * 2**20)),
        }
        seen |= {"limits": limits, "devices": devices, "caches": [read_cache(place) for place in places]}
    seen["caches_afterwards"] = [read_cache(place) for place in places]
    for descriptor in held:
        os.close(descriptor)
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
