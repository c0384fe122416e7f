from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.bottleneck.agreement import judge_workload
from pgdyno.analyse.bottleneck.evidence_rules import list_support
from pgdyno.analyse.bottleneck.sign_reading import read_signs
from pgdyno.analyse.series import ChartKind, Event, Series
from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.transaction_time.model import measure_time
from pgdyno.analyse.transaction_time.shares import Bottleneck, Certainty, Resource, TimeShare, TransactionTime
from pgdyno.analyse.trial.analysis import analyse_trial
from pgdyno.analyse.types import GeneratorFigures, StatementTime, TrialAnalysis
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.machine.preflight import BlockDevice, PreflightFacts
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import UNSEEN_GAPS, ErrorFact, Gap, SettingFact, StudyRecord, TrialStatus
from tests.analyse.experiments import in_round
from tests.analyse.joined import COUNT, UNLOGGED, make_workload
from tests.analyse.kept_causes import analyse_kept, list_names, right_of
from tests.analyse.timed import FLUSH, FOLLOW, IDLE, READ, ROW, RUNNING, make_timed
from tests.rows import each_row

RECORDS = Path(__file__).parents[1] / "data" / "records"
LOAD = make_workload("tpcb-like", clients=8)
WAITING = {RUNNING: 1.0, FLUSH: 1.0, FOLLOW: 5.0, IDLE: 1.0}
FLUSHING = {"backends": (0.9, 0.1), "threads": [(0.2, 0.1)]}


def make_record(scale: int = 50) -> StudyRecord:
    record = open_record(RECORDS / "v1-pg18").read_record()
    return msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, scale=scale))


def analyse(data: TrialData, load: PlannedWorkload = LOAD, *, scale: int = 50) -> TrialAnalysis:
    return analyse_trial(make_record(scale), load, data)


@functools.cache
def analyse_once() -> TrialAnalysis:
    return analyse(make_timed(WAITING, **FLUSHING))


def with_time_of(data: TrialData, load: PlannedWorkload) -> TrialAnalysis:
    """A trial of which only the clients' time is its own: for tests that look at hundreds."""
    return msgspec.structs.replace(analyse_once(), time=measure_time(data, load))


def judge(trials: Sequence[TrialAnalysis], load: PlannedWorkload = LOAD, *, scale: int = 50) -> Bottleneck:
    found = judge_workload(make_record(scale), load, trials)
    assert found is not None
    return found


def judge_one(data: TrialData, load: PlannedWorkload = LOAD, *, scale: int = 50) -> Bottleneck:
    return judge([analyse(data, load, scale=scale)], load, scale=scale)


@each_row(list_names())
def test_real_records_name_what_was_planted_and_quiet_ones_the_machine(name: str) -> None:
    _, analysis = analyse_kept(name)
    (workload,) = analysis.workloads
    assert workload.bottleneck is not None
    assert workload.bottleneck.resource in right_of(name)
    assert workload.bottleneck.certainty in {Certainty.STRONG, Certainty.LIKELY}
    assert "of the clients' time" in workload.bottleneck.evidence[0]


def test_a_wait_at_the_top_is_a_symptom_where_the_cpus_are_full() -> None:
    """The trap of published reports: the CPUs 99 % busy, and the most frequent wait event named as the cause."""
    found = judge_one(make_timed(WAITING, cpu_share=0.99))
    assert found.resource is Resource.CPU
    assert "all CPUs 99 % busy" in found.evidence[1]
    assert any(symptom.startswith("WAL flush, 75 % of the time") for symptom in found.symptoms)


def test_threads_of_pgbench_that_only_wait_for_full_cpus_are_no_limit_of_its_own() -> None:
    """They wait 30 s for each second that they have one, and backends 9: their turns are shorter. The kernel's threads take a tenth."""
    waits = {RUNNING: 15.0, FLUSH: 6.0, IDLE: 79.0}
    short = {"backends": (1.45, 13.4), "threads": [(0.03, 0.94)] * 6}
    load = make_workload("tpcb-like", clients=100)
    found = judge_one(make_timed(waits, cpu_share=0.87, others_share=0.1, **short), load)
    assert found.resource is Resource.CPU
    assert found.rivals == (
        (
            Resource.LOAD_GENERATOR,
            "nothing speaks against it: pgbench's busiest thread had a CPU or waited for one 97 % of the time",
        ),
    )
    # From 85 % on they are full of the load itself.
    kinds = [
        judge_one(make_timed(waits, cpu_share=own, others_share=0.99 - own, **short), load).resource
        for own in (0.84, 0.86)
    ]
    assert kinds == [Resource.LOAD_GENERATOR, Resource.CPU]
    # CPUs that others fill say nothing of the load: pgbench may have been kept from them by itself.
    assert (
        judge_one(make_timed(waits, cpu_share=0.2, others_share=0.77, **short), load).resource
        is Resource.LOAD_GENERATOR
    )


def test_the_same_waits_are_the_cause_where_the_cpus_are_not() -> None:
    found = judge_one(make_timed(WAITING, **FLUSHING))
    assert found.resource is Resource.WAL_FLUSH
    assert found.share is not None
    assert found.share.ratio == pytest.approx(0.75)


@each_row([("synchronous_commit", "off", True), ("fsync", "off", True), ("synchronous_commit", "local", False)])
def test_waits_for_wal_that_no_commit_flushes_are_for_its_writing(name: str, value: str, is_writing: bool) -> None:
    trial = analyse(make_timed(WAITING, **FLUSHING))
    setting = SettingFact(name=name, value=value, unit=None, boot_value="on", source="session")
    found = judge([msgspec.structs.replace(trial, record=msgspec.structs.replace(trial.record, settings=(setting,)))])
    assert (found.resource, found.part) == (Resource.WAL_FLUSH, "writing WAL" if is_writing else "")


