"""Compare what was sampled just before an episode and in it, to find its cause.

The windows touch the moment at which the episode began: changes long before or after it are the same in both. What was
not sampled is absent with a reason; nothing is filled in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.episodes.types import Episode, EpisodeKind
from pgdyno.record.samples import os_series as series
from pgdyno.record.samples import server_series
from pgdyno.record.samples.series import Sampled, gauge
from pgdyno.record.serverlog import Autovacuum, CheckpointComplete, CheckpointStart
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import why_missing

_Floats = NDArray[np.float64]

_BEFORE_S = 12.0
_DURING_S = 20.0
# The second around the change belongs to neither side: rates are means over intervals.
_BLUR_S = 0.6
_MOST_RATIO = 0.9
_LONG_SYNC_S = 0.5
_SUMS = {
    "held": ("dirty", "writeback"),
    "disk_iops": ("disk_read_iops", "disk_write_iops"),
    "disk_bytes_per_s": ("disk_read_bytes_per_s", "disk_write_bytes_per_s"),
}
_LOGGED_VACUUMS = "log_autovacuum_min_duration"
# As built in. Source: PostgreSQL 18 manual, section 19.8.2.
_LOGGED_VACUUMS_MS = 600_000
TOLERANCE_S = 3.0
"""How far the beginnings of an episode and its cause may lie apart: levels are detected in means of 3 s."""


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """A metric's mean before an episode and in it, in its unit."""

    before: float
    during: float
    is_apart: bool
    """True if most values in it lie above most before it: a mean alone rises with a single value."""

    @property
    def rise(self) -> float:
        """The difference, in the metric's unit."""
        return self.during - self.before

    @property
    def factor(self) -> float:
        """The ratio; infinite if the value before was 0."""
        return self.during / self.before if self.before > 0.0 else np.inf if self.during > 0.0 else 1.0


