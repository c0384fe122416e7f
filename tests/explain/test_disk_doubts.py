"""What is said against a disk card: each rule by what it must see and what it must not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pgdyno.analyse.disk.card import estimate_card
from pgdyno.analyse.disk.ceiling import InstanceLimits
from pgdyno.analyse.disk.efficiency import Attainment, compare_with_ceilings
from pgdyno.analyse.disk.entries import DiskFigureKey, list_entries
from pgdyno.analyse.disk.layout_ceiling import compute_ceilings
from pgdyno.explain.disk.doubts import find_disk_doubts, list_disk_doubts
from pgdyno.explain.disk.rule_input import DiskRuleInput
from pgdyno.explain.finding import Finding, Severity
from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.record.machine.preflight import BlockDevice
from pgdyno.record.machine.tunables import StorageStack
from pgdyno.spec.host import DiskSpec, HostSpec
from tests.disk_cards import FLUSH_S, job, make_card, make_look, make_runs, planted_iops


def scene_of(card: DiskCard, **others: Any) -> DiskRuleInput:
    figures = estimate_card(card)
    return DiskRuleInput(card=card, figures=figures, entries=list_entries(card, figures), **others)


def doubts(card: DiskCard, **others: Any) -> dict[str, Finding]:
    return {finding.rule: finding for finding in find_disk_doubts(scene_of(card, **others))}


def on(
    name: str, *, is_rotational: bool = False, kind: str = "disk", model: str | None = None, **facts: Any
) -> StorageStack:
    look = make_look(block_device=name, **facts)
    (device,) = look.devices
    device = msgspec.structs.replace(device, name=name, is_rotational=is_rotational, kind=kind)
    return msgspec.structs.replace(look, devices=(device,), models={name: model} if model else {})


def flushing(flush_s: float, look: StorageStack) -> DiskCard:
    def level(one: DiskJob, _: int) -> float:
        return FLUSH_S / flush_s if one.is_flushed else 1.0

    return make_card(look=look, runs=make_runs(level=level), flush_tests=())


def test_a_good_disk_has_none() -> None:
    assert not doubts(make_card())
    unflushed = make_look(mount_options="rw,nobarrier", write_cache="write through")
    assert not doubts(make_card(look=unflushed)), "there is no cache to flush"


@pytest.mark.parametrize(
    ("facts", "rule", "severity"),
    [
        ({"filesystem": "tmpfs", "block_device": None}, "no-durability", Severity.CRITICAL),
        ({"filesystem": "overlay", "block_device": None}, "no-durability", Severity.WARNING),
        ({"filesystem": "nfs4", "block_device": None}, "remote-file-system", Severity.WARNING),
        ({"mount_options": "rw,nobarrier"}, "no-durability", Severity.CRITICAL),
    ],
)
def test_places_that_keep_nothing(facts: dict[str, Any], rule: str, severity: Severity) -> None:
    found = doubts(make_card(look=make_look(**facts)))
    assert set(found) == {rule}
    assert found[rule].severity is severity
    assert found[rule].advice


def test_barriers_are_switched_on_without_a_value_which_btrfs_refuses() -> None:
    found = doubts(make_card(look=make_look(mount_options="rw,nobarrier", filesystem="btrfs")))
    assert found["no-durability"].advice.startswith("`mount -o remount,barrier $(")


@pytest.mark.parametrize(
    ("flush_s", "look", "is_told"),
    [
        (20e-6, on("vda"), True),
        (20e-6, on("nvme0n1"), False),
        (2e-6, on("nvme0n1"), True),
        (140e-6, on("vda", is_rotational=True), False),
        (140e-6, on("sda", is_rotational=True), True),
        (140e-6, on("sda", is_rotational=True, model="QEMU HARDDISK"), False),
        (140e-6, on("sda", is_rotational=True, model="Virtual disk"), False),
        (20e-6, on("sda", is_rotational=True, model="Virtual disk"), True),
        (20e-6, on("nvme0n1", model="Amazon Elastic Block Store"), True),
        (8e-3, on("sda", is_rotational=True), False),
        (1e-6, on("", filesystem="tmpfs"), False),
    ],
)
def test_a_cache_that_may_lie(flush_s: float, look: StorageStack, is_told: bool) -> None:
    assert ("flush-too-quick" in doubts(flushing(flush_s, look))) is is_told


def test_a_file_that_a_cache_could_hold() -> None:
    small = msgspec.structs.replace(make_card(), file_bytes=64 * 2**20)
    assert "64 MB" in doubts(small)["small-file"].evidence
    assert not doubts(msgspec.structs.replace(small, file_bytes=None))


def test_two_programs_that_disagree() -> None:
    (_, default, _) = make_card().flush_tests
    other = msgspec.structs.replace(default, ops_per_s=4000.0)
    assert doubts(make_card(flush_tests=(other,)))["flush-disagreement"].evidence.endswith("pg_test_fsync 4,000")


def test_a_burst_that_ends() -> None:
    def level(one: DiskJob, number: int) -> float:
        return 0.5 if number > 0 and planted_iops(one) * one.block_bytes > 60e6 else 1.0

    found = doubts(make_card(runs=make_runs(level=level)))
    assert "writes fell" in found["burst"].claim
    assert "from the first round to the last" in found["burst"].evidence


def test_a_disk_that_got_quicker() -> None:
    found = doubts(make_card(runs=make_runs(level=lambda _, number: 0.5 if number == 0 else 1.0)))
    assert found["not-steady"].claim.startswith("The disk was not steady: ")
    assert "from the first round to the last" in found["not-steady"].evidence
    assert "burst" not in found


def test_others_at_work() -> None:
    runs = make_runs()
    busy = [msgspec.structs.replace(run, others_bytes_per_s=50e6) if run.round == 1 else run for run in runs]
    assert doubts(make_card(runs=tuple(busy)))["others-on-device"].evidence.startswith("In 11 of 33 runs")
    once = (msgspec.structs.replace(runs[0], others_bytes_per_s=50e6), *runs[1:])
    assert not doubts(make_card(runs=once)), "once is no load"
    blind = tuple(msgspec.structs.replace(run, others_bytes_per_s=None) for run in runs)
    assert not doubts(make_card(runs=blind))


def test_noise() -> None:
    found = doubts(make_card(runs=make_runs(noise=0.3, rounds=5)))
    assert found["noisy"].severity is Severity.WARNING
    assert "over 5 rounds" in found["noisy"].evidence
    busy = tuple(msgspec.structs.replace(run, others_bytes_per_s=50e6) for run in make_runs(noise=0.3, rounds=5))
    assert set(doubts(make_card(runs=busy))) == {"others-on-device"}, "which is why"


def test_a_generator_that_was_the_limit() -> None:
    runs = tuple(
        msgspec.structs.replace(run, cpu_ratio=0.99)
        if run.job.pattern is Pattern.RANDOM_READ and run.job.depth == 64
        else run
        for run in make_runs()
    )
    assert doubts(make_card(runs=runs))["generator-limit"].evidence.endswith("random read 8 kB at depth 64")
    shared = tuple(
        msgspec.structs.replace(run, job=msgspec.structs.replace(run.job, processes=8)) if run.cpu_ratio > 0.9 else run
        for run in runs
    )
    found = doubts(make_card(runs=shared))["generator-limit"]
    assert found.evidence.startswith("99 % of a CPU each at")
    assert found.why.startswith("8 processes of fio cannot ask for more")


def test_more_to_be_had() -> None:
    jobs = [job(one, depth=depth) for one in (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE) for depth in (1, 2, 4)]
    assert not doubts(make_card(runs=make_runs(jobs=[one for one in jobs if one.depth != 2]))), "two are no sweep"
    assert "random reads and random writes" in doubts(make_card(runs=make_runs(jobs=jobs)))["no-plateau"].claim


def test_two_paths_on_one_disk() -> None:
    wal = make_card(name="/wal", path="/wal")
    assert doubts(make_card(), beside=(wal,))["same-device"].claim == "It shares its disk with /wal."
    apart = msgspec.structs.replace(wal, look=make_look(block_device="nvme2n1"))
    assert not doubts(make_card(), beside=(apart,))


def test_two_volumes_of_one_disk() -> None:
    def volume(name: str, disk: str) -> DiskCard:
        top = msgspec.structs.replace(on(name).devices[0], kind="lvm", below=(disk,))
        look = msgspec.structs.replace(on(name), devices=(top, on(disk).devices[0]))
        return make_card(name=f"/{name}", path=f"/{name}", look=look)

    found = doubts(volume("dm-0", "sda"), beside=(volume("dm-1", "sda"), volume("dm-2", "sdb")))["same-device"]
    assert (found.claim, found.evidence) == ("It shares its disk with /dm-1.", "With /dm-1 on sda")


def test_each_of_several_disks_is_named_beside_what_shares_it() -> None:
    both = msgspec.structs.replace(on("sda"), devices=(*on("sda").devices, *on("sdb").devices))
    beside = [make_card(name=f"/{name}", path=f"/{name}", look=on(name)) for name in ("sda", "sdb")]
    found = doubts(make_card(look=both), beside=tuple(beside))["same-device"]
    assert found.evidence == "With /sda on sda; with /sdb on sdb"


def test_a_file_that_is_used_as_a_disk() -> None:
    look = make_look()
    loop = BlockDevice(name="loop0", kind="loop", is_rotational=None, scheduler=None, schedulers=(), read_ahead_kb=None)
    found = doubts(make_card(look=msgspec.structs.replace(look, devices=(loop,))))
    assert found["loop-device"].severity is Severity.NOTE


def test_what_is_measured_is_held_against_what_is_declared() -> None:
    """An instance that lets 12,000 IOPS through for long, and 20,000 for a while."""
    disk = DiskSpec(volume="gp3", count=8, size="50GB", raid=0, volume_latency_ms=1.85)
    limits = InstanceLimits(
        name="c7g.2xlarge", iops=12_000, burst_iops=20_000, bytes_per_s=312.5e6, burst_bytes_per_s=625e6
    )

    def level(one: DiskJob, _: int) -> float:
        levels = {Pattern.RANDOM_READ: 19_000 / 12_000, Pattern.SEQUENTIAL_READ: 3.0, Pattern.SEQUENTIAL_WRITE: 0.5}
        return levels.get(one.pattern, 1.0) if one.depth > 4 else 1.0

    card = make_card(runs=make_runs(level=level))
    held = compare_with_ceilings(scene_of(card).entries, compute_ceilings(disk, limits))
    standings = {one.key: one.standing for one in held}
    assert standings == {
        DiskFigureKey.RANDOM_READ: Attainment.BURST,
        DiskFigureKey.RANDOM_WRITE: Attainment.REACHED,
        DiskFigureKey.SEQUENTIAL_READ: Attainment.IMPOSSIBLE,
        DiskFigureKey.SEQUENTIAL_WRITE: Attainment.BELOW,
        DiskFigureKey.FLUSHES: Attainment.REACHED,
    }
    assert held[0].ratio.value == pytest.approx(19_000 / 12_000, rel=0.03)
    found = doubts(card, efficiencies=held)
    assert found["above-lasting"].advice == "Plan with 12,000 IOPS for random reads."
    assert "c7g.2xlarge lets 12,000 a second through" in found["above-lasting"].evidence
    assert found["above-declared"].claim == "Sequential reads were measured above all that is declared."
    assert found["below-ceiling"].claim == "Sequential writes stay below what is declared."


def test_worst_comes_first() -> None:
    runs = tuple(msgspec.structs.replace(run, cpu_ratio=0.99) for run in make_runs())
    found = find_disk_doubts(scene_of(make_card(look=make_look(filesystem="tmpfs", block_device=None), runs=runs)))
    assert [one.severity for one in found] == [Severity.CRITICAL, Severity.WARNING]


def test_a_report_repeats_what_weakens_its_figures_of_the_disk() -> None:
    runs = tuple(msgspec.structs.replace(run, cpu_ratio=0.99) for run in make_runs())
    look = make_look(filesystem="overlay", block_device=None)
    (only,) = list_disk_doubts(find_disk_doubts(scene_of(make_card(look=look, runs=runs))))
    assert only.claim == "Disk card: fio itself was the limit, not the disk."
    assert list_disk_doubts(find_disk_doubts(scene_of(make_card()))) == ()


def test_what_an_instance_lets_through_is_shared() -> None:
    """Data and WAL were each held against all of it; a disk of the instance's own has no part in it."""
    disk = DiskSpec(volume="gp3", size="100GB", volume_iops=8000)
    small = DiskSpec(volume="gp3", size="100GB")

    def declared(name: str, disk: DiskSpec) -> DiskCard:
        host = HostSpec(instance="c7g.2xlarge", disk=disk)
        return make_card(name=name, host=host, declared=disk, instance="c7g.2xlarge")

    data, wal, inside = (
        declared("/data", disk),
        declared("/wal", disk),
        declared("/fast", DiskSpec(volume="local-nvme", size="400GB")),
    )
    found = doubts(data, beside=(wal, inside))["shared-instance"]
    assert found.claim == "It shares the limit of c7g.2xlarge with /wal."
    assert "shared-instance" not in doubts(inside, beside=(data, wal))
    assert "shared-instance" not in doubts(data, beside=(inside,))
    # Both reach their own limits at the same time.
    assert "shared-instance" not in doubts(declared("/data", small), beside=(declared("/wal", small),))
