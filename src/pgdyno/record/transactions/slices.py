"""The slices of a switchback block: when each variant was in force, and which transactions ended meanwhile.

`slices.jsonl` is appended to while the load runs. Transactions are not copied into it: they are found by their own end
stamps in the packed log, in one pass, as well while its parts still land as from a finished record.

It judges nothing, and it counts no transaction that failed or was skipped.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.record.transactions.pack import find_parts, read_ok, read_span

SLICES_FILE = "slices.jsonl"


class SlicePhase(enum.Enum):
    """What a slice is for."""

    PILOT = "pilot"
    """To choose the length of the others."""
    ROUND = "round"


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """One variant in force for a while. Times are CLOCK_MONOTONIC; what counts is from `settled` to `end`.

    Attributes:
        phase: What it is for.
        round: From 1 within the block and the phase.
        position: From 0 within the round.
        variant: In force.
        begin_monotonic_s: Just before the change of settings.
        settled_monotonic_s: The change was confirmed and the washout over.
        end_monotonic_s: Before the next change.
        counts: Of the whole machine from `settled` to `end`; None where this machine does not count it.
    """

    phase: SlicePhase
    round: int
    position: int
    variant: str = msgspec.field(name="arm")
    begin_monotonic_s: float
    settled_monotonic_s: float
    end_monotonic_s: float
    counts: dict[str, float | None]


class SliceLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The transactions that ended well in the counted part of a slice, of those that pgbench logged.

    `latency_us` holds them in the order of their ends, `ok_count` their number.
    """

    ok_count: int
    latency_us: NDArray[np.int64]


class SliceWriter:
    """Appends slices to a trial's folder, each as soon as it has ended.

    Nothing is flushed to the disk here: that would disturb the one under test, and a trial that was cut short is run
    again.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._file = (folder / SLICES_FILE).open("ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, ended: Slice) -> None:
        """Append one.

        Raises:
            OSError: The disk is full or fails.
        """
        self._file.write(msgspec.json.encode(ended) + b"\n")


def read_slices(folder: Path) -> tuple[Slice, ...]:
    """The slices of a trial in their order, none where nothing alternated; a last line that was cut is left out.

    Raises:
        OSError: The file cannot be read.
        ValueError: A whole line is no slice.
    """
    path = folder / SLICES_FILE
    if not path.exists():
        return ()
    *lines, _ = path.read_bytes().split(b"\n")
    return tuple(msgspec.json.decode(line, type=Slice) for line in lines)


def read_slice_loads(transactions: Path, slices: Sequence[Slice], *, clock_offset_s: float) -> Iterator[SliceLoad]:
    """The transactions of each slice of a finished record, in memory that does not grow with their number.

    Args:
        transactions: The folder of the packed transactions.
        slices: In the order of time, not overlapping.
        clock_offset_s: What to add to CLOCK_MONOTONIC for seconds since the epoch, when the load began.

    Raises:
        FileNotFoundError: The folder holds no part.
        OSError: A part cannot be read.
        ValueError: A part is damaged.
    """
    if not find_parts(transactions):
        raise FileNotFoundError(f"no packed transactions in {transactions}")
    yield from SliceReader(transactions, clock_offset_s=clock_offset_s).take(slices, is_ended=True)


class SliceReader:
    """Finds the transactions of slices while parts of the log still land; each part is read once.

    Args:
        transactions: The folder of the packed transactions; need not exist yet.
        clock_offset_s: What to add to CLOCK_MONOTONIC for seconds since the epoch, when the load began. pgbench asks for
            the time of day once and counts on from there, so that later changes of the clock do not matter.
    """

    def __init__(self, transactions: Path, *, clock_offset_s: float) -> None:
        self._folder = transactions
        self._offset_s = clock_offset_s
        self._parts_count = 0
        self._taken_count = 0
        self._known_until_us: float = -math.inf
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def take(self, slices: Sequence[Slice], *, is_ended: bool = False) -> Iterator[SliceLoad]:
        """The transactions of the slices that follow those taken before, as far as all of them are known.

        Args:
            slices: All so far, those taken before included; in the order of time, not overlapping.
            is_ended: Whether no further part will come: then all slices are given.

        Raises:
            OSError: A part cannot be read.
            ValueError: A part is damaged.
        """
        windows = [self._window(one) for one in slices[self._taken_count :]]
        for path in find_parts(self._folder)[self._parts_count :]:
            self._add(path, needed_from_us=windows[0][0] if windows else None)
            while windows and windows[0][1] <= self._known_until_us:
                yield self._cut(*windows.pop(0))
        while windows and (is_ended or windows[0][1] <= self._known_until_us):
            yield self._cut(*windows.pop(0))

    def _window(self, one: Slice) -> tuple[int, int]:
        begin_s, end_s = one.settled_monotonic_s + self._offset_s, one.end_monotonic_s + self._offset_s
        return round(begin_s * 1e6), round(end_s * 1e6)

    def _add(self, path: Path, *, needed_from_us: int | None) -> None:
        self._parts_count += 1
        span = read_span(path)
        if span is not None and span.known_until_us is not None:
            self._known_until_us = max(self._known_until_us, span.known_until_us)
        # A part between two slices, or before the first, need not be read.
        if span is None or needed_from_us is None or span.last_stamp_us >= needed_from_us:
            self._waiting.append(read_ok(path))

    def _cut(self, begin_us: int, end_us: int) -> SliceLoad:
        self._taken_count += 1
        self._waiting = [
            (stamps, latencies) for stamps, latencies in self._waiting if len(stamps) and stamps[-1] >= begin_us
        ]
        found_us, found_latencies = [], []
        for stamps, latencies in self._waiting:
            first, last = np.searchsorted(stamps, (begin_us, end_us))
            found_us.append(stamps[first:last])
            found_latencies.append(latencies[first:last])
        if not found_us:
            return SliceLoad(ok_count=0, latency_us=np.empty(0, dtype=np.int64))
        order = np.argsort(np.concatenate(found_us), kind="stable")
        return SliceLoad(ok_count=len(order), latency_us=np.concatenate(found_latencies)[order])
