from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pgdyno.analyse.models.checkpoints import (
    find_checkpoint_distance_bytes,
    predict_full_page_images,
    predict_images_of_cycles,
)
from pgdyno.analyse.models.commits import (
    RowLocks,
    ceiling_tps,
    predict_commit_tps,
    subtract_row_waits,
    unflushed_tps,
)
from pgdyno.analyse.models.reads import PageClass, find_buffers, predict_early_reads, predict_reads
from tests.examples import TIMES

MB = 1024**2
FLUSH = st.floats(1e-5, 1e-2)
RATES = st.lists(st.floats(10, 1e5), min_size=1, max_size=12).map(sorted)


def simulate_commits(unflushed: list[float], *, flushes_s: list[float], seconds: float, seed: int) -> float:
    """The same loop, event by event: one piece of work ends at the rate of how many are at work; each flush is drawn."""
    draw = random.Random(seed)
    at_work, waiting, flushing, done = len(unflushed), 0, 0, 0
    now_s, flush_ends_s = 0.0, math.inf
    while now_s < seconds:
        works_s = now_s + draw.expovariate(unflushed[at_work - 1]) if at_work else math.inf
        if works_s < flush_ends_s:
            now_s, at_work, waiting = works_s, at_work - 1, waiting + 1
            if not flushing:
                flushing, waiting, flush_ends_s = waiting, 0, now_s + draw.choice(flushes_s)
            continue
        # With somebody waiting, the end of a flush is when the next one begins.
        now_s, done, at_work, flushing = flush_ends_s, done + flushing, at_work + flushing, 0
        flush_ends_s = math.inf
        if waiting:
            flushing, waiting, flush_ends_s = waiting, 0, now_s + draw.choice(flushes_s)
    return done / now_s


def simulate_clock(classes: list[PageClass], buffers: int, *, after: int, until: int, is_warm: bool = False) -> float:
    """Reads per transaction of those after the first so many, in a ring of buffers with usage counts."""
    draw = random.Random(1)
    ring: list[tuple[int, int] | None] = [None] * buffers
    counts, place, hand = [0] * buffers, {}, 0

    def use(page: tuple[int, int], times: int) -> bool:
        nonlocal hand
        if page in place:
            counts[place[page]] = min(5, counts[place[page]] + times)
            return True
        while counts[hand]:
            counts[hand] -= 1
            hand = (hand + 1) % buffers
        if ring[hand] is not None:
            del place[ring[hand]]
        ring[hand], counts[hand], place[page] = page, min(5, times), hand
        hand = (hand + 1) % buffers
        return False

    for page in [
        (which, number) for which, one in enumerate(classes) for number in range(int(one.pages_count)) if is_warm
    ]:
        use(page, 1)
    accessed = [each for each in enumerate(classes) for _ in range(int(each[1].accesses_per_transaction))]
    reads = 0
    for number in range(until):
        hits = [use((which, draw.randrange(int(one.pages_count))), one.uses_per_access) for which, one in accessed]
        reads += hits.count(False) if number >= after else 0
    return reads / (until - after)


def test_one_client_pays_for_each_flush_itself() -> None:
    assert predict_commit_tps([1000], flush_s=0.001).tps == pytest.approx(500)
    assert ceiling_tps(1, flush_s=0.001) == 1000


@pytest.mark.parametrize("clients", [2, 3, 8, 64])
def test_clients_with_nothing_else_to_do_take_turns_in_halves(clients: int) -> None:
    forecast = predict_commit_tps(np.arange(1, clients + 1) * 1e9, flush_s=0.001)
    assert forecast.tps == pytest.approx(clients / (2 * 0.001), rel=0.01)
    assert forecast.tps <= ceiling_tps(clients, flush_s=0.001) * (1 + 1e-9)
    assert forecast.batch_count == pytest.approx(clients / 2, rel=0.01)


