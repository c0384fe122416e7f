"""Storage layouts in words, tables and JSON: of the published array, and of devices that were found."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from pgdyno.analyse.disk.ceiling import InstanceLimits
from pgdyno.analyse.disk.layout_ceiling import ceilings_of_instance, compute_ceilings, limits_of
from pgdyno.analyse.disk.losses import list_losses
from pgdyno.record.machine.preflight import Unseen
from pgdyno.record.machine.tunables import StorageStack
from pgdyno.report.documents.disk import layout_document
from pgdyno.report.forms.terminal import print_terminal
from pgdyno.report.level import Level
from pgdyno.report.sections.disk.layout import (
    LayoutView,
    build_layouts,
    ceilings_table,
    describe_declared,
    devices_table,
    explain_layout,
    explain_layouts,
)
from pgdyno.run.host.tunables import read_disk_look
from pgdyno.spec.host import DiskSpec, HostSpec, read_host
from tests.proc_trees import FOLDER, Scenario, look

GOLDEN = Path(__file__).parent / "golden"
CASE = Path(__file__).parents[2] / "studies" / "hosts" / "c7g.2xlarge-gp3-raid10.toml"


def printed(renderable: object, *, width: int) -> str:
    console = Console(width=width, no_color=True, highlight=False, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def declared_views() -> tuple[LayoutView, ...]:
    host = read_host(CASE)
    limits = limits_of(host)
    return tuple(
        LayoutView(title=title, declared=disk, limits=limits, ceilings=compute_ceilings(disk, limits))
        for title, disk in (("data", host.disk), ("WAL", host.wal_disk))
        if disk is not None
    )


def found(folder: Path, name: str) -> StorageStack:
    """Devices of a tree, on a file system whose room is not this machine's."""
    tables = tomllib.loads((FOLDER / "layouts.toml").read_text(encoding="utf-8"))["layout"]
    layout = next(one for one in tables if one["name"] == name)
    look(folder, Scenario(name=name, files=layout["files"], links=layout["links"]))
    seen = read_disk_look(folder / "data", root=folder / "now")
    facts = msgspec.structs.replace(
        seen.facts, path="/data", size_bytes=200 * 2**30, free_bytes=150 * 2**30, mount_options="rw,noatime"
    )
    models = {device.name: "Amazon Elastic Block Store" for device in seen.devices if device.name.startswith("nvme")}
    return msgspec.structs.replace(seen, facts=facts, models=models)


def test_the_published_array(golden: Callable[[Path, str], None]) -> None:
    text = printed(print_terminal(build_layouts(declared_views()), level=Level.STANDARD), width=80)
    golden(GOLDEN / "layout-declared.txt", text)
    assert max(map(len, text.splitlines())) <= 80
    # Its table, and what its authors missed.
    for words in ("24,000", "12,000", "500 MiB", "541", "$32.00 a month"):
        assert words in text
    assert "c7g.2xlarge sustains 12,000 IOPS and 312.5 MB/s" in text


@pytest.mark.parametrize(
    ("instance", "disks", "is_shared"),
    [
        ("m7g.8xlarge", ({}, {}), False),
        # 312.5 MB/s are less than twice 250 MiB/s.
        ("c7g.2xlarge", ({"volume_mb_s": 250}, {"volume_mb_s": 250}), True),
        ("c7g.2xlarge", ({"volume_iops": 8000}, {"volume_iops": 8000}), True),
        # What a mirror writes twice counts twice.
        ("c7g.2xlarge", ({"volume_iops": 5000, "count": 2, "raid": 1}, {}), True),
    ],
)
def test_layouts_share_a_limit_only_where_both_exceed_it(
    instance: str, disks: tuple[dict[str, int], ...], is_shared: bool
) -> None:
    limits = limits_of(HostSpec(instance=instance))
    specs = [DiskSpec(volume="gp3", size="100GB", **disk) for disk in disks]  # type: ignore[arg-type]
    views = [
        LayoutView(title=title, declared=disk, limits=limits, ceilings=compute_ceilings(disk, limits))
        for title, disk in zip(("data", "WAL"), specs, strict=True)
    ]
    text = " ".join(printed(print_terminal(build_layouts(views), level=Level.STANDARD), width=80).split())
    assert ("only while the other is idle" in text) is is_shared
    assert f"{instance} sustains" in text


