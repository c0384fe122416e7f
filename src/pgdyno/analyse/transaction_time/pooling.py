"""Split the time of clients that are on no backend between the pooler's thread, its queue for server connections, and themselves."""

from __future__ import annotations

from pgdyno.analyse.poolers import PoolerFigures, PoolerThread
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.analyse.transaction_time.theory import count_clients_at_thread


def split_off_pooler(
    parts: dict[Resource, float],
    pooler: PoolerFigures,
    backends: tuple[float, float] | None,
    clients: int,
    pooled_clients: int,
) -> None:
    """Replace idle backends by the clients that are at no backend, and take out of these what the pooler has.

    Args:
        parts: Mean numbers of clients by resource.
        pooler: What was seen of it.
        backends: Mean numbers of backends that had a CPU, and that waited for one; None if they were not counted, or have CPUs of
            their own.
        clients: Of the load.
        pooled_clients: Those of them that connect to the pooler.
    """
    busy = sum(parts.values()) - parts[Resource.CLIENT]
    outside = max(0.0, clients - busy)
    parts[Resource.POOL] = min(outside, pooler.waiting_count or 0.0)
    outside -= parts[Resource.POOL]
    at_thread = (
        0.0 if pooler.thread is None else min(outside, count_clients_at_thread(pooler.thread.ratio, pooled_clients))
    )
    of_cpu = 0.0
    if pooler.thread is not None and pooler.thread.ratio > 0.0:
        of_cpu = (
            at_thread * pooler.thread.waiting_ratio / pooler.thread.ratio * _share_of_backends(pooler.thread, backends)
        )
    parts[Resource.POOLER] = at_thread - of_cpu
    parts[Resource.CPU] += of_cpu
    parts[Resource.CLIENT] = outside - at_thread


def find_pooler_ratio(pooler: PoolerFigures, backends: tuple[float, float] | None) -> float | None:
    """Return the share of time in which a pooler's thread ran, or waited for a CPU longer than backends do for theirs.

    Where CPUs are short for all, the thread is no limit of its own.
    """
    thread = pooler.thread
    if thread is None:
        return None
    return thread.running_ratio + thread.waiting_ratio * (1.0 - _share_of_backends(thread, backends))


def _share_of_backends(thread: PoolerThread, backends: tuple[float, float] | None) -> float:
    """Return the part of a thread's wait for a CPU that backends have as well, in proportion to what they run."""
    if backends is None or not backends[0] or not thread.running_ratio or not thread.waiting_ratio:
        return 0.0
    return min(1.0, (backends[1] / backends[0]) / (thread.waiting_ratio / thread.running_ratio))
