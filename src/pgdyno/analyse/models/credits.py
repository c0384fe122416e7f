"""Model burst credits as a bucket: full at first, emptied by what is used above the baseline, refilled by what is left below it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pgdyno.analyse.models.checks import check_not_negative, check_positive


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """Credits for use above a baseline; rates are in I/Os or bytes a second.

    Source: Amazon EBS user guide, General Purpose SSD volumes, "I/O credits and burst performance": a gp2 volume begins with 5.4
    million credits, earns its baseline and spends what it uses, so that a burst lasts credits / (burst - baseline).
    """

    capacity: float
    baseline: float
    burst: float
    refill: float
    """The most that is earned in a second in which nothing is used."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: One is not above 0, or the burst is not above the baseline.
        """
        check_positive(capacity=self.capacity, baseline=self.baseline, refill=self.refill)
        if self.burst <= self.baseline:
            raise ValueError(f"burst is {self.burst}, which is not above the baseline {self.baseline}")


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """A time of constant use."""

    seconds: float
    rate: float
    """What is asked for; above the burst no more is given."""


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """The credits after a use."""

    credits: float
    ended_s: float | None
    """Seconds into the use at which they ended; None if they lasted."""


def spend(bucket: Bucket, credits_left: float, use: Use) -> Balance:
    """Return the balance after a use that begins with a balance.

    Without credits the baseline is given, so that nothing is earned while more is asked for.
    """
    check_not_negative(credits_left=credits_left, seconds=use.seconds, rate=use.rate)
    rate = min(use.rate, bucket.burst)
    if rate <= bucket.baseline:
        earned = min(bucket.baseline - rate, bucket.refill) * use.seconds
        return Balance(credits=min(bucket.capacity, credits_left + earned), ended_s=None)
    lasts_s = credits_left / (rate - bucket.baseline)
    if lasts_s > use.seconds:
        return Balance(credits=credits_left - (rate - bucket.baseline) * use.seconds, ended_s=None)
    return Balance(credits=0.0, ended_s=lasts_s)


def find_end(bucket: Bucket, uses: Iterable[Use]) -> tuple[int, float] | None:
    """Find where the credits of a full bucket end: the number of the use, from 0, and the seconds since the first began.

    Returns:
        None if they last through all uses.
    """
    left, passed_s = bucket.capacity, 0.0
    for number, use in enumerate(uses):
        balance = spend(bucket, left, use)
        if balance.ended_s is not None:
            return number, passed_s + balance.ended_s
        left, passed_s = balance.credits, passed_s + use.seconds
    return None