def judge_unseen(
    counts: dict[tuple[str, str, str], float],
    *,
    scale: int = 50,
    threads: Sequence[tuple[float, float]] | None = None,
    statements: Sequence[str] = (),
) -> Bottleneck:
    """Of a server whose machine nobody saw, loaded from a machine where pgbench's threads were counted, or were not."""
    data = make_timed(counts, threads=threads)
    unseen = msgspec.structs.replace(data, os=None, generator=data.os if threads else None, gaps=UNSEEN_GAPS)
    record = msgspec.structs.replace(make_record(scale), host=None)
    timed = tuple(StatementTime(script="mine", statement=one, latency_ms=1.0, failures=0) for one in statements)
    trial = msgspec.structs.replace(analyse_trial(record, LOAD, unseen), statements=timed)
    found = judge_workload(record, LOAD, [trial])
    assert found is not None
    return found


def test_no_wait_is_a_sure_limit_where_nobody_saw_whether_the_cpus_were_full() -> None:
    counts = {ROW: 7.0, RUNNING: 0.5, IDLE: 0.5}
    assert judge_one(make_timed(counts), scale=1).certainty is Certainty.STRONG
    found = judge_unseen(counts, scale=1)
    assert (found.resource, found.certainty) == (Resource.LOCK, Certainty.LIKELY)
    assert any(cause is Resource.CPU and "was not observed" in against for cause, against in found.rivals)
    assert found.absent[0] == "CPUs, memory and disks: nobody looked at this server's machine"


def test_running_backends_make_unseen_cpus_likely_and_no_more() -> None:
    found = judge_unseen({RUNNING: 7.5, IDLE: 0.5})
    assert (found.resource, found.certainty) == (Resource.CPU, Certainty.LIKELY)
    assert "whether or not they had a CPU" in found.evidence[0]


def test_a_wait_that_is_less_than_what_unseen_cpus_may_have_taken_is_not_named() -> None:
    """A backend that is ready and gets no CPU looks as if it waited for its client."""
    seldom = {FLUSH: 3.5, RUNNING: 1.0, IDLE: 3.5}
    assert judge_one(make_timed(seldom, **FLUSHING)).resource is Resource.WAL_FLUSH
    found = judge_unseen(seldom, threads=[(0.2, 0.1)])
    assert found.resource is Resource.UNKNOWN
    assert found.evidence[0].startswith("in 56 % of the clients' time their backends ran, waited for a CPU")
    assert judge_unseen({FLUSH: 5.0, RUNNING: 1.0, IDLE: 2.0}, threads=[(0.2, 0.1)]).resource is Resource.WAL_FLUSH


def test_a_generator_without_time_is_named_wherever_the_server_is() -> None:
    found = judge_unseen({RUNNING: 0.5, IDLE: 7.5}, threads=[(0.3, 0.69)])
    assert (found.resource, found.certainty) == (Resource.LOAD_GENERATOR, Certainty.LIKELY)
    assert found.absent == ("CPUs, memory and disks: nobody looked at this server's machine",)


def make_generator(host: str, *, sent_per_s: float, thread_ratio: float = 0.2) -> GeneratorFigures:
    return GeneratorFigures(
        host=host,
        clients=4,
        threads=1,
        tps=sent_per_s,
        p99_ms=1.0,
        cpu_s=1.0,
        stream_cpu_s=0.1,
        thread_ratio=thread_ratio,
        machine_cpu_ratio=0.3,
        sent_per_s=sent_per_s,
        empty_per_s=10_000.0,
        clock=None,
    )


def test_a_load_host_that_sends_what_it_can_is_named_where_the_server_waits_for_clients() -> None:
    def judge_sent(counts: dict[tuple[str, str, str], float], *sent: float, threads: float = 0.2) -> Bottleneck:
        trial = analyse(make_timed(counts, backends=(0.4, 0.05), threads=[(threads, 0.1)] * 4))
        hosts = [make_generator(f"load{n}", sent_per_s=each, thread_ratio=n * 0.4) for n, each in enumerate(sent, 1)]
        return judge([msgspec.structs.replace(trial, generators=tuple(hosts))])

    waits = {RUNNING: 0.4, IDLE: 7.6}
    found = judge_sent(waits, 2_000.0, 9_000.0)
    assert (found.resource, found.part) == (Resource.LOAD_GENERATOR, "pgbench on load2")
    assert "load2 sent 9,000 statements a second, 90 % of the 10,000 empty ones that it can send" in found.evidence
    # Far from what they can send, they wait for something else.
    assert judge_sent(waits, 2_000.0, 3_000.0).resource is Resource.CLIENT
    # A server that is busy itself is the limit, whatever the hosts send.
    flushing = judge_sent({RUNNING: 0.4, FLUSH: 7.0, IDLE: 0.6}, 2_000.0, 9_000.0)
    assert flushing.resource is Resource.WAL_FLUSH
    room = judge_sent({RUNNING: 0.4, FLUSH: 7.0, IDLE: 0.6}, 1_000.0, 2_000.0)
    assert any(
        said.startswith("load1 can send 10,000 empty statements a second, and sent 1,000") for said in room.evidence
    )
    # A thread that is held back is not full, and yet does all that it can.
    mixed = {RUNNING: 0.4, FLUSH: 2.8, IDLE: 4.8}
    held = judge_sent(mixed, 2_000.0, 9_000.0, threads=0.62)
    assert (held.resource, held.part) == (Resource.LOAD_GENERATOR, "pgbench on load2")
    assert judge_sent(mixed, 2_000.0, 6_000.0, threads=0.62).resource is Resource.WAL_FLUSH
    # Full threads are named by the host that has them.
    full = judge_sent(waits, 2_000.0, 3_000.0, threads=0.85)
    assert (full.resource, full.part) == (Resource.LOAD_GENERATOR, "pgbench on load2")


