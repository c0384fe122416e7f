from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.typing import NDArray

from pgdyno.analyse.comparison.pilot import (
    CANDIDATES_S,
    PILOT_SLICE_S,
    PILOT_SLICES,
    choose_from_slices,
    choose_slice,
)
from pgdyno.plan.order import PILOT_S
from pgdyno.record.transactions.slices import Slice, SliceLoad, SlicePhase

Floats = NDArray[np.float64]
LOST_S = 0.06
STEP_S = 0.01
Load = Callable[[Generator, int], Floats]
"""Log of the TPS in each of so many steps."""


def steady(tps: float) -> Load:
    return lambda _, steps: np.full(steps, math.log(tps))


def autocorrelated(tps: float, over_s: float, sd: float) -> Load:
    def draw(random: Generator, steps: int) -> Floats:
        # Each worker would import it to collect the tests, and one needs it.
        from scipy.signal import lfilter

        phi = math.exp(-STEP_S / over_s)
        innovations = random.normal(0, sd * math.sqrt(1 - phi**2), steps)
        innovations[0] = random.normal(0, sd)
        noise: Floats = lfilter([1], [1, -phi], innovations)
        return math.log(tps) + noise

    return draw


def drifting(tps: float, per_s: float) -> Load:
    return lambda _, steps: math.log(tps) - per_s * STEP_S * np.arange(steps)


def stalling(load: Load, every_s: float, for_s: float) -> Load:
    def draw(random: Generator, steps: int) -> Floats:
        levels = load(random, steps)
        at_s = random.uniform(0, every_s)
        while at_s < steps * STEP_S:
            begin = int(at_s / STEP_S)
            levels[begin : begin + int(for_s / STEP_S)] -= 4.0
            at_s += every_s * random.uniform(0.7, 1.3)
        return levels

    return draw


def cycling(tps: float, over_s: float) -> Load:
    return lambda random, steps: (
        math.log(tps) + 0.3 * np.sin(2 * np.pi * (np.arange(steps) * STEP_S / over_s + random.uniform()))
    )


LOADS = {
    "white": steady(1500),
    "white, quick": steady(20_000),
    "alike for half a second": autocorrelated(5000, 0.5, 0.2),
    "alike for two seconds": autocorrelated(1500, 2.0, 0.1),
    "drift": drifting(5000, 0.005),
    "steep drift": drifting(5000, 0.05),
    "stalls each second": stalling(steady(5000), 1.0, 0.15),
    "stalls now and then": stalling(autocorrelated(5000, 1.0, 0.1), 5.0, 0.3),
    "stalls while drifting": stalling(autocorrelated(2000, 2.0, 0.2), 0.6, 0.1),
    "cycles of a second": cycling(4000, 1.0),
    "cycles of four": cycling(4000, 4.0),
}


def tps_of_slices(random: Generator, load: Load, length_s: float, count: int) -> Floats:
    steps, lost = round(length_s / STEP_S), round(LOST_S / STEP_S)
    ended = random.poisson(np.exp(load(random, steps * count)) * STEP_S).reshape(count, steps)
    return np.maximum(ended[:, lost:].sum(axis=1), 0.5) / (length_s - LOST_S)


def half_width(random: Generator, load: Load, length_s: float) -> float:
    """What a minute of rounds really gives, from twenty of them."""
    rounds = int(60 / (3 * length_s))
    spread = [
        np.log(tps_of_slices(random, load, length_s, 3 * rounds)).reshape(rounds, 3).var(axis=1, ddof=1).mean()
        for _ in range(20)
    ]
    return 1.96 * math.sqrt(1.5 * float(np.mean(spread)) * 3 * length_s / 60)


def test_the_choice_makes_intervals_hardly_wider_than_the_best_would() -> None:
    random = np.random.default_rng(1)
    excess = {}
    for name, load in LOADS.items():
        widths = {length_s: half_width(random, load, length_s) for length_s in CANDIDATES_S}
        chosen = [
            choose_slice(tps_of_slices(random, load, PILOT_SLICE_S, PILOT_SLICES), lost_s=LOST_S).slice_s
            for _ in range(20)
        ]
        excess[name] = float(np.mean([widths[each] for each in chosen])) / min(widths.values()) - 1
    assert max(excess.values()) < 0.25, excess
    assert float(np.mean(list(excess.values()))) < 0.07, excess


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alike for half a second", 0.25),
        ("steep drift", 0.25),
        ("cycles of four", 0.25),
        ("cycles of a second", 1.0),
    ],
)
def test_clear_cases(name: str, expected: float) -> None:
    random = np.random.default_rng(2)
    choice = choose_slice(tps_of_slices(random, LOADS[name], PILOT_SLICE_S, PILOT_SLICES), lost_s=LOST_S)
    assert choice.slice_s in {expected, 2 * expected if name.startswith("cycles of a") else expected}


