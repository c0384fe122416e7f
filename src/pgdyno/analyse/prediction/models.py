"""Predict what PostgreSQL should do from measured inputs: group commit, buffer misses, full-page images, checkpoints.

No predicted quantity is an input of its own model, and no constant is fitted to what is predicted. Benchmarks measure
the errors (benchmarks/models.py); ADR 0009 explains the choice of models. Each model states what it leaves out. Bad
input is a ValueError, because it is a mistake of the caller and not of a user.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# A heap page has 8168 bytes, 24 of them header; a row takes 132 and its pointer. A leaf has 8152 bytes, a tenth of
# which stays free; an entry takes 16 and its pointer. Source: PostgreSQL 18 manual, Database Page Layout;
# nbtree/README; pgbench.c, initCreateTables.
# Source: PostgreSQL 15 to 18, src/include/storage/buf_internals.h, BM_MAX_USAGE_COUNT.
_MAX_USES = 5
# With more clients, flushes or CPUs are the limit by far, and the chain takes seconds to solve.
_MAX_CLIENTS = 128
# Finer arcs, or more rounds of the clock hand, change only the third digit.
_ARCS, _MAX_ROUNDS = 64, 40


class CommitForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted result of a closed loop of committing clients."""

    tps: float
    batch_count: float
    """Mean number of transactions that a flush makes durable."""
    work_s: float
    """Time of a transaction until it waits for a flush, slowed down by the other clients at work."""


