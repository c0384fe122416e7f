"""Read what settings depend on: the machine with its limits, the disks below data and WAL, kernel settings.

This reads what is permanent, within milliseconds; what changes from moment to moment, such as running programs, belongs
to the preflight. Nothing is measured or changed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from pgdyno.facts.famous_lines import famous_lines
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import CgroupLimit, LimitKind, Unseen
from pgdyno.record.machine.tunables import StorageStack, Tunables
from pgdyno.run.host.cgroup import read_limits
from pgdyno.run.host.disks import find_members, read_devices, read_dm_table, read_stripes
from pgdyno.run.host.facts import read_disk_facts, read_host_facts
from pgdyno.run.host.state import read_memory
from pgdyno.run.host.tree import ROOT, Tree, bracketed, swap_dots


def read_tunables(
    data_dir: Path, wal_dir: Path | None = None, *, server_pid: int | None = None, root: Path = ROOT
) -> Tunables:
    """Read the machine as it is.

    Args:
        data_dir: An existing folder that holds the data, or will hold them.
        wal_dir: The folder of pg_wal; None: it lies with the data.
        server_pid: The running server, whose limits then count; None: those of this process.
        root: `/`, or the folder of captured files.

    Raises:
        HostError: /proc is not mounted.
    """
    limits = read_limits(Tree(root) if server_pid is None else _TreeOf(server_pid, root))
    disk = read_disk_look(data_dir, root=root)
    wal_disk = read_disk_look(wal_dir, root=root) if wal_dir is not None else None
    is_apart = wal_disk is not None and wal_disk.facts.device != disk.facts.device
    return Tunables(
        host=_limited(read_host_facts(data_dir, root=root), limits, server_pid),
        memory=read_memory(Tree(root)),
        disk=disk,
        wal_disk=wal_disk if is_apart else None,
        limits=limits,
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        sysctls=read_sysctls((name for line in famous_lines()["sysctl.conf"] for name in line.names), root=root),
    )


def read_disk_look(folder: Path, *, root: Path = ROOT) -> StorageStack:
    """Read the file system that a folder lies on, and the devices below it.

    Args:
        folder: An existing folder.
        root: `/`, or the folder of captured files.
    """
    tree = Tree(root)
    facts = read_disk_facts(folder, root=root)
    members = find_members(tree, facts.filesystem, facts.device)
    devices = read_devices(tree, [*filter(None, [facts.block_device]), *members])
    models = {device.name: tree.read(f"sys/block/{device.name}/device/model") for device in devices}
    stripes, unseen = read_stripes(tree, devices, read_dm_table if tree.is_live else lambda _: None)
    if len(members) > 1:
        what = f"how {facts.filesystem} spreads its data over {', '.join(members)}"
        unseen = (*unseen, Unseen(what=what, reason="`btrfs filesystem usage` shows it, which pgdyno does not read"))
    return StorageStack(
        facts=facts,
        devices=devices,
        stripes=stripes,
        models={name: model for name, model in models.items() if model},
        unseen=unseen,
    )


def find_room_bytes(machine: Tunables) -> int:
    """Return the free space for data.

    The size of a file system in memory is a limit and reserves nothing, so free memory limits it, too.
    """
    facts, memory = machine.disk.facts, machine.memory.available_bytes
    if not facts.is_in_memory or memory is None:
        return facts.free_bytes
    return min(facts.free_bytes or memory, memory, machine.host.usable_memory_bytes)


def read_product() -> str | None:
    """Read the machine's type, such as `c7g.2xlarge`; None if the machine does not name it."""
    return Tree().read("sys/class/dmi/id/product_name")


def read_sysctls(names: Iterable[str], *, root: Path = ROOT) -> dict[str, str]:
    """Read kernel settings by name; those that cannot be read are missing."""
    tree = Tree(root)
    said = {name: tree.read(f"proc/sys/{swap_dots(name)}") for name in names}
    return {name: " ".join(value.split()) for name, value in said.items() if value}


def read_kernel_files(names: Iterable[str]) -> dict[str, str]:
    """Read the chosen values of files below /sys, by path; those that cannot be read are missing."""
    tree = Tree()
    said = {name: bracketed(tree.read(f"sys/{name}")) for name in names}
    return {name: value for name, value in said.items() if value is not None}


def read_data_bytes(data_dir: Path) -> int:
    """Read the size of all databases, tablespaces included. Files may appear and vanish meanwhile."""
    folders = [data_dir / "base", data_dir / "global", *(data_dir / "pg_tblspc").glob("*")]
    return sum(read_folder_bytes(folder) for folder in folders)


def read_wal_bytes(data_dir: Path) -> int:
    """Read the size of the WAL that is kept now."""
    return read_folder_bytes(data_dir / "pg_wal")


class _TreeOf(Tree):
    """The machine's files as another process sees its control groups."""

    def __init__(self, pid: int, root: Path) -> None:
        super().__init__(root)
        self._pid = pid

    def path(self, name: str) -> Path:
        """Return the path of a file, with that process's control groups for this one's."""
        return super().path(name.replace("proc/self/cgroup", f"proc/{self._pid}/cgroup"))


def _limited(host: HostFacts, limits: tuple[CgroupLimit, ...], pid: int | None) -> HostFacts:
    def tightest(*kinds: LimitKind) -> float | None:
        return min((limit.value for limit in limits if limit.kind in kinds), default=None)

    # Above the lower limit no process is killed, but an allocation waits until memory is freed.
    memory = tightest(LimitKind.MEMORY, LimitKind.MEMORY_HIGH)
    cpu_count = host.cpu_count
    with contextlib.suppress(OSError):
        cpu_count = len(os.sched_getaffinity(pid or 0))
    return msgspec.structs.replace(
        host,
        cpu_count=cpu_count,
        cpu_limit=tightest(LimitKind.CPU),
        memory_limit_bytes=None if memory is None else int(memory),
    )


def read_folder_bytes(folder: Path) -> int:
    """Read the size of all files in a folder. They may appear and vanish meanwhile."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(path, name)).st_size  # noqa: PTH116, PTH118 - of a hundred thousand files
    return total
