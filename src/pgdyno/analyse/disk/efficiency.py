"""Compare the measured figures of a disk with its declared ceilings.

A ceiling is the sustained limit. A figure above it is a burst, given for a while from credits. A figure above the
burst, too, means that the declaration is wrong or that something else was measured. Figures that only one side has are
left out.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from pgdyno.analyse.disk.ceiling import Ceiling, InstanceLimits, StorageCeilings
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey
from pgdyno.analyse.disk.layout_ceiling import ceilings_of_instance, compute_ceilings, limits_of
from pgdyno.analyse.estimate import Estimate, map_estimate
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.record.machine.tunables import StorageStack
from pgdyno.spec.host import HostSpec

# A cloud may define megabytes and seconds differently.
_ABOVE_RATIO = 1.05
# Published arrays of volumes reach four fifths of their computed ceiling.
_BELOW_RATIO = 0.8
# Source: Amazon EC2 user guide, instance store volumes: the model number of their NVMe controllers.
_INSTANCE_STORE = "instance storage"
CEILINGS = {
    DiskFigureKey.RANDOM_READ: "random_read_iops",
    DiskFigureKey.RANDOM_WRITE: "random_write_iops",
    DiskFigureKey.SEQUENTIAL_READ: "read_bytes_per_s",
    DiskFigureKey.SEQUENTIAL_WRITE: "write_bytes_per_s",
    DiskFigureKey.FLUSHES: "flushes_per_s",
}
"""The names of the ceilings of measured figures."""


class Attainment(enum.Enum):
    """The position of a measured figure relative to its ceiling."""

    IMPOSSIBLE = "more than declared"
    """Above the burst limit, too."""
    BURST = "burst"
    """Above the sustained limit."""
    REACHED = "reached"
    """Near the ceiling."""
    BELOW = "below"
    UNDECIDED = "undecided"
    """Its interval holds the ceiling and figures far below it."""

    @property
    def is_above(self) -> bool:
        """True if the sustained limit is below the measured figure."""
        return self in {Attainment.IMPOSSIBLE, Attainment.BURST}


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """A measured figure and its ceiling."""

    key: DiskFigureKey
    measured: Estimate
    ceiling: Ceiling
    ratio: Estimate
    """Ratio of the measured figure to the sustained ceiling."""
    standing: Attainment


def ceilings_of(card: DiskCard) -> StorageCeilings | None:
    """Compute the ceilings of a card's declaration; None without one. A declared instance alone has its own limits."""
    limits = instance_limits_of(card)
    if card.declared is not None:
        return compute_ceilings(card.declared, limits, region=None if card.host is None else card.host.region)
    return None if limits is None else ceilings_of_instance(limits, card.look)


def instance_limits_of(card: DiskCard) -> InstanceLimits | None:
    """Return the declared machine's limits for this disk and its other volumes; None if it does not limit the disk."""
    host = card.host or (HostSpec(instance=card.instance) if card.instance else None)
    is_inside = is_own_storage(card.look) if card.declared is None else card.declared.disk_kind != "network-ssd"
    return None if host is None or is_inside else limits_of(host)


def is_own_storage(look: StorageStack | None) -> bool:
    """Return whether a path is in memory or on a disk of the instance itself, which the limits for volumes do not cover."""
    if look is None:
        return False
    return look.facts.is_in_memory or any(_INSTANCE_STORE in model.lower() for model in look.models.values())


def declared_entries(ceilings: StorageCeilings) -> tuple[DiskFigure, ...]:
    """List the sustained declared ceilings under the names of the measured figures."""
    found = []
    for key, name in CEILINGS.items():
        ceiling: Ceiling | None = getattr(ceilings, name)
        if ceiling is not None:
            lasting = Estimate(value=ceiling.value, low=None, high=None, n=0, unit=ceiling.unit, reason="declared")
            found.append(DiskFigure(key=key, estimate=lasting, how=f"declared: {ceiling.how}"))
    return tuple(found)


def compare_with_ceilings(entries: Sequence[DiskFigure], ceilings: StorageCeilings) -> tuple[Efficiency, ...]:
    """Compare each measured figure that has a ceiling with it, in the order of entries."""
    found = []
    for entry in entries:
        ceiling: Ceiling | None = getattr(ceilings, CEILINGS.get(entry.key, ""), None)
        if ceiling is not None and entry.estimate.value is not None:
            found.append(
                Efficiency(
                    key=entry.key,
                    measured=entry.estimate,
                    ceiling=ceiling,
                    ratio=_divide(entry.estimate, ceiling.value),
                    standing=_classify(entry.estimate, ceiling),
                )
            )
    return tuple(found)


def _divide(estimate: Estimate, by: float) -> Estimate:
    return map_estimate(estimate, lambda at: at / by, unit="ratio")


def _classify(estimate: Estimate, ceiling: Ceiling) -> Attainment:
    """Classify a figure by the end of its interval that makes the class hardest to reach; by its value without an interval."""
    low = estimate.low if estimate.low is not None else estimate.value or 0.0
    high = estimate.high if estimate.high is not None else estimate.value or 0.0
    if low > _ABOVE_RATIO * (ceiling.burst_value or ceiling.value):
        return Attainment.IMPOSSIBLE
    if low > _ABOVE_RATIO * ceiling.value:
        return Attainment.BURST
    if low >= _BELOW_RATIO * ceiling.value:
        return Attainment.REACHED
    return Attainment.BELOW if high < _BELOW_RATIO * ceiling.value else Attainment.UNDECIDED
