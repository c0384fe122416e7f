"""Diagnose what limits a load, from where its clients' time goes and from the machine's other signs.

The largest share of the clients' time is named, after symptoms have moved to their causes:

- If the load fills the CPUs, waits of every kind are attributed to the CPUs, as their probable cause.
- The queue for a pool's connections is moved to the pooler's thread if that is full, or to what the busy connections wait for if
  more of them would only wait for the same.
- Pgbench's own time is a limit only if its busiest thread has no time left; it then ranks before the CPUs, which it
  lacks, too.
- Flushes that may wait behind pages of data on the same disk are attributed to those, with the flushes as a rival.
- A wait for a row lock that is held by chance is attributed to what the lock's holder waits for.

A share shows where to look, not what removing it would gain: an experiment shows that. The answer is "unknown" if the
largest share is small, if it is time of unknown cause, or if full CPUs may be behind any wait. Of several trials, more
than half must agree. All thresholds are in `thresholds.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.bottleneck.evidence_rules import (
    UNSEEN_CPUS,
    describe_rival,
    find_contradiction,
    find_disabled_timing,
    find_standby_part,
    list_context,
    list_support,
)
from pgdyno.analyse.bottleneck.ranking import Ranking, rank_shares, share_of
from pgdyno.analyse.bottleneck.sign_reading import read_signs
from pgdyno.analyse.bottleneck.signs import Signs
from pgdyno.analyse.standbys import Stage
from pgdyno.analyse.thresholds import THRESHOLDS
from pgdyno.analyse.transaction_time.shares import (
    ONE_CPU,
    WRITING_WAL,
    Bottleneck,
    Certainty,
    Resource,
    TimeShare,
    TransactionTime,
)
from pgdyno.analyse.types import GeneratorFigures, TrialAnalysis
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.types import StudyRecord, why_missing
from pgdyno.units import format_share

_PARTS = {
    Stage.WRITE: "the way of WAL to",
    Stage.FLUSH: "the WAL flush of",
    Stage.REPLAY: "the replay of WAL by",
}
_OF_POOLER = {
    Resource.POOL: "the number of server connections of the pooler {name}",
    Resource.POOLER: "the one thread of the pooler {name}",
}


def judge_trial(record: StudyRecord, load: PlannedWorkload, trial: TrialAnalysis) -> Bottleneck:
    """Diagnose what limits a load in one trial."""
    return msgspec.structs.replace(_judge(record, load, trial), trial=trial.record.planned.number)


def _judge(record: StudyRecord, load: PlannedWorkload, trial: TrialAnalysis) -> Bottleneck:
    kept, signs = _judge_schedule(load, trial), read_signs(record, load, trial)
    if kept is not None:
        return kept
    if trial.time is None:
        return _judge_without_waits(trial, signs)
    if signs.ambiguous_cpu is not None:
        return _unknown_bottleneck(trial.time, signs, reason=signs.ambiguous_cpu)
    ranked = rank_shares(trial.time, signs)
    order = ranked.order()
    if signs.saturated_cpu is not None and order[:1] not in ([Resource.CPU], [Resource.POOLER]):
        return _attribute_to_cpu(trial.time, signs, signs.saturated_cpu)
    return _judge_order(order, ranked, trial.time, signs)


def _judge_order(order: Sequence[Resource], ranked: Ranking, time: TransactionTime, signs: Signs) -> Bottleneck:
    """Diagnose what limits a load from its shares, the largest first."""
    if order[:1] == [Resource.CLIENT] and (full := signs.full_generator) is not None and not signs.may_sleep:
        return _attribute_to_generator(time, signs, full)
    first = order[0] if order else Resource.UNKNOWN
    weight = ranked.weights.get(first, 0.0)
    is_unsplit = _is_unsplit_client(first, time)
    hidden = None if is_unsplit else _find_hidden_cpus(first, ranked, time, signs)
    if first is Resource.UNKNOWN or weight < THRESHOLDS.named_ratio or is_unsplit or hidden is not None:
        return _unknown_bottleneck(
            time,
            signs,
            reason=hidden or _explain_unknown(first, weight, time),
            beside=(*_describe_way(first, signs), *ranked.symptoms),
        )
    share = share_of(first, ranked, time)
    support = list_support(signs, first)
    clock = find_disabled_timing(signs, first)
    return Bottleneck(
        resource=first,
        certainty=Certainty.STRONG
        if support
        # Full CPUs may be behind any wait.
        and signs.usable_cpu_count is not None
        and find_contradiction(signs, first) is None
        and _is_clear(share, order[1:], ranked, time)
        else Certainty.LIKELY,
        evidence=(
            describe_share(share),
            *ranked.evidence,
            *support,
            *list_context(signs, first),
            *_describe_room(first, signs),
        ),
        part=_name_part(first, signs),
        symptoms=tuple(ranked.symptoms),
        rivals=_list_rivals(first, order[1:], ranked, signs),
        share=share,
        absent=(*signs.absent, *(() if clock is None else (clock,))),
    )


def _name_part(resource: Resource, signs: Signs) -> str:
    """Name what of a resource takes the time; empty where that is not told apart."""
    if resource is Resource.CPU and signs.idle_cpus is not None:
        return ONE_CPU
    if resource is Resource.WAL_FLUSH and not signs.waits_for_flushes:
        return WRITING_WAL
    if resource is Resource.LOAD_GENERATOR and (busiest := signs.busiest_generator) is not None:
        return f"pgbench on {busiest.host}"
    if resource in _OF_POOLER and signs.pooler is not None:
        return _OF_POOLER[resource].format(name=signs.pooler.name)
    found = find_standby_part(signs) if resource is Resource.STANDBY else None
    return "" if found is None else f"{_PARTS[found[1]]} {found[0]}"


def _judge_schedule(load: PlannedWorkload, trial: TrialAnalysis) -> Bottleneck | None:
    """Name the client as the bottleneck if a trial kept its schedule; None if it has none, fell behind or may have.

    A load that falls behind by one percent has a backlog that grows until it ends. So the schedule counts as kept if
    random arrivals explain the number of completed transactions, and few of them were late.
    """
    load_s, count = trial.record.load_s, trial.transactions_count
    if load.rate_tps is None or load_s is None or not count:
        return None
    # The load begins with the process, but nothing is scheduled while it connects. pgbench leaves that time out of its TPS.
    scheduled_s = count / trial.pgbench_tps if trial.pgbench_tps else load_s
    due_count = load.rate_tps * scheduled_s
    if count < due_count - THRESHOLDS.short_deviations * math.sqrt(due_count):
        return None
    missed_ratio = ((trial.skipped_count or 0) + (trial.late_count or 0)) / due_count
    lag_ratio = _find_lag_ratio(trial)
    if missed_ratio > THRESHOLDS.missed_ratio or (lag_ratio or 0.0) > THRESHOLDS.lag_ratio:
        return None
    kept = f"{count:,} transactions of {due_count:,.0f} scheduled, which chance explains"
    if lag_ratio is None:
        absent = ("how late transactions of the schedule began",)
        return Bottleneck(resource=Resource.CLIENT, certainty=Certainty.LIKELY, evidence=(kept,), absent=absent)
    late = f"they began {trial.schedule_lag_ms:.2g} ms late in the mean, {format_share(lag_ratio)} of their latency"
    return Bottleneck(resource=Resource.CLIENT, certainty=Certainty.STRONG, evidence=(kept, late))


def _find_lag_ratio(trial: TrialAnalysis) -> float | None:
    lag_ms, latency_ms = trial.schedule_lag_ms, trial.pgbench_latency_ms
    return None if lag_ms is None or not latency_ms else lag_ms / latency_ms


def _is_clear(share: TimeShare, rest: Sequence[Resource], ranked: Ranking, time: TransactionTime) -> bool:
    """Return whether a share is large beyond chance and larger than any other; a share that was moved by a guess is not clear."""
    is_large = share.low_ratio is not None and share.low_ratio >= THRESHOLDS.named_ratio
    if not is_large or time.observed_count < THRESHOLDS.min_samples_count or ranked.aside >= share.ratio:
        return False
    if ranked.moved.get(share.resource) is Resource.WAL_FLUSH:
        return False
    rivals = [share_of(each, ranked, time) for each in rest]
    return all(
        rival.ratio < THRESHOLDS.rival_ratio * share.ratio
        and (share.low_ratio or 0.0) > (rival.ratio if rival.high_ratio is None else rival.high_ratio)
        for rival in rivals
    )


def _list_rivals(
    first: Resource, rest: Sequence[Resource], ranked: Ranking, signs: Signs
) -> tuple[tuple[Resource, str], ...]:
    rivals = [
        (each, describe_rival(signs, each, ranked.weights[each]))
        for each in rest
        if each is not Resource.UNKNOWN and ranked.weights[each] >= THRESHOLDS.mentioned_ratio
    ]
    if ranked.moved.get(first) is Resource.WAL_FLUSH:
        use = signs.flush_use_ratio
        card = (
            "a disk card would tell"
            if use is None
            else f"they are {format_share(use)} of what the disk allows, by its card"
        )
        rivals.insert(
            0, (Resource.WAL_FLUSH, f"nothing speaks against it if flushes take as long with no page written: {card}")
        )
    if signs.usable_cpu_count is None and Resource.CPU not in {first, *(each for each, _ in rivals)}:
        rivals.append((Resource.CPU, UNSEEN_CPUS))
    return tuple(rivals)


def _describe_room(resource: Resource, signs: Signs) -> Iterator[str]:
    """Say what load hosts can send, where they are not the limit and are far from it."""
    if resource is not Resource.LOAD_GENERATOR and signs.full_generator is None and signs.generator_room is not None:
        yield signs.generator_room


def _attribute_to_cpu(time: TransactionTime, signs: Signs, why: str) -> Bottleneck:
    """Attribute all waits in the server to full CPUs; a client with think time would leave the CPUs idle."""
    seen = time.find(Resource.CPU)
    full = "" if signs.saturated_generator is None else signs.saturated_generator
    return Bottleneck(
        resource=Resource.CPU,
        certainty=Certainty.LIKELY,
        evidence=(
            "none of the clients' time was observed on them" if seen is None else describe_share(seen),
            f"{why}: the rest of that time is attributed to them, too",
            *list_context(signs, Resource.CPU),
        ),
        symptoms=tuple(
            f"{share.resource.value}, {format_share(share.ratio)} of the time: a queue for the CPUs, which are full"
            for share in time.shares
            if share.resource not in {Resource.CPU, Resource.UNKNOWN} and share.ratio >= THRESHOLDS.mentioned_ratio
        ),
        rivals=((Resource.LOAD_GENERATOR, f"nothing speaks against it: {full}"),) if full else (),
        share=seen,
        absent=tuple(signs.absent),
    )


def _attribute_to_generator(time: TransactionTime, signs: Signs, full: GeneratorFigures) -> Bottleneck:
    """Attribute the wait for clients to a load host that sends nearly all that it can: pgbench gets no more CPU there."""
    seen = time.find(Resource.CLIENT)
    return Bottleneck(
        resource=Resource.LOAD_GENERATOR,
        certainty=Certainty.LIKELY,
        part=f"pgbench on {full.host}",
        evidence=(
            "" if seen is None else describe_share(seen),
            signs.generator_use or "",
        ),
        share=seen,
        rivals=((Resource.NETWORK, "nothing speaks against it: empty statements take the same way"),),
        absent=tuple(signs.absent),
    )


def _describe_way(resource: Resource, signs: Signs) -> Iterator[str]:
    if resource is Resource.CLIENT and signs.round_trip_ms is not None:
        yield f"before the load, an empty statement took {signs.round_trip_ms:.3g} ms there and back"


def _is_unsplit_client(resource: Resource, time: TransactionTime) -> bool:
    """Return whether the resource is client time of which the record does not say whether pgbench had a CPU."""
    return resource is Resource.CLIENT and Resource.LOAD_GENERATOR.value in time.absent


def _find_hidden_cpus(first: Resource, ranked: Ranking, time: TransactionTime, signs: Signs) -> str | None:
    """Say why full CPUs may be what limits the load, where nobody saw the server's machine; None if other time is larger.

    A backend that is ready and gets no CPU looks as if it waited for its client until it has run; how much of that time
    its client was in pgbench's threads is estimated only.
    """
    if signs.usable_cpu_count is not None or first in {Resource.CPU, Resource.LOAD_GENERATOR, Resource.NETWORK}:
        return None
    if first is Resource.CLIENT and signs.may_sleep:
        return None
    unclear = (Resource.CPU, Resource.CLIENT, Resource.LOAD_GENERATOR)
    hidden = sum(share.ratio for share in time.shares if share.resource in unclear)
    # Without what was moved to it from locks: those are held as long as full CPUs make it, too.
    own = (first, ranked.moved.get(first, first))
    if hidden < max((share.ratio for share in time.shares if share.resource in own), default=0.0):
        return None
    return (
        f"in {format_share(hidden)} of the clients' time their backends ran, waited for a CPU or waited for pgbench:"
        " the server's CPUs were not observed, so these cannot be told apart"
    )


def _explain_unknown(first: Resource, weight: float, time: TransactionTime) -> str:
    if not weight:
        return "none of the clients' time is where the server could be limited"
    if first is Resource.UNKNOWN:
        return f"{format_share(weight)} of the clients' time is in waits of unknown cause"
    reason = f"the largest share of the clients' time is {first.value}, {format_share(weight)}"
    return f"{reason}: {time.absent[Resource.LOAD_GENERATOR.value]}" if _is_unsplit_client(first, time) else reason


def _unknown_bottleneck(time: TransactionTime, signs: Signs, *, reason: str, beside: Sequence[str] = ()) -> Bottleneck:
    return Bottleneck(
        resource=Resource.UNKNOWN,
        certainty=Certainty.UNKNOWN,
        evidence=(reason, *beside),
        rivals=tuple(
            (share.resource, describe_rival(signs, share.resource, share.ratio))
            for share in time.shares
            if share.resource is not Resource.UNKNOWN and share.ratio >= THRESHOLDS.mentioned_ratio
        ),
        absent=tuple(signs.absent),
    )


def _judge_without_waits(trial: TrialAnalysis, signs: Signs) -> Bottleneck:
    """Diagnose a trial without sampled waits: full CPUs and a saturated pgbench are still visible."""
    absent = (why_missing(trial.gaps, "server sampler") or "too few looks at the server's waits", *signs.absent)
    for resource, why in ((Resource.LOAD_GENERATOR, signs.saturated_generator), (Resource.CPU, signs.saturated_cpu)):
        if why is not None:
            return Bottleneck(resource=resource, certainty=Certainty.LIKELY, evidence=(why,), absent=absent)
    evidence = () if signs.ambiguous_cpu is None else (signs.ambiguous_cpu,)
    return Bottleneck(resource=Resource.UNKNOWN, certainty=Certainty.UNKNOWN, evidence=evidence, absent=absent)


def describe_share(share: TimeShare) -> str:
    """Describe a share with its interval: `77 % (70 to 83 %) of the clients' time, 23.5 ms of a transaction: …`."""
    interval = ""
    if share.low_ratio is not None and share.high_ratio is not None:
        interval = f" ({share.low_ratio * 100:.0f} to {format_share(share.high_ratio)})"
    return (
        f"{format_share(share.ratio)}{interval} of the clients' time, {share.ms:.3g} ms of a transaction: {share.how}"
    )
