"""Tell when the burst credits of a declared machine end: in a plan, and in the trials of a study."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.credit_balance import measure_uses
from pgdyno.analyse.disk.credits import CreditEnd, find_credits, predict_ends
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.explain.finding import Finding, Severity
from pgdyno.record.types import StudyRecord
from pgdyno.units import count_things


def describe_end(end: CreditEnd) -> str:
    """Describe in a sentence when credits end if the loads ask for all that the disk gives."""
    credits_, base = end.credits, _describe_rates(end)
    if end.after_s is None:
        return f"burst of {credits_.what} ({base}): its credits outlast this study"
    where = "while data are loaded" if end.trial is None else f"in trial {end.trial}"
    return (
        f"burst of {credits_.what} ({base}): its credits end after about {_say_minutes(end.after_s)}, {where}, if they"
        " are full now and the loads ask for all that the disk gives; later trials measure the baseline"
    )


def find_credit_doubts(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield a warning for each bucket of credits that ended in a study, by what its trials asked of the disk."""
    host = record.study.host
    if host is None or host.disk is None:
        return
    credits_ = find_credits(host)
    uses = measure_uses(analysis, host) if credits_ else ()
    for end in predict_ends(credits_, uses):
        if end.trial is not None and end.after_s is not None:
            yield Finding(
                rule="credits-ended",
                severity=Severity.WARNING,
                claim=f"The burst credits of {end.credits.what} have probably ended in trial {end.trial}.",
                evidence=(
                    f"{_describe_rates(end)}; by what trials and restoring asked for, credits that were full at first"
                    f" lasted about {_say_minutes(end.after_s)}"
                ),
                why="Trials before that measured a faster disk than those after it, and than a busy server has.",
                advice="Measure once the credits are spent, on volumes or an instance without a burst, or compare in fewer minutes.",
            )


def _say_minutes(seconds: float) -> str:
    return count_things(max(1, round(seconds / 60)), "minute")


def _describe_rates(end: CreditEnd) -> str:
    bucket = end.credits.bucket
    if end.credits.unit == "bytes/s":
        return f"{bucket.burst / 1e6:,.0f} MB/s, of which {bucket.baseline / 1e6:,.0f} MB/s last"
    return f"{bucket.burst:,.0f} IOPS, of which {bucket.baseline:,.0f} last"
