"""What limits a load, from where its clients' time goes and what the machine showed beside it.

The largest share of the clients' time is named, after symptoms have gone to their causes:

- On full CPUs that nobody counted for the backends one by one, waits of every kind are queues for a CPU.
- pgbench's own time is no limit before its busiest thread has none left; then the CPUs go behind it, which it lacks, too.
- Round trips of clients that cannot think are the waking of processes, unless they are most of the time.
- Flushes that wait behind pages of data wait for those.
- Who waits for a row that others hold by chance waits for what these wait for.

A share says what to look at, not what it would gain: an experiment does. Where the largest share is small, or is time of
which nobody saw what it was, the answer is that it is not known. All numbers that verdicts depend on are in `bottleneck_thresholds`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from pgdyno.analyse.bottleneck_signs import Signs, percent, read_signs
from pgdyno.analyse.bottleneck_thresholds import THRESHOLDS
from pgdyno.analyse.time_share import Bottleneck, Certainty, Resource, TimeShare, TransactionTime
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.types import StudyRecord, TrialStatus

# Who holds a row spends its time on these.
_OF_HOLDERS = (Resource.CPU, Resource.WAL_FLUSH, Resource.WAL_LOCK, Resource.DATA_READ, Resource.DATA_WRITE)


class _Ranked(msgspec.Struct):
    """Shares of the clients' time after symptoms have gone to their causes, and what was said on the way."""

    weights: dict[Resource, float]
    evidence: list[str]
    symptoms: list[str]
    is_generator_first: bool = False

    def move(self, source: Resource, targets: Iterable[Resource]) -> None:
        """Give a share to others, in proportion to theirs."""
        weight = self.weights.pop(source, 0.0)
        total = sum(self.weights.get(target, 0.0) for target in targets)
        for target in targets:
            own = self.weights.get(target, 0.0)
            if own:
                self.weights[target] = own + weight * own / total

    def order(self) -> list[Resource]:
        """Resources, largest first, but for a full pgbench, which shows nothing of how much the CPUs could do."""
        order = sorted(self.weights, key=lambda resource: -self.weights[resource])
        if self.is_generator_first and order[0] is Resource.CPU:
            order.remove(Resource.LOAD_GENERATOR)
            order.insert(0, Resource.LOAD_GENERATOR)
        return order


