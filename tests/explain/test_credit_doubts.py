from __future__ import annotations

import msgspec

from pgdyno.analyse.disk.demand import DiskDemand, DiskUse, UseKind
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.explain.doubts.credits import find_credit_doubts
from pgdyno.record.types import StudyRecord
from pgdyno.spec.host import parse_host
from tests.explain.test_doubts import analysis_of, make_record_without_limits

LOAD_S, GAP_S = 600.0, 20.0


def with_host(record: StudyRecord, text: str) -> StudyRecord:
    study = msgspec.structs.replace(record.study, host=parse_host(text, source="test"))
    return msgspec.structs.replace(record, study=study)


def reading(trial: TrialAnalysis, *, iops: float, index: int) -> TrialAnalysis:
    """A trial with reads alone, ten minutes long."""
    use = DiskUse(kind=UseKind.READS, used=iops, limit=3000.0, unit="/s", how="random read")
    demand = DiskDemand(
        device="nvme1n1",
        busy_ratio=None,
        read_await_ms=None,
        write_await_ms=None,
        flush_await_ms=None,
        missed_blocks_per_s=None,
        uses=(use,),
    )
    begin_s = 1000.0 + index * (LOAD_S + GAP_S)
    seen = msgspec.structs.replace(
        trial.record, load_start_monotonic_s=begin_s, load_end_monotonic_s=begin_s + LOAD_S, restore_s=0.0
    )
    return msgspec.structs.replace(trial, record=seen, disk=demand)


def test_credits_that_ended_within_a_study_are_told_with_the_trial() -> None:
    record = with_host(
        make_record_without_limits(),
        'cpus = 2\nmemory = "16GB"\n[disk]\nvolume = "gp2"\nsize = "100GB"\n',
    )
    analysis = analysis_of(record)
    (workload,) = analysis.workloads
    # Above 300 IOPS, 5.4 million credits last 2,000 s at 3,000 IOPS; at 4,000 that are asked for, no more is given.
    for iops in (300.0, 3000.0, 4000.0):
        trials = [reading(trial, iops=iops, index=index) for index, trial in enumerate(workload.trials)]
        seen = msgspec.structs.replace(analysis, workloads=(msgspec.structs.replace(workload, trials=tuple(trials)),))
        assert list(find_credit_doubts(record, seen)) == [], iops
    small = with_host(record, 'cpus = 2\nmemory = "16GB"\n[disk]\nvolume = "gp2"\nsize = "10GB"\n')
    four = [
        reading(trial, iops=3100.0, index=index) for index, trial in enumerate([*workload.trials, workload.trials[0]])
    ]
    seen = msgspec.structs.replace(analysis, workloads=(msgspec.structs.replace(workload, trials=tuple(four)),))
    (finding,) = find_credit_doubts(small, seen)
    assert finding.rule == "credits-ended"
    assert finding.claim == "The burst credits of the gp2 volume have probably ended in trial 1."
    assert finding.evidence.startswith("3,000 IOPS, of which 100 last; by what trials and restoring asked for")
    assert "lasted about 32 minutes" in finding.evidence
    assert list(find_credit_doubts(make_record_without_limits(), seen)) == []
