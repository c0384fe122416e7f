"""Settings below /sys: a tree of our own where the kernel is not asked, a loop device of our own where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.errors import HostError, RefusedValueError, SpecError
from pgdyno.run.change import sysfs
from pgdyno.run.change.pseudo_file import write_value
from pgdyno.run.change.sysfs import check_sysfs, read_value, reset_with, write_values
from tests.loops import empty_loop, needs_root
from tests.sysctls import needs_proc_sys

THP = "kernel/mm/transparent_hugepage/enabled"
QUEUE = "block/sdz/queue"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {
        THP: "always [madvise] never\n",
        f"{QUEUE}/scheduler": "[none] mq-deadline\n",
        f"{QUEUE}/read_ahead_kb": "128\n",
        f"{QUEUE}/nr_requests": "64\n",
        f"{QUEUE}/write_cache": "write back\n",
        "block/sdz/device/delete": "",
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.setattr(sysfs, "ROOT", tmp_path)
    return tmp_path


def test_values(tree: Path) -> None:
    assert read_value(THP) == "madvise"
    assert read_value(f"{QUEUE}/read_ahead_kb") == "128"
    write_values({f"{QUEUE}/read_ahead_kb": "256"})
    assert (tree / QUEUE / "read_ahead_kb").read_text() == "256\n"
    with pytest.raises(HostError, match="cannot read"):
        read_value("block/sdz/queue/nothing")


def test_what_the_scheduler_resets(tree: Path) -> None:
    values = {f"/sys/{QUEUE}/nr_requests": "32", f"{QUEUE}/scheduler": "mq-deadline"}
    assert check_sysfs(values) == {f"{QUEUE}/nr_requests": "32", f"{QUEUE}/scheduler": "mq-deadline"}
    assert reset_with(f"{QUEUE}/scheduler") == (f"{QUEUE}/nr_requests",)
    assert reset_with(THP) == ()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("block/sdz/device/delete", "1", "no setting that pgdyno knows how to undo"),
        (f"{QUEUE}/write_cache", "write through", "no setting that pgdyno knows"),
        (f"{QUEUE}/../queue/scheduler", "none", "no setting that pgdyno knows"),
        ("block/sdy/queue/scheduler", "none", "there is no"),
        (f"{QUEUE}/scheduler", "bfq", "does not take 'bfq'"),
        (THP, "sometimes", "does not take"),
    ],
)
def test_refusals(tree: Path, name: str, value: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        check_sysfs({name: value})


def test_a_value_that_is_taken_differently(tree: Path) -> None:
    # A plain file keeps the blank that the kernel would not.
    with pytest.raises(RefusedValueError, match="did not take"):
        write_values({f"{QUEUE}/read_ahead_kb": "256 \n1"} | {f"{QUEUE}/nr_requests": " 7"})


def test_a_value_that_cannot_be_written() -> None:
    with pytest.raises(RefusedValueError, match="cannot set a setting to 1"):
        write_value(Path("/dev/full"), "1", name="a setting")


@needs_root
@needs_proc_sys
def test_a_value_the_kernel_refuses(tmp_path: Path) -> None:
    with empty_loop(tmp_path, "own", 2**20) as device:
        name = f"block/{device.name}/queue/read_ahead_kb"
        before = read_value(name)
        with pytest.raises(SpecError, match="the kernel refuses"):
            write_values({name: "many"})
        assert read_value(name) == before
