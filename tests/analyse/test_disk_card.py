"""What is made of a card's runs: estimates, plateaus, fades and noise, of disks whose truth is planted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from scipy import stats

from pgdyno.analyse.disk.card import PlateauKind, estimate_card
from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.record.device.disk_card import DiskCard
from tests.disk_cards import BYTES_PER_S, IOPS, JOBS, PAGE, job, make_card, make_runs, planted_iops, run


def card_of(**how: object) -> DiskCard:
    return make_card(runs=make_runs(**how))  # type: ignore[arg-type]


def test_a_job_is_estimated_over_its_rounds() -> None:
    card = card_of(noise=0.05)
    figures = estimate_card(card)
    assert len(figures.jobs) == len(JOBS)
    assert figures.round_count == 3
    found = figures.find(Pattern.RANDOM_WRITE, depth=16)
    logs = [
        math.log(one.write.iops) for one in card.runs if one.job == job(Pattern.RANDOM_WRITE, depth=16) and one.write
    ]
    assert found
    assert found.iops.value == pytest.approx(math.exp(sum(logs) / 3))
    low, high = stats.t.interval(0.95, 2, sum(logs) / 3, stats.sem(logs))
    assert (found.iops.low, found.iops.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.write
    assert found.write.p99_us.n == 3
    assert found.read is None
    assert found.flush is None


def test_reads_and_writes_of_a_mixed_job_count_together() -> None:
    mixed = estimate_card(card_of(noise=0)).find(Pattern.MIXED, depth=16)
    assert mixed
    assert mixed.iops.value == pytest.approx(IOPS)
    assert mixed.bytes_per_s.value == pytest.approx(IOPS * PAGE)
    assert mixed.read
    assert mixed.write


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_plateau_begins_where_more_depth_surely_buys_nothing(noise: float) -> None:
    figures = estimate_card(card_of(rounds=4, noise=noise))
    plateau = figures.find_plateau(Pattern.RANDOM_READ)
    assert plateau
    assert (plateau.kind, plateau.depth, plateau.depths) == (PlateauKind.REACHED, 16, (1, 4, 16, 64))
    assert plateau.iops.value == pytest.approx(IOPS, rel=0.02)
    sequential = figures.find_plateau(Pattern.SEQUENTIAL_WRITE)
    assert sequential
    assert sequential.kind is PlateauKind.ONE_DEPTH
    assert sequential.bytes_per_s.value == pytest.approx(BYTES_PER_S, rel=0.02)
    assert all(plateau.pattern not in {Pattern.WAL, Pattern.WRITE_AND_FLUSH} for plateau in figures.plateaus)


def test_a_depth_that_is_too_much_is_not_of_the_plateau() -> None:
    def level(one: DiskJob, _: int) -> float:
        return 0.5 if one.depth == 64 else 1.0

    plateau = estimate_card(card_of(level=level)).find_plateau(Pattern.RANDOM_READ)
    assert plateau
    assert (plateau.kind, plateau.depth) == (PlateauKind.REACHED, 16)
    assert plateau.iops.value == pytest.approx(IOPS, rel=0.03)


def test_a_plateau_that_noise_hides_is_only_likely() -> None:
    plateau = estimate_card(card_of(rounds=2, noise=0.02)).find_plateau(Pattern.RANDOM_READ)
    assert plateau
    assert plateau.kind is PlateauKind.LIKELY


def test_a_disk_that_still_rises_has_no_plateau() -> None:
    rising = [job(Pattern.RANDOM_READ, depth=depth) for depth in (1, 4, 16)]
    plateau = estimate_card(card_of(jobs=rising)).find_plateau(Pattern.RANDOM_READ)
    assert plateau
    assert (plateau.kind, plateau.depth) == (PlateauKind.NOT_REACHED, 16)


def test_a_steady_disk_does_not_fade() -> None:
    direct = [one for one in JOBS if one.pattern in {Pattern.RANDOM_READ, Pattern.SEQUENTIAL_READ}]
    figures = [estimate_card(card_of(noise=0.15, seed=seed, jobs=direct)) for seed in range(100)]
    assert sum(bool(one.fades) for one in figures) <= 2, "of 100 steady but noisy disks"
    assert sum(bool(one.rises) for one in figures) <= 2, "of 100 steady but noisy disks"


def test_a_burst_that_ends_between_rounds_is_seen() -> None:
    def level(one: DiskJob, number: int) -> float:
        is_spent = number > 0 and one.pattern in {Pattern.RANDOM_READ, Pattern.SEQUENTIAL_READ}
        return 0.4 if is_spent and planted_iops(one) * one.block_bytes > 60e6 else 1.0

    (fade,) = estimate_card(card_of(level=level)).fades
    assert (fade.what, fade.is_within_runs) == ("reads", False)
    assert fade.ratio.value == pytest.approx(0.4, rel=0.1)


# What a quick card has of a disk at its limit: two depths, three rounds, and too few parts of each run to have ends.
QUICK = (
    *(job(pattern, depth=depth) for pattern in (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE) for depth in (1, 64)),
    *(job(pattern, depth=8, block_bytes=2**20) for pattern in (Pattern.SEQUENTIAL_READ, Pattern.SEQUENTIAL_WRITE)),
)


@pytest.mark.parametrize(
    ("left", "noise", "least", "most"), [(1.0, 0.17, 0, 4), (0.2, 0.17, 90, 100), (0.4, 0.05, 98, 100)]
)
def test_a_quick_card_sees_a_large_burst_end_between_rounds(left: float, noise: float, least: int, most: int) -> None:
    """Of quiet disks a fall to two fifths, of noisy ones to a fifth."""

    def level(one: DiskJob, number: int) -> float:
        return left if number > 0 and one.pattern in {Pattern.RANDOM_READ, Pattern.SEQUENTIAL_READ} else 1.0

    figures = [estimate_card(card_of(jobs=QUICK, noise=noise, seed=seed, level=level)) for seed in range(100)]
    assert least <= sum("reads" in {fade.what for fade in one.fades} for one in figures) <= most
    assert sum("writes" in {fade.what for fade in one.fades} for one in figures) <= 4


@pytest.mark.parametrize("jobs", [QUICK, JOBS], ids=["quick", "whole"])
def test_what_the_rounds_of_a_steady_disk_have_in_common_is_no_burst(jobs: Sequence[DiskJob]) -> None:
    """Beside other load: by a fall of certainly more than 10 % a sixth of quick cards and a quarter of whole ones warned."""
    levels = np.exp(np.random.default_rng(1).normal(0, 0.1, (60, 3)))
    for seed, of_disk in enumerate(levels):
        figures = estimate_card(card_of(jobs=jobs, noise=0.05, seed=seed, level=lambda _, number: of_disk[number]))  # noqa: B023
        assert (figures.fades, figures.rises) == ((), ())


def test_the_fall_between_rounds_is_that_of_a_two_way_layout() -> None:
    """Fitted by least squares, with one level for each job and one for each round."""
    card = card_of(jobs=QUICK, noise=0.1, level=lambda _, number: 1.0 if number == 0 else 0.2)
    runs = [one for one in card.runs if one.read and one.job.depth > 1]
    jobs = sorted({one.job.block_bytes for one in runs})
    rows = [[*(one.job.block_bytes == at for at in jobs), one.round == 1, one.round == 2] for one in runs]
    design, logs = np.array(rows, dtype=float), np.log([one.read.iops for one in runs if one.read])
    fitted, (squares,), _, _ = np.linalg.lstsq(design, logs)
    sd = math.sqrt(squares / 2 * np.linalg.inv(design.T @ design)[-1, -1])
    (fade,) = (one for one in estimate_card(card).fades if one.what == "reads")
    interval = stats.t.interval(0.95, 2, fitted[-1], sd)
    assert (fade.ratio.low, fade.ratio.high) == pytest.approx(tuple(np.exp(interval)))
    assert (fade.ratio.value, fade.ratio.n) == (pytest.approx(math.exp(fitted[-1])), 2)


def test_a_disk_that_others_leave_is_not_steady() -> None:
    figures = estimate_card(card_of(level=lambda _, number: 0.5 if number == 0 else 1.0))
    assert {(rise.what, rise.is_within_runs) for rise in figures.rises} == {("reads", False), ("writes", False)}
    assert all(rise.ratio.value == pytest.approx(2, rel=0.1) for rise in figures.rises)
    assert not figures.fades


def test_a_burst_that_ends_within_runs_is_seen() -> None:
    runs = [
        run(
            one,
            number,
            planted_iops(one),
            spans=(1.4, 1.4, 1.0, 1.0, 0.6, 0.6) if one.pattern is Pattern.RANDOM_WRITE else (),
        )
        for number in range(3)
        for one in JOBS
        if one.pattern is not Pattern.SEQUENTIAL_WRITE
    ]
    (fade,) = estimate_card(make_card(runs=tuple(runs))).fades
    assert (fade.what, fade.is_within_runs) == ("writes", True)
    assert fade.ratio.value == pytest.approx(0.6 / 1.4)


def test_noise_is_that_of_runs_around_their_jobs() -> None:
    assert estimate_card(card_of(rounds=20, noise=0.08)).noise_ratio == pytest.approx(0.08, rel=0.15)
    assert estimate_card(card_of(rounds=1)).noise_ratio is None


def test_one_round_has_no_interval() -> None:
    figures = estimate_card(card_of(rounds=1))
    assert all(one.iops.low is None for one in figures.jobs)
    plateau = figures.find_plateau(Pattern.RANDOM_WRITE)
    assert plateau
    assert plateau.kind is PlateauKind.LIKELY
    assert not figures.fades


def test_a_run_that_did_nothing_is_no_rate() -> None:
    *runs, last = make_runs(jobs=[job(Pattern.RANDOM_READ)])
    assert last.read
    stalled = msgspec.structs.replace(last, read=msgspec.structs.replace(last.read, iops=0.0, bytes_per_s=0.0))
    found = estimate_card(make_card(runs=(*runs, stalled))).find(Pattern.RANDOM_READ)
    assert found
    assert found.iops.n == 2


def test_a_declared_card_has_nothing_to_estimate() -> None:
    figures = estimate_card(make_card(runs=()))
    assert (figures.jobs, figures.plateaus, figures.fades, figures.round_count) == ((), (), (), 0)
