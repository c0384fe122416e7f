"""The program that looks at a machine, run on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.run.host.tree import split_mounts
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


def test_a_device_is_found_by_its_name_where_its_mount_has_a_number_of_its_own() -> None:
    """As of btrfs."""
    name = min(one.name for one in Path("/sys/block").iterdir())
    found = look_at_disk("/srv/data", f"22 1 0:38 / / rw - btrfs /dev/{name} rw\n")
    assert (found["numbers"], Path(found["device"]).name, found["is_partition"]) == ("0:38", name, False)
    assert look_at_disk("/srv/data", "22 1 0:38 / / rw - zfs tank/data rw\n")["device"] is None