def test_only_clients_that_sleep_wait_for_themselves_where_nobody_saw_the_cpus() -> None:
    idle = {RUNNING: 0.5, IDLE: 7.5}
    threads = [(0.1, 0.02)]
    assert judge_unseen(idle, threads=threads, statements=["SELECT 1;"]).resource is Resource.UNKNOWN
    found = judge_unseen(idle, threads=threads, statements=[r"\sleep 10 ms", "SELECT 1;"])
    assert (found.resource, found.certainty) == (Resource.CLIENT, Certainty.LIKELY)


@pytest.mark.parametrize(("gaps", "settings"), [(UNSEEN_GAPS, ()), ((), (UNLOGGED,))])
def test_checkpoints_are_seen_by_their_counter_where_no_log_shows_them(
    gaps: tuple[Gap, ...], settings: tuple[SettingFact, ...]
) -> None:
    trial = analyse_once()
    of_server = msgspec.structs.replace(trial.record, settings=settings)
    trial = msgspec.structs.replace(trial, record=of_server, gaps=gaps, transactions_count=1000)
    assert trial.record.load_s is not None
    for ms, ratio in ((2.0, 2.0 / trial.record.load_s), (1e6, 1.0), (None, None)):
        counted = msgspec.structs.replace(trial, counts_per_transaction={"checkpoint_write_ms": ms})
        assert read_signs(make_record(), LOAD, counted).writing_ratio == (
            None if ratio is None else pytest.approx(ratio)
        )


def test_full_cpus_of_others_are_no_reason_where_the_loads_own_waits_were_counted() -> None:
    found = judge_one(make_timed(WAITING, cpu_share=0.05, others_share=0.89, **FLUSHING))
    assert found.resource is Resource.WAL_FLUSH


def test_full_cpus_are_blamed_with_what_was_seen_and_no_more() -> None:
    found = judge_one(make_timed(WAITING, cpu_share=0.99))
    assert (found.resource, found.certainty) == (Resource.CPU, Certainty.LIKELY)
    assert found.evidence[0].startswith("12 % (12 to 12 %) of the clients' time")
    assert found.evidence[1].endswith("the rest of that time is attributed to them, too")
    assert found.share is not None
    assert found.share.ratio == pytest.approx(1 / 8)


@pytest.mark.parametrize("others", [None, 0.6])
def test_who_fills_the_cpus_must_be_seen_where_nobody_counted_for_the_backends(others: float | None) -> None:
    """Else neither the waits nor the CPUs can be named."""
    trial = analyse(make_timed(WAITING, cpu_share=0.99))
    found = judge([msgspec.structs.replace(trial, shares={**trial.shares, "cpu_others_ratio": others})])
    assert (found.resource, found.certainty) == (Resource.UNKNOWN, Certainty.UNKNOWN)
    assert found.evidence[0].startswith("all CPUs 99 % busy")


def test_full_cpus_are_seen_although_some_of_their_time_is_stolen() -> None:
    """No CPU can be busy while the hypervisor has it: of 90 % that it left, all is used."""
    trial = analyse(make_timed(WAITING, cpu_share=0.9))
    stolen = msgspec.structs.replace(trial, shares={**trial.shares, "cpu_steal_ratio": 0.1})
    assert judge([trial]).resource is not Resource.CPU
    found = judge([stolen])
    assert found.resource is Resource.CPU
    assert found.evidence[1].startswith("all CPUs 90 % busy and 10 % stolen by the hypervisor")
    signs = read_signs(make_record(), LOAD, stolen)
    assert list_support(signs, Resource.CPU) == ("the CPUs were 90 % busy and 10 % stolen by the hypervisor",)
    others = judge([msgspec.structs.replace(stolen, shares={**stolen.shares, "cpu_others_ratio": None})])
    assert others.resource is Resource.UNKNOWN
    assert others.evidence[0].startswith("all CPUs 90 % busy and 10 % stolen")


@pytest.mark.parametrize(("busy", "others"), [(0.98, 0.51), (0.944, 0.493), (0.537, 0.046)])
def test_a_load_on_some_of_the_cpus_is_judged_by_these_whatever_runs_on_the_rest(busy: float, others: float) -> None:
    trial = analyse(make_timed({IDLE: 6.2, FLUSH: 1.7, RUNNING: 0.1}))
    record = msgspec.structs.replace(
        make_record(), host=msgspec.structs.replace(make_record().host, cpu_count=1, cpu_limit=None)
    )
    shares = {**trial.shares, "cpu_busy_ratio": busy, "cpu_others_ratio": others}
    found = judge_workload(record, LOAD, [msgspec.structs.replace(trial, shares=shares, cpus_seen_count=2)])
    assert found is not None
    assert (found.resource, found.certainty) == (Resource.CPU, Certainty.LIKELY)


