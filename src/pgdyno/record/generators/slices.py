"""Read the transactions of slices that several load hosts logged, each with the time of day of its own machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pgdyno.record.generators.parts import find_clock_offset_s, find_part_folders, read_part, read_part_clock
from pgdyno.record.transactions.slices import Slice, SliceLoad, SliceReader


class MergedSliceReader:
    """A `SliceReader` of all pgbenches of a trial, which works while their logs are still being written.

    Args:
        folder: The trial's.
        transactions: Name of the folder of packed transactions.

    Raises:
        OSError: What is known of a load host cannot be read.
        ValueError: It is damaged.
    """

    def __init__(self, folder: Path, transactions: str) -> None:
        self._readers: list[tuple[str, SliceReader]] = []
        for place in find_part_folders(folder):
            part = read_part(place)
            offset_s = find_clock_offset_s(part, read_part_clock(place, part))
            self._readers.append((part.part, SliceReader(place / transactions, clock_offset_s=offset_s)))
        self._found: list[list[SliceLoad]] = [[] for _ in self._readers]

    def take(self, slices: Sequence[Slice], *, is_ended: bool = False) -> Iterator[SliceLoad]:
        """Yield the transactions of the slices after those taken before; see `SliceReader.take`."""
        for parts in self.take_parts(slices, is_ended=is_ended):
            yield merge_loads(list(parts.values()))

    def take_parts(self, slices: Sequence[Slice], *, is_ended: bool = False) -> Iterator[dict[str, SliceLoad]]:
        """Yield the same by part of the load, in the order of their folders; of a load without parts, its name is empty."""
        for (_, reader), found in zip(self._readers, self._found, strict=True):
            found.extend(reader.take(slices, is_ended=is_ended))
        while all(self._found):
            loads: dict[str, list[SliceLoad]] = {}
            for (name, _), found in zip(self._readers, self._found, strict=True):
                loads.setdefault(name, []).append(found.pop(0))
            yield {name: merge_loads(of) for name, of in loads.items()}


def merge_loads(loads: Sequence[SliceLoad]) -> SliceLoad:
    """Merge what several pgbenches did in one slice."""
    if len(loads) == 1:
        return loads[0]
    end_s = np.concatenate([load.end_s for load in loads])
    order = np.argsort(end_s, kind="stable")
    return SliceLoad(
        ok_count=sum(load.ok_count for load in loads),
        latency_us=np.concatenate([load.latency_us for load in loads])[order],
        end_s=end_s[order],
    )
