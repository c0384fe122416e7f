from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.comparison.parts import rounds_of_parts
from pgdyno.analyse.comparison.rounds import rounds_of_slices, rounds_of_trials
from pgdyno.analyse.types import PartFigures, Percentile, TrialAnalysis
from pgdyno.plan.plan import PlannedTrial
from pgdyno.record.transactions.slices import Slice, SliceLoad, SlicePhase
from pgdyno.record.types import TrialRecord, TrialStatus

LATENCIES = ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms")
COUNTS = {"wal_bytes": 8000.0, "device_flush_count": 40.0, "cpu_s": 0.5, "device_read_bytes": None}


def build_slice(position: int, variant: str, *, number: int = 1, **counts: float | None) -> Slice:
    """A slice of 1 s, of which 0.8 s count."""
    begin_s = 100.0 + 3 * number + position
    return Slice(
        phase=SlicePhase.ROUND,
        round=number,
        position=position,
        variant=variant,
        begin_monotonic_s=begin_s,
        settled_monotonic_s=begin_s + 0.2,
        end_monotonic_s=begin_s + 1.0,
        counts={**COUNTS, **counts},
    )


def build_load(count: int, latency_us: int = 2000) -> SliceLoad:
    return SliceLoad(ok_count=count, latency_us=np.full(count, latency_us, dtype=np.int64), end_s=np.ones(count))


def build_block(rounds: int, count: int = 800) -> tuple[list[Slice], list[SliceLoad]]:
    slices = [build_slice(p, variant, number=n) for n in range(1, rounds + 1) for p, variant in enumerate("ABA")]
    return slices, [build_load(count) for _ in slices]


def test_a_slices_figures() -> None:
    slices, loads = build_block(1)
    loads[1] = SliceLoad(ok_count=800, latency_us=np.arange(1, 801, dtype=np.int64) * 1000, end_s=np.ones(800))
    (only,) = rounds_of_slices(slices, loads, trial=7, sampling_rate=1.0)
    assert (only.trial, only.at_s, only.length_s) == (7, 106.0, 3.0)
    assert {variant: len(of) for variant, of in only.values.items()} == {"A": 2, "B": 1}
    values = only.values["B"][0]
    assert values == pytest.approx(
        {
            "tps": 1000.0,
            "latency_p50_ms": 400.5,
            "latency_p95_ms": float(np.quantile(np.arange(1, 801), 0.95)),
            "latency_p99_ms": float(np.quantile(np.arange(1, 801), 0.99)),
            "wal_bytes": 10.0,
            "device_flush_count": 0.05,
            "cpu_ms": 0.625,
        }
    )


def test_a_sampled_log_stands_for_all_transactions() -> None:
    slices, loads = build_block(1)
    whole, sampled = (rounds_of_slices(slices, loads, trial=1, sampling_rate=rate)[0] for rate in (1.0, 0.01))
    for name, factor in {"tps": 100.0, "wal_bytes": 0.01, "cpu_ms": 0.01, "latency_p95_ms": 1.0}.items():
        assert sampled.values["B"][0][name] == pytest.approx(factor * whole.values["B"][0][name])


def test_the_pilot_is_no_round() -> None:
    slices, loads = build_block(2)
    slices[:3] = [msgspec.structs.replace(one, phase=SlicePhase.PILOT) for one in slices[:3]]
    assert [one.at_s for one in rounds_of_slices(slices, loads, trial=1, sampling_rate=1.0)] == [109.0]
    assert rounds_of_slices([], [], trial=1, sampling_rate=1.0) == ()
    assert rounds_of_slices(slices[:3], loads[:3], trial=1, sampling_rate=1.0) == ()


def test_a_round_that_was_cut_keeps_what_it_has() -> None:
    slices, loads = build_block(2)
    *_, cut = rounds_of_slices(slices[:-1], loads[:-1], trial=1, sampling_rate=1.0)
    assert {variant: len(of) for variant, of in cut.values.items()} == {"A": 1, "B": 1}


def test_a_stall_is_no_gap() -> None:
    # Left out, it would forgive the variant that stalls.
    slices, loads = build_block(1)
    loads[1] = build_load(0)
    values = rounds_of_slices(slices, loads, trial=1, sampling_rate=0.5)[0].values["B"][0]
    # Each of its transactions took longer than what counts of it.
    assert values == pytest.approx({"tps": 1.25, **dict.fromkeys(LATENCIES, 800.0)})
    # Any slice that had one transaction was faster.
    loads[1] = build_load(1)
    assert rounds_of_slices(slices, loads, trial=1, sampling_rate=0.5)[0].values["B"][0]["tps"] == pytest.approx(2.5)


