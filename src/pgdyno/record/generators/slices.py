"""Read the transactions of slices from the logs of one or several pgbenches, whose times are those of their machines' clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from pgdyno.record.generators.logs import list_logs
from pgdyno.record.transactions.slices import Slice, SliceLoad, SliceReader


class MergedSlice(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions of one slice."""

    whole: SliceLoad
    """Those of all pgbenches."""
    parts: Mapping[str, SliceLoad] = {}
    """Those of each part of the load, in the order of their folders; empty for a load without parts."""


class MergedSliceReader:
    """A `SliceReader` of all pgbenches of a trial, which works while their logs are still being written.

    Args:
        folder: The trial's.
        clock_offset_s: For the load of a single pgbench; see `SliceReader`.

    Raises:
        OSError: What is known of a load host cannot be read.
        ValueError: It is damaged.
    """

    def __init__(self, folder: Path, *, clock_offset_s: float) -> None:
        self._readers = [
            (
                "" if log.part is None else log.part.part,
                SliceReader(log.folder, clock_offset_s=clock_offset_s - log.behind_s),
            )
            for log in list_logs(folder, clock_offset_s=clock_offset_s)
        ]
        self._found: list[list[SliceLoad]] = [[] for _ in self._readers]

    def take(self, slices: Sequence[Slice], *, is_ended: bool = False) -> Iterator[MergedSlice]:
        """Yield the transactions of the slices that earlier calls have not yielded; see `SliceReader.take`."""
        for (_, reader), found in zip(self._readers, self._found, strict=True):
            found.extend(reader.take(slices, is_ended=is_ended))
        while all(self._found):
            loads: dict[str, list[SliceLoad]] = {}
            for (name, _), found in zip(self._readers, self._found, strict=True):
                loads.setdefault(name, []).append(found.pop(0))
            merged = {name: _merge(of) for name, of in loads.items()}
            yield MergedSlice(
                whole=_merge(list(merged.values())), parts={name: one for name, one in merged.items() if name}
            )


def _merge(loads: Sequence[SliceLoad]) -> SliceLoad:
    if len(loads) == 1:
        return loads[0]
    end_s = np.concatenate([load.end_s for load in loads])
    order = np.argsort(end_s, kind="stable")
    return SliceLoad(
        ok_count=sum(load.ok_count for load in loads),
        latency_us=np.concatenate([load.latency_us for load in loads])[order],
        end_s=end_s[order],
    )
