from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pgdyno.errors import HostError
from pgdyno.record.machine.host_facts import CpuTopology, HostFacts
from pgdyno.report.sections.machine import host_table
from pgdyno.run.host.facts import read_disk_facts, read_host_facts, read_mount_words
from tests.loops import mounted, needs_root
from tests.sysctls import machine_settings, read_sysctl


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def machine(root: Path, tmp_path: Path, files: dict[str, str]) -> Path:
    """A tree like a small cloud machine's, with the file system of `tmp_path` on an NVMe partition."""
    device = tmp_path.stat().st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    base = {
        "proc/meminfo": "MemTotal:       16000000 kB\nSwapTotal:        100 kB\n",
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Graviton: fast\n",
        "proc/stat": "cpu  10 0 10 80 0 0 0 0 0 0\n",
        "proc/self/cgroup": "0::/box\n",
        "proc/self/mountinfo": f"21 1 {numbers} / / rw,relatime shared:1 - xfs /dev/nvme0n1p1 rw,noquota\n",
        "etc/os-release": 'NAME=x\nPRETTY_NAME="Debian GNU/Linux 13"\n',
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n",
        "sys/block/nvme0n1/nvme0n1p1/partition": "1\n",
        "sys/block/nvme0n1/queue/scheduler": "none [mq-deadline] kyber\n",
        "sys/block/nvme0n1/queue/rotational": "0\n",
        "sys/block/nvme0n1/queue/read_ahead_kb": "128\n",
    }
    write(root, {**base, **files})
    link = root / "sys/dev/block" / numbers
    link.parent.mkdir(parents=True)
    link.symlink_to(root / "sys/block/nvme0n1/nvme0n1p1")
    return root


@pytest.mark.parametrize(
    ("files", "cpus", "memory_bytes"),
    [
        ({}, None, None),
        ({"sys/fs/cgroup/box/cpu.max": "150000 100000\n"}, 1.5, None),
        ({"sys/fs/cgroup/box/cpu.max": "max 100000\n", "sys/fs/cgroup/box/memory.max": "1073741824\n"}, None, 1 << 30),
        # A parent's limit binds as well, and the tightest one wins.
        ({"sys/fs/cgroup/box/memory.max": "max\n", "sys/fs/cgroup/memory.max": "2147483648\n"}, None, 2 << 30),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/a\n3:memory:/docker/a\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/docker/a/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/docker/a/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes": "536870912\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            0.5,
            1 << 29,
        ),
    ],
)
def test_limits_of_control_groups(
    tmp_path: Path, files: dict[str, str], cpus: float | None, memory_bytes: int | None
) -> None:
    facts = read_host_facts(tmp_path, root=machine(tmp_path / "root", tmp_path, files))
    assert facts.cpu_limit == cpus
    assert facts.memory_limit_bytes == memory_bytes
    assert facts.memory_bytes == 16_000_000 * 1024
    assert facts.usable_memory_bytes == (memory_bytes or facts.memory_bytes)


def test_a_small_cloud_machine(tmp_path: Path) -> None:
    facts = read_host_facts(tmp_path, root=machine(tmp_path / "root", tmp_path, {}))
    assert facts.cpu_model == "Graviton: fast"
    assert facts.os_name == "Debian GNU/Linux 13"
    assert facts.transparent_huge_pages == "always"
    assert facts.clock_source == "hpet"
    assert facts.governor is None
    assert any("scaling_governor" in path for path in facts.absent)
    assert facts.host_name is None
    assert facts.topology is None, "nothing below /sys says"
    assert "/proc/sys/kernel/hostname" in facts.absent
    disk = facts.data_disk
    assert (disk.device, disk.block_device, disk.filesystem) == ("/dev/nvme0n1p1", "nvme0n1", "xfs")
    assert disk.mount_options == "rw,relatime,noquota"
    assert (disk.scheduler, disk.is_rotational, disk.read_ahead_kb) == ("mq-deadline", False, 128)


def test_the_name_of_arm_cores(tmp_path: Path) -> None:
    core = "processor\t: {n}\nBogoMIPS\t: 2000.00\nCPU implementer\t: {maker}\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {part}\n\n"

    def read(name: str, *cores: tuple[str, str]) -> HostFacts:
        text = "".join(core.format(n=n, maker=maker, part=part) for n, (maker, part) in enumerate(cores))
        return read_host_facts(tmp_path, root=machine(tmp_path / name, tmp_path, {"proc/cpuinfo": text}))

    facts = read("one", ("0x41", "0xd4f"), ("0x41", "0xd4f"))
    assert (facts.cpu_model, facts.cpu_name) == (os.uname().machine, "Neoverse-V2")
    assert next(row[1].text for row in host_table(facts).rows if row[0].text == "CPU") == "Neoverse-V2"
    assert read("two", ("0x41", "0xd03"), ("0x41", "0xd08")).cpu_name == "Cortex-A53 and Cortex-A72"
    assert read("new", ("0x41", "0xfff")).cpu_name == "Arm core 0xfff of implementer 0x41"
    assert read("none").cpu_core is None


