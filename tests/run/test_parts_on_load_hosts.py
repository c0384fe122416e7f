"""Loads in parts from load hosts: a real pgbench for each part on each host, through a real sshd, on a real server."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import pytest

from pgdyno.errors import StepFailedError
from pgdyno.record.generators.parts import find_part_folders
from pgdyno.record.pgbench.output import parse_progress
from pgdyno.record.transactions.pack import TRANSACTIONS_DIR, read_packed
from pgdyno.record.trial_data import STDERR_FILE
from pgdyno.run.link.ssh import SshLink
from pgdyno.run.load import host_run
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.group import PgbenchGroup
from pgdyno.run.load.log_stream import LogRequest
from pgdyno.run.load.part_run import PartRun
from pgdyno.run.postgres.address import Address
from pgdyno.spec.table import QueryMode
from tests.hosts import Sshd
from tests.run.test_load_hosts import empty_run, hang, left_overs, reaching
from tests.run.trees import is_alive
from tests.tools.pgcluster import LOOPBACK, PORT, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running(18) as made:
        made.listen("scram-sha-256", trusted="bench")
        made.sql("CREATE ROLE bench LOGIN SUPERUSER")
        parameters = {"connect_timeout": "10"}
        yield Address(host=LOOPBACK, port=PORT, user="bench", dbname="postgres", parameters=parameters)


def make_part(run: LoadRun, name: str, clients: int, *, first_script: int, rate_tps: float | None = None) -> PartRun:
    return PartRun(
        name=name,
        endpoint="primary",
        address=run.address,
        scripts=run.scripts,
        mode=QueryMode.SIMPLE,
        clients=clients,
        threads=1,
        rate_tps=rate_tps,
        part=name,
        first_script=first_script,
    )


def in_parts(group: PgbenchGroup, run: LoadRun) -> PgbenchGroup:
    return group.in_parts(
        [
            make_part(run, "many", 3, first_script=0),
            make_part(run, "one", 1, first_script=1),
            make_part(run, "job", 2, first_script=2, rate_tps=20.0),
        ]
    )


def have_all_worked(folder: Path) -> bool:
    """Whether each pgbench has counted transactions that began after all were let go: not in the first second that it reports."""
    files = [place / STDERR_FILE for place in find_part_folders(folder)]
    seconds = [[parse_progress(line) for line in file.read_text().splitlines()] for file in files]
    return all(any(second.tps for second in filter(None, of[1:])) for of in seconds)


def test_each_part_has_a_pgbench_on_each_host_and_all_are_one_load(
    by_ssh: Sshd, server: Address, tmp_path: Path
) -> None:
    before = left_overs()
    run = empty_run(server, tmp_path, duration_s=300)
    with reaching(["db1", "db2"]) as hosts:
        group = in_parts(hosts, run)
        (stream,) = group.start_logs([tmp_path / TRANSACTIONS_DIR], LogRequest())
        with contextlib.closing(stream):
            run = msgspec.structs.replace(run, log_prefix=stream.log_prefix)
            outcome = group.run_load(run, directory=tmp_path, should_end=lambda: have_all_worked(tmp_path))
            log = stream.finish()
    assert (log.reason, log.notes) == (None, ())
    assert wait_until(lambda: left_overs() <= before)
    # The host with fewer clients of one part has more of another: no host has more than one client more.
    shares = [(one.part, one.host, one.clients, one.endpoint, one.first_script) for one in outcome.parts]
    assert shares == [
        ("many", "db1", 2, "primary", 0),
        ("many", "db2", 1, "primary", 0),
        ("one", "db2", 1, "primary", 1),
        ("job", "db1", 1, "primary", 2),
        ("job", "db2", 1, "primary", 2),
    ]
    folders = [one.folder_name for one in outcome.parts]
    assert folders == ["many+db1", "many+db2", "one+db2", "job+db1", "job+db2"]
    assert sorted(folders) == [folder.name for folder in find_part_folders(tmp_path)]
    assert not any(one.is_here for one in outcome.parts)
    # All began at one instant, and each draws numbers of its own.
    assert {one.release_near_s for one in outcome.parts} == {outcome.start_monotonic_s}
    options = [{word.partition("=")[0]: word.partition("=")[2] for word in one.argv} for one in outcome.parts]
    assert len({each["--random-seed"] for each in options}) == len(options)
    assert [each.get("--rate") for each in options] == [None, None, None, "10.0", "10.0"]

    # Counts of the whole and of each part are those of the logs.
    counts: dict[str, int] = {}
    for one in outcome.parts:
        logged = sum(len(batch) for batch in read_packed(tmp_path / "loads" / one.folder_name / TRANSACTIONS_DIR))
        counts[one.part] = counts.get(one.part, 0) + logged
    assert all(counts.values())
    summary = outcome.summary
    assert [script.number for script in summary.scripts] == [1, 2, 3]
    early = (summary.transaction_count or 0) - sum(counts.values())
    printed = [script.transaction_count or 0 for script in summary.scripts]
    beyond = [count - logged for count, logged in zip(printed, counts.values(), strict=True)]
    # What began before all were let go is printed, and not in the log.
    assert min(beyond) >= 0
    assert sum(beyond) == early
    assert summary.client_count == 6
    # The log of scheduled transactions alone says how late they were.
    assert summary.schedule_lag_average_ms is not None


def test_a_pgbench_of_a_part_that_is_killed_ends_all_and_is_named(
    by_ssh: Sshd, server: Address, tmp_path: Path
) -> None:
    run = empty_run(server, tmp_path, duration_s=120)
    pids: dict[str, tuple[int, ...]] = {}
    with reaching(["db1", "db2"]) as hosts:
        group = in_parts(hosts, run)

        def abort() -> None:
            if not pids and group.far_pids:
                pids.update(group.far_pids)
                os.kill(pids["db2"][1], signal.SIGKILL)

        with pytest.raises(StepFailedError) as caught:
            group.run_load(run, directory=tmp_path / "killed", should_abort=abort)
        assert caught.value.reason.startswith("one on db2: pgbench failed: it was ended by SIGKILL")
        assert {name: len(of) for name, of in pids.items()} == {"db1": 2, "db2": 3}
        assert wait_until(lambda: not any(is_alive(pid) for of in pids.values() for pid in of))


def test_a_link_that_hangs_is_waited_for_once_and_not_once_for_each_part(
    by_ssh: Sshd,
    server: Address,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="pgdyno")
    monkeypatch.setattr(host_run, "SILENCE_S", 8)
    started: list[subprocess.Popen[bytes]] = []
    start = SshLink.start

    def start_and_keep(self: SshLink, command: str, *, stdout: int | IO[bytes]) -> subprocess.Popen[bytes]:
        child = start(self, command, stdout=stdout)
        started.append(child)
        return child

    def of_db2() -> list[subprocess.Popen[bytes]]:
        return [child for child in started if "db2" in child.args][:3]  # type: ignore[operator]

    close = SshLink.close

    def close_and_wait(self: SshLink) -> None:
        close(self)
        if self.destination == "db2":
            # On a busy machine they take a moment, in which they would be stopped one by one.
            assert wait_until(lambda: all(child.poll() is not None for child in of_db2()))

    run = empty_run(server, tmp_path, duration_s=120)
    pids: dict[str, tuple[int, ...]] = {}
    with reaching(["db1", "db2"]) as hosts:
        group = in_parts(hosts, run)
        monkeypatch.setattr(SshLink, "start", start_and_keep)
        monkeypatch.setattr(SshLink, "close", close_and_wait)

        def abort() -> None:
            if not pids and group.far_pids:
                pids.update(group.far_pids)
                hang(group, {})

        with pytest.raises(StepFailedError, match=r"the load from (many|one|job) on db2 is lost"):
            group.run_load(run, directory=tmp_path / "hung", should_abort=abort)
        assert wait_until(lambda: not any(is_alive(pid) for of in pids.values() for pid in of))
    # The first ssh there has to be stopped, and then the link ends: those of other parts end with it.
    stopped = [child for child in of_db2() if f"stopped pid {child.pid} " in caplog.text]
    assert (len(stopped), len(of_db2())) == (1, 3)


def test_a_part_that_does_not_reach_its_server_is_named(by_ssh: Sshd, server: Address, tmp_path: Path) -> None:
    run = empty_run(server, tmp_path)
    nowhere = empty_run(Address(host=server.host, port=server.port, user="nobody_there", dbname="postgres"), tmp_path)
    parts = [make_part(run, "right", 2, first_script=0), make_part(nowhere, "wrong", 1, first_script=1)]
    with reaching(["db1", "db2"]) as hosts, pytest.raises(StepFailedError) as caught:
        hosts.in_parts(parts).run_load(run, directory=tmp_path / "refused")
    assert caught.value.fact == "wrong on db1: pgbench failed"
    assert "no password supplied" in caught.value.detail
