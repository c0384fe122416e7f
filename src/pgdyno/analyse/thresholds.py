"""Define the thresholds that a verdict on a bottleneck depends on, in one table, each with its source.

Those without a source are this project's choice; `benchmarks/causes.py` shows their effect on planted causes and quiet
loads. Other questions have thresholds of their own: whether an episode had full CPUs, whether a trial deserves a
warning, or how near a load is to its ceiling.
"""

from __future__ import annotations

import msgspec


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Every threshold that a verdict on a bottleneck depends on. Ratios are shares of time, unless stated otherwise."""

    named_ratio: float = 0.25
    """Share of the clients' time below which a resource is not called the limit: removing it would gain at most a third of TPS."""
    mentioned_ratio: float = 0.05
    """Share of the clients' time below which a resource is not mentioned."""
    rival_ratio: float = 2 / 3
    """Share of the largest share: a second one above it could be the first in another trial (benchmarks/causes.py)."""
    min_samples_count: int = 30
    """Samples of backends below which nothing is certain: even independent samples then err by more than a sixth."""
    full_cpu_ratio: float = 0.95
    """Share of the CPUs' time above which more clients bring no more TPS. Source: utilisation law, Lazowska et al.
    1984, chapter 5; the rest is the error of clock ticks and the sampler."""
    full_own_ratio: float = 0.85
    """Share of its usable CPUs that a load itself uses when they are full: the kernel's own threads and interrupts take
    the rest. `capacity/bounds.py` uses it, too, for a load at the bound of its CPUs."""
    others_ratio: float = 0.5
    """Share of the CPUs' time: if other programs use more, it is they that fill the CPUs, not the load."""
    others_mentioned_ratio: float = 0.05
    """Share of the CPUs' time from which on the use by other programs is mentioned."""
    others_stopped_ratio: float = 0.25
    """Share of the CPUs' time from which on other programs should be stopped before anything else is done."""
    full_thread_ratio: float = 0.75
    """Share of its time that pgbench's busiest thread runs or waits for a CPU: above it, at least three clients are at
    the thread on average, out of arbitrarily many. Source: machine repair model as in `transaction_time/theory.py`, u / (1 - u)."""
    full_generator_ratio: float = 0.5
    """Share of the empty statements that a load host can send: above it, clients that the server waits for may lack nothing but
    CPUs there, since a load's statements are longer than empty ones (benchmarks/load_hosts.py)."""
    sure_generator_ratio: float = 0.75
    """Share of the empty statements that a load host can send: above it, with a thread that is busy half of the time, pgbench does
    all that it can, whatever else the server lacks."""
    idle_thread_ratio: float = 0.5
    """Share of the busiest thread's time below which clients wait for something other than pgbench."""
    round_trips_ratio: float = 0.5
    """Share of the clients' time between pgbench and the server, for scripts without think time: below it, it is wake-up time."""
    chance_factor: float = 2.0
    """Clients that wait for a row lock, over clients that may hold one: above it, chance does not explain the locks."""
    queueing_ratio: float = 0.3
    """Share of the runnable time of backends: above it, the CPUs are short for this load, and samples are taken late, too."""
    idle_cpu_ratio: float = 0.5
    """Share of the CPUs' time: below it, twice as many clients find CPUs, and more CPUs do no more for those that there are."""
    throttled_ratio: float = 0.2
    """Share of the periods of a control group's quota in which it ran out: above it, the quota is the CPU limit. The
    kernel counts both, Linux Documentation/scheduler/sched-bwc.rst."""
    writing_ratio: float = 0.5
    """Share of the load during which checkpoints wrote: above it, checkpoints are the normal state."""
    pages_to_wal_ratio: float = 0.5
    """Bytes of data that PostgreSQL wrote over bytes of WAL: above it, a third or more of what flushes wait behind is data."""
    busy_device_ratio: float = 0.8
    """Share of the load during which the device had a request. Source: iostat(1), %util."""
    lag_ratio: float = 0.5
    """Share of the mean latency by which scheduled transactions begin late: above it, they wait longer than they run."""
    missed_ratio: float = 0.05
    """Share of scheduled transactions that were skipped or beyond the limit: above it, the schedule is not kept."""
    short_deviations: float = 3.0
    """Standard deviations of a random count of arrivals by which a kept schedule may fall short. Source: Poisson, the
    deviation is the root of the expected count."""
    busy_connections_ratio: float = 0.5
    """Share of the time of a pool's busy connections: above it, in queues for CPUs that are short or for row locks, more connections
    would only make these queues longer."""
    full_pool_ratio: float = 0.8
    """Share of a pool's server connections in use, at the moments of samples: above it, the pool is full much of the time."""
    flushing_ratio: float = 0.5
    """Share of the load during which a flush was under way, or share of the TPS that flushes allow. Flushes run one
    after the other, so 1 is their maximum."""
    agreeing_factor: float = 2.0
    """Two counts of the same waits agree if they differ by at most this factor."""


THRESHOLDS = Thresholds()
