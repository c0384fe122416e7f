"""Find the transaction logs of all pgbenches of a trial, and read them with their stamps on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pgdyno.record.generators.merge import merge_transactions, shift_scripts
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import find_clock_offset_s, find_part_folders, read_part, read_part_clock
from pgdyno.record.transactions.pack import read_packed, read_summary
from pgdyno.record.transactions.parse import TransactionOutcome
from pgdyno.record.transactions.summary import TransactionSummary


class LoadLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one pgbench."""

    folder: Path
    """The folder of its packed transactions."""
    part: LoadPart | None
    """None of the only pgbench of a trial, on the machine that pgdyno ran on."""
    behind_s: float
    """By how much its stamps are behind those of the trial's clock."""


class ScheduleEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Where the schedule of one pgbench of a load at a rate ended."""

    last_epoch_s: float
    """Last scheduled start that it took, in seconds since the Unix epoch, by the trial's clock."""
    share_ratio: float
    """Its share of the load's rate."""


def list_logs(folder: Path, transactions: str, *, clock_offset_s: float) -> tuple[LoadLog, ...]:
    """List the logs of a trial.

    Args:
        folder: The trial's.
        transactions: Name of the folder of packed transactions.
        clock_offset_s: From the CLOCK_MONOTONIC of the machine that pgdyno ran on to the stamps that are wanted.

    Raises:
        OSError: What is known of a load host cannot be read.
        ValueError: It is damaged.
    """
    parts = [(place, read_part(place)) for place in find_part_folders(folder)]
    if not parts:
        return (LoadLog(folder=folder / transactions, part=None, behind_s=0.0),)
    return tuple(find_log(place, part, transactions, clock_offset_s=clock_offset_s) for place, part in parts)


def find_log(folder: Path, part: LoadPart, transactions: str, *, clock_offset_s: float) -> LoadLog:
    """Find the log of one of several pgbenches. `folder` is its own; the rest is as for `list_logs`."""
    behind_s = clock_offset_s - find_clock_offset_s(part, read_part_clock(folder, part))
    return LoadLog(folder=folder / transactions, part=part, behind_s=behind_s)


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


def read_schedule_ends(logs: Sequence[LoadLog], *, latency_limit_ms: float) -> tuple[ScheduleEnd, ...]:
    """Return where the schedule of each pgbench of a load ended.

    With `--rate`, pgbench takes the next scheduled start when a client is free. Starts for which no client was free
    before the load ended appear neither in its counts nor in its log. Only the last one that it took shows how many are
    missing, which distinguishes a load that fell behind from one that was slow now and then.

    Args:
        logs: Of a trial that ran with a rate and a latency limit.
        latency_limit_ms: A skipped transaction was scheduled at least this long before its stamp.

    Raises:
        OSError: The transactions or their summary cannot be read.
        ValueError: They are damaged, the log's reader did not come to its end, or there are none.
    """
    clients = [1 if log.part is None else log.part.clients for log in logs]
    return tuple(
        ScheduleEnd(
            last_epoch_s=_find_last_scheduled_s(log.folder, latency_limit_ms) + log.behind_s,
            share_ratio=count / sum(clients),
        )
        for log, count in zip(logs, clients, strict=True)
    )


def _find_last_scheduled_s(folder: Path, latency_limit_ms: float) -> float:
    summary = read_summary(folder)
    logged_count = summary.ok_count + summary.failed_count + summary.skipped_count
    packed_count = last_us = 0
    for batch in read_packed(folder):
        packed_count += len(batch)
        skipped = batch.outcome == TransactionOutcome.SKIPPED
        scheduled_us = batch.stamp_us - batch.latency_us
        scheduled_us[skipped] -= round(latency_limit_ms * 1000)
        last_us = max(last_us, int(scheduled_us.max(initial=0)))
    if packed_count < logged_count:
        raise ValueError(f"{folder} has {packed_count} of the {logged_count} transactions that were logged")
    if not last_us:
        raise ValueError("no transaction was logged")
    return last_us / 1e6
