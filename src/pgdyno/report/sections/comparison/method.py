"""Describe how a comparison was made, how noisy the machine is, and how certain the answers are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable

from pgdyno.analyse.comparison.answers import Question
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.analyse.sweep.scaling import ENOUGH_ROUNDS, LEAST_ROUNDS, PRECISE_RATIO
from pgdyno.plan.experiment import Experiment, is_client_sweep, list_crossed_levels
from pgdyno.record.types import TrialRecord
from pgdyno.report.format import format_roughly, format_seconds, format_within
from pgdyno.report.input import ReportInput
from pgdyno.report.restore_words import describe_start
from pgdyno.report.sections.comparison.answers import WorkloadAnswers
from pgdyno.report.verdict_words import METRIC_WORDS, count_pairs, describe_change, name_verdict
from pgdyno.spec.variant import DesignKind
from pgdyno.units import count_things

# Source: the loads of tests/analyse/test_scaling.py right beside every limit, 300 sweeps for each of three kinds of noise.
_SIMULATED_STATUSES = (
    "In simulations with a permitted rate of 5 in 100, with up to eight looks and loads very close to every limit, 10 of 900"
    " sweeps had a wrong status."
)

_DESIGNS = {
    DesignKind.SWITCHBACK: "Switchback: the variants alternate in short slices, in random order, under one continuous load.",
    DesignKind.PAIRED: "Paired trials: each round has one trial of every variant and a second one of the reference, in random order, each {start}.",
    DesignKind.LIVE: (
        "Live pairs: in each round the servers of all variants are up at once, each with its own copy of the data and its"
        " own clients, and short slices of load alternate among them in random order. While one server runs, the others"
        " and their clients are frozen, so that what disturbs the machine disturbs all of them alike."
    ),
}
_LIVE_ON_GIVEN = (
    "Live pairs on one server: in each round the loads of all variants are connected at once, each to a copy of the data of"
    " its own, and short slices alternate among them in random order. While one load runs, the clients of the others are"
    " frozen; the server goes on, finishes what they have begun, and has the pages of all copies in its memory. So a"
    " disturbance reaches all variants alike, and each may find fewer of its pages in memory than a load that is alone."
)
_IN_TURNS = (
    "Turns on one server: each round begins {start}, and the loads of all variants take turns on the server, in random"
    " order and equally often. A turn is a run of pgbench: its clients connect, and they finish their transactions"
    " before the next turn begins. So no load waits for the locks of another, and what disturbs the machine, or changes the"
    " data, reaches all of them alike."
)
_TRIALS_REMARK = (
    "These tables show whether anything went wrong. Verdicts come from pairs within a round, not from them."
)
_SWEEP_TRIALS_REMARK = (
    "These tables show whether anything went wrong. Statuses come from comparisons within rounds, not from them. Their intervals"
    " rest on the trials of one load, and differ from those of the curve, which use the noise of all loads."
)


def describe_method(report: ReportInput) -> tuple[str, ...]:
    """Describe design, slices, pairs and error rate, a paragraph each; nothing for a study that compares nothing."""
    experiment = report.record.plan.experiment
    if experiment is None:
        return ()
    if is_client_sweep(experiment):
        return (*_describe_course(report, experiment), _describe_loads(experiment), describe_error_rate(experiment))
    return (
        *_describe_course(report, experiment),
        _describe_pair(experiment),
        *_describe_extra(report),
        describe_error_rate(experiment),
        _describe_family(report, experiment),
    )


def describe_trials(experiment: Experiment) -> str:
    """Describe what the tables of a comparison's trials are for."""
    return _SWEEP_TRIALS_REMARK if is_client_sweep(experiment) or list_crossed_levels(experiment) else _TRIALS_REMARK


def describe_error_rate(experiment: Experiment) -> str:
    """State what share of the verdicts may be false."""
    most = f"{experiment.alpha * 100:.3g}"
    if is_client_sweep(experiment):
        return (
            f"Error rate: of 100 such sweeps at most {most} would give a wrong status, if the data were evaluated"
            " once. This sweep evaluated them after every round, which the tests do not account for."
            f" {_SIMULATED_STATUSES}"
        )
    within = format_within(experiment.detect_ratio)
    return (
        f"Error rate: of 100 such verdicts on identical variants at most {most} would be false (faster or slower),"
        " however often the data are evaluated and whenever the study stops. Of 100 variants that differ by more"
        f" than {within}, at most {most} would"
        f" be called equivalent.{_describe_budgets(experiment)}"
    )


