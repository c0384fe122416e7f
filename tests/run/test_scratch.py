from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.device import scratch as room
from pgdyno.run.device.scratch import AS_STDIN, ignores_direct, open_scratch
from pgdyno.run.host.process import ServerUser
from pgdyno.run.host.tree import Tree
from tests.loops import mounted, needs_root

MIB = 2**20
_NOBODY = 65534


def test_a_file_without_a_name_takes_its_space(tmp_path: Path) -> None:
    with open_scratch(tmp_path, 4 * MIB) as scratch:
        status = os.fstat(scratch.descriptor)
        assert (status.st_size, status.st_nlink, status.st_mode & 0o777) == (4 * MIB, 0, 0o600)
        assert status.st_blocks * 512 >= 4 * MIB
        assert list(tmp_path.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_where_no_file_can_be_without_a_name_it_has_one_for_a_moment(tmp_path: Path) -> None:
    place = os.open(tmp_path, os.O_RDONLY)
    try:
        descriptor = room._make_unlinked(place)
        assert os.fstat(descriptor).st_nlink == 0
        assert list(tmp_path.iterdir()) == []
        os.close(descriptor)
    finally:
        os.close(place)


def test_a_program_opens_it_as_its_standard_input(tmp_path: Path) -> None:
    with open_scratch(tmp_path, MIB) as scratch:
        code = f"open({AS_STDIN!r}, 'r+b').write(b'hello'); print(open({AS_STDIN!r}, 'rb').read(5))"
        done = scratch.run([sys.executable, "-c", code], user=None, timeout_s=600)
        assert (done.exit_code, done.stdout) == (0, "b'hello'\n")
        assert os.pread(scratch.descriptor, 5, 0) == b"hello"


@needs_root
def test_another_account_can_open_it_and_nothing_else_of_roots(tmp_path: Path) -> None:
    nobody = ServerUser(name="nobody", uid=65534, gid=65534)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with open_scratch(closed, MIB, user=nobody) as scratch:
        shell = f"printf hello 1<>{AS_STDIN}; id -u; ls {closed}"
        done = scratch.run(["sh", "-c", shell], user=nobody, timeout_s=600)
        assert done.stdout == "65534\n"
        assert "Permission denied" in done.stderr
        assert os.pread(scratch.descriptor, 5, 0) == b"hello"


def test_a_program_that_does_not_end_is_ended_and_one_that_is_killed_is_said(tmp_path: Path) -> None:
    with open_scratch(tmp_path, MIB) as scratch:
        with pytest.raises(StepFailedError, match="sleep did not end within 0 s"):
            scratch.run(["sleep", "30"], user=None, timeout_s=0.1)
        with pytest.raises(StepFailedError) as caught:
            scratch.run(["sh", "-c", "kill -9 $$"], user=None, timeout_s=600)
    assert (caught.value.fact, caught.value.detail) == ("sh was killed", "by SIGKILL")


def test_a_folder_is_measured_by_one_at_a_time(tmp_path: Path) -> None:
    with (
        open_scratch(tmp_path, MIB),
        pytest.raises(HostError, match="is being measured by another pgdyno"),
        open_scratch(tmp_path, MIB),
    ):
        pass
    with open_scratch(tmp_path, MIB):
        pass


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="there is no folder"), open_scratch(tmp_path / "nothing", MIB):
        pass
    with pytest.raises(HostError, match="is no folder"), open_scratch(tmp_path / "file", MIB):
        pass


def test_a_folder_of_somebody_elses_is_refused() -> None:
    us = os.geteuid()
    # Root may write anywhere.
    os.seteuid(us or _NOBODY)
    try:
        with pytest.raises(HostError, match="cannot make a file in /usr"), open_scratch(Path("/usr"), MIB):
            pass
    finally:
        os.seteuid(us)


def test_more_than_half_of_what_is_free_is_refused_with_the_sum(tmp_path: Path) -> None:
    usage = os.statvfs(tmp_path)
    free_bytes = usage.f_bavail * usage.f_frsize
    with pytest.raises(HostError, match="too little space") as caught, open_scratch(tmp_path, int(free_bytes * 0.9)):
        pass
    assert "are free, of which it may take 50 %" in caught.value.detail
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_space_that_cannot_be_taken_is_said_and_given_back(tmp_path: Path) -> None:
    with mounted("none", tmp_path / "small", "-t", "tmpfs", "-o", "size=4M") as folder:
        place = os.open(folder, os.O_RDONLY)
        descriptor = room._make_file(place)
        with pytest.raises(OSError, match="No space left on device"):
            room._take_space(descriptor, 8 * MIB)
        os.close(descriptor)
        os.close(place)
        assert os.statvfs(folder).f_bfree == os.statvfs(folder).f_blocks


def test_a_quota_is_said_though_it_does_not_show_in_what_is_free(tmp_path: Path) -> None:
    error = room._translate(OSError(errno.EDQUOT, "Disk quota exceeded"), tmp_path, MIB)
    assert (error.fact, error.detail) == (
        f"{tmp_path} has too little space to be measured",
        "the test file is 1 MB: Disk quota exceeded",
    )


@needs_root
def test_a_file_system_that_is_read_only_is_refused(tmp_path: Path) -> None:
    with (
        mounted("none", tmp_path / "read-only", "-t", "tmpfs", "-o", "ro") as folder,
        pytest.raises(HostError, match="is on a file system that is read-only"),
        open_scratch(folder, MIB),
    ):
        pass


@needs_root
def test_a_file_system_that_refuses_direct_io_is_known(tmp_path: Path) -> None:
    with mounted("none", tmp_path / "ram", "-t", "ramfs") as folder, open_scratch(folder, MIB) as scratch:
        assert not scratch.takes_direct
    with open_scratch(tmp_path, MIB) as scratch:
        assert scratch.takes_direct


@pytest.mark.parametrize(
    ("filesystem", "version", "ignores"),
    [
        ("zfs", "2.2.7-1", True),
        ("zfs", "0.8.3-1ubuntu12", True),
        ("zfs", "2.3.0-1", False),
        ("zfs", "2.10.0-rc1", False),
        ("zfs", None, True),
        ("ext4", None, False),
    ],
)
def test_a_file_system_that_only_takes_direct_io_is_known(
    tmp_path: Path, filesystem: str, version: str | None, ignores: bool
) -> None:
    if version is not None:
        module = tmp_path / "sys/module/zfs"
        module.mkdir(parents=True)
        (module / "version").write_text(f"{version}\n")
    assert ignores_direct(filesystem, Tree(tmp_path)) is ignores