def test_the_width_it_promises_is_about_what_comes() -> None:
    random = np.random.default_rng(3)
    for name in ("alike for half a second", "white", "drift"):
        choice = choose_slice(tps_of_slices(random, LOADS[name], PILOT_SLICE_S, PILOT_SLICES), lost_s=LOST_S)
        promised = choice.half_width_ratio[f"{choice.slice_s:g}"]
        assert f"±{promised * 100:.1f} %" in choice.reason
        assert 0.6 < promised / half_width(random, LOADS[name], choice.slice_s) < 1.6


@pytest.mark.parametrize(
    ("tps", "lost_s", "expected", "reason"),
    [
        (10.0, 2.4, 10.0, "10 logged transactions a second, and 2.4 s lost"),
        (10.0, 0.06, 10.0, "10 logged transactions a second"),
        (40.0, 0.06, 4.0, "40 logged transactions a second"),
        (100_000.0, 1.4, 3.0, "1.4 s lost at each change"),
        (0.0, 0.06, 10.0, "0 logged transactions a second"),
    ],
)
def test_slow_loads_get_slices_that_hold_enough(tps: float, lost_s: float, expected: float, reason: str) -> None:
    choice = choose_slice([tps] * PILOT_SLICES, lost_s=lost_s)
    assert choice.slice_s == expected
    assert reason in choice.reason
    assert choice.half_width_ratio == {}


def test_a_slice_holds_enough_for_its_percentiles() -> None:
    for tps in (80, 160, 400, 1000):
        slice_s = choose_slice([float(tps)] * PILOT_SLICES, lost_s=LOST_S).slice_s
        assert (slice_s - LOST_S) * tps >= 150


def test_more_is_lost_than_counts_in_no_slice() -> None:
    for lost_s in (0.05, 0.13, 0.3, 0.6, 1.2):
        assert choose_slice([5000.0] * PILOT_SLICES, lost_s=lost_s).slice_s >= 2 * lost_s


@pytest.mark.parametrize("length_s", [0.25, 0.26, 0.5])
def test_slices_that_ran_until_the_choice_was_made_do_not_change_it(length_s: float) -> None:
    count = math.ceil(PILOT_S / length_s)
    slices = [
        Slice(
            phase=SlicePhase.PILOT,
            round=1 + position // 3,
            position=position % 3,
            variant="A",
            begin_monotonic_s=100.0 + length_s * position,
            settled_monotonic_s=100.0 + length_s * position + LOST_S,
            end_monotonic_s=100.0 + length_s * (position + 1),
            counts={},
        )
        for position in range(count + 6)
    ]
    counts = [int(x) for x in np.random.default_rng(1).normal(1000, 100, count)] + [10] * 6
    loads = [SliceLoad(ok_count=n, latency_us=np.full(n, 900), end_s=np.ones(n)) for n in counts]
    assert choose_from_slices(slices, loads[: count - 1]) is None
    chosen = choose_from_slices(slices[:count], loads[:count])
    assert chosen is not None
    assert choose_from_slices(slices, loads) == chosen


def test_a_pilot_that_was_cut_short_or_stalled_still_chooses() -> None:
    assert choose_slice([], lost_s=LOST_S).slice_s == 10.0
    assert choose_slice([5000.0], lost_s=LOST_S).slice_s == 2.0
    assert choose_slice([5000.0, 4000.0, 5000.0], lost_s=LOST_S).slice_s == 0.25
    stalled = [0.0 if number % 9 == 0 else 5000.0 for number in range(PILOT_SLICES)]
    assert choose_slice(stalled, lost_s=LOST_S).slice_s > 0.25
    blocks = [5000.0] * 24 + [0.0] * 24 + [5000.0] * 24
    choice = choose_slice(blocks, lost_s=LOST_S)
    assert (choice.slice_s, choice.half_width_ratio) == (2.0, {})
    assert "held no transaction" in choice.reason


@given(
    tps=st.lists(st.floats(0, 1e6), max_size=100),
    lost_s=st.floats(0, 20),
    factor=st.floats(1.5, 100),
)
def test_any_pilot_gives_a_length_that_a_study_may_ask_for(tps: list[float], lost_s: float, factor: float) -> None:
    choice = choose_slice(tps, lost_s=lost_s)
    assert 0.2 <= choice.slice_s <= 10.0
    assert all(math.isfinite(width) and width >= 0 for width in choice.half_width_ratio.values())
    # More transactions never ask for longer slices than they need.
    more = choose_slice([factor * each for each in tps], lost_s=lost_s)
    assert set(choice.half_width_ratio) <= set(more.half_width_ratio)