def _describe_budgets(experiment: Experiment) -> str:
    """Describe what the error rate is spent on; nothing for an older record, whose e-process has all of it."""
    if not experiment.final_look:
        return ""
    half = f"{experiment.alpha * 50:.3g}"
    return (
        f" Half of each rate, {half} of 100, belongs to the e-process, which is evaluated after every pair, and half to one t-test"
        " when the planned trials or their time are over (the final look). From then on an interval is what the intervals of"
        " both have in common."
    )


def describe_noise(answers: WorkloadAnswers) -> tuple[str, ...]:
    """Describe how far two identical variants differed, and what that means for the verdicts; a sentence each.

    Of a load in parts, each part has a first sentence of its own, because verdicts are those of the parts.
    """
    if answers.parts:
        described = [describe_noise(part) for part in answers.parts]
        return (" ".join(one[0] for one in described), *dict.fromkeys(words for one in described for words in one[1:]))
    noise = answers.comparison.find_noise(answers.comparison.primary)
    if noise is None:
        return ("The reference did not run twice in any round, so the noise of this machine is not known.",)
    verdict = noise.verdict
    reference = answers.reference.title
    pairs = "" if verdict.low_ratio is None else f", {count_pairs(verdict)}"
    first = (
        f"A/A: the reference compared with itself ({reference}, two runs in each round) on {answers.workload}:"
        f" {describe_change(verdict)}{pairs}."
    )
    if is_noise_loud(answers):
        warning = (
            "That is a false verdict: a difference between two identical variants was found"
            f" ({name_verdict(verdict)}). Something other than the variants differs between runs; do not trust this"
            " study's other verdicts until it is found."
        )
        return (first, warning)
    if verdict.low_ratio is None:
        standing = "Too few pairs were measured to tell whether they differ."
    elif verdict.kind is VerdictKind.INCONCLUSIVE:
        standing = "No difference was found, as expected; equivalence has not been shown yet."
    else:
        standing = f"They are {name_verdict(verdict)}, as expected."
    spread = _describe_spread(noise)
    return (first, standing, *([spread] if spread else []))


def is_noise_loud(answers: WorkloadAnswers) -> bool:
    """Return whether the reference was found to differ from itself in the primary metric; of a load in parts, in any of them."""
    if answers.parts:
        return any(map(is_noise_loud, answers.parts))
    noise = answers.comparison.find_noise(answers.comparison.primary)
    return noise is not None and noise.verdict.is_different


def _describe_spread(noise: Question) -> str:
    if len(noise.log_ratios) < 2:
        return ""
    spread = format_roughly(math.expm1(statistics.stdev(noise.log_ratios)))
    return f"Two runs of the same variant differ by about {spread} (standard deviation of a pair)."


def _describe_course(report: ReportInput, experiment: Experiment) -> tuple[str, ...]:
    return (
        _describe_design(report, experiment),
        *_describe_observed(report),
        *_describe_slices(report, experiment),
    )


def _describe_design(report: ReportInput, experiment: Experiment) -> str:
    is_shared = experiment.design is DesignKind.LIVE and report.record.given is not None
    words = _IN_TURNS if experiment.takes_turns else _LIVE_ON_GIVEN if is_shared else _DESIGNS[experiment.design]
    design = words.format(start=describe_start(report.record.study))
    return f"{design} Reason: {experiment.reason}."


def _describe_observed(report: ReportInput) -> tuple[str, ...]:
    """Describe the trials that were only observed, if the plan has any."""
    observed = next((trial for trial in report.record.plan.trials if trial.is_observed), None)
    if observed is None:
        return ()
    words = (
        f"Before the rounds each variant ran alone for {format_seconds(observed.duration_s)} on each workload, watched by"
        " the samplers, which cannot watch several at once. Bottlenecks, waits and the first charts are from these"
        " trials; neither verdicts nor results include them."
    )
    return (words,)


def _describe_extra(report: ReportInput) -> tuple[str, ...]:
    """Describe that rounds were added; nothing if none were."""
    first = report.record.plan.first_extra
    if first is None:
        return ()
    count = len({(trial.workload, trial.round) for trial in report.record.plan.trials if trial.number >= first})
    words = (
        "When the planned rounds were over, questions were open and minutes were left:"
        f" {count_things(count, 'more round')} followed before their final look. No result of a question decided its own number of"
        " rounds; questions that were decided early left their time to the others."
    )
    return (words,)


