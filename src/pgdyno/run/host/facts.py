"""Read what the machine is from /proc, /sys and /etc; what cannot be read is None, with the reason.

Containers see the host's /proc/meminfo; the cgroup's own limits are therefore read beside it, never instead of it. What
changes from moment to moment, such as running programs, belongs to the preflight.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec

from pgdyno.errors import HostError
from pgdyno.facts.arm_cores import name_arm_cores
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import LimitKind
from pgdyno.run.host.cgroup import read_limits
from pgdyno.run.host.disks import find_members
from pgdyno.run.host.topology import TOPOLOGY_FILES, read_topology
from pgdyno.run.host.tree import ROOT, Tree, bracketed, find_block_device, find_mounted_device, split_mounts

# What guides on PostgreSQL tell to change, and what pgdyno itself derives.
_KERNEL_SETTINGS = (
    *("vm.swappiness", "vm.dirty_ratio", "vm.dirty_bytes", "vm.dirty_background_ratio", "vm.dirty_background_bytes"),
    *("vm.dirty_expire_centisecs", "vm.dirty_writeback_centisecs", "vm.overcommit_memory", "vm.overcommit_ratio"),
    *("vm.nr_hugepages", "vm.nr_overcommit_hugepages", "vm.zone_reclaim_mode", "vm.min_free_kbytes"),
    *("vm.vfs_cache_pressure", "kernel.numa_balancing", "kernel.sched_autogroup_enabled", "net.core.somaxconn"),
)


class LiveFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a machine that no file of it shows."""

    kernel: str
    architecture: str
    cpu_count: int
    load_average_1min: float

    @staticmethod
    def of_this_machine() -> LiveFacts:
        """Read those of this machine and process."""
        return LiveFacts(
            kernel=platform.release(),
            architecture=platform.machine(),
            cpu_count=len(os.sched_getaffinity(0)),
            load_average_1min=os.getloadavg()[0],
        )


def read_host_facts(
    data_dir: Path, *, root: Path = ROOT, live: LiveFacts | None = None, data_disk: DiskFacts | None = None
) -> HostFacts:
    """Read the facts of the machine and of the disk below `data_dir`.

    Args:
        data_dir: An existing folder.
        root: `/`, or the folder of captured files.
        live: The facts of a captured machine that its files do not show; None: those of this one.
        data_disk: The disk of a captured machine; None: that of `data_dir`.

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
    cpuinfo = read("proc/cpuinfo")
    memory = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in meminfo.splitlines() if ":" in line}
    live = live or LiveFacts.of_this_machine()
    limits = read_limits(Tree(root))
    cpus = [limit.value for limit in limits if limit.kind is LimitKind.CPU]
    memory_limits = [int(limit.value) for limit in limits if limit.kind is LimitKind.MEMORY]
    return HostFacts(
        os_name=_field(read("etc/os-release"), "PRETTY_NAME=") or "Linux",
        kernel=live.kernel,
        architecture=live.architecture,
        cpu_model=_field(cpuinfo, "model name") or live.architecture,
        cpu_count=live.cpu_count,
        cpu_limit=min(cpus, default=None),
        memory_bytes=memory["MemTotal"],
        memory_limit_bytes=min(memory_limits, default=None),
        swap_bytes=memory.get("SwapTotal", 0),
        virtualization=read("sys/class/dmi/id/sys_vendor"),
        clock_source=read("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        transparent_huge_pages=bracketed(read("sys/kernel/mm/transparent_hugepage/enabled")),
        governor=read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        load_average_1min=live.load_average_1min,
        data_disk=data_disk or read_disk_facts(data_dir, root=root),
        host_name=read("proc/sys/kernel/hostname") or None,
        kernel_settings=_read_kernel_settings(root),
        topology=read_topology(root),
        cpu_core=name_arm_cores(cpuinfo or ""),
        absent=absent,
    )


def read_disk_facts(path: Path, *, root: Path = ROOT) -> DiskFacts:
    """Read the file system that holds `path`, and the whole block device below it."""
    path = path.resolve()
    device_id = path.stat().st_dev
    major_minor = f"{os.major(device_id)}:{os.minor(device_id)}"
    usage = os.statvfs(path)
    return describe_disk(
        path,
        mounts=read_mount_words(root=root),
        major_minor=major_minor,
        size_bytes=usage.f_blocks * usage.f_frsize,
        free_bytes=usage.f_bavail * usage.f_frsize,
        root=root,
    )


def describe_disk(
    path: Path, *, mounts: list[list[str]], major_minor: str, size_bytes: int, free_bytes: int, root: Path
) -> DiskFacts:
    """Describe the file system that holds a path, and the device below it.

    Args:
        path: An absolute path.
        mounts: Of the process that the path is one for; see `read_mount_words`.
        major_minor: The file system's device number.
        size_bytes: Of the file system.
        free_bytes: Of the file system.
        root: `/`, or the folder of captured files.
    """
    # The longest mount point above the path wins; the device number decides between mounts over one another.
    above = [m for m in mounts if path == Path(m[4]) or Path(m[4]) in path.parents]
    # In a plain chroot no mount covers the path: the device number is then all there is to go by.
    unknown = ["", "", major_minor, "", "", "", "-", "unknown", "unknown", ""]
    mount = max(above or [unknown], key=lambda m: (m[2] == major_minor, len(m[4])))
    separator = mount.index("-")
    source = mount[separator + 2]
    block = _whole_device(find_block_device(root, mount[2]) or find_mounted_device(root, source))
    if len(find_members(Tree(root), mount[separator + 1], source)) > 1:
        # What one of several devices does, or could do, is not what the file system does.
        block = None
    queue = root / "sys/block" / block / "queue" if block else None
    return DiskFacts(
        path=str(path),
        device=source,
        block_device=block,
        filesystem=mount[separator + 1],
        mount_options=",".join(dict.fromkeys(filter(None, f"{mount[5]},{mount[separator + 3]}".split(",")))),
        size_bytes=size_bytes,
        free_bytes=free_bytes,
        scheduler=bracketed(_read_optional(queue, "scheduler")),
        is_rotational=None if (spins := _read_optional(queue, "rotational")) is None else spins == "1",
        read_ahead_kb=None if (ahead := _read_optional(queue, "read_ahead_kb")) is None else int(ahead),
        write_cache=_read_optional(queue, "write_cache"),
    )


def read_mount_words(*, root: Path = ROOT) -> list[list[str]]:
    """Return the words of each mount of this process, in the order of mounting; the mount point is the fifth.

    Source: proc_pid_mountinfo(5).
    """
    return split_mounts(os.fsdecode((root / "proc/self/mountinfo").read_bytes()))


def list_facts_files() -> tuple[str, ...]:
    """Return the files whose texts show the facts of a machine, or patterns of their paths, for a capture of them."""
    return (
        *("/etc/os-release", "/proc/meminfo", "/proc/cpuinfo", "/sys/class/dmi/id/sys_vendor"),
        *("/proc/sys/kernel/hostname", "/sys/kernel/mm/transparent_hugepage/enabled"),
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        *(f"/proc/sys/{name.replace('.', '/')}" for name in _KERNEL_SETTINGS),
        *TOPOLOGY_FILES,
    )


def _read_kernel_settings(root: Path) -> dict[str, str]:
    said = {name: _read_optional(root / "proc/sys", name.replace(".", "/")) for name in _KERNEL_SETTINGS}
    return {name: value for name, value in said.items() if value}


def _whole_device(device: Path | None) -> str | None:
    if device is None:
        return None
    return device.parent.name if (device / "partition").exists() else device.name


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
