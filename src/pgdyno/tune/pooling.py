"""Find what stands around the server, and choose how many connections the pool of a pooler has.

The pool decides max_connections, and with it the memory of all sessions. The best source is a sweep over pool sizes with the user's
load, then one over clients: with as many sessions as its knee it has 90 % of its highest TPS. Without one it is PostgreSQL's rule of thumb. In session mode
each client keeps a connection, and nothing is left to choose.
"""

from __future__ import annotations

import math

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.endpoints import CONNECTIONS_PER_CPU, POOL_PER_KNEE, choose_pool_size
from pgdyno.spec.pooler import PoolMode
from pgdyno.spec.topology import TopologySpec, merge_topologies
from pgdyno.tune.disk.classes import find_read_latency
from pgdyno.tune.draft import Draft
from pgdyno.tune.types import Known, MeasuredKnee, Pooling, TuningSubject

SIZE = "pool size"
"""Name of the input that other settings are derived from."""
_HOST_FILE = "the host file"
ASKED = ("--pool-size", _HOST_FILE)
"""Origins of a size that the user wants."""
# Connections for maintenance and monitoring, beside the pool: as for clients without one.
_SPARE_SHARE, _LEAST_SPARE = 0.1, 5
# Connections that the load never gets.
_RESERVED = ("superuser_reserved_connections", "reserved_connections")
# Reads that the disk does at once let more connections wait for it, but no source says that more than this helps.
_MOST_READS_PER_CPU = 2
_SAME_CPUS_RATIO = 0.05


def spare_connections(count: float) -> int:
    """Return the connections for maintenance and monitoring beside this many for the load."""
    return max(_LEAST_SPARE, math.ceil(count * _SPARE_SHARE))


def reserved_connections(draft: Draft) -> float:
    """Return the connections that the server keeps from ordinary users; reserved_connections exists from 16 on."""
    return sum(draft.number(name) for name in _RESERVED if draft.guc(name) is not None)


def find_standbys(said: TopologySpec, declared: TopologySpec | None) -> Known | None:
    """Return the number of standbys, as options or else a host file say; None if there are none."""
    count = merge_topologies(said, declared).standbys
    return Known.declared("standbys", count, "count", _say_where(said.standbys, "--standbys")) if count else None


def find_pooling(
    said: TopologySpec, declared: TopologySpec | None, *, clients: Known, knee: MeasuredKnee | str
) -> Pooling | None:
    """Return the pooler that options or else a host file say; None without one.

    Args:
        said: By options.
        declared: By a host file.
        clients: That connect to it.
        knee: Of a record's sweep over clients, or why there is none.
    """
    topology = merge_topologies(said, declared)
    mode, size = topology.pool_mode, topology.pool_size
    if mode is None:
        return None
    return Pooling(
        mode=mode,
        clients=msgspec.structs.replace(clients, name="clients"),
        size=None if size is None else Known.declared(SIZE, size, "count", _say_where(said.pool_size, "--pool-size")),
        knee=None if isinstance(knee, str) else knee,
        no_knee_reason=knee if isinstance(knee, str) else "",
    )


def _say_where(said: int | None, option: str) -> str:
    return _HOST_FILE if said is None else option


def with_pool(draft: Draft) -> TuningSubject:
    """Return the subject with its pool chosen, whose connections are then all that the server has for the load.

    Args:
        draft: What settings are derived for, before the first decision; its subject is returned as it is without a pooler.

    Raises:
        SpecError: The pool that the user wants does not fit the max_connections that the user fixed.
    """
    subject, pooling = draft.subject, draft.subject.pooling
    if pooling is None:
        return subject
    size = _fit(draft, pooling.size or _choose_size(subject, pooling), is_asked=pooling.size is not None)
    active = subject.active
    if pooling.mode is PoolMode.TRANSACTION:
        how = "each connection of the pool may be at work at once"
        active = Known(name="sessions at work", value=size.value, unit="count", origin=size.origin, how=how)
    return msgspec.structs.replace(
        subject, connections=size, active=active, pooling=msgspec.structs.replace(pooling, size=size)
    )


