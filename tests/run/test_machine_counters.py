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


def test_a_machine_elsewhere_is_not_read() -> None:
    assert MachineCounters(None, None, is_here=False).read()[1]["cpu_s"] is None
