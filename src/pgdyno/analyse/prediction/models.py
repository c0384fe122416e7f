"""What PostgreSQL should do here, worked out from measured inputs: group commit, buffer misses, full-page images, checkpoints.

Each model says what goes in and what comes out, and nothing of what comes out goes in: no constant is fitted to what is
predicted. Benchmarks measure how far they are off (benchmarks/models.py); why they are as they are is in ADR 0009.
What a model leaves out, it says. Bad input is a ValueError: it is the caller's mistake, not a user's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Of 8168 bytes, 24 being the page's header, a row takes 132 and its pointer; of 8152, of which a tenth stays free, an
# entry of 16 and its pointer. Source: PostgreSQL 18 manual, Database Page Layout; nbtree/README; pgbench.c, initCreateTables.
# Source: PostgreSQL 15 to 18, src/include/storage/buf_internals.h, BM_MAX_USAGE_COUNT.
_MOST_USES = 5
# With more, flushes or CPUs bind by far, and the chain takes seconds to solve.
_MOST_CLIENTS = 128
# Finer arcs, or more rounds of the hand, change the third digit.
_ARCS, _MOST_ROUNDS = 64, 40


class CommitForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What a closed loop of committing clients comes to."""

    tps: float
    batch_count: float
    """Transactions that a flush makes durable, in the mean."""
    work_s: float
    """Of a transaction until it waits for a flush, with what others at work do to it."""


class KeptRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of which each transaction takes one, any of them, and keeps it locked until its commit is durable."""

    rows_count: float
    work_before_s: float
    """Of a transaction until it takes the row, with what others at work do to it."""


class PageClass(msgspec.Struct, frozen=True, kw_only=True):
    """Pages that are alike: each is as likely as any other of them to be the next."""

    name: str
    pages_count: float
    accesses_per_transaction: float
    """To any of them; several that follow at once are one."""
    uses_per_access: int = 1
    """How often one takes the page and lets it go: each raises the page's usage count."""


class CacheForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What shared_buffers come to hold, and what must be read."""

    hit_ratio: dict[str, float]
    """By class: share of its accesses that find their page, and of its pages that are held."""
    reads_per_transaction: float
    memory_transactions: float
    """Transactions after which a page that none of them used is gone; infinite where all pages fit."""


def ceiling_tps(clients: int, *, flush_s: float) -> float:
    """The TPS that flushes alone allow, with nothing else to do: a client, or two halves that take turns.

    Who commits while a flush is under way waits for its end, and shares the next one with all who came meanwhile.

    Args:
        clients: In a closed loop, each with one transaction at a time.
        flush_s: Of writing and flushing a little WAL.
    """
    _check_positive(clients=clients, flush_s=flush_s)
    return 1.0 / flush_s if clients == 1 else clients / (2.0 * flush_s)


def unflushed_tps(clients: int, *, think_s: float, cpu_s: float, cpu_count: float) -> tuple[float, ...]:
    """TPS of 1 to so many clients with everything but waiting for flushes.

    Args:
        clients: The most of them.
        think_s: Of one client's transaction without its flush, client and round trips included.
        cpu_s: CPU time of one transaction, client included.
        cpu_count: CPUs that there are for it.
    """
    _check_positive(clients=clients, think_s=think_s, cpu_s=cpu_s, cpu_count=cpu_count)
    return tuple(min(n / think_s, cpu_count / cpu_s) for n in range(1, clients + 1))


def charge_waits(unflushed: Sequence[float], *, wait_cpu_s: float, cpu_count: float) -> tuple[float, ...]:
    """The same with the CPU time that waiting for a flush takes: going to sleep, waking, and the flush's own calls.

    A flush on a quick disk is not only waited for. One client spends it while it waits, two or more take turns on the
    CPUs with it.

    Args:
        unflushed: TPS without waiting for flushes of 1, 2, … clients.
        wait_cpu_s: CPU time of a transaction with its flush, less that without it.
        cpu_count: CPUs that these clients had at the most.
    """
    _check_positive(cpu_count=cpu_count, **{f"unflushed[{n}]": rate for n, rate in enumerate(unflushed)})
    _check_not_negative(wait_cpu_s=wait_cpu_s)
    return (*unflushed[:1], *(1.0 / (1.0 / rate + wait_cpu_s / cpu_count) for rate in unflushed[1:]))


def predict_commit_tps(unflushed: Sequence[float], *, flush_s: float | Sequence[float]) -> CommitForecast:
    """TPS of a closed loop in which each transaction ends with a flush that is shared with all who wait for it.

    A Markov chain over the sizes of batches. While a flush is under way the other clients work: with n of them at work
    one is done at the rate unflushed[n-1], and waits. The next flush takes all who wait; where nobody does, it begins with
    the first who comes. The work of n clients stands for all that n clients do to each other: CPUs, sockets, locks, but
    for the rows that a transaction keeps locked while it waits for its flush.

    Limits: 1/(Z+F) for one client, N/2 in a batch and N/(2F) for more whose work Z is short against the flush F, and
    unflushed[N-1] where flushes cost nothing. For very many clients it is the smaller of the last two.

    Where flushes take differently long, batches gather during the long ones, and the short ones are over before many have
    come: the more they differ, the smaller a batch is in the mean. One flush tells nothing of the next one here.

    Source: Chandy, Herzog & Woo 1975, doi:10.1147/rd.191.0036, for work as one server of a rate by load; Bailey 1954,
    Journal of the Royal Statistical Society B 16, for chains at the ends of batches; PostgreSQL 18, access/transam/xlog.c,
    XLogFlush, for who shares a flush.

    Args:
        unflushed: TPS without waiting for flushes of 1, 2, … N clients; N is how many there are.
        flush_s: Of writing and flushing a little WAL; several are equally likely.
    """
    from scipy.linalg import expm  # noqa: PLC0415 - most commands predict nothing

    # scipy's expm divides by the difference of neighbouring rates: where they differ in the last digit alone, that is noise.
    rates = np.array([float(f"{rate:.9g}") for rate in unflushed])
    times_s = np.atleast_1d(np.asarray(flush_s, dtype=np.float64))
    mean_s = float(times_s.mean())
    _check_positive(
        clients=rates.size, flush_s=float(times_s.min()), **{f"unflushed[{n}]": rate for n, rate in enumerate(rates)}
    )
    clients = rates.size
    if clients > _MOST_CLIENTS:
        tps = min(float(rates[-1]), ceiling_tps(clients, flush_s=mean_s))
        work_s = max(0.0, clients / tps - 2.0 * mean_s)
        return CommitForecast(tps=tps, batch_count=tps * mean_s, work_s=work_s)
    # Row n: how many of n at work are still at work when a flush ends.
    falling = _falling(rates)
    still = np.mean([expm(falling * one) for one in times_s], axis=0)
    # The integral of how many are at work from a flush's begin to its end; of none, nothing.
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
    share = _stationary(following)
    batch_count = float(share @ np.arange(1, clients + 1))
    worked_s = float(share @ (at_work_s[:clients][::-1] + clients * idle_s))
    return CommitForecast(
        tps=batch_count / float(mean_s + share @ idle_s), batch_count=batch_count, work_s=worked_s / batch_count
    )


def keep_pgbench_rows(branches_count: int, *, work_s: float) -> tuple[KeptRows, ...]:
    """What tpcb-like keeps: a branch, which the fifth of its seven statements takes, and a teller from the one before on.

    Source: PostgreSQL 18, bin/pgbench/pgbench.c, builtin_script and ntellers.

    Args:
        branches_count: As many as the scale.
        work_s: Of a transaction, in equal parts by statement.
    """
    return tuple(
        KeptRows(rows_count=branches_count * each, work_before_s=work_s * statements / 7)
        for each, statements in ((1, 4), (10, 3))
    )


def wait_for_rows(tps: float, *, clients: int, kept: Sequence[KeptRows]) -> float:
    """What is left of a rate when a transaction also waits for rows that others keep locked until their flush is over.

    Each row is a queue whose service is as long as a transaction keeps it, nearly a constant; who comes to it meets what the
    other clients alone would make of it. Left out are what a client keeps while it waits, and the CPU that it then leaves to
    others: where CPUs bind, too much is taken off.

    Source: Kleinrock 1975, Queueing Systems I, 5.8, M/D/1; Reiser & Lavenberg 1980, doi:10.1145/322186.322195, arrival
    theorem of closed networks.

    Args:
        tps: Without that waiting.
        clients: In a closed loop.
        kept: Of a transaction.
    """
    from scipy.optimize import brentq  # noqa: PLC0415 - most commands predict nothing

    _check_positive(tps=tps, clients=clients)
    for one in kept:
        _check_positive(rows_count=one.rows_count)
    cycle_s = clients / tps
    held = [(one.rows_count, max(0.0, cycle_s - one.work_before_s)) for one in kept]
    # Below it a row would be taken more than all of the time.
    least_s = max([cycle_s, *((clients - 1) * held_s / rows for rows, held_s in held)])

    def missing_s(longer_s: float) -> float:
        busy = [((clients - 1) * held_s / rows / longer_s, held_s) for rows, held_s in held]
        return longer_s - cycle_s - sum(held_s * share / (2.0 * (1.0 - share)) for share, held_s in busy)

    low_s, high_s = least_s * (1.0 + 1e-9), least_s * 2.0
    while missing_s(high_s) < 0.0:
        high_s *= 2.0
    return clients / (low_s if missing_s(low_s) >= 0.0 else float(brentq(missing_s, low_s, high_s)))


def measure_flush_s(*, flushed_tps: float, unflushed_tps: float) -> float:
    """What a flush adds to one client's transaction.

    Args:
        flushed_tps: Of one client that waits for each of its flushes.
        unflushed_tps: Of the same with synchronous_commit=off.
    """
    _check_positive(flushed_tps=flushed_tps, unflushed_tps=unflushed_tps)
    if flushed_tps >= unflushed_tps:
        raise ValueError(f"a flush takes time: {flushed_tps} tps with it, {unflushed_tps} without")
    return 1.0 / flushed_tps - 1.0 / unflushed_tps


def predict_reads(classes: Sequence[PageClass], *, buffers_count: float) -> CacheForecast:
    """Reads per transaction into shared_buffers in the long run.

    Che's approximation: one time T for all pages, after which an unused page is gone; accesses to a page are Poisson. It
    is of LRU. PostgreSQL's clock keeps pages that are used again and again a little longer, which makes 1 to 2 % fewer reads.

    A page that shared_buffers miss may still be in the kernel's cache: a read here is no read of the disk.

    Source: Che, Tung & Wang 2002, doi:10.1109/JSAC.2002.801752; Fricker, Robert & Roberts 2012, arXiv:1202.3974, for why
    it is as good as it is.

    Args:
        classes: Of all pages that transactions access, those always held left out.
        buffers_count: Buffers that there are for them.
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

    # As many accesses as there are buffers fill them at the soonest.
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
    """Reads per transaction while shared_buffers still remember what they held before the first transaction.

    PostgreSQL's clock sweep in the mean: the ring of buffers in arcs, of which each holds so many pages of each class and
    usage count. Pages that were often used meanwhile outlive several rounds of the hand, so that settling takes several
    times as long as filling the buffers. In the long run this is `predict_reads` to 2 %.

    Source: PostgreSQL 18, storage/buffer/freelist.c, StrategyGetBuffer, and bufmgr.c, PinBuffer.

    Args:
        classes: As for `predict_reads`; where the caches were warmed, in the order in which they were read in.
        buffers_count: Buffers that there are for them.
        after: Transactions before the first that counts.
        until: Transactions before the first that counts no more.
        is_warm: Whether all pages were read in, one after the other, before the first transaction; else none was.
    """
    _check_not_negative(after=after)
    _check_positive(buffers_count=buffers_count, span=until - after)
    pages = np.array([one.pages_count for one in classes])
    accesses = np.array([one.accesses_per_transaction for one in classes])
    if pages.sum() <= buffers_count:
        rates = accesses / pages
        return 0.0 if is_warm else float(pages @ (np.exp(-rates * after) - np.exp(-rates * until))) / (until - after)
    ring = _fill_ring(pages, buffers_count) if is_warm else np.zeros((len(classes), _ARCS, _MOST_USES + 1))
    uses = [min(_MOST_USES, one.uses_per_access) for one in classes]
    now, reads, missed = 0.0, 0.0, float(accesses.sum())
    for arc in itertools.islice(itertools.cycle(range(_ARCS)), _ARCS * _MOST_ROUNDS):
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
            ring[one, :, more:] += used[:, : _MOST_USES + 1 - more]
            ring[one, :, -1] += used[:, _MOST_USES + 1 - more :].sum(axis=1)
            ring[one, arc, more] += taken * misses[one] / missed
    return (reads + missed * (until - max(now, after))) / (until - after)


