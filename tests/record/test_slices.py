from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgdyno.record.frames import pl
from pgdyno.record.transactions.pack import TransactionPacker, find_parts, read_ok, read_packed, read_span
from pgdyno.record.transactions.parse import TransactionBatch, TransactionOutcome
from pgdyno.record.transactions.slices import (
    SLICES_FILE,
    Slice,
    SliceLoad,
    SlicePhase,
    SliceReader,
    SliceWriter,
    read_slice_loads,
    read_slices,
    read_turn_loads,
)
from tests.examples import TIMES

OFFSET_S = 1_795_000_000.25
EPOCH_US = 1_795_000_000_000_000


def make_slice(begin_s: float, settled_s: float, end_s: float, *, number: int = 1) -> Slice:
    return Slice(
        phase=SlicePhase.ROUND,
        round=number,
        position=0,
        variant="a",
        begin_monotonic_s=begin_s,
        settled_monotonic_s=settled_s,
        end_monotonic_s=end_s,
        counts={"wal_bytes": 17.0, "device_flush_count": None},
    )


def make_batch(stamps_us: Sequence[int], *, seed: int = 0, clients: int = 4) -> TransactionBatch:
    draw = np.random.default_rng(seed)
    count = len(stamps_us)
    outcome = draw.choice(
        [TransactionOutcome.OK] * 8 + [TransactionOutcome.SKIPPED, TransactionOutcome.DEADLOCK], size=count
    ).astype(np.uint8)
    return TransactionBatch(
        client=draw.integers(0, clients, count),
        number=np.arange(count, dtype=np.int64),
        latency_us=np.where(outcome == TransactionOutcome.OK, draw.integers(1, 10**6, count), 0),
        outcome=outcome,
        script=np.zeros(count, dtype=np.int64),
        stamp_us=np.asarray(stamps_us, dtype=np.int64),
    )


def slow_loads(folder: Path, slices: Sequence[Slice]) -> list[list[int]]:
    """Every transaction looked at for every slice."""
    rows = [
        (int(stamp), int(latency))
        for batch in read_packed(folder)
        for stamp, latency, outcome in zip(batch.stamp_us, batch.latency_us, batch.outcome, strict=True)
        if outcome == TransactionOutcome.OK
    ]
    rows.sort(key=lambda row: row[0])
    return [
        [
            latency
            for stamp, latency in rows
            if round((one.settled_monotonic_s + OFFSET_S) * 1e6)
            <= stamp
            < round((one.end_monotonic_s + OFFSET_S) * 1e6)
        ]
        for one in slices
    ]


def as_lists(loads: Sequence[SliceLoad]) -> list[list[int]]:
    assert all(load.ok_count == len(load.latency_us) for load in loads)
    return [load.latency_us.tolist() for load in loads]


def test_slices_come_back_and_a_cut_line_does_not(tmp_path: Path) -> None:
    assert read_slices(tmp_path) == ()
    slices = (make_slice(1.0, 1.125, 2.0), make_slice(2.0, 2.25, 3.0, number=2))
    with SliceWriter(tmp_path) as writer:
        for number, one in enumerate(slices, start=1):
            writer.add(one)
            assert read_slices(tmp_path) == slices[:number]
    path = tmp_path / SLICES_FILE
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert read_slices(tmp_path) == slices


def test_a_whole_line_that_is_no_slice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / SLICES_FILE).write_bytes(b'{"phase": "round"}\n')
    with pytest.raises(ValueError, match="missing required field"):
        read_slices(tmp_path)


def test_transactions_belong_to_the_slice_in_which_they_ended(tmp_path: Path) -> None:
    packer = TransactionPacker(tmp_path)
    stamps = [EPOCH_US + 250_000 + us for us in (999_999, 1_000_000, 1_999_999, 2_000_000)]
    outcome = np.zeros(4, dtype=np.uint8)
    packer.add(msgspec.structs.replace(make_batch(stamps), outcome=outcome, latency_us=np.arange(4)))
    packer.close()
    loads = read_slice_loads(tmp_path, [make_slice(0.5, 1.0, 2.0)], clock_offset_s=OFFSET_S)
    assert as_lists(list(loads)) == [[1, 2]]


def pack_ok(folder: Path, ended_us: Sequence[int], latency_us: Sequence[int]) -> None:
    packer = TransactionPacker(folder)
    batch = make_batch([EPOCH_US + us for us in ended_us])
    packer.add(
        msgspec.structs.replace(
            batch, outcome=np.zeros(len(ended_us), dtype=np.uint8), latency_us=np.array(latency_us, dtype=np.int64)
        )
    )
    packer.close()


