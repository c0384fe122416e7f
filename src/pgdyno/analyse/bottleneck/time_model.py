"""Where the clients' time goes, by resource: looks at their backends x Little's law, corrected by what the kernel counted.

A wait event tells where a backend sleeps, not what it lacks. Four corrections follow, each only as far as it was seen:

- A backend that was woken and has no CPU yet still shows its wait event. The kernel counts how long backends were ready
  and had no CPU; what of that does not fit into the time as running backends lies in the waits, in proportion to them.
- A backend that waits for its client waits for pgbench's thread, for the CPU of that thread, or for the network and a
  client that thinks. How busy a thread is tells how many of its clients are with it, at most those that wait.
- pgbench's own wait for a CPU is the CPU's as far as backends wait for one just as long; else it alone is kept short.
- pgbench's own scripts do not think and their sockets are local. Where CPUs are short, looks come late, when many have
  been woken at once: what such a client seems to take beyond pgbench's threads is left out, and the rest scaled.

Nothing is added up twice: all shares together are the clients' time. It refuses to judge what limits: `bottleneck` does.

Sources: Little 1961, doi:10.1287/opre.9.3.383; Lazowska et al. 1984, Quantitative System Performance, chapters 3 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from pgdyno.analyse.bottleneck.thresholds import THRESHOLDS
from pgdyno.analyse.bottleneck.time_share import Resource, TimeShare, TransactionTime
from pgdyno.analyse.bottleneck.time_theory import count_at_thread, half_width
from pgdyno.facts.wait_events import find_resource
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.samples import os_series as series
from pgdyno.record.samples.files import ServerSamples
from pgdyno.record.samples.os_series import Floats, gauge
from pgdyno.record.samples.server_series import CLIENT_BACKEND, list_wait_counts
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialStatus, why_missing
from pgdyno.spec.study import BUILTIN_SCRIPTS

# Looks at fewer seconds say nothing of where the time goes; of fewer than the second number, several trials alone tell how
# far it varies.
_LEAST_SECONDS = 2
_LEAST_SPREAD_SECONDS = 3
_RUNNING = "running"
_IDLE = "idle"
WAITING = (
    Resource.WAL_FLUSH,
    Resource.WAL_LOCK,
    Resource.DATA_READ,
    Resource.DATA_WRITE,
    Resource.TEMP_FILE,
    Resource.STANDBY,
    Resource.LOCK,
)
"""What backends are seen waiting for in the server, if that is known."""


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Mean numbers of clients' backends in each second by what they did, and how many looks that rests on."""

    by_what: dict[Resource | str, Floats]
    looks_count: int

    def mean(self, what: Resource | str) -> float:
        return float(self.by_what[what].mean()) if what in self.by_what else 0.0


class _Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the load of what the kernel counted; None, with the reason, what it did not."""

    backends: tuple[float, float] | None
    """Clients' backends that had a CPU, and that waited for one."""
    threads: tuple[tuple[float, float], ...] | None
    """Of pgbench, likewise."""
    absent: dict[str, str]
    spread: Floats | None = None
    """Of both numbers of backends together, by second."""

    @property
    def is_short(self) -> bool:
        """Whether backends wait for CPUs much of the time, and pgbench's part is known."""
        if self.backends is None or self.threads is None:
            return False
        return self.backends[1] >= THRESHOLDS.queueing_ratio * sum(self.backends)


def measure_time(data: TrialData, workload: PlannedWorkload) -> TransactionTime | None:
    """The mean time of a trial's transaction by resource; None where there are too few looks at the server's waits.

    At a scheduled rate, clients that wait for their schedule are no part of it.

    Args:
        data: Of the trial.
        workload: Its load.
    """
    if data.record.status is not TrialStatus.FINISHED or data.server is None or data.server.header is None:
        return None
    start_s, end_s = data.record.load_start_monotonic_s, data.record.load_end_monotonic_s
    count = None if data.pgbench is None else data.pgbench.transaction_count
    if start_s is None or end_s is None or not count:
        return None
    seen = _observe(data.server, workload, start_s, end_s)
    if seen is None:
        return None
    cpu = _count_cpu(data, start_s, end_s)
    parts = _split(seen, cpu, workload.clients)
    absent = dict(cpu.absent)
    if cpu.is_short and all(name in BUILTIN_SCRIPTS for name, _ in workload.scripts):
        absent |= _leave_out_client(parts)
    total = sum(parts.values())
    if total <= 0.0:
        return None
    per_transaction_ms = (end_s - start_s) / count * 1000.0
    transaction_ms = total * per_transaction_ms
    shares = [_share(each, part / total, transaction_ms, seen, cpu) for each, part in parts.items() if part > 0.0]
    running, queueing = cpu.backends or (None, None)
    return TransactionTime(
        transaction_ms=transaction_ms,
        shares=tuple(sorted(shares, key=lambda share: -share.ratio)),
        observed_count=seen.looks_count,
        running_ms=None if running is None else running * per_transaction_ms,
        queueing_ratio=None if running is None or queueing is None else queueing / (running + queueing),
        generator_ratio=None if cpu.threads is None else max(map(sum, cpu.threads)),
        absent=absent,
    )


