"""Diagnose what limits a load by all of its trials, from what each trial says alone.

What most of the trials name is the limit; the interval of its share is over trials.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from pgdyno.analyse.bottleneck.diagnosis import describe_share, judge_trial
from pgdyno.analyse.estimate import estimate_mean_of_trials
from pgdyno.analyse.thresholds import THRESHOLDS
from pgdyno.analyse.transaction_time.shares import Bottleneck, Certainty, Resource, TimeShare
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.types import StudyRecord, TrialStatus
from pgdyno.units import count_things


def judge_workload(record: StudyRecord, load: PlannedWorkload, trials: Sequence[TrialAnalysis]) -> Bottleneck | None:
    """Diagnose what limits a load in more than half of its finished trials; None if no trial ran it alone.

    Args:
        record: The study's record.
        load: The load of the trials.
        trials: All trials of that load and variant.
    """
    finished = [
        trial
        for trial in trials
        # If variants alternate within a trial, a wait cannot be assigned to one of them.
        if trial.record.status is TrialStatus.FINISHED
        and trial.tps is not None
        and len(trial.record.planned.variants) <= 1
    ]
    # Of live pairs nothing was sampled.
    finished = [trial for trial in finished if trial.record.planned.is_observed] or finished
    judged = [judge_trial(record, load, trial) for trial in finished]
    if not judged:
        return None
    counts = Counter(each.resource for each in judged)
    resource, count = counts.most_common(1)[0]
    if 2 * count <= len(judged):
        return _report_disagreement(judged, counts)
    same = sorted((each for each in judged if each.resource is resource), key=lambda each: _ratio(each.share))
    middle = same[len(same) // 2]
    if count == len(judged):
        return _estimate_share(middle, judged, finished)
    others = ", ".join(f"{other.value} in {n}" for other, n in counts.items() if other is not resource)
    # The interval over only the trials that agree would be too narrow.
    said = _with_interval(middle, None, None)
    return msgspec.structs.replace(
        said,
        certainty=Certainty.UNKNOWN if resource is Resource.UNKNOWN else Certainty.LIKELY,
        evidence=(*said.evidence, f"{count} of {len(judged)} trials say so; {others}"),
    )


def _report_disagreement(judged: Sequence[Bottleneck], counts: Counter[Resource]) -> Bottleneck:
    """Return an unknown bottleneck for trials of which no half names one resource."""
    said = ", ".join(f"{resource.value} in {count}" for resource, count in counts.most_common())
    return Bottleneck(
        resource=Resource.UNKNOWN,
        certainty=Certainty.UNKNOWN,
        evidence=(f"the {len(judged)} trials do not agree: {said}",),
        rivals=tuple(
            (resource, f"named in {count} of {len(judged)} trials only")
            for resource, count in counts.most_common()
            if resource is not Resource.UNKNOWN
        ),
        absent=judged[0].absent,
    )


def _estimate_share(middle: Bottleneck, judged: Sequence[Bottleneck], trials: Sequence[TrialAnalysis]) -> Bottleneck:
    """Give the middle one of several agreeing trials the interval over all, which includes variation between trials."""
    seen = [(each.share.ratio, trial) for each, trial in zip(judged, trials, strict=True) if each.share is not None]
    ratios, rounds = [ratio for ratio, _ in seen], [trial.record.planned.round for _, trial in seen]
    mean = estimate_mean_of_trials(ratios, unit="ratio", rounds=rounds)
    if middle.share is None or mean.n < 2:
        return middle
    low, high = max(0.0, mean.low or 0.0), min(1.0, mean.high or 1.0)
    over = count_things(mean.n, "trial" if mean.n == len(ratios) else "round")
    said = _with_interval(middle, min(low, middle.share.ratio), max(high, middle.share.ratio), over=over)
    is_sure = low >= THRESHOLDS.named_ratio
    return said if is_sure or said.certainty is not Certainty.STRONG else _weaken(said)


def _weaken(found: Bottleneck) -> Bottleneck:
    return msgspec.structs.replace(found, certainty=Certainty.LIKELY)


def _with_interval(found: Bottleneck, low: float | None, high: float | None, *, over: str = "") -> Bottleneck:
    """Replace the interval of the share, in its evidence, too; `over` says what the interval is over, such as `3 rounds`."""
    if found.share is None:
        return found
    how = f"{found.share.how}, the interval over {over}" if over else found.share.how
    share = msgspec.structs.replace(found.share, low_ratio=low, high_ratio=high, how=how)
    return msgspec.structs.replace(found, share=share, evidence=(describe_share(share), *found.evidence[1:]))


def _ratio(share: TimeShare | None) -> float:
    return 0.0 if share is None else share.ratio