def test_percentiles_come_with_enough_transactions_in_the_whole_block_and_not_by_slice() -> None:
    names = {"latency_p50_ms": 20, "latency_p95_ms": 100, "latency_p99_ms": 500}
    for name, least in names.items():
        for count in (least - 1, least):
            slices, loads = build_block(3, count)
            rounds = rounds_of_slices(slices, loads, trial=1, sampling_rate=1.0)
            assert {name in values for one in rounds for of in one.values.values() for values in of} == {count >= least}
    # A slow slice is not left out for being slow.
    slices, loads = build_block(3, 600)
    loads[4] = build_load(3, latency_us=900_000)
    rounds = rounds_of_slices(slices, loads, trial=1, sampling_rate=1.0)
    assert rounds[1].values["B"][0]["latency_p99_ms"] == 900.0


def test_a_count_that_is_often_zero_is_compared_nowhere_and_a_rare_zero_only_there() -> None:
    slices, loads = build_block(20)
    slices[4] = build_slice(1, "B", number=2, wal_bytes=0.0)
    for index in (1, 10, 20, 30):
        slices[index] = msgspec.structs.replace(slices[index], counts={**COUNTS, "device_flush_count": 0.0})
    rounds = rounds_of_slices(slices, loads, trial=1, sampling_rate=1.0)
    seen = [values for one in rounds for of in one.values.values() for values in of]
    assert not any("device_flush_count" in values for values in seen)
    assert sum("wal_bytes" in values for values in seen) == 59
    assert "wal_bytes" not in rounds[1].values["B"][0]
    assert not any("device_read_bytes" in values for values in seen)


def test_a_slice_of_which_nothing_counts_gives_nothing() -> None:
    slices, loads = build_block(1)
    slices[1] = msgspec.structs.replace(slices[1], settled_monotonic_s=slices[1].end_monotonic_s)
    loads[1] = build_load(0)
    assert rounds_of_slices(slices, loads, trial=1, sampling_rate=1.0)[0].values["B"] == ({},)


def test_every_value_has_a_logarithm() -> None:
    random = np.random.default_rng(1)
    slices, _ = build_block(30)
    loads = [build_load(int(count), int(us)) for count, us in random.integers(0, 400, (90, 2)).tolist()]
    for one in rounds_of_slices(slices, loads, trial=1, sampling_rate=0.3):
        for values in (values for of in one.values.values() for values in of):
            assert all(math.isfinite(math.log(value)) for value in values.values())


# -- Paired trials ---------------------------------------------------------------------------------------------------


def build_trial(number: int, variant: str, *, round_number: int = 1, tps: float | None = 1000.0) -> TrialAnalysis:
    """A trial of 10 s that began 20 s after the one before."""
    planned = PlannedTrial(
        number=number, round=round_number, workload="w", seed=1, warm_up_s=2.0, duration_s=10.0, variants=(variant,)
    )
    record = TrialRecord(
        planned=planned,
        status=TrialStatus.FINISHED,
        error=None,
        argv=(),
        clock_offset_s=0.0,
        restore_s=3.0,
        load_start_monotonic_s=20.0 * number,
        load_end_monotonic_s=20.0 * number + 10.0,
        load_cpu_s=None,
        log_sampling_rate=1.0,
        settings=(),
        counters_before={},
        counters_after={},
        gaps=(),
    )
    return TrialAnalysis(
        record=record,
        tps=tps,
        latency_mean_ms=None,
        percentiles=(
            Percentile(name="p50", value_ms=2.0),
            Percentile(name="p90", value_ms=3.0),
            Percentile(name="p99", value_ms=None, reason="too few"),
        ),
        transactions_count=None,
        failed_count=None,
        skipped_count=None,
        late_count=None,
        steady_from_s=None,
        charts={},
        events=(),
        counts_per_transaction={"wal_bytes": 600.0, "wal_fpi_count": 0.0, "wal_sync_count": None, "xact_commit": 1.0},
        shares={"cpu_busy_ratio": 0.5},
        statements=(),
        unknown_lines=(),
        gaps=(),
    )


