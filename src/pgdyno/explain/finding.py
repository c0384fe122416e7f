"""Define a finding: a claim with its evidence, for readers who read little and trust what is proven."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.transaction_time.shares import Certainty
from pgdyno.record.types import StudyRecord


class Severity(enum.Enum):
    """How much a finding matters to the figures of its report."""

    CRITICAL = "critical"
    """The figures should not be used as they are; of a result, the server should not."""
    WARNING = "warning"
    """The figures must be read together with this finding."""
    NOTE = "note"

    @property
    def rank(self) -> int:
        """Its place in an order of findings, the gravest first."""
        return list(Severity).index(self)


class Rival(msgspec.Struct, frozen=True, kw_only=True):
    """Another possible cause of the evidence."""

    cause: str
    """A clause, such as `the disk's credits ran out`."""
    against: str
    """The evidence against it, with figures; also states that there is none, or that it was not observed."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A claim, its evidence, and what to do about it."""

    severity: Severity
    claim: str
    """One sentence."""
    evidence: str
    """Figures, with units."""
    advice: str = ""
    """One sentence; empty if there is nothing to do."""
    workload: str | None = None
    """None if it is about the machine or the whole study."""
    rule: str = ""
    """Constant name of the rule that found it; empty without one."""
    why: str = ""
    """One sentence on its effect on a measurement or on speed; empty if the claim says it."""
    rivals: tuple[Rival, ...] = ()
    """Other possible causes, likeliest first; empty if the claim is a count."""
    confirm: str = ""
    """The experiment that would decide it, as a command if there is one; empty if nothing is left to decide."""
    gain: str = ""
    """The gain of acting on it, with its interval, and whether it is proven or expected; empty if unknown."""
    gain_ratio: float | None = None
    """Best estimate of the gain in TPS, which orders the steps; None if there is no such number."""
    is_gain_proven: bool = False
    """True if the gain was measured, not computed or expected."""
    certainty: Certainty | None = None
    """Certainty of a verdict on what limits a load; None for a count."""
    shows: tuple[ChartKind, ...] = ()
    """The charts that show it."""
    trial: int | None = None
    """Number of the trial that shows it; None if it is not about a single trial."""
    is_result: bool = False
    """True for what the study found of the server: however grave, it does not weaken the figures."""

    @property
    def spoils_figures(self) -> bool:
        """Whether the figures should not be used as they are."""
        return self.severity is Severity.CRITICAL and not self.is_result


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings by their severity, in their order within each."""
    return tuple(sorted(findings, key=lambda finding: finding.severity.rank))


def keep_to_record(record: StudyRecord, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings on a record without experiments that would run on another server than its own.

    The other commands that confirm a finding measure servers of pgdyno's own, on the machine that they run on.
    """
    if record.given is None:
        return tuple(findings)
    return tuple(msgspec.structs.replace(one, confirm="") if _runs_elsewhere(one) else one for one in findings)


def _runs_elsewhere(finding: Finding) -> bool:
    return "`pgdyno " in finding.confirm.replace("`pgdyno explain ", "")
