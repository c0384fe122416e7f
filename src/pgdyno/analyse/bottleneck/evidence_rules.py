"""List the evidence for and against a resource, beside its share of the clients' time.

Supporting evidence comes from another source than the share itself, and counts from a threshold on. Evidence that only
repeats the share, or that is useful beside it, is context. Timing settings that were off, so that a source is missing,
are named, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pgdyno.analyse.bottleneck.signs import Signs
from pgdyno.analyse.standbys import Stage
from pgdyno.analyse.thresholds import THRESHOLDS
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.spec.pooler import REPLICAS
from pgdyno.units import format_share

PART_WORDS: Mapping[Stage, str] = {
    Stage.WRITE: "for sending and writing",
    Stage.FLUSH: "for its flush",
    Stage.REPLAY: "for its replay",
}
UNSEEN_CPUS = "how busy they were was not observed, and full ones would make any wait longer"


def list_support(signs: Signs, resource: Resource) -> tuple[str, ...]:
    """List the independent evidence that a resource is the bottleneck, each item from its own source."""
    return tuple(_SUPPORT[resource](signs)) if resource in _SUPPORT else ()


def list_context(signs: Signs, resource: Resource) -> tuple[str, ...]:
    """List what is useful to know beside a resource but proves nothing."""
    return tuple(_CONTEXT[resource](signs)) if resource in _CONTEXT else ()


def find_contradiction(signs: Signs, resource: Resource) -> str | None:
    """Return the evidence against the resource with the largest share; None if there is none."""
    if resource is Resource.CPU and signs.saturated_generator is not None:
        return signs.saturated_generator
    if resource is Resource.CLIENT and (signs.generator_ratio or 0.0) > THRESHOLDS.idle_thread_ratio:
        return f"pgbench's busiest thread was {format_share(signs.generator_ratio or 0.0)} busy"
    return None


def describe_rival(signs: Signs, resource: Resource, ratio: float) -> str:
    """Describe the evidence against a resource that does not have the largest share."""
    small = f"only {format_share(ratio)} of the clients' time"
    queueing = None if signs.time is None else signs.time.queueing_ratio
    if resource is Resource.CPU and queueing is not None:
        return f"{small}; runnable backends waited for a CPU {format_share(queueing)} of that time"
    if resource is Resource.CPU and signs.usable_cpu_count is None:
        return f"{small}; {UNSEEN_CPUS}"
    if resource is Resource.WAL_FLUSH and signs.flush_use_ratio is not None:
        return f"{small}; {format_share(signs.flush_use_ratio)} of the TPS that the disk's flushes allow"
    if resource is Resource.LOAD_GENERATOR and signs.generator_ratio is not None:
        return f"{small}; pgbench's busiest thread was busy {format_share(signs.generator_ratio)} of the time"
    return small


def find_disabled_timing(signs: Signs, resource: Resource) -> str | None:
    """Name the server's own timing that would have been evidence on a resource but was off; None if none was."""
    if resource in {Resource.WAL_FLUSH, Resource.DATA_WRITE} and signs.server_flushing_ratio is None:
        return "flushes by the server's own clock: track_wal_io_timing was off, or did not count"
    if resource is Resource.DATA_READ and signs.read_ms is None:
        return "reads by the server's own clock: track_io_timing was off, or did not count"
    return None


def _support_cpu(signs: Signs) -> Iterator[str]:
    if signs.throttled_ratio is not None and signs.throttled_ratio >= THRESHOLDS.throttled_ratio:
        yield f"the control group's CPU quota ran out in {format_share(signs.throttled_ratio)} of its periods"
    busy = signs.cpu_use_ratio
    if signs.is_cpu_subset:
        # The CPU figures cover more CPUs than the load may use.
        if signs.saturated_cpu is not None:
            yield signs.saturated_cpu
    elif busy is not None and busy >= THRESHOLDS.full_cpu_ratio:
        yield f"the CPUs were {signs.cpu_use}"


