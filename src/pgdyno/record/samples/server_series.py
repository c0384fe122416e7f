"""Compute rates and wait counts from the server sampler's counters, each at its true time.

The rules of `series.py` apply. A counter that this version of PostgreSQL lacks, or that a setting disables, is
absent with that reason. Backends report their counters about once a second, each at its own time, so that one-second
rates of transactions and pages are blurred by up to a second; the WAL position is exact.

Source: PostgreSQL 18 src/backend/utils/activity/pgstat.c, PGSTAT_MIN_INTERVAL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from pgdyno.facts.versions import is_untried
from pgdyno.facts.views import (
    Absent,
    Counter,
    FromIo,
    describe_source,
    server_counters,
)
from pgdyno.record.samples.files import ServerSamples
from pgdyno.record.samples.rows import ServerHeader
from pgdyno.record.samples.series import Floats, Sampled, absent_series, difference, gauge, growth, intervals

RUNNING = "CPU"
"""Class of backends that do not wait."""
IDLE_IN_TRANSACTION = "idle in transaction"
_ACTIVE_STATES = {"active", "fastpath function call"}
CLIENT_BACKEND = "client backend"
_CLIENT_TYPES = (CLIENT_BACKEND, "parallel worker")
_WRITERS = {"checkpointer", "background writer"}
_EVICTING = {(who, "relation") for who in _CLIENT_TYPES}


_STANDBY_LAGS = {"write_lag_bytes": "written", "flush_lag_bytes": "flushed", "replay_lag_bytes": "replayed"}


class WaitCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of backends in one state and wait event; names that are NULL in PostgreSQL are empty."""

    state: str
    wait_event_type: str
    wait_event: str
    counts: Floats
    """Number of backends, summed over the wait samples of each row."""


def list_wait_counts(samples: ServerSamples, backend_type: str) -> Iterator[WaitCounts]:
    """Yield the counts of each state and wait event in which backends of a type were seen."""
    for column in samples.frame.columns:
        source, *key = column.split("/", 4)
        if source == "wait" and key[0] == backend_type:
            yield WaitCounts(
                state=key[1], wait_event_type=key[2], wait_event=key[3], counts=gauge(samples.frame, column)
            )


def counter_rate(samples: ServerSamples, name: str, *, metric: str, factor: float = 1) -> Sampled:
    """Return the growth of a counter per second.

    Args:
        samples: Samples of the server.
        name: Canonical name of the counter.
        metric: Name of the rate.
        factor: Multiplier, such as the bytes of a page.
    """
    reason = _why_absent(samples, name)
    if reason:
        return absent_series(metric, name, reason)
    return _per_second(samples, metric, name, _grown(samples, name) * factor)


def wal_bytes(samples: ServerSamples) -> Sampled:
    """Return the WAL generated per second, from the insert position."""
    return counter_rate(samples, "wal_insert_lsn_bytes", metric="wal_bytes_per_s")


def wal_full_page_images(samples: ServerSamples) -> Sampled:
    """Return the full-page images per second."""
    return counter_rate(samples, "wal_fpi_count", metric="wal_fpi_per_s")


def cache_hits(samples: ServerSamples) -> Sampled:
    """Return the share of page accesses that shared_buffers served; unknown where no backend reported any."""
    metric, label = "cache_hit_ratio", "shared_buffers"
    hits, reads = (counter_rate(samples, f"blks_{what}_pages", metric=metric) for what in ("hit", "read"))
    if hits.absent or reads.absent:
        return absent_series(metric, label, hits.absent or reads.absent or "")
    both = hits.values + reads.values
    ratios = np.divide(hits.values, both, out=np.full(both.shape, np.nan), where=both > 0)
    return msgspec.structs.replace(hits, label=label, values=ratios)


