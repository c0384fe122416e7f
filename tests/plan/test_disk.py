from __future__ import annotations

from collections import Counter

import pytest

from pgdyno.plan.disk import FIO_START_S, DiskJob, Pattern, make_disk_plan, split_job

GIB = 2**30


@pytest.mark.parametrize(("is_quick", "most_s"), [(True, 40.0), (False, 220.0)])
def test_a_plan_keeps_within_its_time_even_where_laying_out_takes_all_it_may(is_quick: bool, most_s: float) -> None:
    plan = make_disk_plan(is_quick=is_quick, free_bytes=100 * GIB, seed=1)
    # Of four minutes some are left for a machine that is busy.
    assert plan.expected_s - plan.expected_fill_s + plan.fill_s <= most_s


def test_every_round_has_every_job_once_in_an_order_of_its_own() -> None:
    plan = make_disk_plan(is_quick=False, free_bytes=100 * GIB, seed=7)
    assert len(plan.rounds) >= 3
    counts = [Counter(jobs) for jobs in plan.rounds]
    assert all(count == counts[0] and set(count.values()) == {1} for count in counts)
    assert len(set(plan.rounds)) == len(plan.rounds)
    assert {job.pattern for job in plan.rounds[0]} == set(Pattern)
    assert plan == make_disk_plan(is_quick=False, free_bytes=100 * GIB, seed=7)
    assert plan != make_disk_plan(is_quick=False, free_bytes=100 * GIB, seed=8)


def test_random_io_is_swept_from_one_on() -> None:
    plan = make_disk_plan(is_quick=False, free_bytes=100 * GIB, seed=1)
    for pattern in (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE):
        depths = sorted(job.depth for job in plan.rounds[0] if job.pattern is pattern)
        assert depths == [1, 4, 16, 64, 256]
    assert all(job.depth == 1 for job in plan.rounds[0] if job.is_flushed)


def test_the_file_leaves_most_of_the_free_space_free() -> None:
    assert make_disk_plan(is_quick=False, free_bytes=4 * GIB, seed=1).file_bytes == GIB
    assert make_disk_plan(is_quick=False, free_bytes=10**6, seed=1).file_bytes == 64 * 2**20
    assert make_disk_plan(is_quick=False, free_bytes=100 * GIB, seed=1).file_bytes == 2 * GIB


@pytest.mark.parametrize("is_quick", [True, False])
def test_size_and_time_that_are_asked_for(is_quick: bool) -> None:
    usual = make_disk_plan(is_quick=is_quick, free_bytes=100 * GIB, seed=1)
    plan = make_disk_plan(is_quick=is_quick, free_bytes=30 * GIB, seed=1, file_bytes=16 * GIB, runtime_s=60.0)
    assert plan.file_bytes == 16 * GIB, "more than a quarter of what is free"
    uneven = make_disk_plan(is_quick=is_quick, free_bytes=30 * GIB, seed=1, file_bytes=100 * 2**20 + 2**19)
    assert uneven.file_bytes == 100 * 2**20, "whole blocks of fio"
    runs = [job for jobs in plan.rounds for job in jobs]
    assert {job.runtime_s for job in runs} == {60.0}
    assert len(runs) == sum(map(len, usual.rounds))
    tests_s = plan.flush_test_s * 16 + plan.clock_test_s
    assert plan.expected_s == pytest.approx(len(runs) * (60.0 + FIO_START_S) + tests_s + 16 * GIB / 400e6)
    assert plan.fill_s == pytest.approx(16 * GIB / 20e6), "a disk of 20 MB/s gets all of it"
    small = make_disk_plan(is_quick=is_quick, free_bytes=100 * GIB, seed=1, file_bytes=64 * 2**20)
    assert small.fill_s == usual.fill_s


def test_only_random_io_is_shared_by_processes() -> None:
    plan = make_disk_plan(is_quick=False, free_bytes=100 * GIB, seed=1, cpu_count=6)
    assert plan.most_processes == 6

    def most(job: DiskJob) -> int:
        while (more := split_job(job, most_processes=plan.most_processes)) is not None:
            assert (more.depth, more.processes) == (job.depth, job.processes * 2)
            job = more
        return job.processes

    found = {(job.pattern, job.depth): most(job) for job in plan.rounds[0]}
    assert found[Pattern.RANDOM_READ, 256] == found[Pattern.MIXED, 16] == 4, "8 would be more than the CPUs"
    assert found[Pattern.RANDOM_WRITE, 1] == 1
    assert {
        most for (pattern, _), most in found.items() if "random" not in pattern.value and pattern is not Pattern.MIXED
    } == {1}


def test_without_fio_only_the_programs_of_postgresql_are_left() -> None:
    plan = make_disk_plan(is_quick=False, free_bytes=100 * GIB, seed=1, wants_fio=False)
    assert plan.rounds == ()
    assert plan.flush_test_s > 0
    assert plan.file_bytes == 64 * 2**20
    assert plan.expected_s < 60
