"""Storage layouts: as the kernel shows them in trees, and real ones on loop devices."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from pgdyno.record.machine.tunables import StorageStack, Stripe
from pgdyno.run.device.disk_bench import name_disks
from pgdyno.run.host.disks import find_siblings, read_dm_table, read_stripes, read_sync_bytes_per_s
from pgdyno.run.host.tree import Tree
from pgdyno.run.host.tunables import read_disk_look, read_tunables
from tests.loops import mounted_loop, needs_root
from tests.proc_trees import FOLDER, Scenario, look

LAYOUTS = tomllib.loads((FOLDER / "layouts.toml").read_text(encoding="utf-8"))["layout"]
MIB = 2**20


def see(folder: Path, layout: dict[str, Any]) -> StorageStack:
    look(folder, Scenario(name=layout["name"], files=layout["files"], links=layout["links"]))
    return read_disk_look(folder / "data", root=folder / "now")


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout["name"])
def test_layouts(tmp_path: Path, layout: dict[str, Any]) -> None:
    seen = see(tmp_path, layout)
    lines = [f"{one.name} {one.kind} {one.title or '-'} {','.join(one.below) or '-'}" for one in seen.devices]
    assert lines == layout["devices"]
    table = layout.get("table")
    stripes, _ = read_stripes(Tree(tmp_path / "now"), seen.devices, lambda _: table)
    assert stripes == {name: Stripe(**{"chunk_bytes": None, **one}) for name, one in layout["stripes"].items()}
    if table is None:
        assert seen.stripes == stripes
        assert [one.what for one in seen.unseen] == layout.get("unseen", [])
    if "size_gib" in layout:
        assert seen.devices[0].size_bytes == layout["size_gib"] * 2**30


def test_no_device_of_several_stands_for_their_file_system(tmp_path: Path) -> None:
    """What btrfs lies on with others is neither sampled nor watched as if it were the whole."""
    layout = next(one for one in LAYOUTS if one["name"].startswith("btrfs on two devices"))
    facts = see(tmp_path, layout).facts
    assert (facts.block_device, facts.scheduler, facts.shown_device) == (None, None, "/dev/mapper/vg0-data")
    assert name_disks(tmp_path / "data", root=tmp_path / "now") == {"dm-0", "sdx", "sdy"}


VOLUMES = {
    # Two volumes in a partition of sdx, and one on another disk; sdx has a further partition.
    "sys/block/sdx/sdx1/partition": "1",
    "sys/block/sdx/sdx2/partition": "2",
    "sys/block/sdy/size": "1",
    **{f"sys/block/dm-{n}/dm/uuid": "LVM-x" for n in range(4)},
    **{f"sys/block/dm-{n}/slaves/sdx2/size": "1" for n in (0, 1)},
    **{f"sys/block/sdx/sdx2/holders/dm-{n}/size": "1" for n in (0, 1)},
    "sys/block/dm-2/slaves/sdy/size": "1",
    "sys/block/sdy/holders/dm-2/size": "1",
    # A volume above the second one, such as an encrypted one.
    "sys/block/dm-3/slaves/dm-1/size": "1",
    "sys/block/dm-1/holders/dm-3/size": "1",
}


@pytest.mark.parametrize(
    ("device", "siblings"), [("dm-0", ("dm-3", "sdx1")), ("dm-2", ()), ("dm-3", ("dm-0", "sdx1")), ("sdx", ())]
)
def test_volumes_that_share_disks(tmp_path: Path, device: str, siblings: tuple[str, ...]) -> None:
    """What is on sdx as a whole counts what all of its partitions and volumes move."""
    look(tmp_path, Scenario(name="volumes", files=VOLUMES, links={"sys/dev/block/259:1": f"sys/block/{device}"}))
    root = tmp_path / "now"
    seen = read_disk_look(tmp_path / "data", root=root)
    assert find_siblings(Tree(root), seen.devices) == siblings
    assert name_disks(tmp_path / "data", root=root) == {one.name for one in seen.devices}
    assert ("sdx" in name_disks(tmp_path / "data", root=root)) is (device != "dm-2")


@pytest.mark.parametrize(("speed", "moved"), [("1000", 2 * 1024e3), ("none", 0.0)])
def test_an_array_that_is_being_rebuilt(tmp_path: Path, speed: str, moved: float) -> None:
    (layout,) = (one for one in LAYOUTS if one["name"] == "RAID 1 has no chunk")
    seen = see(tmp_path, {**layout, "files": {**layout["files"], "sys/block/md1/md/sync_speed": speed}})
    assert read_sync_bytes_per_s(Tree(tmp_path / "now"), seen.devices) == moved


@pytest.mark.parametrize(("device", "moved"), [("dm-0", 1024e3), ("dm-2", 1024e3), ("dm-3", 1024e3), ("sdx", 0.0)])
def test_a_neighbour_that_is_being_rebuilt(tmp_path: Path, device: str, moved: float) -> None:
    """Of an array over partitions of sdx, sdy and sdz, each stack has one disk; sdx as a whole counts what it moves itself."""
    files = {
        **VOLUMES,
        "sys/block/md1/md/sync_speed": "1000",
        "sys/block/sdz/size": "1",
        **{f"sys/block/md1/slaves/{name}/size": "1" for name in ("sdx1", "sdy", "sdz")},
    }
    look(tmp_path, Scenario(name="rebuild", files=files, links={"sys/dev/block/259:1": f"sys/block/{device}"}))
    seen = read_disk_look(tmp_path / "data", root=tmp_path / "now")
    assert read_sync_bytes_per_s(Tree(tmp_path / "now"), seen.devices) == moved


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"memory.max": "3000000000\n", "memory.high": "max\n"}, 3_000_000_000),
        ({"memory.max": "3000000000\n", "memory.high": "2000000000\n"}, 2_000_000_000),
        ({"memory.high": "2000000000\n"}, 2_000_000_000),
        ({}, None),
    ],
)
def test_memory_that_is_throttled_is_no_memory(tmp_path: Path, limits: dict[str, str], expected: int | None) -> None:
    files = {"proc/self/cgroup": "0::/pg\n", **{f"sys/fs/cgroup/pg/{name}": text for name, text in limits.items()}}
    look(tmp_path, Scenario(name="throttled", files=files))
    assert read_tunables(tmp_path / "data", root=tmp_path / "now").host.memory_limit_bytes == expected


def test_a_volume_that_device_mapper_does_not_know() -> None:
    assert read_dm_table("pgdyno-no-such-volume") is None


@needs_root
@pytest.mark.parametrize("kind", ["xfs", "ext4", "btrfs"])
def test_real_file_systems(tmp_path: Path, kind: str) -> None:
    # The least that mkfs.xfs makes.
    with mounted_loop(tmp_path, kind, 300 * MIB) as loop:
        seen = read_disk_look(loop.folder)
        assert (seen.facts.filesystem, seen.facts.block_device, seen.facts.device) == (
            kind,
            loop.name,
            str(loop.device),
        )
        assert [(one.name, one.kind, one.size_bytes) for one in seen.devices] == [(loop.name, "loop", 300 * MIB)]
        assert seen.devices[0].scheduler in seen.devices[0].schedulers
        assert (seen.stripes, seen.unseen, seen.devices[0].below) == ({}, (), ())
