from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.capacity.bounds import HARDLY_USED, NO_CARD, NO_WAL_CARD, find_bounds
from pgdyno.analyse.capacity.projection import project_disk
from pgdyno.analyse.capacity.types import BoundKind, BoundState, Capacity
from pgdyno.analyse.disk.ceiling import InstanceLimits
from pgdyno.analyse.disk.demand import DiskLimits, UseKind, find_limits
from pgdyno.analyse.disk.entries import DiskFigureKey
from pgdyno.analyse.estimate import CONFIDENCE, Estimate
from pgdyno.analyse.study import analyse_study, find_capacities
from pgdyno.analyse.study_types import ScalingStudy
from pgdyno.analyse.sweep.client_trials import ONE_ROUND, ClientTrial
from pgdyno.analyse.sweep.scaling import ClientSweep, analyse_client_sweep
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data
from pgdyno.spec.host import DiskSpec, HostSpec
from tests.analyse.loads import Nature, draw_limits, draw_load, make_analysis
from tests.analyse.test_scaling import published, usl_tps
from tests.disk_cards import make_card, make_runs
from tests.rows import each_row

RECORDS = Path(__file__).parents[1] / "data" / "records"
# Three binomial standard errors of so many simulations below what intervals promise.
SIMULATIONS = 400
LEAST_COVERED = CONFIDENCE - 3 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / SIMULATIONS)
WRITING = Nature(
    tps=1600.0,
    demands={UseKind.FLUSHES: 1.0, UseKind.READ_BYTES: 4096.0, UseKind.READS: 0.5, UseKind.WRITTEN_BYTES: 20_000.0},
    limits={UseKind.FLUSHES: 1500.0, UseKind.READS: 10_000.0, UseKind.READ_BYTES: 4e8, UseKind.WRITTEN_BYTES: 2e8},
)


def reckon(
    nature: Nature, *, sd: float = 0.02, trials: int = 4, seed: int = 1, sweep: ClientSweep | None = None
) -> Capacity:
    limits = draw_limits(nature, sd=sd, seed=seed) if nature.limits else None
    record, workload = draw_load(nature, sd=sd, trials=trials, limits=limits, seed=seed)
    sweeps = {} if sweep is None else {"tpcb-like": sweep}
    if sweep is not None:
        best = max(sweep.points, key=lambda point: point.to_best.value or 0.0).clients
        workload = msgspec.structs.replace(workload, load=msgspec.structs.replace(workload.load, clients=best))
    (capacity,) = find_capacities(record, make_analysis(workload, sweeps=sweeps), limits)
    return capacity


def covers(estimate: Estimate, truth: float) -> bool:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= truth <= estimate.high


def sweep_of(curve: dict[int, float], *, rounds: int = 3, sd: float = 0.01, seed: int = 2) -> ClientSweep:
    draw = np.random.default_rng(seed)
    trials = [
        ClientTrial(clients=clients, round_index=index, tps=tps * math.exp(sd * draw.standard_normal()))
        for index in range(rounds)
        for clients, tps in curve.items()
    ]
    return analyse_client_sweep(trials, delta_ratio=0.03)


# Bounds


def test_each_bound_is_what_there_is_over_what_a_transaction_takes() -> None:
    capacity = reckon(WRITING, sd=0.0)
    bounds = {bound.kind: bound for bound in capacity.bounds}
    truth = {
        BoundKind.CPU: 2 / 1e-3,
        BoundKind.FLUSHES: 1500.0 * 8 / 2,
        BoundKind.WRITTEN_BYTES: 2e8 / 20_000,
        BoundKind.LOAD_GENERATOR: 2 / 1e-4,
        BoundKind.READS: 10_000 / 0.5,
        BoundKind.READ_BYTES: 4e8 / 4096,
    }
    assert [bound.kind for bound in capacity.bounds] == sorted(truth, key=lambda kind: truth[kind])
    for kind, tps in truth.items():
        assert bounds[kind].tps.value == pytest.approx(tps, rel=1e-9)
        assert bounds[kind].used.value == pytest.approx(1600.0 / tps, rel=1e-9)
    assert capacity.lowest is capacity.binding is capacity.find(BoundKind.CPU)
    assert set(capacity.absent) == {"WAL written", "random writes"}


def test_a_lone_client_waits_for_a_flush_each_time() -> None:
    bound = reckon(msgspec.structs.replace(WRITING, clients=1, tps=500.0), sd=0.0).find(BoundKind.FLUSHES)
    assert bound is not None
    assert (bound.tps.value, bound.used.value) == (pytest.approx(1500.0), pytest.approx(1 / 3))