@each_row(
    [
        ({}, (6.0, 0.06), 64, True),
        # Half of them are busy, a queue, a quota that runs out, and CPUs of which nobody counted who waits for one.
        ({"cpu_busy_ratio": 0.6}, (6.0, 0.06), 64, False),
        ({}, (4.0, 2.0), 64, False),
        ({}, None, 64, False),
        # The load itself uses three of the four that it may use.
        ({}, (6.0, 0.06), 4, False),
    ]
)
def test_where_cpus_are_idle_the_speed_of_one_limits_and_not_their_number(
    shares: dict[str, float], backends: tuple[float, float] | None, usable: int, is_of_one: bool
) -> None:
    trial = analyse(make_timed({RUNNING: 6.0, IDLE: 2.0}, backends=backends, threads=[(0.1, 0.0)]))
    shares = {**trial.shares, "cpu_busy_ratio": 0.06, "cpu_others_ratio": 0.01, "cpu_steal_ratio": 0.0, **shares}
    host = msgspec.structs.replace(make_record().host, cpu_count=usable, cpu_limit=None)
    record = msgspec.structs.replace(make_record(), host=host)
    found = judge_workload(record, LOAD, [msgspec.structs.replace(trial, shares=shares, cpus_seen_count=64)])
    assert found is not None
    assert (found.resource, found.is_of_one_cpu) == (Resource.CPU, is_of_one)
    said = "the CPUs were 6 % busy: each client waits for one of them at a time"
    assert (said in found.evidence) is is_of_one


def test_a_full_pgbench_keeps_cpus_from_being_sure() -> None:
    """Of a load generator in a control group: pgbench's thread 96 % busy, mostly waiting."""
    free = make_timed(
        {RUNNING: 7.5, IDLE: 0.5}, backends=(0.5, 7.0), threads=[(0.1, 0.2)], cpu_share=0.2, others_share=0.77
    )
    assert judge_one(free).certainty is Certainty.STRONG
    full = make_timed(
        {RUNNING: 7.5, IDLE: 0.5}, backends=(0.5, 7.0), threads=[(0.1, 0.86)], cpu_share=0.2, others_share=0.77
    )
    found = judge_one(full)
    assert (found.resource, found.certainty) == (Resource.CPU, Certainty.LIKELY)
    assert any(sentence.startswith("but pgbench's busiest thread") for sentence in found.evidence)


def test_what_repeats_a_share_or_is_small_is_no_support() -> None:
    """The kernel's count is where the CPU share is from, other programs are a rival, and 5 % of a card are none."""
    queue = make_timed({RUNNING: 7.0, FLUSH: 1.0}, backends=(1.0, 6.0), threads=[(0.1, 0.1)], others_share=0.2)
    found = judge_one(queue)
    assert (found.resource, found.certainty) == (Resource.CPU, Certainty.LIKELY)
    assert any("runnable backends waited for a CPU" in sentence for sentence in found.evidence)


def test_a_share_that_chance_makes_is_not_sure() -> None:
    by_second = [8.0, 8.0, 8.0, 0.5, 0.5, 0.5, 8.0, 8.0, 0.5, 8.0]
    data = make_timed({ROW: by_second, FLUSH: [8.0 - one for one in by_second]}, **FLUSHING)
    found = judge_one(data, scale=1)
    assert (found.resource, found.certainty) == (Resource.LOCK, Certainty.LIKELY)


def test_few_looks_make_nothing_sure() -> None:
    waits = {ROW: 6.0, RUNNING: 1.0, FLUSH: 1.0}
    seen = analyse(make_timed(waits, **FLUSHING), scale=1)
    assert seen.time is not None
    few = msgspec.structs.replace(seen, time=msgspec.structs.replace(seen.time, observed_count=20))
    assert judge([few], scale=1).certainty is Certainty.LIKELY


WRITING = Event(kind="checkpoint", t_s=0.0, until_s=9.5, text="checkpoint (wal)")


def with_writes(pages: float, *, events: tuple[Event, ...] = (WRITING,), **shares: float) -> TrialAnalysis:
    """A trial that waits for flushes, of which the checkpointer wrote so many bytes of data for each of WAL."""

    def draw(label: str, per_s: float) -> Series:
        return Series(metric="", label=label, unit="bytes/s", t_s=(1.0, 2.0), values=(per_s, per_s))

    trial = analyse(make_timed(WAITING, **FLUSHING))
    drawn = {ChartKind.WAL: (draw("WAL", 1e6),), ChartKind.BUFFER_WRITES: (draw("checkpointer", pages * 1e6),)}
    return msgspec.structs.replace(
        trial, charts={**trial.charts, **drawn}, events=events, shares={**trial.shares, **shares}
    )


def test_flushes_are_put_down_to_writes_only_where_postgresql_wrote_data() -> None:
    found = judge([with_writes(0.6)])
    assert (found.resource, found.certainty) == (Resource.DATA_WRITE, Certainty.LIKELY)
    assert found.rivals[0][0] is Resource.WAL_FLUSH
    assert found.evidence[1] == "checkpoints wrote 95 % of the time; PostgreSQL wrote 0.6 bytes of data for each of WAL"
    # A checkpoint that takes its time, a disk that flushes all the time: neither is data that was written.
    assert judge([with_writes(0.02, disk_util_ratio=0.97)]).resource is Resource.WAL_FLUSH
    assert judge([with_writes(0.6, events=(), disk_util_ratio=0.97)]).resource is Resource.WAL_FLUSH


def make_device(name: str, *below: str) -> BlockDevice:
    return BlockDevice(
        name=name,
        kind="lvm" if below else "disk",
        is_rotational=False,
        scheduler=None,
        schedulers=(),
        read_ahead_kb=None,
        below=below,
    )