@pytest.mark.parametrize(
    ("instance", "disk", "words"),
    [
        (
            "ecs.g6e.13xlarge",
            {"volume": "essd-pl3", "size": "20TB"},
            "ecs.g6e.26xlarge, has 480,000 IOPS and 2,000 MB/s.",
        ),
        (
            "c7a.32xlarge",
            {"volume": "io2", "size": "9000GB", "volume_iops": 200_000, "count": 2, "raid": 0},
            "c7a.48xlarge, has 240,000 IOPS",
        ),
        # What binds is the bandwidth, and the next size has no more of it.
        (
            "c7a.32xlarge",
            {"volume": "gp3", "size": "500GB", "volume_mb_s": 1_000, "volume_iops": 4_000, "count": 8, "raid": 0},
            "",
        ),
        ("ecs.g6e.26xlarge", {"volume": "essd-pl3", "size": "20TB"}, ""),
        # The volume binds.
        ("c7g.2xlarge", {"volume": "gp3", "size": "100GB"}, ""),
        # Nothing is known of the disks.
        ("c7g.2xlarge", None, ""),
    ],
)
def test_a_larger_instance_is_named_where_the_instance_binds(
    instance: str, disk: dict[str, Any] | None, words: str
) -> None:
    limits, declared = limits_of(HostSpec(instance=instance)), None if disk is None else DiskSpec(**disk)
    ceilings = ceilings_of_instance(limits) if declared is None else compute_ceilings(declared, limits)
    said = " ".join(explain_layouts([LayoutView(title="data", declared=declared, limits=limits, ceilings=ceilings)]))
    assert f"{instance} sustains" in said
    assert ("The next size that sustains more, " in said) is bool(words)
    assert words in said


def test_what_a_small_write_takes_of_the_instances_limit_is_said() -> None:
    limits = limits_of(HostSpec(instance="c7g.2xlarge"))
    said = []
    for raid in (5, 6, 10, 0):
        disk = DiskSpec(volume="gp3", size="100GB", count=6, raid=raid)  # type: ignore[arg-type]
        view = LayoutView(title="data", declared=disk, limits=limits, ceilings=compute_ceilings(disk, limits))
        said.append(" ".join(explain_layouts([view])))
    assert [one.count("each small write counts as") for one in said] == [1, 1, 0, 0]
    assert "In RAID 5, each small write counts as 4 I/Os." in said[0]
    assert "In RAID 6, each small write counts as 6 I/Os." in said[1]
    assert "Each write to a mirror counts separately." in said[2]


def test_what_a_small_write_takes_is_said_of_a_found_array_too(tmp_path: Path) -> None:
    look = found(tmp_path, "RAID 10 of md over eight volumes, one in a partition")
    limits = limits_of(HostSpec(instance="c7g.2xlarge"))
    for level, words in (("raid5", "each small write counts as 4 I/Os"), ("raid10", "a mirror counts separately")):
        stripes = {name: msgspec.structs.replace(one, level=level) for name, one in look.stripes.items()}
        seen = msgspec.structs.replace(look, stripes=stripes)
        view = LayoutView(title="/data", look=seen, limits=limits, ceilings=ceilings_of_instance(limits, seen))
        assert words in " ".join(explain_layouts([view]))


def test_found_and_declared(tmp_path: Path, golden: Callable[[Path, str], None]) -> None:
    look = found(tmp_path, "RAID 10 of md over eight volumes, one in a partition")
    view = msgspec.structs.replace(declared_views()[0], title="/data", look=look)
    text = printed(print_terminal(build_layouts([view]), level=Level.STANDARD), width=80)
    golden(GOLDEN / "layout-found.txt", text)
    assert max(map(len, text.splitlines())) <= 80
    assert "raid10 of 8, chunk 64 kB" in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("an LVM stripe, told by the sizes that its device recommends", ["None of the 3 disks may fail"]),
        ("a logical volume on an encrypted one on md", ["None of the 2 disks may fail"]),
        ("RAID 10 of md over eight volumes, one in a partition", []),
        ("RAID 1 has no chunk", []),
        ("a file system on a partition", []),
        ("a RAID of LVM, which recommends the sizes of a stripe", []),
        ("a thin pool on one disk, which recommends the sizes of a stripe", []),
    ],
)
def test_a_found_array_that_loses_all_data_with_a_disk_is_told(tmp_path: Path, name: str, said: list[str]) -> None:
    look = found(tmp_path, name)
    losses = [*list_losses(None, None, look)]
    assert [one.partition(":")[0] for one in losses] == said
    # What is declared goes before what was found.
    assert not [*list_losses(None, DiskSpec(volume="gp3", size="50GB", count=8, raid=10), look)]
    view = LayoutView(title="/data", look=look, ceilings=ceilings_of_instance(None), losses=tuple(losses))
    assert [one for one in explain_layout(view) if "may fail" in one] == losses
    # A level that was not seen may be a mirror.
    unseen = Unseen(what="how vg0-data spreads its data", reason="no root")
    assert not [*list_losses(None, None, msgspec.structs.replace(look, unseen=(unseen,)))]


