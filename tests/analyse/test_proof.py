from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.comparison.derived_gain import Advice, find_checkpoint_cycles, find_gains, invert_verdict
from pgdyno.analyse.comparison.verdict import VerdictKind, decide_family
from pgdyno.facts.metrics import Better
from pgdyno.record.types import SettingFact
from tests.report.build_comparison import build_paired
from tests.report.build_derived import build_derived, build_layers


@given(st.lists(st.floats(-2.0, 2.0), min_size=2, max_size=20))
def test_a_turned_verdict_is_that_of_the_turned_pairs(log_ratios: list[float]) -> None:
    def decide(values: list[float]):
        return decide_family({"derived": values}, metric="tps", better=Better.HIGHER, alpha=0.05, delta_ratio=0.03)[0]

    turned, own = invert_verdict(decide(log_ratios)), decide([-ratio for ratio in log_ratios])
    assert turned.kind is own.kind
    for name in ("effect_ratio", "low_ratio", "high_ratio"):
        one, other = getattr(turned, name), getattr(own, name)
        assert (one is None) == (other is None) or math.isinf(other or one)
        if one is not None and other is not None:
            assert one == pytest.approx(other, rel=1e-6, abs=1e-9)


def test_gains_speak_of_the_set_whatever_the_reference_is() -> None:
    paired = build_derived()
    gains = {
        gain.workload: gain
        for gain in find_gains(paired.record, paired.analysis.comparisons, paired.analysis.workloads)
    }
    assert gains["tpcb-like"].advice is Advice.KEEP
    assert gains["tpcb-like"].verdict == paired.analysis.comparisons[0].find("derived", "tps").verdict
    assert gains["select-only"].advice is Advice.UNDECIDED
    layered = build_layers()
    whole, *layers = find_gains(layered.record, layered.analysis.comparisons, layered.analysis.workloads)
    assert whole.layer is None
    assert whole.verdict is not None
    assert whole.verdict.kind is VerdictKind.FASTER
    assert {gain.layer: gain.advice for gain in layers} == {
        "kernel": Advice.EQUIVALENT,
        "memory": Advice.KEEP,
        "WAL and checkpoints": Advice.UNDECIDED,
        "planner": Advice.UNDECIDED,
    }
    # It was slower, in trials too short to show what rarer checkpoints gain.
    (of_wal,) = (gain for gain in layers if gain.layer == "WAL and checkpoints")
    assert of_wal.is_slower
    assert of_wal.short is not None
    assert msgspec.structs.replace(of_wal, short=None).advice is Advice.DROP
    assert {gain.layer for gain in (whole, *layers) if gain.short is not None} == {None, "WAL and checkpoints"}
    # Without memory it has 0.75 of the TPS: memory gives a third.
    memory = next(gain.verdict for gain in layers if gain.layer == "memory")
    assert memory is not None
    assert memory.effect_ratio == pytest.approx(1 / 0.75 - 1, abs=0.02)


def test_a_variant_that_gave_no_pair_has_no_gain() -> None:
    report = build_layers()
    tuned = report.record.tuned
    assert tuned is not None
    layers = (msgspec.structs.replace(tuned.layers[0], variant="nobody"),)
    record = msgspec.structs.replace(report.record, tuned=msgspec.structs.replace(tuned, layers=layers))
    _, gain = find_gains(record, report.analysis.comparisons, report.analysis.workloads)
    assert (gain.verdict, gain.advice) == (None, Advice.UNDECIDED)


def test_other_studies_prove_nothing() -> None:
    report = build_paired()
    assert find_gains(report.record, report.analysis.comparisons, report.analysis.workloads) == ()
    assert find_checkpoint_cycles(report.record, report.analysis.workloads) == ()


def test_the_cycle_follows_max_wal_size_and_the_clock() -> None:
    report = build_derived()
    cycles = {
        (cycle.workload, cycle.variant): cycle
        for cycle in find_checkpoint_cycles(report.record, report.analysis.workloads)
    }
    stock, derived = cycles["tpcb-like", "stock"], cycles["tpcb-like", "derived"]
    trials = next(one.trials for one in report.analysis.workloads if one.name == "tpcb-like, stock")
    rate = (trials[0].counts_per_transaction["wal_bytes"] or 0.0) * (trials[0].tps or 0.0)
    # In whole segments of 16 MB: 33 of 33.7.
    assert stock.cycle_s == pytest.approx(33 * 16 * 1024**2 / rate, rel=0.01)
    # 6.5 GB would last longer than checkpoint_timeout.
    assert derived.cycle_s == 300.0
    assert (stock.duration_s, stock.wanted_s) == (10.0, 3.0 * stock.cycle_s)


def test_the_cycle_is_of_the_segments_that_initdb_chose() -> None:
    report = build_derived()
    workload = next(one for one in report.analysis.workloads if one.name == "tpcb-like, stock")
    facts = (
        SettingFact(
            name="wal_segment_size", value=str(2 * 1024**2), unit="B", boot_value="16777216", source="override"
        ),
    )
    trials = tuple(
        msgspec.structs.replace(trial, record=msgspec.structs.replace(trial.record, settings=facts))
        for trial in workload.trials
    )
    (cycle,) = find_checkpoint_cycles(report.record, [msgspec.structs.replace(workload, trials=trials)])
    rate = (trials[0].counts_per_transaction["wal_bytes"] or 0.0) * (trials[0].tps or 0.0)
    # initdb sets max_wal_size to 64 segments: 33 of 33.7.
    assert cycle.cycle_s == pytest.approx(33 * 2 * 1024**2 / rate, rel=0.01)
