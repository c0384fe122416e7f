"""Decide whether storage paths of one machine get in each other's way: whether together they want more than it lets through."""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.analyse.disk.ceiling import TRANSFERS, Ceiling, StorageCeilings

# Sums of exact shares such as a third are not exact.
_WHOLE = 1.0 + 1e-9


def exceeds_instance(paths: Sequence[StorageCeilings]) -> bool:
    """Return whether paths together exceed the limit of their instance, in transfers or in bytes.

    Args:
        paths: The ceilings of each path that the limit covers.
    """
    return any(_exceeds([_find_share(path, unit) for path in paths]) for unit in ("1/s", "bytes/s"))


def _exceeds(shares: Sequence[float | None]) -> bool:
    # A path whose own limit is not known may take all.
    return any(share is not None for share in shares) and sum(1.0 if one is None else one for one in shares) > _WHOLE


def _find_share(path: StorageCeilings, unit: str) -> float | None:
    """Return the largest share of the instance's limit that a path can take; None if it is not known.

    Each write to a mirror counts separately, which the instance's limit for that path already includes.
    """
    found: list[Ceiling | None] = [getattr(path, name) for name, one in TRANSFERS.items() if one.unit == unit]
    return max(
        (one.value / one.instance_value for one in found if one is not None and one.instance_value), default=None
    )
