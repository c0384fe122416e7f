"""Find what a cluster gives up of durability beside its settings: by mount options, and by commits that wait for no standby.

Mount options count as they are in force in the trials. The kernel sends no flushes to a device without a volatile cache, whatever
the options say, so that nothing is given up there. An emulated disk stands for one that may have such a cache, so its options
count as declared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from pgdyno.facts.durability import GivenUp, Loss
from pgdyno.facts.mount_options import BARRIER, NO_BARRIER, split_mount_name
from pgdyno.plan.experiment import Variant
from pgdyno.plan.standbys import SYNCHRONOUS_NAMES, count_waited
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.types import StudyRecord

_LABEL = "gives up durability: a power failure may lose committed transactions or the whole file system"
_NO_STANDBY_LABEL = (
    "gives up durability: no commit waits for a standby, and the loss of the primary loses what none has yet"
)
_NO_STANDBY_SOURCE = "PostgreSQL 18 manual, section 19.6.2, synchronous_standby_names"
_SOURCE = "Linux, Documentation/admin-guide/ext4.rst, barrier"


def find_disk_losses(record: StudyRecord, variant: Variant | None = None) -> tuple[GivenUp, ...]:
    """Find what mount options give up of durability; nothing of a machine that was not looked at.

    Args:
        record: The study's record, with the options in force when it began.
        variant: The variant whose disks and options count; None: those of the study.
    """
    there = record if variant is None else record.at((variant.name,))
    set_options = {} if variant is None else dict(_list_barriers(variant))
    disks = {"the data": None if there.host is None else there.host.data_disk, "pg_wal": there.wal_disk}
    found = (
        _judge(content, disk, set_options, is_emulated=record.study.is_emulated)
        for content, disk in disks.items()
        if disk is not None
    )
    return tuple(dict.fromkeys(one for one in found if one is not None))


def find_standby_losses(record: StudyRecord, variant: Variant) -> tuple[GivenUp, ...]:
    """Return the loss of a variant whose commits wait for no standby while those of another variant do; else nothing."""
    standbys, experiment = record.study.server.standbys, record.plan.experiment
    if not standbys or experiment is None:
        return ()
    waiting = [other for other in experiment.variants if _count_named(other, standbys)]
    if not waiting or _count_named(variant, standbys):
        return ()
    return (
        GivenUp(
            setting=SYNCHRONOUS_NAMES,
            value="''",
            kind=Loss.DURABILITY,
            label=_NO_STANDBY_LABEL,
            source=_NO_STANDBY_SOURCE,
        ),
    )


def _count_named(variant: Variant, standbys: int) -> int:
    settings = {name.lower(): value for name, value in variant.server.settings.items()}
    return count_waited(settings.get(SYNCHRONOUS_NAMES, ""), standbys)[0]


def _list_barriers(variant: Variant) -> Iterator[tuple[str, str]]:
    for name, value in variant.sysctl.items():
        split = split_mount_name(name)
        if split is not None and split[1] == BARRIER:
            yield split[0], str(value)


def _judge(content: str, disk: DiskFacts, set_options: Mapping[str, str], *, is_emulated: bool) -> GivenUp | None:
    if not disk.needs_flushes and not is_emulated:
        return None
    path = PurePosixPath(disk.path)
    mounts = [mount for mount in set_options if path.is_relative_to(mount)]
    is_off = bool(NO_BARRIER.intersection(disk.mount_options.split(",")))
    if mounts:
        is_off = set_options[max(mounts, key=len)] == "off"
    # The name says what lies there, because mount points differ from machine to machine.
    name = f"{BARRIER} of the file system of {content}"
    return GivenUp(setting=name, value="off", kind=Loss.DURABILITY, label=_LABEL, source=_SOURCE) if is_off else None
