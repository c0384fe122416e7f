"""Where pgbench's schedule ended, read back from packed transactions."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.record.generators.logs import LoadLog, read_schedule_ends
from pgdyno.record.transactions.pack import SUMMARY_FILE, find_parts
from pgdyno.record.transactions.parse import TransactionBatch, TransactionOutcome
from tests.long_loads import summarise, write_log

START_US = 1_700_000_000_000_000


def pack(
    folder: Path,
    *transactions: tuple[int, int, TransactionOutcome],
    clients: Sequence[int] | None = None,
    sampling_rate: float = 1.0,
) -> list[LoadLog]:
    """Each with its end after the start, its latency, and how it ended; of these clients, or of one."""
    stamps, latencies, outcomes = (np.array(column) for column in zip(*transactions, strict=True))
    count = len(stamps)
    batch = TransactionBatch(
        client=np.array(clients or [0] * count, dtype=np.int64),
        number=np.arange(count, dtype=np.int64),
        latency_us=latencies.astype(np.int64),
        outcome=outcomes.astype(np.uint8),
        script=np.zeros(count, dtype=np.int64),
        stamp_us=START_US + stamps.astype(np.int64),
        lag_us=np.zeros(count, dtype=np.int64),
    )
    write_log(folder, batch, msgspec.structs.replace(summarise(batch), sampling_rate=sampling_rate))
    return [LoadLog(folder=folder / "transactions", part=None, behind_s=0.0)]


def find_last_s(logs: list[LoadLog]) -> float:
    (end,) = read_schedule_ends(logs, latency_limit_ms=20.0, clients=1, threads=1)
    assert end.share_ratio == 1.0
    return end.last_epoch_s


def test_a_late_end_is_no_late_start(tmp_path: Path) -> None:
    logs = pack(
        tmp_path,
        (1_000_000, 2_000, TransactionOutcome.OK),
        (9_000_000, 8_500_000, TransactionOutcome.OK),
        (2_000_000, 1_000, TransactionOutcome.OK),
    )
    assert find_last_s(logs) == pytest.approx((START_US + 1_999_000) / 1e6, abs=1e-6)


@pytest.mark.parametrize("sampling_rate", [1.0, 0.5])
def test_each_thread_has_a_schedule_of_its_own_at_a_like_share(tmp_path: Path, sampling_rate: float) -> None:
    """Clients 0 and 1 are of the first thread, 2 and 3 of the second, which has one that took nothing, and 4 of the third, which hangs."""
    ok, end_us = TransactionOutcome.OK, START_US + 10_000_000
    logs = pack(
        tmp_path,
        (6_000_000, 1_000_000, ok),
        (9_000_000, 1_000_000, ok),
        (9_500_000, 100_000, ok),
        (13_000_000, 6_000_000, ok),
        clients=[0, 1, 3, 4],
        sampling_rate=sampling_rate,
    )
    ends = read_schedule_ends(logs, latency_limit_ms=20.0, clients=5, threads=3)
    start_s = START_US / 1e6
    # Of a sample, the last start of all stands for each: what a thread took since its own may not be in it.
    last_s = [8.0, 9.4, 7.0] if sampling_rate == 1.0 else [9.4] * 3
    assert [one.last_epoch_s - start_s for one in ends] == pytest.approx(last_s, abs=1e-6)
    assert [one.share_ratio for one in ends] == pytest.approx([1 / 3] * 3)
    behind = [one.fell_behind_at(end_us / 1e6) for one in ends]
    # A sample of the log does not tell what a client did last.
    assert behind == ([False, False, True] if sampling_rate == 1.0 else [True] * 3)


@pytest.mark.parametrize(("hangs_from_s", "last_s"), [(9.7, [9.9, 9.9]), (5.0, [9.9, 4.9])])
def test_a_sample_shows_a_thread_that_took_nothing_for_long(
    tmp_path: Path, hangs_from_s: float, last_s: list[float]
) -> None:
    """Ten a second of each of two threads are in the log."""
    starts = [(client, number / 10) for number in range(100) for client in (0, 1)]
    seen = [(client, start_s) for client, start_s in starts if client == 0 or start_s < hangs_from_s]
    logs = pack(
        tmp_path,
        *((round(start_s * 1e6) + 1_000, 1_000, TransactionOutcome.OK) for _, start_s in seen),
        clients=[client for client, _ in seen],
        sampling_rate=0.02,
    )
    ends = read_schedule_ends(logs, latency_limit_ms=20.0, clients=2, threads=2)
    assert [one.last_epoch_s - START_US / 1e6 for one in ends] == pytest.approx(last_s, abs=1e-6)


def test_what_was_skipped_had_been_scheduled_a_limit_before(tmp_path: Path) -> None:
    logs = pack(tmp_path, (1_000_000, 2_000, TransactionOutcome.OK), (3_000_000, 0, TransactionOutcome.SKIPPED))
    assert find_last_s(logs) == pytest.approx((START_US + 2_980_000) / 1e6, abs=1e-6)


def test_without_transactions_there_is_no_schedule(tmp_path: Path) -> None:
    logs = pack(tmp_path, (1_000_000, 2_000, TransactionOutcome.OK))
    (part,) = find_parts(logs[0].folder)
    part.unlink()
    with pytest.raises(FileNotFoundError):
        find_last_s(logs)


def test_a_log_of_which_a_part_is_missing_has_no_end(tmp_path: Path) -> None:
    """Its reader was killed, or the disk was full."""
    begun = pack(tmp_path / "1", (1_000_000, 2_000, TransactionOutcome.OK))[0].folder
    whole = pack(
        tmp_path / "2",
        (1_000_000, 2_000, TransactionOutcome.OK),
        (3_000_000, 0, TransactionOutcome.SKIPPED),
        (3_000_000, 0, TransactionOutcome.FAILED),
    )
    logs = [LoadLog(folder=begun, part=None, behind_s=0.0)]
    shutil.copy(whole[0].folder / SUMMARY_FILE, begun)
    with pytest.raises(ValueError, match="has 1 of the 3 transactions"):
        find_last_s(logs)
    (begun / SUMMARY_FILE).unlink()
    with pytest.raises(FileNotFoundError):
        find_last_s(logs)
