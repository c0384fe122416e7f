"""What an analysis says of a real trial that lost a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.estimate import DoubtKind
from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data

RECORDS = Path(__file__).parents[1] / "data" / "records"
RECORD = RECORDS / "v1-pg18"


def analyse_without(folder: Path, *lost: str) -> WorkloadAnalysis:
    shutil.copytree(RECORD, folder / "record")
    store = open_record(folder / "record")
    trials = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in store.read_trials()]
    for name in lost:
        shutil.rmtree(store.trial_dir(1) / name) if name == "transactions" else (store.trial_dir(1) / name).unlink()
    trials[0] = read_trial_data(store.trial_dir(1), trials[0].record)
    return next(
        workload
        for workload in analyse_study(store.read_record(), trials).workloads
        if workload.name == trials[0].record.planned.workload
    )


def test_a_finished_trial_without_its_log_keeps_pgbenchs_tps_and_says_so(tmp_path: Path) -> None:
    whole = analyse_without(tmp_path / "whole")
    bare = analyse_without(tmp_path / "bare", "transactions", "os.parquet")
    first = bare.trials[0]
    assert first.tps == first.pgbench_tps
    assert [doubt.kind for doubt in first.doubts] == [DoubtKind.NO_LOG]
    assert bare.tps.n == whole.tps.n
    assert first.latency_mean_ms is None
    reasons = {percentile.reason for percentile in first.percentiles}
    (gap,) = [gap for gap in first.gaps if gap.source == "transaction log"]
    assert reasons == {gap.reason}


@pytest.mark.parametrize("rate_tps", [None, 5000.0])
def test_levels_of_a_load_at_its_own_rate_are_that_rates(rate_tps: float | None) -> None:
    store = open_record(RECORDS.parent / "episodes" / "quota")
    record = store.read_record()
    data = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in store.read_trials()]
    loads = tuple(msgspec.structs.replace(one, rate_tps=rate_tps) for one in record.plan.workloads)
    planned = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, workloads=loads))
    (trial,) = analyse_study(planned, data).workloads[0].trials
    assert trial.record.planned.rate_tps is None
    assert bool(trial.episodes) is (rate_tps is None)
    assert trial.episodes_absent == (None if rate_tps is None else "the rate was given: only stalls are told")
    variation = next(row for row in trial.health if row.check == "tps_variation_ratio")
    assert (variation.reason == "the rate was scheduled") is (rate_tps is not None)


def test_without_any_figures_there_are_none(tmp_path: Path) -> None:
    first = analyse_without(tmp_path, "transactions", "pgbench.stdout").trials[0]
    assert (first.tps, first.pgbench_tps, first.doubts) == (None, None, ())
