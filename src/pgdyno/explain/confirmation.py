"""Judge an experiment on a bottleneck: it proves the bottleneck, refutes it, speaks for or against it, or is still open.

An experiment proves only what it varied: that the load follows one resource, by as much as the bottleneck predicts. If
other limits would give the same result, it supports the bottleneck but decides nothing. Nor does another result refute it
then, because nobody can say how much was to be expected: a bottleneck is likely at best after that. A refuted bottleneck
is not replaced by the next guess: the limit is unknown until an experiment shows one.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pgdyno.analyse.comparison.answers import Comparison
from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.transaction_time.shares import Bottleneck, Certainty, Resource
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.doubts.comparison import describe_change
from pgdyno.explain.finding import Finding
from pgdyno.record.confirmation import Confirmation

# Separates a finding's command from its expected result.
_COMMAND_END = "`: "
_EQUIVALENT = VerdictKind.EQUIVALENT.value


class ConfirmationOutcome(enum.Enum):
    """The result of an experiment on a bottleneck."""

    PROVEN = "proven"
    FITS = "fits"
    """The result is as expected, but would be the same with another limit."""
    AGAINST = "against it"
    """The result is another than expected, but of an experiment that could not have decided."""
    REFUTED = "refuted"
    OPEN = "open"


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment and its result."""

    asked: Confirmation
    place: str
    """Path of its record, as a user would type it."""
    verdict: Verdict
    outcome: ConfirmationOutcome

    @property
    def change(self) -> str:
        """The measured change, such as `TPS +38.1 % [+30.2, +46.9], 12 pairs`."""
        if self.verdict.low_ratio is None:
            return f"TPS has no interval yet, {self.verdict.n} pairs"
        return f"TPS {describe_change(self.verdict)}, {self.verdict.n} pairs"

    @property
    def _wanted(self) -> str:
        least = self.asked.least_ratio
        return f", of which {least * 100:.0f} % or more were expected" if self.verdict.is_decided and least else ""

    @property
    def sentence(self) -> str:
        """A sentence on what was varied, the result, and what it means."""
        asked = self.asked
        what_if = ", a what-if that gives up durability" if asked.is_what_if else ""
        said = {
            ConfirmationOutcome.PROVEN: "so it does limit this load",
            ConfirmationOutcome.FITS: "which fits, and would with some other limits, too",
            ConfirmationOutcome.AGAINST: f"which speaks against it: {asked.expects} was expected",
            ConfirmationOutcome.REFUTED: f"so it does not limit this load{self._wanted}",
            ConfirmationOutcome.OPEN: "which settles nothing yet",
        }[self.outcome]
        return (
            f"experiment on {asked.resource} ({self.outcome.value}): {asked.changed} in place of {asked.reference}{what_if}:"
            f" {self.change}, {said}"
        )


def judge_confirmation(asked: Confirmation, comparison: Comparison, *, place: str) -> Confirmed | None:
    """Judge an experiment; None if its changed variant was never measured.

    Args:
        asked: The question of the experiment.
        comparison: Its result.
        place: Path of its record, as a user would type it.
    """
    question, noise = comparison.find(asked.changed, "tps"), comparison.find_noise("tps")
    if question is None:
        return None
    # A study that tells two identical variants apart proves nothing.
    is_loud = noise is not None and noise.verdict.is_different
    outcome = ConfirmationOutcome.OPEN if is_loud else _judge(asked, question.verdict)
    return Confirmed(asked=asked, place=place, verdict=question.verdict, outcome=outcome)


def _judge(asked: Confirmation, verdict: Verdict) -> ConfirmationOutcome:
    kind = verdict.kind
    if not verdict.is_decided:
        return ConfirmationOutcome.OPEN
    if not asked.is_specific:
        # If less of the load does even more, that is stronger evidence of the same.
        is_so = kind.value == asked.expects or (asked.expects == _EQUIVALENT and kind is VerdictKind.FASTER)
        return ConfirmationOutcome.FITS if is_so else ConfirmationOutcome.AGAINST
    if kind.value != asked.expects:
        return ConfirmationOutcome.REFUTED
    ends = sorted(abs(end) for end in (verdict.low_ratio, verdict.high_ratio) if end is not None)
    least = max(asked.least_ratio, verdict.delta_ratio)
    if not ends or ends[-1] < least:
        return ConfirmationOutcome.REFUTED if ends else ConfirmationOutcome.OPEN
    return ConfirmationOutcome.PROVEN if ends[0] >= least else ConfirmationOutcome.OPEN


