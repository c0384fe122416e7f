"""What several load hosts logged and printed, merged and compared with one tally of all of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.record.generators.merge import merge_pgbench, merge_progress, merge_transactions
from pgdyno.record.generators.part import LoadPart
from pgdyno.record.generators.parts import CLOCK_FILE, LOADS_DIR, PART_FILE, find_clock_offset_s, find_window_s
from pgdyno.record.generators.slices import MergedSliceReader
from pgdyno.record.pgbench.output import parse_progress, parse_summary
from pgdyno.record.samples.clock import ClockExchange, append_exchanges, fit_clock
from pgdyno.record.transactions.pack import TransactionPacker
from pgdyno.record.transactions.parse import LogColumns, TransactionBatch
from pgdyno.record.transactions.slices import Slice, SlicePhase
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.transactions.tally import TransactionTally

EPOCH_US = 1_700_000_000_000_000
OUTPUT = Path(__file__).parents[1] / "data/pgbench/18"


def make_batch(seed: int, *, from_us: int = EPOCH_US, seconds: float = 10.0, count: int = 4000) -> TransactionBatch:
    """Transactions of two clients and two scripts, in the order of time."""
    draw = np.random.default_rng(seed)
    return TransactionBatch(
        client=np.arange(count) % 2,
        number=np.arange(count),
        script=draw.integers(0, 2, count),
        latency_us=draw.integers(50, 50_000, count),
        outcome=np.where(draw.random(count) < 0.01, 3, 0).astype(np.uint8),
        stamp_us=from_us + np.sort(draw.integers(0, round(seconds * 1e6), count)),
    )


def tally(*batches: TransactionBatch) -> TransactionSummary:
    whole = TransactionTally(columns=LogColumns.PLAIN, latency_limit_us=20_000)
    for batch in batches:
        whole.add(batch)
    return whole.summary()


def shift(batch: TransactionBatch, by_us: int) -> TransactionBatch:
    return msgspec.structs.replace(batch, stamp_us=batch.stamp_us + by_us)


def test_merged_logs_are_those_of_one_tally_whatever_their_clocks_say() -> None:
    one, other = make_batch(1), make_batch(2)
    whole = tally(one, other)
    for behind_us in (0, 1_000_000_000, -7_000_000):
        # The other machine's time of day is behind by so much.
        merged = merge_transactions([(tally(one), 0.0), (tally(shift(other, -behind_us)), behind_us / 1e6)])
        assert merged.scripts == whole.scripts
        assert merged.latency() == whole.latency()
        assert merged.seconds == whole.seconds
        assert (merged.first_stamp_us, merged.last_stamp_us) == (whole.first_stamp_us, whole.last_stamp_us)
    assert merge_transactions([(whole, 0.0)]) is whole
    early = msgspec.structs.replace(tally(one), early_count=3)
    assert merge_transactions([(early, 0.0), (early, 0.0)]).early_count == 6


def test_seconds_in_which_only_one_of_them_ended_transactions_are_kept() -> None:
    one = make_batch(1)
    late = make_batch(2, from_us=EPOCH_US + 2_000_000, seconds=15.0)
    merged = merge_transactions([(tally(one), 0.0), (tally(late), 0.0)])
    assert merged.seconds == tally(one, late).seconds
    assert len(merged.seconds) == 17
    idle = merge_transactions([(tally(one), 0.0), (tally(), 0.0)])
    assert idle.seconds == tally(one).seconds


def test_what_pgbenches_printed_is_added_or_weighted() -> None:
    one = parse_summary((OUTPUT / "everything/pgbench.stdout").read_text())
    assert len(one.scripts) > 1
    assert one.transaction_count is not None
    assert one.tps is not None
    merged = merge_pgbench([one, one])
    assert merged.transaction_count == 2 * one.transaction_count
    assert merged.tps == pytest.approx(2 * one.tps)
    assert merged.latency_average_ms == pytest.approx(one.latency_average_ms)
    assert merged.latency_stddev_ms == pytest.approx(one.latency_stddev_ms)
    assert [script.transaction_count for script in merged.scripts] == [
        2 * (script.transaction_count or 0) for script in one.scripts
    ]
    slow = msgspec.structs.replace(one, latency_average_ms=(one.latency_average_ms or 0.0) + 3.0)
    pooled = merge_pgbench([one, slow])
    assert pooled.latency_average_ms == pytest.approx((one.latency_average_ms or 0.0) + 1.5)
    # Two equal groups whose means are 3 ms apart.
    assert pooled.latency_stddev_ms == pytest.approx(((one.latency_stddev_ms or 0.0) ** 2 + 1.5**2) ** 0.5)


@pytest.mark.parametrize("name", ["everything", "tpcb-like"])
def test_a_pgbench_in_which_no_transaction_ended_takes_nothing_from_the_others(name: str) -> None:
    """It prints neither scripts nor statements."""
    one = parse_summary((OUTPUT / name / "pgbench.stdout").read_text())
    none = msgspec.structs.replace(one, transaction_count=0, tps=None, scripts=(), statements=())
    for parts in ((none, one), (one, none)):
        merged = merge_pgbench(parts)
        for found, expected in zip((merged, *merged.scripts), (one, *one.scripts), strict=True):
            assert [each.text for each in found.statements] == [each.text for each in expected.statements]
            times_ms = [each.latency_average_ms for each in expected.statements]
            assert [each.latency_average_ms for each in found.statements] == pytest.approx(times_ms)
            assert found.transaction_count == expected.transaction_count
        assert any(each.statements for each in (merged, *merged.scripts))
        assert (merged.transaction_count, merged.tps) == (one.transaction_count, one.tps)
        assert merged.client_count == 2 * (one.client_count or 0)


def test_progress_of_one_second_is_added() -> None:
    lines = (
        "progress: 1.0 s, 100.0 tps, lat 2.000 ms stddev 1.000, 1 failed",
        "progress: 1.1 s, 300.0 tps, lat 4.000 ms stddev 1.000, 2 failed",
    )
    seconds = [parse_progress(line) for line in lines]
    merged = merge_progress([second for second in seconds if second is not None])
    assert (merged.tps, merged.failed_count, merged.elapsed_s) == (400.0, 3, 1.1)
    assert not merged.has_silent_part
    assert merged.latency_average_ms == pytest.approx(3.5)


def test_transactions_without_a_schedule_were_not_late() -> None:
    """Or else the lag of a few scheduled ones would be more than the mean latency of all."""
    one = parse_summary((OUTPUT / "everything/pgbench.stdout").read_text())
    free = msgspec.structs.replace(one, transaction_count=900, schedule_lag_average_ms=None)
    scheduled = msgspec.structs.replace(one, transaction_count=100, schedule_lag_average_ms=50.0)
    assert merge_pgbench([free, scheduled]).schedule_lag_average_ms == pytest.approx(5.0)
    assert merge_pgbench([free, free]).schedule_lag_average_ms is None
    lines = (
        "progress: 1.0 s, 900.0 tps, lat 1.000 ms stddev 1.000, 0 failed",
        "progress: 1.0 s, 100.0 tps, lat 80.000 ms stddev 1.000, 0 failed, lag 50.000 ms",
    )
    seconds = [second for line in lines if (second := parse_progress(line)) is not None]
    assert merge_progress(seconds).lag_average_ms == pytest.approx(5.0)


def make_part(host: str, *, start_far_s: float, epoch_offset_s: float) -> LoadPart:
    return LoadPart(
        host=host,
        argv=("pgbench",),
        pid=1,
        clients=2,
        threads=1,
        start_far_s=start_far_s,
        epoch_offset_s=epoch_offset_s,
        release_near_s=101.0,
        end_far_s=start_far_s + 11.0,
    )


def exchange_with(ahead_s: float) -> list[ClockExchange]:
    return [ClockExchange(0, 100.0 + n, 100.00005 + n + ahead_s, 100.0001 + n) for n in range(8)]


def test_slices_find_transactions_of_machines_with_clocks_of_their_own(tmp_path: Path) -> None:
    epoch_s = EPOCH_US / 1e6
    batches = {}
    # Load began at 101 s here; one machine's clock since boot is 1,000 s ahead, and its time of day an hour.
    hosts = {"near": (0.0, 0.0), "far": (1000.0, 3600.0)}
    for name in ("reads+near", "reads+far", "writes+far"):
        of_part, _, host = name.partition("+")
        ahead_s, wall_s = hosts[host]
        folder = tmp_path / LOADS_DIR / name
        batch = make_batch(len(batches), from_us=EPOCH_US + round(wall_s * 1e6))
        batches[name] = batch
        packer = TransactionPacker(folder / "transactions")
        packer.add(batch)
        packer.close()
        made = make_part(host, start_far_s=100.0 + ahead_s, epoch_offset_s=epoch_s + wall_s - 101.0 - ahead_s)
        part = msgspec.structs.replace(made, part=of_part, endpoint="primary", folder=name)
        (folder / PART_FILE).write_bytes(msgspec.json.encode(part))
        append_exchanges(folder / CLOCK_FILE, exchange_with(ahead_s))
        assert find_clock_offset_s(part, fit_clock(exchange_with(ahead_s))) == pytest.approx(epoch_s + wall_s - 101.0)
    slices = [
        Slice(
            phase=SlicePhase.ROUND,
            round=1,
            position=place,
            variant="a",
            begin_monotonic_s=101.0 + 2 * place,
            settled_monotonic_s=101.5 + 2 * place,
            end_monotonic_s=103.0 + 2 * place,
            counts={},
        )
        for place in range(3)
    ]
    reader = MergedSliceReader(tmp_path, clock_offset_s=0.0)
    for one, load in zip(slices, reader.take(slices, is_ended=True), strict=True):
        expected = {"reads": 0, "writes": 0}
        for name, batch in batches.items():
            since_s = (batch.stamp_us - EPOCH_US) / 1e6 - (3600.0 if name.endswith("far") else 0.0) + 101.0
            inside = (since_s >= one.settled_monotonic_s) & (since_s < one.end_monotonic_s) & (batch.outcome == 0)
            expected[name.partition("+")[0]] += int(inside.sum())
        assert [*load.parts] == ["reads", "writes"]
        # A microsecond at the border may fall on either side.
        assert all(abs(load.parts[name].ok_count - count) <= 1 for name, count in expected.items())
        assert load.whole.ok_count == sum(part.ok_count for part in load.parts.values()) > 0
        assert all((np.diff(of.end_s) >= 0).all() for of in (load.whole, *load.parts.values()))


def test_the_window_is_when_all_ran() -> None:
    near = make_part("near", start_far_s=100.0, epoch_offset_s=0.0)
    far = msgspec.structs.replace(make_part("far", start_far_s=1100.0, epoch_offset_s=0.0), end_far_s=1110.5)
    start_s, end_s = find_window_s([(near, exchange_with(0.0)), (far, exchange_with(1000.0))])
    assert start_s == pytest.approx(101.0)
    assert end_s == pytest.approx(110.5)