def test_a_trials_figures() -> None:
    trials = [build_trial(2, "B"), build_trial(1, "A"), build_trial(3, "A")]
    (only,) = rounds_of_trials(trials, cpu_count=2.0)
    assert (only.trial, only.at_s, only.length_s) == (1, 70.0, 60.0)
    assert only.values["B"] == ({"tps": 1000.0, "latency_p50_ms": 2.0, "wal_bytes": 600.0, "cpu_ms": 1.0},)
    assert {variant: len(of) for variant, of in only.values.items()} == {"A": 2, "B": 1}


def find_length_s(*records: dict[str, float | None]) -> float:
    """The seconds of a round of trials with these changes."""
    trials = [build_trial(number, variant) for number, variant in enumerate("ABA", start=1)]
    changed = [
        msgspec.structs.replace(trial, record=msgspec.structs.replace(trial.record, **values))
        for trial, values in zip(trials, records, strict=True)
    ]
    (only,) = rounds_of_trials(changed, cpu_count=2.0)
    return only.length_s


def test_a_round_lasts_as_long_as_the_work_of_its_trials() -> None:
    works = [{"began_monotonic_s": begin, "ended_monotonic_s": end} for begin, end in ((13, 33), (33, 53), (53, 76))]
    assert find_length_s(*works) == 63.0
    together = [{**one, "slice_s": 0.5} for one in works]
    assert find_length_s(*together) == 63.0


@pytest.mark.parametrize(
    ("starts_s", "slice_s", "length_s"),
    [
        ((20.0, 40.0, 70.0), None, 75.0),
        # The last one ran after the machine was started again.
        ((500.0, 520.0, 30.0), None, 60.0),
        ((20.0, 20.5, 21.0), 0.5, 11.0 + 3 * 5.0),
    ],
)
def test_of_older_trials_the_distance_of_loads_is_known(
    starts_s: tuple[float, ...], slice_s: float | None, length_s: float
) -> None:
    loads = [
        {"load_start_monotonic_s": start_s, "load_end_monotonic_s": start_s + 10.0, "slice_s": slice_s}
        for start_s in starts_s
    ]
    assert find_length_s(*loads) == pytest.approx(length_s)


def test_a_trial_in_which_nothing_ended_is_no_gap() -> None:
    # Left out, it would forgive the variant that stalls, and where many do, nothing would be compared.
    variants = "ABAABA"
    trials = [build_trial(n, variant, round_number=1 + (n > 3)) for n, variant in enumerate(variants, start=1)]
    trials[1] = build_trial(2, "B", tps=0.0)
    trials[4] = msgspec.structs.replace(build_trial(5, "B", round_number=2, tps=None), transactions_count=0)
    rounds = rounds_of_trials(trials, cpu_count=2.0)
    assert [one.values["B"][0]["tps"] for one in rounds] == [0.05, 0.05]
    # Each of its transactions took longer than its 10 s.
    assert [one.values["B"][0]["latency_p50_ms"] for one in rounds] == [10_000.0, 10_000.0]
    assert [values["tps"] for one in rounds for values in one.values["A"]] == [1000.0] * 4
    # What ended outside of the steady part is known.
    trials[1] = msgspec.structs.replace(trials[1], pgbench_tps=0.3, transactions_count=3)
    assert rounds_of_trials(trials, cpu_count=2.0)[0].values["B"][0]["tps"] == 0.3


