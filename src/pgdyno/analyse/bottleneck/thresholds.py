"""The numbers that a verdict on a bottleneck depends on, in one table, each with where it is from.

Those without a source are this project's choice; `benchmarks/causes.py` shows what they do to planted causes and quiet
loads. Other questions have numbers of their own: whether an episode had full CPUs, whether a trial is worth a warning,
or how near a load is to its ceiling.
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
    least_looks_count: int = 30
    """Of looks at backends: with fewer nothing is sure, since even independent ones err by more than a sixth."""
    full_cpu_ratio: float = 0.95
    """Of the CPUs: above it more clients bring no more TPS. Source: utilisation law, Lazowska et al. 1984, chapter 5;
    the rest is what ticks and a sampler err by."""
    full_own_ratio: float = 0.85
    """Of the CPUs that a load may use, by the load alone: the rest goes to the kernel's own threads and interrupts. Where
    a load stands at the bound of its CPUs, `capacity_reckoning` has it, too."""
    others_ratio: float = 0.5
    """Of the CPUs: what other programs use beyond it are their full CPUs, not the load's."""
    others_mentioned_ratio: float = 0.05
    """Of the CPUs: what other programs use from there on is worth a word."""
    others_stopped_ratio: float = 0.25
    """Of the CPUs: what other programs use from there on is to be stopped before anything else is done."""
    full_thread_ratio: float = 0.75
    """Of pgbench's busiest thread, having a CPU or waiting for one: above it three clients and more are with it, of as many
    as one likes. Source: the same, u / (1 - u)."""
    idle_thread_ratio: float = 0.5
    """Of the same: below it clients wait for something else than pgbench."""
    round_trips_ratio: float = 0.5
    """Of the clients' time, between pgbench and the server, by scripts that cannot think: below it, processes being woken."""
    chance_factor: float = 2.0
    """Of those who may hold rows, who waits for one: more is no chance."""
    queueing_ratio: float = 0.3
    """Of the time in which backends could run: above it the CPUs are short for this load, and looks come late, too."""
    throttled_ratio: float = 0.2
    """Of the periods of a control group's quota: above it the quota is what the CPUs are short of. The kernel counts both,
    Linux Documentation/scheduler/sched-bwc.rst."""
    writing_ratio: float = 0.5
    """Of the load, in which checkpoints wrote: above it they are no exception."""
    pages_to_wal_ratio: float = 0.5
    """Bytes of data that PostgreSQL wrote over bytes of WAL: above it a third of what flushes wait behind is data, and more."""
    busy_device_ratio: float = 0.8
    """Of the load, in which the device had a request. Source: iostat(1), %util."""
    lag_ratio: float = 0.5
    """Of the mean latency, how late transactions of a schedule begin: above it they wait longer than they take."""
    missed_ratio: float = 0.05
    """Of scheduled transactions, skipped or beyond the limit: above it the schedule is not kept."""
    short_deviations: float = 3.0
    """Of a count of arrivals at random, which is what one of a kept schedule may lack. Source: Poisson, its deviation is
    the root of what is expected."""
    flushing_ratio: float = 0.5
    """Of the load, in which a flush was under way, or of what flushes allow: they come one after the other, so that 1 is all
    that they can do."""
    agreeing_factor: float = 2.0
    """Two ways to count the same waits agree within it."""


THRESHOLDS = Thresholds()