class LogSpan(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the server's log with its duration, in seconds since the load began."""

    from_s: float
    until_s: float
    what: str
    is_part: bool = False
    """True if it is part of another span and does not count as one more."""


class EpisodeSamples:
    """The samples before an episode and in it."""

    def __init__(self, data: TrialData, episode: Episode, *, device: str | None) -> None:
        self.data, self.episode, self.device = data, episode, device
        self.start_s = data.record.load_start_monotonic_s or 0.0
        end_s = data.record.load_end_monotonic_s
        self.length_s = np.inf if end_s is None else end_s - self.start_s

    @functools.cached_property
    def begins_s(self) -> tuple[float, ...]:
        """When it began; a cycle begins repeatedly."""
        one = self.episode
        if one.kind is not EpisodeKind.SAWTOOTH or not one.period_s or not np.isfinite(self.length_s):
            return (one.from_s,)
        return tuple(np.arange(one.from_s, self.length_s, one.period_s).tolist())

    def compare(self, name: str) -> Contrast | None:
        """Compare a metric before and in the episode; None if it was not observed in both."""
        values = self.values_in(name)
        if values is None:
            return None
        before, during = values
        is_apart = bool(np.quantile(during, 1 - _MOST_RATIO) > np.quantile(before, _MOST_RATIO))
        return Contrast(before=float(before.mean()), during=float(during.mean()), is_apart=is_apart)

    def values_in(self, name: str) -> tuple[_Floats, _Floats] | None:
        """Return a metric's values before and in the episode, without absent ones; None if there are none."""
        line = self._series.get(name)
        if line is None:
            return None
        before, during = (line[1][chosen & np.isfinite(line[1])] for chosen in self._windows(line[0]))
        return (before, during) if len(before) and len(during) else None

    @property
    def is_disk_seen(self) -> bool:
        """True if its disk is known and was sampled."""
        return self.device is not None and "disk_util_ratio" in self._series

    @functools.cached_property
    def absent(self) -> tuple[str, ...]:
        """What could not be checked, and why."""
        missing = []
        if self.data.os is None:
            missing.append(f"CPUs, memory and disk of the system ({self._gap('os sampler')})")
        elif not self.is_disk_seen:
            missing.append("the disk (no block device of the data was sampled)")
        if self.data.server is None:
            missing.append(f"WAL and writes of the server ({self._gap('server sampler')})")
        if not self.data.log:
            missing.append(f"checkpoints and autovacuum ({self._gap('server log')})")
        elif not self.has_checkpoints:
            missing.append("checkpoints (log_checkpoints was off)")
        if self.data.log:
            missing.extend(self._describe_unlogged_vacuums())
        return tuple(missing)

    @functools.cached_property
    def has_checkpoints(self) -> bool:
        """True if the server's log would show checkpoints."""
        return bool(self.data.log) and self.data.record.logs_checkpoints

    @functools.cached_property
    def checkpoints(self) -> tuple[LogSpan, ...]:
        """Checkpoints that overlap the load, and their long syncs; one without a recorded end lasts until the load's end."""
        return tuple(self._list_checkpoints())

    @functools.cached_property
    def oom_kills(self) -> tuple[LogSpan, ...]:
        """Processes that the kernel killed for want of memory."""
        if self.data.os is None:
            return ()
        killed = series.oom_kills(self.data.os)
        times_s = (killed.monotonic_s[killed.values > 0.0] - self.start_s).tolist()
        return tuple(
            LogSpan(from_s=t_s, until_s=t_s, what="a kill by the kernel for want of memory") for t_s in times_s
        )

    @functools.cached_property
    def vacuums(self) -> tuple[LogSpan, ...]:
        """Automatic vacuums and analyzes whose duration is known."""
        return tuple(
            LogSpan(from_s=end_s - entry.elapsed_s, until_s=end_s, what=f"{entry.command} of {entry.table}")
            for entry in self.data.log
            if isinstance(entry, Autovacuum) and entry.origin is not None and entry.elapsed_s is not None
            for end_s in (entry.origin.monotonic_s - self.start_s,)
        )

    def begins_with(self, spans: Sequence[LogSpan], *, lead_s: float = TOLERANCE_S) -> tuple[LogSpan, ...]:
        """Return the spans that began with the episode or up to `lead_s` before it; of a cycle, if most of its times have one."""

        def is_with(one: LogSpan, at_s: float) -> bool:
            return -TOLERANCE_S <= at_s - one.from_s <= lead_s

        met = sum(any(is_with(one, at_s) for one in spans) for at_s in self.begins_s)
        if met <= len(self.begins_s) / 2:
            return ()
        return tuple(one for one in spans if any(is_with(one, at_s) for at_s in self.begins_s))

    def cover_ratios(self, spans: Sequence[LogSpan]) -> Contrast:
        """Compare the share of time covered by the spans before the episode and in it."""
        length_s = self.length_s if np.isfinite(self.length_s) else self.begins_s[-1] + _DURING_S
        at = np.arange(0.0, length_s, 0.1)
        under_way = np.zeros(len(at), dtype=bool)
        for one in spans:
            under_way |= (at >= one.from_s) & (at <= one.until_s)
        before, during = (float(under_way[chosen].mean()) if chosen.any() else 0.0 for chosen in self._windows(at))
        return Contrast(before=before, during=during, is_apart=during > before)

    def _windows(self, t_s: _Floats) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        one = self.episode
        if one.kind is EpisodeKind.SAWTOOTH and one.period_s and one.recovery_s:
            low = (t_s - one.from_s) % one.period_s < one.recovery_s
            inside = (t_s >= 0.0) & (t_s <= self.length_s)
            return inside & ~low, inside & low
        if one.kind is EpisodeKind.DECLINE and np.isfinite(self.length_s):
            return (t_s >= 0.0) & (t_s <= self.length_s / 4), (t_s >= self.length_s * 3 / 4) & (t_s <= self.length_s)
        settled_s = min(one.settled_s or 0.0, _DURING_S)
        end_s = min(one.until_s or self.length_s, one.from_s + settled_s + _DURING_S)
        blur_s = min(_BLUR_S, (end_s - one.from_s) / 4)
        return (
            (t_s >= max(0.0, one.from_s - _BEFORE_S)) & (t_s <= one.from_s - _BLUR_S),
            (t_s >= one.from_s + blur_s) & (t_s <= end_s - blur_s),
        )

    @functools.cached_property
    def _series(self) -> dict[str, tuple[_Floats, _Floats]]:
        lines = {name: line for make in (self._os_series, self._server_series) for name, line in make()}
        found = {
            name: (line.monotonic_s - self.start_s, line.values) for name, line in lines.items() if line.absent is None
        }
        if "throttled" in found:
            # Without an enforced quota there are no periods, and so no throttled ones.
            found["throttled"] = (found["throttled"][0], np.nan_to_num(found["throttled"][1]))
        found.update(self._thresholds())
        for name, parts in _SUMS.items():
            if all(part in found for part in parts):
                found[name] = (found[parts[0]][0], sum((found[part][1] for part in parts), start=np.zeros(1)))
        return found

    def _os_series(self) -> Iterator[tuple[str, Sampled]]:
        if self.data.os is None:
            return
        makers: dict[str, Callable[..., Sampled]] = {
            "steal": series.steal,
            "others": series.cpu_of_others,
            "busy": series.cpu_busy,
            "queue": series.run_queue,
            "throttled": series.cgroup_throttled,
            "dirty": series.dirty,
            "writeback": series.writeback,
            "swapped": series.swapped,
        }
        yield from ((name, make(self.data.os)) for name, make in makers.items())
        if self.device is not None and self.device in series.list_disks(self.data.os):
            yield from series.disk_series(self.data.os, self.device).items()

    def _server_series(self) -> Iterator[tuple[str, Sampled]]:
        if self.data.server is not None:
            yield "wal", server_series.wal_bytes(self.data.server)
            yield "fpi", server_series.wal_full_page_images(self.data.server)
            yield "checkpointer", server_series.written_pages(self.data.server)[0]

    def _thresholds(self) -> Iterator[tuple[str, tuple[_Floats, _Floats]]]:
        samples = self.data.os
        if samples is None or samples.header is None:
            return
        t_s = gauge(samples.frame, "t_s") - self.start_s
        for name in ("nr_dirty_threshold", "nr_dirty_background_threshold"):
            yield name, (t_s, gauge(samples.frame, f"vm/{name}") * samples.header.page_bytes)

    def _list_checkpoints(self) -> Iterator[LogSpan]:
        begun: CheckpointStart | None = None
        for entry in self.data.log:
            if entry.origin is None:
                continue
            t_s = entry.origin.monotonic_s - self.start_s
            if isinstance(entry, CheckpointStart):
                begun = entry
            elif isinstance(entry, CheckpointComplete):
                what = _describe_checkpoint(begun)
                yield LogSpan(from_s=t_s - entry.total_s, until_s=t_s, what=what)
                if entry.sync_s >= _LONG_SYNC_S:
                    yield LogSpan(from_s=t_s - entry.sync_s, until_s=t_s, what=f"the sync of {what}", is_part=True)
                begun = None
        if begun is not None and begun.origin is not None:
            from_s = begun.origin.monotonic_s - self.start_s
            yield LogSpan(from_s=from_s, until_s=max(self.length_s, from_s), what=_describe_checkpoint(begun))

    def _describe_unlogged_vacuums(self) -> Iterator[str]:
        settings = self.data.record.values
        # A server that pgdyno started has settings: if there are none, they were not read.
        if not settings:
            return
        least_ms = float(settings.get(_LOGGED_VACUUMS, _LOGGED_VACUUMS_MS))
        if least_ms < 0.0:
            yield f"autovacuum ({_LOGGED_VACUUMS} was -1)"
        elif least_ms:
            yield f"automatic vacuums of less than {least_ms / 1000:g} s ({_LOGGED_VACUUMS})"

    def _gap(self, source: str) -> str:
        return why_missing(self.data.gaps, source) or "nothing was recorded"


def _describe_checkpoint(begun: CheckpointStart | None) -> str:
    reasons = set() if begun is None else set(begun.reasons)
    if "wal" in reasons:
        return "a checkpoint that WAL volume asked for (max_wal_size)"
    if "time" in reasons:
        return "a timed checkpoint (checkpoint_timeout)"
    return "a requested checkpoint" if reasons else "a checkpoint"
