from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.comparison.answers import Question, Round, compare
from pgdyno.analyse.comparison.e_process import IntervalKind, gather_evidence
from pgdyno.analyse.comparison.final_look import LookPlace
from pgdyno.analyse.comparison.repeats import Repeated, find_extremes
from pgdyno.analyse.comparison.rounds import rounds_of_slices
from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind, decide_family
from pgdyno.facts.metrics import Better
from tests.analyse.experiments import build_experiment, build_rounds
from tests.analyse.test_rounds import build_block

# The noise of six pairs, and of the reference against itself.
NOISE = [0.02, -0.02, 0.01, -0.01, 0.03, -0.03]
OWN = [0.01, -0.04, 0.02, 0.0, -0.01, 0.03]
ROWS = st.lists(st.integers(-300, 300).map(lambda n: n / 1000), min_size=4, max_size=12)


def failed(*places: int, of: str = "variant", n: int = 6) -> list[Repeated]:
    return [Repeated(**{of: 1}) if place in places else Repeated() for place in range(n)]


def decide(values: list[float], extremes: tuple[tuple[float, ...], ...] = ()) -> Verdict:
    (verdict,) = decide_family(
        {"v": values},
        metric="tps",
        better=Better.HIGHER,
        alpha=0.05,
        delta_ratio=0.03,
        places={"v": LookPlace(looked=len(values))},
        extremes={"v": extremes},
    )
    return verdict


def test_where_both_sides_fail_alike_nothing_is_bounded() -> None:
    assert find_extremes(NOISE, OWN, failed()) == ()
    # The reference runs twice in a round.
    assert find_extremes(NOISE, OWN, failed(0, of="reference")) == ()
    assert find_extremes(NOISE, OWN, [Repeated(1, 2), *failed(n=5)]) == ()
    assert find_extremes(NOISE, OWN, [Repeated(1, 1), *failed(n=5)]) == ()
    assert find_extremes([], [], []) == ()


def test_a_pair_for_each_time_that_one_side_failed_more_often_lies_at_either_bound() -> None:
    lowest, highest = find_extremes(NOISE, OWN, failed(0, 2))
    bounds = min(*lowest), max(*highest)
    assert bounds[0] <= min(NOISE)
    assert bounds[1] >= max(NOISE)
    assert lowest == (bounds[0], *NOISE[1:2], bounds[0], *NOISE[3:])
    assert highest == (bounds[1], *NOISE[1:2], bounds[1], *NOISE[3:])
    # Of two failures of the variant and two of the reference, one is more often: the pair that matters most.
    mixed = [Repeated(1, 1), Repeated(), Repeated(1, 1), *failed(n=3)]
    lowest, highest = find_extremes(NOISE, OWN, mixed)
    assert [one for one, was in zip(lowest, NOISE, strict=True) if one != was] == [lowest[0]]
    assert [one for one, was in zip(highest, NOISE, strict=True) if one != was] == [highest[2]]
    # The reference's failures bound the pairs likewise.
    assert find_extremes(NOISE, OWN, failed(0, 2, of="reference"))[0] == (lowest[0], *NOISE[1:])


def test_a_variant_without_a_spread_of_its_own_has_that_of_the_reference() -> None:
    lowest, highest = find_extremes([0.1] * 6, [0.2] * 6, failed(0))
    assert (lowest[0], highest[0]) == pytest.approx((0.1 - 0.2, 0.1 + 0.2))


@given(values=ROWS, shift=st.floats(-2, 2), data=st.data())
def test_bounds_move_with_the_effect(values: list[float], shift: float, data: st.DataObject) -> None:
    n = len(values)
    own = data.draw(st.lists(st.floats(-0.3, 0.3), min_size=n, max_size=n))
    places = data.draw(st.sets(st.integers(0, n - 1)))
    here, there = (find_extremes([value + by for value in values], own, failed(*places, n=n)) for by in (0.0, shift))
    assert len(here) == len(there) == (2 if places else 0)
    for one, other in zip(here, there, strict=True):
        assert np.add(one, shift) == pytest.approx(other, abs=1e-9)


