"""Define the input and the result of a trial's health checks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from pgdyno.analyse.disk.demand import DiskDemand
from pgdyno.analyse.throughput import TrialThroughput
from pgdyno.facts.readable_counters import name_place
from pgdyno.facts.versions import is_supported
from pgdyno.facts.views import Absent, server_counters
from pgdyno.record.samples import os_series as series
from pgdyno.record.samples import server_series
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import LOST_COUNTERS, RESET_COUNTERS, StudyRecord, why_missing


class Reading(NamedTuple):
    """A value with the figures it rests on; with a reason, it is absent, or observed but not to be judged."""

    value: float | None
    evidence: str = ""
    reason: str | None = None


def absent_reading(reason: str) -> Reading:
    """Return the reading of a value that was not counted."""
    return Reading(None, reason=reason)


class CounterGrowth(NamedTuple):
    """The growth of a counter over the load; None with a reason."""

    by: float | None
    reason: str = ""


class ObservedTrial(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A finished trial and what the analysis has computed of it so far."""

    record: StudyRecord
    data: TrialData
    shares: Mapping[str, float | None]
    throughput: TrialThroughput | None
    disk: DiskDemand | None

    @property
    def version_major(self) -> int:
        """The major version of the trial's server; a variant may have another one than the study."""
        header = self.data.server.header if self.data.server is not None else None
        return self.record.server.major if header is None else header.version_num // 10_000

    @functools.cached_property
    def waits(self) -> dict[str, float]:
        """Mean number of sessions in a transaction, by wait class."""
        samples = self.data.server
        lines = () if samples is None else server_series.wait_classes(samples)
        return {line.label: self.data.mean_within_load(line) or 0.0 for line in lines}

    @property
    def cpu_busy_ratio(self) -> float | None:
        """Busy share of the time that the hypervisor left the CPUs; None if it was not sampled."""
        busy = self.shares.get("cpu_busy_ratio")
        return None if busy is None else series.share_of_left(busy, self.stolen_ratio)

    @property
    def stolen_ratio(self) -> float:
        """Share of the CPUs' time that the hypervisor gave to others; 0 if it was not sampled."""
        return self.shares.get("cpu_steal_ratio") or 0.0

    @functools.cached_property
    def quota_use_ratio(self) -> float | None:
        """Share of its CPU quota that the study used; None without a quota, or if that was not sampled."""
        samples, usable = self.data.os, self.record.usable_cpu_count
        if samples is None or usable is None or usable >= len(series.list_cpus(samples)):
            return None
        used = self.data.mean_within_load(series.cpus_of(samples, "tree.study"))
        return None if used is None else used / usable

    def grown(self, name: str) -> CounterGrowth:
        """Return the growth of a server counter, by its canonical name."""
        record = self.data.record
        by = record.growth(name)
        if by is None:
            return CounterGrowth(None, RESET_COUNTERS.reason if record.was_reset(name) else self._why_absent(name))
        return CounterGrowth(by)

    def setting(self, name: str) -> str | None:
        """Return a setting's value as in pg_settings; None if it is the built-in one."""
        return self.data.record.values.get(name)

    def why_unsampled(self, source: str) -> str:
        """Return why a sampler's samples are missing."""
        return why_missing(self.data.gaps, source) or f"the {source} saw nothing"

    def _why_absent(self, name: str) -> str:
        if is_supported(self.version_major):
            for counter in server_counters(self.version_major).counters:
                if counter.name != name:
                    continue
                if isinstance(counter.source, Absent):
                    return counter.source.reason
                if (refusal := why_missing(self.data.gaps, name_place(counter.source))) is not None:
                    return refusal
        return why_missing(self.data.gaps, LOST_COUNTERS) or "this record does not hold the counter"
