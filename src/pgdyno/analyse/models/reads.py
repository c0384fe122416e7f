"""Model shared_buffers under random accesses: the share of accesses that miss, in the long run and from the first transaction.

Benchmarks measure the errors (benchmarks/models.py); ADR 0009 explains the choice of models. No constant is fitted to
what is predicted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from pgdyno.analyse.models.checks import check_not_negative, check_positive

Floats = npt.NDArray[np.float64]

# Source: PostgreSQL 15 to 18, src/include/storage/buf_internals.h, BM_MAX_USAGE_COUNT.
_MAX_USES = 5
# Finer arcs, or more rounds of the clock hand, change only the third digit.
_ARCS, _MAX_ROUNDS = 64, 40
# A share of the root: far above what rounding adds to a step.
_ROOT_ERROR = 1e-9


class PageClass(msgspec.Struct, frozen=True, kw_only=True):
    """Pages that are alike: each is equally likely to be accessed next."""

    pages_count: float
    accesses_per_transaction: float
    """Accesses to any of the pages; several in a row to one page count as one."""
    uses_per_access: int = 1
    """How often an access pins and releases the page: each time raises the page's usage count."""


class CacheForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The reads that remain with shared_buffers, and how long a page stays there."""

    reads_per_transaction: float
    memory_transactions: float
    """Transactions after which a page that none of them used is evicted; infinite if all pages fit."""


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
    check_positive(buffers_count=buffers_count)
    pages, accesses = _as_arrays(classes)
    if pages.sum() <= buffers_count:
        return CacheForecast(reads_per_transaction=0.0, memory_transactions=math.inf)
    rates = accesses / pages

    def find_step(memory: float) -> float:
        used = np.exp(-rates * memory)
        return float((buffers_count - pages @ (1.0 - used)) / (accesses @ used))

    memory = _climb_to_root(find_step)
    return CacheForecast(
        reads_per_transaction=float(accesses @ np.exp(-rates * memory)),
        memory_transactions=memory,
    )


def find_buffers(classes: Sequence[PageClass], *, reads_per_transaction: float) -> float:
    """Find how many buffers leave so many reads per transaction in the long run: `predict_reads` the other way round.

    Args:
        classes: As for `predict_reads`.
        reads_per_transaction: At most as many as a transaction has accesses.
    """
    check_positive(reads_per_transaction=reads_per_transaction)
    pages, accesses = _as_arrays(classes)
    rates = accesses / pages

    def find_step(memory: float) -> float:
        missed = accesses * np.exp(-rates * memory)
        return float((missed.sum() - reads_per_transaction) / (rates @ missed))

    return float(pages @ -np.expm1(-rates * _climb_to_root(find_step)))


def _as_arrays(classes: Sequence[PageClass]) -> tuple[Floats, Floats]:
    """Return the pages and the accesses per transaction of each class."""
    for one in classes:
        check_positive(pages_count=one.pages_count, accesses_per_transaction=one.accesses_per_transaction)
    pages = np.array([one.pages_count for one in classes])
    return pages, np.array([one.accesses_per_transaction for one in classes])


def _climb_to_root(find_step: Callable[[float], float]) -> float:
    """Find a root by Newton's method from 0, as long as a step still moves it.

    The functions here bend one way only, so that Newton's steps come ever nearer to the root and never pass it.

    Args:
        find_step: Gives Newton's step at a place below the root.
    """
    at = 0.0
    while (step := find_step(at)) > _ROOT_ERROR * at:
        at += step
    return at


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
    check_not_negative(after=after)
    check_positive(buffers_count=buffers_count, span=until - after)
    pages, accesses = _as_arrays(classes)
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
