"""Whole transaction logs at once, as a yardstick for what reads them while they grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pgdyno.record.transactions.pack import PackedLog, TransactionPacker, read_packed
from pgdyno.record.transactions.parse import BLOCK_BYTES, LineCutter, LogColumns, TransactionBatch, parse_block
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.transactions.tally import TransactionTally


def read_log(path: Path, columns: LogColumns, tally: TransactionTally) -> Iterator[TransactionBatch]:
    """Read one log file block by block into `tally`, and hand on each batch.

    Raises:
        OSError: The file cannot be read.
    """
    cutter = LineCutter()
    with path.open("rb", buffering=0) as file:
        while data := file.read(BLOCK_BYTES):
            parsed = parse_block(cutter.feed(data), columns)
            tally.add_block(parsed)
            yield parsed.batch
    tally.add_rest(cutter.rest)


def summarise_logs(
    paths: Iterable[Path], *, columns: LogColumns, sampling_rate: float = 1.0, latency_limit_us: int | None = None
) -> TransactionSummary:
    """The summary of the logs of one run, one file for each pgbench thread.

    Raises:
        OSError: A file cannot be read.
    """
    tally = TransactionTally(columns=columns, sampling_rate=sampling_rate, latency_limit_us=latency_limit_us)
    for path in paths:
        for _ in read_log(path, columns, tally):
            pass
    return tally.summary()


def pack_transactions(
    paths: Iterable[Path],
    folder: Path,
    *,
    columns: LogColumns,
    sampling_rate: float = 1.0,
    latency_limit_us: int | None = None,
) -> tuple[TransactionSummary, PackedLog]:
    """Pack the logs of one run into parts under `folder`, and summarise them on the way, in bounded memory.

    Raises:
        OSError: A log cannot be read, or the parts cannot be written.
        FileExistsError: The folder already holds parts.
    """
    packer = TransactionPacker(folder)
    tally = TransactionTally(columns=columns, sampling_rate=sampling_rate, latency_limit_us=latency_limit_us)
    for path in paths:
        for batch in read_log(path, columns, tally):
            packer.add(batch)
    return tally.summary(), packer.close()


def summarise_packed(
    folder: Path, *, columns: LogColumns, sampling_rate: float = 1.0, latency_limit_us: int | None = None
) -> TransactionSummary:
    """The summary of packed transactions: that of their logs, but for lines that were malformed or cut.

    Raises:
        FileNotFoundError: The folder holds no part.
        OSError: A part cannot be read.
        ValueError: A part is not one that `TransactionPacker` wrote.
    """
    tally = TransactionTally(columns=columns, sampling_rate=sampling_rate, latency_limit_us=latency_limit_us)
    for batch in read_packed(folder):
        tally.add(batch)
    return tally.summary()