def test_what_is_declared_otherwise_than_it_is_found_is_said(tmp_path: Path) -> None:
    look = found(tmp_path, "RAID 10 of md over eight volumes, one in a partition")
    disk = DiskSpec(volume="gp3", size="50GB", count=6, raid=0, chunk="128kB", filesystem="ext4")
    view = LayoutView(title="/data", look=look, declared=disk, ceilings=compute_ceilings(disk))
    text = " ".join(printed(print_terminal(build_layouts([view]), level=Level.STANDARD), width=80).split())
    assert "The declared file system differs from the one found: ext4, not xfs" in text
    assert "The declared array differs from the one found: raid0, not raid10" in text
    assert "The declared number of disks differs from the one found: 6, not 8" in text
    assert "The declared chunk differs from the one found: 128 kB, not 64 kB" in text
    same = msgspec.structs.replace(declared_views()[0], look=look)
    assert "another" not in printed(print_terminal(build_layouts([same]), level=Level.STANDARD), width=80)


def test_an_array_that_only_one_side_has_is_said(tmp_path: Path) -> None:
    array = found(tmp_path, "RAID 10 of md over eight volumes, one in a partition")
    one = msgspec.structs.replace(array, devices=array.devices[-1:], stripes={})
    single, eight = (DiskSpec(volume="gp3", size="50GB", **of) for of in ({}, {"count": 8, "raid": 10}))
    unseen = msgspec.structs.replace(one, unseen=(Unseen(what="stripes", reason="only root sees them"),))
    none = msgspec.structs.replace(one, devices=())
    for stack, disk, words in (
        (array, single, "One disk is declared; found is an array, raid10 of 8."),
        (one, eight, "An array is declared, raid10 of 8; none was found."),
        (array, eight, ""),
        (one, single, ""),
        # The array's own figures may be declared as one disk's.
        (array, DiskSpec(kind="network-ssd", random_read_iops=9_000), ""),
        (array, DiskSpec(kind="hdd"), "One disk is declared; found is an array, raid10 of 8."),
        # What was not observed may be an array.
        (unseen, eight, ""),
        (none, eight, ""),
    ):
        view = LayoutView(title="/data", look=stack, declared=disk, ceilings=compute_ceilings(disk))
        said = " ".join(explain_layout(view))
        assert words in said
        assert ("is declared" in said) is bool(words), said


def test_a_single_volume_is_no_array_whatever_binds_it() -> None:
    limits, shown = limits_of(HostSpec(instance="c7g.2xlarge")), []
    for count, raid in ((1, None), (2, 0)):
        disk = DiskSpec(volume="gp3", size="500GB", count=count, raid=raid, volume_iops=13_000, volume_mb_s=500)  # type: ignore[arg-type]
        view = LayoutView(title="data", declared=disk, limits=limits, ceilings=compute_ceilings(disk, limits))
        table = ceilings_table(view)
        assert table is not None
        assert {row[-1].text for row in table.rows[:4]} == {"instance"}
        shown.append([row[2].text for row in table.rows[:4]])
    assert shown == [["—"] * 4, ["26,000", "26,000", "1,000 MiB", "1,000 MiB"]]


def test_what_8_kb_make_of_published_iops_is_said() -> None:
    said = {}
    for volume, more in (
        ("gp3", {"volume_iops": 20_000}),
        ("local-nvme", {}),
        ("essd-pl1", {}),
        ("io2", {"volume_iops": 9_000}),
    ):
        disk = DiskSpec(volume=volume, size="2000GB", **more)  # type: ignore[arg-type]
        said[volume] = " ".join(
            explain_layout(LayoutView(title="data", declared=disk, ceilings=compute_ceilings(disk)))
        )
    assert "Of the 20,000 IOPS of a volume, its 125 MiB/s carry 16,000 of 8 kB." in said["gp3"]
    assert "The IOPS of local-nvme are published of 4 kB each; of 8 kB it may do fewer." in said["local-nvme"]
    assert "Of the 50,000 IOPS of a volume, its 350 MB/s carry 42,725 of 8 kB." in said["essd-pl1"]
    assert "8 kB" not in said["io2"]
    assert [volume for volume, words in said.items() if "powers of 1000" in words] == ["local-nvme"]


def test_what_cannot_be_seen_is_said(tmp_path: Path) -> None:
    look = found(tmp_path, "two disks, of which an ordinary account cannot tell")
    text = printed(
        print_terminal(
            build_layouts([LayoutView(title="/data", look=look, ceilings=ceilings_of_instance(None))]),
            level=Level.STANDARD,
        ),
        width=80,
    )
    assert "not observed: how vg0-data spreads its data" in text
    assert "Its limits are not known" in text


