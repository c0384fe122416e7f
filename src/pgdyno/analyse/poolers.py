"""Measure what a trial shows of the pooler that its load connected to: its one thread, its traffic, and the clients that waited.

A pooler counts the time that its clients wait for a server connection, so that the mean number of waiting clients is known
without sampling, by Little's law. The numbers at the samples' moments stand beside it. Nothing here has an interval.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from pgdyno.analyse.threads import measure_threads
from pgdyno.plan.types import PlannedPooler
from pgdyno.record.samples.pooler import POOLER, PoolerSample
from pgdyno.record.trial_data import TrialData

_MICROSECONDS = 1e6


class AtLooks(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers at the moments of samples: their mean and the largest."""

    mean: float
    largest: float


class PoolerThread(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the load in which a pooler's busiest thread had a CPU, and waited for one."""

    running_ratio: float
    waiting_ratio: float

    @property
    def ratio(self) -> float:
        """Both together: the thread had work."""
        return self.running_ratio + self.waiting_ratio


class PoolerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of the pooler of one trial; None where the pooler or the kernel did not say."""

    name: str
    mode: str
    """As its console says; else as it was taken to be."""
    size: int | None
    """Server connections of the pool; None of a pooler that ran already."""
    version: str
    """As the pooler calls itself; empty if it was not sampled."""
    samples: int
    queries_per_s: float | None = None
    transactions_per_s: float | None = None
    wait_ms: float | None = None
    """Mean time that a transaction waited for a server connection."""
    waiting_count: float | None = None
    """Mean number of clients that waited for a server connection, by the pooler's own count of that time."""
    waiting_clients: AtLooks | None = None
    active_servers: AtLooks | None = None
    """Server connections that served a client."""
    thread: PoolerThread | None = None
    waiting_by_s: tuple[float, ...] = ()
    """As `waiting_count`, from sample to sample."""


def measure_pooler(data: TrialData, pooler: PlannedPooler | None) -> PoolerFigures | None:
    """Measure what a trial shows of its pooler; None without one.

    Args:
        data: The trial's data.
        pooler: What its load connected to; None for the server itself.
    """
    start_s, end_s = data.record.load_start_monotonic_s, data.record.load_end_monotonic_s
    if pooler is None or start_s is None or end_s is None:
        return None
    seen = () if data.pooler is None else data.pooler.samples
    inside = [one for one in seen if start_s <= one.t_s <= end_s]
    figures = PoolerFigures(
        name=pooler.name,
        mode=(None if data.pooler is None else data.pooler.mode) or pooler.mode.value,
        size=pooler.size,
        version="" if data.pooler is None else data.pooler.version,
        samples=len(inside),
        thread=_find_busiest_thread(data, start_s, end_s),
    )
    if len(inside) < 2:
        return figures
    queries, transactions, waited_us = (_count(inside, name) for name in ("queries", "transactions", "wait_us"))
    length_s = inside[-1].t_s - inside[0].t_s
    return msgspec.structs.replace(
        figures,
        queries_per_s=None if queries is None else queries / length_s,
        transactions_per_s=None if transactions is None else transactions / length_s,
        wait_ms=None if waited_us is None or not transactions else waited_us / 1e3 / transactions,
        waiting_count=None if waited_us is None else waited_us / _MICROSECONDS / length_s,
        waiting_clients=_look(inside, "waiting_clients"),
        active_servers=_look(inside, "active_servers"),
        waiting_by_s=_list_waiting(inside),
    )


def _find_busiest_thread(data: TrialData, start_s: float, end_s: float) -> PoolerThread | None:
    """Find the busiest thread: PgBouncer works in one, others have several."""
    if data.os is None:
        return None
    threads = [
        PoolerThread(running_ratio=had, waiting_ratio=waited)
        for had, waited in measure_threads(data.os, start_s, end_s, label=POOLER)
    ]
    return max(threads, key=lambda thread: thread.ratio, default=None)


def _count(samples: Sequence[PoolerSample], name: str) -> float | None:
    """Return the growth of a counter; None if it is not there, or fell because the pooler was restarted."""
    first, last = getattr(samples[0], name), getattr(samples[-1], name)
    return None if first is None or last is None or last < first else last - first


def _list_waiting(samples: Sequence[PoolerSample]) -> tuple[float, ...]:
    return tuple(
        (later.wait_us - earlier.wait_us) / _MICROSECONDS / (later.t_s - earlier.t_s)
        for earlier, later in itertools.pairwise(samples)
        if earlier.wait_us is not None and later.wait_us is not None and later.wait_us >= earlier.wait_us
    )


def _look(samples: Sequence[PoolerSample], name: str) -> AtLooks | None:
    values = [value for one in samples if (value := getattr(one, name)) is not None]
    return AtLooks(mean=sum(values) / len(values), largest=max(values)) if values else None