@pytest.mark.parametrize(
    ("data", "wal", "devices", "limit"),
    [
        ("vda", "nvme9n1", [], Resource.WAL_FLUSH),
        ("dm-0", "dm-1", [("dm-0", "vda"), ("dm-1", "vdb")], Resource.WAL_FLUSH),
        ("dm-0", "dm-1", [("dm-0", "vda"), ("dm-1", "md0"), ("md0", "vda", "vdb")], Resource.DATA_WRITE),
        ("vda", "dm-1", [("dm-1", "vda")], Resource.DATA_WRITE),
        # Two partitions.
        ("vda", "vda", [], Resource.DATA_WRITE),
        # A file system without a device, and a volume of which nobody noted what it is made of.
        (None, "nvme9n1", [], Resource.DATA_WRITE),
        ("vda", "dm-1", [], Resource.DATA_WRITE),
    ],
)
def test_flushes_wait_for_no_data_on_a_disk_that_has_none(
    data: str | None, wal: str, devices: list[tuple[str, ...]], limit: Resource
) -> None:
    record = make_record()
    assert record.host is not None
    disk = msgspec.structs.replace(record.host.data_disk, device="/dev/mapper/data", block_device=data)
    facts = PreflightFacts(
        wal=msgspec.structs.replace(disk, device="/dev/mapper/wal", block_device=wal),
        devices=tuple(make_device(*one) for one in devices if one[0] == data),
        wal_devices=tuple(make_device(*one) for one in devices if one[0] != data),
    )
    apart = msgspec.structs.replace(record, host=msgspec.structs.replace(record.host, data_disk=disk), preflight=facts)
    found = judge_workload(apart, LOAD, [with_writes(0.6)])
    assert found is not None
    assert found.resource is limit
    assert any("same disk" in symptom for symptom in found.symptoms) is (limit is Resource.DATA_WRITE)


@pytest.mark.parametrize(
    ("waits", "threads", "scale"),
    [
        ({ROW: 7.2, IDLE: 0.8}, [(0.05, 0.05)], 50),
        ({IDLE: 8.0}, [(0.7, 0.0)], 50),
        ({ROW: 4.0, IDLE: 4.0}, [(0.1, 0.0)], 50),
        ({ROW: 5.0, IDLE: 3.0}, [(0.1, 0.0)], 50),
    ],
)
def test_time_of_no_limit_is_neither_lost_nor_given_away(
    waits: dict[tuple[str, str, str], float], threads: list[tuple[float, float]], scale: int
) -> None:
    found = judge_one(make_timed(waits, backends=(0.001, 0.0), threads=threads), scale=scale)
    if waits.get(ROW, 0.0) > 4.0:
        # Nobody was seen holding a row for something else.
        assert found.resource is Resource.LOCK
    assert found.evidence


def test_clocks_that_were_off_are_said() -> None:
    found = judge_one(make_timed(WAITING, **FLUSHING))
    assert any("track_wal_io_timing was off" in one for one in found.absent)


def test_requests_under_way_are_what_the_devices_clock_grew_by() -> None:
    """Ten reads of 100 ms in one second and a thousand of 1 ms in the next: one under way in each."""
    trial = analyse(make_timed(WAITING, **FLUSHING))

    def draw(label: str, *values: float | None) -> Series:
        return Series(metric="", label=label, unit="", t_s=(1.0, 2.0, 3.0), values=values)

    charts = {
        **trial.charts,
        ChartKind.DISK_IOPS: (draw("reads", 10.0, 1000.0, 0.0),),
        ChartKind.DISK_LATENCY: (draw("read", 100.0, 1.0, None),),
    }
    signs = read_signs(make_record(), LOAD, msgspec.structs.replace(trial, charts=charts))
    assert signs.reading == pytest.approx(2 / 3)


def test_waits_that_are_a_queue_for_a_cpu_are_the_cpus() -> None:
    found = judge_one(make_timed(WAITING, backends=(1.0, 5.5), threads=[(0.2, 0.5)]))
    assert found.resource is Resource.CPU
    assert any("runnable backends waited for a CPU 85 %" in sentence for sentence in found.evidence)


def test_row_locks_at_a_small_scale_are_the_cause() -> None:
    waits = {ROW: 6.0, RUNNING: 1.0, FLUSH: 1.0}
    found = judge_one(make_timed(waits, **FLUSHING), scale=1)
    assert (found.resource, found.certainty) == (Resource.LOCK, Certainty.STRONG)
    assert "8 clients update the rows of one branch" in found.evidence


def test_row_locks_by_chance_are_a_symptom_of_what_their_holders_wait_for() -> None:
    waits = {ROW: 4.0, RUNNING: 0.5, FLUSH: 1.0, FOLLOW: 2.5}
    found = judge_one(make_timed(waits, backends=(0.3, 0.2), threads=[(0.2, 0.1)]), scale=50)
    assert found.resource is Resource.WAL_FLUSH
    assert any(symptom.startswith("row locks, 50 %") for symptom in found.symptoms)


@pytest.mark.parametrize(("waiting", "resource"), [(2.0, Resource.CPU), (5.5, Resource.LIGHTWEIGHT_LOCK)])
def test_lightweight_locks_are_no_row_locks(waiting: float, resource: Resource) -> None:
    reading = make_workload("select-only", clients=8)
    waits = {RUNNING: 7.0 - waiting, ("active", "LWLock", "LockManager"): waiting, IDLE: 1.0}
    for load, scale in ((reading, 50), (reading, 4), (LOAD, 50)):
        found = judge_one(
            make_timed(waits, backends=(6.6 - waiting, 0.4), threads=[(0.2, 0.05)] * 2), load, scale=scale
        )
        assert (found.resource, found.certainty) == (resource, Certainty.LIKELY)
        assert not any("row" in words for words in found.symptoms)


