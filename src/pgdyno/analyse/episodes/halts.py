"""Find when a machine, or pgdyno with all its programs on it, was halted: by SIGSTOP, `docker pause`, or as a virtual machine.

No sampler takes a sample then. Where samples are late because the machine is too busy, the kernel has counted that the OS
sampler waited for a CPU, or that somebody waited for I/O: only what neither explains is a halt. A virtual machine whose clock
stands still meanwhile shows nothing at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
import numpy as np

from pgdyno.analyse.episodes.types import Cause, Episode, Suspect
from pgdyno.record.samples import os_series as series
from pgdyno.record.samples.files import MISSED_AFTER_INTERVALS, OsSamples
from pgdyno.record.samples.series import Floats, gauge
from pgdyno.record.trial_data import TrialData

_SAMPLER = "sampler_os"
"""The label under which each OS sampler follows itself."""
_MIN_HALT_S = 1.0
_MIN_EXPLAINED = 0.5


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """A time without a sample of any kind, on CLOCK_MONOTONIC: the halt itself may begin and end up to an interval inside."""

    from_s: float
    to_s: float
    busy_s: float
    """How long the OS sampler had a CPU or waited for one meanwhile."""
    io_s: float
    """How long somebody on the machine waited for I/O meanwhile."""


def find_halts(data: TrialData) -> tuple[Halt, ...]:
    """Find the halts of the server's machine and of the load's, by time.

    None are found where the kernel does not count how long a thread waits for a CPU.
    """
    machines = {id(one): one for one in (data.os, data.of_load) if one is not None}
    found = [halt for one in machines.values() for halt in _find_on(one, _list_other_samples(data))]
    return tuple(sorted(found, key=lambda halt: halt.from_s))


def suspect_halt(data: TrialData, episode: Episode) -> Suspect | None:
    """Return a halt as the cause of an episode that has an end; None if none met it."""
    start_s, until_s = data.record.load_start_monotonic_s or 0.0, episode.until_s
    if until_s is None:
        return None
    met = {
        halt: min(halt.to_s - start_s, until_s) - max(halt.from_s - start_s, episode.from_s)
        for halt in find_halts(data)
    }
    if not met or max(met.values()) <= 0.0:
        return None
    halt = max(met, key=lambda one: met[one])
    explained = min(met[halt] / (until_s - episode.from_s), 1.0)
    text = (
        f"no sample of any kind was taken for {halt.to_s - halt.from_s:.1f} s from {halt.from_s - start_s:.1f} s on, while"
        f" the OS sampler had a CPU, or waited for one, for {halt.busy_s:.1f} s and somebody waited for I/O for {halt.io_s:.1f} s: the"
        " machine, or pgdyno with its server, stood still (SIGSTOP, `docker pause`, a suspended virtual machine)"
    )
    return Suspect(cause=Cause.HALT, fits=explained >= _MIN_EXPLAINED, text=text, explained_ratio=explained)


def _list_other_samples(data: TrialData) -> Floats:
    """Return when all samples but those of the machine were taken."""
    seen = [] if data.server is None else [gauge(data.server.frame, "t_s")]
    if data.pings is not None:
        seen.append(data.pings.began_s)
    if data.pooler is not None:
        seen.append(np.array([one.t_s for one in data.pooler.samples], dtype=float))
    return np.concatenate([*seen, np.empty(0)])


def _find_on(samples: OsSamples, others_s: Floats) -> Iterator[Halt]:
    threads = series.busy_threads(samples, _SAMPLER).values()
    if samples.header is None or samples.frame.height < 2 or not threads:
        return
    times_s, interval_s = gauge(samples.frame, "t_s"), samples.header.interval_s
    missed = np.flatnonzero(np.diff(times_s) > MISSED_AFTER_INTERVALS * interval_s).tolist()
    if not missed:
        return
    busy = sum((had + waited for had, waited in threads), start=np.zeros(1))
    waiting = _find_io_ratios(samples)
    for at in missed:
        step_s = float(times_s[at + 1] - times_s[at])
        inside_s = others_s[(others_s > times_s[at]) & (others_s < times_s[at + 1])]
        edges_s = np.sort(np.concatenate([times_s[at : at + 2], inside_s])).tolist()
        from_s, to_s = max(itertools.pairwise(edges_s), key=lambda pair: pair[1] - pair[0])
        halt = Halt(
            from_s=from_s, to_s=to_s, busy_s=float(busy[at]) * step_s, io_s=float(np.nan_to_num(waiting[at])) * step_s
        )
        # A sample that is not due yet is not missed.
        if to_s - from_s - interval_s - halt.busy_s - halt.io_s >= _MIN_HALT_S:
            yield halt


def _find_io_ratios(samples: OsSamples) -> Floats:
    """Return the share of each interval in which somebody waited for I/O: by the kernel's pressure, or by the busiest disk."""
    disks = (series.disk_series(samples, name)["disk_util_ratio"] for name in series.list_disks(samples))
    known = [one.values for one in (series.pressure(samples, "io")[0], *disks) if one.absent is None]
    return np.fmax.reduce(known) if known else np.zeros(samples.frame.height - 1)
