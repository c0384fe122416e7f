"""Find the transaction logs of all pgbenches of a trial, and read them with their stamps on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.record.generators.merge import merge_transactions, shift_scripts
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import find_clock_offset_s, find_part_folders, read_part, read_part_clock
from pgdyno.record.transactions.pack import TRANSACTIONS_DIR, read_packed, read_summary
from pgdyno.record.transactions.parse import TransactionOutcome
from pgdyno.record.transactions.summary import TransactionSummary

Ints = NDArray[np.int64]

# If a sample has nothing of a thread for this many mean gaps, the thread took nothing: by chance that happens once in 20,000.
_GAPS_OF_CHANCE = 10


class LoadLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one pgbench."""

    folder: Path
    """The folder of its packed transactions."""
    part: LoadPart | None
    """None of the only pgbench of a trial, on the machine that pgdyno ran on."""
    behind_s: float
    """By how much its stamps are behind those of the trial's clock."""


class ScheduleEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Where a schedule of a load at a rate ended: each thread of each pgbench has one. Times are of the trial's clock."""

    last_epoch_s: float
    """Last scheduled start that a client took, in seconds since the Unix epoch; 0 if none was taken. Where the log is a sample, that of
    all threads of its pgbench, unless this one took none for long."""
    free_epoch_s: float | None
    """When the first of its clients was done for good, and could have taken the next start; 0 of one that took none. None where
    the log is a sample, which does not tell."""
    share_ratio: float
    """Its share of the load's rate."""

    def fell_behind_at(self, end_epoch_s: float) -> bool:
        """Return whether starts may have been due and not taken when the load ended: all its clients were busy, or it is not known."""
        return self.free_epoch_s is None or self.free_epoch_s >= end_epoch_s


def list_logs(folder: Path, *, clock_offset_s: float) -> tuple[LoadLog, ...]:
    """List the logs of a trial.

    Args:
        folder: The trial's.
        clock_offset_s: From the CLOCK_MONOTONIC of the machine that pgdyno ran on to the stamps that are wanted.

    Raises:
        OSError: What is known of a load host cannot be read.
        ValueError: It is damaged.
    """
    parts = [(place, read_part(place)) for place in find_part_folders(folder)]
    if not parts:
        return (LoadLog(folder=folder / TRANSACTIONS_DIR, part=None, behind_s=0.0),)
    return tuple(find_log(place, part, clock_offset_s=clock_offset_s) for place, part in parts)


def find_log(folder: Path, part: LoadPart, *, clock_offset_s: float) -> LoadLog:
    """Find the log of one of several pgbenches. `folder` is its own; the rest is as for `list_logs`."""
    behind_s = clock_offset_s - find_clock_offset_s(part, read_part_clock(folder, part))
    return LoadLog(folder=folder / TRANSACTIONS_DIR, part=part, behind_s=behind_s)


def read_transactions(logs: Sequence[LoadLog]) -> TransactionSummary:
    """Read the transactions of all pgbenches of a load.

    Raises:
        OSError, ValueError: As for `read_own_transactions`.
    """
    summary = merge_transactions([(_read_log(log), log.behind_s) for log in logs])
    _ = summary.series
    return summary


def _read_log(log: LoadLog) -> TransactionSummary:
    summary = read_own_transactions(log.folder)
    return summary if log.part is None else shift_scripts(log.part, summary)


def read_own_transactions(folder: Path) -> TransactionSummary:
    """Read the transactions of one pgbench, as it numbered and stamped them.

    Raises:
        OSError: The summary cannot be read.
        ValueError: It is damaged, or a newer pgdyno wrote it.
    """
    summary = read_summary(folder)
    # Histograms are unpacked lazily: unpack them here, so that damage is found now and not in an analysis.
    summary.latency()
    _ = summary.series
    return summary


