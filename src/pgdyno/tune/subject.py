"""Make the subject that settings are derived for, from observations, measurements and the user's hints.

The user's hints take precedence over measurements, because they may be about the future load. The server's own data
take precedence over those of a record, and both over data sheets. The rest is assumed by class, with the reason.
Nothing here decides a setting.
"""

from __future__ import annotations

import msgspec

from pgdyno.errors import SpecError
from pgdyno.facts.durability import judged_settings
from pgdyno.facts.gucs import VarType, all_gucs
from pgdyno.record.machine.preflight import MemoryFacts
from pgdyno.record.machine.tunables import ServerState, Tunables
from pgdyno.record.types import ServerFacts
from pgdyno.spec.topology import TopologySpec
from pgdyno.tune.connections import ACTIVE, CONNECTIONS, assume_active
from pgdyno.tune.disk.observed import make_disk
from pgdyno.tune.hosts import MachineShape
from pgdyno.tune.measured_load import DATASET, MeasuredLoad, scale_load
from pgdyno.tune.pooling import find_pooling, find_standbys
from pgdyno.tune.types import DEFAULT_SEGMENT_BYTES, Disk, Kernel, Known, TuningSubject, WorkloadClass
from pgdyno.units import format_bytes

DEFAULT_WORKLOAD = WorkloadClass.MIXED
_RECOVERY_S = 300.0
_STALL_S = 1.0
# Built-in default. Source: PostgreSQL 18 manual, max_connections.
_CONNECTIONS = 100
# Larger than any cache, which is the hardest case for settings.
_DATASET_TO_MEMORY = 4
# The three databases that initdb creates take 22 MB: below this size no data have been loaded.
_EMPTY_BYTES = 64 * 1024**2
# Options of a build that give an enum setting its value. Source: PostgreSQL 18 manual, section 17.3.3.
_BUILD_OPTIONS = {"lz4": "--with-lz4", "zstd": "--with-zstd", "io_uring": "--with-liburing"}


class LoadHints(msgspec.Struct, frozen=True, kw_only=True):
    """The user's hints about the load, None where not given, and whether the kernel's settings must not be changed."""

    workload: WorkloadClass | None = None
    dataset_bytes: float | None = None
    connections: int | None = None
    active: int | None = None
    recovery_s: float | None = None
    stall_s: float | None = None
    leaves_kernel: bool = False
    topology: TopologySpec = TopologySpec()


def make_subject(
    machine: Tunables,
    server: ServerFacts,
    wishes: LoadHints,
    *,
    state: ServerState | None = None,
    measured: MeasuredLoad | None = None,
) -> TuningSubject:
    """Make the subject for this machine.

    Args:
        machine: The machine as observed.
        server: Version and build of PostgreSQL.
        wishes: The user's hints.
        state: State of the server to tune; None if it does not exist yet.
        measured: The load that a record measured.

    Raises:
        SpecError: More clients than connections.
    """
    host = machine.host
    wal_bytes = 0 if state is None else state.wal_bytes
    limit = host.memory_limit_bytes
    is_narrow = limit is not None and limit < host.memory_bytes
    is_few = host.cpu_limit is not None and host.cpu_limit < host.cpu_count
    memory_how = f"limit of the control group, on a machine with {format_bytes(host.memory_bytes)}"
    return _complete(
        cpus=Known.measured(
            "CPUs", host.usable_cpu_count, "count", "quota of the control group" if is_few else "the kernel"
        ),
        memory=Known.measured(
            "memory", host.usable_memory_bytes, "bytes", memory_how if is_narrow else "/proc/meminfo"
        ),
        disk=make_disk(machine.disk, machine.limits, wal_bytes=0 if machine.wal_disk else wal_bytes),
        room_bytes=machine.disk.facts.size_bytes,
        held_bytes=0.0 if state is None else state.data_bytes,
        wal_disk=None if machine.wal_disk is None else make_disk(machine.wal_disk, machine.limits, wal_bytes=wal_bytes),
        kernel=Kernel(
            page_bytes=machine.page_bytes,
            huge_page_bytes=machine.memory.huge_page_bytes or Kernel().huge_page_bytes,
            swap_bytes=host.swap_bytes,
            numa_nodes=max(1, machine.memory.numa_nodes),
            is_container=is_narrow or is_few,
            is_left=wishes.leaves_kernel,
            transparent_huge_pages=host.transparent_huge_pages,
            available_bytes=None if is_narrow or state is not None else machine.memory.available_bytes,
            committed_bytes=machine.memory.committed_bytes,
            others_huge_pages=_count_others_huge_pages(machine.memory, state),
            sysctls=machine.sysctls,
        ),
        server=server,
        wishes=wishes,
        state=state,
        measured=measured or MeasuredLoad(),
    )