@pytest.mark.parametrize("sd", [0.02, 0.2])
def test_intervals_of_bounds_and_ceiling_hold_the_truth_as_often_as_they_say(sd: float) -> None:
    # Three bounds close to each other, so that any of them may seem the lowest.
    nature = msgspec.structs.replace(
        WRITING,
        tps=1600.0,
        limits={**WRITING.limits, UseKind.WRITTEN_BYTES: 2020.0 * 20_000, UseKind.READS: 2050.0 * 0.5},
    )
    truth = {BoundKind.CPU: 2000.0, BoundKind.WRITTEN_BYTES: 2020.0, BoundKind.READS: 2050.0, BoundKind.FLUSHES: 6000.0}
    covered = dict.fromkeys([*truth, "ceiling"], 0)
    for seed in range(SIMULATIONS):
        capacity = reckon(nature, sd=sd, seed=seed)
        for kind, tps in truth.items():
            bound = capacity.find(kind)
            assert bound is not None
            covered[kind] += covers(bound.tps, tps)
        covered["ceiling"] += covers(capacity.ceiling, 2000.0)
        assert set(capacity.candidates) >= {capacity.bounds[0].kind}
    assert min(covered.values()) / SIMULATIONS >= LEAST_COVERED, covered


def test_others_who_use_the_cpus_yield_them_to_a_load_that_asks_for_more() -> None:
    alone, beside = (
        reckon(msgspec.structs.replace(WRITING, tps=500.0, others_ratio=ratio), sd=0.0).find(BoundKind.CPU)
        for ratio in (0.0, 0.6)
    )
    assert alone is not None
    assert beside is not None
    assert (beside.tps.value, beside.tps.low) == (alone.tps.value, alone.tps.low)
    assert (beside.demand, beside.limit) == (alone.demand, alone.limit)
    # They leave fewer CPUs idle, which are used worse.
    assert (beside.tps.high or 0.0) < (alone.tps.high or 0.0)
    assert (beside.how, beside.others_ratio) == ("2 CPUs, of which others used up to 60 %", 0.6)
    assert alone.others_ratio == 0.0


def test_the_kernels_threads_work_for_the_load_and_what_is_stolen_is_gone() -> None:
    # Of 2 CPUs 0.95 are busy, of that 0.05 by the kernel's threads; 0.05 are stolen: all is used.
    capacity = reckon(msgspec.structs.replace(WRITING, tps=1800.0, others_ratio=0.05, stolen_ratio=0.05), sd=0.0)
    cpu = capacity.find(BoundKind.CPU)
    assert cpu is not None
    assert cpu.used.value == pytest.approx(1.0)
    assert cpu.tps.value == pytest.approx(1800.0)
    assert cpu.limit.value == pytest.approx(1.9)
    assert cpu.others_ratio == 0.0


def test_a_quota_is_what_there_is_whatever_others_do_beside_it() -> None:
    record, workload = draw_load(msgspec.structs.replace(WRITING, others_ratio=0.4, tps=500.0), sd=0.0)
    host = msgspec.structs.replace(record.host, cpu_limit=1.0)
    bounds, _ = find_bounds(workload, host.usable_cpu_count, None)
    assert bounds[0].tps.value == pytest.approx(1000.0)
    # Half of the quota is idle, whatever is of the machine.
    assert bounds[0].idle_ratio == pytest.approx(0.5)


def test_a_quota_that_is_used_up_allows_no_more_however_idle_the_machine_is() -> None:
    _, workload = draw_load(msgspec.structs.replace(WRITING, tps=1000.0), sd=0.0)
    # 2 of 16 CPUs busy, by the load alone.
    trials = tuple(
        msgspec.structs.replace(
            trial, shares={**trial.shares, "cpu_busy_ratio": 2 * trial.tps / 1000.0 / 16}, cpus_seen_count=16
        )
        for trial in workload.trials
    )
    bounds, _ = find_bounds(msgspec.structs.replace(workload, trials=trials), 2.0, None)
    cpu = next(bound for bound in bounds if bound.kind is BoundKind.CPU)
    assert cpu.used.value == pytest.approx(1.0)
    assert cpu.idle_ratio == pytest.approx(0.0)
    assert (cpu.tps.value, cpu.tps.high) == pytest.approx((1000.0, 1000.0))


