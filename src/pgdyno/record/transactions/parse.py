"""Parse pgbench's per-transaction log in whole blocks, and account for every byte of a block.

A line is `client_id transaction_no time script_no time_epoch time_us [schedule_lag] [retries]`, where `time` is a word
such as `failed` for a transaction without a latency. The optional columns depend on pgbench's arguments and cannot be
distinguished by the line itself, so the caller names them.

Sources: PostgreSQL manual, pgbench, "Per-Transaction Logging"; src/bin/pgbench/pgbench.c, doLog() and
getResultString(), the same in 15 to 18; logs of 15 and 18 in tests/data/txlog.

Parsing is vectorised on the bytes with numpy: it finds all separators at once, then takes each field as the eight bytes
before its end, and converts them to a number by three multiplications. One core took 80 ns a line for all columns and
every check; polars' CSV reader took 70 to 80 ns without the checks, and pads or guesses where a block is not a grid of
digits. Such a block is parsed again line by line: malformed lines are counted, the first is kept, none is repaired.
"""

from __future__ import annotations

import enum
import re
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 1 << 19
"""Size of a block whose work arrays fit the second-level cache; blocks of 4 MB took three times as long per line."""

_LONGEST_LINE_BYTES = 4096
_FRONT = b"0" * 16


class LogColumns(enum.StrEnum):
    """The optional columns of the log: the schedule lag with `--rate`, the retries with `--max-tries` other than 1."""

    PLAIN = "plain"
    LAG = "lag"
    RETRIES = "retries"
    LAG_AND_RETRIES = "lag and retries"

    @property
    def with_lag(self) -> LogColumns:
        """The same columns, and the schedule lag."""
        return LogColumns.LAG_AND_RETRIES if "retries" in self.value else LogColumns.LAG

    @property
    def has_lag(self) -> bool:
        """True if the schedule lag is one of them."""
        return self in {LogColumns.LAG, LogColumns.LAG_AND_RETRIES}

    @property
    def fields(self) -> tuple[str, ...]:
        """All columns of a line, in their order."""
        lag = ("lag_us",) if self.has_lag else ()
        retries = ("retries",) if self in {LogColumns.RETRIES, LogColumns.LAG_AND_RETRIES} else ()
        return ("client", "number", "latency_us", "script", "epoch_s", "us", *lag, *retries)


class TransactionOutcome(enum.IntEnum):
    """Outcome of a transaction. FAILED is pgbench's only word for it without `--failures-detailed`."""

    OK = 0
    FAILED = 1
    SERIALIZATION = 2
    DEADLOCK = 3
    SKIPPED = 4


_WORDS = {
    TransactionOutcome.FAILED: b"failed",
    TransactionOutcome.SERIALIZATION: b"serialization",
    TransactionOutcome.DEADLOCK: b"deadlock",
    TransactionOutcome.SKIPPED: b"skipped",
}

# Least and greatest number of digits. Ten digits of epoch cover 2001 to 2286; twelve of microseconds are eleven days.
_WIDTHS = {
    "client": (1, 9),
    "number": (1, 16),
    "latency_us": (1, 12),
    "script": (1, 4),
    "epoch_s": (10, 10),
    "us": (1, 6),
    "lag_us": (1, 12),
    "retries": (1, 9),
}


class TransactionBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions as columns of equal length, in the order of the log.

    `stamp_us` is the end of the transaction in microseconds since the Unix epoch. `latency_us` is valid only where
    `outcome` is OK and is 0 elsewhere; with `--rate` it counts from the scheduled start. An optional column that was
    not logged is None.
    """

    client: NDArray[np.int64]
    number: NDArray[np.int64]
    latency_us: NDArray[np.int64]
    outcome: NDArray[np.uint8]
    script: NDArray[np.int64]
    stamp_us: NDArray[np.int64]
    lag_us: NDArray[np.int64] | None = None
    retries: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.stamp_us)

    def choose(self, rows: NDArray[np.bool_]) -> TransactionBatch:
        """Return the transactions of some rows."""
        columns: dict[str, Any] = {
            name: None if values is None else values[rows] for name, values in msgspec.structs.asdict(self).items()
        }
        return TransactionBatch(**columns)


class ParsedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The transactions of a block, and its malformed lines."""

    batch: TransactionBatch
    malformed_count: int = 0
    first_malformed: bytes | None = None


class LineCutter:
    """A splitter of a byte stream into blocks of whole lines; what follows the last newline waits in `rest`."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the whole lines so far, possibly none.

        Bytes without a newline that exceed the longest possible line are returned as one (malformed) line, so that a
        file that is not a log cannot fill the memory.
        """
        end = data.rfind(b"\n") + 1
        if end:
            lines, self.rest = self.rest + data[:end], data[end:]
            return lines
        self.rest += data
        if len(self.rest) <= _LONGEST_LINE_BYTES:
            return b""
        lines, self.rest = self.rest + b"\n", b""
        return lines


