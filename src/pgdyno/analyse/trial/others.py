"""Measure what other programs used of the CPUs in a trial, on the server's machine and on that of pgbench.

The kernel looks at each tick which program has a CPU. So the share of a short load is known no better than from as many
looks, and one that these do not tell from 0 is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pgdyno.record.samples import os_series as series
from pgdyno.record.samples.files import OsSamples
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import StudyRecord


class OthersUse(NamedTuple):
    """The mean share of a machine's CPUs that other programs used over a load, and the least share that ticks tell from 0."""

    share: float
    resolution_ratio: float


def measure_others_beside_server(record: StudyRecord, data: TrialData) -> dict[str, OthersUse | None]:
    """Measure what other programs used on the server's machine, and apart from them what the emulation of a machine did, by the share's name.

    The kernel's threads that write an emulated disk are no program to stop. They have system time only: so this of all others is the
    most that they can have used.
    """
    if data.os is None:
        return {}
    if not record.study.is_emulated:
        return {"cpu_others_ratio": measure_others(data, data.os)}
    return {
        "cpu_others_ratio": measure_others(data, data.os, ("utime",)),
        "cpu_emulation_ratio": measure_others(data, data.os, ("stime",)),
    }


def measure_others(data: TrialData, samples: OsSamples, fields: Sequence[str] = ("utime", "stime")) -> OthersUse | None:
    """Measure what other programs used on a machine; None if the study was not followed there, as in older records."""
    line = series.cpu_of_others(samples, fields)
    share = None if line.absent is not None else data.mean_within_load(line)
    if share is None:
        return None
    resolution_ratio = _find_resolution(data, samples)
    return OthersUse(0.0 if abs(share) < resolution_ratio else share, resolution_ratio)


def measure_others_beside_load(record: StudyRecord, data: TrialData) -> OthersUse | None:
    """Measure what other programs used on pgbench's machine, where that is not the server's; of several machines, the most.

    None if it was not sampled, or if the server or a pooler may be among those programs.
    """
    if hosts := data.far_generators:
        apart = {host.name for host in record.load_hosts if record.host is not None and not host.is_server_host}
        seen = [one.os for one in hosts if one.os is not None and one.part.host in apart]
    else:
        seen = [] if data.generator is None or not _is_apart(record, data.generator) else [data.generator]
    uses = [use for samples in seen if (use := measure_others(data, samples)) is not None]
    return max(uses, default=None)


def _find_resolution(data: TrialData, samples: OsSamples) -> float:
    """Return the half-width of a 95 % interval of a share from as many looks as there were ticks, for whichever share.

    Its variance is that of a binomial share, a quarter over the number of looks at most.
    """
    ticks_per_s = 0 if samples.header is None else samples.header.clk_tck
    looks = (data.record.load_s or 0.0) * ticks_per_s * len(series.list_cpus(samples))
    return 1.0 / math.sqrt(looks) if looks > 1.0 else 1.0


def _is_apart(record: StudyRecord, samples: OsSamples) -> bool:
    """Return whether no other program on the machine of the load can be a given server, or a pooler in front of it."""
    if record.given is None or record.given.pooler is not None or record.plan.poolers:
        return False
    if record.server_host is not None:
        # What is seen of its own machine says it already.
        return not record.server_host.is_load_host
    return not record.given.is_local or series.follows_backends(samples)