def build_unsupported(number: int, variant: str, *, p95_ms: float, slice_s: float | None = None) -> TrialAnalysis:
    """A trial with too few transactions for its p95, or with a p95 too long for its slices."""
    trial = build_trial(number, variant, round_number=(number + 2) // 3)
    p95 = Percentile(name="p95", value_ms=None, reason="too few", unsupported_ms=p95_ms)
    record = msgspec.structs.replace(trial.record, slice_s=slice_s)
    return msgspec.structs.replace(trial, record=record, percentiles=(p95,))


def build_supported(number: int, variant: str, *, slice_s: float | None = None) -> TrialAnalysis:
    trial = build_unsupported(number, variant, p95_ms=20.0, slice_s=slice_s)
    return msgspec.structs.replace(trial, percentiles=(Percentile(name="p95", value_ms=20.0),))


def p95_of(trials: list[TrialAnalysis]) -> dict[int, float]:
    """The p95 of each trial of B, by its round; none where it is left out."""
    rounds = rounds_of_trials(trials, cpu_count=2.0)
    values = {number: one.values["B"][0] for number, one in enumerate(rounds, start=1)}
    return {number: of["latency_p95_ms"] for number, of in values.items() if "latency_p95_ms" in of}


def test_a_trial_that_was_too_slow_for_its_percentile_is_no_gap() -> None:
    # At a rate an overloaded variant completes fewer transactions: left out, they would forgive its worst trials.
    for slow in ({5}, {2, 5, 8, 11}):
        trials = [
            build_unsupported(n, variant, p95_ms=3000.0) if n in slow else build_supported(n, variant)
            for n, variant in enumerate("ABA" * 4, start=1)
        ]
        assert p95_of(trials) == {number: 3000.0 if 3 * number - 1 in slow else 20.0 for number in range(1, 5)}
    # One variant that supports it is enough: the others are the slow ones.
    trials = [
        build_supported(n, variant) if variant == "B" else build_unsupported(n, variant, p95_ms=3000.0)
        for n, variant in enumerate("ABA" * 4, start=1)
    ]
    assert p95_of(trials) == dict.fromkeys(range(1, 5), 20.0)


def test_a_percentile_that_no_variant_supports_is_compared_nowhere() -> None:
    trials = [build_unsupported(n, variant, p95_ms=20.0) for n, variant in enumerate("ABA" * 4, start=1)]
    trials[1], trials[3] = build_supported(2, "B"), build_supported(4, "A")
    assert p95_of(trials) == {}


def test_a_percentile_that_is_too_long_for_many_slices_is_compared_nowhere_and_for_a_few_as_it_is() -> None:
    for count, is_compared in ((2, True), (3, False)):
        trials = [
            build_unsupported(n, variant, p95_ms=300.0, slice_s=0.5)
            if variant == "B" and n <= 3 * count
            else build_supported(n, variant, slice_s=0.5)
            for n, variant in enumerate("ABA" * 16, start=1)
        ]
        expected = {number: 300.0 if number <= count else 20.0 for number in range(1, 17)}
        assert p95_of(trials) == (expected if is_compared else {})


def test_rounds_of_a_part_have_its_figures_alone_and_a_part_that_stalls_is_no_gap() -> None:
    def with_part(trial: TrialAnalysis, tps: float) -> TrialAnalysis:
        p99 = Percentile(name="p99", value_ms=9.0)
        part = PartFigures(
            name="reads",
            endpoints=("standby1",),
            clients=2,
            tps=tps,
            latency_mean_ms=3.0,
            percentiles=(p99,),
            failed_count=0,
        )
        return msgspec.structs.replace(trial, parts=(part,))

    trials = [
        with_part(build_trial(n, variant), tps)
        for n, (variant, tps) in enumerate(zip("ABA", (50.0, 0.0, 60.0), strict=True), 1)
    ]
    (only,) = rounds_of_parts(trials, "reads")
    assert only.values["A"] == ({"tps": 50.0, "latency_p99_ms": 9.0}, {"tps": 60.0, "latency_p99_ms": 9.0})
    assert only.values["B"][0]["tps"] == 0.05
    assert rounds_of_parts(trials, "writes") == ()


def test_trials_that_were_only_observed_are_in_no_round() -> None:
    observed = [build_trial(1, "A", round_number=0), build_trial(2, "B", round_number=0)]
    trials = [build_trial(n, variant) for n, variant in enumerate("ABA", start=3)]
    (only,) = rounds_of_trials([*observed, *trials], cpu_count=2.0)
    assert only.trial == 3
    assert {variant: len(of) for variant, of in only.values.items()} == {"A": 2, "B": 1}


def test_trials_that_failed_are_missing_from_their_rounds() -> None:
    trials = [build_trial(n, variant, round_number=1 + (n > 3)) for n, variant in enumerate("ABAABA", start=1)]
    failed = msgspec.structs.replace(trials[1].record, status=TrialStatus.FAILED)
    trials[1] = msgspec.structs.replace(trials[1], record=failed)
    trials[4] = build_trial(5, "B", round_number=2, tps=None)
    first, second = rounds_of_trials(trials, cpu_count=2.0)
    assert set(first.values) == {"A"}
    assert second.values["B"][0].keys() == {"latency_p50_ms", "wal_bytes"}
    # A block of a switchback is no trial of one variant, and neither is one that compares nothing.
    none = msgspec.structs.replace(trials[0].record.planned, variants=())
    record = msgspec.structs.replace(trials[0].record, planned=none)
    assert rounds_of_trials([msgspec.structs.replace(trials[0], record=record)], cpu_count=2.0) == ()