@given(values=ROWS, data=st.data())
def test_a_verdict_holds_for_all_that_the_pairs_may_have_been(values: list[float], data: st.DataObject) -> None:
    n = len(values)
    others = tuple(tuple(data.draw(st.lists(st.floats(-0.3, 0.3), min_size=n, max_size=n))) for _ in range(2))
    together, alone = decide(values, others), [decide(list(row)) for row in (values, *others)]
    if together.is_decided:
        assert {together.kind} == {one.kind for one in alone} or VerdictKind.EQUIVALENT in {one.kind for one in alone}
    assert together.log10_e_value == min(one.log10_e_value for one in alone)
    # At the same level, the interval holds those of all.
    evidence = [gather_evidence(row, alpha=0.025, looked=n).interval for row in (values, *others)]
    hull = gather_evidence(values, alpha=0.025, looked=n, extremes=others).interval
    ends = [(one.low, one.high) for one in evidence if one.low is not None and one.high is not None]
    assert len(ends) == 3
    assert (hull.low, hull.high) == (min(low for low, _ in ends), max(high for _, high in ends))


def test_an_effect_is_not_said_to_change_where_only_a_bound_does() -> None:
    random = np.random.default_rng(5)
    values, bound = (
        random.normal(0.1, 0.01, 80).tolist(),
        [*random.normal(-0.3, 0.01, 20), *random.normal(0.1, 0.01, 60)],
    )
    assert gather_evidence(bound, alpha=0.05).interval.kind is IntervalKind.DRIFTED
    alone, bounded = (gather_evidence(values, alpha=0.05, extremes=of).interval for of in ((), (bound, values)))
    assert alone.kind is bounded.kind is IntervalKind.BOUNDED
    assert alone.low is not None
    assert bounded.low is not None
    assert bounded.low < 0 < alone.low


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_pairs_that_all_failed_decide_no_more_than_they_do_alone(n: int) -> None:
    for effect in (0.0, 0.1, 1.0):
        values = [effect + noise for noise in NOISE[:n]]
        alone, found = decide(values), decide(values, find_extremes(values, OWN[:n], failed(*range(n), n=n)))
        assert found.kind in {alone.kind, VerdictKind.INCONCLUSIVE}
        assert found.log10_e_value <= alone.log10_e_value
        # What the reference does by itself is no effect of a variant whose pairs all failed.
        if abs(effect) < max(map(abs, OWN)):
            assert not found.is_different


def test_a_small_effect_is_not_decided_by_a_variant_that_failed_and_a_large_one_is() -> None:
    small, large = ([effect + noise for noise in NOISE] for effect in (0.035, 0.4))
    extremes = [find_extremes(values, OWN, failed(4)) for values in (small, large)]
    assert [decide(values).kind for values in (small, large)] == [VerdictKind.FASTER] * 2
    found = [decide(*one) for one in zip((small, large), extremes, strict=True)]
    assert [one.kind for one in found] == [VerdictKind.INCONCLUSIVE, VerdictKind.FASTER]


def ask(rounds: list[Round]) -> Question:
    (found,) = compare({"w": rounds}, build_experiment("A", "B"), primary={"w": "tps"}, metrics=("tps",))
    (question,) = found.questions
    # The reference fails as it does itself.
    assert [one.extremes for one in found.noise] == [()]
    return question


def test_rounds_tell_whose_trials_failed() -> None:
    rounds = build_rounds("tps", A=[(100.0, 100.0 * math.exp(each)) for each in OWN], B=[104.0] * 6)
    whole = ask(rounds)
    assert whole.extremes == ()
    first = [msgspec.structs.replace(rounds[0], repeated=("B",)), *rounds[1:]]
    question = ask(first)
    assert question.log_ratios == whole.log_ratios
    expected = find_extremes(whole.log_ratios, OWN, failed(0))
    assert question.extremes == tuple(pytest.approx(row) for row in expected)
    # Charts and gates show what the verdict rests on.
    shown = question.gather(question.verdict).interval
    assert shown.low is not None
    assert math.expm1(shown.low) == pytest.approx(question.verdict.low_ratio)
    twice = [msgspec.structs.replace(rounds[0], repeated=("A", "B", "A")), *rounds[1:]]
    assert ask(twice).extremes == ()


def test_a_block_that_failed_counts_its_first_rounds() -> None:
    slices, loads = build_block(3)
    told = rounds_of_slices(slices, loads, trial=1, sampling_rate=1.0, failures=2)
    assert [one.repeated for one in told] == [("B",), ("B",), ()]
    assert [one.repeated for one in rounds_of_slices(slices, loads, trial=1, sampling_rate=1.0)] == [()] * 3
