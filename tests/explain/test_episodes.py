from __future__ import annotations

import msgspec
import pytest

from pgdyno.analyse.episodes.types import Cause, Episode, EpisodeCauses, EpisodeKind, Suspect
from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.explain.doubts.study import find_doubts
from pgdyno.explain.episodes import RULE, find_episodes_before_average, find_episodes_in_average
from pgdyno.explain.explanations import explain_study
from pgdyno.explain.finding import Finding, Severity
from pgdyno.record.store import open_record
from pgdyno.record.types import StudyRecord
from pgdyno.spec.host import HostSpec
from tests.analyse.planted_episodes import RECORDS, read_planted
from tests.explain.test_doubts import analysis_of, make_record_without_limits
from tests.given import SERVER

CLIFF = Episode(
    kind=EpisodeKind.CLIFF,
    metric="tps",
    from_s=10.0,
    until_s=None,
    before=15_300.0,
    after=8_500.0,
    change_ratio=-0.444,
    change_low_ratio=-0.47,
    change_high_ratio=-0.42,
    settled_s=15.0,
)
STALL = msgspec.structs.replace(
    CLIFF, kind=EpisodeKind.STALL, until_s=14.0, after=20.0, change_ratio=-0.999, recovery_s=4.0, settled_s=None
)


@pytest.fixture
def record() -> StudyRecord:
    return make_record_without_limits()


def tell(
    record: StudyRecord, *episodes: Episode, suspects: tuple[Suspect, ...] = (), steady_from_s: float = 0.0
) -> list[Finding]:
    causes = tuple(EpisodeCauses(episode=one, suspects=suspects) for one in episodes)
    analysis = analysis_of(record, episodes=episodes, episode_causes=causes, steady_from_s=steady_from_s)
    return [*find_episodes_in_average(record, analysis), *find_episodes_before_average(record, analysis)]


def test_a_cliff_within_an_average_is_told_with_its_size_and_how_long_to_run(record: StudyRecord) -> None:
    (found,) = tell(record, CLIFF)
    assert found.severity is Severity.CRITICAL
    assert found.claim == "Throughput fell by 44 % after 10 s and stayed there; its cause is unknown."
    assert "15,300 to 8,500 TPS (-44 % [-47, -42])" in found.evidence
    assert "the trial's average of 1,000 TPS runs across it" in found.evidence
    assert found.advice == "On this storage and at this load a run is past the drop after 25 s: run 100 s at least."
    assert "likewise in trials 2, 3" in found.evidence
    assert (found.rule, found.trial, found.workload) == (RULE, 1, "tpcb-like")


def test_it_is_a_doubt_or_an_explanation_and_never_both(record: StudyRecord) -> None:
    for steady_from_s, is_doubt in ((0.0, True), (30.0, False)):
        analysis = analysis_of(record, episodes=(CLIFF,), steady_from_s=steady_from_s)
        doubts = [one for one in find_doubts(record, analysis) if one.rule == RULE]
        explained = [one for one in explain_study(record, analysis) if one.rule == RULE]
        assert (len(doubts), len(explained)) == ((1, 0) if is_doubt else (0, 1))
    assert "covers what came after" in explained[0].evidence
    assert explained[0].severity is Severity.WARNING


def test_the_best_cause_is_named_and_its_rivals_stand_beside_it(record: StudyRecord) -> None:
    suspects = (
        Suspect(cause=Cause.DIRTY_LIMIT, fits=True, text="dirty memory 40 to 99 %"),
        Suspect(cause=Cause.CHECKPOINT, fits=True, text="a checkpoint began at 9 s"),
        Suspect(cause=Cause.STEAL, fits=False, text="steal 0.0 to 0.1 %"),
    )
    (found,) = tell(record, CLIFF, suspects=suspects)
    assert found.claim.endswith("the kernel's limit for dirty memory or checkpoint fit.")
    assert [rival.cause for rival in found.rivals] == ["checkpoint", "CPU time taken by the hypervisor"]
    assert found.rivals[0].against.startswith("It fits as well.")
    assert "vm.dirty_bytes" in found.confirm