def _observe(samples: ServerSamples, workload: PlannedWorkload, start_s: float, end_s: float) -> _Seen | None:
    """What clients' backends did in each second of the load."""
    times_s, looks = gauge(samples.frame, "t_s"), gauge(samples.frame, "n")
    inside = (times_s > start_s) & (times_s <= end_s) & (looks > 0)
    # The looks of a row lie in the second before it.
    inside[1:] &= times_s[:-1] >= start_s
    inside[:1] = False
    if inside.sum() < _LEAST_SECONDS or samples.header is None:
        return None
    major = samples.header.version_num // 10_000
    by_what: dict[Resource | str, Floats] = {}
    for observed in list_wait_counts(samples, CLIENT_BACKEND):
        what = _find_what(major, observed.state, observed.wait_event_type, observed.wait_event)
        if what == _IDLE and workload.rate_tps is not None:
            continue
        backends = observed.counts[inside] / looks[inside]
        by_what[what] = by_what.get(what, np.zeros(len(backends))) + backends
    _leave_out_others(by_what, workload.clients)
    return _Seen(by_what=by_what, looks_count=int(looks[inside].sum()))


def _find_what(major: int, state: str, wait_event_type: str, wait_event: str) -> Resource | str:
    if not wait_event_type:
        return _RUNNING
    if wait_event_type == "Client" and state == "idle":
        return _IDLE
    waited = find_resource(major, wait_event_type, wait_event)
    return Resource.UNKNOWN if waited is None else Resource(waited)


def _leave_out_others(by_what: dict[Resource | str, Floats], clients: int) -> None:
    """Sessions that are no part of the load idle; what goes beyond the clients is theirs."""
    if _IDLE in by_what:
        beyond = sum(by_what.values()) - clients
        by_what[_IDLE] = by_what[_IDLE] - np.clip(beyond, 0.0, by_what[_IDLE])


def _count_cpu(data: TrialData, start_s: float, end_s: float) -> _Cpu:
    if data.os is None:
        reason = why_missing(data.gaps, "os sampler") or "nobody watched the machine"
        return _Cpu(backends=None, threads=None, absent={"running_ms": reason, Resource.LOAD_GENERATOR.value: reason})
    absent: dict[str, str] = {}
    lines = series.backends_on_cpu(data.os)
    running, queueing = map(data.within_load, lines)
    if not len(running) or not len(queueing) or running.mean() <= 0.0:
        absent["running_ms"] = lines[0].absent or "this kernel does not count it"
    times_s = gauge(data.os.frame, "t_s")
    inside = (times_s[:-1] >= start_s) & (times_s[1:] <= end_s)
    threads = [
        (float(np.nanmean(had[inside])), float(np.nanmean(waited[inside])))
        for had, waited in series.busy_threads(data.os).values()
        if np.isfinite(had[inside]).any() and np.isfinite(waited[inside]).any()
    ]
    if not threads:
        absent[Resource.LOAD_GENERATOR.value] = "how long pgbench's threads waited for a CPU was not seen"
    return _Cpu(
        backends=None if "running_ms" in absent else (float(running.mean()), float(queueing.mean())),
        threads=tuple(threads) or None,
        absent=absent,
        spread=None if "running_ms" in absent else running + queueing,
    )


def _split(seen: _Seen, cpu: _Cpu, clients: int) -> dict[Resource, float]:
    """The mean number of clients by resource, corrected."""
    parts = {resource: seen.mean(resource) for resource in (*WAITING, Resource.UNKNOWN)}
    parts[Resource.CLIENT] = seen.mean(Resource.CLIENT) + seen.mean(_IDLE)
    parts[Resource.CPU] = seen.mean(_RUNNING)
    if cpu.backends is not None:
        _take_out_queueing(parts, sum(cpu.backends))
    if cpu.threads is not None:
        _take_out_generator(parts, cpu.threads, cpu.backends, clients)
    return parts


