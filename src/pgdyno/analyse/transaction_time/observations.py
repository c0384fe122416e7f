"""Read what the samplers saw of the clients' backends and of pgbench's threads, as means over a load.

Counters of the kernel are absent, with a reason, where nothing read them.
"""

from __future__ import annotations

import msgspec
import numpy as np

from pgdyno.analyse.threads import measure_threads
from pgdyno.analyse.thresholds import THRESHOLDS
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.facts.wait_events import find_resource
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.samples import os_series as series
from pgdyno.record.samples.files import ServerSamples
from pgdyno.record.samples.series import Floats, gauge
from pgdyno.record.samples.server_series import CLIENT_BACKEND, list_wait_counts
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import UNSEEN_MACHINE, why_missing

# With fewer sampled seconds, the shares are unknown.
_MIN_SECONDS = 2
UNSEEN_CLIENT = "pgbench and the network were not sampled"
RUNNING = "running"
IDLE = "idle"


class BackendActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Mean numbers of clients' backends in each second by activity, and the number of samples."""

    by_activity: dict[Resource | str, Floats]
    lengths_s: Floats
    """Length of each second: one whose samples came late is longer."""
    samples_count: int

    def mean(self, what: Resource | str) -> float:
        """Return the mean number of backends with an activity; 0 if none was seen."""
        if what not in self.by_activity:
            return 0.0
        return float(np.average(self.by_activity[what], weights=self.lengths_s))


class CpuCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the load of what the kernel counted; absent values are None, with a reason."""

    backends: tuple[float, float] | None
    """Mean number of clients' backends that had a CPU, and that waited for one."""
    threads: tuple[tuple[float, float], ...] | None
    """The same for each pgbench thread."""
    absent: dict[str, str]
    spread: Floats | None = None
    """Sum of both numbers of backends, by second."""
    are_shared: bool = True
    """Whether pgbench's threads and the backends share CPUs; not where the load comes from another machine."""

    @property
    def is_short(self) -> bool:
        """True if backends wait for CPUs much of the time, and pgbench's part is known."""
        if self.backends is None or self.threads is None:
            return False
        return self.backends[1] >= THRESHOLDS.queueing_ratio * sum(self.backends)


def observe_backends(
    samples: ServerSamples, workload: PlannedWorkload, start_s: float, end_s: float
) -> BackendActivity | None:
    """Count the activities of clients' backends in each second of the load."""
    times_s, looks = gauge(samples.frame, "t_s"), gauge(samples.frame, "n")
    inside = (times_s > start_s) & (times_s <= end_s) & (looks > 0)
    # The samples of a row were taken in the second before it.
    inside[1:] &= times_s[:-1] >= start_s
    inside[:1] = False
    if inside.sum() < _MIN_SECONDS or samples.header is None:
        return None
    major = samples.header.version_num // 10_000
    by_activity: dict[Resource | str, Floats] = {}
    for observed in list_wait_counts(samples, CLIENT_BACKEND):
        what = classify_backend(major, observed.state, observed.wait_event_type, observed.wait_event)
        if what == IDLE and workload.is_scheduled:
            continue
        backends = observed.counts[inside] / looks[inside]
        by_activity[what] = by_activity.get(what, np.zeros(len(backends))) + backends
    _drop_idle_sessions(by_activity, workload.clients)
    lengths_s = np.diff(times_s, prepend=np.nan)[inside]
    return BackendActivity(by_activity=by_activity, lengths_s=lengths_s, samples_count=int(looks[inside].sum()))


def classify_backend(major: int, state: str, wait_event_type: str, wait_event: str) -> Resource | str:
    """Return what a client's backend in such a state waits for; `RUNNING` if for nothing, `IDLE` if it has nothing to do."""
    if not wait_event_type:
        return RUNNING
    if wait_event_type == "Client" and state == "idle":
        return IDLE
    waited = find_resource(major, wait_event_type, wait_event)
    return Resource.UNKNOWN if waited is None else Resource(waited)


def _drop_idle_sessions(by_activity: dict[Resource | str, Floats], clients: int) -> None:
    """Remove sessions that are not part of the load: idle backends beyond the number of clients."""
    if IDLE in by_activity:
        beyond = sum(by_activity.values()) - clients
        by_activity[IDLE] = by_activity[IDLE] - np.clip(beyond, 0.0, by_activity[IDLE])


def count_cpu(data: TrialData, start_s: float, end_s: float) -> CpuCounts:
    """Average what the kernel counted of backends and pgbench's threads between two instants of CLOCK_MONOTONIC."""
    if data.of_load is None:
        reason = why_missing(data.gaps, "os sampler") or "the machine was not sampled"
        # Of a server elsewhere, the network is in the clients' time, too.
        of_client = UNSEEN_CLIENT if reason == UNSEEN_MACHINE else reason
        return CpuCounts(
            backends=None, threads=None, absent={"running_ms": reason, Resource.LOAD_GENERATOR.value: of_client}
        )
    absent: dict[str, str] = {}
    backends, spread = None, None
    if data.os is None:
        absent["running_ms"] = why_missing(data.gaps, "os sampler") or UNSEEN_MACHINE
    else:
        lines = series.backends_on_cpu(data.os)
        running, queueing = map(data.mean_within_load, lines)
        if not running or running < 0.0 or queueing is None:
            absent["running_ms"] = lines[0].absent or "this kernel does not count it"
        else:
            backends, spread = (running, queueing), data.within_load(lines[0]) + data.within_load(lines[1])
    loads = [one.os for one in data.generators if one.os is not None] or [data.of_load]
    threads = tuple(thread for samples in loads for thread in measure_threads(samples, start_s, end_s))
    if not threads:
        absent[Resource.LOAD_GENERATOR.value] = "how long pgbench's threads waited for a CPU was not recorded"
    return CpuCounts(
        backends=backends,
        threads=threads or None,
        absent=absent,
        spread=spread,
        # On a machine of its own pgbench is not followed by the sampler of the server's.
        are_shared=data.generator is None or data.os is None or bool(series.busy_threads(data.os)),
    )
