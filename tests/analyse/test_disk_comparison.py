"""Disk cards compared: intervals, verdicts of a family, what is better of which figure."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from scipy import stats

from pgdyno.analyse.comparison.disk_cards import compare_entries
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.analyse.disk.card import estimate_card
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey, list_entries
from pgdyno.analyse.estimate import estimate_geometric_mean
from pgdyno.record.device.disk_card import DiskCard
from tests.disk_cards import make_card, make_runs


def single(values: list[float], key: DiskFigureKey = DiskFigureKey.RANDOM_READ, unit: str = "1/s") -> list[DiskFigure]:
    return [DiskFigure(key=key, estimate=estimate_geometric_mean(values, unit=unit), how="")]


def test_a_single_comparison_is_welchs_at_a_share_of_its_level() -> None:
    dice = np.random.default_rng(3)
    first, other = np.exp(dice.normal(7, 0.02, 4)), np.exp(dice.normal(7.1, 0.05, 3))
    (found,) = compare_entries([single(list(first)), single(list(other))])
    interval = stats.ttest_ind(np.log(other), np.log(first), equal_var=False).confidence_interval(1 - 0.05 * 0.2)
    assert (found.ratio.low, found.ratio.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    assert found.card == 1


def test_what_is_better_depends_on_the_figure() -> None:
    slow, fast = [100.0, 101.0, 99.0], [200.0, 202.0, 198.0]
    (iops,) = compare_entries([single(slow), single(fast)])
    (latency,) = compare_entries(
        [single(slow, DiskFigureKey.READ_P99, "us"), single(fast, DiskFigureKey.READ_P99, "us")]
    )
    assert iops.kind is VerdictKind.FASTER
    assert latency.kind is VerdictKind.SLOWER
    assert iops.ratio.value == pytest.approx(2.0, rel=0.01)


def test_alike_and_unknown() -> None:
    (alike,) = compare_entries([single([100.0, 100.4, 99.6]), single([101.0, 101.4, 100.6])])
    assert alike.kind is VerdictKind.EQUIVALENT
    (once,) = compare_entries([single([100.0, 100.4]), single([500.0])])
    assert once.kind is VerdictKind.INCONCLUSIVE
    assert (once.ratio.value, once.ratio.low) == (pytest.approx(500 / 100.2, rel=1e-3), None)
    assert once.ratio.reason
    (exact,) = compare_entries([single([100.0] * 3), single([100.0] * 3)])
    assert exact.kind is VerdictKind.EQUIVALENT


def test_a_disk_of_twice_the_speed_is_told_from_its_half() -> None:
    def doubled(card: DiskCard) -> DiskCard:
        runs = make_runs(seed=9, level=lambda one, _: 2.0)
        return msgspec.structs.replace(card, runs=runs)

    cards = [make_card(), make_card(runs=make_runs(seed=5)), doubled(make_card())]
    differences = compare_entries([list_entries(card, estimate_card(card)) for card in cards])
    first = {one.key: one for one in differences if one.card == 1}
    second = {one.key: one for one in differences if one.card == 2}
    assert not any(one.kind in {VerdictKind.FASTER, VerdictKind.SLOWER} for one in first.values())
    rates = set(DiskFigureKey) - {DiskFigureKey.FLUSH_TEST}
    assert all(second[key].kind is VerdictKind.FASTER for key in rates)


@pytest.mark.parametrize("spreads", [(0.05, 0.05), (0.01, 0.1), (0.02, 0.15), (0.15, 0.02)])
def test_disks_of_one_speed_are_seldom_told_apart(spreads: tuple[float, float]) -> None:
    dice = np.random.default_rng(11)

    def entries(spread: float) -> list[DiskFigure]:
        return [single(list(np.exp(dice.normal(7, spread, 3))), key)[0] for key in DiskFigureKey]

    def differ() -> bool:
        differences = compare_entries([entries(spread) for spread in spreads])
        return any(one.kind in {VerdictKind.FASTER, VerdictKind.SLOWER} for one in differences)

    assert sum(differ() for _ in range(200)) <= 200 * 0.05 + 2 * math.sqrt(200 * 0.05 * 0.95)


def test_nothing_in_common() -> None:
    assert compare_entries([[], single([1.0, 2.0])]) == ()
