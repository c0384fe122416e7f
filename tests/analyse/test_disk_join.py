from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl
import pytest

from pgdyno.analyse.disk.demand import DiskLimits, UseKind, find_all_limits, find_limits, measure_disk_demand
from pgdyno.analyse.disk.efficiency import ceilings_of
from pgdyno.plan.types import PlannedPart
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.record.pgbench.output import ScriptResult
from pgdyno.record.samples.os_series import CPU_KINDS, cpu_busy, disk_series
from pgdyno.record.serverlog import CheckpointComplete, LogOrigin
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import SettingFact
from pgdyno.spec.host import DiskSpec, HostSpec
from tests.analyse.joined import COUNT, DEVICE, SECONDS, START_S, make_data, make_workload
from tests.disk_cards import BYTES_PER_S, FLUSH_S, IOPS, make_card, make_look, make_runs, raid_of

LIMITS = DiskLimits(
    flush_s=0.002, random_read_iops=1000, random_write_iops=500, read_bytes_per_s=100e6, write_bytes_per_s=50e6
)
COMMITS = {"xact_commit_count": float(COUNT), "blks_read_pages": 2.0 * COUNT}
MB = 1e6
DISK_FIELDS = (
    "reads", "writes", "flushes", "sectors_read", "sectors_written", "read_ms", "write_ms", "flush_ms", "io_ms", "weighted_io_ms"
)  # fmt: skip
HOST = "c7g.2xlarge"
INSTANCE_STORE = msgspec.structs.replace(make_look(), models={"nvme1n1": "Amazon EC2 NVMe Instance Storage"})


def test_limits_are_those_of_the_card() -> None:
    limits = find_limits(make_card())
    assert limits.flush_s == pytest.approx(FLUSH_S, rel=0.05)
    assert limits.random_read_iops == pytest.approx(IOPS, rel=0.05)
    assert limits.write_bytes_per_s == pytest.approx(BYTES_PER_S, rel=0.05)
    assert limits.flush_how == "disk card, sequential pages"


def test_how_differently_long_flushes_take() -> None:
    """Of the median half, of the mean all: the slowest twentieth takes what is left."""
    spread = find_limits(make_card()).flush_spread
    assert len(spread) == 20
    assert sum(spread) / 20 == pytest.approx(1.0)
    assert list(spread) == sorted(spread)
    # Cards made by hand have a median of 0.9 of the mean and a 95th percentile of 2.
    assert spread[0] == spread[9] == pytest.approx(0.8, abs=0.1)
    assert spread[-1] == pytest.approx(2.0, rel=0.15)
    assert find_limits(make_card(runs=())).flush_spread == ()


def test_a_card_without_runs_knows_what_pg_test_fsync_says() -> None:
    card = make_card(runs=())
    limits = find_limits(card)
    assert limits.flush_s is not None or not card.flush_tests
    assert limits.random_read_iops is None


def test_each_use_is_held_against_its_own_limit() -> None:
    disk = {
        "reads": 30.0,
        "sectors_read": 30 * 16.0,
        "writes": 250.0,
        "sectors_written": 1000.0,
        "io_ms": 400.0,
        "read_ms": 60.0,
    }
    data = make_data(wal_bytes=25 * MB * SECONDS, disk=disk, counters=COMMITS)
    join = measure_disk_demand(data, make_workload("tpcb-like"), LIMITS, device=DEVICE, tps=710.0)
    shares = {use.kind: use.ratio for use in join.uses}
    assert shares[UseKind.FLUSHES] == pytest.approx(0.71)
    assert shares[UseKind.READS] == pytest.approx(0.03)
    assert shares[UseKind.WRITES] == pytest.approx(0.5)
    assert shares[UseKind.WAL] == pytest.approx(0.5)
    assert join.busy_ratio == pytest.approx(0.4)
    assert join.read_await_ms == pytest.approx(2.0)
    # Of 2,000 blocks a second that shared_buffers missed, the kernel's cache had all but 30.
    assert join.missed_blocks_per_s == pytest.approx(2 * COUNT / SECONDS)
    # What the device did is known whatever the card lacks.
    bare = measure_disk_demand(data, make_workload("tpcb-like"), DiskLimits(), device=DEVICE, tps=710.0)
    assert (bare.uses, bare.rates) == ((), join.rates)
    assert join.rates is not None
    assert (join.rates.read_iops, join.rates.write_iops) == (pytest.approx(30.0), pytest.approx(250.0))
    assert join.rates.write_bytes_per_s == pytest.approx(512_000)
    unseen = measure_disk_demand(data, make_workload("tpcb-like"), LIMITS, device=None, tps=710.0)
    assert unseen.rates is None


