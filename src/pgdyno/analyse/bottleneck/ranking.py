"""Rank the shares of the clients' time after each symptom's share has moved to its cause.

No time is lost: known time that is not a limit is set aside, and a symptom's time moves to its cause if that is large
enough.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pgdyno.analyse.bottleneck.signs import Signs
from pgdyno.analyse.thresholds import THRESHOLDS
from pgdyno.analyse.transaction_time.model import WAITING
from pgdyno.analyse.transaction_time.shares import Resource, TimeShare, TransactionTime
from pgdyno.units import format_share

# Clients that hold a row lock spend their time on these.
_HOLDER_RESOURCES = (Resource.CPU, *(each for each in WAITING if each is not Resource.LOCK))


class Ranking(msgspec.Struct):
    """Shares of the clients' time after symptoms have moved to their causes, with the evidence and symptoms found."""

    weights: dict[Resource, float]
    evidence: list[str]
    symptoms: list[str]
    aside: float = 0.0
    """Share left out of the ranking because its cause is known and not a limit."""
    moved: dict[Resource, Resource] = {}
    """Resource that most of another's weight came from, if not from its own share."""
    is_generator_first: bool = False
    is_pooler_first: bool = False

    def move(self, source: Resource, targets: Iterable[Resource]) -> bool:
        """Distribute a share over others, in proportion to theirs; return False if theirs are too small to cause it."""
        weight = self.weights.get(source, 0.0)
        found = {target: own for target in targets if (own := self.weights.get(target, 0.0)) > 0.0}
        total = sum(found.values())
        if weight > THRESHOLDS.chance_factor * total:
            return False
        self.weights.pop(source, None)
        self.weights |= {target: own + weight * own / total for target, own in found.items()}
        return True

    def leave_out(self, resource: Resource, symptom: str) -> None:
        """Take a share out of the ranking and list it as a symptom if it is large."""
        weight = self.weights.pop(resource, 0.0)
        self.aside += weight
        if weight >= THRESHOLDS.mentioned_ratio:
            self.symptoms.append(symptom.format(format_share(weight)))

    def order(self) -> list[Resource]:
        """Return the resources, largest first; a saturated pgbench or pooler comes before the CPUs, whose limit it hides."""
        order = sorted((each for each in self.weights if self.weights[each] > 0.0), key=lambda one: -self.weights[one])
        if self.is_generator_first and order[0] is Resource.CPU:
            order.remove(Resource.LOAD_GENERATOR)
            order.insert(0, Resource.LOAD_GENERATOR)
        if self.is_pooler_first and order[0] in {Resource.CPU, Resource.LOAD_GENERATOR}:
            order.remove(Resource.POOLER)
            order.insert(0, Resource.POOLER)
        return order


def rank_shares(time: TransactionTime, signs: Signs) -> Ranking:
    """Rank the shares of a trial, with its signs."""
    ranked = Ranking(weights={share.resource: share.ratio for share in time.shares}, evidence=[], symptoms=[])
    _settle_pooler(ranked, signs)
    _settle_generator(ranked, signs)
    if signs.has_no_think_time and ranked.weights.get(Resource.CLIENT, 0.0) < THRESHOLDS.round_trips_ratio:
        ranked.leave_out(Resource.CLIENT, "round trips, {} of the time: waking the other side up")
    locks = ranked.weights.get(Resource.LOCK, 0.0)
    if signs.has_chance_locks and locks >= THRESHOLDS.mentioned_ratio and ranked.move(Resource.LOCK, _HOLDER_RESOURCES):
        ranked.symptoms.append(
            f"row locks, {format_share(locks)} of the time: held by chance for as long as a transaction takes"
        )
    flushes = ranked.weights.get(Resource.WAL_FLUSH, 0.0)
    if signs.flushes_behind_writes is not None and flushes > 0.0:
        del ranked.weights[Resource.WAL_FLUSH]
        ranked.weights[Resource.DATA_WRITE] = ranked.weights.get(Resource.DATA_WRITE, 0.0) + flushes
        ranked.moved[Resource.DATA_WRITE] = Resource.WAL_FLUSH
        if ranked.order()[0] is Resource.DATA_WRITE:
            ranked.evidence.append(signs.flushes_behind_writes)
            ranked.symptoms.append(
                f"WAL flush, {format_share(flushes)} of the time: behind pages of data on the same disk"
            )
    return ranked


def _settle_pooler(ranked: Ranking, signs: Signs) -> None:
    """Move the queue for a pool's connections to its cause: a full thread of the pooler, or what its busy connections wait for.

    It is no limit of its own where more connections would only wait for the same: for CPUs that are short, or locks.
    """
    if signs.pooler is None:
        return
    pool = ranked.weights.get(Resource.POOL, 0.0)
    if signs.saturated_pooler is not None:
        ranked.weights[Resource.POOLER] = ranked.weights.get(Resource.POOLER, 0.0) + ranked.weights.pop(
            Resource.POOL, 0.0
        )
        ranked.moved[Resource.POOLER] = Resource.POOL
        if pool >= THRESHOLDS.mentioned_ratio:
            ranked.symptoms.append(
                f"waits for a server connection, {format_share(pool)} of the time: the pooler's thread serves them late"
            )
        ranked.is_pooler_first = ranked.weights[Resource.POOLER] >= THRESHOLDS.named_ratio
        return
    ranked.leave_out(Resource.POOLER, "the pooler's own work, {} of the time, with time left in its thread")
    held = {each: ranked.weights.get(each, 0.0) for each in (Resource.CPU, *WAITING)}
    busy = sum(held.values())
    # A connection in use whose backend is idle waits for its client, and another one would wait beside it.
    in_use = 0.0 if signs.pooler.active_servers is None else signs.pooler.active_servers.mean / signs.load.clients
    stuck = held[Resource.LOCK] + held[Resource.LIGHTWEIGHT_LOCK] + (held[Resource.CPU] if signs.is_cpu_short else 0.0)
    if not pool or not busy or stuck < THRESHOLDS.busy_connections_ratio * max(busy, in_use):
        return
    del ranked.weights[Resource.POOL]
    ranked.weights |= {each: own + pool * own / busy for each, own in held.items() if own > 0.0}
    if pool >= THRESHOLDS.mentioned_ratio:
        ranked.symptoms.append(
            f"waits for a server connection, {format_share(pool)} of the time: a queue for what the connections that there are"
            " wait for"
        )


def _settle_generator(ranked: Ranking, signs: Signs) -> None:
    if signs.saturated_generator is None:
        ranked.leave_out(Resource.LOAD_GENERATOR, "pgbench's own work, {} of the time, with time left in its threads")
        return
    # If the record does not separate pgbench from other clients' time, all of it counts as pgbench's.
    if Resource.LOAD_GENERATOR not in ranked.weights and Resource.CLIENT in ranked.weights:
        ranked.weights[Resource.LOAD_GENERATOR] = ranked.weights.pop(Resource.CLIENT)
        ranked.moved[Resource.LOAD_GENERATOR] = Resource.CLIENT
    ranked.is_generator_first = ranked.weights.get(Resource.LOAD_GENERATOR, 0.0) >= THRESHOLDS.named_ratio


def share_of(resource: Resource, ranked: Ranking, time: TransactionTime) -> TimeShare:
    """Return a resource's share with what was moved to it; its interval is scaled in proportion."""
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
