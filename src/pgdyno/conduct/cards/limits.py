"""Read what the disks of a record can do, by the cards that it keeps."""

from __future__ import annotations

from pgdyno.analyse.disk.demand import DiskLimits, find_all_limits
from pgdyno.record.store import RecordStore


def read_limits(store: RecordStore) -> list[DiskLimits | None]:
    """Read the limits of each place of a record's clusters, that of the reference first; None for one without a card.

    Raises:
        SpecError: A card is damaged, or a newer pgdyno wrote it.
    """
    record = store.read_record()
    stacks = [(one.data_disk, one.wal) for one in record.places]
    are_apart = [wal.device != disk.device for disk, wal in stacks] or [record.wal_disk is not None]
    return [find_all_limits(*store.read_cards(n), is_apart=is_apart) for n, is_apart in enumerate(are_apart)]