def test_what_is_not_known_has_a_reason_and_no_bound() -> None:
    record, workload = draw_load(Nature(cpu_s=None, generator_s=None))
    bounds, absent = find_bounds(workload, record.usable_cpu_count, None)
    assert bounds == ()
    assert absent["CPUs"] == "the CPUs were not sampled"
    assert absent["load generator"] == "pgbench was not sampled"
    assert {absent[kind.value] for kind in BoundKind if kind.value in absent} >= {NO_CARD}
    (capacity,) = find_capacities(record, make_analysis(workload), None)
    assert capacity.standing is BoundState.UNKNOWN
    assert (capacity.ceiling.value, capacity.binding, capacity.next) == (None, None, None)
    assert all(one.high_tps is None and one.reason for one in capacity.projections)
    assert capacity.advice.reason == "no bound is known that holds, and one number of clients was tried"


def test_a_wal_disk_without_a_card_has_a_reason_and_no_bound() -> None:
    limits = msgspec.structs.replace(draw_limits(WRITING), wal=DiskLimits())
    _, workload = draw_load(msgspec.structs.replace(WRITING, demands={UseKind.WRITES: 1.0}), limits=limits)
    bounds, absent = find_bounds(workload, 2.0, limits)
    assert {absent[kind.value] for kind in (BoundKind.FLUSHES, BoundKind.WAL)} == {NO_WAL_CARD}
    assert not {bound.kind for bound in bounds} & {BoundKind.FLUSHES, BoundKind.WAL}


def test_what_is_hardly_used_bounds_nothing() -> None:
    nature = msgspec.structs.replace(WRITING, demands={**WRITING.demands, UseKind.READS: 0.0, UseKind.READ_BYTES: 0.0})
    capacity = reckon(nature)
    assert capacity.find(BoundKind.READS) is None
    assert capacity.absent["random reads"] == HARDLY_USED
    memory = next(one for one in capacity.projections if "memory" in one.change)
    assert memory.high_tps == pytest.approx(capacity.ceiling.high)
    assert "cached already" in memory.how


def test_a_limit_that_was_passed_is_none() -> None:
    capacity = reckon(msgspec.structs.replace(WRITING, limits={**WRITING.limits, UseKind.READS: 100.0}))
    reads = capacity.find(BoundKind.READS)
    assert reads is not None
    assert reads.is_refuted
    assert capacity.bounds[0] is reads
    assert (capacity.binding, capacity.lowest) == (capacity.find(BoundKind.CPU),) * 2


def test_a_limit_that_was_far_passed_is_none_however_wide_its_interval() -> None:
    cpu = reckon(WRITING).find(BoundKind.CPU)
    assert cpu is not None
    for value, is_refuted in ((2.0, True), (1.1, False)):
        used = msgspec.structs.replace(cpu.used, value=value, low=0.4, high=9.0)
        assert msgspec.structs.replace(cpu, used=used).is_refuted is is_refuted


def test_one_trial_has_bounds_without_intervals_and_no_projection() -> None:
    capacity = reckon(WRITING, trials=1)
    cpu = capacity.find(BoundKind.CPU)
    assert cpu is not None
    assert cpu.tps.value is not None
    assert (cpu.tps.low, cpu.tps.reason) == (None, "one trial has no interval")
    assert (capacity.ceiling.low, capacity.ceiling.reason) == (None, "one trial has no interval")
    assert capacity.projections[0].reason == "one trial has no interval to begin from"
    assert all(one.high_tps is None for one in capacity.projections)


def reckon_turns(nature: Nature, *, rounds: int = 4, sd: float = 0.02) -> Capacity:
    """The capacity of a load that one trial was watched of, and whose turns counted what the machine did."""
    limits = draw_limits(nature, sd=sd)
    record, workload = draw_load(nature, sd=sd, trials=1 + rounds, limits=limits, seed=1)
    watched, *others = workload.trials
    turns = (
        msgspec.structs.replace(
            trial,
            shares={},
            disk=None,
            cpus_seen_count=None,
            record=msgspec.structs.replace(trial.record, slice_s=2.0),
            counts_per_transaction={
                "cpu_ms": 2e3 * (trial.shares["cpu_busy_ratio"] or 0.0) / (trial.tps or 1.0),
                "device_read_bytes": 4096.0 * (trial.tps or 1.0) / nature.tps,
                "device_write_bytes": 1.0,
                "wal_bytes": None,
            },
        )
        for trial in others
    )
    (capacity,) = find_capacities(
        record, make_analysis(msgspec.structs.replace(workload, trials=(watched, *turns))), limits
    )
    return capacity


