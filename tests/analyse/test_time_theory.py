from __future__ import annotations

import math

import numpy as np
import pytest

from pgdyno.analyse.transaction_time.theory import autocorrelated_half_width, count_clients_at_thread


def at_thread(ratio_away: float, clients: int) -> tuple[float, float]:
    """Busy share, and how many are at it, by all states of the machine repair model."""
    weights = [math.perm(clients, k) / ratio_away**k for k in range(clients + 1)]
    total = sum(weights)
    return 1.0 - weights[0] / total, sum(k * weight for k, weight in enumerate(weights)) / total


@pytest.mark.parametrize("clients", [1, 2, 7, 40])
@pytest.mark.parametrize("ratio_away", [0.2, 1.0, 5.0, 60.0])
def test_clients_at_a_thread_are_those_of_all_states_summed_up(clients: int, ratio_away: float) -> None:
    busy, count = at_thread(ratio_away, clients)
    if busy < 1.0 - 1e-9:
        assert count_clients_at_thread(busy, clients) == pytest.approx(count, rel=1e-4)


def test_a_thread_has_one_client_busy_many_queueing_and_all_when_full() -> None:
    assert count_clients_at_thread(0.3, 1) == pytest.approx(0.3)
    assert count_clients_at_thread(0.3, 1000) == pytest.approx(0.3 / 0.7, rel=0.01)
    assert count_clients_at_thread(1.0, 16) == 16.0
    assert count_clients_at_thread(1.02, 16) == 16.0
    assert count_clients_at_thread(0.0, 16) == 0.0


@pytest.mark.parametrize(
    ("lag_one", "count", "least"), [(0.0, 10, 0.93), (0.8, 10, 0.84), (0.5, 60, 0.91), (0.8, 60, 0.9), (0.9, 60, 0.88)]
)
def test_the_interval_of_a_mean_holds_it_where_values_follow_each_other(
    lag_one: float, count: int, least: float
) -> None:
    draw = np.random.default_rng(5)
    noise = draw.normal(size=(500, count + 60))
    for i in range(1, noise.shape[1]):
        noise[:, i] = lag_one * noise[:, i - 1] + noise[:, i] * math.sqrt(1.0 - lag_one**2)
    held = [abs(values.mean()) <= autocorrelated_half_width(values) for values in noise[:, 60:]]
    assert np.mean(held) >= least


def test_values_that_are_all_the_same_have_no_width() -> None:
    assert autocorrelated_half_width(np.full(20, 3.0)) == 0.0