def test_wal_on_a_disk_of_its_own_is_held_against_that_disk() -> None:
    data = make_data(wal_bytes=25 * MB * SECONDS, disk={"writes": 250.0}, counters=COMMITS)
    slower = DiskLimits(flush_s=0.004, write_bytes_per_s=250e6)

    def measure(wal: DiskLimits) -> dict[UseKind, float]:
        limits = msgspec.structs.replace(LIMITS, wal=wal)
        join = measure_disk_demand(data, make_workload("tpcb-like"), limits, device=DEVICE, wal_device="vdb", tps=710.0)
        # That disk was not sampled, and the flushes of the data's disk are not those of WAL.
        assert (join.wal_device, join.flush_await_ms) == ("vdb", None)
        return {use.kind: use.ratio for use in join.uses}

    shares = measure(slower)
    assert shares[UseKind.FLUSHES] == pytest.approx(1.42)
    assert shares[UseKind.WAL] == pytest.approx(0.1)
    assert shares[UseKind.WRITES] == pytest.approx(0.5)
    assert set(measure(DiskLimits())) == set(shares) - {UseKind.FLUSHES, UseKind.WAL}


def test_the_flushes_of_the_datas_card_are_not_those_of_wal_elsewhere() -> None:
    card = make_card()
    assert find_all_limits(None, None, is_apart=True) is None
    shared = find_all_limits(card, None, is_apart=False)
    assert shared == find_limits(card)
    apart = find_all_limits(card, None, is_apart=True)
    assert apart is not None
    assert (apart.of_wal.flush_s, apart.of_wal.write_bytes_per_s) == (None, None)
    assert apart.write_bytes_per_s == find_limits(card).write_bytes_per_s
    alone = find_all_limits(None, card, is_apart=True)
    assert alone is not None
    assert (alone.write_bytes_per_s, alone.of_wal) == (None, find_limits(card))


@pytest.mark.parametrize(
    ("clients", "settings", "is_compared"),
    [
        (8, {"commit_delay": "50"}, False),
        (5, {"commit_delay": "50"}, True),
        (6, {"commit_delay": "50", "commit_siblings": "6"}, True),
        (2, {"commit_delay": "50", "commit_siblings": "0"}, False),
        (8, {"commit_siblings": "0"}, True),
    ],
)
def test_flushes_that_wait_for_more_commits_are_not_compared(
    clients: int, settings: dict[str, str], is_compared: bool
) -> None:
    """A flush waits where at least commit_siblings other clients are in a transaction."""
    data = make_data(wal_bytes=25 * MB, counters=COMMITS)
    facts = tuple(SettingFact(name=n, value=v, unit=None, boot_value="", source="file") for n, v in settings.items())
    data = msgspec.structs.replace(data, record=msgspec.structs.replace(data.record, settings=facts))
    load = msgspec.structs.replace(make_workload("tpcb-like"), clients=clients)
    use = measure_disk_demand(data, load, LIMITS, device=DEVICE, tps=1000.0).find(UseKind.FLUSHES)
    assert (use is not None) is is_compared


@pytest.mark.parametrize(
    ("counters", "settings", "tps"),
    [
        ({"xact_commit_count": 3.0 * COUNT}, (), 1000.0),
        (COMMITS, (("synchronous_commit", "off"),), 1000.0),
        (COMMITS, (), None),
    ],
)
def test_commits_that_share_no_flush_as_the_model_has_it_are_left_out(
    counters: dict[str, float], settings: tuple[tuple[str, str], ...], tps: float | None
) -> None:
    data = make_data(wal_bytes=25 * MB, counters=counters)
    facts = tuple(SettingFact(name=n, value=v, unit=None, boot_value="on", source="file") for n, v in settings)
    data = msgspec.structs.replace(data, record=msgspec.structs.replace(data.record, settings=facts))
    join = measure_disk_demand(data, make_workload("tpcb-like"), LIMITS, device=DEVICE, tps=tps)
    assert join.find(UseKind.FLUSHES) is None


def test_what_only_reads_waits_for_no_flush() -> None:
    data = make_data(wal_bytes=10.0 * COUNT, counters=COMMITS)
    join = measure_disk_demand(data, make_workload("select-only"), LIMITS, device=DEVICE, tps=1000.0)
    assert join.find(UseKind.FLUSHES) is None


def find_mixed_commits(
    scripts: tuple[str, ...], counts: tuple[int, ...], parts: tuple[PlannedPart, ...] = ()
) -> tuple[float, float] | None:
    """Commits that wait for flushes, and how many can: of 1,000 TPS of 4 clients with a flush of 4 ms."""
    data = make_data(wal_bytes=600.0 * COUNT, counters=COMMITS)
    ran = tuple(ScriptResult(number=n, name="", transaction_count=count) for n, count in enumerate(counts, 1))
    data = msgspec.structs.replace(data, pgbench=msgspec.structs.replace(data.pgbench, scripts=ran))
    load = msgspec.structs.replace(
        make_workload("mixed"), scripts=tuple((name, 1) for name in scripts), parts=parts, clients=4
    )
    use = measure_disk_demand(data, load, DiskLimits(flush_s=0.004), device=DEVICE, tps=1000.0).find(UseKind.FLUSHES)
    return None if use is None else (use.used, use.limit)


