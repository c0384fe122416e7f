"""Reads what the machine is, from /proc, /sys and /etc. What cannot be read is None, with the reason.

Containers see the host's /proc/meminfo; the cgroup's own limits are therefore read beside it, never instead of it.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from pgdyno.errors import HostError
from pgdyno.record.types import DiskFacts, HostFacts

# cgroup v1 writes "no limit" as a number near 2^63, rounded to pages.
_NO_LIMIT_BYTES = 1 << 60
_CPU_LOOK_S = 0.5


def read_host_facts(data_dir: Path, *, root: Path = Path("/")) -> HostFacts:
    """The machine, and the disk below `data_dir`.

    Args:
        data_dir: An existing folder.
        root: Where /proc, /sys and /etc are; another one in tests.

    Raises:
        HostError: /proc is not mounted.
    """
    absent: dict[str, str] = {}

    def read(path: str) -> str | None:
        try:
            return (root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError as exc:
            absent[f"/{path}"] = exc.strerror or str(exc)
            return None

    meminfo = read("proc/meminfo")
    if meminfo is None:
        raise HostError("/proc is not readable", detail=str(absent), hint="pgdyno runs on Linux, with /proc mounted")
    memory = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in meminfo.splitlines() if ":" in line}
    cpu_limit, memory_limit = _read_cgroup_limits(root)
    return HostFacts(
        os_name=_field(read("etc/os-release"), "PRETTY_NAME=") or "Linux",
        kernel=platform.release(),
        architecture=platform.machine(),
        cpu_model=_field(read("proc/cpuinfo"), "model name") or platform.machine(),
        cpu_count=len(os.sched_getaffinity(0)),
        cpu_limit=cpu_limit,
        memory_bytes=memory["MemTotal"],
        memory_limit_bytes=memory_limit,
        swap_bytes=memory.get("SwapTotal", 0),
        virtualization=read("sys/class/dmi/id/sys_vendor"),
        clock_source=read("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        transparent_huge_pages=_bracketed(read("sys/kernel/mm/transparent_hugepage/enabled")),
        governor=read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        load_average_1min=os.getloadavg()[0],
        data_disk=read_disk_facts(data_dir, root=root),
        cpu_busy_before_ratio=_read_cpu_busy_ratio(root),
        absent=absent,
    )


def read_disk_facts(path: Path, *, root: Path = Path("/")) -> DiskFacts:
    """The file system that holds `path` and the whole block device below it."""
    path = path.resolve()
    mounts = [line.split() for line in (root / "proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    device_id = path.stat().st_dev
    major_minor = f"{os.major(device_id)}:{os.minor(device_id)}"
    # The longest mount point above the path wins; the device number decides between mounts over one another.
    above = [m for m in mounts if path == Path(m[4]) or Path(m[4]) in path.parents]
    # In a plain chroot no mount covers the path: the device number is then all there is to go by.
    unknown = ["", "", major_minor, "", "", "", "-", "unknown", "unknown", ""]
    mount = max(above or [unknown], key=lambda m: (m[2] == major_minor, len(m[4])))
    separator = mount.index("-")
    usage = os.statvfs(path)
    block = _whole_device(root, mount[2])
    queue = root / "sys/block" / block / "queue" if block else None
    return DiskFacts(
        path=str(path),
        device=mount[separator + 2],
        block_device=block,
        filesystem=mount[separator + 1],
        mount_options=",".join(dict.fromkeys(filter(None, f"{mount[5]},{mount[separator + 3]}".split(",")))),
        size_bytes=usage.f_blocks * usage.f_frsize,
        free_bytes=usage.f_bavail * usage.f_frsize,
        scheduler=_bracketed(_read_optional(queue, "scheduler")),
        is_rotational=None if (spins := _read_optional(queue, "rotational")) is None else spins == "1",
        read_ahead_kb=None if (ahead := _read_optional(queue, "read_ahead_kb")) is None else int(ahead),
    )


def _read_cpu_busy_ratio(root: Path) -> float | None:
    def ticks() -> tuple[int, int]:
        # Source: proc_stat(5): user nice system idle iowait irq softirq steal; guest times are within user.
        spent = [int(field) for field in (root / "proc/stat").read_text(encoding="utf-8").split("\n")[0].split()[1:9]]
        return sum(spent), spent[3] + spent[4]

    total, idle = ticks()
    time.sleep(_CPU_LOOK_S)
    later_total, later_idle = ticks()
    return None if later_total == total else 1.0 - (later_idle - idle) / (later_total - total)


def _whole_device(root: Path, major_minor: str) -> str | None:
    link = root / "sys/dev/block" / major_minor
    if not link.exists():
        return None
    device = link.resolve()
    return device.parent.name if (device / "partition").exists() else device.name


def _read_cgroup_limits(root: Path) -> tuple[float | None, int | None]:
    """CPUs and bytes that this process's cgroup and all above it allow, v2 and v1; None without a limit."""
    cpus: list[float] = []
    memory: list[int] = []
    membership = (root / "proc/self/cgroup").read_text(encoding="utf-8") if (root / "proc/self/cgroup").exists() else ""
    for line in membership.splitlines():
        _, controllers, name = line.split(":", 2)
        for folder in _cgroup_folders(root, controllers, name):
            quota = (_read_optional(folder, "cpu.max") or "max").split()
            if quota[0] != "max":
                cpus.append(int(quota[0]) / int(quota[1]))
            quota_us = int(_read_optional(folder, "cpu.cfs_quota_us") or -1)
            if quota_us > 0:
                cpus.append(quota_us / int(_read_optional(folder, "cpu.cfs_period_us") or 100_000))
            for file in ("memory.max", "memory.limit_in_bytes"):
                text = _read_optional(folder, file)
                if text and text != "max" and int(text) < _NO_LIMIT_BYTES:
                    memory.append(int(text))
    return min(cpus, default=None), min(memory, default=None)


def _cgroup_folders(root: Path, controllers: str, name: str) -> list[Path]:
    base = root / "sys/fs/cgroup"
    mounts = [base, base / "unified"] if not controllers else [base / controllers.removeprefix("name=")]
    relative = Path(name.lstrip("/"))
    return [mount / part for mount in mounts for part in (relative, *relative.parents)]


def _read_optional(folder: Path | None, name: str) -> str | None:
    if folder is None:
        return None
    try:
        return (folder / name).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _field(text: str | None, key: str) -> str | None:
    for line in (text or "").splitlines():
        if line.startswith(key):
            return line[len(key) :].strip().lstrip(":").strip().strip('"')
    return None


def _bracketed(text: str | None) -> str | None:
    """The chosen one of `always [madvise] never`."""
    if text is None or "[" not in text:
        return text
    return text.split("[", 1)[1].split("]", 1)[0]
