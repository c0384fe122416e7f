"""Loads of clients in a closed loop, such as those whose transactions take long, as pgbench would log them, and trials of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.trial.analysis import measure_trial
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import LOADS_DIR, PART_FILE
from pgdyno.record.store import open_record
from pgdyno.record.transactions.pack import TransactionPacker, write_summary
from pgdyno.record.transactions.parse import LogColumns, TransactionBatch, TransactionOutcome
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.transactions.tally import TransactionTally
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import StudyRecord, TrialRecord
from tests.records import RECORDS

EPOCH_S = 1_700_000_000.4
"""When each load starts. Its clients are connected some milliseconds later."""
START_S = 5000.0
"""The same on CLOCK_MONOTONIC."""
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


@functools.cache
def read_stored() -> tuple[StudyRecord, TrialRecord]:
    store = open_record(RECORDS / "v1-pg18")
    return store.read_record(), store.read_trials()[0]


def make_trial(seconds: float, **changes: object) -> TrialRecord:
    """A trial that starts at EPOCH_S."""
    _, trial = read_stored()
    planned = msgspec.structs.replace(trial.planned, duration_s=float(seconds), warm_up_s=0.0)
    return msgspec.structs.replace(
        trial,
        planned=planned,
        load_start_monotonic_s=START_S,
        load_end_monotonic_s=START_S + seconds + 1.0,
        clock_offset_s=EPOCH_S - START_S,
        **changes,
    )


def analyse(data: TrialData, *, clients: int = CLIENTS, rate_tps: float | None = None) -> TrialAnalysis:
    record, _ = read_stored()
    load = msgspec.structs.replace(record.plan.workloads[0], clients=clients, rate_tps=rate_tps)
    return measure_trial(record, load, data)


def make_part(name: str, *, endpoint: str | None = None, epoch_offset_s: float = EPOCH_S - START_S) -> LoadPart:
    return LoadPart(
        host=name,
        argv=("pgbench",),
        pid=1,
        clients=CLIENTS,
        threads=1,
        start_far_s=START_S,
        epoch_offset_s=epoch_offset_s,
        release_near_s=START_S,
        end_far_s=START_S + 60.0,
        endpoint=endpoint,
        part="" if endpoint is None else name,
    )


def add_part(folder: Path, part: LoadPart, batch: TransactionBatch) -> LoadPart:
    place = folder / LOADS_DIR / part.folder_name
    write_log(place, batch, summarise(batch))
    return write_part(place, part)
