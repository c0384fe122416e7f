"""A real PgBouncer between load and server: what a trial records of it, and that it never outlives its trial or pgdyno."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.poolers import measure_pooler
from pgdyno.analyse.transaction_time.model import measure_time
from pgdyno.errors import HostError, StepFailedError
from pgdyno.plan.plan import Machine, Plan, plan_study
from pgdyno.record.pgbench.output import Progress
from pgdyno.record.samples.pooler import POOLER
from pgdyno.record.trial_data import read_trial_data
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.host.freezer import is_stopped
from pgdyno.run.host.process import find_server_user
from pgdyno.run.live_member import LiveMember
from pgdyno.run.live_round import run_live_round
from pgdyno.run.load import watch as load_watch
from pgdyno.run.pooler import program
from pgdyno.run.pooler.program import find_pgbouncer
from pgdyno.run.postgres import pooler_console, sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.pooler_console import CONSOLE, SilentPoolerError, open_console
from pgdyno.run.trial import TrialOutcome, run_trial
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.read import make_study
from tests.homes import reachable_folder, some_home
from tests.run.test_live_round import SLICE_S, once_alternating
from tests.run.test_privileges import pooling
from tests.run.test_switchback import assert_nothing_is_left
from tests.run.test_trial import gaps_beside_late_samples
from tests.shared import shared_templates
from tests.stages import prepare_stage
from tests.tools.pgcluster import PORT, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("forked_helpers")]
# Its clients wait for the two connections, each of which one of them holds while it sleeps.
HOLDING = "BEGIN;\nSELECT abalance FROM pgbench_accounts WHERE aid = 1;\n\\sleep 5 ms\nEND;\n"


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


def make_stage(
    home: Home, folder: Path, *, major: int = 18, pool: dict[str, object] | None = None, cache: str = "warm"
) -> TrialStage:
    (folder / "script.sql").write_text(HOLDING)
    raw: dict[str, object] = {
        "data": {"scale": 1},
        "workload": [{"name": "holding", "scripts": ["script.sql"], "clients": 6, "threads": 1}],
        "trials": {"duration": "3s", "warm_up": "1s", "cache": cache},
        "poolers": {"pool": pool or {"size": 2}},
        "variant": [{"endpoint": "primary"}, {"endpoint": "pool"}],
    }
    study = make_study(raw, source="test", folder=folder)
    machine = Machine(
        version_major=major, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11, pooler=find_pgbouncer()
    )
    plan = plan_study(study, machine)
    return prepare_stage(home, folder, study, plan, major=major)


def find_trial(plan: Plan, endpoint: str) -> int:
    return next(n for n, trial in enumerate(plan.trials) if plan.find_load(trial).endpoint == endpoint)


def run_through(
    stage: TrialStage, folder: Path, endpoint: str, on_load: Callable[[Progress], None] = lambda _: None
) -> TrialOutcome:
    (folder / endpoint).mkdir()
    trial = msgspec.structs.replace(stage.plan.trials[find_trial(stage.plan, endpoint)], duration_s=3.0)
    return run_trial(stage, trial, folder=folder / endpoint, on_activity=lambda _: None, on_load=on_load)


def run_sampled(stage: TrialStage, folder: Path) -> tuple[TrialOutcome, Path]:
    """Run a trial through the pooler, and again for as long as its sampler says that it came too late."""
    for number in itertools.count():
        (folder / f"{number}").mkdir()
        outcome = run_through(stage, folder / f"{number}", "pool")
        assert outcome.error is None, outcome.error
        if POOLER not in {gap.source for gap in outcome.record.gaps}:
            break
        assert POOLER not in {gap.source for gap in gaps_beside_late_samples(outcome.record.gaps)}
    return outcome, folder / f"{number}/pool"


def list_poolers(home: Home) -> list[int]:
    found = subprocess.run(["pgrep", "-f", f"pgbouncer {home.work}/"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def test_a_home_whose_path_has_blanks_and_quotes(tmp_path: Path) -> None:
    with (
        reachable_folder() as folder,
        open_home(folder / "one's own home", find_server_user()) as home,
        shared_templates(home.templates),
    ):
        outcome = run_through(make_stage(home, tmp_path), tmp_path, "pool")
        assert outcome.error is None, outcome.error


@pytest.mark.parametrize(("major", "cache"), [(18, "warm"), (15, "cold")])
def test_a_trial_through_a_pooler_records_its_queue_and_its_thread(
    home: Home, tmp_path: Path, major: int, cache: str
) -> None:
    stage = make_stage(home, tmp_path, major=major, cache=cache)
    outcome, folder = run_sampled(stage, tmp_path)
    assert gaps_beside_late_samples(outcome.record.gaps) == []
    data = read_trial_data(folder, outcome.record)
    assert data.pooler is not None
    assert data.pooler.version.startswith("PgBouncer 1.")
    start_s, end_s = outcome.record.load_start_monotonic_s, outcome.record.load_end_monotonic_s
    assert start_s is not None
    assert end_s is not None
    inside = [one for one in data.pooler.samples if start_s < one.t_s < end_s]
    assert len(inside) >= 2
    assert max(one.active_servers or 0 for one in inside) == 2
    assert max(one.waiting_clients or 0 for one in inside) >= 3
    first, last = inside[0], inside[-1]
    assert (last.queries or 0) - (first.queries or 0) == pytest.approx(
        3 * ((last.transactions or 0) - (first.transactions or 0)), abs=12
    )
    # Four of six wait nearly always. What began to wait before the first look counts after it: for no longer than a transaction.
    waited_s, span_s = ((last.wait_us or 0) - (first.wait_us or 0)) / 1e6, last.t_s - first.t_s
    assert data.transactions is not None
    late_s = 4 * (data.transactions.latency().max_us or 0) / 1e6
    assert 2.8 * span_s - late_s < waited_s < 5.0 * span_s + late_s
    assert data.os is not None
    assert any(name.startswith("thread.pooler.") for name in data.os.frame.columns)
    ini = (folder / "pooler.ini").read_text()
    assert "pool_mode = transaction\ndefault_pool_size = 2\n" in ini
    assert "query_wait_timeout = 0\n" in ini, "clients of a full pool wait as long as it takes"
    assert "process up" in (folder / "pooler.log").read_text()
    assert any(word.endswith("--port=6432") for word in outcome.record.argv)
    assert list_poolers(home) == []
    assert_nothing_is_left(home)


def test_parts_run_through_a_pooler_at_a_rate_and_beside_it(home: Home, tmp_path: Path) -> None:
    (tmp_path / "holding.sql").write_text(HOLDING)
    parts = [
        {"name": "holding", "scripts": ["holding.sql"], "clients": 4, "threads": 1, "endpoint": "pool"},
        {"name": "background", "scripts": ["select-only"], "clients": 1, "rate_tps": 20},
        {"name": "beside", "scripts": ["holding.sql"], "clients": 3, "threads": 1},
    ]
    raw: dict[str, object] = {
        "data": {"scale": 1},
        "workload": [{"name": "split", "parts": parts}],
        "trials": {"duration": "3s", "warm_up": "1s"},
        "poolers": {"pool": {"size": 2}},
    }
    study = make_study(raw, source="test", folder=tmp_path)
    machine = Machine(
        version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11, pooler=find_pgbouncer()
    )
    plan = plan_study(study, machine)
    stage = prepare_stage(home, tmp_path, study, plan)
    outcome = run_through(stage, tmp_path, "primary")
    assert outcome.error is None, (outcome.error.fact, outcome.error.detail)
    data = read_trial_data(tmp_path / "primary", outcome.record)
    assert gaps_beside_late_samples(data.gaps) == []
    assert [(one.host, one.endpoint) for one in outcome.record.generators] == [
        ("holding", "pool"), ("background", "primary"), ("beside", "primary"),
    ]  # fmt: skip
    counts = {
        one.part.host: one.transactions.latency().count for one in data.generators if one.transactions is not None
    }
    # A client that nothing holds back makes thousands in four seconds.
    assert 1 <= counts["background"] < 400
    (load,) = plan.workloads
    figures = measure_pooler(data, plan.find_pooler_of(load))
    assert figures is not None
    # Only the part that connects to it waits there: four clients for two connections.
    assert figures.active_servers is not None
    assert figures.waiting_clients is not None
    assert 0 < figures.active_servers.largest <= 2
    assert 0 < figures.waiting_clients.largest <= 2
    time = measure_time(data, load, None, figures)
    assert time is not None
    assert "wait for their schedule" in time.absent["client and network"]
    assert not list_poolers(home)
    assert_nothing_is_left(home)


def test_a_load_without_the_pooler_has_none(home: Home, tmp_path: Path) -> None:
    outcome = run_through(make_stage(home, tmp_path), tmp_path, "primary")
    assert outcome.error is None
    assert not list((tmp_path / "primary").glob("pooler*"))
    assert any(word.endswith("--port=5432") for word in outcome.record.argv)


def test_a_pooler_that_ends_in_a_trial_fails_it_by_name(home: Home, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(_: Progress) -> None:
        if not killed:
            killed.extend(list_poolers(home))
            os.kill(killed[0], signal.SIGKILL)

    outcome = run_through(make_stage(home, tmp_path), tmp_path, "pool", kill)
    assert len(killed) == 1
    assert outcome.error is not None
    assert outcome.error.fact == "the pooler pool was killed by SIGKILL"
    assert "login attempt" in outcome.error.detail
    assert_nothing_is_left(home)


def test_a_pooler_that_hangs_in_a_trial_fails_it_by_name(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: Progress) -> None:
        monkeypatch.setattr(load_watch, "SILENCE_S", 1.5)
        monkeypatch.setattr(pooler_console, "LOGIN_PATIENCE_S", 2)
        for pid in list_poolers(home):
            os.kill(pid, signal.SIGSTOP)

    outcome = run_through(make_stage(home, tmp_path), tmp_path, "pool", stop)
    assert outcome.error is not None
    assert outcome.error.fact == "the pooler pool does not answer"
    assert "no transaction ends any more" in outcome.error.detail
    assert "login attempt" in outcome.error.detail
    assert list_poolers(home) == []
    assert_nothing_is_left(home)


def test_a_pool_that_is_full_is_not_silent(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = make_stage(home, tmp_path)
    server, trial = stage.server, stage.plan.trials[find_trial(stage.plan, "pool")]
    server.reset(lambda _: None)
    with (
        server.running({}, log_path=tmp_path / "server.log", pooler=stage.pooler_of(trial)),
        server.connect() as session,
        contextlib.ExitStack() as holders,
    ):
        assert server.pooler is not None
        for _ in range(2):
            holder = holders.enter_context(contextlib.closing(sql.connect(server.load_address)))
            holder.execute("BEGIN")
            holder.execute("SELECT 1")
        waiting = holders.enter_context(contextlib.closing(sql.connect(server.load_address)))
        waiting.pgconn.send_query(b"SELECT 1")
        with contextlib.closing(open_console(server.pooler.console)) as console:
            assert wait_until(lambda: any(row["cl_waiting"] for row in console.show("POOLS")))
            assert server.find_stall(session) is None
            monkeypatch.setattr(pooler_console, "LOGIN_PATIENCE_S", 2)
            monkeypatch.setattr(pooler_console, "SHOW_PATIENCE_S", 0.5)
            assert server.pooler.pid is not None
            os.kill(server.pooler.pid, signal.SIGSTOP)
            assert isinstance(server.find_stall(session), SilentPoolerError)
            with pytest.raises(StepFailedError, match="the pooler does not answer"):
                console.show("POOLS")


def test_session_mode_gives_each_client_a_connection(home: Home, tmp_path: Path) -> None:
    stage = make_stage(home, tmp_path, pool={"mode": "session"})
    outcome = run_through(stage, tmp_path, "pool")
    assert outcome.error is None
    data = read_trial_data(tmp_path / "pool", outcome.record)
    assert data.pooler is not None
    # Until each has its own, they wait: PgBouncer connects one after the other.
    connected = [*itertools.dropwhile(lambda one: (one.active_servers or 0) < 6, data.pooler.samples)]
    assert connected
    assert max(one.active_servers or 0 for one in connected) == 6
    assert max(one.waiting_clients or 0 for one in connected) == 0


def test_a_frozen_member_has_a_frozen_pooler(home: Home, tmp_path: Path) -> None:
    stage = make_stage(home, tmp_path)
    members = []
    for number, endpoint in enumerate(("primary", "primary", "pool"), start=1):
        slot = stage.server.in_slot(number)  # type: ignore[attr-defined]
        trial = msgspec.structs.replace(
            stage.plan.trials[find_trial(stage.plan, endpoint)], number=number, round=1, duration_s=1.5
        )
        (tmp_path / f"{number}").mkdir()
        made = msgspec.structs.replace(stage, server=slot, generator=slot.make_generator())
        members.append(LiveMember(stage=made, trial=trial, folder=tmp_path / f"{number}"))
    seen: list[bool] = []

    def look() -> None:
        (pid,) = list_poolers(home)
        seen.append(is_stopped(pid))

    outcomes = run_live_round(
        members,
        slice_s=SLICE_S,
        seed=1,
        on_activity=lambda _: None,
        on_load=lambda _: None,
        should_stop=once_alternating(members, look),
    )
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert seen == [True]
    counts = [read_trial_data(m.folder, o.record).transaction_count for m, o in zip(members, outcomes, strict=True)]
    assert all(counts)
    assert_nothing_is_left(home)


def test_a_program_that_is_not_there_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(program, "_USUAL_PLACE", str(tmp_path / "pgbouncer"))
    with pytest.raises(HostError, match="PgBouncer is not installed"):
        find_pgbouncer()


def test_a_console_that_lets_nobody_in_says_what_would() -> None:
    with running(18) as cluster, pooling(cluster, mode="transaction") as folder:
        console = Address(host=str(folder), port=PORT, user="plain", dbname=CONSOLE)
        with pytest.raises(StepFailedError, match="if its stats_users name it") as caught:
            open_console(console)
    assert "not allowed" in caught.value.detail


def test_a_program_that_the_servers_account_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    with reachable_folder() as folder:
        there = folder / "pgbouncer"
        there.write_text("#!/bin/sh\necho denied >&2\nexit 126\n")
        there.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        with pytest.raises(HostError, match=f"{there} does not tell its version") as caught:
            find_pgbouncer(home.user)
    assert caught.value.detail == "denied"
    assert "this account can run" in caught.value.hint


# Runs a server with a pooler in a home and the samplers of both, stops both, tells the processes, and waits to be killed.
HOLDER = """
import contextlib, os, signal, sys, time
from pathlib import Path
from pgdyno.plan.types import PlannedPooler
from pgdyno.run.cluster.home import open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.own_server import OwnServer
from pgdyno.run.pooler.program import find_pgbouncer
from pgdyno.run.sample.samplers import OS, SERVER, Samplers
from pgdyno.spec.pooler import PoolMode
from pgdyno.spec.study import DataSpec
from tests.homes import installation_of

