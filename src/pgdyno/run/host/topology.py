"""Read how a machine's CPUs share cores, sockets, memory and caches, as lscpu prints it.

Source: Linux, Documentation/admin-guide/cputopology.rst, and Documentation/ABI/testing/sysfs-devices-system-cpu.
"""

from __future__ import annotations

from pathlib import Path

from pgdyno.record.machine.host_facts import CpuTopology

_CPUS = "sys/devices/system/cpu"
TOPOLOGY_FILES = (
    *(f"/{_CPUS}/cpu[0-9]*/topology/{name}" for name in ("physical_package_id", "core_id")),
    *(f"/{_CPUS}/cpu0/cache/index[0-9]*/{name}" for name in ("level", "type", "size")),
    "/sys/devices/system/node/node[0-9]*/cpulist",
)
"""Patterns of the files that show it, for a capture of them."""


def read_topology(root: Path) -> CpuTopology | None:
    """Read the topology of all CPUs; None where the kernel does not show it."""
    cpus = sorted((root / _CPUS).glob("cpu[0-9]*/topology"))
    places = [(_read(cpu / "physical_package_id"), _read(cpu / "core_id")) for cpu in cpus]
    known = [(socket, core) for socket, core in places if socket is not None and core is not None]
    if not known:
        return None
    # The last level of the first CPU's caches that hold data.
    kept = [
        index for index in (root / _CPUS / "cpu0/cache").glob("index[0-9]*") if _read(index / "type") != "Instruction"
    ]
    last = max(kept, key=lambda index: int(_read(index / "level") or 0), default=None)
    nodes = len(list((root / "sys/devices/system/node").glob("node[0-9]*")))
    return CpuTopology(
        socket_count=len({socket for socket, _ in known}),
        core_count=len(set(known)),
        thread_count=len(known),
        numa_node_count=nodes or None,
        last_cache=None if last is None else _read(last / "size"),
    )


def parse_cpus(text: str) -> frozenset[int]:
    """Parse the kernel's list of CPUs, such as `0-3,8`.

    Raises:
        ValueError: It is none.
    """
    ends = [[int(end) for end in part.split("-")] for part in text.strip().split(",") if part]
    return frozenset(cpu for first, *last in ends for cpu in range(first, (last or [first])[0] + 1))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip() or None
    except OSError:
        return None
