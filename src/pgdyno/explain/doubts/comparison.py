"""Find what weakens a comparison: a verdict on pure noise, different durability, an early end.

The rules work as in `doubts.study`, over comparisons instead of trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from pgdyno.analyse.comparison.answers import Question
from pgdyno.analyse.comparison.verdict import Verdict
from pgdyno.analyse.durability import find_disk_losses, find_standby_losses
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.explain.finding import Finding, Severity
from pgdyno.facts.durability import GivenUp, Loss, find_given_up
from pgdyno.plan.experiment import Experiment, Variant, has_several_scripts, is_client_sweep
from pgdyno.plan.plan import PlannedTrial
from pgdyno.record.types import StudyRecord
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import DesignKind, read_number
from pgdyno.units import count_things, format_bytes, unit_size, with_capital

_MAX_NAMED = 3

DURABILITY = "durability"
"""The rule of a finding that a whole study gives up durability, which the head of its report tells in words of its own."""
EARLY_END = "early-end"
"""The rule of findings that a study ended before its plan; they say nothing of one that still runs."""


def find_comparison_doubts(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield everything that weakens a comparison's verdicts; nothing for a study without a comparison."""
    experiment = record.plan.experiment
    if experiment is None:
        return
    yield from _noise_verdict(experiment, analysis)
    yield from _failures(experiment, analysis)
    yield from _cut_rounds(record, experiment, analysis)
    yield from _durability(record, experiment)
    yield from _early_end(record, experiment, analysis)
    yield from _shared_buffers(record, experiment, analysis)
    yield from _scripts(experiment, analysis)


def find_losses(record: StudyRecord, variant: Variant) -> tuple[GivenUp, ...]:
    """Find what a variant's disks, its settings, the choices of its initdb, and its not waiting for standbys give up."""
    chosen: dict[str, SettingValue] = {"data_checksums": "off"} if variant.initdb.checksums is False else {}
    major = variant.server.version or record.server.major
    return (
        *find_disk_losses(record, variant),
        *find_given_up({**variant.server.settings, **chosen}, major),
        *find_standby_losses(record, variant),
    )


def _noise_verdict(experiment: Experiment, analysis: StudyAnalysis) -> Iterator[Finding]:
    found = [
        (whole.workload, one)
        for whole in analysis.comparisons
        # Verdicts are those of the parts. Asking of the whole as well would double how often chance is found.
        for one in analysis.compared_parts(whole.workload) or (whole,)
    ]
    for workload, comparison in found:
        noise = comparison.find_noise(comparison.primary)
        if noise is None or not noise.verdict.is_different:
            continue
        yield Finding(
            severity=Severity.CRITICAL,
            claim="Two identical variants were told apart: this study's verdicts are in doubt.",
            evidence=(
                f"A/A: compared with itself, the reference shows {comparison.primary} {describe_change(noise.verdict)},"
                f" {noise.verdict.n} pairs;"
                f" by chance at most {experiment.alpha * 100:g} in 100 studies show that"
            ),
            advice="Look for what differs between runs on this machine, and measure again.",
            workload=workload,
        )


