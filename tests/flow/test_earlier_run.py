"""Which variants an earlier run of a study had given up, from its trials."""

from __future__ import annotations

import pytest

from pgdyno.conduct.earlier_run import find_given_up, find_once_given_up
from pgdyno.plan.plan import PlannedTrial


# Two rounds of four.
@pytest.mark.parametrize(
    ("finished", "failed", "given_up"),
    [
        ((1, 2, 3, 4, 5, 6, 7, 8), (), set()),
        # Cut within a round, before or after its reference.
        ((1, 2), (), set()),
        ((1, 2, 3, 4, 5), (), set()),
        # B failed, and its round went on.
        ((1, 3, 4), (2,), {"B"}),
        ((1, 2, 3, 4, 5, 7, 8), (6,), {"B"}),
        # Nothing went on after C: the study ended there.
        ((1, 2), (3,), set()),
        # B did not start.
        ((1, 3, 4), (), {"B"}),
        # B failed at first, and ran when it was tried again.
        ((1, 3, 4, 5, 6), (2,), set()),
    ],
)
def test_what_trials_went_on_without_was_given_up(
    finished: tuple[int, ...], failed: tuple[int, ...], given_up: set[str]
) -> None:
    planned = [build_trial(number, variant) for number, variant in enumerate("ABCAABCA", start=1)]
    ran = {number: planned[number - 1].round for number in finished}
    assert find_given_up(planned, ran, failed) == given_up


@pytest.mark.parametrize(
    ("finished", "failed", "given_up"),
    [
        ((1, 2, 5, 7, 8), (), {"B"}),
        # Cut within its first round.
        ((1, 5, 6, 7, 8), (), set()),
        # B failed at first, or did not start, and ran when it was tried again.
        ((1, 3, 4, 5, 6), (2,), {"B"}),
        ((1, 3, 4, 5, 6), (), {"B"}),
        # Nothing went on after C: the study ended there.
        ((1, 2), (3,), set()),
    ],
)
def test_what_a_round_went_on_without_was_given_up_once(
    finished: tuple[int, ...], failed: tuple[int, ...], given_up: set[str]
) -> None:
    planned = [build_trial(number, variant) for number, variant in enumerate("ABCAABCA", start=1)]
    ran = {number: planned[number - 1].round for number in finished}
    assert find_once_given_up(planned, ran, failed) == given_up


def build_trial(number: int, variant: str) -> PlannedTrial:
    return PlannedTrial(
        number=number,
        round=(number + 3) // 4,
        workload="w",
        variants=(variant,),
        seed=1,
        warm_up_s=0.0,
        duration_s=1.0,
    )
