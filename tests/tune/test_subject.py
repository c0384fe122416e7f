"""What settings are derived for: what was seen, what was said, and what is assumed where neither is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.facts.instances import find_instance
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import (
    BlockDevice,
    CgroupLimit,
    LimitKind,
    MemoryFacts,
    ServerOrigin,
    ServerSnapshot,
)
from pgdyno.record.machine.tunables import ServerState, StorageStack, Stripe, Tunables
from pgdyno.record.types import ServerFacts, TrialRecord
from pgdyno.run.host.tunables import read_tunables
from pgdyno.tune.derive import derive
from pgdyno.tune.disk.classes import ASSUMED
from pgdyno.tune.hosts import make_shape
from pgdyno.tune.measured_load import MeasuredLoad, read_measured
from pgdyno.tune.subject import (
    LoadHints,
    assume_distribution,
    find_missing_values,
    make_subject,
    make_subject_from_shape,
)
from pgdyno.tune.types import DiskKind, Known, Origin, Target, WorkloadClass
from tests.report.build import build_report
from tests.report.build_comparison import build_client_sweep, build_paired
from tests.rows import each_row

GB = 1024**3
SERVER = ServerFacts(version="18.6", version_num=180006, bindir="/b", configure="'--with-lz4' '--with-zstd'")


def device(name: str, *, kind: str = "disk", spins: bool = False) -> BlockDevice:
    return BlockDevice(
        name=name, kind=kind, is_rotational=spins, scheduler="none", schedulers=("none",), read_ahead_kb=128
    )


def disk(*devices: BlockDevice, **others: Any) -> StorageStack:
    facts = DiskFacts(
        path="/data",
        device="/dev/x",
        block_device=devices[0].name if devices else None,
        filesystem="ext4",
        mount_options="rw",
        size_bytes=1000 * GB,
        free_bytes=800 * GB,
    )
    return StorageStack(facts=facts, devices=devices, **others)


def machine(**others: Any) -> Tunables:
    facts: dict[str, Any] = {
        "host": host(),
        "memory": memory(),
        "disk": disk(device("nvme0n1")),
        "wal_disk": None,
        "limits": (),
        "page_bytes": 4096,
        "sysctls": {"vm.swappiness": "60"},
        **others,
    }
    return Tunables(**facts)


def host(**others: Any) -> HostFacts:
    report = build_report()
    facts = {"cpu_count": 8, "cpu_limit": None, "memory_bytes": 64 * GB, "memory_limit_bytes": None, **others}
    return msgspec.structs.replace(report.record.host, **facts)


def memory() -> MemoryFacts:
    return MemoryFacts(
        available_bytes=60 * GB,
        dirty_bytes=0,
        swap_used_bytes=0,
        huge_page_bytes=2 * 1024**2,
        huge_pages_free=0,
        huge_pages_total=0,
        commit_limit_bytes=32 * GB,
        committed_bytes=GB,
        overcommit_memory=0,
        zone_reclaim_mode=0,
        numa_nodes=0,
        numa_balancing=None,
        shm_size_bytes=None,
    )


def state(data_bytes: int, **settings: str) -> ServerState:
    look = ServerSnapshot(origin=ServerOrigin.RUNNING, major=18, settings=settings)
    return ServerState(look=look, set_names=frozenset(settings), unseen=(), data_bytes=data_bytes, wal_bytes=0)


def test_nothing_is_said_and_no_server_is_there() -> None:
    subject = make_subject(machine(), SERVER, LoadHints())
    assert (subject.major, subject.workload) == (18, WorkloadClass.MIXED)
    assert (subject.cpus.value, subject.cpus.origin) == (8, Origin.MEASURED)
    assert (subject.memory.value, subject.memory.origin) == (64 * GB, Origin.MEASURED)
    assert (subject.connections.value, subject.connections.origin) == (100, Origin.ASSUMED)
    assert (subject.active.value, subject.active.origin) == (32, Origin.ASSUMED)
    assert (subject.dataset.value, subject.dataset.origin) == (256 * GB, Origin.ASSUMED)
    assert subject.wal_bytes_per_s is None
    assert subject.kernel.sysctls == {"vm.swappiness": "60"}
    assert not subject.kernel.is_container
    assert subject.kernel.numa_nodes == 1, "a kernel without NUMA is one node"


def test_what_is_said_comes_first() -> None:
    measured = MeasuredLoad(
        dataset=Known(name="dataset", value=3.0 * GB, unit="bytes", origin=Origin.MEASURED, how="a record")
    )
    wishes = LoadHints(
        workload=WorkloadClass.ANALYTIC, dataset_bytes=20 * GB, connections=200, active=3, recovery_s=60, stall_s=0.5
    )
    subject = make_subject(machine(), SERVER, wishes, state=state(5 * GB, max_connections="50"), measured=measured)
    assert subject.workload is WorkloadClass.ANALYTIC
    assert [known.value for known in (subject.dataset, subject.connections, subject.active)] == [20 * GB, 200, 3]
    assert {subject.dataset.origin, subject.connections.origin, subject.active.origin} == {Origin.DECLARED}
    assert subject.dataset.how == "--dataset; the server holds 5 GB now"
    assert (subject.recovery_s.value, subject.stall_s.value) == (60, 0.5)


def test_the_server_tells() -> None:
    subject = make_subject(machine(), SERVER, LoadHints(), state=state(5 * GB, max_connections="50"))
    assert (subject.dataset.value, subject.dataset.origin) == (5 * GB, Origin.MEASURED)
    assert (subject.connections.value, subject.connections.origin) == (50, Origin.MEASURED)
    empty = make_subject(machine(), SERVER, LoadHints(), state=state(22 * 1024**2))
    assert empty.dataset.origin is Origin.ASSUMED
    assert "holds 22 MB now" in empty.dataset.how
    assert (empty.wal_segment_bytes, subject.wal_segment_bytes) == (16 * 1024**2, 16 * 1024**2)
    large = make_subject(machine(), SERVER, LoadHints(), state=state(GB, wal_segment_size="67108864"))
    assert large.wal_segment_bytes == 64 * 1024**2
    few = make_subject(machine(), SERVER, LoadHints(connections=5))
    assert few.active.value == 5, "no more are at work than there are"


def test_huge_pages_of_others_are_what_is_taken_and_not_the_servers() -> None:
    pool = msgspec.structs.replace(memory(), huge_pages_total=8192, huge_pages_free=192)
    seen = machine(memory=pool)
    assert make_subject(seen, SERVER, LoadHints()).kernel.others_huge_pages == 8000
    without = state(GB, shared_memory_size_in_huge_pages="3000", huge_pages_status="off")
    assert make_subject(seen, SERVER, LoadHints(), state=without).kernel.others_huge_pages == 8000
    own = state(GB, shared_memory_size_in_huge_pages="3000", huge_pages_status="on")
    assert make_subject(seen, SERVER, LoadHints(), state=own).kernel.others_huge_pages == 5000
    # PostgreSQL 15 and 16 do not tell; the kernel shows that there are some.
    look = ServerSnapshot(
        origin=ServerOrigin.RUNNING,
        major=16,
        settings={"shared_memory_size_in_huge_pages": "3000"},
        huge_pages_bytes=2 * 1024**2,
    )
    old = ServerState(look=look, set_names=frozenset(), unseen=(), data_bytes=GB, wal_bytes=0)
    assert make_subject(seen, SERVER, LoadHints(), state=old).kernel.others_huge_pages == 5000


def test_what_is_set_on_the_server_counts_and_what_it_chose_itself_does_not() -> None:
    seen = state(5 * GB, temp_buffers="131072", wal_buffers="512", primary_conninfo="password=x", fsync="off")
    seen = msgspec.structs.replace(seen, set_names=frozenset({"temp_buffers", "primary_conninfo", "fsync", "a.b"}))
    settings = make_subject(machine(), SERVER, LoadHints(), state=seen).settings
    assert settings == {"temp_buffers": "131072", "fsync": "off"}, "no text: some are secrets"


def test_a_small_disk_holds_no_large_dataset() -> None:
    facts = msgspec.structs.replace(disk(device("sda")).facts, size_bytes=10 * GB)
    look = msgspec.structs.replace(disk(device("sda")), facts=facts)
    assert make_subject(machine(disk=look), SERVER, LoadHints()).dataset.value == 5 * GB


def test_a_container() -> None:
    narrow = host(memory_limit_bytes=4 * GB, cpu_limit=1.5)
    subject = make_subject(machine(host=narrow), SERVER, LoadHints())
    assert (subject.cpus.value, subject.memory.value) == (1.5, 4 * GB)
    assert subject.memory.how == "limit of the control group, on a machine with 64 GB"
    assert subject.kernel.is_container
    wide = make_subject(machine(host=host(memory_limit_bytes=64 * GB, cpu_limit=8)), SERVER, LoadHints())
    assert not wide.kernel.is_container, "a limit that limits nothing"


@each_row(
    [
        ((device("nvme0n1"),), {"nvme0n1": "Amazon Elastic Block Store"}, DiskKind.NETWORK_SSD),
        ((device("nvme0n1"),), {"nvme0n1": "Amazon EC2 NVMe Instance Storage"}, DiskKind.LOCAL_SSD),
        ((device("nvme0n1"),), {"nvme0n1": "Samsung SSD 990 PRO"}, DiskKind.LOCAL_SSD),
        ((device("vda", spins=True),), {}, DiskKind.NETWORK_SSD),
        ((device("sda", spins=True),), {"sda": "ST4000NM0035"}, DiskKind.HDD),
        ((device("sda", spins=True),), {"sda": "PersistentDisk"}, DiskKind.NETWORK_SSD),
        ((device("sda", spins=True),), {"sda": "BlockVolume"}, DiskKind.NETWORK_SSD),
        ((device("sda", spins=True),), {"sda": "VBOX HARDDISK"}, DiskKind.NETWORK_SSD),
        ((device("dm-0", kind="mapper"), device("sda"), device("sdb", spins=True)), {}, DiskKind.HDD),
        ((), {}, DiskKind.NETWORK_SSD),
    ]
)
def test_kinds_of_disks(devices: tuple[BlockDevice, ...], models: dict[str, str], kind: DiskKind) -> None:
    subject = make_subject(machine(disk=disk(*devices, models=models)), SERVER, LoadHints())
    assert subject.disk.kind is kind
    assert subject.disk.flush_s.value == ASSUMED[kind]["flush_s"][0]
    assert subject.disk.flush_s.origin is Origin.ASSUMED
    assert len(subject.disk.devices) == len(devices)


def test_arrays() -> None:
    members = (device("md0", kind="raid"), *(device(f"nvme{n}n1") for n in range(4)))
    striped = disk(*members, stripes={"md0": Stripe(level="raid10", disk_count=4, chunk_bytes=512 * 1024)})
    made = make_subject(machine(disk=striped), SERVER, LoadHints()).disk
    one = ASSUMED[DiskKind.LOCAL_SSD]
    assert made.random_read_iops.value == 4 * one["random_read_iops"][0]
    assert made.random_write_iops.value == 2 * one["random_write_iops"][0]
    assert made.write_bytes_per_s.value == 2 * one["write_bytes_per_s"][0]
    assert made.flush_s.value == one["flush_s"][0]
    assert (made.devices[0].chunk_kb, made.devices[0].data_disks) == (512, 2)
    assert "in raid10 of 4" in made.random_read_iops.how


def test_an_array_of_arrays() -> None:
    mirrors = (
        msgspec.structs.replace(device(name, kind="raid"), below=(f"{name}a", f"{name}b")) for name in ("md0", "md1")
    )
    volume = msgspec.structs.replace(device("dm-0", kind="lvm"), below=("md0", "md1"))
    stripes = {
        "dm-0": Stripe(level="raid0", disk_count=2, chunk_bytes=64 * 1024),
        **dict.fromkeys(("md0", "md1"), Stripe(level="raid1", disk_count=2, chunk_bytes=None)),
    }
    made = make_subject(machine(disk=disk(volume, *mirrors, device("sda"), stripes=stripes)), SERVER, LoadHints()).disk
    one = ASSUMED[DiskKind.LOCAL_SSD]
    assert made.random_read_iops.value == 4 * one["random_read_iops"][0]
    assert made.random_write_iops.value == 2 * one["random_write_iops"][0]
    assert "in raid1 of 2 in raid0 of 2" in made.random_read_iops.how


def test_limits_of_the_control_group_bind_disks() -> None:
    limits = (
        CgroupLimit(kind=LimitKind.WRITE_BYTES, group="/pg", value=20e6, device="nvme0n1"),
        CgroupLimit(kind=LimitKind.WRITE_COUNT, group="/pg", value=500, device="sdz"),
        CgroupLimit(kind=LimitKind.READ_COUNT, group="/", value=1e9, device="nvme0n1"),
    )
    made = make_subject(machine(limits=limits), SERVER, LoadHints()).disk
    assert (made.write_bytes_per_s.value, made.write_bytes_per_s.origin) == (20e6, Origin.MEASURED)
    assert made.write_bytes_per_s.how == "limit of the control group /pg"
    assert made.random_write_iops.value == 20e6 / 8192, "another device's limit of 500 is none of this one"
    assert made.random_read_iops.origin is Origin.ASSUMED, "a limit that limits nothing"


def test_a_volume_for_the_wal() -> None:
    assert make_subject(machine(), SERVER, LoadHints()).wal_disk is None
    apart = make_subject(machine(wal_disk=disk(device("sdb", spins=True))), SERVER, LoadHints())
    assert apart.wal_disk is not None
    assert apart.wal_disk.kind is DiskKind.HDD


@pytest.mark.parametrize("workload", WorkloadClass)
@pytest.mark.parametrize("memory_bytes", [GB // 2, GB])
def test_little_memory_and_many_cpus_are_not_refused_what_nobody_asked_for(
    workload: WorkloadClass, memory_bytes: int
) -> None:
    small = machine(host=host(memory_limit_bytes=memory_bytes, cpu_count=64))
    subject = make_subject(small, SERVER, LoadHints(workload=workload))
    assert subject.active.value == memory_bytes / GB * 16
    assert derive(subject).memory


def test_wal_that_lies_there_already_is_room_for_wal() -> None:
    full = msgspec.structs.replace(state(5 * GB), wal_bytes=40 * GB)
    together = make_subject(machine(), SERVER, LoadHints(), state=full)
    assert together.disk.free_bytes.value == 840 * GB
    assert together.disk.free_bytes.how == "free at /data, or WAL already (40 GB)"
    apart = make_subject(machine(wal_disk=disk(device("sdb"))), SERVER, LoadHints(), state=full)
    assert apart.wal_disk is not None
    assert (apart.disk.free_bytes.value, apart.wal_disk.free_bytes.value) == (800 * GB, 840 * GB)


def test_a_machine_that_is_not_here() -> None:
    shape = make_shape(find_instance("r8g.2xlarge"))
    subject = make_subject_from_shape(shape, SERVER, LoadHints(dataset_bytes=500 * GB))
    assert (subject.cpus.value, subject.memory.value, subject.cpus.origin) == (8, 64 * GB, Origin.DECLARED)
    assert subject.dataset.value == 500 * GB
    assert subject.kernel.sysctls == {}


@each_row(
    [
        ("r8g.2xlarge", {}, True),
        ("r8g.2xlarge", {"huge_page_size": "512MB"}, False),
        ("r8g.2xlarge", {"huge_pages": "off"}, False),
        ("i4i.large", {}, False),
    ]
)
def test_the_size_of_huge_pages_is_told_where_it_depends_on_the_kernel(
    name: str, fixed: dict[str, str], is_told: bool
) -> None:
    subject = make_subject_from_shape(make_shape(find_instance(name)), SERVER, LoadHints())
    notes = derive(subject, fixed=fixed).notes
    assert any("with pages of 64 kB they have 512 MB" in note for note in notes) == is_told


def test_values_that_a_build_lacks() -> None:
    assert find_missing_values(SERVER) == {"io_method": ("io_uring",)}
    bare = msgspec.structs.replace(SERVER, configure="")
    assert find_missing_values(bare)["wal_compression"] == ("lz4", "zstd")
    assert find_missing_values(assume_distribution(bare)) == {}
    unknown = msgspec.structs.replace(SERVER, configure=None)
    assert find_missing_values(unknown) == find_missing_values(bare), "what nobody knows is not relied on"


def test_a_record_of_the_load() -> None:
    report = build_report()
    per_s = {"tpcb-like": 9e6, "simple-update": 5e6}
    trials = [
        with_wal(analysed.record, per_s.get(workload.name, 100.0) * (1 + number))
        for workload in report.analysis.workloads
        for number, analysed in enumerate(workload.trials)
    ]
    measured = read_measured(report.record, trials, name="some-record")
    assert measured.wal_bytes_per_s is not None
    assert measured.wal_bytes_per_s.value == pytest.approx(18e6), "the median of the workload that writes most"
    assert measured.wal_bytes_per_s.how == "tpcb-like in some-record (2 CPUs, 24 GB), 3 trials"
    assert measured.active is not None
    assert measured.active.value == report.record.plan.find_workload("tpcb-like").clients
    subject = make_subject(machine(), SERVER, LoadHints(), state=state(22 * 1024**2), measured=measured)
    assert report.record.dataset is not None
    assert subject.dataset.value == report.record.dataset.total_bytes
    full = make_subject(machine(), SERVER, LoadHints(), state=state(5 * GB), measured=measured)
    assert full.dataset.value == 5 * GB, "the server's own data, not those of a bench"
    same = make_subject(machine(host=host(cpu_count=2)), SERVER, LoadHints(), measured=measured)
    assert (same.wal_bytes_per_s, same.active) == (measured.wal_bytes_per_s, measured.active)
    without = [msgspec.structs.replace(trial, counters_after={}) for trial in trials]
    assert read_measured(report.record, without, name="x").wal_bytes_per_s is None


@each_row(
    [
        (64, 320e6, 40, Origin.ASSUMED),
        (8, 40e6, 5, Origin.MEASURED),
        (2, 10e6, 5, Origin.MEASURED),  # fewer CPUs serve the same clients
    ]
)
def test_a_load_that_was_measured_with_other_cpus_is_scaled_by_them(
    cpu_count: int, bytes_per_s: float, active: int, origin: Origin
) -> None:
    measured = MeasuredLoad(
        wal_bytes_per_s=Known.measured("WAL rate", 40e6, "bytes/s", "tpcb-like in r (8 CPUs, 64 GB), 3 trials"),
        active=Known.measured("active sessions", 5, "count", "clients of tpcb-like in r (8 CPUs, 64 GB), 3 trials"),
        cpu_count=8,
    )
    subject = make_subject(machine(host=host(cpu_count=cpu_count)), SERVER, LoadHints(), measured=measured)
    rate = subject.wal_bytes_per_s
    assert rate is not None
    assert (rate.value, subject.active.value, subject.active.origin) == (bytes_per_s, active, origin)
    assert rate.origin is (Origin.MEASURED if cpu_count == 8 else Origin.ASSUMED)
    if cpu_count == 64:
        assert rate.how == "by CPUs, 8 times that of tpcb-like in r (8 CPUs, 64 GB), 3 trials"
        # A third of the 500 MB/s of its disk.
        tuning = derive(subject)
        rates = {one for setting in tuning.settings for one in setting.inputs if one.name == "WAL rate"}
        how = f"at most a third of what the disk writes, less than 320 MB/s {rate.how}"
        assert [(one.value, one.how) for one in rates] == [(pytest.approx(500e6 / 3), how)]
        assert tuning.values_of(Target.POSTGRESQL)["wal_buffers"] == "30MB", "0.2 s of it, rounded down"


def with_wal(trial: TrialRecord, bytes_per_s: float, **others: Any) -> TrialRecord:
    return msgspec.structs.replace(
        trial,
        load_start_monotonic_s=100.0,
        load_end_monotonic_s=110.0,
        counters_before={"wal_bytes": 7.0},
        counters_after={"wal_bytes": 7.0 + bytes_per_s * 10},
        **others,
    )


def test_a_record_of_live_pairs_counts_the_trials_that_were_not_frozen() -> None:
    report = build_paired()
    (first, *_), *_ = (workload.trials for workload in report.analysis.workloads)
    alone = msgspec.structs.replace(first.record.planned, round=0)
    trials = [with_wal(first.record, 4e6, planned=alone), *(with_wal(first.record, 9e6, slice_s=0.5) for _ in range(3))]
    measured = read_measured(report.record, trials, name="pairs")
    assert measured.wal_bytes_per_s is not None
    assert measured.wal_bytes_per_s.value == pytest.approx(4e6)
    assert measured.wal_bytes_per_s.how.endswith(", 1 trial")
    assert read_measured(report.record, trials[1:], name="pairs").wal_bytes_per_s is None


def test_a_record_of_several_numbers_of_clients_has_those_that_wrote_most() -> None:
    report = build_client_sweep(loads=(1, 2, 4))
    per_s = {1: 3e6, 2: 5e6, 4: 4e6}
    trials = [
        with_wal(trial.record, per_s[report.record.plan.find_load(trial.record.planned).clients])
        for workload in report.analysis.workloads
        for trial in workload.trials
    ]
    measured = read_measured(report.record, trials, name="sweep")
    assert measured.wal_bytes_per_s is not None
    assert measured.active is not None
    assert (measured.wal_bytes_per_s.value, measured.active.value) == (pytest.approx(5e6), 2)


def test_this_machine(tmp_path: Path) -> None:
    seen = read_tunables(tmp_path)
    subject = make_subject(seen, SERVER, LoadHints())
    assert 0 < subject.memory.value <= seen.host.memory_bytes
    assert 0 < subject.cpus.value <= seen.host.cpu_count
    assert subject.kernel.sysctls["vm.swappiness"].isdigit()
    assert not any("key" in name for name in subject.kernel.sysctls), "no secret is read"
    assert subject.disk.path == str(tmp_path)


@pytest.mark.parametrize(
    ("clients", "memory_gb", "connections", "derived"),
    [(20, 16, 100, "100"), (97, 16, 100, "100"), (99, 16, 100, "120"), (80, 2, 100, "100"), (500, 16, 500, "560")],
)
def test_a_measured_load_has_a_connection_for_each_of_its_clients(
    clients: int, memory_gb: int, connections: int, derived: str
) -> None:
    active = Known.measured("active sessions", clients, "count", "clients of tpcb in then")
    subject = make_subject(machine(), SERVER, LoadHints(), measured=MeasuredLoad(active=active))
    memory = msgspec.structs.replace(subject.memory, value=memory_gb * 2.0**30)
    subject = msgspec.structs.replace(subject, memory=memory)
    assert subject.connections.value == connections
    values = {one.name: one.value for one in derive(subject).settings}
    # Three are reserved for superusers, and some are for maintenance.
    assert values["max_connections"] == derived
