"""The program that looks at a machine, run on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.run.host.disks import find_members
from pgdyno.run.host.tree import Tree, find_mounted_device, split_mounts
from pgdyno.run.link.far_look import list_mounts, look_at_disk

MOUNTS = r"""22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 8:2 / /srv/fast\040disk rw - xfs /dev/sdb rw
31 22 8:3 / /srv/back\134slash rw - xfs  rw
32 22 8:4 / /srv/pg rw - ext4 /dev/sdc rw
33 32 8:5 / /srv/pg rw - ext4 /dev/sdd rw
"""


@pytest.mark.parametrize(
    ("folder", "numbers"),
    [
        ("/srv/fast disk/data", "8:2"),
        ("/srv/fast disk", "8:2"),
        ("/srv/fast", "8:1"),
        ("/srv/back\\slash/data", "8:3"),
        ("/srv/pg/data", "8:5"),
    ],
)
def test_a_folder_lies_on_the_last_mount_that_is_next_above_it(folder: str, numbers: str) -> None:
    assert look_at_disk(folder, MOUNTS)["numbers"] == numbers


def test_mounts_are_those_that_are_read_on_this_machine() -> None:
    assert list_mounts(MOUNTS) == [(words[4], words[2], words[8]) for words in split_mounts(MOUNTS)]


def test_a_device_is_found_by_its_name_where_its_mount_has_a_number_of_its_own(tmp_path: Path) -> None:
    """As of btrfs, whose device may be named by device-mapper; of one on several devices, none is the device."""
    sysfs = tmp_path / "sys"
    for name in ("block/dm-7/dm", "block/sdx/sdx1", "class/block", "fs/btrfs/4cf5/devices", "fs/btrfs/9e01/devices"):
        (sysfs / name).mkdir(parents=True)
    (sysfs / "block/dm-7/dm/name").write_text("vg0-data\n")
    (sysfs / "block/sdx/sdx1/partition").write_text("1\n")
    for name, place in (("dm-7", "dm-7"), ("sdx", "sdx"), ("sdx1", "sdx/sdx1")):
        (sysfs / "class/block" / name).symlink_to(sysfs / "block" / place)
    for name in ("4cf5/devices/sdx1", "9e01/devices/dm-7", "9e01/devices/sdx"):
        (sysfs / "fs/btrfs" / name).touch()

    def find(source: str) -> tuple[str | None, bool]:
        found = look_at_disk("/srv/data", f"22 1 0:38 / / rw - btrfs {source} rw\n", str(sysfs))
        assert found["numbers"] == "0:38"
        # As it is found on this machine.
        here = find_mounted_device(tmp_path, source)
        is_one_of_many = len(find_members(Tree(tmp_path), "btrfs", source)) > 1
        assert found["device"] == (None if here is None or is_one_of_many else str(here))
        return found["device"], found["is_partition"]

    assert find("/dev/sdx1") == (str(sysfs / "block/sdx/sdx1"), True)
    assert find("/dev/mapper/vg0-data") == find("/dev/sdx") == find("tank/data") == (None, False)
    (sysfs / "fs/btrfs/9e01/devices/sdx").unlink()
    assert find("/dev/mapper/vg0-data") == (str(sysfs / "block/dm-7"), False)