@settings(max_examples=40 * TIMES)
@given(unflushed=RATES, flush_s=FLUSH)
def test_flushes_make_nothing_faster(unflushed: list[float], flush_s: float) -> None:
    forecast = predict_commit_tps(unflushed, flush_s=flush_s)
    assert 0 < forecast.tps <= unflushed[-1] * (1 + 1e-9)
    assert 1 - 1e-9 <= forecast.batch_count <= len(unflushed) * (1 + 1e-9)
    slower = predict_commit_tps(unflushed, flush_s=2 * flush_s)
    assert slower.tps <= forecast.tps * (1 + 1e-9)


def test_very_many_clients_are_told_by_the_limits_and_at_once() -> None:
    many = unflushed_tps(1000, think_s=0.0003, cpu_s=0.0003, cpu_count=8)
    assert predict_commit_tps(many, flush_s=0.001).tps == pytest.approx(many[-1])
    assert predict_commit_tps(many, flush_s=0.1).tps == pytest.approx(5000)
    edge = predict_commit_tps(many[:128], flush_s=0.003).tps
    assert predict_commit_tps(many[:129], flush_s=0.003).tps == pytest.approx(edge, rel=0.02)


@given(unflushed=RATES)
def test_free_flushes_cost_nothing(unflushed: list[float]) -> None:
    assert predict_commit_tps(unflushed, flush_s=1e-12).tps == pytest.approx(unflushed[-1], rel=1e-4)


@example(unflushed=[10.0, 10.000000000000002, 2297.0], flush_s=0.00185, factor=3.0)
@given(unflushed=RATES, flush_s=FLUSH, factor=st.floats(0.1, 10))
def test_rates_have_no_unit_of_their_own(unflushed: list[float], flush_s: float, factor: float) -> None:
    scaled = predict_commit_tps([rate * factor for rate in unflushed], flush_s=flush_s / factor)
    assert scaled.tps == pytest.approx(factor * predict_commit_tps(unflushed, flush_s=flush_s).tps)


@pytest.mark.parametrize("think_ms", [0.2, 1.0, 4.0])
def test_the_chain_is_what_the_same_loop_simulated_comes_to(think_ms: float) -> None:
    unflushed = list(unflushed_tps(6, think_s=think_ms / 1000, cpu_s=think_ms / 2000, cpu_count=2))
    forecast = predict_commit_tps(unflushed, flush_s=0.001)
    simulated = simulate_commits(unflushed, flushes_s=[0.001], seconds=20, seed=1)
    assert simulated == pytest.approx(forecast.tps, rel=0.02)


@pytest.mark.parametrize("clients", [4, 8])
def test_flushes_that_take_differently_long_gather_smaller_batches(clients: int) -> None:
    """As those of a disk that is held to so many I/Os a second: nine quick ones, and one that waits for its turn."""
    unflushed = [4000.0 * working for working in range(1, clients + 1)]
    flushes_s = [0.0003] * 9 + [0.0073]
    forecast = predict_commit_tps(unflushed, flush_s=flushes_s)
    assert forecast.tps == pytest.approx(simulate_commits(unflushed, flushes_s=flushes_s, seconds=20, seed=1), rel=0.03)
    even = predict_commit_tps(unflushed, flush_s=0.001)
    assert forecast.batch_count < even.batch_count
    assert forecast.tps < 0.9 * even.tps
    same = predict_commit_tps(unflushed, flush_s=[0.001] * 5)
    assert (same.tps, same.batch_count) == pytest.approx((even.tps, even.batch_count))