folder = Path(sys.argv[1])
pool = PlannedPooler(name="pool", mode=PoolMode.TRANSACTION, size=2, most_clients=2, program=find_pgbouncer())
with open_home(folder / "home", find_server_user()) as home:
    server = OwnServer(installation=installation_of(18, home), home=home)
    server.load(DataSpec(), 0, settings={}, output_dir=folder, on_activity=lambda _: None)
    server.reset()
    with server.running({}, log_path=folder / "server.log", pooler=pool):
        samplers = Samplers(directory=folder, address=server.address, interval_s=0.2, left_out=frozenset([OS]),
                            console=server.pooler.console)
        with samplers:
            for pid in (server.pooler.pid, *home.server_pids()):
                # A session that ends just now may be gone.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            print(server.pooler.pid, samplers.pids["pooler"], samplers.pids[SERVER], flush=True)
            time.sleep(600)
"""


def test_neither_a_pooler_nor_a_sampler_outlives_a_killed_pgdyno() -> None:
    with reachable_folder() as folder:
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        pids = [int(word) for word in holder.stdout.readline().split()]
        assert len(pids) == 3
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        # Both samplers wait for an answer that never comes.
        assert wait_until(lambda: all("poll" in Path(f"/proc/{pid}/wchan").read_text() for pid in pids[1:]))
        holder.kill()
        holder.wait()
        holder.stdout.close()
        assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids[1:]))
        with open_home(folder / "home", find_server_user()) as home:
            assert list_poolers(home) == []
            assert_nothing_is_left(home)


def test_a_pooler_that_its_parent_left_running_is_ended_by_the_next_pgdyno(home: Home) -> None:
    """Where the kernel's signal for the death of a parent was lost."""
    user = home.user
    ini = home.work / "pgbouncer.ini"
    ini.write_text(f"[databases]\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = {home.sockets}\nlisten_port = 6432\n")
    ini.chmod(0o644)
    child = subprocess.Popen(
        [find_pgbouncer().path, str(ini)],
        user=None if user.is_self else user.uid,
        group=None if user.is_self else user.gid,
        cwd=home.sockets,
        stderr=subprocess.DEVNULL,
    )
    found: list[str] = []
    while not found and child.poll() is None:
        found = home.end_left_overs()
    assert found == [f"pgbouncer (pid {child.pid})"]
    assert child.wait(timeout=600) != 0
