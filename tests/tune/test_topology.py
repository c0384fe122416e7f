"""What is derived for a pooler and for standbys: from which figures, within which bounds, and what is left to the user."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.record.machine.tunables import SlotState
from pgdyno.record.types import ServerFacts
from pgdyno.spec.host import parse_host
from pgdyno.spec.pooler import PoolMode
from pgdyno.spec.topology import TopologySpec
from pgdyno.tune.derive import derive
from pgdyno.tune.hosts import make_shape
from pgdyno.tune.knee import read_knee, read_pool_knee
from pgdyno.tune.measured_load import MeasuredLoad
from pgdyno.tune.rules.standbys import AWAY
from pgdyno.tune.slots import describe_lost_slots
from pgdyno.tune.subject import LoadHints, make_subject_from_shape
from pgdyno.tune.types import (
    DerivedSettings,
    DiskKind,
    MeasuredKnee,
    Origin,
    Pooling,
    Target,
    TuningSubject,
    WorkloadClass,
)
from pgdyno.units import parse_in_unit
from tests.report.build import build_report
from tests.report.build_comparison import build_client_sweep, build_pool_sweep
from tests.tune.subjects import GB, MB, known, make_disk, make_pooling, make_subject

KNEE = MeasuredKnee(clients=10, low=9, high=18, cpu_count=2, how="tpcb-like in some-record (2 CPUs), 1 to 64 clients")


def pooled(
    machine: str = "vm", *, clients: int = 500, fixed: dict[str, str] | None = None, **pooling: object
) -> DerivedSettings:
    subject = make_subject(machine, connections=clients, pooling=make_pooling(clients, **pooling))
    return derive(subject, fixed=fixed)


def ini(tuning: DerivedSettings) -> dict[str, str]:
    return tuning.values_of(Target.POOLER)


def size(tuning: DerivedSettings) -> int:
    return int(ini(tuning)["default_pool_size"])


def standing(**changes: object) -> DerivedSettings:
    return derive(make_subject(**{"standbys": known(2, name="standbys"), **changes}))


def value(tuning: DerivedSettings, name: str) -> str:
    return tuning.values_of(Target.POSTGRESQL)[name]


def test_without_a_topology_nothing_of_it_is_derived() -> None:
    tuning = derive(make_subject())
    assert ini(tuning) == {}
    assert not {"max_wal_senders", "max_slot_wal_keep_size", "hot_standby_feedback"} & {
        one.name for one in tuning.settings
    }


def test_a_pool_by_the_rule_of_thumb_grows_with_cpus_and_with_a_disk_that_is_read() -> None:
    # 2 CPUs, and 3,000 reads a second of 0.7 ms each, of which three quarters find no memory.
    assert size(pooled()) == 2 * 2 + 2
    assert size(pooled("middle")) == 2 * 16 + 2
    quick = make_disk(DiskKind.LOCAL_SSD)
    subject = make_subject(connections=500, pooling=make_pooling(500), disk=quick)
    assert size(derive(subject)) == 2 * 2 + 2 * 2, "no more for the disk than twice the CPUs"
    assert size(derive(msgspec.structs.replace(subject, dataset=known(GB, "bytes")))) == 2 * 2 + 1, "it is cached"
    assert size(pooled(clients=3)) == 3, "no more than clients"


def test_a_measured_knee_stands_before_the_rule_and_the_pool_is_a_little_above_it() -> None:
    tuning = pooled(knee=KNEE)
    assert size(tuning) == 18, "the upper end of its interval"
    (one,) = (one for one in tuning.settings if one.name == "default_pool_size")
    assert "10 clients [9, 18]" in one.reason
    assert one.inputs[0].origin is Origin.MEASURED
    close = msgspec.structs.replace(KNEE, low=10, high=10)
    assert size(pooled(knee=close)) == 15, "half as many again"
    wide = msgspec.structs.replace(KNEE, high=64)
    assert size(pooled(knee=wide)) == 20, "no more than twice"
    for knee, clients, words in (
        (wide, 500, "; the pool is twice that, as it may be more."),
        (wide, 15, "; there are no more clients than the pool has connections."),
        (KNEE, 500, ", and the pool is as large as its upper end."),
        (close, 500, ", and the pool is half as large again."),
    ):
        (one,) = (one for one in pooled(clients=clients, knee=knee).settings if one.name == "default_pool_size")
        assert one.reason.endswith(words)
    for changes, wanted, words in (
        ({"high": None}, 20, "its interval has no upper end"),
        ({"low": None, "high": None}, 15, "has no interval"),
        ({"clients": 32, "low": 32, "high": None, "is_beyond": True}, 32, "TPS still grew at the largest load"),
    ):
        found = pooled(knee=msgspec.structs.replace(KNEE, **changes))
        assert size(found) == wanted
        assert any(words in note for note in found.notes)
        (one,) = (one for one in found.settings if one.name == "default_pool_size")
        assert ("twice that" in one.reason) == (wanted == 20)


@pytest.mark.parametrize(
    ("pooling", "words"),
    [
        ({"knee": msgspec.structs.replace(KNEE, cpu_count=8)}, "this machine has 2 CPUs"),
        ({"no_knee_reason": "some-record has no sweep over clients"}, "some-record has no sweep over clients"),
    ],
)
def test_a_knee_of_another_machine_or_of_none_is_not_used_and_the_reason_told(
    pooling: dict[str, object], words: str
) -> None:
    tuning = pooled(**pooling)
    assert size(tuning) == 6
    assert any(words in note for note in tuning.notes)


def test_the_server_needs_the_connections_of_the_pool_only() -> None:
    tuning = pooled(clients=2000)
    assert value(tuning, "max_connections") == "20", "6, 5 to spare and 3 reserved, in tens"
    assert ini(tuning)["max_client_conn"] == "2200"
    assert tuning.subject.active.value == 6
    assert any("LimitNOFILE=3000" in note for note in tuning.notes)
    alone = derive(make_subject(connections=2000))
    of = lambda one: parse_in_unit(value(one, "work_mem"), "B", is_integer=False)  # noqa: E731
    assert of(tuning) >= of(alone), "fewer sessions share the memory"
    assert not any("use a connection pooler" in note for note in tuning.notes)


def test_a_server_that_has_more_connections_keeps_them_until_its_clients_come_through_the_pooler() -> None:
    subject = make_subject(connections=500, pooling=make_pooling(500), settings={"max_connections": "300"})
    tuning = derive(subject)
    assert value(tuning, "max_connections") == "300"
    assert any("once all come through it, 20 do: --set max_connections=20" in note for note in tuning.notes)
    assert value(derive(subject, fixed={"max_connections": "20"}), "max_connections") == "20"
    few = msgspec.structs.replace(subject, settings={"max_connections": "10"})
    assert value(derive(few), "max_connections") == "20"


def test_session_mode_has_a_connection_for_each_client() -> None:
    tuning = pooled(clients=60, mode=PoolMode.SESSION, knee=KNEE, version=(1, 24))
    assert (size(tuning), value(tuning, "max_connections")) == (60, "70")
    assert "max_prepared_statements" not in ini(tuning)


def test_a_fixed_max_connections_bounds_the_pool_unless_its_size_was_asked_for() -> None:
    tuning = pooled("middle", fixed={"max_connections": "30"})
    assert (size(tuning), value(tuning, "max_connections")) == (22, "30")
    with pytest.raises(SpecError, match="a pool of 40 does not fit into max_connections = 30"):
        pooled("middle", fixed={"max_connections": "30"}, size=known(40, name="pool size"))
    assert size(pooled("middle", size=known(40, name="pool size"))) == 40
    kept = {"max_connections": "60", "superuser_reserved_connections": "20"}
    with pytest.raises(SpecError, match="a pool of 40 does not fit into max_connections = 60"):
        pooled("middle", fixed=kept, size=known(40, name="pool size"))


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        ({"MAX_CONNECTIONS": "30"}, "a pool of 40 does not fit into max_connections = 30"),
        ({"max_connections": "0x1E"}, "a pool of 40 does not fit into max_connections = 0x1E"),
        ({"superuser_reserved_connections": "abc"}, "superuser_reserved_connections cannot be abc"),
    ],
)
def test_a_fixed_setting_is_read_as_the_server_reads_it(fixed: dict[str, str], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        pooled("middle", fixed=fixed, size=known(40, name="pool size"))


@pytest.mark.parametrize(
    ("version", "is_derived", "words"),
    [
        ((1, 24), True, None),
        ((1, 18), False, "PgBouncer 1.18 keeps no prepared statements"),
        (None, False, "whose version is not known"),
    ],
)
def test_prepared_statements_are_kept_where_the_version_can(
    version: tuple[int, int] | None, is_derived: bool, words: str | None
) -> None:
    tuning = pooled(version=version)
    assert ("max_prepared_statements" in ini(tuning)) == is_derived
    assert any("prepared statements" in note for note in tuning.notes) == (words is not None)
    assert words is None or any(words in note for note in tuning.notes)


def test_a_knee_is_read_from_a_sweep_whose_clients_connect_to_the_server() -> None:
    report = build_client_sweep()
    sweeps = report.analysis.sweeps
    found = read_knee(report.record, sweeps, name="some-record")
    assert isinstance(found, MeasuredKnee)
    assert (found.clients, found.low, found.high) == (
        sweeps["tpcb-like"].knee.value,
        sweeps["tpcb-like"].knee.low,
        sweeps["tpcb-like"].knee.high,
    )
    assert (found.cpu_count, found.how) == (2, "tpcb-like in some-record (2 CPUs), 1 to 64 clients")
    (load,) = report.record.plan.workloads
    plan = msgspec.structs.replace(report.record.plan, workloads=(msgspec.structs.replace(load, endpoint="pool"),))
    through = msgspec.structs.replace(report.record, plan=plan)
    assert read_knee(through, sweeps, name="x") == "x has no sweep over clients that connect to the server itself"
    other = build_report()
    assert read_knee(other.record, other.analysis.sweeps, name="x") == "x has no sweep over clients"
    unsure = build_client_sweep(rounds=1, loads=(1, 2, 4))
    assert str(read_knee(unsure.record, unsure.analysis.sweeps, name="x")).startswith(
        "x found no knee (TPS may still grow"
    )
    few = build_client_sweep(loads=(1, 2, 4))
    growing = read_knee(few.record, few.analysis.sweeps, name="x")
    assert isinstance(growing, MeasuredKnee)
    assert (growing.clients, growing.high, growing.is_beyond) == (4, None, True)


def test_a_sweep_over_pool_sizes_sizes_the_pool_and_stands_before_one_over_clients() -> None:
    report = build_pool_sweep()
    found = read_pool_knee(report.record, report.analysis, name="pools")
    assert isinstance(found, MeasuredKnee)
    assert found.is_of_pool
    assert (found.cpu_count, found.how) == (
        2,
        "tpcb-like in pools (2 CPUs), pools of 2 to 64 connections for 100 clients",
    )
    assert found.low is not None
    assert found.high is not None
    assert (found.clients, found.low, found.high) == (16, 16, 16)
    tuning = pooled(knee=found)
    assert size(tuning) == 24, "half as many again"
    (one,) = (one for one in tuning.settings if one.name == "default_pool_size")
    assert f"{found.clients:.3g} connections [" in one.reason
    assert "over pool sizes" in one.formula
    assert read_knee(report.record, report.analysis.sweeps, name="x") == "x has no sweep over clients"


def test_pools_larger_than_the_number_of_clients_do_not_show_that_more_gain_nothing() -> None:
    report = build_pool_sweep(sizes=(2, 4, 16, 64), clients=6)
    found = read_pool_knee(report.record, report.analysis, name="pools")
    assert isinstance(found, MeasuredKnee)
    assert (found.clients, found.is_beyond) == (6, True)
    notes = pooled(knee=found).notes
    assert any(
        "TPS still grew at the largest pool" in note and "sweep with larger pools and at least as many clients" in note
        for note in notes
    )


def test_no_knee_of_pools_is_read_from_other_studies() -> None:
    others = (build_report(), build_client_sweep(), build_pool_sweep(sizes=(32, 64), clients=8))
    assert [read_pool_knee(one.record, one.analysis, name="x") for one in others] == [None, None, None]


def test_tps_that_are_scheduled_say_nothing_of_the_size_of_a_pool() -> None:
    report = build_pool_sweep(rate_tps=1000.0)
    assert read_pool_knee(report.record, report.analysis, name="x") is None


def test_senders_and_slots_are_counted_and_never_lowered() -> None:
    assert (value(standing(), "max_wal_senders"), value(standing(), "max_replication_slots")) == ("10", "10")
    many = standing(standbys=known(9, name="standbys"))
    assert (value(many, "max_wal_senders"), value(many, "max_replication_slots")) == ("20", "11")
    own = standing(settings={"max_wal_senders": "40", "max_replication_slots": "30"})
    assert (value(own, "max_wal_senders"), value(own, "max_replication_slots")) == ("40", "30")


@pytest.mark.parametrize("free_gb", [2, 20, 200, 20_000])
@pytest.mark.parametrize("is_apart", [False, True])
def test_the_wal_of_slots_and_checkpoints_fits_the_disk_and_lasts_a_day_at_most(free_gb: int, is_apart: bool) -> None:
    disk = make_disk(free=free_gb * GB)
    tuning = standing(disk=disk, wal_disk=disk if is_apart else None, wal_bytes_per_s=5 * MB, dataset=GB)
    kept = parse_in_unit(value(tuning, "max_slot_wal_keep_size"), "B", is_integer=False)
    checkpoints = parse_in_unit(value(tuning, "max_wal_size"), "B", is_integer=False)
    assert kept + checkpoints <= (0.9 if is_apart else 0.5) * free_gb * GB
    assert 0 < kept <= 24 * 3600 * 5 * MB
    (away,) = (one.value for one in tuning.estimates if one.what == AWAY)
    assert away == pytest.approx(kept / (5 * MB))
    assert any("before it has to be made anew" in note for note in tuning.notes) == (away < 1800)
    assert value(tuning, "wal_keep_size") == "0"


def test_data_whose_size_is_only_assumed_leave_a_slot_its_wal_and_a_full_disk_a_part_of_the_wal_of_checkpoints() -> (
    None
):
    disk = make_disk(free=60 * GB)
    for dataset, least_gb in (
        (known(90 * GB, "bytes", name="dataset", origin=Origin.ASSUMED), 10),
        (known(90 * GB, "bytes", name="dataset"), 8 / 1024),
    ):
        tuning = standing(disk=disk, dataset=dataset, wal_bytes_per_s=10 * MB)
        kept = parse_in_unit(value(tuning, "max_slot_wal_keep_size"), "B", is_integer=False)
        checkpoints = parse_in_unit(value(tuning, "max_wal_size"), "B", is_integer=False)
        assert least_gb * GB <= kept <= min(15 * GB, 30 * GB - checkpoints)
        assert not any("away for 0" in note for note in tuning.notes)


@pytest.mark.parametrize("origin", [Origin.DECLARED, Origin.MEASURED])
def test_slots_have_what_data_leave_that_are_still_to_come(origin: Origin) -> None:
    dataset = known(450 * GB, "bytes", name="dataset", origin=origin)
    subject = {"disk": make_disk(free=500 * GB), "dataset": dataset, "wal_bytes_per_s": 20 * MB, "recovery_s": 1e5}
    assert value(standing(**subject), "max_slot_wal_keep_size") == "13GB", "half of 50 GB, less max_wal_size = 12GB"
    there = standing(**subject, held_bytes=450.0 * GB)
    assert value(there, "max_slot_wal_keep_size") == "160GB"


def test_senders_that_are_too_few_for_the_standbys_are_refused() -> None:
    with pytest.raises(SpecError, match="max_wal_senders = 1 is too few for 2 standbys"):
        derive(make_subject(standbys=known(2, name="standbys")), fixed={"max_wal_senders": "1"})


def test_a_bound_of_the_user_and_the_wal_that_a_server_keeps_stay() -> None:
    free = derive(make_subject(standbys=known(1, name="standbys")), fixed={"max_slot_wal_keep_size": "-1"})
    assert value(free, "max_slot_wal_keep_size") == "-1"
    assert not any(one.what == AWAY for one in free.estimates)
    keeps = standing(settings={"wal_keep_size": "1024"})
    assert value(keeps, "wal_keep_size") == "1GB", "a standby without a slot may need it"
    minimal = standing(settings={"wal_level": "minimal"})
    assert value(minimal, "wal_level") == "replica"
    assert "wal_level" not in standing(settings={"wal_level": "logical"}).values_of(Target.POSTGRESQL)


@pytest.mark.parametrize(
    ("workload", "recovery_s", "feedback", "delay"),
    [
        (WorkloadClass.OLTP_WRITE, 300, "off", "30s"),
        (WorkloadClass.OLTP_READ, 20, "off", "20s"),
        (WorkloadClass.MIXED, 300, "on", "5min"),
        (WorkloadClass.ANALYTIC, 90, "on", "90s"),
    ],
)
def test_queries_on_standbys_by_class(workload: WorkloadClass, recovery_s: float, feedback: str, delay: str) -> None:
    tuning = standing(workload=workload, recovery_s=recovery_s)
    assert (value(tuning, "hot_standby_feedback"), value(tuning, "max_standby_streaming_delay")) == (feedback, delay)
    assert any("`pgdyno compare" in note and "--standbys 2" in note for note in tuning.notes)


def test_a_host_file_declares_a_topology_and_options_stand_before_it() -> None:
    text = 'instance = "r8g.large"\n[topology]\nstandbys = 2\npooler = "session"\npool_size = 12\n'
    facts = ServerFacts(version="18.1", version_num=180001, bindir="")

    def see(said: TopologySpec, measured: MeasuredLoad | None = None) -> TuningSubject:
        shape = make_shape(parse_host(text, source="h"))
        return make_subject_from_shape(shape, facts, LoadHints(topology=said), measured=measured)

    subject = see(TopologySpec())
    assert (subject.standbys and subject.standbys.value, subject.standbys and subject.standbys.how) == (
        2,
        "the host file",
    )
    assert isinstance(subject.pooling, Pooling)
    assert (subject.pooling.mode, subject.pooling.size and subject.pooling.size.value) == (PoolMode.SESSION, 12)
    said = see(TopologySpec(standbys=0, pooler=PoolMode.TRANSACTION, pool_size=5))
    assert said.standbys is None
    assert isinstance(said.pooling, Pooling)
    assert (said.pooling.mode, said.pooling.size and said.pooling.size.how) == (PoolMode.TRANSACTION, "--pool-size")
    # What `price` counts, `tune` derives.
    assert TopologySpec(pooler_instance="c7g.large").pool_mode is PoolMode.TRANSACTION


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ((False,), ("slot away0 (2 GB behind)", "its standby has")),
        ((True,), ("slot away0 (2 GB behind)", "its subscriber has")),
        ((True, True), ("slots away0 (2 GB behind), away1 (2 GB behind)", "their subscribers have")),
        ((False, True, False), ("slots away0", "their standbys and subscribers have")),
    ],
)
def test_what_follows_by_a_slot_that_is_given_up_is_named_after_its_kind(
    kinds: tuple[bool, ...], words: tuple[str, ...]
) -> None:
    slots = [
        SlotState(name=f"away{number}", behind_bytes=2 << 30, is_active=True, is_logical=is_logical)
        for number, is_logical in enumerate(kinds)
    ]
    said = describe_lost_slots(slots, "1GB")
    assert said is not None
    assert all(each in said[0] for each in words), said[0]
    assert describe_lost_slots(slots, "3GB") is None
