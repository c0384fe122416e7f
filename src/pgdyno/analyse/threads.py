"""Measure how busy the threads of a process were during a load: pgbench's, or a pooler's."""

from __future__ import annotations

import numpy as np

from pgdyno.record.samples import os_series
from pgdyno.record.samples.files import OsSamples
from pgdyno.record.samples.series import gauge


def measure_threads(
    samples: OsSamples, start_s: float, end_s: float, *, label: str = "load"
) -> tuple[tuple[float, float], ...]:
    """Return the shares of the time between two instants in which each thread of the process `label` had a CPU and waited for one."""
    times_s = gauge(samples.frame, "t_s")
    inside = (times_s[:-1] >= start_s) & (times_s[1:] <= end_s)
    lengths_s = np.diff(times_s)
    threads = os_series.busy_threads(samples, label).values()
    seen = ((had, waited, inside & np.isfinite(had + waited)) for had, waited in threads)
    return tuple(
        (
            float(np.average(had[counted], weights=lengths_s[counted])),
            float(np.average(waited[counted], weights=lengths_s[counted])),
        )
        for had, waited, counted in seen
        if counted.any()
    )
