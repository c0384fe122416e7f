"""The numbers that a verdict on a bottleneck depends on, in one table, each with where it is from.

Those without a source are this project's choice; `benchmarks/causes.py` shows what they do to planted causes and quiet loads.
"""

from __future__ import annotations

import msgspec


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Every number that a verdict on a bottleneck depends on. Shares of time, unless it says otherwise."""

    named_ratio: float = 0.25
    """Of the clients' time: what has less is not called the limit. Without it TPS could grow by a third at most."""
    mentioned_ratio: float = 0.05
    """Of the clients' time: what has less is not worth a word."""
    rival_ratio: float = 2 / 3
    """Of the largest share: a second one that has more could be the first in another trial (benchmarks/causes.py)."""
    full_cpu_ratio: float = 0.95
    """Of the CPUs: above it more clients bring no more TPS. Source: utilisation law, Lazowska et al. 1984, chapter 5;
    the rest is what ticks and a sampler err by."""
    others_ratio: float = 0.5
    """Of the CPUs: what other programs use beyond it are their full CPUs, not the load's."""
    full_thread_ratio: float = 0.75
    """Of pgbench's busiest thread, having a CPU or waiting for one: above it three clients and more are with it, of as many
    as one likes. Source: the same, u / (1 - u)."""
    idle_thread_ratio: float = 0.5
    """Of the same: below it clients wait for something else than pgbench."""
    round_trips_ratio: float = 0.5
    """Of the clients' time, between pgbench and the server, by scripts that cannot think: below it, processes being woken."""
    queueing_ratio: float = 0.3
    """Of the time in which backends could run: above it the CPUs are short for this load."""
    throttled_ratio: float = 0.2
    """Of the periods of a control group's quota: above it the quota is what the CPUs are short of. Source: Linux
    Documentation/scheduler/sched-bwc.rst."""
    writing_ratio: float = 0.5
    """Of the load, in which checkpoints wrote: above it they are no exception."""
    written_to_wal_ratio: float = 1.5
    """Bytes of the device over bytes of WAL: above it a third of what flushes wait behind is data, and more."""
    busy_device_ratio: float = 0.8
    """Of the load, in which the device had a request. Source: iostat(1), %util."""
    kept_rate_ratio: float = 0.98
    """TPS over a scheduled rate: above it the schedule is kept; arrivals at random make up for the rest."""
    flushing_ratio: float = 0.5
    """Of the load, in which a flush was under way: flushes come one after the other, so that 1 is all that they can do."""
    agreeing_factor: float = 2.0
    """Two ways to count the same waits agree within it."""


THRESHOLDS = Thresholds()