@pytest.mark.parametrize(
    ("is_of_wal", "wal_home", "words"),
    [
        (False, "/mnt/wal", "`pgdyno disk /d` twice, now and at another hour"),
        (True, "/mnt/wal", "`pgdyno disk /mnt/wal` twice, now and at another hour"),
        (True, None, "the disk of pg_wal measured twice, now and at another hour"),
    ],
)
def test_a_disk_that_became_slower_is_measured_again(
    record: StudyRecord, is_of_wal: bool, wal_home: str | None, words: str
) -> None:
    data = msgspec.structs.replace(record.study.data, wal_home=wal_home)
    there = msgspec.structs.replace(record, study=msgspec.structs.replace(record.study, data=data))
    slower = Suspect(cause=Cause.DEVICE, fits=True, text="a write took 1 to 20 ms", is_of_wal=is_of_wal)
    (found,) = tell(there, CLIFF, suspects=(slower,))
    assert found.confirm == words


@pytest.mark.parametrize("is_emulated", [False, True], ids=["given", "emulated"])
def test_a_disk_that_is_not_pgdynos_has_no_command(record: StudyRecord, is_emulated: bool) -> None:
    """`pgdyno disk` would measure that of its home."""
    host = HostSpec(emulate=is_emulated)
    given = None if is_emulated else SERVER
    there = msgspec.structs.replace(record, given=given, study=msgspec.structs.replace(record.study, host=host))
    (found,) = tell(there, CLIFF, suspects=(Suspect(cause=Cause.DEVICE, fits=True, text="a write took 1 to 20 ms"),))
    assert found.confirm == "the disk of the data measured twice, now and at another hour"


def test_what_comes_from_outside_has_no_length_to_run(record: StudyRecord) -> None:
    (found,) = tell(record, CLIFF, suspects=(Suspect(cause=Cause.QUOTA, fits=True, text="the quota ran out"),))
    assert found.advice == "Measure again without the CPU quota of a control group: that is no part of the load."


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": EpisodeKind.STALL, "until_s": 14.0, "after": 20.0, "change_ratio": -0.999}, "Next to nothing was done for 4.0 s from 10 s on;"),
        ({"kind": EpisodeKind.STALL, "until_s": 11.0, "after": 734.0, "change_ratio": -0.952}, "Throughput fell to 734 TPS (-95 %) for 1.0 s from 10 s on;"),
        ({"kind": EpisodeKind.STALL, "until_s": 14.0, "recovery_s": 9.0}, "on, back at its level after 9 s;"),
        ({"until_s": 18.0, "recovery_s": 8.0}, "fell by 44 % after 10 s for 8 s;"),
        ({"kind": EpisodeKind.SAWTOOTH, "period_s": 24.0, "recovery_s": 8.0}, "fell by 44 % for 8 s every 24 s;"),
        ({"kind": EpisodeKind.DECLINE, "settled_s": None}, "fell by 44 % little by little"),
        ({"kind": EpisodeKind.WARM_UP, "until_s": 20.0, "before": 5000.0, "after": 10_000.0, "change_ratio": 1.0}, "began 50 % lower: it took 20 s"),
        ({"kind": EpisodeKind.WARM_UP, "before": 5000.0, "after": 10_000.0, "change_ratio": 1.0}, "still rising at the end"),
        ({"kind": EpisodeKind.RECOVERY, "change_ratio": 0.5}, "rose by 50 % after 10 s"),
        ({"metric": "latency_p99_ms", "before": 5.0, "after": 9.0, "change_ratio": 0.8}, "The latency p99 rose by 80 %"),
    ],
)  # fmt: skip
def test_every_kind_is_told_as_people_know_it(record: StudyRecord, changes: dict[str, object], words: str) -> None:
    (found,) = tell(record, msgspec.structs.replace(CLIFF, **changes))
    assert words in found.claim
    assert found.severity is not Severity.NOTE


def test_a_drop_is_told_once(record: StudyRecord) -> None:
    back = msgspec.structs.replace(CLIFF, kind=EpisodeKind.RECOVERY, from_s=18.0, change_ratio=0.8)
    latency = msgspec.structs.replace(CLIFF, metric="latency_p99_ms", change_ratio=0.9)
    assert len(tell(record, CLIFF, back, latency)) == 1
    assert len(tell(record, CLIFF, STALL)) == 2


