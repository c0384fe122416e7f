"""Read and write the slices of a switchback block: when each variant was in force, and its transactions.

`slices.jsonl` grows while the load runs. Transactions are not copied into it: one pass over the packed log finds them
by their end stamps, both while parts are still being written and in a finished record.

Failed and skipped transactions do not count. Nothing is judged here.
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
from pgdyno.record.transactions.times import TransactionTimes, read_times

SLICES_FILE = "slices.jsonl"


class SlicePhase(enum.Enum):
    """The purpose of a slice."""

    PILOT = "pilot"
    """Choose the length of the slices that follow."""
    ROUND = "round"


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A period in which one variant is in force. Times are CLOCK_MONOTONIC; it counts from `settled` to `end`.

    Attributes:
        phase: Purpose of the slice.
        round: Number of the round, from 1 within the block and the phase.
        position: Position in the round, from 0.
        variant: Name of the variant in force.
        begin_monotonic_s: Just before the change of settings.
        settled_monotonic_s: When the change was confirmed and the washout had ended.
        end_monotonic_s: Just before the next change.
        counts: Counters of the whole machine from `settled` to `end`; None where the machine lacks one.
    """

    phase: SlicePhase
    round: int
    position: int
    variant: str = msgspec.field(name="arm")
    begin_monotonic_s: float
    settled_monotonic_s: float
    end_monotonic_s: float
    counts: dict[str, float | None]

    @property
    def length_s(self) -> float:
        """Its duration, the change of settings and the washout included."""
        return self.end_monotonic_s - self.begin_monotonic_s

    @property
    def counted_s(self) -> float:
        """Duration of the part that counts."""
        return self.end_monotonic_s - self.settled_monotonic_s


class SliceLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The logged transactions that succeeded in the counted part of a slice.

    Attributes:
        ok_count: Their number; in a turn the sum of `shares`.
        latency_us: Their latencies, in the order of their ends.
        end_s: Their ends, in seconds since the slice began.
        shares: In a turn, the share of its time that each had in the counted part; None in other slices, where those that
            ended there count.
    """

    ok_count: float
    latency_us: NDArray[np.int64]
    end_s: NDArray[np.float64]
    shares: NDArray[np.float64] | None = None


class SliceWriter:
    """A writer that appends each slice to a file in the trial's folder as soon as the slice has ended.

    Nothing is flushed to disk, because that would disturb the disk under test, and an interrupted trial is run again.

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
        """Append a slice.

        Raises:
            OSError: The disk is full or fails.
        """
        self._file.write(msgspec.json.encode(ended) + b"\n")


def read_slices(folder: Path) -> tuple[Slice, ...]:
    """Read the slices of a trial in order, without a cut last line; return none if no variants alternated.

    Raises:
        OSError: The file cannot be read.
        ValueError: A complete line is not a slice.
    """
    path = folder / SLICES_FILE
    if not path.exists():
        return ()
    *lines, _ = path.read_bytes().split(b"\n")
    return tuple(msgspec.json.decode(line, type=Slice) for line in lines)


def read_slice_loads(transactions: Path, slices: Sequence[Slice], *, clock_offset_s: float) -> Iterator[SliceLoad]:
    """Yield the transactions of each slice of a finished record, one slice in memory at a time.

    Args:
        transactions: The folder of the packed transactions.
        slices: In the order of time, not overlapping.
        clock_offset_s: Offset from CLOCK_MONOTONIC to seconds since the epoch when the load began.

    Raises:
        FileNotFoundError: The folder contains no part.
        OSError: A part cannot be read.
        ValueError: A part is damaged.
    """
    if not find_parts(transactions):
        raise FileNotFoundError(f"no packed transactions in {transactions}")
    yield from SliceReader(transactions, clock_offset_s=clock_offset_s).take(slices, is_ended=True)


