"""Run a study on an emulation of the machine that it declares, on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pgdyno.conduct.ui import Ui
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import HostError, SpecError
from pgdyno.plan.room import predict_home_bytes, predict_wal_disk_bytes
from pgdyno.plan.size import count_copies, predict_bytes_per_scale
from pgdyno.plan.types import Machine
from pgdyno.plan.variants import list_places, list_scales
from pgdyno.run.change.emulation.groups import Rates
from pgdyno.run.change.emulation.machine import MOST_FOR_DISKS, EmulatedDisk, EmulatedMachine, check_emulation, emulated
from pgdyno.run.cluster.home import find_existing_folder
from pgdyno.run.host.facts import read_host_facts
from pgdyno.run.host.process import make_reachable
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.spec.study import Study
from pgdyno.tune.hosts import make_shape
from pgdyno.tune.types import Disk
from pgdyno.units import format_bytes, format_cpus

_GIBIBYTE = 2**30
_FILESYSTEMS = ("ext4", "xfs")
# Where the scale is not said: room for what a bench loads in half a minute, and for all copies of it in live pairs.
_DATA_BYTES, _WAL_BYTES = 20 * _GIBIBYTE, 11 * _GIBIBYTE
# The same for paired trials, which take no more where the disk of the home is small.
_PAIRED_BYTES = {"data": 16 * _GIBIBYTE, "wal": 8 * _GIBIBYTE}
# Of an emulated disk: ext4 keeps a twentieth for root, and each file system has lists of its own.
_FILESYSTEM_SHARE = 0.08
# An image is written in pieces of this size.
_PIECE_BYTES = 8 * 2**20
_LEAST_BYTES = 2 * _GIBIBYTE
# Of the space that is free: other programs write there, too. Only data of a scale that the study names take more.
_USUAL_OF_FREE = 0.45
# Writing an image once.
_FILL_BYTES_PER_S = 300e6


@contextmanager
def emulating(study: Study, place: Workspace, ui: Ui) -> Iterator[Workspace]:
    """Emulate the machine of a study that asks for it, and yield the place to run it there, or else the given one.

    Raises:
        SpecError: The study names a folder for pg_wal, or a machine that cannot be emulated.
        HostError: This account or this machine cannot emulate it.
        StepFailedError: A file system cannot be made.
    """
    host = study.host
    if host is None or not study.is_emulated:
        yield place
        return
    machine = plan_emulation(study, place)
    check_emulation(machine.disks)
    for words in describe_excess(host, place.home):
        ui.say(words)
    base = _make_base(place.home)
    ui.begin_step("emulate", predicted_s=sum(disk.size_bytes for disk in machine.disks) / _FILL_BYTES_PER_S)
    with emulated(machine, base=base, on_activity=ui.show_activity) as folders:
        ui.end_step("; ".join(map(_describe, machine.disks)))
        yield msgspec.structs.replace(place, home=folders["data"] / "home", wal_home=folders.get("wal"))


def plan_emulation(study: Study, place: Workspace) -> EmulatedMachine:
    """Plan the emulation of a study's machine: its disks as they last, and of this machine's CPUs and memory what it has.

    Raises:
        SpecError: The study names a folder for pg_wal, or a machine that cannot be emulated.
        HostError: The disk of the home has too little space.
    """
    host = study.host
    if host is None or host.disk is None:
        raise SpecError("an emulation needs a disk", hint="declare the disk of the data in the host file: [disk]")
    if not host.is_whole:
        raise SpecError("an emulation needs CPUs and memory", hint="declare cpus and memory, or an instance")
    places = list_places(study)
    if len(places) > 1 or places[0].home is not None:
        raise SpecError(
            "variants on disks of their own cannot be compared on an emulated machine: it has those it declares"
        )
    if study.data.wal_home is not None:
        raise SpecError(
            "an emulation and a folder for pg_wal exclude each other", hint="declare [wal_disk] in the host file"
        )
    here = read_host_facts(find_existing_folder(place.home))
    shape = make_shape(host)
    specs = [("data", host.disk, shape.disk, _DATA_BYTES)]
    if host.wal_disk is not None and shape.wal_disk is not None:
        specs.append(("wal", host.wal_disk, shape.wal_disk, _WAL_BYTES))
    sizes = _choose_sizes(study, specs, here.data_disk.free_bytes, place.home)
    cpus, memory = math.floor(shape.cpus.value), int(shape.memory.value)
    return EmulatedMachine(
        disks=tuple(_make_disk(name, spec, disk, sizes[name]) for name, spec, disk, _ in specs),
        cpu_count=cpus if cpus < here.usable_cpu_count else None,
        memory_bytes=memory if memory < here.usable_memory_bytes else None,
    )


def as_emulated(machine: Machine, study: Study, place: Workspace) -> Machine:
    """Return the machine that the plan of an emulated study is made from: as its emulation will be, with no data loaded.

    Args:
        machine: What the home's machine is by itself.
        study: The study, which asks for an emulation.
        place: Where it is going to run.

    Raises:
        SpecError: As for `plan_emulation`.
        HostError: As for `plan_emulation`.
    """
    emulation = plan_emulation(study, place)
    disks = {disk.name: disk for disk in emulation.disks}
    machine = msgspec.structs.replace(
        machine,
        cpu_count=emulation.cpu_count or machine.cpu_count,
        memory_bytes=emulation.memory_bytes or machine.memory_bytes,
        disk_free_bytes=disks["data"].size_bytes,
        wal_free_bytes=disks["wal"].size_bytes if "wal" in disks else None,
        loaded_scales=frozenset(),
    )
    return with_emulated_rates(machine, study)


def with_emulated_rates(machine: Machine, study: Study) -> Machine:
    """Return a machine with the declared rates of the study's emulated data disk; without an emulation, return it unchanged."""
    if study.host is None or not study.is_emulated:
        return machine
    rates = _find_rates(make_shape(study.host).disk)
    return msgspec.structs.replace(
        machine,
        write_bytes_per_s=rates.write_bytes_per_s,
        read_bytes_per_s=rates.read_bytes_per_s,
        random_write_iops=rates.write_iops,
        rates_file_bytes=None,
    )


