from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.estimate import estimate_geometric_mean, estimate_over_trials
from pgdyno.analyse.series import Event
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.transaction_time.shares import Bottleneck, Certainty, Resource
from pgdyno.analyse.trial.others import measure_others, measure_others_beside_load, measure_others_beside_server
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.explain.doubts.comparison import DURABILITY
from pgdyno.explain.doubts.study import find_doubts
from pgdyno.explain.finding import Severity
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.frames import pl
from pgdyno.record.samples.files import read_os_samples
from pgdyno.record.samples.os_series import cpu_of_others
from pgdyno.record.types import Gap, SettingFact, StudyRecord, TrialStatus, WatchedHost
from pgdyno.spec.host import HostSpec
from pgdyno.spec.study import Study, WorkloadSpec
from pgdyno.spec.variant import VariantSpec
from tests.analyse.timed import make_timed
from tests.given import SERVER
from tests.record.test_store import make_record, make_trial


def make_trial_analysis(study: StudyRecord, number: int, /, **changes: object) -> TrialAnalysis:
    quiet = TrialAnalysis(
        record=make_trial(study, number, TrialStatus.FINISHED),
        tps=1000.0,
        latency_mean_ms=8.0,
        percentiles=(),
        transactions_count=1000,
        failed_count=0,
        skipped_count=None,
        late_count=None,
        steady_from_s=0.0,
        charts={},
        events=(Event(kind="checkpoint", t_s=1.0, until_s=2.0, text="checkpoint"),),
        counts_per_transaction={"wal_bytes": 2000.0},
        shares={"cpu_steal_ratio": 0.0, "load_generator_thread_ratio": 0.3},
        statements=(),
        unknown_lines=(),
        gaps=(),
    )
    return msgspec.structs.replace(quiet, **changes)


def analysis_of(study: StudyRecord, /, **changes: object) -> StudyAnalysis:
    trials = tuple(make_trial_analysis(study, n, **changes) for n in (1, 2, 3))
    tps = estimate_geometric_mean([1000.0, 1010.0, 990.0], unit="tps")
    load = study.plan.find_workload("tpcb-like")
    return StudyAnalysis(
        workloads=(WorkloadAnalysis(name="tpcb-like", load=load, tps=tps, latency_ms={}, trials=trials),)
    )


SAMPLES = Path(__file__).parents[1] / "data" / "samples"


@pytest.fixture
def record() -> StudyRecord:
    return make_record_without_limits()


def make_record_without_limits() -> StudyRecord:
    made = make_record()
    disk = msgspec.structs.replace(made.host.data_disk, mount_options="rw,relatime")
    host = msgspec.structs.replace(made.host, cpu_limit=None, cpu_busy_before_ratio=0.02, data_disk=disk)
    return msgspec.structs.replace(made, host=host)


def test_a_quiet_study_raises_no_doubt(record: StudyRecord) -> None:
    assert find_doubts(record, analysis_of(record)) == ()


def test_a_damaged_file_is_named_and_what_was_never_seen_is_not(record: StudyRecord) -> None:
    damaged = Gap(source="os sampler", reason="a samples file is damaged: os.parquet")
    never = Gap(source="numastat", reason="this kernel has none")
    analysis = analysis_of(record, gaps=(damaged, never))
    trials = tuple(
        msgspec.structs.replace(one, record=msgspec.structs.replace(one.record, gaps=(never,)))
        for one in analysis.workloads[0].trials
    )
    trials = (*trials[:2], msgspec.structs.replace(trials[2], gaps=(never,)))
    workload = msgspec.structs.replace(analysis.workloads[0], trials=trials)
    (found,) = find_doubts(record, StudyAnalysis(workloads=(workload,)))
    assert found.severity is Severity.WARNING
    assert found.claim == "Trials 1, 2: os.parquet is damaged or missing, and left out."
    assert found.evidence == "A samples file is damaged: os.parquet"


def test_a_damaged_file_keeps_its_name_at_the_beginning_of_a_sentence(record: StudyRecord) -> None:
    reason = "records/a/trials/0001/transactions/part-00000.parquet is not a part of packed transactions"
    (found,) = find_doubts(record, analysis_of(record, gaps=(Gap(source="slices", reason=reason),)))
    assert found.evidence == reason


