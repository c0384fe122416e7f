"""Find what the samplers of a load missed once they have ended, with the reason.

A sampler that was halted, or for which the machine was too busy, leaves no samples for a while; one that failed leaves none
from then on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, describe_failure
from pgdyno.record.samples.files import (
    MISSED_AFTER_INTERVALS,
    Missed,
    OsSamples,
    ServerSamples,
    find_missed,
    find_missed_between,
)
from pgdyno.record.samples.pings import read_pings
from pgdyno.record.samples.pooler import find_end, read_pooler
from pgdyno.record.samples.rows import ServerHeader
from pgdyno.run.sample.child import Child, FarSampler

# Pings come at random instants, ten a second: of so many intervals that they last a hundred years, one is as long by chance.
_PING_SILENCE_S = 3.0


class SamplerGap(msgspec.Struct, frozen=True, kw_only=True):
    """A period of CLOCK_MONOTONIC that a sampler missed."""

    source: str
    reason: str
    from_s: float
    to_s: float


def find_gaps(
    child: Child | FarSampler, stopped_s: float, read: Callable[[Path], OsSamples | ServerSamples]
) -> tuple[SamplerGap, ...]:
    """Return what the OS sampler or the server sampler missed, and what it could not read.

    Args:
        child: The sampler, which has ended.
        stopped_s: When it was to end.
        read: Reads its file.
    """
    try:
        samples = read(child.path)
    except (PgdynoError, OSError) as exc:
        reason = child.failure or describe_failure(exc)
        return (SamplerGap(source=child.source, reason=reason, from_s=child.started_s, to_s=stopped_s),)
    gaps = _list_late(child, find_missed(samples))
    given_up = samples.given_up if isinstance(samples, OsSamples) else {}
    gaps += [
        SamplerGap(
            source=child.source,
            reason=f"it may not open enough files to follow {request}: {reason}; see `ulimit -Hn`",
            from_s=child.started_s,
            to_s=stopped_s,
        )
        for request, reason in given_up.items()
    ]
    refused = samples.header.refused if isinstance(samples.header, ServerHeader) else {}
    gaps += [
        SamplerGap(source=place, reason=words, from_s=child.started_s, to_s=stopped_s)
        for place, words in refused.items()
    ]
    failure = samples.end if samples.end and samples.end.startswith("failed") else child.failure
    if failure:
        last_s = samples.frame["t_s"][-1] if samples.frame.height else child.started_s
        gaps.append(SamplerGap(source=child.source, reason=failure, from_s=last_s, to_s=stopped_s))
    return tuple(gaps)


def find_pooler_gaps(child: Child, stopped_s: float, *, interval_s: float) -> tuple[SamplerGap, ...]:
    """Return when a pooler was not sampled, and if not to the end, why not, in its own words."""
    gaps: list[SamplerGap] = []
    reason = child.failure
    # Where its file could not be made, there is none to read; one that is damaged is told when the trial is read.
    with contextlib.suppress(OSError, ValueError):
        times_s = [one.t_s for one in read_pooler(child.path.parent).samples]
        gaps = _list_late(child, find_missed_between(times_s, times_s, limit_s=MISSED_AFTER_INTERVALS * interval_s))
        reason = reason and (find_end(child.path) or reason)
    return (*gaps, *_list_failure(child, reason, stopped_s))


def find_ping_gaps(child: Child, stopped_s: float) -> tuple[SamplerGap, ...]:
    """Return when no ping ran, and if not to the end, why not; one that took long is a ping."""
    gaps: list[SamplerGap] = []
    with contextlib.suppress(OSError, ValueError):
        pings = read_pings(child.path.parent)
        begun_s, ended_s = pings.began_s.tolist(), (pings.began_s + pings.round_trip_s).tolist()
        gaps = _list_late(child, find_missed_between(begun_s, ended_s, limit_s=_PING_SILENCE_S))
    return (*gaps, *_list_failure(child, child.failure, stopped_s))


def _list_late(child: Child | FarSampler, spans: Iterable[Missed]) -> list[SamplerGap]:
    return [
        SamplerGap(source=child.source, reason="came too late for its samples", from_s=missed.from_s, to_s=missed.to_s)
        for missed in spans
    ]


def _list_failure(child: Child, reason: str, stopped_s: float) -> tuple[SamplerGap, ...]:
    if not reason:
        return ()
    return (SamplerGap(source=child.source, reason=reason, from_s=child.started_s, to_s=stopped_s),)