def confirm_analysis(analysis: StudyAnalysis, confirmed: Iterable[Confirmed]) -> StudyAnalysis:
    """Add the results of experiments to the bottlenecks of an analysis."""
    latest = _latest(confirmed)
    return msgspec.structs.replace(
        analysis, workloads=tuple(_confirm_workload(workload, latest) for workload in analysis.workloads)
    )


def confirm_findings(
    findings: Sequence[Finding], confirmed: Iterable[Confirmed], *, record_dir: str
) -> tuple[Finding, ...]:
    """Add to each finding on a limit what its experiment measured, or how to run the experiment.

    Args:
        findings: Findings of a study.
        confirmed: Its experiments, oldest first.
        record_dir: Path of its record, as a user would type it.
    """
    latest = _latest(confirmed)
    is_lone = sum(finding.rule == LIMITS for finding in findings) == 1
    return tuple(
        _confirm_finding(finding, latest.get(finding.workload or ""), record_dir, is_lone=is_lone)
        if finding.rule == LIMITS
        else finding
        for finding in findings
    )


def _latest(confirmed: Iterable[Confirmed]) -> dict[str, Confirmed]:
    return {one.asked.workload: one for one in confirmed}


def _confirm_workload(workload: WorkloadAnalysis, latest: Mapping[str, Confirmed]) -> WorkloadAnalysis:
    one, bottleneck = latest.get(workload.name), workload.bottleneck
    # Another version of pgdyno may diagnose the same samples differently: the experiment then says nothing about that.
    if one is None or bottleneck is None or bottleneck.resource.value != one.asked.resource:
        return workload
    return msgspec.structs.replace(workload, bottleneck=_confirm_bottleneck(bottleneck, one))


def _confirm_bottleneck(bottleneck: Bottleneck, one: Confirmed) -> Bottleneck:
    evidence = (one.sentence, *bottleneck.evidence)
    match one.outcome:
        case ConfirmationOutcome.PROVEN:
            return msgspec.structs.replace(bottleneck, certainty=Certainty.PROVEN, evidence=evidence)
        case ConfirmationOutcome.FITS:
            return msgspec.structs.replace(bottleneck, certainty=Certainty.STRONG, evidence=evidence)
        case ConfirmationOutcome.REFUTED:
            return msgspec.structs.replace(
                bottleneck,
                resource=Resource.UNKNOWN,
                certainty=Certainty.UNKNOWN,
                evidence=evidence,
                part="",
                share=None,
            )
        case ConfirmationOutcome.AGAINST:
            return msgspec.structs.replace(bottleneck, certainty=Certainty.LIKELY, evidence=evidence)
        case ConfirmationOutcome.OPEN:
            return msgspec.structs.replace(bottleneck, evidence=evidence)


def _confirm_finding(finding: Finding, one: Confirmed | None, record_dir: str, *, is_lone: bool) -> Finding:
    is_decided = one is not None and one.verdict.is_decided
    if finding.confirm and not is_decided:
        words = ["pgdyno", "explain", record_dir, "--confirm"]
        words += [] if is_lone or finding.workload is None else ["--workload", finding.workload]
        if one is not None:
            words = ["pgdyno", "resume", one.place]
        expected = finding.confirm.partition(_COMMAND_END)[2]
        return msgspec.structs.replace(finding, confirm=f"`{shlex.join(words)}`: {expected}")
    # This experiment has nothing left to decide.
    finding = msgspec.structs.replace(finding, confirm="")
    if one is None or one.outcome not in {ConfirmationOutcome.PROVEN, ConfirmationOutcome.FITS}:
        return finding
    # If giving up durability is faster, or fewer clients do as much, nothing is gained.
    if one.verdict.kind is not VerdictKind.FASTER or one.asked.is_what_if:
        return finding
    return msgspec.structs.replace(
        finding,
        gain=f"{one.change} with {one.asked.changed}",
        gain_ratio=one.verdict.effect_ratio,
        is_gain_proven=True,
    )