def judge_workload(record: StudyRecord, load: PlannedWorkload, trials: Sequence[TrialAnalysis]) -> Bottleneck | None:
    """What limits a load over its finished trials, in most of them; None without one.

    Args:
        record: Of the study.
        load: Of the trials.
        trials: All of that load and variant.
    """
    judged = [
        judge_trial(record, load, trial)
        for trial in trials
        if trial.record.status is TrialStatus.FINISHED and trial.tps is not None
    ]
    if not judged:
        return None
    counts = Counter(each.resource for each in judged)
    resource, count = counts.most_common(1)[0]
    same = sorted((each for each in judged if each.resource is resource), key=lambda each: _ratio(each.share))
    middle = same[len(same) // 2]
    if count == len(judged):
        return middle
    others = ", ".join(f"{other.value} in {n}" for other, n in counts.items() if other is not resource)
    return msgspec.structs.replace(
        middle,
        certainty=Certainty.UNKNOWN if resource is Resource.UNKNOWN else Certainty.LIKELY,
        evidence=(*middle.evidence, f"{count} of {len(judged)} trials say so; {others}"),
    )


def judge_trial(record: StudyRecord, load: PlannedWorkload, trial: TrialAnalysis) -> Bottleneck:
    """What limits a load in one trial."""
    signs = read_signs(record, load, trial)
    if signs.kept_schedule is not None:
        evidence = (signs.kept_schedule,)
        return Bottleneck(resource=Resource.CLIENT, certainty=Certainty.STRONG, evidence=evidence)
    if trial.time is None:
        return _judge_unseen(trial, signs)
    ranked = _rank(trial.time, signs)
    order = [each for each in ranked.order() if ranked.weights[each] > 0.0]
    if not order:
        return _unknown(trial.time, trial.time.shares[0].resource, trial.time.shares[0].ratio, signs)
    first, *rest = order
    weight = ranked.weights[first]
    if first is Resource.UNKNOWN or weight < THRESHOLDS.named_ratio or _is_unseen_client(first, trial.time):
        return _unknown(trial.time, first, weight, signs)
    share = _share(first, weight, trial.time)
    sources = signs.support(first)
    is_clear = not rest or ranked.weights[rest[0]] < THRESHOLDS.rival_ratio * weight
    return Bottleneck(
        resource=first,
        certainty=Certainty.STRONG if sources and is_clear and signs.contradict(first) is None else Certainty.LIKELY,
        evidence=(_say_share(share), *ranked.evidence, *sources),
        symptoms=tuple(ranked.symptoms),
        rivals=tuple(
            (each, signs.against(each, ranked.weights[each]))
            for each in rest
            if each is not Resource.UNKNOWN and ranked.weights[each] >= THRESHOLDS.mentioned_ratio
        ),
        share=share,
        absent=tuple(signs.absent),
    )


def _rank(time: TransactionTime, signs: Signs) -> _Ranked:
    ranked = _Ranked(weights={share.resource: share.ratio for share in time.shares}, evidence=[], symptoms=[])
    if signs.full_cpu is not None:
        _blame_cpu(ranked, signs.full_cpu)
        return ranked
    _settle_generator(ranked, signs)
    if signs.cannot_think and ranked.weights.get(Resource.CLIENT, 0.0) < THRESHOLDS.round_trips_ratio:
        weight = ranked.weights.pop(Resource.CLIENT, 0.0)
        if weight >= THRESHOLDS.mentioned_ratio:
            ranked.symptoms.append(f"round trips, {percent(weight)} of the time: waking the other side up")
    if signs.has_chance_locks and ranked.weights.get(Resource.LOCK, 0.0) >= THRESHOLDS.mentioned_ratio:
        share = percent(ranked.weights[Resource.LOCK])
        ranked.symptoms.append(f"row locks, {share} of the time: held by chance for as long as a transaction takes")
        ranked.move(Resource.LOCK, _OF_HOLDERS)
    if signs.flushes_behind_writes is not None and ranked.weights.get(Resource.WAL_FLUSH, 0.0) > 0.0:
        flushes = ranked.weights.pop(Resource.WAL_FLUSH)
        ranked.weights[Resource.DATA_WRITE] = ranked.weights.get(Resource.DATA_WRITE, 0.0) + flushes
        if ranked.order()[0] is Resource.DATA_WRITE:
            ranked.evidence.append(signs.flushes_behind_writes)
            ranked.symptoms.append(f"WAL flush, {percent(flushes)} of the time: behind pages of data on the same disk")
    return ranked


def _blame_cpu(ranked: _Ranked, why: str) -> None:
    """On full CPUs all that waits in the server waits for those who run; a thinking client would leave them idle."""
    ranked.evidence.append(why)
    for resource in [each for each in ranked.order() if each is not Resource.CPU]:
        weight = ranked.weights.pop(resource)
        ranked.weights[Resource.CPU] = ranked.weights.get(Resource.CPU, 0.0) + weight
        if weight >= THRESHOLDS.mentioned_ratio:
            ranked.symptoms.append(
                f"{resource.value}, {percent(weight)} of the time: a queue for the CPUs, which are full"
            )


def _settle_generator(ranked: _Ranked, signs: Signs) -> None:
    if signs.is_generator_full:
        # Of a record that does not tell pgbench from other clients' time, all of it is pgbench's.
        if Resource.LOAD_GENERATOR not in ranked.weights and Resource.CLIENT in ranked.weights:
            ranked.weights[Resource.LOAD_GENERATOR] = ranked.weights.pop(Resource.CLIENT)
        ranked.is_generator_first = ranked.weights.get(Resource.LOAD_GENERATOR, 0.0) >= THRESHOLDS.named_ratio
        return
    weight = ranked.weights.pop(Resource.LOAD_GENERATOR, 0.0)
    if weight >= THRESHOLDS.mentioned_ratio:
        ranked.symptoms.append(f"pgbench's own work, {percent(weight)} of the time, with time left in its threads")


def _is_unseen_client(resource: Resource, time: TransactionTime) -> bool:
    """Whether it is the clients' time, of which a record does not say whether pgbench had a CPU."""
    return resource is Resource.CLIENT and Resource.LOAD_GENERATOR.value in time.absent


def _unknown(time: TransactionTime, first: Resource, weight: float, signs: Signs) -> Bottleneck:
    reason = f"the largest share of the clients' time is {first.value}, {percent(weight)}"
    if first is Resource.UNKNOWN:
        reason = f"{percent(weight)} of the clients' time is in waits that nobody has told"
    elif _is_unseen_client(first, time):
        reason += f": {time.absent[Resource.LOAD_GENERATOR.value]}"
    return Bottleneck(
        resource=Resource.UNKNOWN,
        certainty=Certainty.UNKNOWN,
        evidence=(reason,),
        rivals=tuple(
            (share.resource, signs.against(share.resource, share.ratio))
            for share in time.shares
            if share.resource is not Resource.UNKNOWN and share.ratio >= THRESHOLDS.mentioned_ratio
        ),
        absent=tuple(signs.absent),
    )


def _judge_unseen(trial: TrialAnalysis, signs: Signs) -> Bottleneck:
    """Without a look at waits, full CPUs and a full pgbench are still seen."""
    gap = next(
        (gap.reason for gap in trial.gaps if gap.source == "server sampler"), "too few looks at the server's waits"
    )
    absent = (gap, *signs.absent)
    for resource, why in ((Resource.LOAD_GENERATOR, signs.full_generator), (Resource.CPU, signs.full_cpu)):
        if why is not None:
            return Bottleneck(resource=resource, certainty=Certainty.LIKELY, evidence=(why,), absent=absent)
    return Bottleneck(resource=Resource.UNKNOWN, certainty=Certainty.UNKNOWN, evidence=(), absent=absent)


def _share(resource: Resource, weight: float, time: TransactionTime) -> TimeShare:
    """The share with what was moved to it; its interval is wider by as much."""
    own = time.find(resource) or max(time.shares, key=lambda share: share.ratio)
    factor = weight / own.ratio
    return TimeShare(
        resource=resource,
        ms=weight * time.transaction_ms,
        ratio=weight,
        low_ratio=None if own.low_ratio is None else min(own.low_ratio, own.low_ratio * factor),
        high_ratio=None if own.high_ratio is None else min(1.0, own.high_ratio * factor),
        how=own.how,
    )


def _say_share(share: TimeShare) -> str:
    interval = ""
    if share.low_ratio is not None and share.high_ratio is not None:
        interval = f" ({share.low_ratio * 100:.0f} to {percent(share.high_ratio)})"
    return f"{percent(share.ratio)}{interval} of the clients' time, {share.ms:.3g} ms of a transaction: {share.how}"


def _ratio(share: TimeShare | None) -> float:
    return 0.0 if share is None else share.ratio