def test_a_load_that_only_reads_meets_at_no_row_by_chance() -> None:
    waits = {("active", "Lock", "relation"): 2.0, RUNNING: 5.0, IDLE: 1.0}
    data = make_timed(waits, backends=(4.6, 0.4), threads=[(0.2, 0.05)] * 2)
    assert any("row locks" in words for words in judge_one(data).symptoms)
    found = judge_one(data, make_workload("select-only", clients=8))
    assert not any("row" in words for words in found.symptoms)
    assert Resource.LOCK in dict(found.rivals)


def test_row_locks_of_ones_own_script_are_taken_as_they_are() -> None:
    load = msgspec.structs.replace(LOAD, name="mine", scripts=(("/tmp/hot.sql", 1),))
    assert judge_one(make_timed({ROW: 6.0, RUNNING: 1.0, FLUSH: 1.0}, **FLUSHING), load).resource is Resource.LOCK


def test_flushes_that_the_server_timed_itself_make_it_sure() -> None:
    data = make_timed(WAITING, **FLUSHING)
    timed = msgspec.structs.replace(
        data.record,
        counters_before={**data.record.counters_before, "wal_sync_ms": 0.0},
        counters_after={**data.record.counters_after, "wal_sync_ms": 0.8 * COUNT},
    )
    found = judge_one(msgspec.structs.replace(data, record=timed))
    assert (found.resource, found.certainty) == (Resource.WAL_FLUSH, Certainty.STRONG)
    assert found.evidence[1] == "a flush was under way 80 % of the time, by the server's own clock"


@pytest.mark.parametrize(("read_ms", "certainty"), [(5.0, Certainty.STRONG), (0.5, Certainty.LIKELY)])
def test_reads_that_the_server_timed_itself_agree_with_what_was_seen_or_do_not(
    read_ms: float, certainty: Certainty
) -> None:
    data = make_timed({READ: 6.0, RUNNING: 1.0, IDLE: 1.0}, **FLUSHING)
    timed = msgspec.structs.replace(
        data.record,
        counters_before={**data.record.counters_before, "blk_read_ms": 0.0},
        counters_after={**data.record.counters_after, "blk_read_ms": read_ms * COUNT},
    )
    found = judge_one(msgspec.structs.replace(data, record=timed))
    assert (found.resource, found.certainty) == (Resource.DATA_READ, certainty)


def test_a_full_thread_of_pgbench_is_named_with_what_it_was_seen_by() -> None:
    data = make_timed({RUNNING: 1.0, IDLE: 7.0}, backends=(1.0, 0.05), threads=[(0.97, 0.02)])
    found = judge_one(data)
    assert (found.resource, found.certainty) == (Resource.LOAD_GENERATOR, Certainty.STRONG)
    assert found.evidence[1] == "pgbench's busiest thread had a CPU or waited for one 99 % of the time"


def test_clients_that_think_are_named_where_pgbench_sleeps() -> None:
    found = judge_one(make_timed({RUNNING: 0.5, IDLE: 7.5}, backends=(0.5, 0.0), threads=[(0.05, 0.0)]))
    assert (found.resource, found.certainty) == (Resource.CLIENT, Certainty.STRONG)


def test_round_trips_of_clients_that_cannot_think_are_no_limit() -> None:
    data = make_timed({RUNNING: 2.4, FLUSH: 2.2, IDLE: 3.4}, backends=(2.2, 0.2), threads=[(0.1, 0.0)])
    found = judge_one(data)
    assert found.resource is Resource.CPU
    assert any(symptom.startswith("round trips, 41 %") for symptom in found.symptoms)
    mine = msgspec.structs.replace(LOAD, scripts=(("/tmp/mine.sql", 1),))
    assert judge_one(data, mine).resource is Resource.CLIENT


def test_clients_of_an_old_record_may_have_waited_for_a_cpu_so_that_nobody_knows() -> None:
    found = judge_one(make_timed({RUNNING: 1.0, IDLE: 7.0}))
    assert (found.resource, found.certainty) == (Resource.UNKNOWN, Certainty.UNKNOWN)
    assert "how long pgbench's threads waited for a CPU was not recorded" in found.evidence[0]


def schedule(**changes: object) -> Bottleneck:
    """Of a trial at 1,000 TPS scheduled, which did 10,000 transactions in 10 s, unless it says otherwise."""
    load = make_workload("tpcb-like", clients=8, rate_tps=1000.0)
    trial = analyse(make_timed({RUNNING: 0.5, FLUSH: 0.5, IDLE: 7.0}, **FLUSHING), load)
    seen = {"schedule_lag_ms": 0.2, "pgbench_latency_ms": 2.0, **changes}
    return judge([msgspec.structs.replace(trial, **seen)], load)


def test_a_schedule_that_is_kept_is_all_that_limits() -> None:
    found = schedule()
    assert (found.resource, found.certainty) == (Resource.CLIENT, Certainty.STRONG)
    assert found.evidence == (
        "10,000 transactions of 10,000 scheduled, which chance explains",
        "they began 0.2 ms late in the mean, 10 % of their latency",
    )


def test_nothing_is_scheduled_while_pgbench_connects() -> None:
    """It took half a second of the ten."""
    found = schedule(transactions_count=9500, pgbench_tps=1000.0)
    assert (found.resource, found.certainty) == (Resource.CLIENT, Certainty.STRONG)
    assert found.evidence[0] == "9,500 transactions of 9,500 scheduled, which chance explains"


