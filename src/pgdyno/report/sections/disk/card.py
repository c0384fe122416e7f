"""Name and format the figures of a disk card, and explain what they mean for PostgreSQL.

Rates are in 10^6 bytes, as in fio and data sheets. Findings about the figures come from `explain/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from pgdyno.analyse.disk.card import DiskFigures
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey
from pgdyno.analyse.estimate import Estimate, is_too_wide, map_estimate
from pgdyno.explain.finding import Severity
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.report.format import format_bytes, format_estimate, format_number, format_seconds
from pgdyno.report.input import CardView
from pgdyno.report.sections.disk.layout import describe_declared
from pgdyno.units import PAGE_BYTES, count_things

ENTRY_WORDS = {
    DiskFigureKey.RANDOM_READ: "random reads, 8 kB",
    DiskFigureKey.RANDOM_WRITE: "random writes, 8 kB",
    DiskFigureKey.MIXED: "mixed, 8 kB",
    DiskFigureKey.SEQUENTIAL_READ: "sequential reads",
    DiskFigureKey.SEQUENTIAL_WRITE: "sequential writes",
    DiskFigureKey.WAL: "WAL in large writes",
    DiskFigureKey.FLUSHES: "flushes, one at a time",
    DiskFigureKey.FLUSH_TEST: "flushes, pg_test_fsync",
    DiskFigureKey.READ_P50: "read latency, p50",
    DiskFigureKey.READ_P99: "read latency, p99",
    DiskFigureKey.WRITE_P50: "write latency, p50",
    DiskFigureKey.WRITE_P99: "write latency, p99",
    DiskFigureKey.FLUSH_P50: "flush latency, p50",
    DiskFigureKey.FLUSH_P99: "flush latency, p99",
}
_PER_S = frozenset({DiskFigureKey.FLUSHES, DiskFigureKey.FLUSH_TEST})
_MEGABYTE, _GIBIBYTE = 1e6, 2**30
_FEW_ROUNDS = 4


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A figure as text."""

    value: str
    """The value with its unit."""
    interval: str
    """Such as `[11,900 – 12,300]` in the same unit; the reason where there is no useful interval."""


def show_entry(entry: DiskFigure) -> Shown:
    """Format an entry's figure and its interval."""
    return show_figure(entry.estimate, is_count=entry.key in _PER_S)


def show_figure(estimate: Estimate, *, is_count: bool = False) -> Shown:
    """Format a rate or latency with its interval: IOPS in IOPS, flushes (`is_count`) by the second."""
    scale, unit = _unit_of(estimate, is_count=is_count)
    shown = format_estimate(map_estimate(estimate, lambda at: at / scale))
    if estimate.low is None:
        interval = "measured once" if estimate.n else "declared"
    else:
        interval = _describe_width(estimate) if is_too_wide(estimate) else shown.interval
    return Shown(value=f"{shown.value} {unit}", interval=interval)


def show_like(key: DiskFigureKey, estimate: Estimate, value: float) -> str:
    """Format another value of the same quantity as an estimate, such as its ceiling, with its unit."""
    other = msgspec.structs.replace(estimate, value=value, low=None, high=None)
    return show_figure(other, is_count=key in _PER_S).value


def format_latency(us: float) -> str:
    """Format a latency: `140 µs`, `1.85 ms`, `2.3 s`."""
    scale, unit = _time_unit(us)
    return f"{format_number(us / scale, digits=3 if us >= 1 else 2)} {unit}"


def format_rate(bytes_per_s: float) -> str:
    """Format a rate: `250 MB/s`."""
    return f"{format_number(bytes_per_s / _MEGABYTE)} MB/s"


def describe_place(card: DiskCard) -> str:
    """Describe the storage below a path: `/data: xfs on /dev/nvme1n1, 400 GB free of 500 GB`."""
    if card.look is None:
        what = "" if card.declared is None else f", {describe_declared(card.declared)}"
        on = f", on {card.instance}" if card.instance else ""
        return f"{card.name}: declared, not measured{what}{on}"
    facts = card.look.facts
    below = [device.name for device in card.look.devices if device.kind == "disk"]
    made_of = f" ({', '.join(below)})" if below and below != [facts.block_device] else ""
    models = f", {', '.join(dict.fromkeys(card.look.models.values()))}" if card.look.models else ""
    room = f"{format_bytes(facts.free_bytes)} free of {format_bytes(facts.size_bytes)}"
    return f"{card.name}: {facts.filesystem} on {facts.device}{made_of}{models}, {room}"