def test_turns_show_the_spread_of_what_they_count_and_the_watched_trial_alone_the_rest() -> None:
    capacity = reckon_turns(WRITING)
    in_rounds = "n = 4 trials of the rounds"
    assert {
        bound.kind: (bound.how.partition("; its use in ")[2], bound.tps.low is not None) for bound in capacity.bounds
    } == {
        BoundKind.CPU: (in_rounds, True),
        # The card alone has its interval.
        BoundKind.FLUSHES: (in_rounds, True),
        BoundKind.READ_BYTES: (in_rounds, True),
        BoundKind.READS: ("", False),
        # The kernel writes what other loads have left, too.
        BoundKind.WRITTEN_BYTES: ("", False),
        BoundKind.LOAD_GENERATOR: ("", False),
    }
    assert [bound.demand.n for bound in capacity.bounds if bound.kind is BoundKind.WRITTEN_BYTES] == [1]
    cpus = capacity.find(BoundKind.CPU)
    assert cpus is not None
    assert covers(cpus.tps, 2000.0)
    assert cpus.idle_ratio == pytest.approx(0.2, abs=0.05)
    flushes = capacity.find(BoundKind.FLUSHES)
    assert flushes is not None
    assert flushes.used.low is not None


def test_of_turns_beside_other_programs_nobody_knows_what_cpus_they_took() -> None:
    cpus = reckon_turns(msgspec.structs.replace(WRITING, others_ratio=0.15)).find(BoundKind.CPU)
    assert cpus is not None
    assert ("rounds" in cpus.how, cpus.demand.n, cpus.tps.low) == (False, 1, None)


def test_a_card_of_one_round_bounds_without_an_interval() -> None:
    limits = draw_limits(WRITING, rounds=1)
    record, workload = draw_load(WRITING, sd=0.02, limits=limits)
    (capacity,) = find_capacities(record, make_analysis(workload), limits)
    reads = capacity.find(BoundKind.READS)
    assert reads is not None
    assert (reads.tps.low, reads.tps.reason) == (None, "the disk's card has that from one run")


def test_failed_trials_bound_nothing() -> None:
    record, workload = draw_load(WRITING)
    bare = msgspec.structs.replace(
        workload, trials=tuple(msgspec.structs.replace(one, tps=None) for one in workload.trials)
    )
    bounds, absent = find_bounds(bare, record.usable_cpu_count, None)
    assert bounds == ()
    assert set(absent.values()) == {"no trial is finished"}


# The ceiling, and what comes next


def test_near_its_lowest_bound_a_load_is_at_it_and_the_next_one_says_what_there_is_to_gain() -> None:
    capacity = reckon(msgspec.structs.replace(WRITING, tps=1900.0, shares={Resource.CPU: 0.5, Resource.WAL_FLUSH: 0.3}))
    assert capacity.standing is BoundState.AT_BOUND
    assert capacity.next is not None
    assert (capacity.next.removed, capacity.next.binds) == ("the CPUs", BoundKind.FLUSHES)
    assert covers(capacity.next.gain, 6000.0 / 2000.0 - 1.0)
    # Half of the time was the CPUs': without it as many clients do twice as much.
    assert capacity.next.gain_at_clients.value == pytest.approx(1.0)


def test_the_gain_of_one_trial_has_the_interval_of_its_looks() -> None:
    capacity = reckon(msgspec.structs.replace(WRITING, tps=1900.0, shares={Resource.CPU: 0.5}), trials=1)
    assert capacity.next is not None
    gain = capacity.next.gain_at_clients
    assert (gain.low, gain.high) == (pytest.approx(1 / 0.55 - 1), pytest.approx(1 / 0.45 - 1))


def test_far_below_all_bounds_nobody_knows_why_without_a_sweep() -> None:
    capacity = reckon(msgspec.structs.replace(WRITING, tps=900.0))
    assert capacity.standing is BoundState.BELOW
    assert covers(capacity.nearness, 0.45)
    assert capacity.peak.reason == "no sweep over clients was made"


def test_a_load_that_peaks_far_below_all_bounds_is_held_and_not_projected() -> None:
    held = {n: min(300.0 * n, 600.0) for n in (1, 2, 4, 8, 16, 32)}
    nature = msgspec.structs.replace(WRITING, tps=600.0, shares={Resource.LOCK: 0.7, Resource.CPU: 0.1})
    capacity = reckon(nature, sweep=sweep_of(held, sd=0.004))
    assert capacity.standing is BoundState.HELD
    assert covers(capacity.ceiling, 600.0)
    assert {one.reason for one in capacity.projections} >= {
        "what holds the load has no bound: what more hardware brings is not known"
    }
    assert all(one.high_tps is None for one in capacity.projections)
    assert capacity.next is not None
    assert capacity.next.removed == "what holds it now, perhaps row and lock contention,"
    assert capacity.next.binds is BoundKind.CPU
    assert covers(capacity.next.gain, 2000.0 / 600.0 - 1.0)


