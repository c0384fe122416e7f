"""State the outcome of a gate: what failed, by which interval, and how often such a gate fails by chance."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.comparison.gate import Failure, GateResult, JudgedVerdict
from pgdyno.report.document import Block, Prose, Section, Tone
from pgdyno.report.level import Level
from pgdyno.report.verdict_words import METRIC_WORDS, count_pairs, describe_change, state_verdict
from pgdyno.spec.gate import VerdictWord


def build_gate(result: GateResult) -> Section:
    """Return the section that ends the report of a study with a gate."""
    return Section(title="Gate", blocks=tuple(_list_blocks(result)))


def describe_failure(failure: Failure) -> str:
    """Describe a failure with its interval: `slower: B is slower than A on tpcb-like: TPS -22.5 % [-25.1, -19.7] (95 % …`."""
    return f"{failure.condition.text}: {_describe_judged(failure)}"


def describe_rate(result: GateResult) -> str:
    """State how often a gate fails by chance; empty if it judged no verdict."""
    asks_undecided = VerdictWord.INCONCLUSIVE in result.conditions
    if not result.metrics:
        words = "No rate is known for `inconclusive`: how often it fails depends on the minutes and on the machine."
        return words if asks_undecided else ""
    named = ", ".join(METRIC_WORDS[metric] for metric in result.metrics)
    count = f"{result.false_ratio * 100:.3g}"
    each = ""
    if len(result.metrics) > 1:
        each = f": at most {result.false_ratio * 100 / len(result.metrics):.3g} for each metric ({named})"
    undecided = ""
    if asks_undecided:
        undecided = " `inconclusive` comes on top of that: it depends on the minutes and on the machine."
    return (
        f"By chance at most {count} of 100 such gates fail if no variant changes anything{each}."
        f" The study's --confidence sets this rate.{undecided}"
    )


def _list_blocks(result: GateResult) -> Iterator[Block]:
    asked = ", ".join(condition.text for condition in result.conditions)
    head = f"--fail-if {asked}"
    if result.is_failed:
        yield Prose(strong="Failed:", words=f"{head}.", tone=Tone.ALARM, level=Level.HEADLINE)
    else:
        yield Prose(strong="Passed:", words=f"{head}: nothing of it is proven.", level=Level.HEADLINE)
    said = [
        *(f"{describe_failure(one)}." for one in result.failures),
        *(f"{name} dropped out. A variant that cannot be measured fails every gate." for name in result.dropped),
        *(f"Inconclusive, which is no failure: {_describe_judged(one)}." for one in result.undecided),
        *(f"{one.text} was not judged: this comparison has no figures for it." for one in result.unobserved),
        *_warn(result),
        describe_rate(result),
    ]
    yield from (Prose(words=words, level=Level.HEADLINE) for words in said)


def _warn(result: GateResult) -> Iterator[str]:
    """Yield a sentence if the reference was found to differ from itself."""
    if result.loud:
        listed = "; ".join(_describe_judged(one) for one in result.loud)
        yield f"Do not trust this gate: the reference was found to differ from itself. {listed}."


def _describe_judged(judged: JudgedVerdict) -> str:
    verdict = judged.verdict
    reference = "itself" if verdict.variant == judged.reference else judged.reference
    what = state_verdict(verdict, variant=verdict.variant, reference=reference, workload=judged.workload)
    level = "" if verdict.low_ratio is None else f" ({format_level(verdict.confidence)} interval)"
    return f"{what}: {describe_change(verdict)}{level}, {count_pairs(verdict)}"


def format_level(confidence: float) -> str:
    """Format the confidence of an interval: `95 %`, `98.75 %`."""
    return f"{confidence * 100:.4g} %"