def make_subject_from_shape(
    shape: MachineShape,
    server: ServerFacts,
    wishes: LoadHints,
    *,
    state: ServerState | None = None,
    measured: MeasuredLoad | None = None,
) -> TuningSubject:
    """Make the subject for a declared machine, whose kernel is assumed to have the usual defaults; see `make_subject`."""
    return _complete(
        cpus=shape.cpus,
        memory=shape.memory,
        remarks=shape.remarks,
        declared=shape.topology,
        disk=shape.disk,
        room_bytes=shape.disk.free_bytes.value,
        wal_disk=shape.wal_disk,
        kernel=Kernel(is_left=wishes.leaves_kernel, may_have_large_pages=shape.architecture == "arm64"),
        server=server,
        wishes=wishes,
        state=state,
        measured=measured or MeasuredLoad(),
    )


def assume_distribution(server: ServerFacts) -> ServerFacts:
    """Return the facts of the same version as distributions build it, with lz4, zstd and, from 18 on, io_uring.

    Source: lz4 and zstd: the packages of Debian 12, of RHEL 9 and of PGDG for both; io_uring: those of PostgreSQL 18 by
    PGDG, whose postgresql-18.spec leaves liburing out on RHEL 8 only.
    """
    built = " ".join(f"'{option}'" for option in _BUILD_OPTIONS.values())
    return msgspec.structs.replace(server, configure=f"{server.configure or ''} {built}")


def find_missing_values(server: ServerFacts) -> dict[str, tuple[str, ...]]:
    """Find the values of enum settings that a build lacks; all that any build may lack if its options are unknown."""
    options = (server.configure or "").replace("'", " ").split()
    lacked = {value for value, option in _BUILD_OPTIONS.items() if option not in options}
    missing = {guc.name: tuple(v for v in guc.build_values if v in lacked) for guc in all_gucs(server.major)}
    return {name: values for name, values in missing.items() if values}


def _complete(
    *,
    cpus: Known,
    memory: Known,
    disk: Disk,
    room_bytes: float,
    held_bytes: float = 0.0,
    wal_disk: Disk | None,
    kernel: Kernel,
    server: ServerFacts,
    wishes: LoadHints,
    state: ServerState | None,
    measured: MeasuredLoad,
    remarks: tuple[str, ...] = (),
    declared: TopologySpec | None = None,
) -> TuningSubject:
    workload = wishes.workload or DEFAULT_WORKLOAD
    measured = scale_load(measured, cpus=cpus, memory=memory)
    connections = _find_connections(wishes, measured, state)
    shown = {} if state is None else state.look.settings
    if wishes.active is not None and wishes.active > connections.value:
        raise SpecError(
            f"{wishes.active} clients cannot be at work over {connections.value:g} connections",
            detail=f"connections: {connections.how}",
            hint=f"ask for at least --connections {wishes.active}, or for fewer --clients",
        )
    return TuningSubject(
        major=server.major,
        missing_values=find_missing_values(server),
        lacking=frozenset(server.settings_said.lacking if server.settings_said else ()),
        settings={} if state is None else _find_set(state, server.major),
        slots=() if state is None else state.slots,
        workload=workload,
        cpus=cpus,
        memory=memory,
        connections=connections,
        active=_find_active(wishes, measured, workload, cpus=cpus, memory=memory, connections=connections),
        dataset=_find_dataset(wishes, measured, state, memory=memory, room_bytes=room_bytes),
        held_bytes=held_bytes,
        to_come_bytes=measured.to_come_bytes,
        disk=disk,
        wal_disk=wal_disk,
        wal_segment_bytes=int(shown.get("wal_segment_size", DEFAULT_SEGMENT_BYTES)),
        kernel=kernel,
        wal_bytes_per_s=measured.wal_bytes_per_s,
        wal_compression=measured.wal_compression,
        recovery_s=_wish("recovery time", wishes.recovery_s, "--recovery", _RECOVERY_S),
        remarks=remarks,
        stall_s=_wish("longest stall", wishes.stall_s, "--stall", _STALL_S),
        standbys=find_standbys(wishes.topology, declared),
        pooling=find_pooling(wishes.topology, declared, clients=connections, knee=measured.knee),
    )


