"""Freezing a real server: exactly its tree stands still, and it goes on as if nothing had been."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.server import Server
from pgdyno.run.host.freezer import Freezer, is_stopped
from tests.homes import initdb, installation_of, some_home
from tests.run.trees import find_tree


@pytest.fixture(params=[18, 15], scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with some_home() as home:
        made = Server(
            installation=installation_of(request.param, home),
            home=home,
            log_path=tmp_path_factory.mktemp("log") / "server.log",
        )
        initdb(made)
        made.start({})
        try:
            yield made
        finally:
            made.abandon()


def states(home: Home) -> set[bool]:
    """Of all processes of the server, found by their folder and not by their parents."""
    return {is_stopped(pid) for pid in home.server_pids()}


@pytest.mark.cluster
def test_exactly_the_tree_stands_still_and_a_query_answers_after_it(server: Server) -> None:
    freezer = Freezer()
    answers: list[object] = []

    def ask() -> None:
        answers.append(connection.execute("SELECT 1 AS one").fetchall())

    with server.connect(database="postgres") as connection:
        assert not is_stopped(server.pid)
        freezer.freeze([server.pid])
        try:
            assert states(server.home) == {True}
            # A session that has just ended is still the postmaster's child, and has no folder any more.
            assert set(find_tree(server.pid)) >= set(server.home.server_pids())
            assert all(is_stopped(pid) for pid in find_tree(server.pid))
            assert not is_stopped(os.getpid())
            asking = threading.Thread(target=ask)
            asking.start()
            time.sleep(0.3)
            assert answers == []
            assert asking.is_alive()
        finally:
            freezer.thaw()
        asking.join()
        assert answers == [[{"one": 1}]]
        assert not is_stopped(server.pid)
        # The postmaster has noticed nothing: it still starts sessions, and none has crashed.
        assert server.find_failure() is None
        with server.connect(database="postgres") as other:
            assert other.execute("SELECT 2 AS two").fetchall() == [{"two": 2}]


@pytest.mark.cluster
def test_sessions_that_begin_meanwhile_are_frozen_too(server: Server) -> None:
    freezer = Freezer()
    is_over = threading.Event()

    def connect_often() -> None:
        while not is_over.is_set():
            server.connect(database="postgres").close()

    threads = [threading.Thread(target=connect_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            freezer.freeze([server.pid])
            # A session that ended just now may be a process no more.
            assert all(is_stopped(pid) for pid in find_tree(server.pid))
            freezer.thaw()
    finally:
        freezer.thaw()
        is_over.set()
        for thread in threads:
            thread.join()
    assert server.find_failure() is None


def test_a_tree_that_grows_is_caught_whole() -> None:
    # Each shell starts another one in the background, again and again.
    argv = ["sh", "-c", "while :; do sh -c 'sleep 0.01; sleep 0.01' & sh -c 'sh -c :'; done"]
    with subprocess.Popen(argv, start_new_session=True) as root:
        freezer = Freezer()
        try:
            for _ in range(30):
                time.sleep(0.01)
                freezer.freeze([root.pid])
                before = set(find_tree(root.pid))
                time.sleep(0.02)
                assert set(find_tree(root.pid)) == before
                assert all(is_stopped(pid) for pid in before)
                freezer.thaw()
        finally:
            os.killpg(root.pid, signal.SIGKILL)


def test_a_process_that_has_ended_is_left_out() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    freezer = Freezer()
    freezer.freeze([ended.pid])
    freezer.thaw()
    assert not Path(f"/proc/{ended.pid}").exists() or not is_stopped(os.getpid())