def predict_full_page_images(*, updates_count: float, pages_count: float) -> float:
    """Pages that so many updates of random pages touch at least once since a checkpoint: each becomes one full image.

    Source: PostgreSQL 18 manual, full_page_writes; Feller 1968, An Introduction to Probability Theory I, II.5, occupancy.
    """
    _check_positive(pages_count=pages_count)
    _check_not_negative(updates_count=updates_count)
    if pages_count <= 1.0:
        return min(updates_count, pages_count)
    return -pages_count * math.expm1(updates_count * math.log1p(-1.0 / pages_count))


def find_checkpoint_distance_bytes(
    *, max_wal_size_bytes: int, completion_target: float, segment_bytes: int = 16 * 1024**2
) -> int:
    """WAL from one checkpoint's start to the next one's, where WAL and not time causes them.

    Source: PostgreSQL 18, access/transam/xlog.c, CalculateCheckpointSegments; at least one segment.
    """
    _check_positive(max_wal_size_bytes=max_wal_size_bytes, segment_bytes=segment_bytes)
    if not 0.0 <= completion_target <= 1.0:
        raise ValueError(f"checkpoint_completion_target is {completion_target}, which is not between 0 and 1")
    segments = int(max_wal_size_bytes / segment_bytes / (1.0 + completion_target))
    return max(1, segments) * segment_bytes


def _fill_ring(pages: Floats, buffers_count: float) -> Floats:
    """Classes by arcs by usage counts, after each page was read in once, class after class; the hand is at the oldest."""
    ring = np.zeros((len(pages), _ARCS, _MOST_USES + 1))
    # The hand has been at all buffers that the last round of reading did not come to.
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


def _falling(rates: Floats) -> Floats:
    """The generator of how many are at work, 0 to N, while nobody comes back to work."""
    size = rates.size + 1
    generator = np.zeros((size, size))
    at_work = np.arange(1, size)
    generator[at_work, at_work - 1] = rates
    generator[at_work, at_work] = -rates
    return generator


def _stationary(following: Floats) -> Floats:
    """The long-run shares of a chain whose rows say what follows each state."""
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