def _cpu_context(signs: Signs) -> Iterator[str]:
    time = signs.time
    if time is not None and time.queueing_ratio is not None and time.queueing_ratio >= THRESHOLDS.queueing_ratio:
        yield f"runnable backends waited for a CPU {format_share(time.queueing_ratio)} of that time"
    if time is not None and time.running_ms is not None:
        yield f"the kernel counted {time.running_ms:.3g} ms of CPU time of the server's backends in a transaction"
    if signs.idle_cpus is not None:
        yield signs.idle_cpus
    others = signs.others_ratio
    if others is not None and others >= THRESHOLDS.others_mentioned_ratio:
        yield f"programs that are no part of the study used {format_share(others)} of the CPUs"
    if REPLICAS in signs.load.endpoints and signs.standbys is not None and signs.standbys.cpus:
        yield "the server and its standbys share these CPUs: standbys on machines of their own would have others"
    if signs.saturated_generator is not None:
        yield f"but {signs.saturated_generator}"


def _support_flush(signs: Signs) -> Iterator[str]:
    for who, ratio in (("server", signs.server_flushing_ratio), ("disk", signs.device_flushing_ratio)):
        if ratio is not None and ratio >= THRESHOLDS.flushing_ratio:
            yield f"a flush was under way {format_share(min(1.0, ratio))} of the time, by the {who}'s own clock"
    if signs.flush_use_ratio is not None and signs.flush_use_ratio >= THRESHOLDS.flushing_ratio:
        yield f"{format_share(signs.flush_use_ratio)} of the TPS that the disk's flushes allow, by its card"


def _flush_context(signs: Signs) -> Iterator[str]:
    if signs.flush_use_ratio is not None and signs.flush_use_ratio < THRESHOLDS.flushing_ratio:
        yield f"only {format_share(signs.flush_use_ratio)} of the TPS that the disk's flushes allow, by its card"


def _support_reads(signs: Signs) -> Iterator[str]:
    share = None if signs.time is None else signs.time.find(Resource.DATA_READ)
    if share is None:
        return
    waiting = share.ratio * signs.load.clients
    if signs.reading is not None and _agree(signs.reading, waiting):
        yield f"the device had {signs.reading:.2g} reads under way while {waiting:.2g} backends waited for one"
    if signs.read_ms is not None and _agree(signs.read_ms, share.ms):
        yield f"reads took {signs.read_ms:.3g} ms of a transaction by the server's own clock"


def _agree(one: float, other: float) -> bool:
    return one > 0.0 and max(one / other, other / one) <= THRESHOLDS.agreeing_factor


def find_standby_part(signs: Signs) -> tuple[str, Stage] | None:
    """Find what commits waited for longest on a standby, by the primary's own measurement: the standby and the part."""
    if signs.standbys is None:
        return None
    parts = [
        (ms, lag.name, stage)
        for lag in signs.standbys.lags
        for stage, ms in signs.standbys.divide_wait(lag).items()
        if stage in signs.standbys.waited and not {*lag.sync_states} <= {"async", "potential"}
    ]
    if not parts:
        return None
    _, name, stage = max(parts, key=lambda part: part[0])
    return name, stage


def _support_standby(signs: Signs) -> Iterator[str]:
    found, figures = find_standby_part(signs), signs.standbys
    if found is None or figures is None:
        return
    name, stage = found
    lag = next(lag for lag in figures.lags if lag.name == name)
    last = figures.waited[-1]
    parts, earlier_ms = figures.divide_wait(lag), figures.earlier_flush_ms(lag)
    earlier = f" (up to {earlier_ms:.2g} of it before the WAL was written, while the standby still flushed earlier WAL)"
    remarks = {Stage.FLUSH: earlier if earlier_ms > THRESHOLDS.mentioned_ratio * sum(parts.values()) else ""}
    shares = ", ".join(f"{parts.get(one, 0.0):.2g} {PART_WORDS[one]}{remarks.get(one, '')}" for one in figures.waited)
    if last in lag.lag_ms:
        # Not only of commits: what lies between them is replayed without a delay, and is sampled as well.
        yield f"{name} usually confirmed WAL after {lag.lag_ms[last].usual:.3g} ms, by pg_stat_replication: {shares}"
    cpu = next((cpu for cpu in figures.cpus if cpu.name == name), None)
    if stage is Stage.REPLAY and cpu is not None and (cpu.replaying or 0.0) >= THRESHOLDS.full_thread_ratio:
        yield f"{name}'s startup process, which alone replays, was on a CPU {format_share(cpu.replaying or 0.0)} of the time"


