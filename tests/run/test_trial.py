"""Whole trials on real servers, read back and analysed: what one sees must fit what another saw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.types import ChartKind, TrialAnalysis
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import FORMAT_VERSION, StudyRecord, TrialStatus
from pgdyno.run.home import Home
from pgdyno.run.host import read_host_facts
from pgdyno.run.template import Template, prepare_template
from pgdyno.run.trial import TrialStage, choose_sampling_rate, run_trial
from pgdyno.spec.read import make_study
from tests.homes import installation_of, some_home

pytestmark = pytest.mark.cluster
MACHINE = Machine(cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home() as made:
        yield made


def try_once(
    home: Home,
    folder: Path,
    major: int,
    *,
    cpu_count: float = 2.0,
    trials: dict[str, object] | None = None,
    **load: object,
) -> tuple[StudyRecord, TrialData, TrialAnalysis]:
    raw = {
        "data": {"scale": 4},
        "workload": [{"clients": 4, "mode": "prepared", **load}],
        "trials": {"rounds": 1, "duration": "5s", "warm_up": "1s", **(trials or {})},
    }
    study = make_study(raw, source="test", folder=folder)
    plan = plan_study(study, MACHINE)
    installation = installation_of(major, home)
    (folder / "init").mkdir()
    template: Template = prepare_template(
        installation=installation,
        home=home,
        data=study.data,
        scale=plan.scale,
        output_dir=folder / "init",
        on_activity=lambda _: None,
    )
    stage = TrialStage(
        installation=installation, home=home, template=template, study=study, plan=plan, cpu_count=cpu_count
    )
    trial = folder / "trial"
    trial.mkdir()
    outcome = run_trial(stage, plan.trials[0], folder=trial, on_activity=lambda _: None, on_load=lambda _: None)
    assert outcome.error is None, (outcome.error.fact, outcome.error.detail)
    assert outcome.record.status is TrialStatus.FINISHED
    record = StudyRecord(
        format_version=FORMAT_VERSION,
        name="test",
        started_at="",
        command=(),
        tool_versions={},
        study=study,
        plan=plan,
        host=read_host_facts(home.root),
        server=installation.facts,
        dataset=template.dataset,
    )
    data = read_trial_data(trial, outcome.record)
    (analysed,) = analyse_study(record, [data]).workloads[0].trials
    return record, data, analysed


@pytest.mark.parametrize("major", [18, 15])
def test_a_writing_trial_fits_together(home: Home, tmp_path: Path, major: int) -> None:
    record, data, analysed = try_once(home, tmp_path, major, name="tpcb-like")
    assert data.gaps == ()
    assert analysed.unknown_lines == ()
    assert data.pgbench is not None
    assert data.transactions is not None
    assert data.transactions.ok_count == data.pgbench.transaction_count
    assert analysed.tps == pytest.approx(data.pgbench.tps, rel=0.3)
    values = [p.value_ms for p in analysed.percentiles if p.value_ms is not None]
    assert values == sorted(values)
    assert len([s for s in analysed.statements if not s.statement.startswith("\\")]) == 7
    assert analysed.counts_per_transaction["xact_commit_count"] == pytest.approx(1.0, abs=0.05)
    wal_bytes = analysed.counts_per_transaction["wal_bytes"]
    assert wal_bytes is not None
    assert 300 < wal_bytes < 50_000
    assert {
        ChartKind.TPS,
        ChartKind.LATENCY,
        ChartKind.WAITS,
        ChartKind.CPU,
        ChartKind.DIRTY_MEMORY,
        ChartKind.WAL,
    } <= set(analysed.charts)
    assert all(-0.5 <= t <= 6.5 for series in analysed.charts.values() for line in series for t in line.t_s)
    busy = analysed.shares["cpu_busy_ratio"]
    assert busy is not None
    assert 0.05 < busy <= 1.0
    assert {"shared_buffers", "unix_socket_directories"} & {setting.name for setting in data.record.settings}
    assert record.dataset is not None
    assert {relation.name for relation in record.dataset.relations} >= {"pgbench_accounts", "pgbench_accounts_pkey"}
    assert sum(record.dataset.init_steps_s.values()) == pytest.approx(record.dataset.init_total_s, abs=0.1)


def test_a_fast_load_is_logged_in_part_and_its_figures_agree(home: Home, tmp_path: Path) -> None:
    # A tenth of a CPU to share: at thousands of TPS only a part is logged.
    _, data, analysed = try_once(home, tmp_path, 18, cpu_count=0.1, name="select-only")
    rate = data.record.log_sampling_rate
    assert 0.01 <= rate < 0.9
    assert data.pgbench is not None
    assert data.transactions is not None
    assert data.transactions.ok_count == pytest.approx((data.pgbench.transaction_count or 0) * rate, rel=0.1)
    assert analysed.tps == pytest.approx(data.pgbench.tps, rel=0.3)


@pytest.mark.parametrize("major", [18, 15])
def test_an_open_loop_counts_what_came_late(home: Home, tmp_path: Path, major: int) -> None:
    load = {"name": "select-only", "rate_tps": 200.0, "latency_limit": "1ms", "clients": 2}
    _, data, analysed = try_once(home, tmp_path, major, **load)
    assert data.pgbench is not None
    assert analysed.tps == pytest.approx(200.0, rel=0.25)
    assert analysed.late_count is not None
    assert analysed.skipped_count is not None
    assert data.pgbench.schedule_lag_average_ms is not None
    assert not analysed.doubts


def test_a_cold_trial_reads_from_the_disk(home: Home, tmp_path: Path) -> None:
    trials = {"cache": "cold", "duration": "3s"}
    (tmp_path / "cold").mkdir()
    (tmp_path / "warm").mkdir()
    _, cold, _ = try_once(home, tmp_path / "cold", 18, trials=trials, name="select-only")
    _, warm, _ = try_once(home, tmp_path / "warm", 18, trials={"duration": "3s"}, name="select-only")

    def pages_read(data: TrialData) -> float:
        after, before = data.record.counters_after["blks_read_pages"], data.record.counters_before["blks_read_pages"]
        assert after is not None
        assert before is not None
        return after - before

    # All of the accounts and their index fit into shared_buffers: only the cold trial has to fetch them.
    assert pages_read(cold) > 1000
    assert pages_read(warm) < pages_read(cold) / 10


@pytest.mark.parametrize(
    ("tps", "cpus", "rate"), [(None, 2, 1.0), (0.0, 2, 1.0), (20_000, 2, 1.0), (40_000, 2, 0.5), (1e9, 2, 0.01)]
)
def test_the_faster_the_load_the_less_is_logged(tps: float | None, cpus: float, rate: float) -> None:
    assert choose_sampling_rate(tps, cpus) == rate
