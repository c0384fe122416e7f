"""Whole trials on real servers, read back and analysed: what one sees must fit what another saw."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.estimate import DoubtKind
from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import FORMAT_VERSION, Gap, StudyRecord, TrialStatus
from pgdyno.run.cluster.home import Home
from pgdyno.run.host.facts import read_host_facts
from pgdyno.run.measured_load import choose_sampling_rate
from pgdyno.run.sample import child
from pgdyno.run.trial import TrialOutcome, run_trial
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.read import make_study
from tests.homes import some_home
from tests.stages import prepare_stage

pytestmark = pytest.mark.cluster
# A load that leaves the CPUs to the tests beside it.
GENTLE = {"name": "select-only", "rate_tps": 200.0}
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


def try_once(
    home: Home,
    folder: Path,
    major: int,
    *,
    cpu_count: float = 2.0,
    trials: dict[str, object] | None = None,
    on_load: Callable[[Path], None] = lambda _: None,
    **load: object,
) -> tuple[StudyRecord, TrialData, TrialAnalysis]:
    stage = make_stage(home, folder, major, cpu_count=cpu_count, trials=trials, **load)
    trial = folder / "trial"
    outcome = run_first(stage, trial, on_load=on_load)
    assert outcome.error is None, (outcome.error.fact, outcome.error.detail)
    assert outcome.record.status is TrialStatus.FINISHED
    record = StudyRecord(
        format_version=FORMAT_VERSION,
        name="test",
        started_at="",
        command=(),
        tool_versions={},
        study=stage.study,
        plan=stage.plan,
        host=read_host_facts(home.root),
        server=stage.server.facts,
        dataset=stage.dataset,
    )
    data = read_trial_data(trial, outcome.record)
    (analysed,) = analyse_study(record, [data]).workloads[0].trials
    return record, data, analysed


def gaps_beside_late_samples(gaps: Sequence[Gap]) -> list[Gap]:
    """Gaps but those that a busy machine makes."""
    return [gap for gap in gaps if "too late" not in gap.reason]


def is_about(tps: float | None, other_tps: float | None) -> bool:
    """Whether both measured the same load: on a busy machine its parts differ."""
    return tps is not None and other_tps is not None and 0.5 < tps / other_tps < 2


def make_stage(
    home: Home,
    folder: Path,
    major: int = 18,
    *,
    cpu_count: float = 2.0,
    trials: dict[str, object] | None = None,
    **load: object,
) -> TrialStage:
    raw = {
        "data": {"scale": 4},
        "workload": [{"clients": 4, "mode": "prepared", **load}],
        "trials": {"rounds": 1, "duration": "3s", "warm_up": "1s", **(trials or {})},
    }
    study = make_study(raw, source="test", folder=folder)
    plan = plan_study(study, MACHINE)
    return prepare_stage(home, folder, study, plan, major=major, cpu_count=cpu_count)


def run_first(stage: TrialStage, folder: Path, on_load: Callable[[Path], None] = lambda _: None) -> TrialOutcome:
    folder.mkdir()
    return run_trial(
        stage, stage.plan.trials[0], folder=folder, on_activity=lambda _: None, on_load=lambda _: on_load(folder)
    )


@pytest.mark.parametrize("major", [18, 15])
def test_a_writing_trial_fits_together(home: Home, tmp_path: Path, major: int) -> None:
    record, data, analysed = try_once(home, tmp_path, major, name="tpcb-like")
    assert gaps_beside_late_samples(data.gaps) == []
    assert analysed.unknown_lines == ()
    assert data.pgbench is not None
    assert data.transactions is not None
    assert data.transactions.ok_count == data.pgbench.transaction_count
    assert is_about(analysed.tps, data.pgbench.tps)
    values = [p.value_ms for p in analysed.percentiles if p.value_ms is not None]
    assert values == sorted(values)
    assert len([s for s in analysed.statements if not s.statement.startswith("\\")]) == 7
    assert analysed.transactions_count is not None
    # Autovacuum commits a few times in between, which shows where a very busy machine lets few others through.
    beside = analysed.counts_per_transaction["xact_commit_count"] - 1.0
    assert -0.05 < beside < 0.05 + 50 / analysed.transactions_count
    # None of its transactions is rolled back, and those of pgdyno's own sessions are no part of it.
    assert data.record.growth("xact_rollback_count") == 0
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
    took_s = (data.record.load_end_monotonic_s or 0) - (data.record.load_start_monotonic_s or 0)
    # Restoring, starting and ending the server are work, too.
    assert data.record.work_s is not None
    assert data.record.work_s > data.record.restore_s + data.record.planned.warm_up_s + took_s
    assert took_s >= 3
    assert all(-0.5 <= t <= took_s + 1.5 for series in analysed.charts.values() for line in series for t in line.t_s)
    busy = analysed.shares["cpu_busy_ratio"]
    assert busy is not None
    assert 0.0 < busy <= 1.0
    assert {"shared_buffers", "unix_socket_directories"} & {setting.name for setting in data.record.settings}
    before, after = ({t.name: t for t in of} for of in (data.record.tables_before, data.record.tables_after))
    assert set(before) == set(after) >= {"pgbench_accounts", "pgbench_history"}
    assert after["pgbench_history"].live_rows - before["pgbench_history"].live_rows == analysed.transactions_count
    accounts = after["pgbench_accounts"]
    assert (accounts.updated_count or 0) - (
        before["pgbench_accounts"].updated_count or 0
    ) == analysed.transactions_count
    hot_count, updated_count = accounts.hot_updated_count or 0, accounts.updated_count or 0
    assert 0 <= hot_count <= updated_count
    # Few updates need not find room in their pages, or lack it.
    assert analysed.transactions_count < 1_000 or 0 < hot_count < updated_count
    health = {row.check: row for row in analysed.health}
    assert all((row.value is None) <= bool(row.reason) for row in health.values())
    assert None not in {health[name].value for name in ("dead_rows_ratio", "rollback_ratio", "wait_io_ratio")}
    # On a very busy machine a few seconds update too few rows for a share.
    hot = health["hot_update_ratio"]
    assert (hot.reason == "next to no row was updated") == (analysed.transactions_count < 1_000) == (hot.value is None)
    assert record.dataset is not None
    assert {relation.name for relation in record.dataset.relations} >= {"pgbench_accounts", "pgbench_accounts_pkey"}
    assert sum(record.dataset.init_steps_s.values()) == pytest.approx(record.dataset.init_total_s, abs=0.1)


def test_a_fast_load_is_logged_in_part_and_its_figures_agree(home: Home, tmp_path: Path) -> None:
    # A tenth of a CPU to share: at thousands of TPS only a part is logged.
    _, data, analysed = try_once(home, tmp_path, 18, cpu_count=0.1, trials={"duration": "1s"}, name="select-only")
    rate = data.record.log_sampling_rate
    assert 0.01 <= rate < 0.9
    assert data.pgbench is not None
    assert data.transactions is not None
    logged = (data.pgbench.transaction_count or 0) * rate
    # pgbench draws for each transaction whether it is logged: six standard deviations.
    assert data.transactions.ok_count == pytest.approx(logged, abs=6 * math.sqrt(logged))
    assert is_about(analysed.tps, data.pgbench.tps)


def test_an_open_loop_counts_what_came_late(home: Home, tmp_path: Path) -> None:
    _, data, analysed = try_once(home, tmp_path, 15, **GENTLE, latency_limit="1ms", clients=2)
    assert data.pgbench is not None
    assert analysed.transactions_count is not None
    assert analysed.late_count is not None
    assert analysed.skipped_count is not None
    # What a busy machine cannot begin in time is skipped, but for what was due at the very end.
    assert (analysed.transactions_count + analysed.skipped_count) / 3 == pytest.approx(200.0, rel=0.5)
    assert data.pgbench.schedule_lag_average_ms is not None
    assert {doubt.kind for doubt in analysed.doubts} <= {DoubtKind.STALE_CLOCK, DoubtKind.TPS_MISMATCH}


def test_a_cold_trial_reads_from_the_disk(home: Home, tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    (tmp_path / "warm").mkdir()
    load = {**GENTLE, "rate_tps": 1000.0}
    short = {"duration": "2s", "warm_up": "0s"}
    _, cold, _ = try_once(home, tmp_path / "cold", 18, trials={"cache": "cold", **short}, **load)
    _, warm, _ = try_once(home, tmp_path / "warm", 18, trials=short, **load)

    def pages_read(data: TrialData) -> float:
        after, before = data.record.counters_after["blks_read_pages"], data.record.counters_before["blks_read_pages"]
        assert after is not None
        assert before is not None
        return after - before

    # All of the accounts and their index fit into shared_buffers: only the cold trial has to fetch them, about one for each row.
    assert cold.transaction_count is not None
    assert pages_read(cold) > 0.5 * cold.transaction_count
    assert pages_read(warm) < pages_read(cold) / 10


def test_samples_that_cannot_be_packed_fail_no_trial(home: Home, tmp_path: Path) -> None:
    def damage(folder: Path) -> None:
        with (folder / "os.jsonl").open("a") as samples:
            samples.write("damage\n")

    _, data, analysed = try_once(home, tmp_path, 18, on_load=damage, **GENTLE)
    assert analysed.tps is not None
    assert data.os is None
    assert {gap.source for gap in gaps_beside_late_samples(data.gaps)} == {"samples", "os sampler"}
    assert "damage\n" in (tmp_path / "trial" / "os.jsonl").read_text()


def test_a_full_disk_of_the_record_is_an_error_in_words(home: Home, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system of its own")
    stage = make_stage(home, tmp_path, **GENTLE)
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "none", str(disk)], check=True)
    try:
        (disk / "filler").write_bytes(bytes(88 << 10))
        outcome = run_first(stage, disk / "trial")
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
    assert outcome.error is not None
    assert "No space left on device" in outcome.error.detail
    assert "free some space" in outcome.error.hint


def test_what_a_failed_trial_did_not_see_is_kept(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The other sampler ends in order, however long that takes.
    monkeypatch.setattr(child, "_STOP_FAILED_WITHIN_S", 300.0)
    killed: list[int] = []

    def kill_sampler_then_server(_: Path) -> None:
        if killed:
            return
        pattern = f"pgdyno.run.sample.server_sampler.*{home.sockets}"
        found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=True)
        killed.extend(int(pid) for pid in (*found.stdout.split(), postmaster_of(home)))
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    outcome = run_first(make_stage(home, tmp_path, **GENTLE), tmp_path / "trial", kill_sampler_then_server)
    assert outcome.record.status is TrialStatus.FAILED
    gaps = [(gap.source, gap.reason) for gap in gaps_beside_late_samples(outcome.record.gaps)]
    assert gaps == [("server sampler", "ended by signal 9")]


def postmaster_of(home: Home) -> int:
    return int((home.data / "postmaster.pid").read_text().split()[0])


def test_a_server_that_dies_between_loads_is_told_by_its_log(home: Home, tmp_path: Path) -> None:
    stage = make_stage(home, tmp_path, name="select-only")

    def kill(activity: str) -> None:
        if activity == "preparing caches":
            os.kill(postmaster_of(home), signal.SIGKILL)

    (tmp_path / "trial").mkdir()
    outcome = run_trial(
        stage, stage.plan.trials[0], folder=tmp_path / "trial", on_activity=kill, on_load=lambda _: None
    )
    assert outcome.error is not None
    assert outcome.error.fact == "the server was killed by SIGKILL"
    assert "ready to accept connections" in outcome.error.detail


def test_script_files_run_from_the_copies_given_and_leave_none_behind(home: Home, tmp_path: Path) -> None:
    original, kept = tmp_path / "one.sql", tmp_path / "kept.sql"
    original.write_text("this is no SQL;\n")
    kept.write_text("select 1;\n")
    stage = make_stage(home, tmp_path, name="one", scripts=[str(original)], rate_tps=200.0, trials={"duration": "1s"})
    stage = msgspec.structs.replace(stage, scripts={str(original): kept})
    outcome = run_first(stage, tmp_path / "trial")
    assert outcome.error is None, outcome.error.detail
    assert (tmp_path / "trial" / "script-1-kept.sql").read_text() == "select 1;\n"
    assert list(home.work.rglob("*.sql")) == []


@pytest.mark.parametrize(
    ("tps", "cpus", "rate"), [(None, 2, 1.0), (0.0, 2, 1.0), (20_000, 2, 1.0), (40_000, 2, 0.5), (1e9, 2, 0.01)]
)
def test_the_faster_the_load_the_less_is_logged(tps: float | None, cpus: float, rate: float) -> None:
    assert choose_sampling_rate(tps, cpus) == rate