def _describe_loads(experiment: Experiment) -> str:
    budget = "" if experiment.budget_s is None else f" or after {format_seconds(experiment.budget_s)}"
    return (
        "Numbers of clients are compared with each other by their differences inside rounds, with the spread of each pair. A number gets"
        " its status as soon as the tests rule out all other statuses. It is measured no further once its TPS is also known within"
        f" {format_within(PRECISE_RATIO)} after {LEAST_ROUNDS} rounds, or after {ENOUGH_ROUNDS} rounds. The best one goes on, because the others are compared"
        f" with it. The study ends when no number needs more trials{budget}."
    )


def _describe_slices(report: ReportInput, experiment: Experiment) -> tuple[str, ...]:
    seen: dict[str, list[TrialRecord]] = {}
    for workload in report.analysis.workloads:
        for trial in workload.trials:
            if trial.record.slice_s is not None:
                seen.setdefault(workload.load.name, []).append(trial.record)
    what, why_ignored = "slice", ""
    if experiment.takes_turns:
        what, why_ignored = "turn", " (connecting, and the first statements of new sessions)"
    parts = []
    for name, records in seen.items():
        length = _describe_range((record.slice_s or 0.0 for record in records), "{:.3g} s".format)
        ignored = _describe_range((record.washout_s or 0.0 for record in records), format_seconds)
        washout = f", of which the first {ignored}{why_ignored} are ignored" if records[-1].washout_s else ""
        pilot = report.analysis.pilots.get(name)
        why = "" if pilot is None else f" (the pilot: {pilot.reason})"
        parts.append(f"{length} on {name}{washout}{why}")
    return (f"The length of a {what} is {'; '.join(parts)}.",) if parts else ()


def _describe_range(values_s: Iterable[float], show: Callable[[float], str]) -> str:
    """Show seconds, which are chosen anew in each live round."""
    shown = list(dict.fromkeys(map(show, sorted(values_s))))
    return shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}"


def _describe_pair(experiment: Experiment) -> str:
    runs = "slices" if experiment.design is DesignKind.SWITCHBACK else "trials"
    budget = "" if experiment.budget_s is None else f" or after {format_seconds(experiment.budget_s)}"
    return (
        f"A pair is a variant's result in a round divided by the mean of the reference's two {runs} in that round, so"
        f" that drift, warm-up and caches affect both. A decided variant gets no more {runs}; the study ends when all"
        f" are decided{budget}."
    )


def _describe_family(report: ReportInput, experiment: Experiment) -> str:
    others, workloads = len(experiment.variants) - 1, report.record.plan.workloads
    # Those of parts are a family by themselves.
    of_parts = others * sum(len(one.parts) for one in workloads)
    of_whole = others * sum(not one.parts for one in workloads)
    if of_parts + of_whole == 1:
        return "For other metrics the rate holds for each metric alone: among many, one false verdict is likelier."
    family = f"all {of_parts + of_whole} questions on a metric together"
    if of_parts and of_whole:
        rest = "the one" if of_whole == 1 else f"all {of_whole}"
        family = (
            f"all {of_parts} questions on a metric of parts together, and apart from these for {rest} of whole loads"
        )
    return (
        f"The rate holds for {family} (Holm's step-down), including variants"
        f" that dropped out.{_describe_deciding(report, experiment)} For other metrics it holds for each metric alone: among many, one"
        " false verdict is likelier."
    )


def _describe_deciding(report: ReportInput, experiment: Experiment) -> str:
    """Describe that verdicts come from several families, by different metrics or of parts; nothing where they come from one."""
    analysis = report.analysis
    families = dict.fromkeys(
        (METRIC_WORDS[each.primary], bool(parts))
        for one in analysis.comparisons
        for parts in (analysis.compared_parts(one.workload),)
        for each in parts or (one,)
    )
    if len(families) < 2:
        return ""
    deciding = list(dict.fromkeys(metric for metric, _ in families))
    which = f"Here {' and '.join(deciding)} decide, each with this rate: of" if len(deciding) > 1 else "Of"
    most = f"{min(1.0, len(families) * experiment.alpha) * 100:.3g}"
    return f" {which} 100 such studies of identical variants at most {most} have a false verdict."
