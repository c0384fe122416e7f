from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pgdyno.record.samples.files import (
    GENERATOR_FILE,
    OS_FILE,
    SERVER_FILE,
    find_missed,
    read_os_samples,
    read_server_samples,
)
from pgdyno.record.samples.os_series import backends_on_cpu, busiest_thread, busy_threads, cpu_of_others, list_cpus
from pgdyno.record.samples.pooler import POOLER
from pgdyno.record.samples.server_machine import read_server_machine
from pgdyno.record.samples.server_series import wal_bytes
from pgdyno.run.given.machine import find_machine
from pgdyno.run.link.ssh import open_link
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.sample.gaps import SamplerGap
from pgdyno.run.sample.samplers import (
    BACKEND_LABEL,
    LOAD_LABEL,
    OS,
    SERVER,
    SERVER_SAMPLER_LABEL,
    Samplers,
)
from pgdyno.spec.hosts import HostEntry, HostRole
from tests.cli.experiments import LATE
from tests.facts.clusters import Cluster, made_cluster
from tests.hosts import Sshd
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with made_cluster(18) as made:
        made.start(fsync="off")
        yield made


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def run_samplers(cluster: Cluster, folder: Path, during: Callable[[Samplers], None]) -> tuple[SamplerGap, ...]:
    with Samplers(directory=folder, address=cluster.address, interval_s=0.2) as samplers:
        during(samplers)
        pids = samplers.pids
    # A backend sees a moment later that its client has gone.
    assert wait_until(lambda: not any(is_running(pid) for pid in pids.values()))
    return samplers.gaps


def wait_for_samples(folder: Path, count: int, *, of: tuple[str, ...] = (OS_FILE, SERVER_FILE)) -> None:
    """Wait for so many more of each: a busy machine may make them late."""
    for path in (folder / name for name in of):
        had = path.read_bytes().count(b"\n")
        assert wait_until(lambda path=path, had=had: path.read_bytes().count(b"\n") >= had + count)  # type: ignore[misc]


def is_late(gap: SamplerGap) -> bool:
    return gap.reason == LATE


def pids_of(folder: Path) -> dict[str, int]:
    """The processes that the OS sampler followed, by label."""
    frame = read_os_samples(folder).frame
    columns = [name for name in frame.columns if name.startswith("process.") and name.endswith("/pid")]
    return {name.split(".")[1].split("/")[0]: frame[name].drop_nulls()[0] for name in columns}


def test_both_watch_a_load_and_themselves_and_leave_nothing_behind(cluster: Cluster, tmp_path: Path) -> None:
    def during(samplers: Samplers) -> None:
        load = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
        samplers.follow(LOAD_LABEL, load.pid)
        wait_for_samples(tmp_path, 7)
        load.kill()
        load.wait()

    began_s = time.monotonic()
    assert all(is_late(gap) for gap in run_samplers(cluster, tmp_path, during))
    seen = read_os_samples(tmp_path)
    assert set(pids_of(tmp_path)) == {"sampler_os", SERVER_SAMPLER_LABEL, BACKEND_LABEL, LOAD_LABEL}
    # It burns a CPU, or its share of one on a busy machine.
    assert 0.001 < np.nanmean(busiest_thread(seen, LOAD_LABEL).values) < 2
    for label in ("sampler_os", SERVER_SAMPLER_LABEL, BACKEND_LABEL):
        # Five times as often as in a trial: still a small part of a CPU.
        assert 0 < np.nanmean(busiest_thread(seen, label).values) < 0.5
    server = read_server_samples(tmp_path)
    assert seen.end == server.end == f"signal {signal.SIGTERM.value}"
    assert seen.frame.height >= 6
    assert server.frame.height >= 6
    assert began_s < seen.frame["t_s"][0] < seen.frame["t_s"][-1] < time.monotonic()
    assert np.nanmin(wal_bytes(server).values) >= 0


