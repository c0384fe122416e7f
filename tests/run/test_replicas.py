"""Loads that read from real standbys: who serves them, what is counted of whom, and what happens when one ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.comparison.parts import compare_parts, find_primary_metrics, rounds_of_block_part
from pgdyno.analyse.throughput import PgbenchClaim, measure_throughput
from pgdyno.analyse.trial.parts import measure_parts
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.pgbench.output import Progress
from pgdyno.record.transactions.pack import TRANSACTIONS_DIR, read_packed
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.run.cluster import standby
from pgdyno.run.cluster.home import Home
from pgdyno.run.host.freezer import Freezer
from pgdyno.run.load import watch as load_watch
from pgdyno.run.trial import TrialOutcome, run_trial
from pgdyno.spec.read import make_study
from tests.homes import some_home
from tests.run.test_switchback import Rounds, assert_nothing_is_left, once
from tests.run.test_trial import gaps_beside_late_samples
from tests.stages import prepare_stage

pytestmark = pytest.mark.cluster
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


def run(
    home: Home,
    folder: Path,
    *,
    standbys: int,
    major: int = 18,
    duration: str = "4s",
    on_load: Callable[[Progress], None] = lambda _: None,
) -> TrialOutcome:
    # Slow enough for every transaction to be logged, however fast the machine is.
    (folder / "read.sql").write_text("\\sleep 5 ms\nSELECT abalance FROM pgbench_accounts WHERE aid = 1;\n")
    load = {"name": "read", "scripts": ["read.sql"], "clients": 3, "threads": 1, "endpoint": "replicas"}
    raw: dict[str, object] = {
        "server": {"standbys": standbys},
        "data": {"scale": 1},
        "workload": [load],
        "trials": {"duration": duration, "warm_up": "1s"},
    }
    study = make_study(raw, source="test", folder=folder)
    plan = plan_study(study, MACHINE)
    stage = prepare_stage(home, folder, study, plan, major=major, standbys=standbys)
    (folder / "trial").mkdir()
    return run_trial(stage, plan.trials[0], folder=folder / "trial", on_activity=lambda _: None, on_load=on_load)


def read(folder: Path, outcome: TrialOutcome) -> TrialData:
    assert outcome.error is None, (outcome.error.fact, outcome.error.detail)
    assert gaps_beside_late_samples(outcome.record.gaps) == []
    data = read_trial_data(folder / "trial", outcome.record)
    assert gaps_beside_late_samples(data.gaps) == []
    assert data.pgbench is not None
    assert data.server is not None
    assert data.transactions is not None
    count = data.pgbench.transaction_count
    assert count is not None
    assert data.transactions.ok_count + data.transactions.early_count == count > 0
    # Counters are those of the standbys, and how they lag is the primary's. A session may not have counted its last second yet.
    commits = outcome.record.growth("xact_commit_count")
    assert commits is not None
    assert commits > 0.3 * count
    assert outcome.record.growth("wal_insert_lsn_bytes") is None
    assert set(data.server.frame["standby/standby1/state"]) == {"streaming"}
    assert any(name.startswith("wait/client backend/") for name in data.server.frame.columns)
    assert data.os is not None
    # Beside the clients there is the sampler's session on each.
    assert data.os.frame["backends.server/count"].max() >= 3
    return data


def test_the_clients_are_divided_among_the_standbys_and_begin_together(home: Home, tmp_path: Path) -> None:
    outcome = run(home, tmp_path, standbys=2)
    data = read(tmp_path, outcome)
    parts = outcome.record.generators
    assert [(part.host, part.endpoint, part.clients) for part in parts] == [
        ("standby1", "standby1", 2),
        ("standby2", "standby2", 1),
    ]
    assert parts[0].release_near_s == parts[1].release_near_s == outcome.record.load_start_monotonic_s
    for part in parts:
        place = tmp_path / "trial/loads" / part.host / TRANSACTIONS_DIR
        generator = next(one for one in data.generators if one.part == part)
        assert generator.pgbench is not None
        assert generator.transactions is not None
        counts = [len(batch) for batch in read_packed(place)]
        assert sum(counts) == generator.transactions.ok_count
        assert sum(counts) + generator.transactions.early_count == generator.pgbench.transaction_count

    assert data.transactions is not None
    claim = PgbenchClaim(clients=3, is_closed_loop=True, tps=None, transactions_count=None)
    whole = measure_throughput(data.transactions, claim, data.whole_seconds)
    measured = measure_parts(data, whole)
    assert [(one.name, one.clients, one.failed_count) for one in measured] == [("standby1", 2, 0), ("standby2", 1, 0)]
    assert sum(one.tps or 0.0 for one in measured) == pytest.approx(whole.tps)
    assert all(one.percentiles[0].value_ms for one in measured)
    assert_nothing_is_left(home)


def test_one_standby_is_read_by_one_pgbench(home: Home, tmp_path: Path) -> None:
    outcome = run(home, tmp_path, standbys=1, major=15)
    read(tmp_path, outcome)
    assert outcome.record.generators == ()
    assert not (tmp_path / "trial/loads").exists()
    # Its caches were warmed without what a standby refuses: an error in its log would pass for the reason why a trial failed.
    (log,) = tmp_path.rglob("standby1.log")
    assert "ERROR" not in log.read_text()


def test_a_standby_that_ends_under_its_readers_fails_the_trial_by_name(home: Home, tmp_path: Path) -> None:
    def kill() -> None:
        pid = int((home.work / "slot-2/data/postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)

    outcome = run(home, tmp_path, standbys=2, on_load=once(kill))
    assert outcome.error is not None
    assert outcome.error.fact == "standby2 was killed by SIGKILL"
    assert_nothing_is_left(home)


def test_a_standby_that_hangs_under_its_readers_ends_the_load_by_name(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freezer = Freezer()

    def freeze() -> None:
        # Not before: on a busy machine one that is well may need longer. The other one is asked, too.
        monkeypatch.setattr(load_watch, "SILENCE_S", 1.0)
        monkeypatch.setattr(standby, "ANSWER_PATIENCE_S", 8)
        pid = int((home.work / "slot-2/data/postmaster.pid").read_text().split()[0])
        freezer.freeze([pid])

    # The readers of the other standby go on.
    outcome = run(home, tmp_path, standbys=2, duration="300s", on_load=once(freeze))
    assert outcome.error is not None
    assert outcome.error.fact == "standby2 does not answer"
    assert_nothing_is_left(home)


LOCAL, APPLIED = "synchronous_commit=local", "synchronous_commit=remote_apply"
# Far longer than a commit takes that waits neither for a standby nor for the disk.
DELAY_MS = 150.0


def test_writers_and_readers_run_side_by_side_and_variants_act_on_each_part(home: Home, tmp_path: Path) -> None:
    parts = [
        {"name": "simple-update", "clients": 2, "endpoint": "primary"},
        {"name": "reads", "scripts": ["select-only@1", "select-only@2"], "clients": 1, "endpoint": "replicas"},
    ]
    raw: dict[str, object] = {
        "server": {"standbys": 1, "settings": {"recovery_min_apply_delay": f"{DELAY_MS:g}ms", "fsync": False}},
        "data": {"scale": 2},
        "workload": [{"name": "split", "parts": parts}],
        # The schedule ends it.
        "trials": {"duration": "300s", "warm_up": "1s"},
        "variant": [{"settings": {"synchronous_commit": value}} for value in ("local", "remote_apply")],
    }
    study = make_study(raw, source="test", folder=tmp_path)
    plan = plan_study(study, MACHINE)
    assert plan.experiment is not None
    stage = prepare_stage(home, tmp_path, study, plan, settings=plan.experiment.reference.server.settings, standbys=1)
    (tmp_path / "trial").mkdir()
    outcome = run_trial(
        stage,
        msgspec.structs.replace(plan.trials[0], duration_s=300.0),
        folder=tmp_path / "trial",
        on_activity=lambda _: None,
        on_load=lambda _: None,
        schedule=Rounds(LOCAL, APPLIED, LOCAL, times=4, slice_s=0.8),
    )
    assert outcome.error is None, (outcome.error.fact, outcome.error.detail)
    data = read_trial_data(tmp_path / "trial", outcome.record)
    assert gaps_beside_late_samples(data.gaps) == []
    assert [(part.host, part.part, part.endpoint, part.first_script) for part in outcome.record.generators] == [
        ("simple-update", "simple-update", "primary", 0),
        ("reads", "reads", "standby1", 1),
    ]
    assert data.transactions is not None
    assert [one.script for one in data.transactions.scripts] == [0, 1, 2]
    assert data.pgbench is not None
    assert [script.number for script in data.pgbench.scripts] == [1, 2, 3]

    medians: dict[str, dict[str, list[float]]] = {"simple-update": {}, "reads": {}}
    for name, by_variant in medians.items():
        for one, load in zip(data.slices, data.part_loads[name], strict=True):
            # On a very busy machine a slice may see none.
            if load.ok_count:
                by_variant.setdefault(one.variant, []).append(float(np.median(load.latency_us)) / 1e3)
    # Whoever need not wait may be late as well now and then.
    assert min(medians["simple-update"][APPLIED]) > 0.8 * DELAY_MS > np.median(medians["simple-update"][LOCAL])
    # Readers of the standby wait for no commit.
    assert np.median(medians["reads"][APPLIED]) < 0.8 * DELAY_MS
    counts = [sum(load.ok_count for load in loads) for loads in (*data.part_loads.values(), data.slice_loads)]
    assert counts[0] + counts[1] == counts[2]

    rounds = {("split", name): rounds_of_block_part(data, name) for name in medians}
    compared = compare_parts(
        rounds, plan.experiment, primary=find_primary_metrics(plan.workloads), final_looks={}, planned_rounds={}
    )
    assert [(one.part, one.comparison.rounds) for one in compared] == [("simple-update", 4), ("reads", 4)]
    question = compared[0].comparison.find(APPLIED, "tps")
    assert question is not None
    assert max(question.log_ratios) < 0.0
    assert_nothing_is_left(home)