def written_pages(samples: ServerSamples) -> tuple[Sampled, Sampled, Sampled]:
    """Return the bytes of shared_buffers written per second by the checkpointer, the background writer and others.

    Pages of the others include those that extend files, in every version.
    """
    page_bytes = float(samples.header.block_bytes) if samples.header else np.nan
    checkpointer, bgwriter = (
        counter_rate(samples, f"{who}_written_pages", metric=f"{who}_written_bytes_per_s", factor=page_bytes)
        for who in ("checkpointer", "bgwriter")
    )
    others = counter_rate(samples, "backend_written_pages", metric="backend_written_bytes_per_s", factor=page_bytes)
    is_readable = samples.header is not None and {"io_write_bytes", "io_extend_bytes"} <= set(samples.header.io)
    if others.absent and is_readable and samples.frame.height > 1:
        others = _per_second(samples, others.metric, others.label, _written_by_others(samples))
    return checkpointer, bgwriter, others


def session_evictions(samples: ServerSamples) -> Sampled:
    """Return the bytes per second of dirty pages of tables and indexes that sessions evicted from shared_buffers.

    Only pg_stat_io separates them from pages that extend a file, so that the series is absent before PostgreSQL 16.
    """
    metric, label = "backend_written_bytes_per_s", "sessions"
    if samples.header is None or samples.frame.height < 2:
        return absent_series(metric, label, samples.end or "the server sampler saw too little")
    if not server_counters(samples.header.version_num // 10_000).io:
        return absent_series(metric, label, "pg_stat_io came with 16")
    if "io_write_bytes" not in samples.header.io:
        return absent_series(
            metric, label, "the writes of this PostgreSQL's pg_stat_io are not where older versions have them"
        )
    return _per_second(
        samples, metric, label, _sum_io(samples, "io_write_bytes", lambda who, of, _: (who, of) in _EVICTING)
    )


def standby_lags(samples: ServerSamples) -> tuple[Sampled, ...]:
    """Return how many bytes of WAL each standby had not yet written, flushed and replayed, at each sample."""
    times_s = gauge(samples.frame, "t_s")
    found = []
    for column in samples.frame.columns:
        source, *key = column.split("/")
        if source == "standby" and key[1] in _STANDBY_LAGS:
            label = f"not {_STANDBY_LAGS[key[1]]} by {key[0]}"
            values = gauge(samples.frame, column)
            found.append(Sampled(metric="standby_lag_bytes", label=label, monotonic_s=times_s, values=values))
    return tuple(found)


def wait_classes(samples: ServerSamples) -> tuple[Sampled, ...]:
    """Return the mean number of client backends and their parallel workers in each class of wait, for each second.

    Classes are PostgreSQL's wait_event_type, `CPU` for backends that do not wait, and `idle in transaction` for
    backends that wait for their client inside a transaction. Backends that wait for their client outside one are not
    counted.
    """
    return _mean_backends(samples, lambda observed: _wait_class(observed.state, observed.wait_event_type))


def wait_events(samples: ServerSamples) -> tuple[Sampled, ...]:
    """Return the mean number of client backends and their parallel workers in each wait event, for each second.

    Labels are `class: event`, and those of `wait_classes` where there is no event.
    """
    return _mean_backends(samples, _name_event)


def _name_event(observed: WaitCounts) -> str | None:
    label = _wait_class(observed.state, observed.wait_event_type)
    if label is None or label in {RUNNING, IDLE_IN_TRANSACTION}:
        return label
    return f"{label}: {observed.wait_event}"


def _mean_backends(samples: ServerSamples, name: Callable[[WaitCounts], str | None]) -> tuple[Sampled, ...]:
    """Return the mean number of client backends by name, for each second; those whose name is None are left out."""
    if samples.header is None or not samples.frame.height:
        return ()
    sums: dict[str, Floats] = {}
    for observed in (each for kind in _CLIENT_TYPES for each in list_wait_counts(samples, kind)):
        label = name(observed)
        if label is not None:
            sums[label] = sums.get(label, np.zeros(samples.frame.height)) + observed.counts
    times_s, looks = gauge(samples.frame, "t_s"), gauge(samples.frame, "n")
    # The wait samples of a row lie in the interval before it; those of the first row in none.
    middles_s, steps_s = intervals(times_s)
    return tuple(
        Sampled(
            metric="wait_backends_count",
            label=label,
            monotonic_s=middles_s,
            values=np.divide(counts, looks, out=np.full(counts.shape, np.nan), where=looks > 0)[1:],
            steps_s=steps_s,
        )
        for label, counts in sorted(sums.items())
    )


def _wait_class(state: str, kind: str) -> str | None:
    # PostgreSQL copies all states and then reads the wait events, so that state and event of a fast backend may
    # disagree. The event is read later and decides: a backend that waits for a lock or a disk is active.
    if kind == "Client" and state not in _ACTIVE_STATES:
        return IDLE_IN_TRANSACTION if state.startswith(IDLE_IN_TRANSACTION) else None
    return kind or RUNNING


def _intervals(samples: ServerSamples) -> tuple[Floats, Floats]:
    # The counters were read at some moment between these two; the middle has the smallest error.
    return intervals((gauge(samples.frame, "t_s") + gauge(samples.frame, "until_s")) / 2)


def _per_second(samples: ServerSamples, metric: str, label: str, grown: Floats) -> Sampled:
    middles_s, steps_s = _intervals(samples)
    return Sampled(metric=metric, label=label, monotonic_s=middles_s, values=grown / steps_s, steps_s=steps_s)


def _find_counter(header: ServerHeader, name: str) -> Counter:
    facts = server_counters(header.version_num // 10_000)
    return next(counter for counter in facts.counters if counter.name == name)


def _why_absent(samples: ServerSamples, name: str) -> str | None:
    if samples.header is None or samples.frame.height < 2:
        return samples.end or "the server sampler saw too little"
    counter = _find_counter(samples.header, name)
    if isinstance(counter.source, Absent):
        return counter.source.reason
    if counter.needs is not None and not samples.header.settings[counter.needs]:
        return f"{counter.needs} is off"
    return _why_not_read(samples, counter)


def _why_not_read(samples: ServerSamples, counter: Counter) -> str | None:
    """Say why a server of a version that was not tried did not give a counter; None where it did."""
    header, source = samples.header, counter.source
    if header is None or not is_untried(header.version_num // 10_000):
        return None
    is_read = counter.name in header.counters
    if isinstance(source, FromIo):
        objects = {column.split("/")[2] for column in samples.frame.columns if column.startswith("io/")}
        is_read = source.column in header.io and source.object in objects
    return None if is_read else f"this PostgreSQL has no {describe_source(source)}, where older versions have it"


def _grown(samples: ServerSamples, name: str) -> Floats:
    source = _find_counter(samples.header, name).source if samples.header else None
    if isinstance(source, FromIo):
        counts = source.counts
        return _sum_io(samples, source.column, lambda _, of, context: counts(of, context))
    return difference(samples.frame, f"counter/{name}")


def _written_by_others(samples: ServerSamples) -> Floats:
    def is_other(backend_type: str, io_object: str, _: str) -> bool:
        return backend_type not in _WRITERS and io_object == "relation"

    return _sum_io(samples, "io_write_bytes", is_other) + _sum_io(samples, "io_extend_bytes", is_other)


def _sum_io(samples: ServerSamples, name: str, wanted: Callable[[str, str, str], bool]) -> Floats:
    """Sum the growth of an I/O column over the matching rows. A row that appears later started at 0."""
    total = np.zeros(samples.frame.height - 1)
    for column in samples.frame.columns:
        source, *key = column.split("/")
        if source == "io" and key[-1] == name and wanted(*key[:3]):
            counter = samples.frame[column]
            total += growth(counter.fill_null(0) if counter.null_count() else counter)
    return total