def _take_out_queueing(parts: dict[Resource, float], on_cpu: float) -> None:
    """Have CPU be what the kernel counted: more than ran lies in the waits, and what ran without one is not known."""
    running = parts[Resource.CPU]
    waiting = sum(parts.values()) - running
    within = min(max(0.0, on_cpu - running), waiting)
    for resource in parts.keys() - {Resource.CPU}:
        parts[resource] *= 1.0 - within / waiting if waiting else 1.0
    parts[Resource.CPU] = running + within
    if on_cpu < running:
        parts[Resource.CPU] = on_cpu
        parts[Resource.UNKNOWN] += running - on_cpu


def _take_out_generator(
    parts: dict[Resource, float],
    threads: tuple[tuple[float, float], ...],
    backends: tuple[float, float] | None,
    clients: int,
) -> None:
    # pgbench deals its clients out evenly; who has one more is the busier.
    each, more = divmod(clients, len(threads))
    busy = sorted(map(sum, threads), reverse=True)
    of_client = min(
        parts[Resource.CLIENT], sum(count_at_thread(u, each + (place < more)) for place, u in enumerate(busy))
    )
    had, waited = (sum(each) for each in zip(*threads, strict=True))
    queueing = 0.0
    if backends is not None and had > 0.0 and waited > 0.0:
        # Where backends get their CPU sooner than pgbench does, it is pgbench that is kept short.
        queueing = waited / (had + waited) * min(1.0, (backends[1] / backends[0]) / (waited / had))
    parts[Resource.CLIENT] -= of_client
    parts[Resource.LOAD_GENERATOR] = of_client * (1.0 - queueing)
    parts[Resource.CPU] += of_client * queueing


def _leave_out_client(parts: dict[Resource, float]) -> dict[str, str]:
    """Scale all other parts to the whole; returns why one is absent, by its name."""
    client = parts[Resource.CLIENT]
    others = sum(parts.values()) - client
    if not client or not others:
        return {}
    for resource in parts:
        parts[resource] *= 0.0 if resource is Resource.CLIENT else 1.0 + client / others
    return {
        Resource.CLIENT.value: "with CPUs so short it cannot be told from backends that were woken and do not run yet"
    }


_HOW: Mapping[Resource, str] = {
    Resource.CPU: "backends that had a CPU or waited for one, as the kernel counted them, with pgbench's wait for one",
    Resource.CLIENT: "backends whose client was not in pgbench's threads",
    Resource.LOAD_GENERATOR: "backends whose client was in pgbench's threads",
    Resource.UNKNOWN: "backends that waited for what is not known, or ran without a CPU",
}


def _share(resource: Resource, ratio: float, transaction_ms: float, seen: _Seen, cpu: _Cpu) -> TimeShare:
    values = _spread_of(resource, seen, cpu)
    half = None
    if values is not None and len(values) >= _LEAST_SPREAD_SECONDS and values.mean():
        half = half_width(values) / float(values.mean()) * ratio
    how = _HOW.get(resource, "backends seen in such a wait")
    if resource is Resource.CPU and cpu.backends is None:
        how = "backends that waited for nothing, whether or not they had a CPU"
    return TimeShare(
        resource=resource,
        ms=ratio * transaction_ms,
        ratio=ratio,
        low_ratio=None if half is None else max(0.0, ratio - half),
        high_ratio=None if half is None else min(1.0, ratio + half),
        how=f"{how}; {seen.looks_count:,} looks",
    )


def _spread_of(resource: Resource, seen: _Seen, cpu: _Cpu) -> Floats | None:
    """What the share follows from second to second."""
    sources: dict[Resource, tuple[Resource | str, ...]] = {
        Resource.CPU: (_RUNNING,),
        Resource.CLIENT: (Resource.CLIENT, _IDLE),
        Resource.LOAD_GENERATOR: (Resource.CLIENT, _IDLE),
    }
    if resource is Resource.CPU and cpu.spread is not None:
        return cpu.spread
    lines = [seen.by_what[what] for what in sources.get(resource, (resource,)) if what in seen.by_what]
    return sum(lines[1:], start=lines[0]) if lines else None
