"""What an analysis says of a real trial that lost a file."""

from __future__ import annotations

import shutil
from pathlib import Path

from pgdyno.analyse.estimate import DoubtKind
from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data

RECORD = Path(__file__).parents[1] / "data" / "records" / "v1-pg18"


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


def test_without_any_figures_there_are_none(tmp_path: Path) -> None:
    first = analyse_without(tmp_path, "transactions", "pgbench.stdout").trials[0]
    assert (first.tps, first.pgbench_tps, first.doubts) == (None, None, ())
