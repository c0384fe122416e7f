"""Read the transactions of slices that several load hosts logged, each with the time of day of its own machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pgdyno.record.generators.parts import find_clock_offset_s, find_part_folders, read_part, read_part_clock
from pgdyno.record.transactions.slices import Slice, SliceLoad, SliceReader


class MergedSliceReader:
    """A `SliceReader` of all load hosts of a trial, which works while their logs are still being written.

    Args:
        folder: The trial's.
        transactions: Name of the folder of packed transactions.

    Raises:
        OSError: What is known of a load host cannot be read.
        ValueError: It is damaged.
    """

    def __init__(self, folder: Path, transactions: str) -> None:
        self._readers = [
            SliceReader(part / transactions, clock_offset_s=find_clock_offset_s(read_part(part), read_part_clock(part)))
            for part in find_part_folders(folder)
        ]
        self._found: list[list[SliceLoad]] = [[] for _ in self._readers]

    def take(self, slices: Sequence[Slice], *, is_ended: bool = False) -> Iterator[SliceLoad]:
        """Yield the transactions of the slices after those taken before; see `SliceReader.take`."""
        for reader, found in zip(self._readers, self._found, strict=True):
            found.extend(reader.take(slices, is_ended=is_ended))
        while all(self._found):
            yield _merge([found.pop(0) for found in self._found])


def _merge(loads: Sequence[SliceLoad]) -> SliceLoad:
    end_s = np.concatenate([load.end_s for load in loads])
    order = np.argsort(end_s, kind="stable")
    return SliceLoad(
        ok_count=sum(load.ok_count for load in loads),
        latency_us=np.concatenate([load.latency_us for load in loads])[order],
        end_s=end_s[order],
    )
