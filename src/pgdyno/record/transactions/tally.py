"""Tally a transaction log: one pass over its transactions gives their `TransactionSummary`.

Memory does not grow with the number of transactions: a histogram is kept for each script, and for each second a few
counters and a histogram deflated to about 700 bytes. The seconds may arrive in any order and more than once, which
happens when the threads' logs are read one after the other. Malformed and cut lines are counted, never repaired.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from pgdyno.record.transactions.histogram import LatencyHistogram
from pgdyno.record.transactions.parse import LogColumns, ParsedBlock, TransactionBatch, TransactionOutcome
from pgdyno.record.transactions.summary import SUMMARY_VERSION, ScriptSummary, SecondSummary, TransactionSummary

_OPEN_SECONDS = 64
"""Seconds whose histograms stay inflated (42 kB each); running threads are rarely further apart than this."""


class _Tally:
    """Running counters of one script or one second."""

    __slots__ = ("histogram", "late_count", "outcome_counts")

    def __init__(self) -> None:
        self.histogram = LatencyHistogram()
        self.outcome_counts = np.zeros(len(TransactionOutcome), dtype=np.int64)
        self.late_count = 0

    def add(self, latency_us: NDArray[np.int64], outcome: NDArray[np.uint8], limit_us: int | None) -> None:
        if outcome.any():
            self.outcome_counts += np.bincount(outcome, minlength=len(TransactionOutcome))
            latency_us = latency_us[outcome == TransactionOutcome.OK]
        else:
            self.outcome_counts[TransactionOutcome.OK] += len(outcome)
        self.histogram.add(latency_us)
        if limit_us is not None:
            self.late_count += int(np.count_nonzero(latency_us > limit_us))


class TransactionTally:
    """An accumulator that takes batches of transactions and returns their `TransactionSummary` at the end.

    Args:
        columns: The columns that pgbench was asked to log.
        sampling_rate: pgbench's `--sampling-rate`, in (0, 1].
        latency_limit_us: pgbench's `--latency-limit`, for counting late transactions; None without one.
    """

    def __init__(self, *, columns: LogColumns, sampling_rate: float = 1.0, latency_limit_us: int | None = None) -> None:
        if not 0.0 < sampling_rate <= 1.0:
            raise ValueError(f"sampling rate {sampling_rate} is outside (0, 1]")
        self._columns = columns
        self._sampling_rate = sampling_rate
        self._limit_us = latency_limit_us
        self._scripts: dict[int, _Tally] = {}
        self._open: dict[int, _Tally] = {}
        self._sealed: dict[int, SecondSummary] = {}
        self._first_us: int | None = None
        self._last_us: int | None = None
        self._retried_count = self._retries_count = 0
        self._malformed_count = self._cut_count = self._early_count = 0
        self._first_malformed: str | None = None

    def add_block(self, parsed: ParsedBlock) -> None:
        """Add a parsed block with its malformed lines."""
        self._malformed_count += parsed.malformed_count
        if self._first_malformed is None and parsed.first_malformed is not None:
            self._first_malformed = parsed.first_malformed.decode(errors="backslashreplace")
        self.add(parsed.batch)

    def add_rest(self, rest: bytes) -> None:
        """Count what follows the last newline of a log as a cut line, unless it is empty."""
        self._cut_count += bool(rest)

    def add_early(self, batch: TransactionBatch) -> None:
        """Count transactions that began before all clients of the load were let go, and leave them out."""
        self._early_count += int(np.count_nonzero(batch.outcome == TransactionOutcome.OK))

    def add(self, batch: TransactionBatch) -> None:
        """Add transactions in any order; the order of time is the fastest."""
        if not len(batch):
            return
        low, high = int(batch.stamp_us.min()), int(batch.stamp_us.max())
        self._first_us = low if self._first_us is None else min(low, self._first_us)
        self._last_us = high if self._last_us is None else max(high, self._last_us)
        if batch.retries is not None:
            self._retried_count += int(np.count_nonzero(batch.retries))
            self._retries_count += int(batch.retries.sum())
        least, most = int(batch.script.min()), int(batch.script.max())
        for script in [least] if least == most else np.unique(batch.script).tolist():
            rows = slice(None) if least == most else batch.script == script
            tally = self._scripts.setdefault(script, _Tally())
            tally.add(batch.latency_us[rows], batch.outcome[rows], self._limit_us)
        seconds = batch.stamp_us // 1_000_000
        edges = [0, *(np.flatnonzero(seconds[1:] != seconds[:-1]) + 1).tolist(), len(seconds)]
        for start, stop in itertools.pairwise(edges):
            second = self._second(int(seconds[start]))
            second.add(batch.latency_us[start:stop], batch.outcome[start:stop], self._limit_us)

    def summary(self) -> TransactionSummary:
        """Return the summary of everything added so far."""
        for epoch_s in list(self._open):
            self._seal(epoch_s)
        has_retries = "retries" in self._columns.fields
        return TransactionSummary(
            version=SUMMARY_VERSION,
            columns=self._columns,
            sampling_rate=self._sampling_rate,
            latency_limit_us=self._limit_us,
            first_stamp_us=self._first_us,
            last_stamp_us=self._last_us,
            retried_count=self._retried_count if has_retries else None,
            retries_count=self._retries_count if has_retries else None,
            malformed_lines_count=self._malformed_count,
            first_malformed_line=self._first_malformed,
            cut_lines_count=self._cut_count,
            scripts=tuple(
                self._script_summary(n) for n in sorted(self._scripts) if self._scripts[n].outcome_counts.any()
            ),
            seconds=tuple(self._sealed[epoch_s] for epoch_s in sorted(self._sealed)),
            early_count=self._early_count,
        )

    def _second(self, epoch_s: int) -> _Tally:
        tally = self._open.pop(epoch_s, None)
        if tally is None:
            tally = _Tally()
            if len(self._open) >= _OPEN_SECONDS:
                self._seal(next(iter(self._open)))
        self._open[epoch_s] = tally  # the least recently used stays first
        return tally

    def _seal(self, epoch_s: int) -> None:
        tally = self._open.pop(epoch_s)
        counts = tally.outcome_counts
        failed = int(
            counts[[TransactionOutcome.FAILED, TransactionOutcome.SERIALIZATION, TransactionOutcome.DEADLOCK]].sum()
        )
        skipped, late = int(counts[TransactionOutcome.SKIPPED]), tally.late_count
        before = self._sealed.get(epoch_s)
        if before is not None:
            tally.histogram.merge(LatencyHistogram.from_bytes(before.histogram))
            failed, skipped, late = (
                failed + before.failed_count,
                skipped + before.skipped_count,
                late + (before.late_count or 0),
            )
        self._sealed[epoch_s] = SecondSummary(
            epoch_s=epoch_s,
            failed_count=failed,
            skipped_count=skipped,
            late_count=late if self._limit_us is not None else None,
            histogram=tally.histogram.to_bytes(),
        )

    def _script_summary(self, script: int) -> ScriptSummary:
        tally = self._scripts[script]
        counts = {outcome: int(tally.outcome_counts[outcome]) for outcome in TransactionOutcome}
        return ScriptSummary(
            script=script,
            ok_count=counts[TransactionOutcome.OK],
            failed_count=counts[TransactionOutcome.FAILED],
            serialization_count=counts[TransactionOutcome.SERIALIZATION],
            deadlock_count=counts[TransactionOutcome.DEADLOCK],
            skipped_count=counts[TransactionOutcome.SKIPPED],
            late_count=tally.late_count if self._limit_us is not None else None,
            histogram=tally.histogram.to_bytes(),
        )
