"""Say how many sessions a server has, and how many of them are at work at once."""

from __future__ import annotations

import msgspec

from pgdyno.tune.draft import Draft
from pgdyno.tune.types import Known, Origin, TuningSubject, WorkloadClass
from pgdyno.units import format_bytes

CONNECTIONS, ACTIVE = "connections", "active sessions"
"""Names of the inputs."""
# Active sessions for each CPU: short transactions wait for flushes and locks, long queries for CPU time.
_ACTIVE_PER_CPU = {WorkloadClass.ANALYTIC: 1}
_USUAL_ACTIVE_PER_CPU = 4
# Limits the assumption on machines with many CPUs and little memory, such as containers.
_BYTES_PER_ACTIVE = 64 * 1024**2


def assume_active(workload: WorkloadClass, *, cpus: Known, memory: Known, connections: Known) -> Known:
    """Return the number of sessions at work that is assumed of a load."""
    each = _ACTIVE_PER_CPU.get(workload, _USUAL_ACTIVE_PER_CPU)
    how = f"{each} for each CPU, at most the connections and one for each {format_bytes(_BYTES_PER_ACTIVE)} of memory"
    value = limit_active(min(connections.value, each * cpus.value), memory)
    return Known.assumed(ACTIVE, value, "count", how)


def limit_active(count: float, memory: Known, *, at_least: float = 1.0) -> float:
    """Limit an assumed number of sessions at work to what the memory bears."""
    return max(at_least, min(count, memory.value // _BYTES_PER_ACTIVE))


def with_fixed_connections(draft: Draft) -> TuningSubject:
    """Return the subject with as many sessions as the max_connections that the user fixed lets in.

    It is returned as it is where the user says that there are fewer, and with a pooler, whose pool was fitted.
    """
    subject = draft.subject
    if not draft.is_fixed("max_connections") or subject.pooling is not None:
        return subject
    most, active = draft.number("max_connections"), subject.active
    if subject.connections.origin is Origin.DECLARED and subject.connections.value <= most:
        return subject
    connections = Known.declared(CONNECTIONS, most, "count", "max_connections, as you set it")
    if active.origin is Origin.ASSUMED:
        active = assume_active(subject.workload, cpus=subject.cpus, memory=subject.memory, connections=connections)
    elif active.value > most:
        active = msgspec.structs.replace(
            active, value=most, how=f"{active.how}, as far as max_connections lets them in"
        )
    return msgspec.structs.replace(subject, connections=connections, active=active)
