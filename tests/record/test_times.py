"""The share of a transaction's time that lies in each second of a load."""

from __future__ import annotations

import numpy as np
import pytest

from pgdyno.record.transactions.times import LongLoad, TransactionTimes


@pytest.mark.parametrize("seed", range(20))
def test_all_seconds_at_once_have_what_each_has_by_itself(seed: int) -> None:
    draw = np.random.default_rng(seed)
    end_us = np.sort(draw.integers(1_790_000_000_000_000, 1_790_000_030_000_000, 300))
    latency_us = draw.integers(1, draw.choice([10, 100_000, 20_000_000]), 300)
    load = LongLoad(
        times=TransactionTimes(end_us=end_us, latency_us=latency_us), from_epoch_s=1.79e9, until_epoch_s=1.79e9 + 30
    )
    first, stop = 1_790_000_002, 1_790_000_028
    by_second = load.count_by_second(first, stop)
    assert by_second == pytest.approx([load.count(at, at + 1) for at in range(first, stop)], abs=1e-3)
    assert by_second.sum() == pytest.approx(load.count(first, stop), abs=1e-3)
