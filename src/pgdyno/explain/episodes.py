"""Explain what happened within trials: what a cliff, a stall, a cycle or a decline cost, what may have caused it, what to do.

Each episode is reported once. If the trial's average runs across it, it weakens the figures and is a doubt; if the
average lies wholly after it, it is an explanation. A cause is named only if something that was sampled fits in time and
in size; other causes that fit are named beside it, and without any the cause is unknown. Of an episode that many trials
of a load share, the worst is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pgdyno.analyse.episodes.types import NOTHING_RATIO, WORSE, Cause, Episode, EpisodeCauses, EpisodeKind, Suspect
from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.explain.commands import MeasuredLoad, find_variant, write_comparison, write_disk
from pgdyno.explain.finding import Finding, Rival, Severity
from pgdyno.record.types import StudyRecord
from pgdyno.units import with_capital

RULE = "over-time"
"""Name of the rule."""

_SEVERE_RATIO = 0.3
_SLIGHT_RATIO = 0.1
# Distance between sizes up to which drops are about as deep: about a tenth of the level that is left.
_ALIKE = 0.1
# A run should be long enough for the time after a cliff to dominate the average.
_PAST_FACTOR = 4
_PAST_MIN_S = 60.0
_WHOLE_CYCLES = 10
_MAX_RIVALS = 4
_ROUND_S = 5
_PLAIN_LEVEL = 100
_SHOWS = {
    Cause.CHECKPOINT: (ChartKind.DISK_LATENCY, ChartKind.BUFFER_WRITES),
    Cause.FULL_PAGE_IMAGES: (ChartKind.FULL_PAGE_IMAGES, ChartKind.WAL),
    Cause.DIRTY_LIMIT: (ChartKind.DIRTY_MEMORY,),
    Cause.WRITEBACK: (ChartKind.DIRTY_MEMORY, ChartKind.DISK_THROUGHPUT),
    Cause.CREDITS: (ChartKind.DISK_IOPS, ChartKind.DISK_THROUGHPUT),
    Cause.DEVICE: (ChartKind.DISK_LATENCY,),
    Cause.AUTOVACUUM: (ChartKind.DISK_IOPS, ChartKind.CPU),
    Cause.STEAL: (ChartKind.CPU,),
    Cause.QUOTA: (ChartKind.CPU_QUOTA,),
    Cause.OTHERS: (ChartKind.CPU,),
    Cause.MEMORY: (ChartKind.PRESSURE,),
    Cause.HALT: (ChartKind.CPU,),
}
_FROM_OUTSIDE = frozenset({Cause.STEAL, Cause.QUOTA, Cause.OTHERS, Cause.HALT})
_CONFIRM = {
    Cause.DIRTY_LIMIT: "the same load with other vm.dirty_bytes: the time to the cliff moves with it",
    Cause.WRITEBACK: "the same load with other vm.dirty_background_bytes: the time to it moves with it",
    Cause.CREDITS: "the same load at once again: with credits used up, the lower level is there from the start",
    Cause.STEAL: "the same load on a dedicated host",
    Cause.QUOTA: "the same load with a larger CPU quota",
    Cause.OTHERS: "the same load with the other programs stopped",
    Cause.MEMORY: "the same load with smaller shared_buffers, or fewer clients",
    Cause.HALT: "the same load again: a halt from outside does not come again at the same moment",
}
# A setting, two values of it, and what to heed.
_COMPARED = {
    Cause.CHECKPOINT: ("max_wal_size", ("1GB", "16GB"), ", with trials of several checkpoints"),
    Cause.FULL_PAGE_IMAGES: ("wal_compression", ("off", "on"), ""),
    Cause.AUTOVACUUM: ("autovacuum", ("on", "off"), ", as a what-if and never to stay so"),
}
_CONFIRM_UNKNOWN = (
    "the same load again, with 3 rounds: what comes at the same moment is the load's own, else the machine's"
)


def find_episodes_in_average(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield findings on episodes that a trial's average runs across."""
    yield from (_make_finding(record, one) for one in _list_worst(analysis) if one.is_in_average)


