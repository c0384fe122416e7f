"""Shares of the clients' time in order, after symptoms have gone to their causes; nothing is lost on the way.

What is known and no limit is set aside, what is a symptom moves to what it is behind, as far as that is large enough.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pgdyno.analyse.bottleneck.signs import Signs, percent
from pgdyno.analyse.bottleneck.thresholds import THRESHOLDS
from pgdyno.analyse.bottleneck.time_model import WAITING
from pgdyno.analyse.bottleneck.time_share import Resource, TimeShare, TransactionTime

# Who holds a row spends its time on these.
_OF_HOLDERS = (Resource.CPU, *(each for each in WAITING if each is not Resource.LOCK))


class Ranking(msgspec.Struct):
    """Shares of the clients' time after symptoms have gone to their causes, and what was said on the way."""

    weights: dict[Resource, float]
    evidence: list[str]
    symptoms: list[str]
    aside: float = 0.0
    """Left out of the ranking, because it is known and no limit."""
    moved: dict[Resource, Resource] = {}
    """From where most of a resource's weight came, if not from its own share."""
    is_generator_first: bool = False

    def move(self, source: Resource, targets: Iterable[Resource]) -> bool:
        """Give a share to others, in proportion to theirs; False where theirs are too small to be behind it."""
        weight = self.weights.get(source, 0.0)
        found = {target: own for target in targets if (own := self.weights.get(target, 0.0)) > 0.0}
        total = sum(found.values())
        if weight > THRESHOLDS.chance_factor * total:
            return False
        self.weights.pop(source, None)
        self.weights |= {target: own + weight * own / total for target, own in found.items()}
        return True

    def leave_out(self, resource: Resource, symptom: str) -> None:
        """Take a share out of the ranking."""
        weight = self.weights.pop(resource, 0.0)
        self.aside += weight
        if weight >= THRESHOLDS.mentioned_ratio:
            self.symptoms.append(symptom.format(percent(weight)))

    def order(self) -> list[Resource]:
        """Resources, largest first, but for a full pgbench, which shows nothing of how much the CPUs could do."""
        order = sorted((each for each in self.weights if self.weights[each] > 0.0), key=lambda one: -self.weights[one])
        if self.is_generator_first and order[0] is Resource.CPU:
            order.remove(Resource.LOAD_GENERATOR)
            order.insert(0, Resource.LOAD_GENERATOR)
        return order


def rank_shares(time: TransactionTime, signs: Signs) -> Ranking:
    """The shares of a trial, with its signs."""
    ranked = Ranking(weights={share.resource: share.ratio for share in time.shares}, evidence=[], symptoms=[])
    _settle_generator(ranked, signs)
    if signs.cannot_think and ranked.weights.get(Resource.CLIENT, 0.0) < THRESHOLDS.round_trips_ratio:
        ranked.leave_out(Resource.CLIENT, "round trips, {} of the time: waking the other side up")
    locks = ranked.weights.get(Resource.LOCK, 0.0)
    if signs.has_chance_locks and locks >= THRESHOLDS.mentioned_ratio and ranked.move(Resource.LOCK, _OF_HOLDERS):
        ranked.symptoms.append(
            f"row locks, {percent(locks)} of the time: held by chance for as long as a transaction takes"
        )
    flushes = ranked.weights.get(Resource.WAL_FLUSH, 0.0)
    if signs.flushes_behind_writes is not None and flushes > 0.0:
        del ranked.weights[Resource.WAL_FLUSH]
        ranked.weights[Resource.DATA_WRITE] = ranked.weights.get(Resource.DATA_WRITE, 0.0) + flushes
        ranked.moved[Resource.DATA_WRITE] = Resource.WAL_FLUSH
        if ranked.order()[0] is Resource.DATA_WRITE:
            ranked.evidence.append(signs.flushes_behind_writes)
            ranked.symptoms.append(f"WAL flush, {percent(flushes)} of the time: behind pages of data on the same disk")
    return ranked


def _settle_generator(ranked: Ranking, signs: Signs) -> None:
    if signs.full_generator is None:
        ranked.leave_out(Resource.LOAD_GENERATOR, "pgbench's own work, {} of the time, with time left in its threads")
        return
    # Of a record that does not tell pgbench from other clients' time, all of it is pgbench's.
    if Resource.LOAD_GENERATOR not in ranked.weights and Resource.CLIENT in ranked.weights:
        ranked.weights[Resource.LOAD_GENERATOR] = ranked.weights.pop(Resource.CLIENT)
        ranked.moved[Resource.LOAD_GENERATOR] = Resource.CLIENT
    ranked.is_generator_first = ranked.weights.get(Resource.LOAD_GENERATOR, 0.0) >= THRESHOLDS.named_ratio


def share_of(resource: Resource, ranked: Ranking, time: TransactionTime) -> TimeShare:
    """The share with what was moved to it; its interval is wider by as much."""
    weight = ranked.weights[resource]
    seen = [
        share for each in (resource, ranked.moved.get(resource, resource)) if (share := time.find(each)) is not None
    ]
    own = max(seen, key=lambda share: share.ratio)
    factor = weight / own.ratio
    return TimeShare(
        resource=resource,
        ms=weight * time.transaction_ms,
        ratio=weight,
        low_ratio=None if own.low_ratio is None else min(own.low_ratio, own.low_ratio * factor),
        high_ratio=None if own.high_ratio is None else min(1.0, own.high_ratio * factor),
        how=own.how,
    )
