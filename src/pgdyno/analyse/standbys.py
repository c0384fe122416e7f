"""Measure how far a trial's standbys lagged, what its clients waited for meanwhile, and the CPUs that the standbys used.

Of a block, in which variants alternate, each sample counts for the variant whose settings were in force when it was taken.
The time until a standby confirms WAL has three parts, of which a commit waits for as many as `synchronous_commit` says:
sending and writing, the standby's flush, and its replay. All figures are of samples; nothing here has an interval.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.transaction_time.observations import RUNNING, classify_backend
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.record.samples import os_series
from pgdyno.record.samples.files import ServerSamples
from pgdyno.record.samples.series import Floats, gauge
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialRecord
from pgdyno.spec.study import name_standbys

_TRIMMED_PART = 8


class Stage(enum.Enum):
    """A point that the WAL of a commit reaches on a standby."""

    WRITE = "write"
    FLUSH = "flush"
    REPLAY = "replay"


WAITED: Mapping[str, tuple[Stage, ...]] = {
    "remote_write": (Stage.WRITE,),
    "on": (Stage.WRITE, Stage.FLUSH),
    "remote_apply": (Stage.WRITE, Stage.FLUSH, Stage.REPLAY),
}
"""What a commit waits for on a standby, by `synchronous_commit`."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Values of samples: their mean, that without their ends, the largest, and their number."""

    mean: float
    usual: float
    """Mean without the largest and the smallest eighth, but at least one value each of three or more; of several trials, the mean of theirs."""
    largest: float
    n: int


class StandbyLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far one standby lagged while one variant was in force."""

    variant: str
    """Empty in a study that compares nothing."""
    name: str
    states: tuple[str, ...]
    """What it was to the primary: `streaming`, or `catchup`; in the order of their first sample."""
    sync_states: tuple[str, ...]
    """`async`, `potential`, `sync` or `quorum`."""
    lag_bytes: dict[Stage, Spread]
    lag_ms: dict[Stage, Spread]
    """As the primary last measured it; it forgets a time when nothing is written."""

    @property
    def parts_ms(self) -> dict[Stage, float]:
        """The usual time until it had replayed WAL, divided: sending and writing, the flush, the replay.

        Of a dozen samples, one that was taken while a process waited for a CPU would decide the mean; a median would leave out the replay
        where it is late for commits only.
        """
        until = {stage: one.usual for stage, one in self.lag_ms.items()}
        parts, before_ms = {}, 0.0
        for stage in Stage:
            if stage in until:
                parts[stage] = max(0.0, until[stage] - before_ms)
                before_ms = max(before_ms, until[stage])
        return parts


class ClientWaits(msgspec.Struct, frozen=True, kw_only=True):
    """What the sessions of the load did at the samples' moments, while one variant was in force."""

    variant: str
    looks: int
    sessions: float
    """Mean number of sessions that a look saw."""
    ratios: dict[Resource, float]
    """Shares of the sessions by what they waited for; `CPU`: they ran, or waited for a CPU."""


class StandbyCpu(msgspec.Struct, frozen=True, kw_only=True):
    """The CPUs that a standby's processes used over the load, with all variants in it."""

    name: str
    cpus: float | None
    """Of all of its processes; None if they were not sampled."""
    replaying: float | None
    """Of its startup process, which alone replays WAL."""
    receiving: float | None
    """Of its walreceiver, which writes and flushes it."""


class StandbyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of the standbys of one trial."""

    lags: tuple[StandbyLag, ...]
    waits: tuple[ClientWaits, ...]
    cpus: tuple[StandbyCpu, ...]
    waited: tuple[Stage, ...]
    """What its commits waited for on a standby; empty for none, and where variants alternated."""

    def divide_wait(self, lag: StandbyLag) -> dict[Stage, float]:
        """Return the parts of a standby's lag, in ms. What commits waited for an earlier flush to end counts as the flush.

        The walreceiver writes nothing while it flushes, so WAL that arrives meanwhile is written late: by up to a whole flush, and as
        often as one is under way for other sessions. Source: src/backend/replication/walreceiver.c, WalReceiverMain().
        """
        earlier_ms = self.earlier_flush_ms(lag)
        parts = lag.parts_ms
        return parts | {
            stage: parts[stage] + ms
            for stage, ms in ((Stage.WRITE, -earlier_ms), (Stage.FLUSH, earlier_ms))
            if stage in parts
        }

    def earlier_flush_ms(self, lag: StandbyLag) -> float:
        """Return for how long at most WAL waited for an earlier flush before it was written; 0 where no commit waits for flushes."""
        parts = lag.parts_ms
        flush_ms, until_ms = parts.get(Stage.FLUSH, 0.0), parts.get(Stage.WRITE, 0.0)
        wait_ms = sum(parts.get(stage, 0.0) for stage in self.waited)
        if Stage.FLUSH not in self.waited or not flush_ms:
            return 0.0
        waiting = sum(one.sessions * one.ratios.get(Resource.STANDBY, 0.0) for one in self.waits)
        # Each of the other waiting sessions is at its flush for this share of its wait.
        busy = min(1.0, max(0.0, waiting - 1) * flush_ms / wait_ms)
        return min(until_ms, busy * flush_ms)


def measure_standbys(data: TrialData, *, count: int, is_given: bool = False) -> StandbyFigures | None:
    """Measure what a trial shows of its standbys; None if they were not sampled.

    Args:
        data: The trial's data.
        count: How many standbys the study has.
        is_given: Whether the server is a given one: it lists all its standbys, by names that others chose, and shows neither their
            CPUs nor which of its own sessions wait for them.
    """
    samples = _find_samples(data, count)
    if samples is None:
        return None
    names = _list_names(samples) if is_given else name_standbys(count)
    lags, waits = [], []
    for variant, inside in _select_rows(data, samples):
        lags += [lag for name in names if (lag := _measure_lag(samples, name, variant, inside))]
        if is_given:
            continue
        waits += [one for one in (_count_waits(samples, variant, inside),) if one is not None]
    return StandbyFigures(
        lags=tuple(lags),
        waits=tuple(waits),
        cpus=() if is_given else measure_standby_cpus(data, count=count),
        waited=_find_waited(data.record),
    )


def measure_standby_cpus(data: TrialData, *, count: int) -> tuple[StandbyCpu, ...]:
    """Measure the CPUs that each of so many standbys used in a trial; none if standbys were not sampled."""
    if _find_samples(data, count) is None:
        return ()
    return tuple(_measure_cpu(data, name) for name in name_standbys(count))


def _list_names(samples: ServerSamples) -> tuple[str, ...]:
    parts = (column.split("/") for column in samples.frame.columns)
    return tuple(dict.fromkeys(part[1] for part in parts if part[0] == "standby" and part[-1] == "state"))


def _find_samples(data: TrialData, count: int) -> ServerSamples | None:
    """Return the samples of the server if they show standbys."""
    samples = data.server
    is_shown = count and samples is not None and samples.header is not None and samples.header.standbys
    return samples if is_shown else None


def join_lags(lags: Sequence[StandbyLag]) -> StandbyLag:
    """Join the lags of one standby under one variant over several trials; each sample counts alike."""
    first = lags[0]
    return msgspec.structs.replace(
        first,
        states=tuple(dict.fromkeys(state for lag in lags for state in lag.states)),
        sync_states=tuple(dict.fromkeys(state for lag in lags for state in lag.sync_states)),
        lag_bytes=_join_spreads(lag.lag_bytes for lag in lags),
        lag_ms=_join_spreads(lag.lag_ms for lag in lags),
    )


def join_waits(waits: Sequence[ClientWaits]) -> ClientWaits:
    """Join what sessions did under one variant over several trials; each session at each look counts alike."""
    seen = [one.looks * one.sessions for one in waits]
    looks, total = sum(one.looks for one in waits), sum(seen)
    ratios = {
        resource: sum(one.ratios.get(resource, 0.0) * weight for one, weight in zip(waits, seen, strict=True)) / total
        for resource in dict.fromkeys(resource for one in waits for resource in one.ratios)
    }
    return msgspec.structs.replace(waits[0], looks=looks, sessions=total / looks, ratios=ratios)


def _select_rows(data: TrialData, samples: ServerSamples) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield each variant of a trial with the samples that count for it."""
    times_s = gauge(samples.frame, "t_s")
    start_s, end_s = data.record.load_start_monotonic_s, data.record.load_end_monotonic_s
    if start_s is None or end_s is None:
        return
    variants = data.record.planned.variants
    if not data.record.planned.is_block:
        yield (variants[0] if variants else ""), (times_s >= start_s) & (times_s <= end_s)
        return
    for variant in variants:
        inside = np.zeros(len(times_s), dtype=bool)
        for one in data.slices:
            if one.variant == variant:
                inside |= (times_s >= one.settled_monotonic_s) & (times_s <= one.end_monotonic_s)
        yield variant, inside