def read_turn_loads(transactions: Path, turns: Sequence[Slice], *, clock_offset_s: float) -> Iterator[SliceLoad]:
    """Yield the transactions of each turn of a finished record, each with the share of its time in the counted part.

    The clients of a turn begin together, so that as many of their transactions may end in each counted part, whatever the
    true rate: ends alone would be off by up to one transaction of each client, alike in all turns. A turn ends with its
    transactions, so that the log has those that are under way at either end of that part, too.

    Args:
        transactions: The folder of the packed transactions.
        turns: In the order of time.
        clock_offset_s: Offset from CLOCK_MONOTONIC to seconds since the epoch.

    Raises:
        FileNotFoundError: The folder contains no part.
        OSError: A part cannot be read.
        ValueError: A part is damaged.
    """
    times = read_times(transactions)
    begins_s = [turn.begin_monotonic_s for turn in turns]
    for turn, next_begin_s in zip(turns, [*begins_s[1:], math.inf], strict=True):
        begin_us, settled_us, end_us, next_us = (
            (time_s + clock_offset_s) * 1e6
            for time_s in (turn.begin_monotonic_s, turn.settled_monotonic_s, turn.end_monotonic_s, next_begin_s)
        )
        first, last = np.searchsorted(times.end_us, (settled_us, next_us))
        own = TransactionTimes(end_us=times.end_us[first:last], latency_us=times.latency_us[first:last])
        shares = own.find_shares(settled_us, end_us)
        is_within = shares > 0
        yield SliceLoad(
            ok_count=float(shares.sum()),
            latency_us=own.latency_us[is_within],
            end_s=(own.end_us[is_within].astype(np.float64) - begin_us) / 1e6,
            shares=shares[is_within],
        )


class SliceReader:
    """A reader of slices' transactions that works while parts of the log are still being written.

    Each part is read once.

    Args:
        transactions: The folder of the packed transactions; need not exist yet.
        clock_offset_s: Offset from CLOCK_MONOTONIC to seconds since the epoch when the load began. pgbench reads the
            time of day once and counts from there, so that later changes of the clock do not matter.
    """

    def __init__(self, transactions: Path, *, clock_offset_s: float) -> None:
        self._folder = transactions
        self._offset_s = clock_offset_s
        self._parts_count = 0
        self._taken_count = 0
        self._known_until_us: float = -math.inf
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def take(self, slices: Sequence[Slice], *, is_ended: bool = False) -> Iterator[SliceLoad]:
        """Yield the transactions of the slices after those taken before, as far as the log is complete for them.

        Args:
            slices: All slices so far, including those taken before, in the order of time and without overlap.
            is_ended: Whether the log is complete; then all remaining slices are returned.

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

    def _window(self, one: Slice) -> tuple[int, int, int]:
        """Return when a slice counts, from and until, and when it began, in microseconds since the epoch."""
        times_s = (one.settled_monotonic_s, one.end_monotonic_s, one.begin_monotonic_s)
        settled_us, end_us, begin_us = (round((time_s + self._offset_s) * 1e6) for time_s in times_s)
        return settled_us, end_us, begin_us

    def _add(self, path: Path, *, needed_from_us: int | None) -> None:
        self._parts_count += 1
        span = read_span(path)
        if span is not None and span.known_until_us is not None:
            self._known_until_us = max(self._known_until_us, span.known_until_us)
        # Skip a part between two slices or before the first.
        if span is None or needed_from_us is None or span.last_stamp_us >= needed_from_us:
            self._waiting.append(read_ok(path))

    def _cut(self, settled_us: int, end_us: int, begin_us: int) -> SliceLoad:
        self._taken_count += 1
        self._waiting = [
            (stamps, latencies) for stamps, latencies in self._waiting if len(stamps) and stamps[-1] >= settled_us
        ]
        found_us, found_latencies = [], []
        for stamps, latencies in self._waiting:
            first, last = np.searchsorted(stamps, (settled_us, end_us))
            found_us.append(stamps[first:last])
            found_latencies.append(latencies[first:last])
        if not found_us:
            return SliceLoad(ok_count=0, latency_us=np.empty(0, dtype=np.int64), end_s=np.empty(0))
        stamps_us = np.concatenate(found_us)
        order = np.argsort(stamps_us, kind="stable")
        return SliceLoad(
            ok_count=len(order),
            latency_us=np.concatenate(found_latencies)[order],
            end_s=(stamps_us[order] - begin_us) / 1e6,
        )