def _failures(experiment: Experiment, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield a doubt where trials failed and were run again: which ones did may have to do with how fast they were."""
    rounds: dict[tuple[str, int], list[TrialAnalysis]] = {}
    for trial in analysis.trials:
        planned = trial.record.planned
        if trial.record.error is None and not planned.is_observed:
            rounds.setdefault((planned.workload, planned.round), []).append(trial)
    counts, shared_count = dict.fromkeys((variant.name for variant in experiment.variants), 0), 0
    for trials in rounds.values():
        # What ends a block, or all trials of a live round at once, is the fault of no variant that is known.
        shared = 0 if experiment.design is DesignKind.PAIRED else min(trial.failures for trial in trials)
        shared_count += shared
        for trial in trials:
            counts[trial.record.planned.variants[0]] += trial.failures - shared
    named = [f"{count} of {name}" for name, count in counts.items() if count]
    listed = named if len(named) <= _MAX_NAMED else [f"{sum(counts.values())} of {len(named)} variants"]
    if shared_count:
        listed.append(
            count_things(shared_count, "block" if experiment.design is DesignKind.SWITCHBACK else "whole round")
        )
    if listed:
        yield Finding(
            severity=Severity.WARNING,
            claim=f"Trials failed and were run again: {', '.join(listed)}.",
            evidence="figures are of the trials that finished"
            if is_client_sweep(experiment)
            else "; ".join(
                (
                    "verdicts allow for what failed more often on one side: an effect must then be larger to be decided",
                    *_list_held_back(analysis),
                )
            ),
            why="If one variant fails where it is slow, what is left of it looks faster.",
            advice="Find the cause in the tries that failed, which are kept beside the trials as `NNNN.cut-K`, and measure again without it.",
        )


def _list_held_back(analysis: StudyAnalysis) -> Iterator[str]:
    """Yield what is not decided on each load only because trials failed more often on one side."""
    for whole in analysis.comparisons:
        for comparison in analysis.compared_parts(whole.workload) or (whole,):
            names = [question.variant for question in comparison.list_primary() if _is_held_back(question)]
            if names:
                yield f"not decided because of that on {comparison.workload}: {', '.join(names)}"


def _is_held_back(question: Question) -> bool:
    if question.verdict.is_decided or not question.extremes:
        return False
    seen = msgspec.structs.replace(question, extremes=()).gather(question.verdict).interval
    if seen.low is None or seen.high is None:
        return False
    bound = math.log1p(question.verdict.delta_ratio)
    return seen.low > 0 or seen.high < 0 or (-bound <= seen.low and seen.high <= bound)


def _cut_rounds(record: StudyRecord, experiment: Experiment, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield a note where rounds were left before their end, and others followed: the results so far may have been why.

    The reference runs twice in every round, so a round that lacks it was cut. One that was cut when it had both is not found.
    """
    if experiment.design is DesignKind.SWITCHBACK or is_client_sweep(experiment):
        return
    ended = [trial.record.planned for trial in analysis.trials]
    numbers = {trial.number for trial in ended}
    cut = {
        (trial.workload, trial.round)
        for trial in record.plan.trials
        if trial.variants[0] == experiment.reference.name
        and not trial.is_observed
        and trial.number not in numbers
        and trial.round < _last_round(ended, trial.workload)
    }
    if cut:
        yield Finding(
            severity=Severity.NOTE,
            claim=f"Rounds were stopped before their end and left out: {len(cut)}.",
            evidence="their trials make no pairs",
            why="Who stops several rounds because of their results chooses the verdict; its error rate does not cover that.",
        )


def _durability(record: StudyRecord, experiment: Experiment) -> Iterator[Finding]:
    variants = [variant for variant in experiment.variants if variant.name not in record.refused_variants]
    seen: dict[GivenUp, list[str]] = {}
    for variant in variants:
        for one in find_losses(record, variant):
            if one.is_durability:
                seen.setdefault(one, []).append(variant.name)
    for one, names in seen.items():
        if len(names) == len(variants):
            yield Finding(
                rule=DURABILITY if one.kind is Loss.DURABILITY else "",
                severity=Severity.CRITICAL,
                claim=f"Every variant {one.gist}: {one.assignment}.",
                evidence=with_capital(one.consequence),
                advice="Never compare these figures with those of a durable server.",
            )
        else:
            named = "; ".join(names) if len(names) <= _MAX_NAMED else f"{len(names)} of {len(variants)} variants"
            yield Finding(
                severity=Severity.WARNING,
                claim="Variants that keep what was committed are compared with others that may not.",
                evidence=f"{named}{_cause(one, names)}: {one.label}",
                advice="A verdict between them is what durability costs, not what tuning gains.",
            )


def _cause(one: GivenUp, names: list[str]) -> str:
    # A variant without a given name is named after its settings.
    is_said = all(f"{one.setting}={one.value}" in name for name in names)
    return "" if is_said else f", by {one.assignment}"


def _early_end(record: StudyRecord, experiment: Experiment, analysis: StudyAnalysis) -> Iterator[Finding]:
    for comparison in analysis.comparisons:
        sweep, variants = analysis.sweeps.get(comparison.workload), analysis.list_undecided(comparison)
        if sweep is not None:
            # A sweep decides by its curve, which requires less than comparing every load with the first.
            clients = {point.clients for point in sweep.points if point.status is None}
            variants = tuple(variant.name for variant in experiment.variants if variant.clients in clients)
        if not any(variant not in record.refused_variants for variant in variants):
            continue
        # Decided variants get no more trials, but while any is open the reference runs in every round.
        ended = [trial.record.planned for trial in analysis.trials]
        last, planned = (_last_round(trials, comparison.workload) for trials in (ended, record.plan.trials))
        if last < planned:
            turns = "blocks of load" if experiment.design is DesignKind.SWITCHBACK else "rounds"
            claim = "The comparison ended with questions open."
            if sweep is not None or is_client_sweep(experiment):
                claim = "The sweep over clients ended early: more rounds may still change its curve."
            yield Finding(
                rule=EARLY_END,
                severity=Severity.WARNING,
                claim=claim,
                evidence=f"{last} of at most {planned} {turns} were run",
                advice="`pgdyno resume` continues.",
                workload=comparison.workload,
            )


def _shared_buffers(record: StudyRecord, experiment: Experiment, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield a doubt where the copies of live loads crowd each other in the memory of one server."""
    settings = next(
        (one.record.settings for each in analysis.workloads for one in each.trials if one.record.settings), None
    )
    is_crowded = experiment.is_side_by_side and record.given is not None
    if not is_crowded or record.dataset is None or settings is None:
        return
    copies = len(experiment.variants) + 1
    copies_bytes = copies * record.dataset.total_bytes
    values = {one.name: one.value for one in settings}
    # Of servers with another block size it is that, where the setting is not the default.
    unit = next((one.unit for one in settings if one.name == "shared_buffers"), None) or "8kB"
    buffers_bytes = read_number(values, "shared_buffers", major=record.server.major) * unit_size(unit)
    if copies_bytes > buffers_bytes:
        yield Finding(
            severity=Severity.WARNING,
            claim="The loads took room in shared_buffers from each other.",
            evidence=f"{copies} copies of the data, {format_bytes(copies_bytes)}; shared_buffers are {format_bytes(buffers_bytes)}",
            why="Each load finds fewer of its pages there than it would alone, most of all the one that touches them least often.",
            advice="Load less data (--scale), so that all copies fit, or compare with --design paired.",
        )


def _scripts(experiment: Experiment, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield a note where variants run different scripts, of which only the user knows whether they do the same work."""
    if not has_several_scripts(experiment):
        return
    counts = {trial.record.planned.variants[0]: _count_statements(trial) for trial in analysis.trials}
    yield Finding(
        severity=Severity.NOTE,
        claim="The variants run different scripts, and are compared transaction by transaction.",
        evidence="statements of a transaction: "
        + ", ".join(f"{counts.get(one.name) or 'not known'} in {one.name}" for one in experiment.variants),
        why="A script that does less work in a transaction looks faster.",
        advice="Let a transaction of each do the same work.",
    )


def _count_statements(trial: TrialAnalysis) -> str | None:
    counts = dict.fromkeys(one.script for one in trial.statements)
    sql = [one for one in trial.statements if not one.statement.startswith("\\")]
    return str(len(sql)) if sql and len(counts) == 1 else None


def _last_round(trials: Iterable[PlannedTrial], workload: str) -> int:
    return max((trial.round for trial in trials if trial.workload == workload), default=0)


def describe_change(verdict: Verdict) -> str:
    """Format a change with its interval: `+38.1 % [+30.2, +46.9]`."""
    effect, low, high = (
        (ratio or 0.0) * 100.0 for ratio in (verdict.effect_ratio, verdict.low_ratio, verdict.high_ratio)
    )
    return f"{effect:+.1f} % [{low:+.1f}, {high:+.1f}]"