def find_episodes_before_average(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield findings on episodes that lie wholly before the averaged part."""
    yield from (_make_finding(record, one) for one in _list_worst(analysis) if not one.is_in_average)


class _TrialEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """An episode in its trial, and the other trials that it represents."""

    episode: Episode
    causes: EpisodeCauses | None
    trial: TrialAnalysis
    workload: WorkloadAnalysis
    together: tuple[Episode, ...] = ()
    """All episodes of this kind in its trial."""
    alike: tuple[int, ...] = ()
    """Numbers of the workload's other trials with an episode of this kind."""

    @property
    def is_in_average(self) -> bool:
        """True if the trial's TPS is a mean over both sides of the episode."""
        one, begin_s = self.episode, self.trial.steady_from_s
        if begin_s is None:
            return True
        end_s = one.until_s if one.kind is EpisodeKind.WARM_UP else one.from_s + (one.settled_s or 0.0)
        return one.kind in {EpisodeKind.SAWTOOTH, EpisodeKind.DECLINE} or end_s is None or end_s > begin_s + 1.0

    @property
    def size_ratio(self) -> float:
        """Distance between its levels, the same for a drop and for the way back."""
        return abs(math.log(max(1 + self.episode.change_ratio, 0.01)))

    @property
    def length_s(self) -> float:
        """How long it lasted; infinite if until the end."""
        return math.inf if self.episode.until_s is None else _length_s(self.episode)

    @property
    def lost_ratio(self) -> float:
        """Share of the trial's throughput that the stalls of its kind cost; 0 for others."""
        load_s = self.trial.record.load_s
        if self.episode.kind is not EpisodeKind.STALL or not load_s:
            return 0.0
        return sum(-one.change_ratio * _length_s(one) for one in self.together) / load_s


def _list_worst(analysis: StudyAnalysis) -> Iterator[_TrialEpisode]:
    """Yield the worst episode of each kind and metric of a workload, which represents the others."""
    for workload in analysis.workloads:
        kinds: dict[tuple[str, EpisodeKind, bool], list[_TrialEpisode]] = {}
        for trial in workload.trials:
            for one in _list_reported(trial, workload):
                kinds.setdefault((one.episode.metric, one.episode.kind, one.is_in_average), []).append(one)
        for seen in kinds.values():
            worst = _find_worst(_join_trials(seen))
            numbers = {one.trial.record.planned.number for one in seen} - {worst.trial.record.planned.number}
            yield msgspec.structs.replace(worst, alike=tuple(sorted(numbers)))


def _join_trials(seen: Sequence[_TrialEpisode]) -> list[_TrialEpisode]:
    of_trial: dict[int, list[Episode]] = {}
    for one in seen:
        of_trial.setdefault(one.trial.record.planned.number, []).append(one.episode)
    return [msgspec.structs.replace(one, together=tuple(of_trial[one.trial.record.planned.number])) for one in seen]


def _find_worst(seen: Sequence[_TrialEpisode]) -> _TrialEpisode:
    """Return the longest stall of the trial that lost most by them; of others the longest of those about as deep as the deepest."""
    worst = max(seen, key=lambda one: (one.lost_ratio, one.size_ratio))
    if worst.episode.kind is EpisodeKind.STALL:
        alike = [one for one in seen if one.trial is worst.trial]
    else:
        # One that is judged more mildly must not stand for it.
        alike = [one for one in seen if worst.size_ratio - one.size_ratio <= _ALIKE and _judge(one) is _judge(worst)]
    return max(alike, key=lambda one: (one.length_s, one.size_ratio))


def _list_reported(trial: TrialAnalysis, workload: WorkloadAnalysis) -> Iterator[_TrialEpisode]:
    """Yield a trial's episodes except those that another of them implies."""
    drops = [one for one in trial.episodes if one.metric == "tps" and one.kind in WORSE]
    for one in trial.episodes:
        is_way_back = one.kind is EpisodeKind.RECOVERY and any(drop.from_s < one.from_s for drop in drops)
        # On a drop, latency says no more than throughput: in a closed loop, one is the inverse of the other.
        is_echo = one.metric != "tps" and bool(drops)
        if not is_way_back and not is_echo:
            causes = next((found for found in trial.episode_causes if found.episode == one), None)
            yield _TrialEpisode(episode=one, causes=causes, trial=trial, workload=workload)


def _make_finding(record: StudyRecord, seen: _TrialEpisode) -> Finding:
    one, number = seen.episode, seen.trial.record.planned.number
    named = () if seen.causes is None else seen.causes.named
    charts = (ChartKind.TPS if one.metric == "tps" else ChartKind.LATENCY, *_list_charts(named))
    return Finding(
        rule=RULE,
        severity=_judge(seen),
        claim=f"{_CLAIMS[one.kind](one)}{_describe_others(seen)}{_describe_cause(seen)}.",
        evidence="; ".join(_list_evidence(seen, named)),
        why=_WHY[one.kind],
        advice=_advise(one, named),
        workload=seen.workload.name,
        rivals=_list_rivals(seen.causes, named),
        confirm="" if one.kind not in WORSE else _confirm(record, seen, named),
        shows=tuple(kind for kind in dict.fromkeys(charts) if kind in seen.trial.charts),
        trial=number,
    )


def _confirm(record: StudyRecord, seen: _TrialEpisode, named: Sequence[Suspect]) -> str:
    """Say what would settle the cause: a command about the same load, where one can."""
    if not named:
        return _CONFIRM_UNKNOWN
    cause, variant = named[0].cause, find_variant(record, seen.trial.record.planned.variants)
    if cause is Cause.DEVICE:
        said = write_disk(record, variant, is_of_wal=named[0].is_of_wal)
        measured = f"the disk of {'pg_wal' if named[0].is_of_wal else 'the data'} measured"
        return f"{f'`{said}`' if said else measured} twice, now and at another hour"
    if cause not in _COMPARED:
        return _CONFIRM[cause]
    setting, (one, other), heed = _COMPARED[cause]
    asked = MeasuredLoad(record=record, load=seen.workload.load, variant=variant)
    said = write_comparison(asked, setting, (one, other))
    return f"{f'`{said}`' if said else f'the same load with {setting} = {one} and {other}'}{heed}"


def _judge(seen: _TrialEpisode) -> Severity:
    one = seen.episode
    drop = -one.change_ratio if one.metric == "tps" else one.change_ratio / (1 + one.change_ratio)
    if one.kind in {EpisodeKind.WARM_UP, EpisodeKind.RECOVERY}:
        return Severity.WARNING if seen.is_in_average and one.change_ratio >= _SLIGHT_RATIO else Severity.NOTE
    is_severe = drop >= _SEVERE_RATIO if one.kind is EpisodeKind.CLIFF else seen.lost_ratio >= _SLIGHT_RATIO
    if one.metric == "tps" and seen.is_in_average and is_severe:
        return Severity.CRITICAL
    return Severity.WARNING if drop >= _SLIGHT_RATIO else Severity.NOTE


def _describe_others(seen: _TrialEpisode) -> str:
    """Say that the trial has more of its kind; a share of the time is told in all."""
    count = len(seen.together)
    if count > 1 and seen.episode.kind is EpisodeKind.STALL:
        return f", the longest of {count} stalls, {_seconds(sum(map(_length_s, seen.together)))} in all"
    if count > 1 and seen.episode.kind is EpisodeKind.CLIFF:
        return f", one of {count} such changes"
    return ""


def _describe_cliff(one: Episode) -> str:
    back = "and stayed there" if one.until_s is None else f"for {_seconds(one.until_s - one.from_s)}"
    return f"{_subject(one)} {_moved(one)} by {_percent(one.change_ratio)} after {_seconds(one.from_s)} {back}"


def _describe_stall(one: Episode) -> str:
    length_s = _length_s(one)
    is_slow = one.recovery_s is not None and one.recovery_s > length_s + 1.0
    back = f", back at its level after {_seconds(one.recovery_s or 0.0)}" if is_slow else ""
    fell = f"Throughput fell to {_level(one.after)} TPS ({one.change_ratio * 100:+.0f} %)"
    what = "Next to nothing was done" if one.after <= NOTHING_RATIO * one.before else fell
    return f"{what} for {_seconds(length_s)} from {_seconds(one.from_s)} on{back}"


def _describe_sawtooth(one: Episode) -> str:
    low = "" if one.recovery_s is None else f" for {_seconds(one.recovery_s)}"
    return f"{_subject(one)} {_moved(one)} by {_percent(one.change_ratio)}{low} every {_seconds(one.period_s or 0.0)}"


def _describe_decline(one: Episode) -> str:
    return f"{_subject(one)} {_moved(one)} by {_percent(one.change_ratio)} little by little, to the end"


def _describe_warm_up(one: Episode) -> str:
    end = "it was still rising at the end" if one.until_s is None else f"it took {_seconds(one.until_s)} to warm up"
    return f"{_subject(one)} began {_percent(one.before / one.after - 1)} lower: {end}"


def _describe_recovery(one: Episode) -> str:
    return f"{_subject(one)} rose by {_percent(one.change_ratio)} after {_seconds(one.from_s)}: what came before was held back"


_CLAIMS = {
    EpisodeKind.CLIFF: _describe_cliff,
    EpisodeKind.STALL: _describe_stall,
    EpisodeKind.SAWTOOTH: _describe_sawtooth,
    EpisodeKind.DECLINE: _describe_decline,
    EpisodeKind.WARM_UP: _describe_warm_up,
    EpisodeKind.RECOVERY: _describe_recovery,
}
_WHY = {
    EpisodeKind.CLIFF: "An average across it describes neither level; a run that ends before it shows a speed that does not last.",
    EpisodeKind.STALL: "Clients wait for most of its length or all of it, which averages and all but the last percentiles hide.",
    EpisodeKind.SAWTOOTH: "An average over parts of cycles depends on where it begins and ends.",
    EpisodeKind.DECLINE: "The longer the run, the lower its average: it has none of its own yet.",
    EpisodeKind.WARM_UP: "Averages with it are too low, and differ with the length of the run.",
    EpisodeKind.RECOVERY: "An average across it describes neither level.",
}


def _describe_cause(seen: _TrialEpisode) -> str:
    if seen.episode.kind not in WORSE:
        return ""
    named = () if seen.causes is None else seen.causes.named
    if not named:
        return "; its cause is unknown"
    fits = " or ".join(one.cause.value for one in named)
    return f"; {fits} {'fits' if len(named) == 1 else 'fit'}"


def _list_evidence(seen: _TrialEpisode, named: Iterable[Suspect]) -> Iterator[str]:
    one, unit = seen.episode, "TPS" if seen.episode.metric == "tps" else "ms (p99)"
    interval = (
        ""
        if one.change_low_ratio is None or one.change_high_ratio is None
        else f" [{one.change_low_ratio * 100:+.0f}, {one.change_high_ratio * 100:+.0f}]"
    )
    change = f"({one.change_ratio * 100:+.0f} %{interval})"
    yield f"Trial {seen.trial.record.planned.number}: {_level(one.before)} to {_level(one.after)} {unit} {change}"
    if one.settled_s:
        yield f"the change took {_seconds(one.settled_s)}"
    if one.recovery_s is not None and one.kind is EpisodeKind.CLIFF:
        yield f"back at the level before after {_seconds(one.recovery_s)}"
    if one.metric == "tps" and seen.trial.tps is not None:
        across = "runs across it" if seen.is_in_average else "covers what came after"
        yield f"the trial's average of {_level(seen.trial.tps)} TPS {across}"
    yield from (suspect.text for suspect in named)
    if seen.causes is not None and not seen.causes.named:
        looked = ", ".join(suspect.cause.value for suspect in seen.causes.suspects)
        yield f"looked at, and not fitting: {looked}" if looked else "there was nothing to look at"
    if seen.causes is not None and seen.causes.absent:
        yield f"not looked at: {', '.join(seen.causes.absent)}"
    if seen.alike:
        yield f"likewise in {'trial' if len(seen.alike) == 1 else 'trials'} {', '.join(map(str, seen.alike))}"


def _list_rivals(causes: EpisodeCauses | None, named: tuple[Suspect, ...]) -> tuple[Rival, ...]:
    if causes is None:
        return ()
    as_well = (Rival(cause=one.cause.value, against=f"It fits as well. {with_capital(one.text)}") for one in named[1:])
    others = [one for one in causes.suspects if not one.fits][:_MAX_RIVALS]
    return (*as_well, *(Rival(cause=one.cause.value, against=with_capital(one.text)) for one in others))


def _advise(one: Episode, named: tuple[Suspect, ...]) -> str:
    """Advise how long a run must be for figures that last; episodes from outside the server call for removing their cause."""
    if named and all(suspect.cause in _FROM_OUTSIDE for suspect in named):
        return f"Measure again without {named[0].cause.value}: that is no part of the load."
    if one.kind is EpisodeKind.SAWTOOTH and one.period_s:
        return f"Average throughput over whole cycles, and many: runs of {_minutes(_WHOLE_CYCLES * one.period_s)}."
    if one.kind is EpisodeKind.DECLINE or (one.kind is EpisodeKind.WARM_UP and one.until_s is None):
        return "Run longer, until throughput levels off."
    if one.kind is EpisodeKind.STALL:
        return "Look at the maximum latency, and at what else happened then."
    return _advise_length(one)


def _advise_length(one: Episode) -> str:
    if one.kind is EpisodeKind.CLIFF and one.until_s is not None:
        return "An average should include such drops in their true share: run long enough to meet several."
    past_s = one.from_s + (one.settled_s or 0.0)
    long_s = max(_PAST_FACTOR * past_s, past_s + _PAST_MIN_S)
    if one.kind is EpisodeKind.CLIFF:
        return f"On this storage and at this load a run is past the drop after {_seconds(past_s)}: run {_minutes(long_s)} at least."
    return f"Warm up for {_minutes(past_s)}, or run {_minutes(long_s)} at least."


def _list_charts(named: Iterable[Suspect]) -> Iterator[ChartKind]:
    for suspect in named:
        yield from _SHOWS[suspect.cause]


def _length_s(one: Episode) -> float:
    return (one.until_s or one.from_s) - one.from_s


def _subject(one: Episode) -> str:
    return "Throughput" if one.metric == "tps" else "The latency p99"


def _moved(one: Episode) -> str:
    return "fell" if one.change_ratio < 0 else "rose"


def _percent(ratio: float) -> str:
    return f"{abs(ratio) * 100:.0f} %"


def _level(value: float) -> str:
    return f"{value:,.0f}" if value >= _PLAIN_LEVEL else f"{value:.3g}"


def _seconds(length_s: float) -> str:
    return f"{length_s:.0f} s" if length_s >= _ROUND_S else f"{length_s:.1f} s"


def _minutes(length_s: float) -> str:
    """Format a length of time to run, rounded up."""
    if length_s <= 2 * _PAST_MIN_S:
        return f"{math.ceil(length_s / _ROUND_S) * _ROUND_S} s"
    return f"{math.ceil(length_s / 60)} minutes"
