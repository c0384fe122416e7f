"""What a disk was measured to do beside what it is declared to do: how much of its ceiling it reaches.

A ceiling is what lasts. Above it is what somebody gives for a while, from credits, and takes back; above the burst as
well, the declaration is wrong or something else was measured. Nothing is said of figures that only one of the two has.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from pgdyno.analyse.disk.ceiling import Ceiling, InstanceLimits, StorageCeilings
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey
from pgdyno.analyse.disk.layout_ceiling import let_through, limits_of, reckon_ceilings
from pgdyno.analyse.estimate import Estimate, map_estimate
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.record.machine.tunables import StorageStack
from pgdyno.spec.host import HostSpec

# A cloud counts its megabytes and seconds otherwise than we do.
_ABOVE_RATIO = 1.05
# Published arrays of volumes reach four fifths of their arithmetic.
_BELOW_RATIO = 0.8
# Source: Amazon EC2 user guide, instance store volumes: the model number of their NVMe controllers.
_INSTANCE_STORE = "instance storage"
_CEILINGS = {
    DiskFigureKey.RANDOM_READ: "random_read_iops",
    DiskFigureKey.RANDOM_WRITE: "random_write_iops",
    DiskFigureKey.SEQUENTIAL_READ: "read_bytes_per_s",
    DiskFigureKey.SEQUENTIAL_WRITE: "write_bytes_per_s",
    DiskFigureKey.FLUSHES: "flushes_per_s",
}


class Attainment(enum.Enum):
    """Where a measured figure lies."""

    IMPOSSIBLE = "more than declared"
    """Above what is given for a while, too."""
    BURST = "burst"
    """Above what lasts."""
    REACHED = "reached"
    """Near it, or not surely away from it."""
    BELOW = "below"

    @property
    def is_above(self) -> bool:
        """Whether less lasts than was measured."""
        return self in {Attainment.IMPOSSIBLE, Attainment.BURST}


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """A measured figure and its ceiling."""

    key: DiskFigureKey
    measured: Estimate
    ceiling: Ceiling
    ratio: Estimate
    """Of the first to what lasts of the second."""
    standing: Attainment


def ceilings_of(card: DiskCard) -> StorageCeilings | None:
    """What the declaration in a card allows; None where it has none. An instance alone lets so much through."""
    limits = instance_limits_of(card)
    if card.declared is not None:
        return reckon_ceilings(card.declared, limits)
    return None if limits is None else let_through(limits)


def instance_limits_of(card: DiskCard) -> InstanceLimits | None:
    """What the declared machine lets through to this disk and its other volumes; None where it does not limit it."""
    host = card.host or (HostSpec(instance=card.instance) if card.instance else None)
    is_inside = is_own_storage(card.look) if card.declared is None else card.declared.disk_kind != "network-ssd"
    return None if host is None or is_inside else limits_of(host)


def is_own_storage(look: StorageStack | None) -> bool:
    """Whether a path lies in memory or on a disk of the instance itself, which its limits to volumes do not hold for."""
    if look is None:
        return False
    return look.facts.is_in_memory or any(_INSTANCE_STORE in model.lower() for model in look.models.values())


def declared_entries(ceilings: StorageCeilings) -> tuple[DiskFigure, ...]:
    """What a declaration allows for as long as one likes, under the names of what is measured."""
    found = []
    for key, name in _CEILINGS.items():
        ceiling: Ceiling | None = getattr(ceilings, name)
        if ceiling is not None:
            lasting = Estimate(value=ceiling.value, low=None, high=None, n=0, unit=ceiling.unit, reason="declared")
            found.append(DiskFigure(key=key, estimate=lasting, how=f"declared: {ceiling.how}"))
    return tuple(found)


def hold_against(entries: Sequence[DiskFigure], ceilings: StorageCeilings) -> tuple[Efficiency, ...]:
    """Each figure that was measured and has a ceiling, in the order of entries."""
    found = []
    for entry in entries:
        ceiling: Ceiling | None = getattr(ceilings, _CEILINGS.get(entry.key, ""), None)
        if ceiling is not None and entry.estimate.value is not None:
            found.append(
                Efficiency(
                    key=entry.key,
                    measured=entry.estimate,
                    ceiling=ceiling,
                    ratio=_divide(entry.estimate, ceiling.value),
                    standing=_stand(entry.estimate, ceiling),
                )
            )
    return tuple(found)


def _divide(estimate: Estimate, by: float) -> Estimate:
    return map_estimate(estimate, lambda at: at / by, unit="ratio")


def _stand(estimate: Estimate, ceiling: Ceiling) -> Attainment:
    """By the end of the interval that makes it hardest; by the value where there is none."""
    low = estimate.low if estimate.low is not None else estimate.value or 0.0
    high = estimate.high if estimate.high is not None else estimate.value or 0.0
    if low > _ABOVE_RATIO * (ceiling.burst_value or ceiling.value):
        return Attainment.IMPOSSIBLE
    if low > _ABOVE_RATIO * ceiling.value:
        return Attainment.BURST
    return Attainment.BELOW if high < _BELOW_RATIO * ceiling.value else Attainment.REACHED
