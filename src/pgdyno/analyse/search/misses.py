"""Count how many of a trial's scheduled transactions missed its latency limit, with none left out.

A miss is a transaction that was late, one that pgbench skipped because it was late before it began, one that failed,
and one that was scheduled but never began because every client of its schedule was still busy when the load ended. Latency
counts from the scheduled start. The whole load counts, not only its steady part: transactions at its beginning wait as well.

The counts are pgbench's own, even if its log is a sample; only the last kind comes from the log. A trial that lacks one
of the counts is not judged.
"""

from __future__ import annotations

import msgspec

from pgdyno.record.transactions.histogram import Quantile
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialStatus

# The percentile lies among transactions without a latency.
_BEYOND = Quantile(
    q=1.0,
    value_us=None,
    count=0,
    reason="more transactions were skipped, failed or never started than the percentile allows",
)


class Misses(msgspec.Struct, frozen=True, kw_only=True):
    """The transactions of one trial at a rate, and how many of them missed the limit."""

    rate_tps: float
    scheduled_count: float
    """Number of transactions that should have run."""
    late_count: int
    skipped_count: float
    """Skipped transactions without those scheduled after the load's end, which a late client skips as well."""
    failed_count: int
    unbegun_count: float
    """Transactions that were scheduled more than the limit before the end and never began, estimated from the ends of those schedules
    whose clients were all busy."""
    latency_ms: float | None
    """Latency at the percentile of all scheduled transactions; None with a reason."""
    latency_reason: str | None
    """Why the latency is not known."""

    @property
    def missed_count(self) -> float:
        """The number of transactions that missed the limit."""
        return self.late_count + self.skipped_count + self.failed_count + self.unbegun_count

    @property
    def share_ratio(self) -> float:
        """The share of scheduled transactions that missed the limit."""
        return self.missed_count / self.scheduled_count

    @property
    def positive_share_ratio(self) -> float:
        """The share as in `share_ratio`, but of half a transaction if none missed: a share observed as small is not 0."""
        return max(self.missed_count, 0.5) / self.scheduled_count


def count_misses(data: TrialData, *, limit_ms: float, percentile: float) -> Misses | None:
    """Count the misses of a trial; None in a closed loop, if the trial failed, or if a count is missing.

    Args:
        data: The data that the trial left.
        limit_ms: The latency limit of the trial.
        percentile: The percentile whose latency is wanted.
    """
    rate_tps, summary = data.record.planned.rate_tps, data.pgbench
    if rate_tps is None or summary is None or data.record.status is not TrialStatus.FINISHED:
        return None
    counts = [summary.transaction_count, summary.above_limit_count, summary.skipped_count, summary.failed_count]
    if counts[:2] == [0, None]:
        # If no transaction ended, pgbench does not print how many were late.
        counts[1] = 0
    start_s, ends = data.load_start_epoch_s, data.schedule_ends
    if None in counts or start_s is None or not ends:
        return None
    done, late, skipped, failed = (count or 0 for count in counts)
    end_s = start_s + data.record.planned.duration_s
    # Each thread of each pgbench has a schedule of its own, at its share of the rate.
    beyond = rate_tps * sum(one.share_ratio * max(0.0, one.last_epoch_s - end_s) for one in ends)
    within = max(0.0, skipped - beyond)
    # Transactions whose limit was not yet over when the load ended may have been in time, so they do not count.
    due_s = end_s - limit_ms / 1000.0
    behind = [one for one in ends if one.fell_behind_at(end_s)]
    unbegun = rate_tps * sum(one.share_ratio * max(0.0, due_s - max(start_s, one.last_epoch_s)) for one in behind)
    scheduled = done + within + failed + unbegun
    if not scheduled:
        return None
    latency = _find_latency(data, percentile / 100.0 * scheduled / done) if done else _BEYOND
    return Misses(
        rate_tps=rate_tps,
        scheduled_count=scheduled,
        late_count=late,
        skipped_count=within,
        failed_count=failed,
        unbegun_count=unbegun,
        latency_ms=None if latency.value_us is None else latency.value_us / 1000.0,
        latency_reason=latency.reason,
    )


def _find_latency(data: TrialData, q: float) -> Quantile:
    """Find the latency of a quantile among the transactions that succeeded."""
    if q >= 1.0:
        return _BEYOND
    if data.transactions is None:
        return Quantile(q=q, value_us=None, count=0, reason="the log of transactions could not be read")
    return data.transactions.latency().quantile(q)