def test_flushes_measured_on_a_disk_that_is_held() -> None:
    """PostgreSQL 18, simple-update, WAL on a disk held to 200 writes a second, which the kernel counts by the 100 ms."""
    twentieths_ms = [0.042, 0.043, 0.0436, 0.044, 0.0452, 0.0467, 0.0511, 0.0591, 0.0644, 0.0752, 0.0964, 0.122, 0.178,
                     0.298, 0.585, 1.44, 3.64, 11.4, 80.3, 102.0]  # fmt: skip
    flushes_s = [one / 1000 for one in twentieths_ms]
    unflushed = np.interp(range(1, 9), (1, 2, 4, 8), (654.9, 950.7, 1472.2, 1961.3))
    for clients, measured_tps in ((1, 97.5), (4, 134.5), (8, 203.6)):
        forecast = predict_commit_tps(unflushed[:clients], flush_s=flushes_s)
        assert forecast.tps == pytest.approx(measured_tps, rel=0.12)
    # By their mean alone it would be twice as much.
    assert predict_commit_tps(unflushed, flush_s=sum(flushes_s) / 20).tps > 1.9 * 203.6


def simulate_rows(*, clients: int, rows: int, work_s: float, flush_s: float, cpus: float, seconds: float) -> float:
    """Clients that share CPUs: each works, locks one of some rows, works as long again, and keeps it until it is durable."""
    draw = random.Random(1)
    row_of: dict[int, int] = {}
    queues: dict[int, list[int]] = {}
    working, waiting, flushing = list(range(clients)), list[int](), list[int]()
    done, now_s, ends_s = 0, 0.0, math.inf
    while now_s < seconds:
        rate = min(cpus, len(working)) * 2 / work_s
        works_s = now_s + draw.expovariate(rate) if working else math.inf
        if works_s < ends_s:
            now_s, client = works_s, working.pop(draw.randrange(len(working)))
            if client in row_of:
                waiting.append(client)
            else:
                row = row_of[client] = draw.randrange(rows)
                queue = queues.setdefault(row, [])
                queue.append(client)
                working += [client] if len(queue) == 1 else []
        else:
            now_s, done, ended, flushing, ends_s = ends_s, done + len(flushing), flushing, [], math.inf
            for client in ended:
                queue = queues[row_of.pop(client)]
                queue.remove(client)
                working += [client, *queue[:1]]
        if not flushing and waiting:
            flushing, waiting, ends_s = waiting, [], now_s + flush_s
    return done / now_s


@pytest.mark.parametrize(
    ("clients", "rows", "work_s", "cpus"),
    [
        *((4, 20, 0.0005, 4), (8, 20, 0.0005, 8), (8, 100, 0.0005, 8), (16, 20, 0.0005, 16)),
        # Work that is as long as a flush; and one CPU, which who waits for a row leaves to others.
        *((8, 20, 0.02, 8), (8, 20, 0.008, 1)),
    ],
)
def test_rows_that_stay_locked_while_their_commit_is_flushed(
    clients: int, rows: int, work_s: float, cpus: float
) -> None:
    unflushed = [min(n, cpus) / work_s for n in range(1, clients + 1)]
    forecast = predict_commit_tps(unflushed, flush_s=0.02)
    kept = [RowLocks(rows_count=rows, work_before_s=forecast.work_s / 2)]
    simulated = simulate_rows(clients=clients, rows=rows, work_s=work_s, flush_s=0.02, cpus=cpus, seconds=200)
    assert subtract_row_waits(forecast.tps, clients=clients, kept=kept) == pytest.approx(
        simulated, rel=0.06 if cpus == 1 else 0.02
    )


def test_rows_measured_on_a_server() -> None:
    """PostgreSQL 18, tpcb-like of scale 20, flushes of 20 ms: transactions of a flush, over those of a load without rows."""
    work_s, flush_s = 0.0008, 0.0225
    for clients, measured in ((4, 1.960 / 2.088), (8, 3.321 / 4.028), (16, 5.105 / 7.951)):
        kept = [RowLocks(rows_count=rows, work_before_s=work_s / 2) for rows in (20, 200)]
        tps = clients / (2 * flush_s)
        assert subtract_row_waits(tps, clients=clients, kept=kept) / tps == pytest.approx(measured, rel=0.05)