def test_a_disk_where_podman_masks_the_list_of_devices(tmp_path: Path) -> None:
    root = machine(tmp_path / "root", tmp_path, {})
    (link,) = (root / "sys/dev/block").iterdir()
    device, numbers = link.resolve(), link.name
    link.unlink()
    assert read_host_facts(tmp_path, root=root).data_disk.block_device is None
    write(device, {"dev": f"{numbers}\n"})
    (root / "sys/class/block").mkdir(parents=True)
    (root / "sys/class/block" / device.name).symlink_to(device)
    for mode in (0o755, 0o000):
        # Others than root cannot even look whether the device is there.
        link.parent.chmod(mode)
        assert read_host_facts(tmp_path, root=root).data_disk.block_device == "nvme0n1"
    link.parent.chmod(0o755)


def test_how_cpus_share_cores_and_sockets(tmp_path: Path) -> None:
    cpu = "sys/devices/system/cpu"
    files = {f"{cpu}/cpu{n}/topology/physical_package_id": f"{n // 4}\n" for n in range(8)}
    files |= {f"{cpu}/cpu{n}/topology/core_id": f"{n % 4 // 2}\n" for n in range(8)}
    caches = (("0", "1", "Data", "32K"), ("1", "1", "Instruction", "64K"), ("2", "3", "Unified", "36864K"))
    for place, level, kind, size in caches:
        folder = f"{cpu}/cpu0/cache/index{place}"
        files |= {f"{folder}/level": level, f"{folder}/type": kind, f"{folder}/size": f"{size}\n"}
    files |= {f"sys/devices/system/node/node{n}/cpulist": "0-3\n" for n in range(2)}
    facts = read_host_facts(tmp_path, root=machine(tmp_path / "root", tmp_path, files))
    assert facts.topology == CpuTopology(
        socket_count=2, core_count=4, thread_count=8, numa_node_count=2, last_cache="36864K"
    )
    cells = {row[0].text: row[1].text for row in host_table(facts).rows}
    assert (
        cells["Topology of CPUs"] == "2 sockets, 4 cores, 2 threads a core, 2 NUMA nodes, last-level cache of 36864 kB"
    )


def test_this_machine() -> None:
    with machine_settings("vm.swappiness"):
        facts = read_host_facts(Path("/var/tmp"))
        assert facts.kernel_settings["vm.swappiness"] == read_sysctl("vm.swappiness")
    assert facts.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts.cpu_count == len(os.sched_getaffinity(0))
    assert facts.cpu_busy_before_ratio is None, "who looks is the preflight"
    assert facts.host_name == socket.gethostname()
    assert facts.data_disk.size_bytes > facts.data_disk.free_bytes > 0


def test_memory_is_no_disk() -> None:
    disk = read_disk_facts(Path("/dev/shm"))
    assert disk.filesystem == "tmpfs"
    assert disk.block_device is None


def test_mounts_of_any_name_and_of_none(tmp_path: Path) -> None:
    root = machine(tmp_path / "root", tmp_path, {})
    mounts = root / "proc/self/mountinfo"
    names = (b"/media/caf\xe9", "/media/a\xa0b\x85c\u2028d".encode())
    lines = [b"99 1 0:99 / %s rw - tmpfs  rw\n" % name for name in names]
    mounts.write_bytes(b"".join((*lines, mounts.read_bytes())))
    words = read_mount_words(root=root)
    assert [(os.fsencode(mount[4]), mount[6:]) for mount in words[:-1]] == [
        (name, ["-", "tmpfs", "", "rw"]) for name in names
    ]
    assert read_host_facts(tmp_path, root=root).data_disk.device == "/dev/nvme0n1p1"


@needs_root
def test_a_mount_point_with_a_blank(tmp_path: Path) -> None:
    with mounted("none", tmp_path / "my disk", "-t", "tmpfs", "-o", "size=4M") as folder:
        disk = read_disk_facts(folder)
    assert (disk.path, disk.filesystem, disk.size_bytes) == (str(folder), "tmpfs", 4 * 2**20)


def test_without_proc(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="/proc is not readable"):
        read_host_facts(tmp_path, root=tmp_path)
