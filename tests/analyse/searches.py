"""Searches on made-up machines: each trial has a threshold of its own, and misses grow steeply with the rate over it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pgdyno.analyse.search.misses import Misses
from pgdyno.analyse.search.rate_search import RateSearch, WorkloadSearch
from pgdyno.plan.search import CAPACITY_ROUNDS, Search

SEARCH = Search(limit_ms=20.0, percentile=99.0, resolution_ratio=0.1, alpha=0.05, budget_s=600.0)


class Machine(NamedTuple):
    """Thresholds around `limit_tps`, their median, with logarithms that spread by `sd`."""

    limit_tps: float
    capacity_tps: float = 1000.0
    sd: float = 0.03
    noise: str = "normal"


def draw_noise(kind: str, trials: int, random: np.random.Generator) -> Iterator[float]:
    """Of each trial's threshold, in standard deviations; the median is 0, for drift that of the whole time."""
    state = float(random.normal())
    for number in range(trials):
        plain = float(random.normal())
        state = 0.5 * state + math.sqrt(0.75) * plain
        match kind:
            case "normal":
                yield plain
            case "heavy":
                yield float(random.standard_t(2)) / 1.5
            case "skewed":
                yield math.log(2.0) - float(random.exponential())
            case "run effects":
                yield state
            case "drift":
                yield plain + 2.0 * number / trials - 1.0
            case "stalls":
                # Two trials of five are far off: the mean lies far from the median.
                yield 0.3 * (plain + 0.967) - (8.0 if random.random() < 0.4 else 0.0)


def make_misses(rate_tps: float, threshold_tps: float, *, duration_s: float = 10.0) -> Misses:
    """A tenth more than the threshold misses ten times as many."""
    scheduled = rate_tps * duration_s
    share = min(1.0, SEARCH.allowed_ratio * (rate_tps / threshold_tps) ** 24)
    late = (
        round(share * scheduled)
        if rate_tps <= threshold_tps
        else max(round(share * scheduled), math.ceil(SEARCH.allowed_ratio * scheduled + 0.5))
    )
    late = late if rate_tps > threshold_tps else min(late, math.floor(SEARCH.allowed_ratio * scheduled))
    return Misses(
        rate_tps=rate_tps,
        scheduled_count=scheduled,
        late_count=late,
        skipped_count=0.0,
        failed_count=0,
        unbegun_count=0.0,
        latency_ms=20.0 * (rate_tps / threshold_tps) ** 8,
        latency_reason=None,
    )


def run_search(machine: Machine, *, seed: int, trials: int = 40, search: Search = SEARCH) -> list[RateSearch]:
    """How the search stands after each trial at a rate, until it is settled."""
    random = np.random.default_rng(seed)
    seeker = WorkloadSearch("tpcb-like", search, planned_s=10.0)
    for _ in range(CAPACITY_ROUNDS):
        seeker.add_capacity(machine.capacity_tps * math.exp(machine.sd * random.normal()))
    stands = []
    for number, noise in enumerate(draw_noise(machine.noise, trials, random)):
        wanted = seeker.next_trial()
        if wanted is None:
            break
        assert wanted.rate_tps is not None
        threshold = machine.limit_tps * math.exp(machine.sd * noise)
        misses = make_misses(wanted.rate_tps, threshold, duration_s=wanted.duration_s)
        seeker.add_misses(misses, number=CAPACITY_ROUNDS + 1 + number, length_s=16.0)
        stands.append(seeker.state())
    return stands