def test_of_several_stalls_the_longest_is_told_and_how_long_all_were(record: StudyRecord) -> None:
    deepest = msgspec.structs.replace(STALL, after=0.0, change_ratio=-1.0, until_s=13.0)
    longest = msgspec.structs.replace(STALL, from_s=20.0, until_s=32.0, recovery_s=12.0)
    (found,) = tell(record, deepest, longest, msgspec.structs.replace(STALL, from_s=50.0, until_s=55.0, recovery_s=5.0))
    assert found.claim.startswith(
        "Next to nothing was done for 12 s from 20 s on, the longest of 3 stalls, 20 s in all;"
    )


def test_of_drops_of_about_the_same_depth_the_longest_is_told(record: StudyRecord) -> None:
    short = msgspec.structs.replace(CLIFF, until_s=18.0, change_ratio=-0.45)
    (found,) = tell(record, short, msgspec.structs.replace(CLIFF, from_s=30.0, until_s=60.0))
    assert found.claim.startswith("Throughput fell by 44 % after 30 s for 30 s, one of 2 such changes;")


def test_no_milder_drop_stands_for_a_severe_one(record: StudyRecord) -> None:
    severe = msgspec.structs.replace(CLIFF, until_s=18.0, change_ratio=-0.32)
    (found,) = tell(record, severe, msgspec.structs.replace(CLIFF, from_s=30.0, until_s=60.0, change_ratio=-0.29))
    assert found.claim.startswith("Throughput fell by 32 % after 10 s for 8 s, one of 2 such changes;")
    assert found.severity is Severity.CRITICAL


def tell_stalls(record: StudyRecord, *trials: tuple[float, ...]) -> Finding:
    """Tell about trials of 60 s with stalls of these lengths."""
    (workload,) = analysis_of(record).workloads
    changed = []
    for one, lengths_s in zip(workload.trials, trials, strict=False):
        timed = msgspec.structs.replace(one.record, load_start_monotonic_s=1.0, load_end_monotonic_s=61.0)
        stalls = (
            msgspec.structs.replace(STALL, from_s=6.0 * at, until_s=6.0 * at + length_s)
            for at, length_s in enumerate(lengths_s, start=1)
        )
        changed.append(msgspec.structs.replace(one, record=timed, episodes=tuple(stalls)))
    analysis = StudyAnalysis(workloads=(msgspec.structs.replace(workload, trials=tuple(changed)),))
    (found,) = find_episodes_in_average(record, analysis)
    return found


@pytest.mark.parametrize(
    ("lengths_s", "severity"),
    [((5.0,), Severity.WARNING), ((7.0,), Severity.CRITICAL), ((2.0, 2.0), Severity.WARNING), ((2.0,) * 4, Severity.CRITICAL)],
)  # fmt: skip
def test_stalls_that_cost_much_of_the_average_are_severe(
    record: StudyRecord, lengths_s: tuple[float, ...], severity: Severity
) -> None:
    assert tell_stalls(record, lengths_s).severity is severity


def test_of_several_trials_the_one_that_lost_most_by_stalls_is_told(record: StudyRecord) -> None:
    found = tell_stalls(record, (2.5,), (2.0,) * 9)
    assert "for 2.0 s from 6 s on, back at its level after 4.0 s, the longest of 9 stalls, 18 s in all;" in found.claim
    assert (found.trial, found.severity) == (2, Severity.CRITICAL)
    assert "likewise in trial 1" in found.evidence


def test_a_slight_change_is_a_note(record: StudyRecord) -> None:
    (found,) = tell(record, msgspec.structs.replace(CLIFF, change_ratio=-0.07))
    assert found.severity is Severity.NOTE


def analyse(name: str) -> tuple[StudyRecord, StudyAnalysis]:
    record = open_record(RECORDS / name).read_record()
    return record, analyse_study(record, [read_planted(name)])


def test_real_records_tell_what_was_planted_and_no_more() -> None:
    for name, words in (("quota", "fell by 74 % after"), ("stop", "Next to nothing was done for 4.0 s")):
        record, analysis = analyse(name)
        (found,) = [
            one for one in (*find_doubts(record, analysis), *explain_study(record, analysis)) if one.rule == RULE
        ]
        assert words in found.claim
        assert [event.kind for trial in analysis.workloads[0].trials for event in trial.events].count(
            "level shift"
        ) == 1
    record, analysis = analyse("quiet")
    assert not [one for one in (*find_doubts(record, analysis), *explain_study(record, analysis)) if one.rule == RULE]