def parse_block(block: bytes, columns: LogColumns) -> ParsedBlock:
    """Parse whole lines; a malformed line is counted and left out.

    Args:
        block: Lines, each with its newline, in total about BLOCK_BYTES.
        columns: The columns that pgbench was asked to log.
    """
    batch = _parse_grid(block, columns)
    if batch is not None:
        return ParsedBlock(batch=batch)
    pattern = _line_pattern(columns)
    good: list[bytes] = []
    malformed: list[bytes] = []
    for line in block.removesuffix(b"\n").split(b"\n"):  # splitlines() would cut at other bytes too
        (good if pattern.fullmatch(line) else malformed).append(line)
    batch = _parse_grid(b"".join(line + b"\n" for line in good), columns)
    if batch is None:
        raise AssertionError("lines of the right form do not parse")
    first = malformed[0][:200] if malformed else None
    return ParsedBlock(batch=batch, malformed_count=len(malformed), first_malformed=first)


def _line_pattern(columns: LogColumns) -> re.Pattern[bytes]:
    parts = {name: rb"[0-9]{%d,%d}" % _WIDTHS[name] for name in columns.fields}
    parts["latency_us"] = b"(?:" + b"|".join((parts["latency_us"], *_WORDS.values())) + b")"
    return re.compile(b" ".join(parts.values()))


def _parse_grid(block: bytes, columns: LogColumns) -> TransactionBatch | None:
    """Parse the block into columns; return None if any byte is out of place."""
    fields = columns.fields
    text = np.frombuffer(_FRONT + block, dtype=np.uint8)
    marks = np.flatnonzero(text < ord("0"))
    if len(marks) % len(fields):
        return None
    separators = np.array([ord(" ")] * (len(fields) - 1) + [ord("\n")], dtype=np.uint8)
    if text[-1] != ord("\n") and block:
        return None
    if not (text[marks].reshape(-1, len(fields)) == separators).all():
        return None
    # One contiguous row for each field: reductions along rows are thirty times as fast as along columns.
    ends = np.ascontiguousarray(marks.reshape(-1, len(fields)).T)
    widths = np.ascontiguousarray(np.diff(marks, prepend=len(_FRONT) - 1).reshape(-1, len(fields)).T) - 1
    words = np.ndarray((len(text) - 7,), dtype="<u8", buffer=text.data, strides=(1,))
    outcome = _parse_outcomes(text, words, ends[2], widths[2])
    if outcome is None or not _has_right_widths(widths, fields, outcome):
        return None
    numbers = {name: _parse_digits(words, ends[i], widths[i]) for i, name in enumerate(fields)}
    return TransactionBatch(
        client=numbers["client"],
        number=numbers["number"],
        latency_us=np.where(outcome == TransactionOutcome.OK, numbers["latency_us"], 0),
        outcome=outcome,
        script=numbers["script"],
        stamp_us=numbers["epoch_s"] * 1_000_000 + numbers["us"],
        lag_us=numbers.get("lag_us"),
        retries=numbers.get("retries"),
    )


def _parse_outcomes(
    text: NDArray[np.uint8], words: NDArray[np.uint64], ends: NDArray[np.int64], widths: NDArray[np.int64]
) -> NDArray[np.uint8] | None:
    """Parse the outcome of each line from its third field; return None if the block has other bytes above '9'."""
    outcome = np.zeros(len(ends), dtype=np.uint8)
    if not len(ends) or int(text.max()) <= ord("9"):
        return outcome
    lettered = 0
    for kind, word in _WORDS.items():
        rows = np.flatnonzero(widths == len(word))
        for offset in range(0, len(word), 8):
            part = word[offset : offset + 8]
            seen = words[ends[rows] - len(word) + offset] << np.uint64(64 - 8 * len(part))
            rows = rows[seen == int.from_bytes(part.rjust(8, b"\0"), "little")]
        outcome[rows] = kind
        lettered += len(rows) * len(word)
    return outcome if lettered == np.count_nonzero(text > ord("9")) else None


def _has_right_widths(widths: NDArray[np.int64], fields: tuple[str, ...], outcome: NDArray[np.uint8]) -> bool:
    if not len(outcome):
        return True
    limits = np.array([_WIDTHS[name] for name in fields])
    least, most = widths.min(axis=1), widths.max(axis=1)
    if outcome.any():
        most[2] = np.max(widths[2], where=outcome == TransactionOutcome.OK, initial=0)
    return bool((least >= limits[:, 0]).all() and (most <= limits[:, 1]).all())


def _parse_digits(words: NDArray[np.uint64], ends: NDArray[np.int64], widths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Parse numbers of up to 16 digits that end before `ends`."""
    low = _parse_eight(words[ends - 8], widths)
    if int(widths.max(initial=0)) <= 8:
        return low
    return low + 100_000_000 * _parse_eight(words[ends - 16], np.maximum(widths - 8, 0))


def _parse_eight(word: NDArray[np.uint64], widths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Parse the number in the last `widths` (at most 8) of the eight ASCII digits of each little-endian word.

    Source: D. Lemire 2022, "Quickly parsing eight digits": pairs, then fours, then eights, in one register.
    """
    foreign_bits = (8 * (8 - np.minimum(widths, 8))).astype(np.uint64)
    digits = ((word ^ np.uint64(0x3030303030303030)) >> foreign_bits) << foreign_bits
    pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
    mask = np.uint64(0x000000FF000000FF)
    high = (pairs & mask) * np.uint64(0x000F424000000064)
    low = ((pairs >> np.uint64(16)) & mask) * np.uint64(0x0000271000000001)
    return ((high + low) >> np.uint64(32)).astype(np.int64)