def _count_others_huge_pages(memory: MemoryFacts, state: ServerState | None) -> int:
    """Count the huge pages that are neither free nor the server's.

    The server's own number is what the server reports: the kernel counts only the pages that a process has touched.
    """
    taken = memory.huge_pages_total - memory.huge_pages_free
    look = None if state is None else state.look
    if look is None or not (look.huge_pages_bytes or look.settings.get("huge_pages_status") == "on"):
        return taken
    return max(0, taken - int(look.settings.get("shared_memory_size_in_huge_pages", "0")))


def _find_set(state: ServerState, major: int) -> dict[str, str]:
    """Return the server's set values, without texts, which may be secrets, except those that decide durability."""
    names = {guc.name for guc in all_gucs(major) if guc.vartype is not VarType.STRING} | set(judged_settings())
    return {name: value for name, value in state.look.settings.items() if name in state.set_names & names}


def _find_connections(wishes: LoadHints, measured: MeasuredLoad, state: ServerState | None) -> Known:
    name = CONNECTIONS
    if wishes.connections is not None:
        return Known.declared(name, wishes.connections, "count", "--connections")
    now = None if state is None else state.look.settings.get("max_connections")
    if now is not None:
        return Known.measured(name, float(now), "count", "max_connections of the server")
    if wishes.active is not None and wishes.active > _CONNECTIONS:
        return Known.assumed(name, wishes.active, "count", "one for each of --clients")
    if wishes.active is None and measured.active is not None and measured.active.value > _CONNECTIONS:
        return Known.assumed(name, measured.active.value, "count", f"one for each of the {measured.active.how}")
    return Known.assumed(name, _CONNECTIONS, "count", "what an unchanged server takes")


def _find_active(
    wishes: LoadHints,
    measured: MeasuredLoad,
    workload: WorkloadClass,
    *,
    cpus: Known,
    memory: Known,
    connections: Known,
) -> Known:
    if wishes.active is not None:
        return Known.declared(ACTIVE, wishes.active, "count", "--clients")
    if measured.active is not None:
        return measured.active
    return assume_active(workload, cpus=cpus, memory=memory, connections=connections)


def find_known_dataset(wishes: LoadHints, measured: MeasuredLoad | None, state: ServerState | None) -> Known | None:
    """Return the size of the data: the user's hint, else what the server holds, else what a record has; None if none is known."""
    if wishes.dataset_bytes is not None:
        held = "" if state is None else f"; {_describe_held(state)}"
        return Known.declared(DATASET, wishes.dataset_bytes, "bytes", f"--dataset{held}")
    if state is not None and state.data_bytes >= _EMPTY_BYTES:
        return Known.measured(DATASET, state.data_bytes, "bytes", "files of the server's databases")
    return None if measured is None else measured.dataset


def _describe_held(state: ServerState) -> str:
    return f"the server holds {format_bytes(state.data_bytes)} now"


def _find_dataset(
    wishes: LoadHints, measured: MeasuredLoad, state: ServerState | None, *, memory: Known, room_bytes: float
) -> Known:
    known = find_known_dataset(wishes, measured, state)
    if known is not None:
        return known
    # The data cannot exceed the disk; half of the disk is for WAL, sorts and bloat. Use its size, because the free
    # space varies.
    value = min(_DATASET_TO_MEMORY * memory.value, room_bytes / 2)
    how = f"{_DATASET_TO_MEMORY} times the memory, as far as the disk allows; {'no size is known' if state is None else _describe_held(state)}"
    return Known.assumed(DATASET, value, "bytes", how)


def _wish(name: str, value_s: float | None, option: str, usual_s: float) -> Known:
    if value_s is not None:
        return Known.declared(name, value_s, "s", option)
    return Known.assumed(name, usual_s, "s", "usual")