def test_a_reason_of_the_preflight_is_told_once() -> None:
    made = make_record()
    told = [one for one in find_doubts(made, analysis_of(made)) if one.rule]
    assert {one.rule for one in told} >= {"cgroup-limit"}
    assert all(". " in one.evidence and not one.why for one in told)


@pytest.mark.parametrize(
    ("changes", "words", "severity"),
    [
        ({"shares": {"cpu_steal_ratio": 0.03}}, "hypervisor", Severity.WARNING),
        ({"shares": {"cpu_others_ratio": 0.4}}, "Other programs used the CPUs", Severity.WARNING),
        ({"shares": {"load_generator_thread_ratio": 0.97}}, "pgbench itself", Severity.WARNING),
        ({"shares": {"load_generator_others_ratio": 0.4}}, "the CPUs of pgbench's machine", Severity.WARNING),
        ({"events": ()}, "No checkpoint", Severity.NOTE),
        ({"failed_count": 53}, "Up to 5 % of the transactions failed", Severity.WARNING),
        ({"failed_count": 560}, "Up to 36 % of the transactions failed", Severity.CRITICAL),
        ({"transactions_count": 0}, "No transaction succeeded in", Severity.WARNING),
    ],
)
def test_what_trials_show(record: StudyRecord, changes: dict[str, object], words: str, severity: Severity) -> None:
    found = [finding for finding in find_doubts(record, analysis_of(record, **changes)) if words in finding.claim]
    assert found
    assert {finding.severity for finding in found} == {severity}
    assert {finding.workload for finding in found} == {"tpcb-like"}


@pytest.mark.parametrize(
    ("tps", "evidence"),
    [
        ((1000.0, 1010.0, 990.0), None),
        ((1000.0, 1300.0, 1150.0), None),
        ((1000.0, 3456.7, 1500.0), "1,000 to 3,460 TPS in 3 trials: they are too few for how much they differ"),
        ((1000.0, 0.0, 1010.0), "0 to 1,010 TPS in 3 trials: they are too few for how much they differ"),
    ],
)
def test_trials_without_a_useful_interval_are_a_doubt(
    record: StudyRecord, tps: tuple[float, ...], evidence: str | None
) -> None:
    (workload,) = analysis_of(record).workloads
    trials = tuple(msgspec.structs.replace(trial, tps=one) for trial, one in zip(workload.trials, tps, strict=True))
    workload = msgspec.structs.replace(workload, trials=trials, tps=estimate_over_trials(tps, unit="tps"))
    found = [one.evidence for one in find_doubts(record, StudyAnalysis(workloads=(workload,)))]
    assert found == ([] if evidence is None else [evidence])


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ((0.4, 0.05, 0.2), "in 2 of 3 trials (limit"),
        ((0.4, 0.05, None), "in 1 of the 2 trials in which this was measured (limit"),
        ((0.4, None, None), "in the one trial in which this was measured (limit"),
    ],
)
def test_a_share_says_how_many_trials_have_it(
    record: StudyRecord, shares: tuple[float | None, ...], words: str
) -> None:
    analysis = analysis_of(record)
    (workload,) = analysis.workloads
    trials = tuple(
        msgspec.structs.replace(trial, shares={} if share is None else {"cpu_others_ratio": share})
        for trial, share in zip(workload.trials, shares, strict=True)
    )
    analysis = StudyAnalysis(workloads=(msgspec.structs.replace(workload, trials=trials),))
    (found,) = (one for one in find_doubts(record, analysis) if "Other programs" in one.claim)
    assert f"Up to 40.0 % {words}" in found.evidence


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpu_busy_before_ratio": 0.5}, "Something else was running"),
        ({"clock_source": "hpet"}, "clock source"),
        ({"transparent_huge_pages": "always"}, "huge pages"),
        ({"governor": "powersave"}, "frequency"),
        ({"cpu_limit": 1.5}, "control group"),
        ({"memory_limit_bytes": 4}, "control group"),
    ],
)
def test_what_the_machine_shows(record: StudyRecord, changes: dict[str, object], words: str) -> None:
    worse = msgspec.structs.replace(record, host=msgspec.structs.replace(record.host, **changes))
    assert [finding for finding in find_doubts(worse, analysis_of(record)) if words in finding.claim]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"filesystem": "tmpfs"}, "no disk"),
        ({"filesystem": "overlay"}, "container's layer"),
        ({"free_bytes": 0}, "nearly full"),
        (
            {"mount_options": "rw,nobarrier"},
            "The server gives up durability: barrier of the file system of the data = off.",
        ),
    ],
)
def test_what_the_disk_shows(record: StudyRecord, changes: dict[str, object], words: str) -> None:
    disk = msgspec.structs.replace(record.host.data_disk, **changes)
    worse = msgspec.structs.replace(record, host=msgspec.structs.replace(record.host, data_disk=disk))
    assert [finding for finding in find_doubts(worse, analysis_of(record)) if words in finding.claim]


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
def test_durability_given_up_leads(record: StudyRecord, name: str) -> None:
    off = SettingFact(name=name, value="off", unit=None, boot_value="on", source="configuration file")
    trial = msgspec.structs.replace(make_trial(record, 1, TrialStatus.FINISHED), settings=(off,))
    first = find_doubts(record, analysis_of(record, record=trial))[0]
    assert (first.severity, first.rule) == (Severity.CRITICAL, DURABILITY)
    assert name in first.claim
    assert "durability" not in first.evidence, "the claim says it"


