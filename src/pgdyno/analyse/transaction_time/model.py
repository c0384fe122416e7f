"""Estimate where the clients' time goes, by resource: sampled backends and Little's law, corrected by kernel counters.

A wait event tells where a backend sleeps, not what it lacks. Five corrections follow, each only where its data exist:

- A backend that was woken but has no CPU yet still shows its wait event. The kernel counts how long backends were
  runnable without a CPU; what of this exceeds the sampled running time is moved from the waits to the CPU, in
  proportion to the waits.
- Of a server of the user's, the time on the way to it is known from empty statements beside the load: it is taken out of
  the waits for clients.
- A backend that waits for its client waits for pgbench's thread, for the CPU of that thread, or for the network and the
  client's think time. A thread's utilisation tells how many of its clients are at it, at most those that wait.
- Behind a pooler there are fewer backends than clients. Its own count of the time that clients wait for a server connection, and
  the utilisation of its thread, say where the others are.
- Pgbench's own wait for a CPU counts as CPU if backends wait for one just as long; if pgbench waits longer, the excess
  is pgbench's own.
- Pgbench's built-in scripts have no think time and use local sockets. If CPUs are short, samples are taken late, when
  many backends have been woken at once: the time that such clients seem to take beyond pgbench's threads is left out,
  and the other shares are scaled up.

No time is counted twice: all shares together are the clients' time. What limits the load is decided in `diagnosis`.

Sources: Little 1961, doi:10.1287/opre.9.3.383; Lazowska et al. 1984, Quantitative System Performance, chapters 3 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pgdyno.analyse.poolers import PoolerFigures
from pgdyno.analyse.transaction_time.network import NetworkTime
from pgdyno.analyse.transaction_time.observations import (
    IDLE,
    RUNNING,
    UNSEEN_CLIENT,
    BackendActivity,
    CpuCounts,
    count_cpu,
    observe_backends,
)
from pgdyno.analyse.transaction_time.pooling import find_pooler_ratio, split_off_pooler
from pgdyno.analyse.transaction_time.shares import Resource, TimeShare, TransactionTime
from pgdyno.analyse.transaction_time.theory import autocorrelated_half_width, count_clients_at_thread
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.samples.series import Floats
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialStatus
from pgdyno.spec.study import BUILTIN_SCRIPTS

# With fewer sampled seconds, only several trials show how far shares vary.
_MIN_SPREAD_SECONDS = 3
WAITING = (
    Resource.WAL_FLUSH,
    Resource.WAL_LOCK,
    Resource.DATA_READ,
    Resource.DATA_WRITE,
    Resource.TEMP_FILE,
    Resource.STANDBY,
    Resource.LOCK,
    Resource.LIGHTWEIGHT_LOCK,
)
"""Resources that backends wait for inside the server, if the cause is known."""


_WAITS_FOR_SCHEDULE = "clients that wait for their schedule cannot be told from those that wait for something else"


def measure_time(
    data: TrialData,
    workload: PlannedWorkload,
    network: NetworkTime | None = None,
    pooler: PoolerFigures | None = None,
) -> TransactionTime | None:
    """Estimate the mean time of a trial's transaction by resource; None if there are too few samples of the server's waits.

    At a scheduled rate, clients that wait for their schedule are left out.

    Args:
        data: The trial's data.
        workload: The trial's load.
        network: Of a server of the user's.
        pooler: What was seen of the pooler that the load connected to; None if that was the server itself.
    """
    if data.record.status is not TrialStatus.FINISHED or data.server is None or data.server.header is None:
        return None
    start_s, end_s = data.record.load_start_monotonic_s, data.record.load_end_monotonic_s
    count = data.transaction_count
    if start_s is None or end_s is None or not count:
        return None
    activity = observe_backends(data.server, workload, start_s, end_s)
    if activity is None:
        return None
    cpu = count_cpu(data, start_s, end_s)
    if pooler is not None:
        activity.by_activity[Resource.POOL] = np.array(pooler.waiting_by_s)
    parts = _split(activity, cpu, workload, pooler)
    per_transaction_ms = (end_s - start_s) / count * 1000.0
    absent = dict(cpu.absent)
    if network is not None:
        absent |= _split_off_network(parts, network, per_transaction_ms)
    if workload.is_scheduled and (workload.parts or pooler is not None):
        parts[Resource.CLIENT] = 0.0
        absent[Resource.CLIENT.value] = _WAITS_FOR_SCHEDULE
    elif cpu.is_short and all(name in BUILTIN_SCRIPTS for name, _ in workload.scripts):
        absent |= _drop_client(parts)
    total = sum(parts.values())
    if total <= 0.0:
        return None
    transaction_ms = total * per_transaction_ms
    shares = [_share(each, part / total, transaction_ms, activity, cpu) for each, part in parts.items() if part > 0.0]
    running, queueing = cpu.backends or (None, None)
    return TransactionTime(
        transaction_ms=transaction_ms,
        shares=tuple(sorted(shares, key=lambda share: -share.ratio)),
        observed_count=activity.samples_count,
        running_ms=None if running is None else running * per_transaction_ms,
        queueing_ratio=None if running is None or queueing is None else queueing / (running + queueing),
        generator_ratio=None if cpu.threads is None else max(map(sum, cpu.threads)),
        pooler_ratio=None if pooler is None else find_pooler_ratio(pooler, cpu.backends if cpu.are_shared else None),
        absent=absent,
    )


def _split(
    activity: BackendActivity, cpu: CpuCounts, load: PlannedWorkload, pooler: PoolerFigures | None
) -> dict[Resource, float]:
    """Split the mean number of clients by resource, with all corrections."""
    parts = {resource: activity.mean(resource) for resource in (*WAITING, Resource.UNKNOWN)}
    parts[Resource.CLIENT] = activity.mean(Resource.CLIENT) + activity.mean(IDLE)
    parts[Resource.CPU] = activity.mean(RUNNING)
    if cpu.backends is not None:
        _correct_for_queueing(parts, sum(cpu.backends))
    if pooler is not None:
        at_pooler = load.count_clients(pooler.name)
        split_off_pooler(parts, pooler, cpu.backends if cpu.are_shared else None, load.clients, at_pooler)
    if cpu.threads is not None:
        # Where pgbench has CPUs of its own, its waits for one are no sign of the server's.
        _split_off_generator(parts, cpu.threads, cpu.backends if cpu.are_shared else None, load.clients)
    return parts


def _correct_for_queueing(parts: dict[Resource, float], on_cpu: float) -> None:
    """Set CPU to what the kernel counted: an excess comes out of the waits, a shortfall becomes unknown time."""
    running = parts[Resource.CPU]
    waiting = sum(parts.values()) - running
    within = min(max(0.0, on_cpu - running), waiting)
    for resource in parts.keys() - {Resource.CPU}:
        parts[resource] *= 1.0 - within / waiting if waiting else 1.0
    parts[Resource.CPU] = running + within
    if on_cpu < running:
        parts[Resource.CPU] = on_cpu
        parts[Resource.UNKNOWN] += running - on_cpu


def _split_off_generator(
    parts: dict[Resource, float],
    threads: tuple[tuple[float, float], ...],
    backends: tuple[float, float] | None,
    clients: int,
) -> None:
    # pgbench distributes its clients evenly; a thread with one client more is the busier one.
    each, more = divmod(clients, len(threads))
    busy = sorted(map(sum, threads), reverse=True)
    of_client = min(
        parts[Resource.CLIENT], sum(count_clients_at_thread(u, each + (place < more)) for place, u in enumerate(busy))
    )
    had, waited = (sum(each) for each in zip(*threads, strict=True))
    queueing = 0.0
    if backends is not None and had > 0.0 and waited > 0.0:
        # If backends get their CPU sooner than pgbench does, only pgbench is short of CPU.
        queueing = waited / (had + waited) * min(1.0, (backends[1] / backends[0]) / (waited / had))
    parts[Resource.CLIENT] -= of_client
    parts[Resource.LOAD_GENERATOR] = of_client * (1.0 - queueing)
    parts[Resource.CPU] += of_client * queueing


def _split_off_network(parts: dict[Resource, float], network: NetworkTime, per_transaction_ms: float) -> dict[str, str]:
    """Move what the network takes out of the clients' part, by Little's law; return the reason if that is not known."""
    if network.ms is None or not network.is_far:
        why = (
            "client and server are on one machine"
            if network.is_local
            else "round trips this quick are mostly the work of both ends"
        )
        reason = network.absent or why
        return {Resource.NETWORK.value: reason}
    parts[Resource.NETWORK] = min(parts[Resource.CLIENT], network.ms / per_transaction_ms)
    parts[Resource.CLIENT] -= parts[Resource.NETWORK]
    return {} if Resource.LOAD_GENERATOR in parts else {Resource.LOAD_GENERATOR.value: "pgbench was not sampled"}


def _drop_client(parts: dict[Resource, float]) -> dict[str, str]:
    """Scale all other parts up to the whole, and return the reason why the client's part is absent, by its name."""
    client = parts[Resource.CLIENT]
    others = sum(parts.values()) - client
    if not client or not others:
        return {}
    for resource in parts:
        parts[resource] *= 0.0 if resource is Resource.CLIENT else 1.0 + client / others
    return {Resource.CLIENT.value: "with CPUs this busy, waits for the client cannot be told from waits for a CPU"}