@given(tps=st.floats(1, 1e5), clients=st.integers(1, 200), rows=st.floats(1, 1e6))
def test_waiting_for_rows_makes_nothing_faster(tps: float, clients: int, rows: float) -> None:
    kept = RowLocks(rows_count=rows, work_before_s=0.0)
    left = subtract_row_waits(tps, clients=clients, kept=[kept])
    assert 0 < left <= tps * (1 + 1e-6)
    # No row is taken more than all of the time.
    assert left <= rows / (clients / tps) * clients / max(1, clients - 1) * (1 + 1e-6)
    assert subtract_row_waits(tps, clients=1, kept=[kept]) == pytest.approx(tps)
    assert subtract_row_waits(tps, clients=clients, kept=[]) == pytest.approx(tps)


def test_cpus_bind_at_last() -> None:
    assert unflushed_tps(4, think_s=0.001, cpu_s=0.0008, cpu_count=2) == pytest.approx((1000, 2000, 2500, 2500))


@pytest.mark.parametrize("buffers", [60, 300, 700])
def test_reads_are_those_of_a_simulated_cache(buffers: int) -> None:
    classes = [
        PageClass(pages_count=800, accesses_per_transaction=1),
        PageClass(pages_count=100, accesses_per_transaction=2),
    ]
    forecast = predict_reads(classes, buffers_count=buffers)
    simulated = simulate_clock(classes, buffers, after=20_000, until=40_000)
    assert forecast.reads_per_transaction == pytest.approx(simulated, rel=0.03)


@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize(("after", "until"), [(0, 200), (20, 300), (200, 4000)])
def test_early_reads_are_those_of_a_cache_that_starts_so(is_warm: bool, after: int, until: int) -> None:
    classes = [
        PageClass(pages_count=8000, accesses_per_transaction=10),
        PageClass(pages_count=1000, accesses_per_transaction=10, uses_per_access=3),
    ]
    predicted = predict_early_reads(classes, buffers_count=3000, after=after, until=until, is_warm=is_warm)
    simulated = simulate_clock(classes, 3000, after=after, until=until, is_warm=is_warm)
    assert predicted == pytest.approx(simulated, rel=0.03)


def test_early_reads_end_as_those_of_the_long_run() -> None:
    classes = [PageClass(pages_count=1000, accesses_per_transaction=1)]
    late = predict_early_reads(classes, buffers_count=300, after=1e6, until=2e6, is_warm=True)
    assert late == pytest.approx(predict_reads(classes, buffers_count=300).reads_per_transaction)
    fits = predict_early_reads(classes, buffers_count=2000, after=0, until=100, is_warm=True)
    assert fits == 0.0


@given(pages=st.integers(2, 100_000), ratio=st.floats(0.01, 0.99))
def test_of_pages_used_alike_the_share_that_is_held_is_hit(pages: int, ratio: float) -> None:
    one = PageClass(pages_count=pages, accesses_per_transaction=3)
    forecast = predict_reads([one], buffers_count=ratio * pages)
    assert forecast.reads_per_transaction == pytest.approx(3 * (1 - ratio), rel=1e-6)