def find_usable_knee(subject: TuningSubject) -> MeasuredKnee | None:
    """Return the knee that a pool is sized by; None without one, or if it was found with other CPUs."""
    knee = None if subject.pooling is None else subject.pooling.knee
    if knee is None or knee.cpu_count is None:
        return knee
    return knee if has_as_many_cpus(knee.cpu_count, subject.cpus.value) else None


def has_as_many_cpus(one: float, other: float) -> bool:
    """Return whether two machines have the same number of CPUs, but for the rounding of a quota."""
    return math.isclose(one, other, rel_tol=_SAME_CPUS_RATIO)


def describe_knee(knee: MeasuredKnee) -> str:
    """Describe a knee with its interval: `12 clients [10, 16]`."""
    found = f"{knee.clients:.3g} {knee.unit}s"
    if knee.is_beyond:
        return f"{found} or more"
    if knee.low is None:
        return found
    interval = f"({knee.low:.3g} or more)" if knee.high is None else f"[{knee.low:.3g}, {knee.high:.3g}]"
    return f"{found} {interval}"


def _choose_size(subject: TuningSubject, pooling: Pooling) -> Known:
    clients = pooling.clients
    if pooling.mode is PoolMode.SESSION:
        how = f"one for each client, which keeps it to the end of its session; {clients.how}"
        return Known(name=SIZE, value=clients.value, unit="count", origin=clients.origin, how=how)
    knee = find_usable_knee(subject)
    if knee is not None:
        value = max(1, min(_go_above(knee), int(clients.value)))
        return Known.measured(SIZE, value, "count", f"knee at {describe_knee(knee)} of {knee.how}")
    cpus, reads = subject.cpus.value, find_reads_at_once(subject)
    value = max(1, min(choose_pool_size(cpus, for_disk=reads), int(clients.value)))
    how = f"{CONNECTIONS_PER_CPU} for each of {cpus:g} CPUs and {reads} for the disk, PostgreSQL's rule of thumb"
    return Known.assumed(SIZE, value, "count", how)


def _go_above(knee: MeasuredKnee) -> int:
    """Return the number of connections that a knee asks for: its upper end within bounds, half as many again if it has no interval."""
    if knee.is_beyond:
        return round(knee.clients)
    least, most = (ratio * knee.clients for ratio in POOL_PER_KNEE)
    high = knee.high
    if high is None:
        high = least if knee.low is None else most
    return math.ceil(min(most, max(high, least)))


def find_reads_at_once(subject: TuningSubject) -> int:
    """Return how many connections the disk can serve beside those that the CPUs serve.

    The rule of thumb has one for each spindle, and none if all data are cached. A disk of another kind counts as the reads that it
    does at once (Little's law), as far as data exceed the memory.
    """
    disk = subject.disk
    outside = max(0.0, 1 - subject.memory.value / max(1.0, subject.dataset.value))
    busy = disk.random_read_iops.value * find_read_latency(disk).value
    most = max(1, round(_MOST_READS_PER_CPU * subject.cpus.value))
    return max(1, min(most, round(outside * busy)))


def _fit(draft: Draft, size: Known, *, is_asked: bool) -> Known:
    """Fit a pool into the max_connections that the user fixed."""
    if not draft.is_fixed("max_connections"):
        return size
    most, fixed = int(draft.number("max_connections") - reserved_connections(draft)), draft.text("max_connections")
    room = max(1, most - spare_connections(most))
    if size.value <= room:
        return size
    if is_asked:
        raise SpecError(
            f"a pool of {size.value:g} does not fit into max_connections = {fixed}",
            detail=f"{room} are left beside those for superusers, maintenance and monitoring",
            hint=f"ask for a pool of {room}, or for more max_connections",
        )
    how = f"what max_connections = {fixed} leaves; {size.value:g} would be {size.how}"
    return Known.declared(SIZE, room, "count", how)