def _standby_context(signs: Signs) -> Iterator[str]:
    for cpu in () if signs.standbys is None else signs.standbys.cpus:
        if cpu.cpus is not None:
            yield f"{cpu.name} used {cpu.cpus:.2g} CPUs of this machine, which the server then lacks"


def _support_pooler(signs: Signs) -> Iterator[str]:
    if signs.saturated_pooler is not None:
        yield signs.saturated_pooler


def _pooler_context(signs: Signs) -> Iterator[str]:
    if signs.pooler is not None and signs.pooler.queries_per_s is not None:
        yield f"it passed on {signs.pooler.queries_per_s:,.0f} queries a second"


def _support_pool(signs: Signs) -> Iterator[str]:
    pooler = signs.pooler
    if pooler is None or pooler.waiting_clients is None or pooler.active_servers is None or pooler.size is None:
        return
    if pooler.active_servers.mean >= THRESHOLDS.full_pool_ratio * pooler.size:
        yield (
            f"at {pooler.samples} looks {pooler.active_servers.mean:.3g} of {pooler.size} server connections were in use on average,"
            f" and {pooler.waiting_clients.mean:.3g} clients waited for one"
        )


def _pool_context(signs: Signs) -> Iterator[str]:
    if signs.pooler is not None and signs.pooler.wait_ms is not None:
        yield f"a transaction waited {signs.pooler.wait_ms:.3g} ms for a server connection"


def _support_writes(signs: Signs) -> Iterator[str]:
    is_busy = signs.busy_ratio is not None and signs.busy_ratio >= THRESHOLDS.busy_device_ratio
    # A disk that only flushes slowly is just as busy without writing a page of data.
    if is_busy and signs.pages_to_wal is not None and signs.pages_to_wal >= THRESHOLDS.pages_to_wal_ratio:
        yield (
            f"the data's disk had a request under way {format_share(signs.busy_ratio or 0.0)} of the time, "
            f"and PostgreSQL wrote {signs.pages_to_wal:.2g} bytes of data for each of WAL"
        )


def _support_locks(signs: Signs) -> Iterator[str]:
    if signs.has_few_branches:
        branches = "one branch" if signs.scale == 1 else f"{signs.scale} branches"
        yield f"{signs.load.writing_clients} clients update the rows of {branches}"


def _support_generator(signs: Signs) -> Iterator[str]:
    if signs.saturated_generator is not None:
        yield signs.saturated_generator


def _support_client(signs: Signs) -> Iterator[str]:
    ratio = signs.generator_ratio
    if ratio is not None and ratio <= THRESHOLDS.idle_thread_ratio:
        yield f"pgbench's busiest thread had time left: busy {format_share(ratio)} of it"


_SUPPORT: Mapping[Resource, Callable[[Signs], Iterator[str]]] = {
    Resource.CPU: _support_cpu,
    Resource.WAL_FLUSH: _support_flush,
    Resource.DATA_READ: _support_reads,
    Resource.DATA_WRITE: _support_writes,
    Resource.STANDBY: _support_standby,
    Resource.POOL: _support_pool,
    Resource.POOLER: _support_pooler,
    Resource.LOCK: _support_locks,
    Resource.LOAD_GENERATOR: _support_generator,
    Resource.CLIENT: _support_client,
}
_CONTEXT: Mapping[Resource, Callable[[Signs], Iterator[str]]] = {
    Resource.CPU: _cpu_context,
    Resource.WAL_FLUSH: _flush_context,
    Resource.STANDBY: _standby_context,
    Resource.POOL: _pool_context,
    Resource.POOLER: _pooler_context,
}