def test_transactions_were_late_by_a_share_of_the_same_transactions_latency() -> None:
    """Those of the steady part took less than the lag of all, most of which fell into the seconds before it."""
    found = schedule(schedule_lag_ms=1.0, pgbench_latency_ms=4.0, latency_mean_ms=0.8)
    assert found.evidence[1] == "they began 1 ms late in the mean, 25 % of their latency"


def test_how_late_transactions_begin_must_be_known_to_be_sure_of_a_schedule() -> None:
    found = schedule(schedule_lag_ms=None)
    assert (found.resource, found.certainty) == (Resource.CLIENT, Certainty.LIKELY)
    assert found.absent == ("how late transactions of the schedule began",)


@pytest.mark.parametrize(
    "changes",
    [
        # A backlog of 4 % at the end, of 10,000: four deviations and more.
        {"transactions_count": 9600, "pgbench_tps": 960.0},
        {"transactions_count": 9600, "pgbench_tps": None},
        {"skipped_count": 800},
        {"late_count": 800},
        {"schedule_lag_ms": 1.5},
    ],
)
def test_a_load_that_falls_behind_its_schedule_is_limited_by_something_else(changes: dict[str, object]) -> None:
    assert schedule(**changes).resource is not Resource.CLIENT


def test_no_share_is_large_enough_to_be_the_limit() -> None:
    waits = {RUNNING: 1.9, FLUSH: 1.6, ROW: 1.5, READ: 1.5, IDLE: 1.5}
    load = msgspec.structs.replace(LOAD, scripts=(("/tmp/own.sql", 1),))
    found = judge_one(make_timed(waits, backends=(1.0, 0.9), threads=[(0.1, 0.0)]), load)
    assert (found.resource, found.certainty) == (Resource.UNKNOWN, Certainty.UNKNOWN)
    assert "the largest share" in found.evidence[0]
    assert len(found.rivals) == 5


def test_waits_that_nobody_has_told_are_not_known() -> None:
    found = judge_one(make_timed({("active", "Extension", "Extension"): 6.0, RUNNING: 2.0}, **FLUSHING))
    assert found.resource is Resource.UNKNOWN
    assert "in waits of unknown cause" in found.evidence[0]


def test_two_that_are_as_large_are_likely_and_rivals() -> None:
    waits = {READ: 4.0, FLUSH: 3.6, RUNNING: 0.4}
    found = judge_one(make_timed(waits, backends=(0.2, 0.2), threads=[(0.1, 0.0)]))
    assert (found.resource, found.certainty) == (Resource.DATA_READ, Certainty.LIKELY)
    assert found.rivals[0][0] is Resource.WAL_FLUSH


def test_trials_that_do_not_agree_make_it_likely_at_best() -> None:
    flush, full = analyse(make_timed(WAITING, **FLUSHING)), analyse(make_timed(WAITING, cpu_share=0.99))
    found = judge([flush, full, flush])
    assert (found.resource, found.certainty) == (Resource.WAL_FLUSH, Certainty.LIKELY)
    assert found.evidence[-1] == "2 of 3 trials say so; CPU in 1"
    assert found.share is not None
    assert found.share.low_ratio is None


def test_half_of_the_trials_are_not_most_of_them() -> None:
    flush, full = analyse(make_timed(WAITING, **FLUSHING)), analyse(make_timed(WAITING, cpu_share=0.99))
    for trials in ([flush, full], [full, flush]):
        found = judge(trials)
        assert (found.resource, found.certainty, found.trial) == (Resource.UNKNOWN, Certainty.UNKNOWN, None)
        assert "the 2 trials do not agree" in found.evidence[0]
        assert {resource for resource, _ in found.rivals} == {Resource.WAL_FLUSH, Resource.CPU}


def test_several_trials_say_how_far_they_are_apart_and_one_gives_all_other_figures() -> None:
    def with_flushes(count: float, number: int) -> TrialAnalysis:
        trial = analyse(make_timed({ROW: count, RUNNING: 1.0, FLUSH: 7.0 - count}, **FLUSHING), scale=1)
        planned = msgspec.structs.replace(trial.record.planned, number=number)
        record = msgspec.structs.replace(trial.record, planned=planned)
        return in_round(msgspec.structs.replace(trial, record=record), number)

    found = judge([with_flushes(count, n) for n, count in enumerate((5.8, 6.2, 6.0), 1)], scale=1)
    assert (found.resource, found.certainty, found.trial) == (Resource.LOCK, Certainty.STRONG, 3)
    assert found.share is not None
    # Student's t of 2: 4.303 x .025 / sqrt 3.
    assert (found.share.low_ratio, found.share.high_ratio) == pytest.approx((0.75 - 0.0621, 0.75 + 0.0621), abs=1e-3)
    assert found.evidence[0].startswith("75 % (69 to 81 %) of the clients' time")
    apart = judge([with_flushes(count, n) for n, count in enumerate((4.0, 6.9), 1)], scale=1)
    assert (apart.resource, apart.certainty) == (Resource.LOCK, Certainty.LIKELY)


def test_where_one_trial_was_observed_it_alone_is_judged() -> None:
    def as_trial(trial: TrialAnalysis, number: int) -> TrialAnalysis:
        planned = msgspec.structs.replace(trial.record.planned, number=1 + number, round=number)
        return msgspec.structs.replace(trial, record=msgspec.structs.replace(trial.record, planned=planned))

    flush, full = analyse(make_timed(WAITING, **FLUSHING)), analyse(make_timed(WAITING, cpu_share=0.99))
    found = judge([as_trial(flush, 0), as_trial(full, 1), as_trial(full, 2)])
    assert (found.resource, found.trial) == (Resource.WAL_FLUSH, 1)


