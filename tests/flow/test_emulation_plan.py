"""What an emulation is going to be, from a declared machine and this one."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from pgdyno.conduct.emulation import _DATA_BYTES, _WAL_BYTES, _choose_sizes, describe_excess, plan_emulation
from pgdyno.conduct.workspace import Workspace
from pgdyno.errors import HostError, PgdynoError, SpecError
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.run.host.facts import read_host_facts
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.spec.read import make_study, read_study
from pgdyno.spec.study import Study
from pgdyno.tune.hosts import make_shape
from pgdyno.tune.types import Disk

TREE = Path(__file__).parents[2]
GP3 = DiskSpec(volume="gp3", size="1GB", filesystem="xfs", mount_options="noatime", volume_latency_ms=1.5)
ROOMY = HostSpec(cpus=1, memory="1GB", disk=DiskSpec(kind="hdd", size="900GB"), emulate=True)
HOST = HostSpec(cpus=1, memory="256MB", disk=GP3, instance_iops=2_000, instance_mb_s=100, emulate=True)


def study_of(host: HostSpec | None, **data: object) -> Study:
    raw = {"workload": [{"name": "tpcb-like"}], "data": data}
    study = make_study(raw, source="test", folder=Path("/"))
    return msgspec.structs.replace(study, host=host)


def test_disks_have_what_lasts_and_no_more_of_this_machine_than_declared(tmp_path: Path) -> None:
    place = Workspace.make(home=tmp_path, out=None, run_as=None)
    machine = plan_emulation(study_of(HOST), place)
    (disk,) = machine.disks
    assert (disk.name, disk.filesystem, disk.mount_options, disk.size_bytes) == ("data", "xfs", "noatime", 2**30)
    # The instance's limits bind before the volume's 3,000 IOPS and 131 MB/s.
    assert (disk.rates.read_iops, disk.rates.write_iops) == (2_000, 2_000)
    assert (disk.rates.read_bytes_per_s, disk.rates.write_bytes_per_s) == (10**8, 10**8)
    assert (disk.flush_s, disk.read_s) == (0.0015, 0.0015)
    assert (machine.cpu_count in {1, None}, machine.memory_bytes) == (True, 2**28)
    large = HostSpec(cpus=10_000, memory="900TB", disk=GP3, wal_disk=GP3, emulate=True)
    machine = plan_emulation(study_of(large), place)
    assert [one.name for one in machine.disks] == ["data", "wal"]
    assert (machine.cpu_count, machine.memory_bytes) == (None, None)
    assert len(list(describe_excess(large, tmp_path))) == 2
    assert list(describe_excess(HOST, tmp_path)) == []


@pytest.mark.parametrize(
    ("tables", "standbys", "disks"),
    [
        ({}, 0, ("data",)),
        ({}, 0, ("data", "wal")),
        ({}, 2, ("data", "wal")),
        ({"variant": [{}, {"scale": 3_000}]}, 0, ("data",)),
        ({"variant": [{"checksums": True}, {"checksums": False}]}, 0, ("data", "wal")),
    ],
)
def test_emulated_disks_have_room_for_what_their_study_asks_for_and_not_much_more(
    tmp_path: Path, tables: dict[str, object], standbys: int, disks: tuple[str, ...]
) -> None:
    raw = {
        "workload": [{"name": "tpcb-like"}],
        "data": {"scale": 2_000},
        "server": {"standbys": standbys},
        "experiment": {"design": "paired"} if tables else {},
    }
    wanted, place = (
        make_study(raw | tables, source="test", folder=Path("/")),
        Workspace.make(home=tmp_path, out=None, run_as=None),
    )
    mosts = {"data": _DATA_BYTES, "wal": _WAL_BYTES}
    specs = [(name, DiskSpec(kind="hdd"), make_shape(ROOMY).disk, mosts[name]) for name in disks]
    # The usual share has no room for them, so they get what paired trials need.
    sizes = _choose_sizes(wanted, specs, 230 * 2**30, place.home)

    def plan_with(share: float) -> None:
        data, wal = round(sizes["data"] * share), sizes.get("wal")
        plan_study(
            wanted,
            Machine(version_major=18, cpu_count=2, memory_bytes=2**33, disk_free_bytes=data, wal_free_bytes=wal),
        )

    # ext4 keeps a twentieth for root and some for itself.
    plan_with(0.93)
    with pytest.raises(HostError, match="does not fit on the disk"):
        plan_with(0.9)


def test_a_live_bench_of_usual_data_has_room_on_emulated_disks(tmp_path: Path) -> None:
    raw = {
        "data": {"scale": 100},
        "workload": [{"name": "tpcb-like"}],
        "variant": [{"name": "stock"}, {"name": "derived", "settings": {"work_mem": "8MB"}}],
        "experiment": {"design": "live"},
    }
    study, shape = make_study(raw, source="test", folder=Path("/")), make_shape(ROOMY)
    specs = [
        (name, DiskSpec(kind="hdd"), shape.disk, most) for name, most in (("data", _DATA_BYTES), ("wal", _WAL_BYTES))
    ]
    machine = Machine(version_major=18, cpu_count=2, memory_bytes=2**35, disk_free_bytes=0)

    def fit(specs: list[tuple[str, DiskSpec, Disk, int]], free_bytes: int) -> list[float]:
        sizes = _choose_sizes(study, specs, free_bytes, tmp_path)
        # A file system takes some of it.
        room = {name: round(size * 0.98) for name, size in sizes.items()}
        here = msgspec.structs.replace(machine, disk_free_bytes=room["data"], wal_free_bytes=room.get("wal"))
        assert plan_study(study, here).experiment is not None
        return [size / 2**30 for size in sizes.values()]

    assert fit(specs[:1], 2**40) == [20]
    assert fit(specs, 2**40) == [20, 11]
    # Paired trials, which such a study then is told to ask for, have room on less.
    with pytest.raises(SpecError, match="cannot be compared live here"):
        fit(specs, 60 * 2**30)
    assert list(_choose_sizes(study, specs, 60 * 2**30, tmp_path).values()) == [16 * 2**30, 8 * 2**30]


@pytest.mark.parametrize("name", ["c7g-cliff", "c7g-sixteenth", "c7g-three-phases"])
def test_cases_say_how_much_disk_their_emulation_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, facts = TREE / "studies" / "cases" / f"{name}.toml", read_host_facts(tmp_path)
    said = re.search(r"with (\d+) GB of\s+(?:# )?free disk", path.read_text(encoding="utf-8"))
    assert said is not None
    assert f"{said[1]} GB of free disk" in (TREE / "docs" / "cases.md").read_text(encoding="utf-8")
    study, place = read_study(path), Workspace.make(home=tmp_path, out=None, run_as=None)

    def plan_with(free_gb: int) -> None:
        disk = msgspec.structs.replace(facts.data_disk, free_bytes=free_gb * 2**30)
        here = msgspec.structs.replace(facts, data_disk=disk)
        monkeypatch.setattr("pgdyno.conduct.emulation.read_host_facts", lambda _: here)
        plan_emulation(study, place)

    plan_with(int(said[1]))
    with pytest.raises(HostError, match="too little space"):
        plan_with(int(said[1]) - 1)


@pytest.mark.parametrize(
    ("host", "data", "kind", "words"),
    [
        (HostSpec(instance="c7g.2xlarge", emulate=True), {}, SpecError, "needs a disk"),
        (HostSpec(disk=GP3, emulate=True), {}, SpecError, "needs CPUs and memory"),
        (HOST, {"wal_home": "/mnt"}, SpecError, "exclude each other"),
        (
            HostSpec(cpus=1, memory="1GB", disk=DiskSpec(kind="hdd", size="1GB", filesystem="zfs")),
            {},
            SpecError,
            "no file system zfs",
        ),
        (
            HostSpec(cpus=1, memory="1GB", disk=DiskSpec(kind="hdd", size="900TB")),
            {"scale": 1_000_000},
            HostError,
            "too little space",
        ),
    ],
)
def test_what_cannot_be_emulated(
    tmp_path: Path, host: HostSpec, data: dict[str, object], kind: type[PgdynoError], words: str
) -> None:
    with pytest.raises(kind, match=words) as refused:
        plan_emulation(study_of(host, **data), Workspace.make(home=tmp_path, out=None, run_as=None))
    assert refused.value.hint
