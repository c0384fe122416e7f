"""Describe a machine that is not at hand, from a cloud instance or a host file, so that settings can be derived for it.

`analyse/disk` computes the performance of declared disks. Undeclared figures are assumed for the kind of disk, and
marked as assumed. Bursts are ignored, because a busy server outlasts them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from pgdyno.analyse.disk.ceiling import TRANSFERS, Ceiling, InstanceLimits, Limit, StorageCeilings
from pgdyno.analyse.disk.layout_ceiling import (
    VolumeFigure,
    compute_array_ceiling,
    compute_ceilings,
    find_flush_time,
    limits_of,
    usual_limits,
)
from pgdyno.analyse.disk.raid import times_of
from pgdyno.analyse.disk.sold import list_unsold
from pgdyno.facts.instances import Instance, find_instance
from pgdyno.facts.mount_options import OptionKind, judge_mount_options
from pgdyno.facts.volumes import find_volume
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.spec.topology import TopologySpec
from pgdyno.tune.disk.classes import ASSUMED, TITLES, find_write_ratio, raise_bandwidths
from pgdyno.tune.types import Device, Disk, DiskKind, Known, Origin
from pgdyno.units import format_bytes

_GIBIBYTE, _GIGABYTE = 2**30, 10**9
# Assumed volume of an instance without declared disks.
_USUAL_VOLUME = {"aws": "gp3", "alibaba": "essd-pl1"}
_USUAL_GIB = 500
_SIZE_STEP_GIB = 100
# The data take half of a disk; the other half is for WAL, sorts and bloat, as `tune/subject` assumes of data.
_DISK_TO_DATASET = 2
_ASSUMED_FREE = 100 * _GIBIBYTE
_FILE = "the host file"


class MachineShape(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a machine that settings are derived from."""

    name: str
    architecture: str | None
    """Architecture, `x86_64` or `arm64`; None if unknown."""
    cpus: Known
    memory: Known
    disk: Disk
    wal_disk: Disk | None = None
    remarks: tuple[str, ...] = ()
    """What is doubtful about the declaration, each in a sentence."""
    topology: TopologySpec | None = None


def make_shape(host: Instance | HostSpec, *, dataset_bytes: float | None = None) -> MachineShape:
    """Make the shape of a declared machine; an instance without a disk is assumed to have its provider's usual volume.

    Args:
        host: The machine.
        dataset_bytes: Size of the data, for which an assumed volume is large enough; None if unknown.

    Raises:
        ValueError: The host file declares neither a machine nor an instance, which `read_host` excludes.
    """
    spec = HostSpec(instance=host.name) if isinstance(host, Instance) else host
    instance = _find_instance(spec)
    limits = _find_limits(spec)
    memory = spec.memory_bytes or (instance and instance.memory_bytes)
    if not memory:
        raise ValueError("memory is needed, or an instance")
    sheet = f"shape of {instance.name}" if instance else _FILE
    return MachineShape(
        name=spec.name or (instance.name if instance else "a described machine"),
        architecture=spec.architecture or (instance.architecture if instance else None),
        cpus=Known.declared("CPUs", limits.cpu_count, "count", _FILE if spec.cpus else sheet),
        memory=Known.declared("memory", memory, "bytes", _FILE if spec.memory else sheet),
        disk=_make_disk(spec.disk, limits) if spec.disk else _assume_disk(instance, limits, dataset_bytes or 0.0),
        wal_disk=_make_disk(spec.wal_disk, limits) if spec.wal_disk else None,
        remarks=(
            *list_unsold(spec),
            *_judge_mounts("data", spec.disk),
            *_judge_mounts("WAL", spec.wal_disk),
        ),
        topology=spec.topology,
    )


def ceilings_of_emulation(host: HostSpec, disk: DiskSpec) -> StorageCeilings:
    """Compute the ceilings of a declared disk as an emulation of its machine makes it: what lasts, assumed where not declared.

    Args:
        host: The machine.
        disk: One of its disks.

    Raises:
        ValueError: As for `make_shape`.
    """
    limits = _find_limits(host)
    ceilings = compute_ceilings(disk, limits.known, region=host.region)
    made = _make_disk(disk, limits)
    held = {name: _hold_as_made(_find_lasting(name, disk, limits)[0], getattr(made, name)) for name in TRANSFERS}
    return ceilings.with_transfers(held)


def _hold_as_made(ceiling: Ceiling, made: Known) -> Ceiling:
    ceiling = msgspec.structs.replace(ceiling, burst_value=None)
    if made.value == ceiling.value:
        return ceiling
    # What the random pages take is of the whole disk, not of its parts.
    return msgspec.structs.replace(ceiling, value=made.value, how=made.how, volume_value=None, array_value=None)