def test_trials_within_which_variants_alternate_have_no_verdict() -> None:
    trial = analyse(make_timed(WAITING, **FLUSHING))
    planned = msgspec.structs.replace(trial.record.planned, variants=("a", "b"))
    mixed = msgspec.structs.replace(trial, record=msgspec.structs.replace(trial.record, planned=planned))
    assert judge_workload(make_record(), LOAD, [mixed]) is None


def test_without_a_look_at_waits_full_cpus_are_still_seen() -> None:
    gap = Gap(source="server sampler", reason="ended by signal 9")
    data = msgspec.structs.replace(make_timed(WAITING, cpu_share=0.99), server=None, gaps=(gap,))
    found = judge_one(data)
    assert (found.resource, found.certainty) == (Resource.CPU, Certainty.LIKELY)
    assert found.absent[0] == "ended by signal 9"


def test_without_any_sampler_nothing_is_known_and_all_of_it_said() -> None:
    data = msgspec.structs.replace(make_timed(WAITING), server=None, os=None)
    found = judge_one(data)
    assert (found.resource, found.certainty, found.evidence) == (Resource.UNKNOWN, Certainty.UNKNOWN, ())
    assert "how busy the CPUs were" in found.absent


def test_a_load_of_failed_trials_has_no_verdict() -> None:
    data = make_timed(WAITING)
    failed = msgspec.structs.replace(data.record, status=TrialStatus.FAILED, error=ErrorFact(fact="it broke"))
    trial = analyse(msgspec.structs.replace(data, record=failed))
    assert judge_workload(make_record(), LOAD, [trial]) is None
    assert judge_workload(make_record(), LOAD, []) is None


@pytest.mark.parametrize("name", ["v1-pg15", "v1-pg18"])
def test_records_of_before_are_judged_without_what_they_lack(name: str) -> None:
    store = open_record(RECORDS / name)
    trials = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in store.read_trials()]
    named = [workload.bottleneck for workload in analyse_study(store.read_record(), trials).workloads]
    # One kept its schedule, of one all trials failed; nobody counted what clients waited for in the others.
    assert {one.certainty for one in named if one is not None and one.resource is not Resource.CLIENT} <= {
        Certainty.LIKELY,
        Certainty.UNKNOWN,
    }


@given(
    waits=st.dictionaries(
        st.sampled_from([RUNNING, FLUSH, FOLLOW, ROW, READ, IDLE, ("active", "?", "?")]),
        st.floats(0.01, 8.0),
        min_size=1,
    ),
    backends=st.none() | st.tuples(st.floats(0.001, 4.0), st.floats(0.0, 8.0)),
    threads=st.none() | st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=3),
    scale=st.sampled_from([1, 50]),
    script=st.sampled_from(["tpcb-like", "select-only", "/tmp/own.sql"]),
)
def test_whatever_was_seen_gets_a_verdict_with_its_reasons(
    waits: dict[tuple[str, str, str], float],
    backends: tuple[float, float] | None,
    threads: list[tuple[float, float]] | None,
    scale: int,
    script: str,
) -> None:
    load = msgspec.structs.replace(LOAD, scripts=((script, 1),))
    data = make_timed(waits, seconds=4, backends=backends, threads=threads)
    found = judge([with_time_of(data, load)], load, scale=scale)
    assert found.evidence
    assert (found.resource is Resource.UNKNOWN) is (found.certainty is Certainty.UNKNOWN)
    assert found.share is None or 0.0 < found.share.ratio <= 1.0 + 1e-9
    assert found.resource not in {resource for resource, _ in found.rivals}


def test_where_only_pgbench_is_seen_with_time_left_nobody_knows() -> None:
    shares = [
        TimeShare(resource=resource, ms=ratio, ratio=ratio, low_ratio=None, high_ratio=None, how="looks")
        for resource, ratio in ((Resource.LOAD_GENERATOR, 0.6), (Resource.CLIENT, 0.4))
    ]
    time = TransactionTime(transaction_ms=1.0, shares=tuple(shares), observed_count=100, generator_ratio=0.6)
    found = judge([msgspec.structs.replace(analyse_once(), time=time)])
    assert found.resource is Resource.UNKNOWN
    assert found.evidence[:2] == (
        "none of the clients' time is where the server could be limited",
        "pgbench's own work, 60 % of the time, with time left in its threads",
    )


def test_noise_makes_no_cause() -> None:
    """Quiet seconds that follow each other (AR(1), .7): a load on its CPUs, again and again."""
    draw = np.random.default_rng(2)
    named = []
    for _ in range(100):
        noise = np.zeros((3, 60))
        for i in range(1, 60):
            noise[:, i] = 0.7 * noise[:, i - 1] + draw.normal(0.0, 0.3, 3)
        flush, row, idle = np.clip(np.array([[1.2], [0.3], [1.0]]) + noise[:, 30:], 0.0, None)
        running = np.clip(8.0 - flush - row - idle, 0.0, None)
        waits = {FLUSH: flush.tolist(), ROW: row.tolist(), IDLE: idle.tolist(), RUNNING: running.tolist()}
        data = make_timed(waits, seconds=30, backends=(1.6, 3.4), threads=[(0.3, 0.5)], cpu_share=0.4)
        named.append(judge([with_time_of(data, LOAD)]).resource)
    assert set(named) == {Resource.CPU}