def _measure_lag(samples: ServerSamples, name: str, variant: str, inside: NDArray[np.bool_]) -> StandbyLag | None:
    frame = samples.frame
    if f"standby/{name}/state" not in frame.columns:
        return None
    states, sync_states = (
        tuple(dict.fromkeys(v for v in frame.filter(inside)[f"standby/{name}/{what}"].to_list() if v is not None))
        for what in ("state", "sync_state")
    )
    found: dict[str, dict[Stage, Spread]] = {"bytes": {}, "ms": {}}
    for unit, stage in ((unit, stage) for unit in found for stage in Stage):
        values = gauge(frame, f"standby/{name}/{stage.value}_lag_{unit}")[inside]
        seen: Floats = values[np.isfinite(values)]
        if len(seen):
            found[unit][stage] = Spread(
                mean=float(seen.mean()),
                usual=_mean_without_ends(seen),
                largest=float(seen.max()),
                n=len(seen),
            )
    if not states:
        return None
    return StandbyLag(
        variant=variant,
        name=name,
        states=states,
        sync_states=sync_states,
        lag_bytes=found["bytes"],
        lag_ms=found["ms"],
    )


def _mean_without_ends(values: Floats) -> float:
    cut = max(1, len(values) // _TRIMMED_PART) if len(values) > 2 else 0
    return float(np.sort(values)[cut : len(values) - cut].mean())


def _count_waits(samples: ServerSamples, variant: str, inside: NDArray[np.bool_]) -> ClientWaits | None:
    assert samples.header is not None  # noqa: S101 - the caller asked
    major = samples.header.version_num // 10_000
    sums: dict[Resource, float] = {}
    for column in samples.frame.columns:
        source, *key = column.split("/", 3)
        if source == "look":
            what = classify_backend(major, *key)
            resource = what if isinstance(what, Resource) else Resource.CPU if what == RUNNING else Resource.CLIENT
            sums[resource] = sums.get(resource, 0.0) + float(gauge(samples.frame, column)[inside].sum())
    looks, total = int(inside.sum()), sum(sums.values())
    if not looks or not total:
        return None
    ratios = {resource: count / total for resource, count in sums.items() if count}
    return ClientWaits(variant=variant, looks=looks, sessions=total / looks, ratios=ratios)


def _measure_cpu(data: TrialData, name: str) -> StandbyCpu:
    if data.os is None:
        return StandbyCpu(name=name, cpus=None, replaying=None, receiving=None)
    sources = (f"tree.{name}", f"process.{name}_startup", f"process.{name}_walreceiver")
    cpus, replaying, receiving = (data.mean_within_load(os_series.cpus_of(data.os, source)) for source in sources)
    return StandbyCpu(name=name, cpus=cpus, replaying=replaying, receiving=receiving)


def _find_waited(record: TrialRecord) -> tuple[Stage, ...]:
    shown = record.values
    if record.planned.is_block or not shown.get("synchronous_standby_names"):
        return ()
    return WAITED.get(shown.get("synchronous_commit", "on"), ())


def _join_spreads(all_of: Iterable[Mapping[Stage, Spread]]) -> dict[Stage, Spread]:
    joined: dict[Stage, Spread] = {}
    for stage, one in (item for spreads in all_of for item in spreads.items()):
        other = joined.get(stage, Spread(mean=0.0, usual=0.0, largest=one.largest, n=0))
        n = other.n + one.n
        mean, usual = ((a * other.n + b * one.n) / n for a, b in ((other.mean, one.mean), (other.usual, one.usual)))
        joined[stage] = Spread(mean=mean, usual=usual, largest=max(other.largest, one.largest), n=n)
    return joined