class _MachineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine lets through to its network volumes, and its size, by which the rest is assumed."""

    known: InstanceLimits | None
    cpu_count: float

    def assume(self, provider: str | None) -> InstanceLimits:
        """Return all limits, where unknown those of a usual instance of the size."""
        usual = usual_limits(self.cpu_count, provider)
        if self.known is None:
            return usual
        return msgspec.structs.replace(
            usual, iops=self.known.iops or usual.iops, bytes_per_s=self.known.bytes_per_s or usual.bytes_per_s
        )


def _find_limits(spec: HostSpec) -> _MachineLimits:
    instance = _find_instance(spec)
    cpus = spec.cpus or (instance and instance.cpu_count)
    if not cpus:
        raise ValueError("cpus are needed, or an instance")
    return _MachineLimits(known=limits_of(spec), cpu_count=cpus)


def _find_instance(spec: HostSpec) -> Instance | None:
    return None if spec.instance is None else find_instance(spec.instance)


def _judge_mounts(content: str, spec: DiskSpec | None) -> Iterator[str]:
    for judged in judge_mount_options((spec and spec.mount_options) or "", None):
        if judged.kind is not OptionKind.NOTED:
            yield f"{', '.join(judged.seen)} is declared: the file system of the {content} {judged.claim} {judged.why}"


def _assume_disk(instance: Instance | None, limits: _MachineLimits, dataset_bytes: float) -> Disk:
    """Assume the disk of an instance without a declared disk; its figures are assumptions even if published."""
    if instance is None:
        raise ValueError("disk is needed, or an instance")
    if instance.local_bytes is not None:
        spec = DiskSpec(volume="local-nvme", size=f"{instance.local_bytes // _GIGABYTE}GB")
        needed_gib = 0
    else:
        volume = find_volume(_USUAL_VOLUME[instance.provider])
        needed_gib = math.ceil(_DISK_TO_DATASET * dataset_bytes / _GIBIBYTE / _SIZE_STEP_GIB) * _SIZE_STEP_GIB
        spec = DiskSpec(volume=volume.name, size=f"{min(volume.most_gib, max(_USUAL_GIB, needed_gib)):.0f}GB")
    disk = _make_disk(spec, limits)
    which = "the usual one" if instance.local_bytes is None else "all of the instance's own, taken as one"
    if needed_gib > _USUAL_GIB:
        which = f"the usual one, with room for {format_bytes(dataset_bytes)} of data and their WAL"
    assumed = {
        name: msgspec.structs.replace(known, origin=Origin.ASSUMED, how=f"no disk is declared; {which}: {known.how}")
        for name, known in msgspec.structs.asdict(disk).items()
        if isinstance(known, Known)
    }
    return msgspec.structs.replace(disk, **assumed)


def _make_disk(spec: DiskSpec, limits: _MachineLimits) -> Disk:
    kind = DiskKind(spec.disk_kind)
    disk = Disk(
        path="",
        kind=kind,
        random_read_iops=_find_figure("random_read_iops", spec, limits),
        random_write_iops=_find_figure("random_write_iops", spec, limits),
        read_bytes_per_s=_find_figure("read_bytes_per_s", spec, limits),
        write_bytes_per_s=_find_figure("write_bytes_per_s", spec, limits),
        flush_s=_find_flush(spec, kind),
        free_bytes=_find_free(spec),
        filesystem=spec.filesystem,
        devices=_find_devices(spec),
    )
    return raise_bandwidths(disk)


def _find_devices(spec: DiskSpec) -> tuple[Device, ...]:
    """Return the array, if any; its kernel settings are unknown, and an undeclared chunk is still to be chosen."""
    if spec.count == 1:
        return ()
    array = Device(
        name="the array",
        kind="lvm" if spec.lvm_stripes else "raid",
        scheduler=None,
        schedulers=(),
        read_ahead_kb=None,
        chunk_kb=None if spec.chunk_bytes is None else int(spec.chunk_bytes // 1024),
        data_disks=int(times_of(spec).data),
    )
    return (array,)


def _find_figure(name: str, spec: DiskSpec, limits: _MachineLimits) -> Known:
    title, unit = TITLES[name]
    ceiling, origin = _find_lasting(name, spec, limits)
    return Known(name=title, value=ceiling.value, unit=unit, origin=origin, how=ceiling.how)


def _find_lasting(name: str, spec: DiskSpec, limits: _MachineLimits) -> tuple[Ceiling, Origin]:
    """Return what a disk sustains, declared or assumed for the kind of disk and the size of the machine."""
    ceiling, origin = _find_ceiling(name, spec, limits.known)
    if ceiling.is_machine_unknown:
        provider = find_volume(spec.volume).provider if spec.volume is not None else None
        capped, _ = _find_ceiling(name, spec, limits.assume(provider))
        if capped.binds is Limit.INSTANCE:
            how = f"the machine's own limit is not known; by another's: {capped.how}"
            return msgspec.structs.replace(capped, how=how), Origin.ASSUMED
    return ceiling, origin


def _find_ceiling(name: str, spec: DiskSpec, limits: InstanceLimits | None) -> tuple[Ceiling, Origin]:
    ceiling: Ceiling | None = getattr(compute_ceilings(spec, limits, declared_by=_FILE), name)
    if ceiling is not None:
        return ceiling, Origin.DECLARED
    kind = DiskKind(spec.disk_kind)
    value, how = _assume(name, kind)
    each = VolumeFigure(value=value, how=how, write_ratio=find_write_ratio(kind))
    ceiling = compute_array_ceiling(name, each, spec, limits)
    return ceiling, Origin.DECLARED if ceiling.binds is Limit.INSTANCE else Origin.ASSUMED


def _find_flush(spec: DiskSpec, kind: DiskKind) -> Known:
    title, unit = TITLES["flush_s"]
    known = find_flush_time(spec, declared_by=_FILE)
    if known is None:
        value, how = _assume("flush_s", kind)
        return Known.assumed(title, value, unit, how)
    return Known.declared(title, known.value_s, unit, known.how)


def _find_free(spec: DiskSpec) -> Known:
    name, unit = "free space", "bytes"
    if spec.free_bytes is not None:
        return Known.declared(name, spec.free_bytes, unit, _FILE)
    capacity = compute_ceilings(spec).capacity_bytes
    if capacity is None:
        how = f"no size is declared: {_ASSUMED_FREE / _GIBIBYTE:g} GB are assumed"
        return Known.assumed(name, _ASSUMED_FREE, unit, how)
    return Known.declared(name, capacity.value, unit, f"{capacity.how}, empty")


def _assume(name: str, kind: DiskKind) -> tuple[float, str]:
    value, source = ASSUMED[kind][name]
    return value, f"typical of {kind.value}: {source}"
