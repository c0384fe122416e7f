"""Whether a limit moved: told where it did, and rarely where it stood, however noisy."""

from __future__ import annotations

import pytest

from pgdyno.analyse.search.latency_limit import Probe
from pgdyno.analyse.search.limit_drift import find_drift
from tests.analyse.searches import Machine, run_search

# A search on a machine on which other work began after the twelfth trial.
DRIFTED = """
4700+ 6890- 5690- 5170- 3210+ 3890- 4080+ 4480- 4280- 3890+ 4280+ 3060+ 3060+ 3210- 4280- 4080- 3890- 3890- 3710- 2300-
3370- 3370- 3210- 3210- 3060- 2920- 2920- 2780- 2780- 2780- 2650- 2530- 2530+ 1500- 2410+ 4280- 4280- 4280- 2530+ 2530+
"""


def read(text: str) -> list[Probe]:
    return [Probe(float(word[:-1]), word.endswith("+")) for word in text.split()]


def test_a_limit_that_falls_is_told_with_its_direction() -> None:
    drift = find_drift(read(DRIFTED))
    assert drift is not None
    assert 0.3 < drift.ratio < 0.7
    back = find_drift(list(reversed(read(DRIFTED))))
    assert back is not None
    assert back.ratio == pytest.approx(1.0 / drift.ratio, rel=0.01)
    assert back.bayes_factor == pytest.approx(drift.bayes_factor, rel=0.01)


def test_too_few_trials_tell_nothing() -> None:
    assert find_drift([]) is None
    assert find_drift(read("100+ 100+ 100+ 100+ 100- 100- 100-")) is None


@pytest.mark.parametrize(("noise", "sd"), [("normal", 0.1), ("heavy", 0.1), ("run effects", 0.25)])
def test_a_limit_that_stands_is_rarely_said_to_move(noise: str, sd: float) -> None:
    told = 0
    for seed in range(12):
        levels = run_search(Machine(limit_tps=700.0, sd=sd, noise=noise), seed=seed)[-1].levels
        trials = sorted((trial for level in levels for trial in level.trials), key=lambda trial: trial.number)
        told += find_drift([Probe(trial.misses.rate_tps, trial.is_held) for trial in trials]) is not None
    assert told <= 1
