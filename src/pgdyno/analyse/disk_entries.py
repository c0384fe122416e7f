"""The figures of a disk card under the names that people know from fio tables, and cards compared by them.

An entry is what somebody asks of a disk: random read IOPS, sequential MB/s, flushes a second, latency of one at a time.
Each is there only where it was measured. Where several measurements could answer, `how` says which one did.

Cards are compared entry by entry against the first one: ratios of geometric means with Welch's interval, since rounds of
two cards have nothing in common, and verdicts of the one family that the whole table is. What differs from hour to hour
is in none of these intervals, which hold for the minutes in which each card was measured.

Source: Welch 1947, "The generalization of 'Student's' problem when several different population variances are involved",
Biometrika 34, doi:10.1093/biomet/34.1-2.28.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from pgdyno.analyse.disk_card import DiskFigures, LatencyFigures
from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.evidence import Floats
from pgdyno.analyse.verdict import Outcome, Standing, VerdictKind, judge
from pgdyno.facts.metrics import Better
from pgdyno.plan.disk import Pattern
from pgdyno.record.disk_card import DiskCard, FlushTest
from pgdyno.units import PAGE_BYTES, format_bytes

# Two volumes of one kind differ by as much, and one from itself of yesterday.
DELTA_RATIO = 0.10
ALPHA = 0.05
_PER_S, _US = "1/s", "us"
# Of a logarithm: beyond it nothing is known.
_FAR = 100.0


class EntryKey(enum.Enum):
    """What is asked of a disk."""

    RANDOM_READ = "random_read_iops"
    RANDOM_WRITE = "random_write_iops"
    MIXED = "mixed_iops"
    SEQUENTIAL_READ = "sequential_read_bytes_per_s"
    SEQUENTIAL_WRITE = "sequential_write_bytes_per_s"
    WAL = "wal_bytes_per_s"
    FLUSHES = "flushes_per_s"
    FLUSH_TEST = "pg_test_fsync_per_s"
    READ_P50 = "random_read_p50_us"
    READ_P99 = "random_read_p99_us"
    WRITE_P50 = "random_write_p50_us"
    WRITE_P99 = "random_write_p99_us"
    FLUSH_P50 = "flush_p50_us"
    FLUSH_P99 = "flush_p99_us"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a disk."""

    key: EntryKey
    estimate: Estimate
    how: str
    """In a clause: `from depth 16 on`."""

    @property
    def better(self) -> Better:
        """Which way is good."""
        return Better.LOWER if self.estimate.unit == _US else Better.HIGHER


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a card against that of the first one."""

    key: EntryKey
    card: int
    """Its place among those compared; the first is 0."""
    kind: VerdictKind
    ratio: Estimate
    """Of its figure to the first one's, with the interval that the verdict rests on."""


def list_entries(card: DiskCard, figures: DiskFigures) -> tuple[Entry, ...]:
    """Each figure that was measured, in the order in which people ask."""
    found = {entry.key: entry for entry in (*_rates(figures), *_flushes(card, figures), *_latencies(figures))}
    return tuple(found[key] for key in EntryKey if key in found and found[key].estimate.value is not None)


def find_flush_test(card: DiskCard) -> FlushTest | None:
    """What pg_test_fsync says of one page by the method that PostgreSQL takes here; None where it was not run."""
    of_page = [test for test in card.flush_tests if test.group == "one 8kB write" and test.ops_per_s]
    return next((test for test in of_page if test.is_default), None)


def compare_entries(
    cards: Sequence[Sequence[Entry]], *, alpha: float = ALPHA, delta_ratio: float = DELTA_RATIO
) -> tuple[Difference, ...]:
    """Every entry of every other card that the first one has too, judged as one family.

    Args:
        cards: Their entries; the first is what the others are held against.
        alpha: The error rate of the whole table.
        delta_ratio: The largest difference that does not matter.
    """
    reference = {entry.key: entry for entry in cards[0]}
    asked = [
        (place, reference[entry.key], entry)
        for place, entries in enumerate(cards[1:], start=1)
        for entry in entries
        if entry.key in reference
    ]
    if not asked:
        return ()
    levels = alpha / np.arange(len(asked), 0, -1.0)
    stands = [_stand(first.estimate, entry.estimate, levels) for _, first, entry in asked]
    family = Standing(*(np.stack(part) for part in zip(*stands, strict=True)))
    outcomes, steps = judge(family, alpha=alpha, delta_ratio=delta_ratio)
    return tuple(
        Difference(
            key=entry.key,
            card=place,
            kind=_name(Outcome(outcome), entry.better),
            ratio=_ratio(first.estimate, entry.estimate, stand, step, confidence=1 - float(levels[step])),
        )
        for (place, first, entry), stand, outcome, step in zip(
            asked, stands, outcomes.tolist(), steps.tolist(), strict=True
        )
    )


