"""Loads of clients in a closed loop whose transactions take long, as pgbench would log them, and their logs in a record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import PART_FILE
from pgdyno.record.transactions.pack import TransactionPacker, write_summary
from pgdyno.record.transactions.parse import LogColumns, TransactionBatch, TransactionOutcome
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.transactions.tally import TransactionTally

EPOCH_S = 1_700_000_000.4
"""When each load starts. Its clients are connected some milliseconds later."""
CONNECTING_S = 0.02
CLIENTS = 8

DrawLatencies = Callable[[np.random.Generator, int], NDArray[np.float64]]
"""Draws so many latencies in seconds."""


def about(mean_s: float, sd_s: float = 0.08) -> DrawLatencies:
    """Latencies that are nearly alike."""
    return lambda draw, count: draw.normal(mean_s, sd_s, count)


def run_clients(
    latencies: DrawLatencies,
    seconds: float,
    *,
    seed: int,
    clients: int = CLIENTS,
    epoch_s: float = EPOCH_S,
    failed_ratio: float = 0.0,
    sampling_rate: float = 1.0,
) -> TransactionBatch:
    """Run clients that begin together; each begins transactions until the time is over, and ends the one that it is in."""
    draw = np.random.default_rng(seed)
    columns: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    for client in range(clients):
        latency_s = latencies(draw, 20)
        while CONNECTING_S + latency_s.sum() < 2 * seconds:
            latency_s = np.concatenate([latency_s, latencies(draw, 20)])
        end_s = CONNECTING_S + np.cumsum(latency_s)
        is_begun = end_s - latency_s < seconds
        latency_us = np.round(latency_s[is_begun] * 1e6).astype(np.int64)
        end_us = np.round((epoch_s + end_s[is_begun]) * 1e6).astype(np.int64)
        columns.append((np.full(len(end_us), client), latency_us, end_us))
    client_number, latency_us, end_us = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(end_us, kind="stable")
    order = order[draw.random(len(order)) < sampling_rate]
    is_failed = draw.random(len(order)) < failed_ratio
    return TransactionBatch(
        client=client_number[order],
        number=np.arange(len(order)),
        script=np.zeros(len(order), dtype=np.int64),
        # The log has no latency of one that failed.
        latency_us=np.where(is_failed, 0, latency_us[order]),
        outcome=np.where(is_failed, TransactionOutcome.FAILED, TransactionOutcome.OK).astype(np.uint8),
        stamp_us=end_us[order],
    )


def summarise(
    batch: TransactionBatch,
    *,
    columns: LogColumns = LogColumns.PLAIN,
    sampling_rate: float = 1.0,
    latency_limit_us: int | None = None,
) -> TransactionSummary:
    tally = TransactionTally(columns=columns, sampling_rate=sampling_rate, latency_limit_us=latency_limit_us)
    tally.add(batch)
    return tally.summary()


def write_log(folder: Path, batch: TransactionBatch, summary: TransactionSummary) -> None:
    """Write the transactions of a pgbench below its folder."""
    packer = TransactionPacker(folder / "transactions")
    packer.add(batch)
    packer.close()
    write_summary(folder / "transactions", summary)


def write_part(folder: Path, part: LoadPart) -> LoadPart:
    """Write what is known of one of several pgbenches into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PART_FILE).write_bytes(msgspec.json.encode(part))
    return part
