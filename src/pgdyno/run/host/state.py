"""Read the present state of CPU, clock, memory and power from /proc and /sys.

What a kernel or a machine does not have is None. PostgreSQL's own pg_test_timing measures the cost of reading the
clock; it takes a second, so the caller runs it.
"""

from __future__ import annotations

import re

from pgdyno.record.machine.preflight import ClockFacts, CpuFacts, MemoryFacts, ProcessLimits
from pgdyno.run.host.topology import parse_cpus
from pgdyno.run.host.tree import Tree, split_mounts

_CPU = "sys/devices/system/cpu"
_CLOCK = "sys/devices/system/clocksource/clocksource0"
_SIZE = re.compile(r"\bsize=(\d+)k\b")
_UNLIMITED = "unlimited"


def read_clock(tree: Tree) -> ClockFacts:
    """Read the clock source."""
    return ClockFacts(
        source=tree.read(f"{_CLOCK}/current_clocksource"),
        available=tuple((tree.read(f"{_CLOCK}/available_clocksource") or "").split()),
        read_ns=None,
        steal_ratio=None,
    )


def read_cpu(tree: Tree) -> CpuFacts:
    """Read how the CPUs are configured."""
    governors = {tree.read(file) for file in tree.glob(f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor")}
    flaws = {file.rpartition("/")[2]: tree.read(file) or "" for file in tree.glob(f"{_CPU}/vulnerabilities/*")}
    ticks = [int(field) for field in (tree.read("proc/stat") or "").split("\n", 1)[0].split()[1:9]]
    return CpuFacts(
        online_count=len(parse_cpus(tree.read(f"{_CPU}/online") or "")) or None,
        governors=tuple(sorted(one for one in governors if one)),
        frequency_driver=tree.read(f"{_CPU}/cpu0/cpufreq/scaling_driver"),
        is_boosting=_read_boost(tree),
        is_virtual=_is_virtual(tree),
        mitigations=tuple(
            f"{name}: {said.removeprefix('Mitigation: ')}"
            for name, said in flaws.items()
            if said.startswith("Mitigation")
        ),
        steal_since_boot_ratio=ticks[7] / sum(ticks) if len(ticks) > 7 and any(ticks) else None,
        product=tree.read("sys/class/dmi/id/product_name"),
    )


def read_memory(tree: Tree) -> MemoryFacts:
    """Read the state of memory, swap and huge pages."""
    memory = tree.read_table("proc/meminfo")
    available = memory.get("MemAvailable")
    return MemoryFacts(
        available_bytes=None if available is None else available + _read_arc_bytes(tree),
        dirty_bytes=memory.get("Dirty", 0) + memory.get("Writeback", 0),
        swap_used_bytes=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
        huge_page_bytes=memory.get("Hugepagesize", 0),
        huge_pages_free=memory.get("HugePages_Free", 0) - memory.get("HugePages_Rsvd", 0),
        huge_pages_total=memory.get("HugePages_Total", 0),
        commit_limit_bytes=memory.get("CommitLimit", 0),
        committed_bytes=memory.get("Committed_AS", 0),
        overcommit_memory=tree.read_int("proc/sys/vm/overcommit_memory"),
        zone_reclaim_mode=tree.read_int("proc/sys/vm/zone_reclaim_mode"),
        numa_nodes=sum(1 for _ in tree.glob("sys/devices/system/node/node[0-9]*")),
        numa_balancing=tree.read_int("proc/sys/kernel/numa_balancing"),
        shm_size_bytes=_read_shm_size(tree),
        huge_pages_overcommit=tree.read_int("proc/sys/vm/nr_overcommit_hugepages"),
    )


def _read_arc_bytes(tree: Tree) -> int:
    """Read how much memory the cache of ZFS would give back, which MemAvailable does not count; 0 without ZFS.

    Source: OpenZFS, module/zfs/arc.c: size shrinks to c_min; rows are name, type and value.
    """
    rows = map(str.split, (tree.read("proc/spl/kstat/zfs/arcstats") or "").splitlines())
    values = {row[0]: int(row[2]) for row in rows if len(row) == 3 and row[2].isdigit()}
    return max(0, values.get("size", 0) - values.get("c_min", 0))


def read_is_on_battery(tree: Tree) -> bool | None:
    """Return whether the machine runs on its battery; None if it has none."""
    supplies = [folder.rpartition("/")[0] for folder in tree.glob("sys/class/power_supply/*/type")]
    # Mice and keyboards have batteries, too; those say that their scope is a device.
    batteries = [
        one
        for one in supplies
        if tree.read(f"{one}/type") == "Battery" and (tree.read(f"{one}/scope") or "System") == "System"
    ]
    if not batteries:
        return None
    return any(tree.read(f"{one}/status") == "Discharging" for one in batteries)


def read_process_limits(tree: Tree) -> ProcessLimits:
    """Read the soft limits of this process."""
    limits = {}
    for line in (tree.read("proc/self/limits") or "").splitlines():
        name, soft = line[:25].strip(), line[25:].split()[:1]
        limits[name] = None if not soft or soft[0] == _UNLIMITED or not soft[0].isdigit() else int(soft[0])
    return ProcessLimits(open_files=limits.get("Max open files"), processes=limits.get("Max processes"))


def _read_boost(tree: Tree) -> bool | None:
    no_turbo = tree.read_int(f"{_CPU}/intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == 0
    boost = tree.read_int(f"{_CPU}/cpufreq/boost")
    return None if boost is None else boost == 1


def _read_shm_size(tree: Tree) -> int | None:
    """Read the size limit of /dev/shm; None for the kernel's default, half of memory."""
    mounts = split_mounts(tree.read("proc/self/mountinfo") or "")
    # If several mounts cover each other, the last one is visible.
    options = next((words[-1] for words in reversed(mounts) if words[4:5] == ["/dev/shm"]), "")  # noqa: S108 - where it is
    match = _SIZE.search(options)
    return int(match[1]) * 1024 if match else None


def _is_virtual(tree: Tree) -> bool:
    for line in (tree.read("proc/cpuinfo") or "").splitlines():
        if line.startswith("flags"):
            return "hypervisor" in line.split()
    # Arm has no such flag: the firmware names the machine.
    said = f"{tree.read('sys/class/dmi/id/sys_vendor')} {tree.read('sys/class/dmi/id/product_name')}".lower()
    return any(word in said for word in ("qemu", "kvm", "amazon ec2", "google compute", "virtual", "alibaba cloud"))