@pytest.mark.parametrize("changes", [{"others_ratio": 0.6}, {"is_narrowed": True}], ids=str)
def test_a_load_that_shares_the_cpus_is_never_called_held(changes: dict[str, object]) -> None:
    limits = draw_limits(WRITING)
    nature = msgspec.structs.replace(WRITING, tps=600.0, others_ratio=changes.get("others_ratio", 0.0))
    record, workload = draw_load(nature, limits=limits)
    if "is_narrowed" in changes:
        record = msgspec.structs.replace(record, host=msgspec.structs.replace(record.host, cpu_count=1))
    sweep = sweep_of({n: min(300.0 * n, 600.0) for n in (1, 2, 4, 8, 16, 32)}, sd=0.004)
    best = max(sweep.points, key=lambda point: point.to_best.value or 0.0).clients
    workload = msgspec.structs.replace(workload, load=msgspec.structs.replace(workload.load, clients=best))
    (capacity,) = find_capacities(record, make_analysis(workload, sweeps={"tpcb-like": sweep}), limits)
    assert capacity.standing is BoundState.BELOW


@each_row(range(12))
def test_a_load_that_fills_the_cpus_is_never_called_held(seed: int) -> None:
    curve = {n: min(480.0 * n, 1960.0) for n in (1, 2, 4, 8, 16, 32)}
    capacity = reckon(
        msgspec.structs.replace(WRITING, tps=1960.0), sweep=sweep_of(curve, seed=seed), sd=0.03, seed=seed
    )
    assert capacity.standing is BoundState.AT_BOUND


def test_at_its_peak_a_load_that_uses_much_of_a_resource_is_held_by_nothing_else() -> None:
    curve = {n: min(480.0 * n, 1500.0) for n in (1, 2, 4, 8, 16, 32)}
    nature = msgspec.structs.replace(WRITING, tps=1500.0)
    assert reckon(nature).standing is BoundState.BELOW
    assert reckon(nature, sweep=sweep_of(curve, sd=0.004)).standing is BoundState.AT_BOUND


def test_without_a_card_what_binds_next_is_not_known() -> None:
    capacity = reckon(Nature(tps=1900.0))
    assert (capacity.next, capacity.absent["next"]) == (None, NO_CARD)
    assert {one.change: one.reason for one in capacity.projections}[
        "a disk twice as quick"
    ] == "no bound of what it changes is known"
    cpus = capacity.projections[0]
    assert cpus.high_tps is not None
    assert "nothing is known" in cpus.how


def test_the_peak_of_a_sweep_is_the_ceiling_and_its_knee_the_best_number_of_clients() -> None:
    curve = {n: usl_tps(n) for n in (1, 2, 4, 8, 16, 32, 64, 100)}
    capacity = reckon(WRITING, sweep=sweep_of(curve, sd=0.01))
    most = usl_tps(math.sqrt(0.97 / 4e-4))
    assert covers(capacity.peak, most)
    assert capacity.ceiling == capacity.peak
    advice = capacity.advice
    assert (advice.is_hint, advice.how) == (False, "knee of the sweep over clients")
    assert advice.clients == next(n for n, tps in curve.items() if tps >= 0.9 * max(curve.values()))
    assert (advice.low or 0) <= advice.clients <= (advice.high or 0)


def test_a_sweep_that_still_grows_has_no_ceiling_of_its_own() -> None:
    capacity = reckon(WRITING, sweep=sweep_of({n: 100.0 * n for n in (1, 2, 4, 8)}))
    assert capacity.peak.value is None
    assert capacity.ceiling.value == capacity.bounds[0].tps.value
    assert (capacity.advice.clients, capacity.advice.low, capacity.advice.high) == (None, 8, None)


def test_a_law_that_still_climbs_is_asked_no_further_than_twice_the_most_clients() -> None:
    curve = {n: usl_tps(n, beta=1e-6) for n in (1, 2, 4, 8, 16, 32)}
    capacity = reckon(WRITING, sweep=sweep_of(curve, sd=0.003))
    clients = capacity.projections[-1]
    assert clients.change == "up to 64 clients"
    assert clients.low_tps is not None
    assert clients.high_tps is not None
    assert clients.low_tps <= curve[32] <= usl_tps(64, beta=1e-6) <= clients.high_tps
    assert clients.high_tps < 1.2 * usl_tps(64, beta=1e-6)


