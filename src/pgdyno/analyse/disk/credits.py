"""Predict when a study has spent the burst credits of its declared volumes and instance.

Trials before and after that measure two different disks. What a load asks of the disk is not known before it ran: a plan assumes
all that the disk gives, which is the earliest end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.disk.ceiling import Ceiling
from pgdyno.analyse.disk.layout_ceiling import compute_ceilings, limits_of
from pgdyno.analyse.models.credits import Bucket, Use, find_end
from pgdyno.facts.instances import find_instance
from pgdyno.facts.volumes import find_volume
from pgdyno.plan.plan import Plan, StepKind
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.units import PAGE_BYTES

# Source: Amazon EC2 user guide, "Amazon EBS-optimized instance types": smaller sizes sustain their maximum for 30 minutes at
# least once every 24 hours. How fast credits return is not published: no faster than that is assumed.
_INSTANCE_BURST_S, _INSTANCE_REFILL_S = 30 * 60.0, 24 * 3600.0
_BURSTING_PROVIDER = "aws"
# Source: Amazon EBS user guide, "I/O size and volume throughput limits": sequential I/Os of SSD volumes are merged up to 256 KiB.
_MERGED_BYTES = 256 * 1024


class Credits(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket of a declared machine."""

    what: str
    """Whose credits, such as `8 gp2 volumes` or `c7g.2xlarge`."""
    unit: str
    """`1/s` or `bytes/s`, of its rates."""
    bucket: Bucket


class DiskUseRate(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a disk for a time."""

    seconds: float
    iops: float = 0.0
    bytes_per_s: float = 0.0
    trial: int | None = None
    """Number of the trial; None while data are loaded."""


class CreditEnd(msgspec.Struct, frozen=True, kw_only=True):
    """When the credits of a bucket end."""

    credits: Credits
    after_s: float | None
    """Seconds from the beginning; None if they last."""
    trial: int | None
    """Number of the trial in which they end; None if they last, or end while data are loaded."""


def find_credits(host: HostSpec) -> tuple[Credits, ...]:
    """Return the burst credits of a declared machine, as far as sources state them; an emulated one has what lasts, and no burst."""
    if host.emulate or host.disk is None or host.disk.disk_kind != "network-ssd":
        return ()
    return (*_find_volume_credits(host.disk), *_find_instance_credits(host))


def predict_ends(credits_: Sequence[Credits], uses: Sequence[DiskUseRate]) -> tuple[CreditEnd, ...]:
    """Predict for each bucket, full at first, when it is empty."""
    return tuple(_predict_end(one, uses) for one in credits_)


def plan_uses(plan: Plan, host: HostSpec) -> tuple[DiskUseRate, ...]:
    """Return what a planned study asks of its disk at most."""
    if host.disk is None:
        return ()
    ceilings = compute_ceilings(host.disk, limits_of(host))
    sequential = _most(ceilings.read_bytes_per_s)
    random = _most(ceilings.random_read_iops)
    uses = []
    for step in plan.steps:
        if step.kind is StepKind.LOAD:
            uses.append(sequential_use(step.predicted_s, sequential))
        if step.trial is not None:
            load_s = step.trial.warm_up_s + step.trial.duration_s
            server_s = 0.0 if plan.between is None else plan.between.server_s
            uses += [
                DiskUseRate(seconds=server_s, trial=step.trial.number),
                sequential_use(step.predicted_s - load_s - server_s, sequential, trial=step.trial.number),
                DiskUseRate(seconds=load_s, iops=random, bytes_per_s=random * PAGE_BYTES, trial=step.trial.number),
            ]
    return tuple(uses)


def sequential_use(seconds: float, bytes_per_s: float, *, trial: int | None = None) -> DiskUseRate:
    """Return the use of reading or writing in order."""
    return DiskUseRate(
        seconds=max(0.0, seconds), iops=bytes_per_s / _MERGED_BYTES, bytes_per_s=bytes_per_s, trial=trial
    )


def use_of(credits_: Credits, asked: DiskUseRate) -> Use:
    """Return what a use asks of a bucket, in its unit."""
    return Use(seconds=asked.seconds, rate=asked.bytes_per_s if credits_.unit == "bytes/s" else asked.iops)


def _predict_end(credits_: Credits, uses: Sequence[DiskUseRate]) -> CreditEnd:
    found = find_end(credits_.bucket, [use_of(credits_, one) for one in uses])
    if found is None:
        return CreditEnd(credits=credits_, after_s=None, trial=None)
    return CreditEnd(credits=credits_, after_s=found[1], trial=uses[found[0]].trial)


def _find_volume_credits(disk: DiskSpec) -> Iterator[Credits]:
    if disk.volume is None or (given := find_volume(disk.volume).burst_credits) is None:
        return
    ability, count = disk.volume_ability, disk.count
    if ability.burst_iops is None:
        return
    bucket = Bucket(
        capacity=count * given,
        baseline=count * ability.read_iops,
        burst=count * ability.burst_iops,
        refill=count * ability.read_iops,
    )
    name = f"the {disk.volume} volume" if count == 1 else f"the {count} {disk.volume} volumes"
    yield Credits(what=name, unit="1/s", bucket=bucket)


def _find_instance_credits(host: HostSpec) -> Iterator[Credits]:
    limits = limits_of(host)
    if host.instance is None or limits is None or find_instance(host.instance).provider != _BURSTING_PROVIDER:
        return
    for unit, baseline, burst in (
        ("1/s", limits.iops, limits.burst_iops),
        ("bytes/s", limits.bytes_per_s, limits.burst_bytes_per_s),
    ):
        if baseline is not None and burst is not None and burst > baseline:
            capacity = (burst - baseline) * _INSTANCE_BURST_S
            bucket = Bucket(capacity=capacity, baseline=baseline, burst=burst, refill=capacity / _INSTANCE_REFILL_S)
            yield Credits(what=limits.name, unit=unit, bucket=bucket)


def _most(ceiling: Ceiling | None) -> float:
    return 0.0 if ceiling is None else ceiling.burst_value or ceiling.value