class RowLocks(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of which each transaction locks one at random until its commit is durable."""

    rows_count: float
    work_before_s: float
    """Time of a transaction until it locks the row, slowed down by the other clients at work."""


class PageClass(msgspec.Struct, frozen=True, kw_only=True):
    """Pages that are alike: each is equally likely to be accessed next."""

    name: str
    pages_count: float
    accesses_per_transaction: float
    """Accesses to any of the pages; several in a row to one page count as one."""
    uses_per_access: int = 1
    """How often an access pins and releases the page: each time raises the page's usage count."""


class CacheForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted content of shared_buffers, and the reads that remain."""

    hit_ratio: dict[str, float]
    """Share of a class's accesses that find their page, which is also the share of its pages in memory."""
    reads_per_transaction: float
    memory_transactions: float
    """Transactions after which a page that none of them used is evicted; infinite if all pages fit."""


def ceiling_tps(clients: int, *, flush_s: float) -> float:
    """Compute the TPS that flushes alone allow: of one client, or of two halves of the clients that take turns.

    A client that commits during a flush waits for its end, and shares the next flush with all clients that wait by
    then.

    Args:
        clients: Clients in a closed loop, each with one transaction at a time.
        flush_s: Time to write and flush a little WAL.
    """
    _check_positive(clients=clients, flush_s=flush_s)
    return 1.0 / flush_s if clients == 1 else clients / (2.0 * flush_s)


def unflushed_tps(clients: int, *, think_s: float, cpu_s: float, cpu_count: float) -> tuple[float, ...]:
    """Compute TPS of 1 to `clients` clients with everything except waiting for flushes.

    Args:
        clients: The largest number of clients.
        think_s: Time of one client's transaction without its flush, client and round trips included.
        cpu_s: CPU time of one transaction, client included.
        cpu_count: Number of CPUs available for it.
    """
    _check_positive(clients=clients, think_s=think_s, cpu_s=cpu_s, cpu_count=cpu_count)
    return tuple(min(n / think_s, cpu_count / cpu_s) for n in range(1, clients + 1))


def add_flush_cpu(unflushed: Sequence[float], *, wait_cpu_s: float, cpu_count: float) -> tuple[float, ...]:
    """Add the CPU time of waiting for a flush to TPS without flushes: falling asleep, waking up, the flush's own calls.

    Waiting for a flush on a fast disk also takes CPU time. One client spends it while it waits; two or more compete for
    the CPUs with it.

    Args:
        unflushed: TPS of 1, 2, … clients without waiting for flushes.
        wait_cpu_s: CPU time of a transaction with its flush, minus that without it.
        cpu_count: Number of CPUs that these clients used at most.
    """
    _check_positive(cpu_count=cpu_count, **{f"unflushed[{n}]": rate for n, rate in enumerate(unflushed)})
    _check_not_negative(wait_cpu_s=wait_cpu_s)
    return (*unflushed[:1], *(1.0 / (1.0 / rate + wait_cpu_s / cpu_count) for rate in unflushed[1:]))


def predict_commit_tps(unflushed: Sequence[float], *, flush_s: float | Sequence[float]) -> CommitForecast:
    """Predict TPS of a closed loop in which each transaction ends with a flush, shared by all clients that wait for it.

    The model is a Markov chain over batch sizes. While a flush is under way the other clients work: with n of them at
    work, one finishes at the rate unflushed[n-1] and waits. The next flush serves all waiting clients; if there are
    none, it begins with the first one that arrives. The rates unflushed stand for all interference between n clients:
    CPUs, sockets, locks. They do not include the row locks that a transaction holds while it waits for its flush.

    Limits: 1/(Z+F) for one client; N/2 per batch and N/(2F) for more clients whose work Z is short compared with the
    flush F; and unflushed[N-1] if flushes cost nothing. For very many clients it is the smaller of the last two.

    If flush times vary, batches gather during the long flushes, and the short ones end before many clients have
    arrived: the more they vary, the smaller the mean batch. Consecutive flush times are taken as independent.

    Source: Chandy, Herzog & Woo 1975, doi:10.1147/rd.191.0036, for work as one server with a load-dependent rate;
    Bailey 1954, Journal of the Royal Statistical Society B 16, for chains at the ends of batches; PostgreSQL 18,
    access/transam/xlog.c, XLogFlush, for which commits share a flush.

    Args:
        unflushed: TPS of 1, 2, … N clients without waiting for flushes; N is the number of clients.
        flush_s: Time to write and flush a little WAL; several values are equally likely.
    """
    from scipy.linalg import expm  # noqa: PLC0415 - most commands predict nothing

    # scipy's expm divides by the difference of neighbouring rates: a difference in the last digit alone is noise.
    rates = np.array([float(f"{rate:.9g}") for rate in unflushed])
    times_s = np.atleast_1d(np.asarray(flush_s, dtype=np.float64))
    mean_s = float(times_s.mean())
    _check_positive(
        clients=rates.size, flush_s=float(times_s.min()), **{f"unflushed[{n}]": rate for n, rate in enumerate(rates)}
    )
    clients = rates.size
    if clients > _MAX_CLIENTS:
        tps = min(float(rates[-1]), ceiling_tps(clients, flush_s=mean_s))
        work_s = max(0.0, clients / tps - 2.0 * mean_s)
        return CommitForecast(tps=tps, batch_count=tps * mean_s, work_s=work_s)
    # Row n: the distribution of how many of n clients are still at work when a flush ends.
    falling = _departure_generator(rates)
    still = np.mean([expm(falling * one) for one in times_s], axis=0)
    # The integral of the number at work from the beginning of a flush to its end.
    at_work_s = np.zeros(clients + 1)
    at_work_s[1:] = np.linalg.solve(falling[1:, 1:], still[1:, 1:] - np.eye(clients)) @ np.arange(1, clients + 1)
    following = np.zeros((clients, clients))
    idle_s = np.empty(clients)
    for batch in range(1, clients + 1):
        others = clients - batch
        nobody = still[others, others]
        following[batch - 1, :others] = still[others, :others][::-1]
        following[batch - 1, 0] += nobody
        idle_s[batch - 1] = nobody / rates[-1]
    share = _stationary_distribution(following)
    batch_count = float(share @ np.arange(1, clients + 1))
    worked_s = float(share @ (at_work_s[:clients][::-1] + clients * idle_s))
    return CommitForecast(
        tps=batch_count / float(mean_s + share @ idle_s), batch_count=batch_count, work_s=worked_s / batch_count
    )


def list_pgbench_row_locks(branches_count: int, *, work_s: float) -> tuple[RowLocks, ...]:
    """Return the row locks of tpcb-like: a branch from the fifth of its seven statements on, a teller from the fourth on.

    Source: PostgreSQL 18, bin/pgbench/pgbench.c, builtin_script and ntellers.

    Args:
        branches_count: Number of branches, which is the scale.
        work_s: Time of a transaction, divided equally between its statements.
    """
    return tuple(
        RowLocks(rows_count=branches_count * each, work_before_s=work_s * statements / 7)
        for each, statements in ((1, 4), (10, 3))
    )


def subtract_row_waits(tps: float, *, clients: int, kept: Sequence[RowLocks]) -> float:
    """Reduce a rate by the time that transactions wait for rows that others keep locked until their flush is over.

    Each row is a queue whose service time is the time that a transaction holds it, which is nearly constant; an
    arriving client sees the queue that the other clients would form without it. The model leaves out the locks that a
    client holds while it waits, and the CPU that it then leaves to others: if CPUs are the limit, it subtracts too
    much.

    Source: Kleinrock 1975, Queueing Systems I, 5.8, M/D/1; Reiser & Lavenberg 1980, doi:10.1145/322186.322195, arrival
    theorem of closed networks.

    Args:
        tps: Rate without that waiting.
        clients: Number of clients in a closed loop.
        kept: Row locks of a transaction.
    """
    from scipy.optimize import brentq  # noqa: PLC0415 - most commands predict nothing

    _check_positive(tps=tps, clients=clients)
    for one in kept:
        _check_positive(rows_count=one.rows_count)
    cycle_s = clients / tps
    held = [(one.rows_count, max(0.0, cycle_s - one.work_before_s)) for one in kept]
    # With a shorter cycle, a row would be locked for more than all of the time.
    least_s = max([cycle_s, *((clients - 1) * held_s / rows for rows, held_s in held)])

    def missing_s(longer_s: float) -> float:
        busy = [((clients - 1) * held_s / rows / longer_s, held_s) for rows, held_s in held]
        return longer_s - cycle_s - sum(held_s * share / (2.0 * (1.0 - share)) for share, held_s in busy)

    low_s, high_s = least_s * (1.0 + 1e-9), least_s * 2.0
    while missing_s(high_s) < 0.0:
        high_s *= 2.0
    return clients / (low_s if missing_s(low_s) >= 0.0 else float(brentq(missing_s, low_s, high_s)))


def measure_flush_s(*, flushed_tps: float, unflushed_tps: float) -> float:
    """Compute what a flush adds to one client's transaction.

    Args:
        flushed_tps: TPS of one client that waits for each of its flushes.
        unflushed_tps: TPS of the same client with synchronous_commit=off.
    """
    _check_positive(flushed_tps=flushed_tps, unflushed_tps=unflushed_tps)
    if flushed_tps >= unflushed_tps:
        raise ValueError(f"a flush takes time: {flushed_tps} tps with it, {unflushed_tps} without")
    return 1.0 / flushed_tps - 1.0 / unflushed_tps


def predict_reads(classes: Sequence[PageClass], *, buffers_count: float) -> CacheForecast:
    """Predict the long-run reads per transaction into shared_buffers.

    Che's approximation of LRU: an unused page is evicted after a time T that is the same for all pages, and accesses to
    a page are Poisson. PostgreSQL's clock sweep keeps frequently used pages a little longer, which causes 1 to 2 %
    fewer reads.

    A page missing from shared_buffers may still be in the kernel's cache: a read here is not a read of the disk.

    Source: Che, Tung & Wang 2002, doi:10.1109/JSAC.2002.801752; Fricker, Robert & Roberts 2012, arXiv:1202.3974, for
    why the approximation is good.

    Args:
        classes: All pages that transactions access, except those that are always in memory.
        buffers_count: Number of buffers available for them.
    """
    _check_positive(buffers_count=buffers_count)
    for one in classes:
        _check_positive(pages_count=one.pages_count, accesses_per_transaction=one.accesses_per_transaction)
    pages = np.array([one.pages_count for one in classes])
    accesses = np.array([one.accesses_per_transaction for one in classes])
    if pages.sum() <= buffers_count:
        hits = dict.fromkeys((one.name for one in classes), 1.0)
        return CacheForecast(hit_ratio=hits, reads_per_transaction=0.0, memory_transactions=math.inf)
    from scipy.optimize import brentq  # noqa: PLC0415 - a third of a second, and only for data that do not fit

    rates = accesses / pages

    def overfull(memory: float) -> float:
        return float(pages @ -np.expm1(-rates * memory)) - buffers_count

    # This many accesses are the minimum to fill the buffers.
    low = high = buffers_count / accesses.sum()
    while overfull(high) < 0.0:
        high *= 2.0
    memory = float(brentq(overfull, low, high)) if high > low else low
    missed = np.exp(-rates * memory)
    return CacheForecast(
        hit_ratio={one.name: float(1.0 - ratio) for one, ratio in zip(classes, missed, strict=True)},
        reads_per_transaction=float(accesses @ missed),
        memory_transactions=memory,
    )


def predict_early_reads(
    classes: Sequence[PageClass], *, buffers_count: float, after: float, until: float, is_warm: bool
) -> float:
    """Predict reads per transaction while shared_buffers still depend on their content before the first transaction.

    It is PostgreSQL's clock sweep on average: the ring of buffers is divided into arcs, each with a number of pages of
    each class and usage count. Pages that were used often survive several rounds of the clock hand, so settling takes
    several times as long as filling the buffers. In the long run the result equals `predict_reads` to within 2 %.

    Source: PostgreSQL 18, storage/buffer/freelist.c, StrategyGetBuffer, and bufmgr.c, PinBuffer.

    Args:
        classes: As for `predict_reads`; if the caches were warmed, in the order of reading.
        buffers_count: Number of buffers available for them.
        after: Number of transactions before the first one that counts.
        until: Number of transactions up to and including the last one that counts.
        is_warm: Whether all pages were read once, one after the other, before the first transaction; otherwise none
            was.
    """
    _check_not_negative(after=after)
    _check_positive(buffers_count=buffers_count, span=until - after)
    pages = np.array([one.pages_count for one in classes])
    accesses = np.array([one.accesses_per_transaction for one in classes])
    if pages.sum() <= buffers_count:
        rates = accesses / pages
        return 0.0 if is_warm else float(pages @ (np.exp(-rates * after) - np.exp(-rates * until))) / (until - after)
    ring = _fill_ring(pages, buffers_count) if is_warm else np.zeros((len(classes), _ARCS, _MAX_USES + 1))
    uses = [min(_MAX_USES, one.uses_per_access) for one in classes]
    now, reads, missed = 0.0, 0.0, float(accesses.sum())
    for arc in itertools.islice(itertools.cycle(range(_ARCS)), _ARCS * _MAX_ROUNDS):
        misses = accesses * (1.0 - ring.sum(axis=(1, 2)) / pages)
        missed = float(misses.sum())
        taken = float(buffers_count / _ARCS - ring[:, arc, 1:].sum())
        step = taken / missed
        reads += missed * max(0.0, min(now + step, until) - max(now, after))
        now += step
        if now >= until:
            return reads / (until - after)
        ring[:, arc, :-1] = ring[:, arc, 1:]
        ring[:, arc, -1] = 0.0
        for one, more in enumerate(uses):
            used = ring[one] * -math.expm1(-accesses[one] / pages[one] * step)
            ring[one] -= used
            ring[one, :, more:] += used[:, : _MAX_USES + 1 - more]
            ring[one, :, -1] += used[:, _MAX_USES + 1 - more :].sum(axis=1)
            ring[one, arc, more] += taken * misses[one] / missed
    return (reads + missed * (until - max(now, after))) / (until - after)


def predict_full_page_images(*, updates_count: float, pages_count: float) -> float:
    """Predict how many pages random updates touch at least once since a checkpoint: each becomes one full-page image.

    Source: PostgreSQL 18 manual, full_page_writes; Feller 1968, An Introduction to Probability Theory I, II.5,
    occupancy.
    """
    _check_positive(pages_count=pages_count)
    _check_not_negative(updates_count=updates_count)
    if pages_count <= 1.0:
        return min(updates_count, pages_count)
    return -pages_count * math.expm1(updates_count * math.log1p(-1.0 / pages_count))


def find_checkpoint_distance_bytes(
    *, max_wal_size_bytes: int, completion_target: float, segment_bytes: int = 16 * 1024**2
) -> int:
    """Compute the WAL from one checkpoint's start to the next one's, if WAL and not time triggers them.

    Source: PostgreSQL 18, access/transam/xlog.c, CalculateCheckpointSegments; at least one segment.
    """
    _check_positive(max_wal_size_bytes=max_wal_size_bytes, segment_bytes=segment_bytes)
    if not 0.0 <= completion_target <= 1.0:
        raise ValueError(f"checkpoint_completion_target is {completion_target}, which is not between 0 and 1")
    segments = int(max_wal_size_bytes / segment_bytes / (1.0 + completion_target))
    return max(1, segments) * segment_bytes


def _fill_ring(pages: Floats, buffers_count: float) -> Floats:
    """Fill the ring as if each page was read once, class after class; shape (classes, arcs, usage counts); the hand is at the oldest."""
    ring = np.zeros((len(pages), _ARCS, _MAX_USES + 1))
    # The clock hand has passed all buffers that the last round of reading did not refill.
    fresh = math.fmod(pages.sum(), buffers_count)
    newest = buffers_count
    for one in reversed(range(len(pages))):
        oldest = max(0.0, newest - pages[one])
        edges = np.linspace(0.0, buffers_count, _ARCS + 1)
        for count, (low, high) in enumerate(
            ((oldest, min(newest, buffers_count - fresh)), (max(oldest, buffers_count - fresh), newest))
        ):
            inside = np.clip(edges, low, max(low, high))
            ring[one, :, count] = np.diff(inside)
        newest = oldest
    return ring


def _departure_generator(rates: Floats) -> Floats:
    """Build the generator of the number of clients at work, 0 to N, while none returns to work."""
    size = rates.size + 1
    generator = np.zeros((size, size))
    at_work = np.arange(1, size)
    generator[at_work, at_work - 1] = rates
    generator[at_work, at_work] = -rates
    return generator


def _stationary_distribution(following: Floats) -> Floats:
    """Compute the stationary distribution of a chain, given by rows of transition probabilities."""
    size = following.shape[0]
    equations = np.vstack([following.T - np.eye(size), np.ones(size)])
    shares: Floats = np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)[0]
    return shares


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"{name} is {value}, which is not above 0")


def _check_not_negative(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0.0):
            raise ValueError(f"{name} is {value}, which is below 0")