def test_a_published_saturation_has_its_ceiling_and_best_clients() -> None:
    """Its own conclusion: the knee, near the highest TPS, lies between 24 and 40 clients, and with 80 and 100 it collapses."""
    sweep = analyse_client_sweep(published(0, with_repeats=True), delta_ratio=0.03)
    capacity = reckon(msgspec.structs.replace(WRITING, tps=3934.0, cpu_s=5e-4), sweep=sweep)
    assert capacity.peak.value == pytest.approx((4001 * 3884 * 3891 * 3959) ** 0.25)
    # 16 clients have 90.1 % of the TPS of 32; runs that are in no rounds give neither knee nor peak an interval.
    assert (capacity.peak.high, capacity.peak.reason) == (None, ONE_ROUND)
    assert capacity.advice.clients == 16
    assert (capacity.advice.low, capacity.advice.high) == (None, None)


def test_a_sweep_that_followed_is_the_capacity_of_the_variant_that_it_ran_under() -> None:
    curve = {n: usl_tps(n) for n in (1, 2, 4, 8, 16, 32, 64, 100)}
    record, workload = draw_load(msgspec.structs.replace(WRITING, tps=2000.0))
    _, at_best = draw_load(msgspec.structs.replace(WRITING, tps=3000.0, clients=64))
    followed = ScalingStudy(
        record=record, analysis=make_analysis(at_best, sweeps={"tpcb-like": sweep_of(curve)}), variant=None
    )
    (capacity,) = find_capacities(record, make_analysis(workload, scaling=followed), None)
    assert capacity.clients == 64
    assert capacity.tps == workload.tps
    assert capacity.nearness.value == pytest.approx(2000.0 / (capacity.peak.value or 0.0))
    (other,) = find_capacities(
        record, make_analysis(workload, scaling=msgspec.structs.replace(followed, variant="another")), None
    )
    assert other.peak.value is None


# Hints for clients


def mean_value(clients: int, cpus: int, cpu_s: float, think_s: float) -> tuple[float, float]:
    """TPS and response time of a closed network: CPUs that take turns, and a delay. Exact, state by state."""
    weights = [1.0]
    for count in range(1, clients + 1):
        weights.append(weights[-1] * (clients - count + 1) * cpu_s / (min(count, cpus) * think_s))
    total = sum(weights)
    tps = sum(weight * min(count, cpus) / cpu_s for count, weight in enumerate(weights)) / total
    return tps, clients / tps