def test_a_failed_trial_and_the_missing_ones_are_told(record: StudyRecord) -> None:
    failed = make_trial_analysis(record, 3, record=make_trial(record, 3, TrialStatus.FAILED), tps=None)
    whole = analysis_of(record)
    trials = (*whole.workloads[0].trials[:2], failed)
    broken = StudyAnalysis(workloads=(msgspec.structs.replace(whole.workloads[0], trials=trials),))
    claims = [finding.claim for finding in find_doubts(record, broken)]
    assert claims[0] == "Trial 3 failed: the server ended."
    assert any("2 of 3 trials" in claim for claim in claims)


def test_trials_in_which_nothing_succeeded_are_finished(record: StudyRecord) -> None:
    claims = [finding.claim for finding in find_doubts(record, analysis_of(record, tps=None, transactions_count=0))]
    assert claims == ["No transaction succeeded in 3 of 3 trials."]


def test_fewer_branches_than_clients(record: StudyRecord) -> None:
    small = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, scale=1))
    analysis = analysis_of(record)
    assert [f for f in find_doubts(small, analysis) if "fewer branches" in f.claim]
    found = Bottleneck(resource=Resource.LOCK, certainty=Certainty.LIKELY, evidence=())
    told = tuple(msgspec.structs.replace(one, bottleneck=found) for one in analysis.workloads)
    analysis = msgspec.structs.replace(analysis, workloads=told)
    assert not [f for f in find_doubts(small, analysis) if "fewer branches" in f.claim]


@pytest.mark.parametrize("scales", [(1, 100), (100, 1)])
def test_each_variant_has_as_many_branches_as_its_own_scale(record: StudyRecord, scales: tuple[int, int]) -> None:
    variants = tuple(VariantSpec(name=f"scale={scale}", scale=scale) for scale in scales)
    study = Study(workload=(WorkloadSpec(name="tpcb-like", clients=8),), variant=variants)
    machine = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**12)
    compared = msgspec.structs.replace(record, study=study, plan=plan_study(study, machine))
    (whole,) = analysis_of(compared).workloads
    workloads = []
    for scale in scales:
        of = [trial.number for trial in compared.plan.trials if trial.variants == (f"scale={scale}",)]
        trials = tuple(make_trial_analysis(compared, number) for number in of)
        workloads.append(msgspec.structs.replace(whole, name=f"tpcb-like, scale={scale}", trials=trials))
    findings = find_doubts(compared, StudyAnalysis(workloads=tuple(workloads)))
    (found,) = (one for one in findings if "fewer branches" in one.claim)
    assert (found.workload, found.evidence) == ("tpcb-like, scale=1", "Scale 1, 8 clients")


