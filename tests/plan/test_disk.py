from __future__ import annotations

from collections import Counter

import pytest

from pgdyno.plan.disk import Pattern, make_disk_plan

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


def test_without_fio_only_the_programs_of_postgresql_are_left() -> None:
    plan = make_disk_plan(is_quick=False, free_bytes=100 * GIB, seed=1, wants_fio=False)
    assert plan.rounds == ()
    assert plan.flush_test_s > 0
    assert plan.file_bytes == 64 * 2**20
    assert plan.expected_s < 60