def describe_making(card: DiskCard, figures: DiskFigures) -> str:
    """Describe when, where and with what the card was measured; empty where it was not."""
    if card.look is None:
        return ""
    words = [f"measured {card.made_at:%Y-%m-%d %H:%M %Z}".rstrip()]
    if card.machine is not None:
        words.append(f"on {card.machine.hostname} ({card.machine.cpu_count} CPUs)")
    if card.tools:
        words.append(f"by {', '.join(f'{name} {version}' for name, version in card.tools.items())}")
    how = []
    if card.file_bytes is not None:
        how.append(f"a file of {format_bytes(card.file_bytes)}")
    if card.runtime_s is not None:
        how.append(f"{count_things(figures.round_count, 'round')} of {format_seconds(card.runtime_s)} for each job")
    return f"{' '.join(words)}{': ' if how else ''}{', '.join(how)}"


def explain_for_postgresql(view: CardView) -> tuple[str, ...]:
    """Explain what the figures mean for a server, in a sentence or two for each figure.

    Explains nothing where the measured storage is not fit for data.
    """
    is_spoiled = any(finding.severity is Severity.CRITICAL for finding in view.findings)
    return () if is_spoiled else tuple(_explain(view))


def _explain(view: CardView) -> Iterator[str]:
    flushes, reads, writes = (
        _most(view, key) for key in (DiskFigureKey.FLUSHES, DiskFigureKey.RANDOM_READ, DiskFigureKey.RANDOM_WRITE)
    )
    if flushes:
        count = flushes.words.removesuffix(" /s")
        yield (
            f"One flush at a time: {count}/s, so one client commits at most {count} times a second. N clients share"
            " flushes and commit about N/2 times as often, until CPU or disk is saturated."
        )
    p50, p99 = (_most(view, key) for key in (DiskFigureKey.READ_P50, DiskFigureKey.READ_P99))
    if reads and p50 and p99:
        yield (
            f"Reading a page that is not cached takes {p50.words}; one read in a hundred takes more than {p99.words}."
            f" All backends together read at most {reads.words.removesuffix(' IOPS')} pages a second"
            f" ({format_rate(reads.value * PAGE_BYTES)})."
        )
    if writes:
        yield (
            f"A checkpoint writes random pages at {format_rate(writes.value * PAGE_BYTES)} at most: 1 GB of them takes"
            f" {format_seconds(_GIBIBYTE / PAGE_BYTES / writes.value)} or more."
        )
    sequential = _most(view, DiskFigureKey.SEQUENTIAL_READ)
    if sequential:
        seconds = format_seconds(10 * _GIBIBYTE / sequential.value)
        yield f"Scanning a table of 10 GB that is not in memory takes {seconds} or more."
    wal = _most(view, DiskFigureKey.WAL)
    if wal:
        yield f"WAL is written at {wal.words} at most, when large transactions or many clients share a flush."


class _Most(NamedTuple):
    value: float
    words: str


def _most(view: CardView, key: DiskFigureKey) -> _Most | None:
    """Return a figure, or its sustained value where that is less: a busy server outlasts every burst."""
    entry = next((one for one in view.entries if one.key is key), None)
    if entry is None or not entry.estimate.value:
        return None
    for one in view.efficiencies:
        if one.key is key and one.standing.is_above:
            return _Most(one.ceiling.value, show_like(key, entry.estimate, one.ceiling.value))
    return _Most(entry.estimate.value, show_entry(entry).value)


def _describe_width(estimate: Estimate) -> str:
    """State why an interval is of no use."""
    return f"{estimate.n} rounds differ too much" if estimate.n < _FEW_ROUNDS else "too noisy"


def _unit_of(estimate: Estimate, *, is_count: bool) -> tuple[float, str]:
    if estimate.unit == "us":
        return _time_unit(estimate.value or 0.0)
    if estimate.unit == "bytes/s":
        return _MEGABYTE, "MB/s"
    return 1.0, "/s" if is_count else "IOPS"


def _time_unit(us: float) -> tuple[float, str]:
    return (1.0, "µs") if us < 1e3 else (1e3, "ms") if us < 1e6 else (1e6, "s")