def describe_excess(host: HostSpec, home: Path) -> Iterator[str]:
    """Say what the declared machine has more of than this one, which an emulation cannot show."""
    here, shape = read_host_facts(find_existing_folder(home)), make_shape(host)
    if shape.cpus.value > here.usable_cpu_count:
        yield (
            f"{shape.name} has {format_cpus(shape.cpus.value)}, here are {format_cpus(here.usable_cpu_count)}:"
            " what needs more of them is slower here"
        )
    if shape.memory.value > here.usable_memory_bytes:
        yield (
            f"{shape.name} has {format_bytes(shape.memory.value)} of memory, here are"
            f" {format_bytes(here.usable_memory_bytes)}: scale the data down alike to see what its caches would hold"
        )


def _choose_sizes(
    study: Study, specs: list[tuple[str, DiskSpec, Disk, int]], free_bytes: int, home: Path
) -> dict[str, int]:
    """Choose the sizes of the images: as declared, but no more than the study's data may need."""
    least = _predict_least(study, has_wal_disk=len(specs) > 1)
    room = free_bytes * _USUAL_OF_FREE

    def choose(mosts: Mapping[str, int]) -> dict[str, int]:
        needed = {name: max(most, least.get(name, 0)) for name, most in mosts.items()}
        return {name: int(min(disk.free_bytes.value, needed[name])) for name, _, disk, _ in specs}

    sizes = choose({name: most for name, _, _, most in specs})
    if sum(sizes.values()) > room:
        sizes = choose(_PAIRED_BYTES)
    # Where the scale is left to pgdyno, smaller disks are better than none.
    if not least and sum(sizes.values()) > room:
        sizes = {name: int(size * room / sum(sizes.values())) for name, size in sizes.items()}
        if min(sizes.values()) < _LEAST_BYTES:
            sizes = dict.fromkeys(sizes, _LEAST_BYTES)
    if sum(sizes.values()) > free_bytes * MOST_FOR_DISKS:
        raise HostError(
            f"{home} has too little space for the emulated disks",
            detail=f"they take {format_bytes(sum(sizes.values()))}; {format_bytes(free_bytes)} are free, of which they may"
            f" take {MOST_FOR_DISKS * 100:.0f} %",
            hint="free some, choose a smaller --scale, or another disk with --home",
        )
    return {name: size // _PIECE_BYTES * _PIECE_BYTES for name, size in sizes.items()}


def _predict_least(study: Study, *, has_wal_disk: bool) -> dict[str, int]:
    """Predict how large each disk must be for paired trials on data of the scales that a study names; nothing if it names none."""
    scales = [scale for scale in list_scales(study) if scale is not None]
    if not scales:
        return {}
    data = [round(scale * predict_bytes_per_scale(study)) for scale in scales]
    room = {
        "data": predict_home_bytes(data, max(data), copies=count_copies(study), has_wal=not has_wal_disk),
        "wal": predict_wal_disk_bytes(max(data), standbys=study.server.standbys),
    }
    return {name: round(needed * (1 + _FILESYSTEM_SHARE)) + _PIECE_BYTES for name, needed in room.items()}


def _make_disk(name: str, spec: DiskSpec, disk: Disk, size_bytes: int) -> EmulatedDisk:
    filesystem = spec.filesystem or "ext4"
    if filesystem not in _FILESYSTEMS:
        raise SpecError(
            f"an emulation makes no file system {filesystem}", hint=f"declare {' or '.join(_FILESYSTEMS)} to rehearse"
        )
    return EmulatedDisk(
        name=name,
        size_bytes=size_bytes,
        filesystem=filesystem,
        mount_options=spec.mount_options or "",
        rates=_find_rates(disk),
        flush_s=disk.flush_s.value,
        # No data sheet has a time of its own for reads: over a network they take about as long as a write.
        read_s=disk.flush_s.value,
    )


def _find_rates(disk: Disk) -> Rates:
    return Rates(
        read_iops=round(disk.random_read_iops.value),
        write_iops=round(disk.random_write_iops.value),
        read_bytes_per_s=round(disk.read_bytes_per_s.value),
        write_bytes_per_s=round(disk.write_bytes_per_s.value),
    )


def _make_base(home: Path) -> Path:
    try:
        make_reachable(home)
    except OSError as exc:
        raise HostError(f"cannot make {home}", detail=str(exc), hint="choose another folder with --home") from exc
    return home


def _describe(disk: EmulatedDisk) -> str:
    rates = disk.rates
    return (
        f"{disk.name}: {disk.filesystem} of {format_bytes(disk.size_bytes)}, {rates.write_iops:,} IOPS,"
        f" {rates.write_bytes_per_s / 1e6:,.0f} MB/s, {disk.flush_s * 1000:.3g} ms a flush"
    )
