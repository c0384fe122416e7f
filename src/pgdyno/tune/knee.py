"""Read the knee of a load from a record's sweep over clients: from there on, more sessions at once gain nothing.

This is a module of its own because it imports numpy, which takes long and which settings are derived without.
"""

from __future__ import annotations

from collections.abc import Mapping

from pgdyno.analyse.sweep.scaling import ClientSweep, LoadStatus
from pgdyno.record.types import StudyRecord
from pgdyno.spec.pooler import PRIMARY
from pgdyno.tune.types import MeasuredKnee


def read_knee(record: StudyRecord, sweeps: Mapping[str, ClientSweep], *, name: str) -> MeasuredKnee | str:
    """Read the knee from the sweep over clients of a record, the largest of several workloads; or say why there is none.

    Args:
        record: The study that swept.
        sweeps: How TPS follows the number of clients, by workload.
        name: Name of the record.
    """
    direct = {
        workload: sweep for workload, sweep in sweeps.items() if record.plan.find_workload(workload).endpoint == PRIMARY
    }
    if not direct:
        return f"{name} has no sweep over clients" + (" that connect to the server itself" if sweeps else "")
    known = {workload: found for workload, sweep in direct.items() if (found := _find_knee(sweep)) is not None}
    if not known:
        reasons = ", ".join(dict.fromkeys(sweep.knee.reason or "it is not settled" for sweep in direct.values()))
        return f"{name} found no knee ({reasons})"
    workload, (clients, low, high) = max(known.items(), key=lambda one: one[1][0])
    cpu_count, points = record.usable_cpu_count, direct[workload].points
    place = "a machine that was not seen" if cpu_count is None else f"{cpu_count:g} CPUs"
    return MeasuredKnee(
        clients=clients,
        low=low,
        high=high,
        cpu_count=cpu_count,
        how=f"{workload} in {name} ({place}), {points[0].clients} to {points[-1].clients} clients",
        is_beyond=direct[workload].knee.value is None,
    )


def _find_knee(sweep: ClientSweep) -> tuple[float, float | None, float | None] | None:
    """Return the knee with the ends of its interval; the largest load if TPS still grow there; None if neither is known."""
    knee, last = sweep.knee, sweep.points[-1]
    if knee.value is not None:
        return knee.value, knee.low, knee.high
    is_growing = len(sweep.points) > 1 and set(last.possible) <= {LoadStatus.LINEAR, LoadStatus.UNDER_USED}
    return (last.clients, last.clients, None) if is_growing else None