def _rates(figures: DiskFigures) -> Iterator[Entry]:
    for key, pattern in (
        (EntryKey.RANDOM_READ, Pattern.RANDOM_READ),
        (EntryKey.RANDOM_WRITE, Pattern.RANDOM_WRITE),
        (EntryKey.MIXED, Pattern.MIXED),
        (EntryKey.SEQUENTIAL_READ, Pattern.SEQUENTIAL_READ),
        (EntryKey.SEQUENTIAL_WRITE, Pattern.SEQUENTIAL_WRITE),
    ):
        plateau = figures.find_plateau(pattern)
        if plateau is not None:
            is_rate = pattern in {Pattern.SEQUENTIAL_READ, Pattern.SEQUENTIAL_WRITE}
            is_deepest = plateau.depth == plateau.depths[-1]
            depths = f"depth {plateau.depth}" if is_deepest else f"from depth {plateau.depth} on"
            share = f"{plateau.read_ratio * 100:.0f} % reads, " if plateau.read_ratio else ""
            estimate = plateau.bytes_per_s if is_rate else plateau.iops
            yield Entry(key=key, estimate=estimate, how=f"{share}{depths}")
    wal = [one for one in figures.jobs if one.job.pattern is Pattern.WAL and one.job.block_bytes > PAGE_BYTES]
    if wal:
        largest = max(wal, key=lambda one: one.job.block_bytes)
        how = f"{format_bytes(largest.job.block_bytes)} each, flushed"
        yield Entry(key=EntryKey.WAL, estimate=largest.bytes_per_s, how=how)


def _flushes(card: DiskCard, figures: DiskFigures) -> Iterator[Entry]:
    """WAL is what commits wait for: sequential pages in a file that exists, each flushed with fdatasync."""
    own = figures.find(Pattern.WAL) or figures.find(Pattern.WRITE_AND_FLUSH)
    if own is not None:
        how = "sequential pages" if own.job.pattern is Pattern.WAL else "random pages"
        yield Entry(key=EntryKey.FLUSHES, estimate=own.iops, how=how)
        yield from _percentiles(own.flush, EntryKey.FLUSH_P50, EntryKey.FLUSH_P99, how=how)
    test = find_flush_test(card)
    if test is not None:
        reason = "one run has no interval"
        once = Estimate(value=test.ops_per_s, low=None, high=None, n=1, unit=_PER_S, reason=reason)
        yield Entry(key=EntryKey.FLUSH_TEST, estimate=once, how=test.name)
        if own is None:
            yield Entry(key=EntryKey.FLUSHES, estimate=once, how=f"pg_test_fsync, {test.name}")


def _latencies(figures: DiskFigures) -> Iterator[Entry]:
    read, write = (figures.find(pattern) for pattern in (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE))
    how = "one at a time"
    if read is not None:
        yield from _percentiles(read.read, EntryKey.READ_P50, EntryKey.READ_P99, how=how)
    if write is not None:
        yield from _percentiles(write.write, EntryKey.WRITE_P50, EntryKey.WRITE_P99, how=how)


def _percentiles(latency: LatencyFigures | None, p50: EntryKey, p99: EntryKey, *, how: str) -> Iterator[Entry]:
    if latency is not None:
        yield Entry(key=p50, estimate=latency.p50_us, how=how)
        yield Entry(key=p99, estimate=latency.p99_us, how=how)


def _stand(first: Estimate, other: Estimate, levels: Floats) -> Standing:
    """Welch's test of two geometric means, and its interval at each level; nothing is known without repeats of both."""
    errors = [_log_error(one) for one in (first, other)]
    if first.value is None or other.value is None or None in errors:
        return Standing(np.array(0.0), np.full(len(levels), -np.inf), np.full(len(levels), np.inf))
    from scipy.special import stdtr, stdtrit  # noqa: PLC0415 - only comparisons need it

    squares = [error**2 for error in errors if error is not None]
    variance = math.fsum(squares)
    # Rounds that agree to the last digit are those of a limit that is enforced: any difference is then one.
    error = max(math.sqrt(variance), 1e-9)
    degrees = (
        variance**2 / math.fsum(s**2 / (one.n - 1) for s, one in zip(squares, (first, other), strict=True) if s)
        if variance
        else 1.0
    )
    log_ratio = math.log(other.value / first.value)
    p_value = 2 * float(stdtr(degrees, -abs(log_ratio) / error))
    width = np.asarray(stdtrit(degrees, 1 - levels / 2) * error, dtype=np.float64)
    return Standing(np.array(math.log(max(p_value, 1e-300))), log_ratio - width, log_ratio + width)


def _log_error(estimate: Estimate) -> float | None:
    """The standard error of the logarithm, from the interval that it made."""
    if estimate.low is None or estimate.high is None:
        return None
    from scipy.special import stdtrit  # noqa: PLC0415 - only comparisons need it

    return math.log(estimate.high / estimate.low) / 2 / float(stdtrit(estimate.n - 1, (1 + estimate.confidence) / 2))


def _ratio(first: Estimate, other: Estimate, stand: Standing, step: int, *, confidence: float) -> Estimate:
    low, high = float(stand.low[step]), float(stand.high[step])
    is_bounded = high < _FAR
    return Estimate(
        value=None if first.value is None or other.value is None else other.value / first.value,
        low=math.exp(low) if is_bounded else None,
        high=math.exp(high) if is_bounded else None,
        n=min(first.n, other.n),
        unit="ratio",
        confidence=confidence,
        reason=None if is_bounded else "too few rounds of one of the two",
    )


def _name(outcome: Outcome, better: Better) -> VerdictKind:
    if outcome is Outcome.EQUIVALENT:
        return VerdictKind.EQUIVALENT
    if outcome is Outcome.OPEN:
        return VerdictKind.INCONCLUSIVE
    is_good = (outcome is Outcome.HIGHER) == (better is Better.HIGHER)
    return VerdictKind.FASTER if is_good else VerdictKind.SLOWER
