"""Tell on which disks the clusters of a study's variants lie."""

from __future__ import annotations

import msgspec

from pgdyno.plan.experiment import Variant
from pgdyno.spec.study import DataSpec
from pgdyno.spec.variant import WITH_DATA, VariantSpec


class Place(msgspec.Struct, frozen=True):
    """The folders of a cluster, as the study names them."""

    home: str | None = None
    """None: the home of the command."""
    wal_home: str | None = None
    """None: pg_wal lies with the data."""


def place_of(data: DataSpec, variant: Variant | VariantSpec | None) -> Place:
    """Return the place of a variant's cluster; of a study that compares nothing, that of its only one."""
    home, said = (None, None) if variant is None else (variant.home, variant.wal_home)
    wal_home = data.wal_home if said is None else said
    return Place(home, None if wal_home == WITH_DATA else wal_home)
