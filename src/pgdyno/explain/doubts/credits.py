"""Tell when the burst credits of a declared machine end: in a plan, and in the trials of a study."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.disk.ceiling import TRANSFERS
from pgdyno.analyse.disk.credits import CreditEnd, DiskUseRate, find_credits, predict_ends, sequential_use
from pgdyno.analyse.disk.demand import UseKind
from pgdyno.analyse.disk.layout_ceiling import compute_ceilings, limits_of
from pgdyno.analyse.disk.raid import times_of
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.explain.finding import Finding, Severity
from pgdyno.record.types import StudyRecord
from pgdyno.spec.host import HostSpec
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
    trials = [trial for workload in analysis.workloads for trial in workload.trials]
    uses = _measured_uses(trials, host) if credits_ else ()
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


def _measured_uses(trials: list[TrialAnalysis], host: HostSpec) -> tuple[DiskUseRate, ...]:
    """Return what the trials asked of the disk, in the order of running; restoring asks for all that the disk gives."""
    assert host.disk is not None  # noqa: S101 - the caller has looked
    copies = times_of(host.disk).copies_of(TRANSFERS["random_write_iops"])
    read = compute_ceilings(host.disk, limits_of(host)).read_bytes_per_s
    most = 0.0 if read is None else read.burst_value or read.value
    uses: list[DiskUseRate] = []
    ended_s = None
    for trial in sorted(trials, key=lambda one: one.record.load_start_monotonic_s or 0.0):
        begin_s, end_s = trial.record.load_start_monotonic_s, trial.record.load_end_monotonic_s
        if trial.disk is None or begin_s is None or end_s is None:
            continue
        number = trial.record.planned.number
        restore_s = trial.record.restore_s
        rest_s = 0.0 if ended_s is None else max(0.0, begin_s - ended_s - restore_s)
        rates = {kind: use.used for kind in UseKind if (use := trial.disk.find(kind)) is not None}
        uses += [
            DiskUseRate(seconds=rest_s, trial=number),
            sequential_use(restore_s, most, trial=number),
            DiskUseRate(
                seconds=end_s - begin_s,
                iops=rates.get(UseKind.READS, 0.0) + copies * rates.get(UseKind.WRITES, 0.0),
                bytes_per_s=rates.get(UseKind.READ_BYTES, 0.0) + copies * rates.get(UseKind.WRITTEN_BYTES, 0.0),
                trial=number,
            ),
        ]
        ended_s = end_s
    return tuple(uses)


def _say_minutes(seconds: float) -> str:
    return count_things(max(1, round(seconds / 60)), "minute")


def _describe_rates(end: CreditEnd) -> str:
    bucket = end.credits.bucket
    if end.credits.unit == "bytes/s":
        return f"{bucket.burst / 1e6:,.0f} MB/s, of which {bucket.baseline / 1e6:,.0f} MB/s last"
    return f"{bucket.burst:,.0f} IOPS, of which {bucket.baseline:,.0f} last"