def test_of_several_scripts_only_those_that_write_wait_for_flushes() -> None:
    assert find_mixed_commits(("select-only", "tpcb-like"), (9 * COUNT, COUNT)) == pytest.approx((100.0, 500.0))
    assert find_mixed_commits(("simple-update", "tpcb-like"), (COUNT, COUNT)) == pytest.approx((1000.0, 500.0))
    assert find_mixed_commits(("own.sql", "select-only"), (COUNT, 3 * COUNT)) == pytest.approx((250.0, 500.0))
    reading, writing = (
        PlannedPart(name=name, scripts=((name, 1),), clients=clients, threads=1, endpoint="primary")
        for name, clients in (("select-only", 3), ("tpcb-like", 1))
    )
    assert find_mixed_commits(("select-only", "tpcb-like"), (4 * COUNT, COUNT), (reading, writing)) == pytest.approx(
        (200.0, 250.0)
    )


@pytest.mark.parametrize(
    ("scripts", "counts"), [(("own.sql", "tpcb-like"), (9 * COUNT, COUNT)), (("select-only", "tpcb-like"), ())]
)
def test_where_nobody_knows_which_transactions_write_no_flushes_are_counted(
    scripts: tuple[str, ...], counts: tuple[int, ...]
) -> None:
    assert find_mixed_commits(scripts, counts) is None


def test_checkpoints_are_held_against_random_writes_while_they_write() -> None:
    origin = LogOrigin(monotonic_s=START_S + 5.0, sqlstate="00000", level="LOG")
    done = CheckpointComplete(
        origin=origin, message="", written_pages=400, write_s=2.0, sync_s=0.1, total_s=0.1, distance_kb=0
    )
    join = measure_disk_demand(make_data(log=(done,)), make_workload("tpcb-like"), LIMITS, device=DEVICE, tps=None)
    use = join.find(UseKind.CHECKPOINTS)
    assert use is not None
    assert (use.used, use.ratio) == (200.0, 0.4)


def test_what_was_measured_in_a_burst_is_also_held_against_what_lasts() -> None:
    """Eight gp3 in RAID 10 on an instance that sustains 12,000 IOPS and 312.5 MB/s, of which half again was measured."""
    disk = DiskSpec(volume="gp3", count=8, size="50GB", raid=10, volume_latency_ms=1.85)
    card = declare(make_card(runs=make_runs(level=lambda one, _: 1.0 if one.is_flushed else 1.5)), HOST, disk)
    limits = find_limits(card)
    assert limits.lasting
    assert (limits.lasting.random_read_iops, limits.lasting.random_write_iops) == (12_000, 6_000)
    # 1.8 ms were measured of a flush, 1.85 are declared: as much as that.
    assert limits.lasting.flush_s is None
    grown = {"reads": 3000.0, "sectors_read": 3000 * 16.0, "writes": 1500.0, "sectors_written": 1500 * 16.0}
    join = measure_disk_demand(make_data(disk=grown), make_workload("tpcb-like"), limits, device=DEVICE, tps=None)
    reads, writes = join.find(UseKind.READS), join.find(UseKind.WRITES)
    assert reads
    assert writes
    assert (reads.lasting_ratio, writes.lasting_ratio) == (pytest.approx(0.25), pytest.approx(0.25))
    assert reads.ratio == pytest.approx(3000 / 18_000, rel=0.05)
    through = join.find(UseKind.INSTANCE_IOPS)
    # Each write goes to two mirrors.
    assert through
    assert (through.used, through.limit) == (pytest.approx(6000), 12_000)
    assert through.how == "c7g.2xlarge, reads and writes together, each write 2 times"


def test_mirrors_that_are_seen_count_where_nothing_is_declared() -> None:
    """Of what the instance lets through, eight volumes in RAID 10 can be written half as much."""
    card = make_card(instance=HOST, look=raid_of(8, "raid10"))
    assert (find_limits(card).copies, find_limits(card).byte_copies) == (2.0, 2.0)
    ceilings = ceilings_of(card)
    assert ceilings is not None
    assert ceilings.random_write_iops is not None
    assert ceilings.random_write_iops.value == 6_000


