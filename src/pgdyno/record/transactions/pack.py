"""Pack the transactions of a run into Parquet parts of about 1.2 bytes per transaction; the log has 31.

Each block of the log is sorted by client, and monotonic columns are stored as differences from the row before. A
client's transaction numbers then differ by one, and its stamps by little more than the latency, which zstd compresses
to almost nothing. Measured on select-only at 90 000 TPS: 1.2 bytes per transaction against 5.1 in the order of the log
without differences, for 35 ns of CPU time against 42. A reader gets each part back in the order of time.

There are several parts because a Parquet file cannot be read before its end is written, and a crash must lose only the
current part. Each part is written under a temporary name, flushed to disk and renamed. Parts that are read while the
load runs are not flushed, because that would disturb the disk under test; they are flushed at the end of the trial.

polars is imported when the first part is written or read, because that takes 0.1 s; `prepare` imports it in advance.
"""

from __future__ import annotations

import contextlib
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.record.transactions.parse import TransactionBatch, TransactionOutcome
from pgdyno.record.transactions.summary import SUMMARY_VERSION, TransactionSummary

PART_ROWS = 1 << 18
"""Rows of a part: 13 s at 20 000 TPS, and about 20 MB of memory until it is written."""

TRANSACTIONS_DIR = "transactions"
SUMMARY_FILE = "summary.json"
_ZSTD_LEVEL = 1
_BASE_KEY = "pgdyno_base_stamp_us"
_SPAN_KEY = "pgdyno_span"
_SUM_KEY = "pgdyno_checksum"
_SUM_MARK, _NO_SUM = b"crc32:", b"00000000"

_Columns = dict[str, NDArray[Any]]