@pytest.mark.parametrize("think_s", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("clients", [1, 2, 4, 16, 64])
def test_a_hint_for_clients_holds_the_number_that_would_do(clients: int, think_s: float) -> None:
    tps, _ = mean_value(clients, 2, 1e-3, think_s)
    capacity = reckon(Nature(tps=tps, clients=clients), sd=0.001)
    enough = next(n for n in range(1, 1000) if mean_value(n, 2, 1e-3, think_s)[0] >= 0.95 * 2000.0)
    advice = capacity.advice
    assert advice.is_hint
    assert advice.clients is None
    assert advice.low is not None
    assert advice.high is not None
    assert advice.low <= enough <= advice.high


def test_clients_that_wait_for_flushes_are_hinted_to_be_more() -> None:
    nature = msgspec.structs.replace(WRITING, tps=550.0, clients=4, limits={**WRITING.limits, UseKind.FLUSHES: 300.0})
    capacity = reckon(nature, sd=0.001)
    assert capacity.binding is not None
    assert (capacity.binding.kind, capacity.standing) == (BoundKind.FLUSHES, BoundState.AT_BOUND)
    # 2000 TPS in two halves that take turns at 300 flushes a second.
    assert capacity.advice.low == 14
    assert capacity.next is not None
    assert capacity.next.binds is BoundKind.CPU


def test_of_a_mix_only_what_writes_waits_for_flushes() -> None:
    """A transaction in ten writes: flushes bound the load at ten times the TPS, and one client does not wait long."""
    demands, limits = {**WRITING.demands, UseKind.FLUSHES: 0.1}, {**WRITING.limits, UseKind.FLUSHES: 300.0}
    capacity = reckon(msgspec.structs.replace(WRITING, clients=4, demands=demands, limits=limits), sd=0.0)
    flushes = next(bound for bound in capacity.bounds if bound.kind is BoundKind.FLUSHES)
    assert flushes.tps.value == pytest.approx(2 * 300.0 / 0.1)
    assert flushes.used.value == pytest.approx(1600.0 / 6000.0)
    assert not flushes.is_refuted
    # 2000 TPS of 1 ms of CPU, and for a tenth of them a flush of 1/300 s.
    assert capacity.advice.low == math.ceil(0.99 * 2000.0 * (1e-3 + 0.1 / 300.0))


# Projections


def test_projected_ranges_hold_what_another_machine_would_do() -> None:
    """Systems with a lock that nobody sees, and any mix of what they take; noise of trials and of the card."""
    draw, covered, asked = np.random.default_rng(3), 0, 0
    for seed in range(SIMULATIONS):
        lock_tps = 2000.0 * math.exp(draw.uniform(-0.2, 1.5))
        limits = {kind: limit * math.exp(draw.uniform(-2.0, 1.0)) for kind, limit in WRITING.limits.items()}
        disk_tps = min(limits[kind] / WRITING.demands[kind] for kind in limits if kind is not UseKind.FLUSHES)
        now = min(2000.0, disk_tps, lock_tps)
        nature = msgspec.structs.replace(WRITING, limits=limits, tps=now * draw.uniform(0.5, 1.0))
        capacity = reckon(nature, sd=0.03, seed=seed)
        truths = {
            "twice the CPUs": min(4000.0, disk_tps, lock_tps),
            "a disk twice as quick": min(2000.0, 2 * disk_tps, lock_tps),
        }
        for one in capacity.projections:
            if one.change in truths and one.low_tps is not None and one.high_tps is not None:
                asked += 1
                covered += one.low_tps <= truths[one.change] <= one.high_tps
    assert asked > 1.5 * SIMULATIONS
    assert covered / asked >= LEAST_COVERED


def test_a_projection_widens_with_what_it_is_asked_for_and_ends_at_the_next_bound() -> None:
    capacity = reckon(msgspec.structs.replace(WRITING, tps=1950.0))
    cpus, _, disk = capacity.projections[:3]
    assert cpus.low_tps == capacity.tps.low
    assert cpus.high_tps == pytest.approx(2.0 * (capacity.ceiling.high or 0.0))
    # The CPUs bind before and after.
    assert (disk.binds, disk.high_tps) == (BoundKind.CPU, pytest.approx(capacity.ceiling.high))


def test_memory_is_projected_from_what_is_cached_by_now() -> None:
    record, _ = draw_load(WRITING)
    assert record.dataset is None
    reading = msgspec.structs.replace(
        WRITING,
        tps=900.0,
        demands={UseKind.READS: 1.0, UseKind.READ_BYTES: 8192.0},
        limits={UseKind.READS: 1000.0, UseKind.READ_BYTES: 4e8},
    )
    limits = draw_limits(reading, sd=0.01)
    record, workload = draw_load(reading, sd=0.01, limits=limits)
    (unknown,) = find_capacities(record, make_analysis(workload), limits)
    assert {one.change: one.reason for one in unknown.projections}["twice the memory"] == (
        "the pages that these transactions touch are not known"
    )
    from tests.analyse.joined import make_dataset

    record = msgspec.structs.replace(record, dataset=make_dataset(1000))
    (capacity,) = find_capacities(record, make_analysis(workload), limits)
    memory = next(one for one in capacity.projections if one.change == "twice the memory")
    assert memory.high_tps is not None
    # Half of the pages that are drawn were cached: with twice as many about none is read, and the CPUs bind.
    assert memory.how.startswith("1 pages read in a transaction, then 0")
    assert memory.binds in {BoundKind.CPU, BoundKind.READS}
    assert memory.high_tps > 1.5 * (capacity.ceiling.high or 0.0)


@pytest.mark.parametrize(("pages", "scale"), [(10.0, 1000), (1.9999, 1)])
def test_more_reads_than_pages_needed_are_not_projected(pages: float, scale: int) -> None:
    """Of a little data, one cached page already saves more than what is missing from two reads."""
    from tests.analyse.joined import make_dataset

    nature = msgspec.structs.replace(
        WRITING, demands={UseKind.READ_BYTES: pages * 8192.0}, limits={UseKind.READ_BYTES: 4e8}
    )
    limits = draw_limits(nature)
    record, workload = draw_load(nature, limits=limits)
    record = msgspec.structs.replace(record, dataset=make_dataset(scale))
    (capacity,) = find_capacities(record, make_analysis(workload), limits)
    memory = next(one for one in capacity.projections if one.change == "twice the memory")
    assert "read-ahead" in (memory.reason or "")


def test_another_disk_is_projected_from_its_card() -> None:
    slow = msgspec.structs.replace(WRITING, tps=480.0, limits={**WRITING.limits, UseKind.WRITTEN_BYTES: 1e7})
    capacity = reckon(slow)
    assert capacity.bounds[0].kind is BoundKind.WRITTEN_BYTES
    other = project_disk(capacity, draw_limits(WRITING, sd=0.02), "the other")
    assert other.low_tps == capacity.tps.low
    assert other.binds is BoundKind.CPU
    # With a disk of its own, WAL stays there.
    assert BoundKind.FLUSHES in {bound.kind for bound in capacity.bounds}
    flushless = [one for one in draw_limits(WRITING).entries if one.key is not DiskFigureKey.FLUSHES]
    of_data = DiskLimits(entries=tuple(flushless))
    assert project_disk(capacity, of_data, "the other").reason == "the other disk's card says nothing of WAL flushes"
    apart = project_disk(capacity, msgspec.structs.replace(of_data, wal=DiskLimits()), "the other")
    assert apart.high_tps is not None
    bare = project_disk(capacity, DiskLimits(), "the other")
    assert (bare.high_tps, bare.reason) == (None, "the other disk's card says nothing of bytes written")


def test_no_disk_is_quicker_than_its_instance() -> None:
    """The disk does 4,000 reads a second, and its instance lets 2,100 through."""
    nature = Nature(
        cpu_s=1e-4,
        demands={UseKind.READS: 2.0, UseKind.INSTANCE_IOPS: 2.0},
        limits={UseKind.READS: 4000.0, UseKind.INSTANCE_IOPS: 2100.0},
    )
    capacity = reckon(nature)
    assert capacity.binding is not None
    assert capacity.binding.kind is BoundKind.INSTANCE_IOPS
    twice = next(one for one in capacity.projections if one.change == "a disk twice as quick")
    assert (twice.binds, twice.high_tps) == (BoundKind.INSTANCE_IOPS, capacity.binding.tps.high)
    assert twice.how.endswith(", through the same instance")

    def project(instance_iops: float | None) -> tuple[BoundKind | None, float]:
        instance = None if instance_iops is None else InstanceLimits(name="other", iops=instance_iops)
        limits = msgspec.structs.replace(draw_limits(nature), instance=instance)
        other = project_disk(capacity, limits, "the other")
        return other.binds, other.high_tps or 0.0

    high_tps = capacity.binding.tps.high
    assert project(2100.0) == (BoundKind.INSTANCE_IOPS, pytest.approx(high_tps))
    assert project(2800.0) == (BoundKind.INSTANCE_IOPS, pytest.approx((high_tps or 0.0) * 4 / 3))
    # A local disk, or one of another instance with more than that.
    assert project(None)[0] is project(8000.0)[0] is BoundKind.READS


def test_another_disk_is_projected_to_what_lasts_of_a_burst() -> None:
    """Of the other disk 1.5 times the 12,000 reads a second are measured that its instance sustains."""
    nature = Nature(tps=950.0, cpu_s=1e-4, demands={UseKind.READS: 4.0}, limits={UseKind.READS: 4000.0})
    capacity = reckon(nature)
    reads = capacity.find(BoundKind.READS)
    assert reads is not None
    disk = DiskSpec(volume="gp3", count=8, size="50GB", raid=10, volume_latency_ms=1.85)
    card = make_card(runs=make_runs(level=lambda one, _: 1.5))
    host = HostSpec(instance="c7g.2xlarge")
    limits = find_limits(msgspec.structs.replace(card, declared=disk, host=host))
    assert (limits.random_read_iops or 0.0) > 15_000
    other = project_disk(capacity, limits, "the other")
    assert other.binds is BoundKind.READS
    assert other.high_tps == pytest.approx((reads.tps.high or 0.0) * 12_000 / (reads.limit.value or 1.0))


# Records of real servers


@pytest.mark.parametrize("name", ["v1-pg15", "v1-pg18"])
def test_a_stored_record_has_the_bound_of_its_cpus_and_says_what_lacks(name: str) -> None:
    store = open_record(RECORDS / name)
    record = store.read_record()
    trials = [read_trial_data(store.trial_dir(one.planned.number), one) for one in store.read_trials()]
    capacities = find_capacities(record, analyse_study(record, trials), None)
    assert capacities
    for capacity in capacities:
        cpu = capacity.find(BoundKind.CPU)
        assert cpu is not None
        assert cpu.used.value is not None
        assert 0.0 < cpu.used.value <= 1.05
        assert (cpu.tps.low is None) == (cpu.tps.n == 1)
        assert capacity.absent["WAL flushes"] == NO_CARD
        assert all((one.high_tps is None) == (one.reason is not None) for one in capacity.projections)
