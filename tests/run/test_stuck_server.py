"""A server that lives and does not answer: all its processes are stopped, as a hanging disk or hypervisor would."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgdyno.errors import StepFailedError
from pgdyno.record.pgbench.output import Progress
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.server import Server
from pgdyno.run.cluster.template import prepare_template
from pgdyno.run.host.process_id import find_working_in
from pgdyno.run.load import watch as load_watch
from pgdyno.run.load.watch import LoadWatch
from pgdyno.run.postgres import sql
from pgdyno.run.postgres import timeouts as patience
from pgdyno.run.postgres.timeouts import NoAnswerError
from pgdyno.spec.study import DataSpec
from tests.homes import initdb, installation_of, some_home
from tests.run.test_trial import GENTLE, make_stage, run_first

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


@pytest.fixture
def hang(home: Home, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Stops all of the server, and shortens the patience with it: before, a busy machine may need the whole of it."""

    def stop_all() -> None:
        monkeypatch.setattr(load_watch, "SILENCE_S", 1.5)
        monkeypatch.setattr(load_watch, "ANSWER_PATIENCE_S", 2)
        monkeypatch.setattr(patience, "CONNECT_PATIENCE_S", 2)
        monkeypatch.setattr(patience, "QUERY_PATIENCE_S", 2.0)
        for pid in home.server_pids():
            # A session that ends just now may be gone.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    return stop_all


def assert_nothing_is_left(home: Home) -> None:
    assert list(find_working_in(home.work)) == []


def test_under_load(home: Home, tmp_path: Path, hang: Callable[[], None]) -> None:
    stage = make_stage(home, tmp_path, trials={"duration": "200s", "warm_up": "0s"}, **GENTLE)
    outcome = run_first(stage, tmp_path / "trial", on_load=lambda _: hang())
    assert outcome.error is not None
    assert outcome.error.fact == "the server does not answer"
    assert "no transaction had ended" in outcome.error.detail
    assert "ready to accept connections" in outcome.error.detail
    assert "it or its disk hangs" in outcome.error.hint
    assert outcome.record.error is not None
    assert_nothing_is_left(home)


def test_while_loading(home: Home, tmp_path: Path, hang: Callable[[], None]) -> None:
    def stop(activity: str) -> None:
        if activity.startswith("client-side generate"):
            hang()

    with pytest.raises(StepFailedError, match="the server does not answer"):
        prepare_template(
            installation=installation_of(18, home),
            home=home,
            data=DataSpec(),
            scale=20,
            settings={},
            output_dir=tmp_path,
            on_activity=stop,
        )
    assert_nothing_is_left(home)
    assert not [folder for folder in home.templates.iterdir() if "scale20-" in folder.name]


@pytest.fixture
def server(home: Home, tmp_path: Path) -> Iterator[Server]:
    made = Server(installation=installation_of(15, home), home=home, log_path=tmp_path / "server.log")
    home.end_left_overs()
    initdb(made)
    made.start({})
    try:
        yield made
    finally:
        made.abandon()
        home.end_left_overs()


def test_in_the_middle_of_a_query(server: Server, hang: Callable[[], None]) -> None:
    with server.connect(database="postgres") as connection:
        sql.checkpoint(connection)
        hang()
        with pytest.raises(NoAnswerError, match="the server does not answer") as caught:
            sql.read_settings(connection)
    assert caught.value.detail == "no answer to a query within 2 s"


def test_one_that_merely_has_nothing_to_do_is_left_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_watch, "SILENCE_S", 0.5)
    watch = LoadWatch(server)
    until_s = time.monotonic() + 1.5
    while time.monotonic() < until_s:
        assert watch.find_failure() is None
        time.sleep(0.1)


def test_a_transaction_that_ends_while_the_server_is_asked_calls_it_off(
    server: Server, hang: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = LoadWatch(server)
    hang()
    monkeypatch.setattr(load_watch, "SILENCE_S", 0.0)
    assert watch.find_failure() is None, "asked without an answer"
    assert isinstance(watch.find_failure(), NoAnswerError)
    monkeypatch.setattr(load_watch, "SILENCE_S", 600.0)
    watch.see(Progress(elapsed_s=1.0, tps=1.0, latency_average_ms=1.0, latency_stddev_ms=0.0, failed_count=0))
    assert watch.find_failure() is None


def test_one_that_lets_nobody_in_answers(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_watch, "SILENCE_S", 0.5)
    with server.connect(database="postgres") as connection:
        # As when all places are taken: a refusal is an answer.
        connection.execute("UPDATE pg_database SET datallowconn = false WHERE datname = 'postgres'")
        watch = LoadWatch(server)
        time.sleep(1)
        assert watch.find_failure() is None


def test_a_load_without_end(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_watch, "_OVERTIME_S", 0.5)
    now_s = [100.0]
    watch = LoadWatch(server, duration_s=0.5, clock=lambda: now_s[0])
    now_s[0] = 100.9
    assert watch.find_failure() is None
    now_s[0] = 101.1
    failure = watch.find_failure()
    assert failure is not None
    assert failure.fact == "the load did not end within 0.5 s after its time"