_HOW: Mapping[Resource, str] = {
    Resource.NETWORK: "exchanges with the server, each as long as the quickest ping, where backends waited for their client",
    Resource.CPU: "backends on a CPU or waiting for one, counted by the kernel, with pgbench's wait for one",
    Resource.CLIENT: "backends whose client was not in pgbench's threads",
    Resource.LOAD_GENERATOR: "backends whose client was in pgbench's threads",
    Resource.POOL: "clients that waited for a server connection, by the pooler's own count",
    Resource.POOLER: "clients in the pooler's thread, by how busy that was",
    Resource.UNKNOWN: "backends that waited for what is not known, or ran without a CPU",
}


def _share(
    resource: Resource, ratio: float, transaction_ms: float, activity: BackendActivity, cpu: CpuCounts
) -> TimeShare:
    values = _series_of(resource, activity, cpu)
    half = None
    if values is not None and len(values) >= _MIN_SPREAD_SECONDS and values.mean():
        half = autocorrelated_half_width(values) / float(values.mean()) * ratio
    how = _HOW.get(resource, "backends seen in such a wait")
    if resource is Resource.CLIENT and cpu.absent.get(Resource.LOAD_GENERATOR.value) == UNSEEN_CLIENT:
        how = "backends that waited for pgbench or for the network"
    if resource is Resource.CPU and cpu.backends is None:
        how = "backends that waited for nothing, whether or not they had a CPU"
    return TimeShare(
        resource=resource,
        ms=ratio * transaction_ms,
        ratio=ratio,
        low_ratio=None if half is None else max(0.0, ratio - half),
        high_ratio=None if half is None else min(1.0, ratio + half),
        how=f"{how}; {activity.samples_count:,} looks",
    )


def _series_of(resource: Resource, activity: BackendActivity, cpu: CpuCounts) -> Floats | None:
    """Return the series that shows how a resource's share varies from second to second."""
    sources: dict[Resource, tuple[Resource | str, ...]] = {
        Resource.CPU: (RUNNING,),
        Resource.CLIENT: (Resource.CLIENT, IDLE),
        Resource.LOAD_GENERATOR: (Resource.CLIENT, IDLE),
        Resource.POOLER: (Resource.CLIENT, IDLE),
    }
    if resource is Resource.CPU and cpu.spread is not None:
        return cpu.spread
    lines = [activity.by_activity[what] for what in sources.get(resource, (resource,)) if what in activity.by_activity]
    return sum(lines[1:], start=lines[0]) if lines else None