class PackedLog(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a packed log: the numbers of transactions and of bytes on disk."""

    transactions_count: int
    size_bytes: int


class PartSpan(msgspec.Struct, frozen=True, kw_only=True):
    """When the transactions of a part ended, in microseconds since the Unix epoch.

    All transactions that ended before `known_until_us` are in this part or an earlier one; None if the writer did not
    record it.
    """

    first_stamp_us: int
    last_stamp_us: int
    known_until_us: int | None = None


def prepare() -> None:
    """Import polars now instead of in the middle of a trial."""
    import pgdyno.record.frames  # noqa: F401, PLC0415


class TransactionPacker:
    """A writer of transactions into numbered parts in a folder of its own.

    Args:
        folder: Created if missing; must not contain parts yet.

    Raises:
        FileExistsError: The folder contains parts: a finished trial is never rewritten.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if find_parts(folder):
            raise FileExistsError(f"{folder} already holds packed transactions")
        self._folder = folder
        self._waiting: list[_Columns] = []
        self._waiting_rows = 0
        self._base_us = self._last_us = self._last_number = 0
        self._least_us = self._most_us = 0
        self._transactions_count = self._size_bytes = self._parts_count = 0

    def add(self, batch: TransactionBatch) -> None:
        """Add a batch, and write a part when enough transactions are waiting.

        Raises:
            OSError: The disk is full or fails.
        """
        if not len(batch):
            return
        if not self._waiting:
            self._base_us = self._last_us = self._least_us = self._most_us = int(batch.stamp_us[0])
            self._last_number = 0
        self._least_us = min(self._least_us, int(batch.stamp_us.min()))
        self._most_us = max(self._most_us, int(batch.stamp_us.max()))
        self._waiting.append(self._pack(batch))
        self._waiting_rows += len(batch)
        if self._waiting_rows >= PART_ROWS:
            self.flush()

    def flush(self, *, known_until_us: int | None = None, is_synced: bool = True) -> None:
        """Write the waiting transactions as a part.

        Args:
            known_until_us: See `PartSpan`.
            is_synced: Whether to flush the part to disk; otherwise the kernel writes it later.

        Raises:
            OSError: The disk is full or fails.
        """
        if not self._waiting:
            return
        final = self._folder / f"part-{self._parts_count:05d}.parquet"
        aside = final.with_suffix(".tmp")
        columns = {name: np.concatenate([each[name] for each in self._waiting]) for name in self._waiting[0]}
        span = PartSpan(first_stamp_us=self._least_us, last_stamp_us=self._most_us, known_until_us=known_until_us)
        _write_part(columns, aside, base_us=self._base_us, span=span, is_synced=is_synced)
        aside.replace(final)
        self._transactions_count += self._waiting_rows
        self._size_bytes += final.stat().st_size
        self._parts_count += 1
        self._waiting, self._waiting_rows = [], 0

    def close(self) -> PackedLog:
        """Write the waiting transactions and return the totals.

        Raises:
            OSError: The disk is full or fails.
        """
        self.flush()
        return PackedLog(transactions_count=self._transactions_count, size_bytes=self._size_bytes)

    def _pack(self, batch: TransactionBatch) -> _Columns:
        """Return the columns of a batch sorted by client, with monotonic ones as differences, in narrow types."""
        # For 16-bit keys numpy's stable sort is a radix sort, four times as fast as that of 64-bit keys.
        keys = batch.client.astype(np.uint16) if int(batch.client.max()) < 1 << 16 else batch.client
        order = np.argsort(keys, kind="stable")
        stamps, numbers = batch.stamp_us[order], batch.number[order]
        columns: _Columns = {
            "client": batch.client[order],
            "script": batch.script[order],
            "outcome": batch.outcome[order],
            "number_step": np.diff(numbers, prepend=self._last_number),
            "stamp_step_us": np.diff(stamps, prepend=self._last_us),
            "latency_us": batch.latency_us[order],
        }
        for name, values in (("lag_us", batch.lag_us), ("retries", batch.retries)):
            if values is not None:
                columns[name] = values[order]
        self._last_us, self._last_number = int(stamps[-1]), int(numbers[-1])
        return {name: values.astype(_narrowest(values)) for name, values in columns.items()}


def read_packed(folder: Path) -> Iterator[TransactionBatch]:
    """Yield the packed transactions part by part, each in the order of time.

    Raises:
        FileNotFoundError: The folder contains no part.
        OSError: A part cannot be read.
        ValueError: A part was not written by `TransactionPacker`.
    """
    paths = find_parts(folder)
    if not paths:
        raise FileNotFoundError(f"no packed transactions in {folder}")
    for path in paths:
        yield _read_part(path)


def find_parts(folder: Path) -> list[Path]:
    """Return the parts so far, in the order in which they were written."""
    return sorted(folder.glob("part-*.parquet"))


def read_span(path: Path) -> PartSpan | None:
    """Read when the transactions of a part ended, without decoding them; return None for parts of older records.

    Raises:
        OSError: The part cannot be read.
        ValueError: It is not one that `TransactionPacker` wrote.
    """
    from pgdyno.record.frames import pl  # noqa: PLC0415

    with _reading(path) as part:
        found = pl.read_parquet_metadata(part).get(_SPAN_KEY)
        return None if found is None else msgspec.json.decode(found, type=PartSpan)


def read_ok(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """End stamps, ascending, and latencies, both in microseconds, of a part's transactions that ended well.

    Raises:
        OSError: The part cannot be read.
        ValueError: It is not one that `TransactionPacker` wrote.
    """
    from pgdyno.record.frames import pl  # noqa: PLC0415

    with _reading(path) as part:
        base_us = int(pl.read_parquet_metadata(part)[_BASE_KEY])
        table = pl.read_parquet(part, columns=["outcome", "stamp_step_us", "latency_us"])
        is_ok = table["outcome"].to_numpy() == TransactionOutcome.OK
        # Each stamp is the sum of all steps before it, also of those of transactions that failed.
        stamps = (np.cumsum(table["stamp_step_us"].to_numpy().astype(np.int64)) + base_us)[is_ok]
        latencies = table["latency_us"].fill_null(0).to_numpy().astype(np.int64)[is_ok]
        order = np.argsort(stamps, kind="stable")
        return stamps[order], latencies[order]


def write_summary(folder: Path, summary: TransactionSummary) -> None:
    """Write the summary beside the parts, atomically.

    Raises:
        OSError: The disk is full or fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f"{SUMMARY_FILE}.tmp"
    with aside.open("wb") as file:
        file.write(msgspec.json.encode(summary))
        file.flush()
        os.fsync(file.fileno())
    aside.replace(folder / SUMMARY_FILE)


def read_summary(folder: Path) -> TransactionSummary:
    """Read the summary that `write_summary` wrote.

    Raises:
        FileNotFoundError: There is no summary.
        ValueError: The summary is damaged, or a newer pgdyno wrote it.
    """
    data = (folder / SUMMARY_FILE).read_bytes()
    version = msgspec.json.decode(data, type=_Versioned).version
    if version > SUMMARY_VERSION:
        raise ValueError(f"{folder / SUMMARY_FILE} has version {version}; this pgdyno knows up to {SUMMARY_VERSION}")
    return msgspec.json.decode(data, type=TransactionSummary)


class _Versioned(msgspec.Struct, frozen=True):
    version: int


def _narrowest(values: NDArray[Any]) -> np.dtype[Any]:
    """Return the 32-bit signed type if it holds all values, else the 64-bit type."""
    limits = np.iinfo(np.int32)
    fits = limits.min <= int(values.min()) and int(values.max()) <= limits.max
    return np.dtype(np.int32 if fits else np.int64)


def _write_part(columns: _Columns, path: Path, *, base_us: int, span: PartSpan, is_synced: bool) -> None:
    from pgdyno.record.frames import pl  # noqa: PLC0415

    # A transaction that failed or was skipped has no latency: null, not 0.
    table = pl.DataFrame(columns).with_columns(
        pl.when(pl.col("outcome") == TransactionOutcome.OK).then(pl.col("latency_us"))
    )
    # In memory first: on a full disk polars raises its own errors, or truncates the file without an error.
    content = io.BytesIO()
    table.write_parquet(
        content,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        statistics=False,
        metadata={
            _BASE_KEY: str(base_us),
            _SPAN_KEY: msgspec.json.encode(span).decode(),
            _SUM_KEY: (_SUM_MARK + _NO_SUM).decode(),
        },
    )
    part = bytearray(content.getvalue())
    _swap_sum(part, _find_sum(part))
    try:
        with path.open("wb") as file:
            file.write(part)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
    except OSError:
        # A leftover partial file would take space that other files need.
        path.unlink(missing_ok=True)
        raise


def _read_part(path: Path) -> TransactionBatch:
    from pgdyno.record.frames import pl  # noqa: PLC0415

    with _reading(path) as part:
        base_us = int(pl.read_parquet_metadata(part)[_BASE_KEY])
        table = pl.read_parquet(part)
        columns: _Columns = {name: table[name].fill_null(0).to_numpy().astype(np.int64) for name in table.columns}
        columns["number"] = np.cumsum(columns.pop("number_step"))
        columns["stamp_us"] = np.cumsum(columns.pop("stamp_step_us")) + base_us
        columns["outcome"] = columns["outcome"].astype(np.uint8)
        order = np.argsort(columns["stamp_us"], kind="stable")
        return TransactionBatch(**{name: values[order] for name, values in columns.items()})


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[io.BytesIO]:
    """Read a part's file, and raise ValueError if it is damaged, or if what decodes it in the block finds it so.

    Most flipped bits in a Parquet file would give other values without an error, and a few end the process. Parts of older
    records have no checksum.
    """
    from pgdyno.record.frames import DAMAGE  # noqa: PLC0415

    content = bytearray(path.read_bytes())
    try:
        if _SUM_MARK in content and _swap_sum(content, _NO_SUM) != _find_sum(content):
            raise ValueError("its checksum differs")
        yield io.BytesIO(content)
    except DAMAGE as exc:
        raise ValueError(f"{path} is not a part of packed transactions: {exc}") from exc


def _swap_sum(content: bytearray, new: bytes) -> bytes:
    """Replace the checksum in a part's metadata, and return what was there."""
    begin = content.rindex(_SUM_MARK) + len(_SUM_MARK)
    old = bytes(content[begin : begin + len(new)])
    content[begin : begin + len(new)] = new
    return old


def _find_sum(content: bytearray) -> bytes:
    """Return the checksum of a part without its own."""
    return b"%08x" % zlib.crc32(content)
