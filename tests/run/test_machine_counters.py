"""Counters that slices read of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.run.sample.machine_counters import MachineCounters

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def cpu() -> Iterator[int]:
    """The only CPU that this process may use."""
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("the machine has one CPU")
    os.sched_setaffinity(0, {min(before)})
    yield min(before)
    os.sched_setaffinity(0, before)


def read_work_s(name: str) -> float:
    """User, nice, system, irq and softirq time."""
    lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    fields = next(fields for first, *fields in lines if first == name)
    return sum(int(fields[at]) for at in (0, 1, 2, 5, 6)) / TICKS_PER_S


def test_work_of_cpus_that_the_study_may_not_use_is_none_of_it(cpu: int) -> None:
    before_s = read_work_s(f"cpu{cpu}")
    _, counts = MachineCounters(None, None).read()
    assert counts["cpu_s"] is not None
    assert before_s <= counts["cpu_s"] <= read_work_s(f"cpu{cpu}") < read_work_s("cpu")


def test_without_a_limit_all_cpus_count() -> None:
    if len(os.sched_getaffinity(0)) < (os.cpu_count() or 0):
        pytest.skip("this process may not use all CPUs")
    before_s = read_work_s("cpu")
    _, counts = MachineCounters(None, None).read()
    assert counts["cpu_s"] is not None
    assert before_s <= counts["cpu_s"] <= read_work_s("cpu")


@pytest.mark.parametrize(("usable", "cpu_s"), [({4, 5}, 14.0), ({1}, 4.0), ({0, 1, 2, 3}, 14.0), ({4}, None)])
def test_cpus_that_a_container_numbers_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usable: set[int], cpu_s: float | None
) -> None:
    """As in /proc/stat of LXC, where sched_getaffinity tells the machine's own numbers."""
    ticks = {"cpu": 14, "cpu0": 10, "cpu1": 4}
    lines = [f"{name} {seconds * TICKS_PER_S} 0 0 900 0 0 0 0 0 0\n" for name, seconds in ticks.items()]
    (stat := tmp_path / "stat").write_text("".join(lines) + "intr 1\n")
    monkeypatch.setattr("pgdyno.run.sample.machine_counters.Path", lambda *_: stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable)
    assert MachineCounters(None, None).read()[1]["cpu_s"] == cpu_s


@pytest.mark.parametrize(("device", "flushes", "count"), [("dm-0", 0, None), ("dm-0", 7, 7), ("vda", 0, 0)])
def test_flushes_that_are_not_counted_are_absent(tmp_path: Path, device: str, flushes: int, count: int | None) -> None:
    counters = MachineCounters(None, device, is_here=False)
    counters._disk = tmp_path / device / "stat"
    counters._disk.parent.mkdir()
    counters._disk.write_text(f"{'9 ' * 15}{flushes} 0")
    assert counters.read()[1]["device_flush_count"] == count


def test_a_machine_elsewhere_is_not_read() -> None:
    assert MachineCounters(None, None, is_here=False).read()[1]["cpu_s"] is None