WATCHED = WatchedHost(name="db1", ssh="db1", python="3.11", boot_id="1", is_load_host=False)


@pytest.mark.parametrize(
    ("server", "watched", "backends", "is_known"),
    [
        ({"is_local": False}, None, None, True),
        # A server of this machine that nobody followed may be what kept the CPUs busy.
        ({"is_local": True}, None, None, False),
        ({"is_local": True}, None, (1.0, 0.0), True),
        ({"is_local": True}, WATCHED, None, True),
        ({"is_local": False}, msgspec.structs.replace(WATCHED, is_load_host=True), None, False),
        ({"is_local": False, "pooler": "PgBouncer"}, None, None, False),
    ],
)
def test_what_others_used_beside_pgbench_is_known_where_none_of_them_can_be_the_server(
    record: StudyRecord,
    server: dict[str, object],
    watched: WatchedHost | None,
    backends: tuple[float, float] | None,
    is_known: bool,
) -> None:
    data = make_timed({}, others_share=0.4, backends=backends)
    data = msgspec.structs.replace(data, os=None, generator=data.os)
    given = msgspec.structs.replace(record, given=msgspec.structs.replace(SERVER, **server), server_host=watched)
    found = measure_others_beside_load(given, data)
    assert (None if found is None else found.share) == (pytest.approx(0.4) if is_known else None)
    assert measure_others_beside_load(given, msgspec.structs.replace(data, generator=None)) is None


def test_the_threads_of_an_emulations_disks_are_its_own_cost_and_no_program_to_stop(record: StudyRecord) -> None:
    data = make_timed({}, cpu_share=0.25)
    assert data.os is not None
    # Threads of the kernel have system time only.
    of_study, kernel = pl.col("tree.study/utime"), 0.2 / 0.25 * pl.col("tree.study/utime")
    frame = data.os.frame.with_columns(
        column.alias(f"{cpu}/{kind}")
        for cpu in ("cpu0", "cpu1")
        for kind, column in (
            ("user", of_study / 2),
            ("system", of_study / 2 + kernel),
            ("idle", pl.col(f"{cpu}/idle") - kernel),
        )
    )
    data = msgspec.structs.replace(data, os=msgspec.structs.replace(data.os, frame=frame))
    host = HostSpec(name="db1", cpus=2, memory="4GB", emulate=True)
    emulated = msgspec.structs.replace(record, study=msgspec.structs.replace(record.study, host=host))
    seen: list[tuple[dict[str, float], bool]] = []
    for study in (record, emulated):
        used = measure_others_beside_server(study, data)
        shares = {name: use.share for name, use in used.items() if use is not None}
        found = find_doubts(study, analysis_of(study, shares=shares))
        seen.append((shares, any("stop them" in (finding.advice or "") for finding in found)))
    assert seen == [
        ({"cpu_others_ratio": pytest.approx(0.2)}, True),
        ({"cpu_others_ratio": 0.0, "cpu_emulation_ratio": pytest.approx(0.2)}, False),
    ]


@pytest.mark.parametrize(("others", "seen"), [(-0.03, 0.0), (0.03, 0.0), (0.06, 0.06), (-0.06, -0.06)])
def test_what_ticks_do_not_tell_from_none_over_a_short_load_is_none(others: float, seen: float) -> None:
    data = make_timed({}, seconds=3, others_share=others)
    assert data.os is not None
    found = measure_others(data, data.os)
    assert found is not None
    # Of 3 s, 2 CPUs have 600 ticks.
    assert (found.share, found.resolution_ratio) == (pytest.approx(seen), pytest.approx(600**-0.5))


@pytest.mark.parametrize(("name", "is_told"), [("alone", False), ("beside", True)])
def test_a_busy_loop_beside_a_load_is_told_and_the_load_itself_is_not(
    record: StudyRecord, name: str, is_told: bool
) -> None:
    others = cpu_of_others(read_os_samples(SAMPLES / name))
    share = float(np.nanmean(others.values))
    claims = [finding.claim for finding in find_doubts(record, analysis_of(record, shares={others.metric: share}))]
    assert ("Other programs used the CPUs while trials ran." in claims) == is_told