def test_long_writes_to_parity_at_their_ceiling_fill_what_the_instance_lets_through() -> None:
    """They read nothing again: of RAID 5 over four disks they move a third more bytes, and small ones four times the I/Os."""
    card = make_card(instance=HOST, look=raid_of(4, "raid5"))
    limits, ceilings = find_limits(card), ceilings_of(card)
    assert ceilings is not None
    assert ceilings.write_bytes_per_s is not None
    grown = {"reads": 0.0, "writes": 250.0, "sectors_written": ceilings.write_bytes_per_s.value / 512}
    join = measure_disk_demand(make_data(disk=grown), make_workload("tpcb-like"), limits, device=DEVICE, tps=None)
    moved, done = join.find(UseKind.INSTANCE_BYTES), join.find(UseKind.INSTANCE_IOPS)
    assert moved
    assert done
    assert (moved.ratio, done.used) == (pytest.approx(1.0), pytest.approx(1000.0))
    assert moved.how.endswith("each write 1.33 times")


def test_what_an_instance_limits_is_no_disk_of_its_own() -> None:
    card = declare(make_card(), HOST, DiskSpec(volume="local-nvme", size="400GB"))
    limits = find_limits(card)
    assert (limits.instance, limits.copies, limits.lasting) == (None, 1.0, None)
    assert find_limits(make_card()).instance is None
    for look in (make_look(filesystem="tmpfs", block_device=None), INSTANCE_STORE):
        assert find_limits(make_card(look=look, instance=HOST)).instance is None
    assert find_limits(make_card(instance=HOST)).instance


def declare(card: DiskCard, instance: str, disk: DiskSpec) -> DiskCard:
    return msgspec.structs.replace(card, host=HostSpec(instance=instance, disk=disk), declared=disk, instance=instance)


def test_without_a_device_or_samples_only_the_server_is_seen() -> None:
    data = msgspec.structs.replace(make_data(wal_bytes=MB, counters=COMMITS), os=None)
    join = measure_disk_demand(data, make_workload("tpcb-like"), LIMITS, device=None, tps=None)
    assert {use.kind for use in join.uses} == {UseKind.WAL}
    assert (join.busy_ratio, join.read_await_ms) == (None, None)
    none = measure_disk_demand(data, make_workload("tpcb-like"), DiskLimits(), device=DEVICE, tps=710.0)
    assert none.uses == ()


def with_counters(data: TrialData, times: Sequence[float], **counters: Sequence[float]) -> TrialData:
    """The trial as if its machine had been sampled at these times."""
    assert data.os is not None
    columns = {"t_s": list(times), **{name.replace("__", "/"): list(values) for name, values in counters.items()}}
    return msgspec.structs.replace(data, os=msgspec.structs.replace(data.os, frame=pl.DataFrame(columns)))


def test_the_mean_time_of_a_request_is_one_over_requests_and_not_over_seconds() -> None:
    """59 seconds with 2 writes of 40 ms each, and one with 20,000 of 1 ms."""
    requests, ms = [2] * 59 + [20_000], [80] * 59 + [20_000]
    fields = dict.fromkeys(DISK_FIELDS, [0.0] * 61) | {
        "writes": np.cumsum([0, *requests]).tolist(),
        "write_ms": np.cumsum([0, *ms]).tolist(),
    }
    data = with_counters(
        make_data(seconds=60.0),
        [START_S + second for second in range(61)],
        **{f"disk.{DEVICE}__{name}": values for name, values in fields.items()},
    )
    join = measure_disk_demand(data, make_workload("tpcb-like"), LIMITS, device=DEVICE, tps=710.0)
    assert join is not None
    assert join.write_await_ms == pytest.approx((59 * 80 + 20_000) / (59 * 2 + 20_000))
    assert join.read_await_ms is None


def test_a_gap_of_the_sampler_counts_for_as_long_as_it_lasts() -> None:
    """Of 60 seconds the middle 20 were not sampled, in which nothing ran."""
    times = [*range(21), *range(40, 61)]
    busy_s = [min(at, 20) + max(0, at - 40) for at in times]
    fields = dict.fromkeys(DISK_FIELDS, [0.0] * len(times)) | {"writes": [100.0 * at for at in busy_s]}
    cpu = {kind: [0.0] * len(times) for kind in CPU_KINDS} | {
        "user": [100.0 * at for at in busy_s],
        "idle": [100.0 * (at - busy) for at, busy in zip(times, busy_s, strict=True)],
    }
    data = with_counters(
        make_data(seconds=60.0),
        [START_S + at for at in times],
        **{f"disk.{DEVICE}__{name}": values for name, values in fields.items()},
        **{f"cpu0__{kind}": values for kind, values in cpu.items()},
    )
    assert data.os is not None
    assert data.mean_within_load(disk_series(data.os, DEVICE)["disk_write_iops"]) == pytest.approx(100.0 * 40 / 60)
    assert data.mean_within_load(cpu_busy(data.os)) == pytest.approx(40 / 60)
