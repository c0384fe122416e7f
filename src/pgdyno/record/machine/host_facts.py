"""Define the lasting properties of a machine, as a record keeps them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.record.machine.disk_facts import DiskFacts

KERNELS_MEMORY_RATIO = 0.01
"""Another kernel, or another boot, leaves a little more or less of the same memory."""


def match_known(one: Sequence[object], other: Sequence[object]) -> bool:
    """Return whether facts in the same order agree; one that is None on either side, such as a device not looked for, is skipped."""
    pairs = list(zip(one, other, strict=False))
    return len(one) == len(other) and all(None in pair or pair[0] == pair[1] for pair in pairs)


class CpuTopology(msgspec.Struct, frozen=True, kw_only=True):
    """How the CPUs of a machine share cores, sockets and memory."""

    socket_count: int
    core_count: int
    thread_count: int
    """CPUs as the kernel counts them."""
    numa_node_count: int | None
    last_cache: str | None
    """Size of the last-level cache that the first CPU uses, such as `32768K`; None where the kernel does not show it."""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Lasting properties of the machine.

    `memory_bytes` is the hardware's memory. `cpu_count` is the number of CPUs in this process's affinity mask. The
    `_limit` fields are limits of its control groups, None without one.
    """

    os_name: str
    kernel: str
    architecture: str
    cpu_model: str
    cpu_count: int
    cpu_limit: float | None
    memory_bytes: int
    memory_limit_bytes: int | None
    swap_bytes: int
    virtualization: str | None
    clock_source: str | None
    transparent_huge_pages: str | None
    governor: str | None
    load_average_1min: float
    data_disk: DiskFacts
    cpu_busy_before_ratio: float | None = None
    """Share of all CPUs that other programs used just before the first step."""
    host_name: str | None = None
    """Host name, which may change; None in older records."""
    kernel_settings: dict[str, str] = {}
    """Settings below /proc/sys that a database may feel, by name; empty in older records."""
    topology: CpuTopology | None = None
    """How its CPUs share cores and sockets; None in older records, and where the kernel does not show it."""
    cpu_core: str | None = None
    """Name of its Arm cores, such as `Neoverse-V2`, of which `cpu_model` is the architecture only; None of other CPUs, and in
    older records."""
    absent: dict[str, str] = {}

    @property
    def cpu_name(self) -> str:
        """The CPU by the most exact name that is known."""
        return self.cpu_core or self.cpu_model

    @property
    def cpu_identity(self) -> tuple[str, str | None, int]:
        """What tells the CPUs of a machine from others: model, Arm core and number."""
        return self.cpu_model, self.cpu_core, self.cpu_count

    @property
    def usable_cpu_count(self) -> float:
        """Number of CPUs that this process may use."""
        return min(self.cpu_count, self.cpu_limit or self.cpu_count)

    @property
    def usable_memory_bytes(self) -> int:
        """Bytes of memory that this process may use."""
        return min(self.memory_bytes, self.memory_limit_bytes or self.memory_bytes)