@pytest.mark.parametrize(
    ("filesystem", "said"),
    [
        ("tmpfs", "it is in memory"),
        ("nfs4", "it is on another machine"),
        ("zfs", "the kernel does not show which ones are below zfs"),
    ],
)
def test_what_lies_on_no_device(tmp_path: Path, filesystem: str, said: str) -> None:
    seen = found(tmp_path, "ZFS shows no devices")
    look = msgspec.structs.replace(seen, facts=msgspec.structs.replace(seen.facts, filesystem=filesystem))
    view = LayoutView(title="/data", look=look, ceilings=ceilings_of_instance(None))
    text = printed(print_terminal(build_layouts([view]), level=Level.STANDARD), width=80)
    assert said in " ".join(text.split())


def test_a_file_system_on_several_devices(tmp_path: Path) -> None:
    look = found(tmp_path, "btrfs on two devices, one of them a logical volume")
    table = devices_table(look)
    assert table is not None
    assert [row[0].text for row in table.rows] == ["dm-0", "  sdx", "sdy"]


def test_an_instance_by_itself() -> None:
    limits = limits_of(HostSpec(instance="c7g.2xlarge"))
    text = printed(
        print_terminal(
            build_layouts([LayoutView(title="data", limits=limits, ceilings=ceilings_of_instance(limits))]),
            level=Level.STANDARD,
        ),
        width=80,
    )
    assert "no volume is declared" in text
    assert "40,000 IOPS and 1,250 MB/s for a while" in text
    assert "mirror" not in text


def test_what_is_not_a_burst_nor_mirrored_is_not_said_to_be() -> None:
    disk = DiskSpec(volume="gp3", size="50GB", count=2, lvm_stripes=2, mount_options="noatime")
    limits = InstanceLimits(name="ours", iops=50_000)
    view = LayoutView(title="data", declared=disk, limits=limits, ceilings=compute_ceilings(disk, limits))
    text = printed(print_terminal(build_layouts([view]), level=Level.STANDARD), width=80)
    assert "burst, from" not in text
    assert "mirror" not in text
    assert "ours sustains 50,000 IOPS to all" in text
    assert describe_declared(disk) == "2 × gp3 of 50GB, striped by LVM over 2, noatime"


def test_what_is_doubtful_about_a_declaration_is_told() -> None:
    disk = DiskSpec(volume="gp3", size="50GB", count=2, raid=0, mount_options="nobarrier,data=writeback")
    view = LayoutView(title="data", declared=disk, ceilings=compute_ceilings(disk))
    text = printed(print_terminal(build_layouts([view]), level=Level.STANDARD), width=200)
    assert "nobarrier: the file system does not flush the disk's cache: durability is given up." in text
    assert "data=writeback: the file system may show old content" in text
    assert "What the machine lets through to all of its network volumes is not known, and often binds first." in text
    assert "at most 6,000" in text


@pytest.mark.parametrize(
    ("disk", "cells"),
    [
        (DiskSpec(volume="gp3", size="50GB"), ["3,000", "—", "not known", "at most 3,000", "—", "volume or machine"]),
        (DiskSpec(kind="hdd", random_read_iops=80), ["—", "80", "—", "80", "—", "path"]),
        (DiskSpec(kind="hdd", flush_ms=8), ["—", "—", "—", "—", "—", "—"]),
    ],
)
def test_the_first_row(disk: DiskSpec, cells: list[str]) -> None:
    table = ceilings_table(LayoutView(title="data", declared=disk, ceilings=compute_ceilings(disk)))
    assert table is not None
    assert [cell.text for cell in table.rows[0][1:]] == cells


def test_json_has_all_of_it_in_units() -> None:
    document = msgspec.json.decode(msgspec.json.encode(layout_document(declared_views())))
    assert (document["format"], document["version"], len(document["layouts"])) == ("pgdyno-layout", 1, 2)
    reads = document["layouts"][0]["ceilings"]["random_read_iops"]
    assert (reads["value"], reads["array_value"], reads["burst_value"]) == (12_000, 24_000, 24_000)
    assert (reads["binds"], reads["unit"]) == ("instance", "1/s")
    assert "which binds" in reads["how"]
    assert document["layouts"][1]["declared"]["chunk"] == "256kB"


def test_a_disk_declared_without_figures_is_not_said_to_be_undeclared() -> None:
    disk = DiskSpec(kind="hdd")
    view = LayoutView(title="data", declared=disk, ceilings=compute_ceilings(disk))
    text = printed(print_terminal(build_layouts([view]), level=Level.STANDARD), width=200)
    assert "no figure is declared, such as random_read_iops" in text
    assert "nothing is declared" not in text