def test_backends_of_clients_are_counted_and_the_samplers_own_is_not(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.server is not None
    postmaster_pid = cluster.server.pid

    def during(samplers: Samplers) -> None:
        samplers.follow_backends(postmaster_pid)
        wait_for_samples(tmp_path, 3)
        with sql.connect(cluster.address) as connection:
            backend_pid = connection.info.backend_pid
            connection.execute("SELECT count(*) FROM generate_series(1, 3000000)")
            wait_for_samples(tmp_path, 2)
        assert wait_until(lambda: not is_running(backend_pid))
        # One that ended counts on.
        wait_for_samples(tmp_path, 3)

    run_samplers(cluster, tmp_path, during)
    seen = read_os_samples(tmp_path)
    assert seen.frame["backends.server/count"].drop_nulls().max() == 2
    assert seen.frame["backends.server/count"].drop_nulls()[-1] == 1
    running, queueing = backends_on_cpu(seen)
    steps_s = np.diff(seen.frame["t_s"].to_numpy())
    # A query of that size takes some tenths of a second of a CPU, more on a slow one; the sampler's takes next to none.
    assert 0.05 < np.nansum(running.values * steps_s) < 20
    assert np.nanmin(running.values) >= 0
    assert np.nanmin(queueing.values) >= 0
    ((had, waited),) = busy_threads(seen, BACKEND_LABEL).values()
    assert np.nanmean(had) > 0
    assert np.nanmin(waited) >= 0


SAMPLE_SERVER = """
import pathlib, sys, time
from pgdyno.record.samples.files import read_os_samples
from pgdyno.run.postgres.address import Address
from pgdyno.run.sample.samplers import SERVER, Samplers
folder, postmaster_pid = pathlib.Path(sys.argv[1]), int(sys.argv[2])
address = Address(host="", port=0, dbname="", user="")
with Samplers(directory=folder, address=address, interval_s=0.2, left_out=frozenset({SERVER})) as samplers:
    samplers.follow("all+", postmaster_pid)
    samplers.follow_backends(postmaster_pid)
    lines = (folder / "os.jsonl").read_bytes().count(b"\\n")
    deadline_s = time.monotonic() + 600
    while (folder / "os.jsonl").read_bytes().count(b"\\n") < lines + 4 and time.monotonic() < deadline_s:
        time.sleep(0.02)
print(*(gap.reason for gap in samplers.gaps if not gap.reason.startswith("came too late")), sep="\\n")
"""
CLIENTS = 560


@pytest.fixture(scope="module")
def crowd() -> Iterator[Cluster]:
    """A server with more clients than a process with the usual limit may open files for."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2 * CLIENTS:
        pytest.skip("this account may not open a thousand files")
    with made_cluster(18) as made, contextlib.ExitStack() as connections:
        made.start(fsync="off", max_connections=str(CLIENTS + 20))
        for _ in range(CLIENTS):
            connections.enter_context(sql.connect(made.address))
        yield made


def sample_under(limits: str, cluster: Cluster, folder: Path) -> str:
    """What the samplers report as gaps where they may open as many files."""
    assert cluster.server is not None
    argv = ["prlimit", f"--nofile={limits}", sys.executable, "-c", SAMPLE_SERVER, str(folder), str(cluster.server.pid)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def test_all_backends_of_a_crowd_are_counted_under_the_usual_limit(crowd: Cluster, tmp_path: Path) -> None:
    assert sample_under(f"1024:{4 * CLIENTS}", crowd, tmp_path) == ""
    frame = read_os_samples(tmp_path).frame
    assert set(frame["backends.server/count"].drop_nulls()) == {CLIENTS}
    assert frame["tree.all/utime"].drop_nulls().len() > 1


def test_backends_that_are_too_many_to_open_are_a_gap(crowd: Cluster, tmp_path: Path) -> None:
    reasons = sample_under("256:256", crowd, tmp_path).splitlines()
    assert len(reasons) == 2
    assert reasons[0].startswith("it may not open enough files to follow all+=")
    assert reasons[1].startswith("it may not open enough files to follow server*=")
    assert all("Too many open files" in reason for reason in reasons)
    frame = read_os_samples(tmp_path).frame
    # A part of them would be a wrong sum. Other sources go on.
    assert not [name for name in frame.columns if name.startswith(("backends.", "tree.all"))]
    assert frame["mem/MemTotal"].null_count() == 0


@pytest.mark.parametrize(("source", "other"), [(OS, SERVER_FILE), (SERVER, OS_FILE)])
def test_a_killed_sampler_is_a_gap_until_the_end_and_the_other_goes_on(
    cluster: Cluster, tmp_path: Path, source: str, other: str
) -> None:
    killed_s = 0.0

    def during(samplers: Samplers) -> None:
        nonlocal killed_s
        os.kill(samplers.pids[source], signal.SIGKILL)
        killed_s = time.monotonic()
        wait_for_samples(tmp_path, 3, of=(other,))

    (gap,) = [gap for gap in run_samplers(cluster, tmp_path, during) if not is_late(gap)]
    assert gap.source == source
    assert gap.reason == "ended by signal 9"
    assert gap.from_s <= killed_s < killed_s + 0.1 < gap.to_s
    files = {OS: read_server_samples, SERVER: read_os_samples}
    assert files[source](tmp_path).frame["t_s"][-1] > killed_s


def test_samples_that_were_missed_are_a_gap(cluster: Cluster, tmp_path: Path) -> None:
    def during(samplers: Samplers) -> None:
        wait_for_samples(tmp_path, 2, of=(OS_FILE,))
        pid = samplers.pids[OS]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(pid, signal.SIGCONT)
        wait_for_samples(tmp_path, 3, of=(OS_FILE,))

    gaps = [gap for gap in run_samplers(cluster, tmp_path, during) if gap.source == OS]
    assert any(gap.to_s - gap.from_s > 1.4 and is_late(gap) for gap in gaps)
    # After the pause it goes on at its pace and does not make up for what is lost, which were six samples at least.
    times = read_os_samples(tmp_path).frame["t_s"]
    assert len(times) <= 1 + (times[-1] - times[0]) / 0.2 - 3
    assert len(find_missed(read_os_samples(tmp_path))) == len(gaps)


def test_a_server_that_dies_is_a_gap_in_the_servers_words(tmp_path: Path) -> None:
    with made_cluster(18) as cluster:
        cluster.start(fsync="off")

        def during(samplers: Samplers) -> None:
            pid = samplers.pids[SERVER]
            cluster.kill()
            assert wait_until(lambda: "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text())

        (gap,) = [gap for gap in run_samplers(cluster, tmp_path, during) if not is_late(gap)]
    assert gap.source == SERVER
    assert gap.reason.startswith("failed: ")
    assert read_os_samples(tmp_path).end == "signal 15"


@pytest.mark.parametrize("damage", ["damage\n", '{"t":1}\n', "[1]\n"])
def test_lines_that_no_sampler_wrote_are_a_gap_of_the_whole_time(cluster: Cluster, tmp_path: Path, damage: str) -> None:
    for name in ("os.jsonl", "server.jsonl"):
        (tmp_path / name).write_text(damage)
    gaps = run_samplers(cluster, tmp_path, lambda _: time.sleep(0.3))
    assert [gap.source for gap in gaps] == [OS, SERVER]
    assert all(gap.reason.startswith("a samples file is damaged") for gap in gaps)


def test_no_server_at_all_is_a_gap_of_the_whole_time(cluster: Cluster, tmp_path: Path) -> None:
    nowhere = Address(host="/nowhere", port=1, user="postgres")
    with Samplers(directory=tmp_path, address=nowhere, interval_s=0.2) as samplers:
        time.sleep(0.5)
    (gap,) = [gap for gap in samplers.gaps if not is_late(gap)]
    assert gap.source == SERVER
    assert "cannot connect to the server" in gap.reason
    assert gap.to_s - gap.from_s > 0.5
    assert read_server_samples(tmp_path).header is None


def test_files_that_cannot_be_made_are_gaps_of_all(tmp_path: Path) -> None:
    there = Address(host=str(tmp_path), port=1, user="nobody", dbname="none")
    with Samplers(directory=tmp_path / "missing", address=there, console=there) as samplers:
        pass
    assert [gap.source for gap in samplers.gaps] == [OS, SERVER, POOLER]
    assert all("No such file or directory" in gap.reason for gap in samplers.gaps)


def test_an_error_in_the_block_still_stops_both(cluster: Cluster, tmp_path: Path) -> None:
    def fail(_: Samplers) -> None:
        time.sleep(0.3)
        raise KeyError("stop")

    with pytest.raises(KeyError):
        run_samplers(cluster, tmp_path, fail)
    pids = pids_of(tmp_path)
    ended = [pid for label, pid in pids.items() if label != BACKEND_LABEL]
    assert not any(map(is_running, ended))
    assert wait_until(lambda: not any(map(is_running, pids.values())))


def test_what_is_no_part_of_the_study_is_told_apart(cluster: Cluster, tmp_path: Path) -> None:
    # Of a shell that ends at once: nobody's child here.
    started = subprocess.run(
        ["sh", "-c", "while :; do :; done >/dev/null 2>&1 & echo $!"], capture_output=True, check=True
    )
    other = int(started.stdout)

    def ticks_of_other() -> int:
        values = Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()
        return int(values[11]) + int(values[12])

    spent: list[int] = []

    def during(_: Samplers) -> None:
        wait_for_samples(tmp_path, 3, of=(OS_FILE,))
        before = ticks_of_other()
        wait_for_samples(tmp_path, 10, of=(OS_FILE,))
        # On a busy machine it takes a while to spend what the kernel's coarse ticks tell apart.
        while (ticks := ticks_of_other() - before) <= 20:
            wait_for_samples(tmp_path, 1, of=(OS_FILE,))
        spent.append(ticks)

    try:
        run_samplers(cluster, tmp_path, during)
    finally:
        os.kill(other, signal.SIGKILL)
    samples = read_os_samples(tmp_path)
    others = cpu_of_others(samples)
    assert others.absent is None
    steps_s = np.diff(samples.frame["t_s"].to_numpy())
    ticks = np.nansum(others.values * steps_s) * len(list_cpus(samples)) * os.sysconf("SC_CLK_TCK")
    # Whatever else runs on this machine comes on top; the kernel's ticks are coarse.
    assert ticks > 0.8 * spent[0]


def test_a_lost_link_to_the_servers_machine_is_a_gap_and_nothing_else(
    cluster: Cluster, by_ssh: Sshd, tmp_path: Path
) -> None:
    with open_link(HostEntry(role=HostRole.SERVER, ssh="db1")) as link, sql.connect(cluster.address) as connection:
        watched = find_machine(link, cluster.address).watch(sql.read_start_time(connection))
        assert cluster.server is not None
        assert (watched.postmaster_pid, watched.is_here, watched.has_same_pids) == (cluster.server.pid, True, True)
        with Samplers(
            directory=tmp_path, address=cluster.address, interval_s=0.2, is_elsewhere=True, watched=watched
        ) as samplers:
            wait_for_samples(tmp_path, 3, of=(OS_FILE, SERVER_FILE, GENERATOR_FILE))
            assert link._master is not None
            link._master.kill()
            wait_for_samples(tmp_path, 3, of=(SERVER_FILE, GENERATOR_FILE))
    gaps = {gap.source: gap.reason for gap in samplers.gaps if not is_late(gap)}
    assert list(gaps) == [OS]
    assert gaps[OS].startswith("the link to db1 was lost")
    seen, of_load = read_server_machine(tmp_path), read_os_samples(tmp_path, name=GENERATOR_FILE)
    # One machine, seen twice: what was seen until then is on the same clock.
    assert abs(seen.frame["t_s"][0] - of_load.frame["t_s"][0]) < 600.0
    assert backends_on_cpu(seen)[0].absent is None
    assert cpu_of_others(seen).absent is None
    assert {"process.sampler_backend/pid", "process.sampler_server/pid"} & set(seen.frame.columns)
