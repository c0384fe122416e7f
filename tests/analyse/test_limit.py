"""The largest rate that holds: never called wrongly more often than was allowed, whatever the noise, and found in time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.search.latency_limit import LimitSearch, Probe, RateVerdict
from tests.analyse.searches import Machine, draw_noise, run_search

RATES = tuple(float(f"{100 * 1.05**k:.3g}") for k in range(50))


def test_rates_that_hold_and_fail_enclose_the_limit() -> None:
    search = LimitSearch(RATES, alpha=0.05, resolution_ratio=0.1)
    for _ in range(60):
        rate = search.next_rate()
        if rate is None:
            break
        search.add(Probe(rate, rate <= 400.0))
    answer = search.answer()
    assert answer.is_settled
    assert answer.trials_needed == 0
    assert answer.holds_tps is not None
    assert answer.fails_tps is not None
    assert answer.estimate_tps is not None
    assert answer.holds_tps <= 400.0 < answer.fails_tps <= 1.11 * answer.holds_tps
    assert answer.holds_tps <= answer.estimate_tps <= answer.fails_tps
    assert answer.n <= 28
    assert answer.judge(100.0) is RateVerdict.HOLDS
    assert answer.judge(answer.fails_tps) is RateVerdict.FAILS
    assert search.next_rate() is None


@pytest.mark.parametrize(("limit", "holds", "fails"), [(1e9, RATES[-1], None), (1.0, None, RATES[0])])
def test_a_limit_beyond_all_rates_is_said_to_be(limit: float, holds: float | None, fails: float | None) -> None:
    search = LimitSearch(RATES, alpha=0.05, resolution_ratio=0.1)
    while (rate := search.next_rate()) is not None:
        search.add(Probe(rate, rate <= limit))
    answer = search.answer()
    assert (answer.holds_tps, answer.fails_tps, answer.estimate_tps) == (holds, fails, None)
    assert answer.n <= 25


def test_nothing_is_known_before_the_first_trial() -> None:
    answer = LimitSearch(RATES, alpha=0.05, resolution_ratio=0.1).answer()
    assert (answer.holds_tps, answer.fails_tps, answer.estimate_tps, answer.n) == (None, None, None, 0)
    assert not answer.is_settled
    with pytest.raises(ValueError, match="not in tuple"):
        LimitSearch(RATES, alpha=0.05, resolution_ratio=0.1).add(Probe(1.5, is_held=True))


def test_what_it_would_take_shrinks_as_trials_come_and_noise_without_end_has_no_price() -> None:
    quiet = [stand.answer for stand in run_search(Machine(limit_tps=700.0, sd=0.01), seed=3)]
    promised = [answer.trials_needed for answer in quiet if answer is not None and answer.n > 12]
    assert promised[-1] == 0
    assert promised[0] is not None
    assert promised[0] <= 40
    wild = run_search(Machine(limit_tps=400.0, sd=0.5), seed=3)[-1].answer
    assert wild is not None
    assert not wild.is_settled
    assert wild.trials_needed is None or wild.trials_needed > 100
    assert wild.spread_ratio > 0.2


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40), st.sampled_from([0.05, 0.2]), st.sampled_from([1.0, 7.0])
)  # fmt: skip
def test_the_answer_is_that_of_a_slow_obvious_version(seen: list[tuple[int, bool]], alpha: float, unit: float) -> None:
    rates = tuple(unit * float(100 + 5 * k) for k in range(10))
    search = LimitSearch(rates, alpha=alpha, resolution_ratio=0.1)
    shown_above, shown_below = set(), set()
    bets: list[tuple[float, float, bool]] = []
    for at, is_held in seen:
        chance = float(search._chances[at])
        bets.append((rates[at], chance, is_held))
        search.add(Probe(rates[at], is_held))
        for rate in rates:
            above = math.prod(1 + max(0.0, 2 * p - 1) * (1 if held else -1) for r, p, held in bets if r >= rate)
            below = math.prod(1 + max(0.0, 1 - 2 * p) * (-1 if held else 1) for r, p, held in bets if r <= rate)
            shown_above |= {rate} if above >= 2 / alpha else set()
            shown_below |= {rate} if below >= 2 / alpha else set()
    low = list(itertools.takewhile(lambda rate: rate in shown_above, rates))
    high = list(itertools.takewhile(lambda rate: rate in shown_below, reversed(rates)))
    answer = search.answer()
    assert answer.holds_tps == (low[-1] if low else None)
    assert answer.fails_tps == (high[-1] if high else None)
    if answer.holds_tps is not None and answer.fails_tps is not None and answer.estimate_tps is not None:
        assert min(answer.holds_tps, answer.fails_tps) <= answer.estimate_tps


@pytest.mark.parametrize("noise", ["normal", "heavy", "skewed", "stalls", "run effects", "drift"])
def test_a_rate_is_called_wrongly_no_more_often_than_was_allowed(noise: str) -> None:
    random = np.random.default_rng(20261121)
    false, settled, repetitions = 0, 0, 100
    for seed in range(repetitions):
        machine = Machine(
            limit_tps=float(random.uniform(300, 1000)), sd=float(random.choice([0.01, 0.04, 0.12])), noise=noise
        )
        search = LimitSearch(RATES, alpha=0.05, resolution_ratio=0.1)
        for step in draw_noise(noise, 30, np.random.default_rng(seed)):
            rate = search.next_rate()
            if rate is None:
                break
            search.add(Probe(rate, rate <= machine.limit_tps * math.exp(machine.sd * step)))
        answer = search.answer()
        # What was called once stays so: the last look tells of all.
        false += (answer.holds_tps or 0.0) > machine.limit_tps or (answer.fails_tps or math.inf) < machine.limit_tps
        settled += answer.is_settled
    # Three standard errors of a rate of 5 %; run effects and drift are not what the guarantee is about, and keep it here.
    assert false / repetitions <= 0.05
    assert settled > 0