def read_schedule_ends(
    logs: Sequence[LoadLog], *, latency_limit_ms: float, clients: int, threads: int
) -> tuple[ScheduleEnd, ...]:
    """Return where each schedule of a load ended: those of the threads of all its pgbenches.

    With `--rate`, a client of a thread takes the thread's next scheduled start when it is free. Starts for which no client was free
    before the load ended appear neither in pgbench's counts nor in its log. Only the last one that was taken shows how many are
    missing, which distinguishes a load that fell behind from one that was slow now and then. Where a client was free, none is.

    Args:
        logs: Of a trial that ran with a rate and a latency limit.
        latency_limit_ms: A skipped transaction was scheduled at least this long before its stamp.
        clients: Of the load.
        threads: Of the load. Those of one of several pgbenches are known of its part.

    Raises:
        OSError: The transactions or their summary cannot be read.
        ValueError: They are damaged, the log's reader did not come to its end, or there are none.
    """
    sizes = [(clients, threads) if log.part is None else (log.part.clients, log.part.threads) for log in logs]
    total = sum(count for count, _ in sizes)
    return tuple(
        end
        for log, (count, of_threads) in zip(logs, sizes, strict=True)
        for end in _read_ends(log, latency_limit_ms, _deal_clients(count, of_threads), share_ratio=count / total)
    )


def _deal_clients(clients: int, threads: int) -> Ints:
    """Return the thread of each client. Source: main() in src/bin/pgbench/pgbench.c, the same in 15 to 18."""
    threads, dealt = min(threads, clients), 0
    thread_of = np.zeros(clients, dtype=np.int64)
    for thread in range(threads):
        count = (clients - dealt + threads - thread - 1) // (threads - thread)
        thread_of[dealt : dealt + count] = thread
        dealt += count
    return thread_of


def _read_ends(log: LoadLog, latency_limit_ms: float, thread_of: Ints, *, share_ratio: float) -> list[ScheduleEnd]:
    """Read where the schedules of one pgbench ended, whose threads share its rate alike, however many clients they have."""
    summary = read_summary(log.folder)
    logged_count = summary.ok_count + summary.failed_count + summary.skipped_count
    threads, packed_count, first_us = int(thread_of[-1]) + 1, 0, np.iinfo(np.int64).max
    last_us, done_us = np.zeros(threads, dtype=np.int64), np.zeros_like(thread_of)
    for batch in read_packed(log.folder):
        packed_count += len(batch)
        skipped = batch.outcome == TransactionOutcome.SKIPPED
        scheduled_us = batch.stamp_us - batch.latency_us
        scheduled_us[skipped] -= round(latency_limit_ms * 1000)
        first_us = min(first_us, int(scheduled_us.min(initial=first_us)))
        client = np.minimum(batch.client, len(thread_of) - 1)
        np.maximum.at(last_us, thread_of[client], scheduled_us)
        np.maximum.at(done_us, client, batch.stamp_us)
    if packed_count < logged_count:
        raise ValueError(f"{log.folder} has {packed_count} of the {logged_count} transactions that were logged")
    if not packed_count:
        raise ValueError("no transaction was logged")
    if summary.sampling_rate < 1.0:
        mean_gap_us = threads * (last_us.max() - first_us) / packed_count
        last_us = _pool_sampled(np.maximum(last_us, first_us), mean_gap_us=mean_gap_us)
    free_us = [int(done_us[thread_of == thread].min()) for thread in range(threads)]
    return [
        ScheduleEnd(
            last_epoch_s=_put_on_clock(last, log),
            free_epoch_s=_put_on_clock(free, log) if summary.sampling_rate == 1.0 else None,
            share_ratio=share_ratio / threads,
        )
        for last, free in zip(last_us.tolist(), free_us, strict=True)
    ]


def _pool_sampled(last_us: Ints, *, mean_gap_us: float) -> Ints:
    """Return the last start of each thread as a sample shows it: the last of all threads, unless its own gap is too long for chance."""
    is_chance = last_us.max() - last_us <= _GAPS_OF_CHANCE * mean_gap_us
    return np.where(is_chance, last_us.max(), last_us)


def _put_on_clock(stamp_us: int, log: LoadLog) -> float:
    return stamp_us / 1e6 + log.behind_s if stamp_us else 0.0
