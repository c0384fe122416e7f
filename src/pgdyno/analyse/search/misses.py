"""How many transactions of a trial missed its latency limit, of all that were scheduled: nothing is left out.

A miss is what came late, what pgbench skipped because it was late before it began, what failed, and what was scheduled
but never begun because every client was still busy when the load ended. Latency counts from the scheduled start. The
whole load counts, not its steady part: who waits at its beginning waits as well.

The counts are pgbench's own, also where its log is a sample; only the last kind comes from the log. It refuses to judge
a trial of which one of them is missing.
"""

from __future__ import annotations

import msgspec

from pgdyno.record.transactions.histogram import Quantile
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialStatus


class Misses(msgspec.Struct, frozen=True, kw_only=True):
    """The transactions of one trial at a rate."""

    rate_tps: float
    scheduled_count: float
    """All that should have run."""
    late_count: int
    skipped_count: float
    """Without those that were scheduled after the load's end: a client that comes back late skips them as well."""
    failed_count: int
    unbegun_count: float
    """Scheduled more than the limit before the end, and never begun: estimated from the schedule's end."""
    latency_ms: float | None
    """Which the percentile of all scheduled ones held; None where too many were never begun, or too few are known."""

    @property
    def missed_count(self) -> float:
        """All that missed the limit."""
        return self.late_count + self.skipped_count + self.failed_count + self.unbegun_count

    @property
    def share_ratio(self) -> float:
        """Of those that were scheduled."""
        return self.missed_count / self.scheduled_count

    @property
    def positive_share_ratio(self) -> float:
        """As `share_ratio`, with half a transaction where none missed: a share that was seen to be small is not 0."""
        return max(self.missed_count, 0.5) / self.scheduled_count


def count_misses(data: TrialData, *, limit_ms: float, percentile: float) -> Misses | None:
    """The misses of a trial; None of one in a closed loop, one that failed, and one that lacks a count.

    Args:
        data: What the trial left.
        limit_ms: The latency limit it ran with.
        percentile: Whose latency is wanted.
    """
    rate_tps, summary = data.record.planned.rate_tps, data.pgbench
    if rate_tps is None or summary is None or data.record.status is not TrialStatus.FINISHED:
        return None
    counts = [summary.transaction_count, summary.above_limit_count, summary.skipped_count, summary.failed_count]
    if counts[:2] == [0, None]:
        # Where nothing ended, pgbench says nothing of how late it was.
        counts[1] = 0
    start_s, last_s = data.load_start_epoch_s, data.last_scheduled_epoch_s
    if None in counts or start_s is None or last_s is None:
        return None
    done, late, skipped, failed = (count or 0 for count in counts)
    end_s = start_s + data.record.planned.duration_s
    within = max(0.0, skipped - max(0.0, last_s - end_s) * rate_tps)
    # Whose limit was not over when the load ended may have been in time: nobody knows, so they do not count.
    unbegun = max(0.0, end_s - limit_ms / 1000.0 - last_s) * rate_tps
    scheduled = done + within + failed + unbegun
    if not scheduled:
        return None
    return Misses(
        rate_tps=rate_tps,
        scheduled_count=scheduled,
        late_count=late,
        skipped_count=within,
        failed_count=failed,
        unbegun_count=unbegun,
        latency_ms=_find_latency_ms(data, percentile / 100.0 * scheduled / done) if done else None,
    )


def _find_latency_ms(data: TrialData, q: float) -> float | None:
    """The latency of a quantile among those that ended well."""
    if data.transactions is None or q >= 1.0:
        return None
    found: Quantile = data.transactions.latency().quantile(q)
    return None if found.value_us is None else found.value_us / 1000.0