def test_a_transaction_counts_in_a_turn_by_the_share_of_its_time(tmp_path: Path) -> None:
    ended_us = (900_000, 1_250_000, 1_500_000, 1_750_000, 2_250_000, 2_900_000, 3_750_000)
    latency_us = (100_000, 500_000, 0, 500_000, 500_000, 2_000_000, 250_000)
    origin_us = round(OFFSET_S * 1e6) - EPOCH_US
    pack_ok(tmp_path, [us + origin_us for us in ended_us], latency_us)
    turns = [make_slice(0.5, 1.0, 2.0), make_slice(3.0, 3.25, 4.0, number=2)]
    first, second = read_turn_loads(tmp_path, turns, clock_offset_s=OFFSET_S)
    assert first.shares is not None
    assert first.shares.tolist() == pytest.approx([0.5, 1.0, 0.5, 0.5])
    assert first.latency_us.tolist() == [500_000, 500_000, 500_000, 2_000_000]
    assert first.end_s.tolist() == pytest.approx([0.75, 1.25, 1.75, 2.4])
    assert first.ok_count == pytest.approx(2.5)
    assert second.ok_count == pytest.approx(1.0)


@pytest.mark.parametrize("latency_us", [70_001, 250_000, 399_999, 5_000_000])
def test_the_rate_of_clients_that_began_together_is_that_of_their_latency(tmp_path: Path, latency_us: int) -> None:
    """As many transactions end in every turn that begins like this one, so that no repetition would show an error."""
    clients, begin_us = 3, round(OFFSET_S * 1e6) - EPOCH_US + 550_000
    ends_us = [begin_us + (number + 1) * latency_us for number in range(1 + 2_000_000 // latency_us)]
    pack_ok(tmp_path, sorted(ends_us * clients), [latency_us] * (len(ends_us) * clients))
    (load,) = read_turn_loads(tmp_path, [make_slice(0.5, 1.0, 2.0)], clock_offset_s=OFFSET_S)
    assert load.ok_count == pytest.approx(clients * 1e6 / latency_us, rel=1e-6)


def test_turns_without_a_log_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no packed transactions"):
        list(read_turn_loads(tmp_path, [make_slice(0.5, 1.0, 2.0)], clock_offset_s=OFFSET_S))


@settings(
    max_examples=60 * TIMES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_the_reader_agrees_with_a_slow_obvious_one(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    packer = TransactionPacker(folder)
    slices, at_s = [], 0.0
    for number in range(data.draw(st.integers(0, 12))):
        steps = [data.draw(st.floats(0.0, 0.4)) for _ in range(3)]
        slices.append(make_slice(at_s, at_s + steps[0], at_s + steps[0] + steps[1], number=number + 1))
        at_s += sum(steps)
    span_us = int((at_s + 0.5) * 1e6)
    # Threads' logs come in blocks whose times overlap.
    blocks = data.draw(st.lists(st.lists(st.integers(0, span_us), max_size=40), min_size=1, max_size=8))
    for seed, block in enumerate(blocks):
        if block:
            packer.add(make_batch(sorted(EPOCH_US + us for us in block), seed=seed))
        if data.draw(st.booleans()):
            packer.flush(is_synced=False)
    packer.close()
    if not find_parts(folder):
        return
    expected = slow_loads(folder, slices)
    found = list(read_slice_loads(folder, slices, clock_offset_s=OFFSET_S))
    assert [load.ok_count for load in found] == [len(each) for each in expected]
    assert [sorted(each) for each in as_lists(found)] == [sorted(each) for each in expected]


def test_a_live_reader_waits_until_a_slice_is_known_and_gives_each_once(tmp_path: Path) -> None:
    reader = SliceReader(tmp_path / "t", clock_offset_s=OFFSET_S)
    slices = [make_slice(t, t + 0.1, t + 1.0, number=int(t)) for t in (1.0, 2.0, 3.0, 4.0)]
    assert list(reader.take(slices[:1])) == []
    packer = TransactionPacker(tmp_path / "t")
    loads: list[SliceLoad] = []
    # One thread's log is two thirds of a second behind: what it still holds belongs to slices that are over.
    for second in range(6):
        base = EPOCH_US + second * 1_000_000
        packer.add(make_batch([base + 4000 * n for n in range(250)], seed=second))
        packer.add(make_batch([base - 666_000 + 4000 * n for n in range(250)], seed=100 + second))
        packer.flush(known_until_us=base - 666_000 + 249 * 4000, is_synced=False)
        known_until_s = read_span(find_parts(tmp_path / "t")[-1]).known_until_us / 1e6 - OFFSET_S  # type: ignore[union-attr,operator]
        begun = [one for one in slices if one.end_monotonic_s <= second + 1]
        loads += reader.take(begun)
        assert len(loads) == sum(one.end_monotonic_s <= known_until_s for one in begun)
    assert len(loads) == 4
    packer.close()
    loads += reader.take(slices, is_ended=True)
    assert list(reader.take(slices, is_ended=True)) == []
    assert [sorted(each) for each in as_lists(loads)] == [sorted(each) for each in slow_loads(tmp_path / "t", slices)]
    assert min(load.ok_count for load in loads) > 300


def test_parts_that_no_slice_needs_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packer = TransactionPacker(tmp_path)
    for second in range(5):
        packer.add(make_batch([EPOCH_US + 250_000 + second * 1_000_000 + 1000 * n for n in range(1000)], seed=second))
        packer.flush(known_until_us=EPOCH_US + 250_000 + second * 1_000_000 + 999_000)
    packer.close()
    slices = [make_slice(3.0, 3.1, 3.9)]
    expected = slow_loads(tmp_path, slices)
    decoded = []

    def read(path: Path) -> object:
        decoded.append(path)
        return read_ok(path)

    monkeypatch.setattr("pgdyno.record.transactions.slices.read_ok", read)
    assert as_lists(list(read_slice_loads(tmp_path, slices, clock_offset_s=OFFSET_S))) == expected
    assert decoded == find_parts(tmp_path)[3:]


def test_no_part_and_no_transaction_are_different_things(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no packed transactions"):
        list(read_slice_loads(tmp_path, [make_slice(1.0, 1.1, 2.0)], clock_offset_s=OFFSET_S))
    packer = TransactionPacker(tmp_path)
    packer.add(make_batch([EPOCH_US]))
    packer.close()
    (load,) = read_slice_loads(tmp_path, [make_slice(1.0, 1.1, 2.0)], clock_offset_s=OFFSET_S)
    assert load.ok_count == 0


def test_the_good_ones_of_a_part_are_those_of_the_whole_part(tmp_path: Path) -> None:
    packer = TransactionPacker(tmp_path)
    packer.add(make_batch([EPOCH_US + 10 * n for n in range(500)], seed=5))
    packer.close()
    (batch,) = read_packed(tmp_path)
    (path,) = find_parts(tmp_path)
    stamps, latencies = read_ok(path)
    is_ok = batch.outcome == TransactionOutcome.OK
    assert 0 < is_ok.sum() < 500
    assert stamps.tolist() == batch.stamp_us[is_ok].tolist()
    assert latencies.tolist() == batch.latency_us[is_ok].tolist()
    span = read_span(path)
    assert span is not None
    assert (span.first_stamp_us, span.last_stamp_us) == (EPOCH_US, EPOCH_US + 4990)
    assert span.known_until_us is None


def test_damage_anywhere_in_a_part_is_told(tmp_path: Path) -> None:
    """Without the checksum most of these bytes gave other transactions, some a panic of polars, and some ended the process."""
    packer = TransactionPacker(tmp_path)
    packer.add(make_batch([EPOCH_US + 10 * n for n in range(200)], seed=5))
    packer.close()
    (path,) = find_parts(tmp_path)
    whole = path.read_bytes()
    mark = whole.rindex(b"crc32:")
    for at in {*range(len(whole))} - {*range(mark, mark + 6)}:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        for read in (read_span, read_ok):
            with pytest.raises(ValueError, match=r"part-00000\.parquet is not a part"):
                read(path)
        with pytest.raises(ValueError, match=r"part-00000\.parquet is not a part"):
            list(read_packed(tmp_path))


def test_a_panic_of_polars_is_damage_of_an_older_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(_: object) -> None:
        raise pl.exceptions.PanicException("explicit panic")

    packer = TransactionPacker(tmp_path)
    packer.add(make_batch([EPOCH_US]))
    packer.close()
    (path,) = find_parts(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"crc32:", b"------"))
    assert read_span(path) is not None
    monkeypatch.setattr(pl, "read_parquet_metadata", panic)
    for read in (read_span, read_ok):
        with pytest.raises(ValueError, match="explicit panic"):
            read(path)