@given(
    pages=st.lists(st.integers(1, 10**8), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
    ratio=st.floats(0.001, 0.999),
)
def test_the_pages_used_since_the_last_use_of_the_evicted_one_fill_the_buffers(
    pages: list[int], seed: int, ratio: float
) -> None:
    draw = random.Random(seed)
    classes = [PageClass(pages_count=count, accesses_per_transaction=10 ** draw.uniform(-6, 2)) for count in pages]
    buffers = ratio * sum(pages)
    forecast = predict_reads(classes, buffers_count=buffers)
    used = sum(
        one.pages_count * -math.expm1(-one.accesses_per_transaction / one.pages_count * forecast.memory_transactions)
        for one in classes
    )
    assert used == pytest.approx(buffers, rel=1e-6)
    assert find_buffers(classes, reads_per_transaction=forecast.reads_per_transaction) == pytest.approx(
        buffers, rel=1e-6
    )


def test_what_fits_is_never_read() -> None:
    forecast = predict_reads([PageClass(pages_count=100, accesses_per_transaction=1)], buffers_count=100)
    assert forecast.reads_per_transaction == 0.0
    assert forecast.memory_transactions == math.inf


def split_by_access(accesses_per_transaction: Sequence[float]) -> tuple[PageClass, ...]:
    """Group pages whose accesses are given page by page, such as of a skewed load, into classes of equal accesses."""
    rates, counts = np.unique(np.asarray(accesses_per_transaction, dtype=np.float64), return_counts=True)
    return tuple(
        PageClass(pages_count=float(count), accesses_per_transaction=float(rate * count))
        for rate, count in zip(rates, counts, strict=True)
    )


@settings(max_examples=30 * TIMES)
@given(rates=st.lists(st.sampled_from([0.001, 0.01, 0.1]), min_size=20, max_size=200))
def test_classes_are_only_shorthand(rates: list[float]) -> None:
    split = split_by_access(rates)
    single = [PageClass(pages_count=1, accesses_per_transaction=rate) for rate in rates]
    together, apart = (predict_reads(one, buffers_count=len(rates) / 3) for one in (split, single))
    assert together.reads_per_transaction == pytest.approx(apart.reads_per_transaction, rel=1e-6)


def test_images_are_the_pages_touched() -> None:
    draw = random.Random(1)
    touched = len({draw.randrange(5000) for _ in range(7000)})
    assert predict_full_page_images(updates_count=7000, pages_count=5000) == pytest.approx(touched, rel=0.01)
    assert predict_full_page_images(updates_count=1, pages_count=1e9) == pytest.approx(1)
    assert predict_full_page_images(updates_count=9, pages_count=1) == 1


@pytest.mark.parametrize("cycles", [0.3, 1.0, 1.5, 4.0, 9.3])
def test_images_are_the_pages_touched_after_each_checkpoint(cycles: float) -> None:
    draw, touched, images = random.Random(1), set[int](), 0
    for number in range(20_000):
        if number and int(number * cycles / 20_000) > int((number - 1) * cycles / 20_000):
            touched.clear()
        page = draw.randrange(5000)
        images += page not in touched
        touched.add(page)
    predicted = predict_images_of_cycles(updates_count=20_000, pages_count=5000, cycles=cycles)
    assert predicted == pytest.approx(images, rel=0.01)


@pytest.mark.parametrize(
    ("max_wal_size_mb", "target", "segment_mb", "distance_mb"),
    [
        (1024, 0.9, 16, 528),
        (1024, 0.5, 16, 672),
        (32, 0.9, 16, 16),
        (16, 1.0, 16, 16),
        (3072, 0.9, 1024, 1024),
        # Half a segment is none.
        (288, 0.5, 64, 128),
    ],
)
def test_checkpoints_come_at_whole_segments(
    max_wal_size_mb: int, target: float, segment_mb: int, distance_mb: int
) -> None:
    distance = find_checkpoint_distance_bytes(
        max_wal_size_bytes=max_wal_size_mb * MB, completion_target=target, segment_bytes=segment_mb * MB
    )
    assert distance == distance_mb * MB


def test_bad_input_is_said_by_name() -> None:
    with pytest.raises(ValueError, match=r"flush_s is 0"):
        ceiling_tps(2, flush_s=0)
    with pytest.raises(ValueError, match=r"flush_s is -1"):
        predict_commit_tps([1.0], flush_s=-1)
    with pytest.raises(ValueError, match=r"unflushed\[1\] is nan"):
        predict_commit_tps([1.0, math.nan], flush_s=1)
    with pytest.raises(ValueError, match="buffers_count"):
        predict_reads([], buffers_count=0)
    with pytest.raises(ValueError, match="completion_target"):
        find_checkpoint_distance_bytes(max_wal_size_bytes=MB, completion_target=2, segment_bytes=MB)
