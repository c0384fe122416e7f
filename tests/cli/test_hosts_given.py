"""A given server whose machine is watched by ssh, as a user measures it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.record.samples.files import read_os_samples
from pgdyno.record.samples.os_series import backends_on_cpu, busy_threads, cpu_busy
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data
from pgdyno.report.clock_words import format_offset
from pgdyno.run.host.facts import read_disk_facts
from tests.cli.experiments import LATE, THINKING
from tests.hosts import Sshd
from tests.ready_program import run_program
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running

from .program import Bench

pytestmark = pytest.mark.cluster
SHORT = (
    *("--workload", "select-only", "--scale", "1", "--clients", "2", "--rate", "100"),
    *("--rounds", "1", "--duration", "3s", "--warm-up", "0s", "--allow", "busy"),
)
# Another boot id, and a clock that is 1,000 s ahead: for pgdyno another machine.
OTHER_MACHINE = """#!/bin/sh
exec unshare --mount --time --monotonic 1000 --fork --kill-child \\
  sh -c 'mount --bind {folder}/boot_id /proc/sys/kernel/random/boot_id; exec {python} "$@"' sh "$@"
"""
STUDY = """
[server]
kind = "given"
dsn = "{dsn}"

[hosts.far]
role = "server"
ssh = "db1"
python = "{folder}/python-there"

[data]
scale = 1

[[workload]]
name = "select-only"
clients = 2
rate_tps = 100.0

[trials]
rounds = 1
duration = "3s"
warm_up = "0s"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(18) as made:
        made.listen()
        made.sql("CREATE ROLE bench LOGIN CREATEDB IN ROLE pg_monitor")
        made.sql("CREATE ROLE plain LOGIN CREATEDB")
        yield made


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(folder=tmp_path)


def run(bench: Bench, *words: str) -> subprocess.CompletedProcess[str]:
    return run_program(words, cwd=bench.folder, env=dict(os.environ))


def test_the_machine_of_a_given_server_is_in_its_record(cluster: Cluster, bench: Bench, by_ssh: Sshd) -> None:
    dsn = f"postgresql://bench@{LOOPBACK}:{PORT}/postgres"
    # Long enough for samples of the backends, although a busy machine tells the far sampler late which they are.
    done = run(bench, "bench", "--dsn", dsn, "--server-host", "db1", *SHORT, "--duration", "12s")
    assert done.returncode == 0, done.stderr
    assert "watched by ssh" in done.stderr
    record = open_record(bench.record).read_record()
    watched = record.server_host
    assert record.format_version == 4
    assert watched is not None
    assert (watched.name, watched.ssh, watched.is_load_host) == ("db1", "db1", True)
    assert record.host is not None
    assert record.load_host is not None
    assert record.host.memory_bytes == record.load_host.memory_bytes
    assert record.host.data_disk.path == str(cluster.data)
    there, here = record.host.data_disk, read_disk_facts(cluster.data)
    assert there.is_known
    assert msgspec.structs.replace(there, free_bytes=here.free_bytes) == here
    (trial,) = open_record(bench.record).read_trials()
    data = read_trial_data(bench.record / "trials/0001", trial)
    assert data.os is not None
    assert data.server_clock is not None
    unseen = [gap.source for gap in trial.gaps if gap.reason != LATE]
    assert [source for source in unseen if source in {"os sampler", "server log"}] == ["server log"]
    # One machine: the load is followed there, too, and the clock is the same.
    assert busy_threads(data.os)
    assert abs(data.server_clock.offset_s) <= data.server_clock.uncertainty_s
    running_count, _ = backends_on_cpu(data.os)
    assert data.mean_within_load(running_count) is not None
    report = json.loads((bench.record / "report.json").read_text())
    shares = report["workloads"][0]["trials"][0]["shares"]
    assert 0.0 < shares["cpu_busy_ratio"] <= 1.0
    assert "Watched by ssh" in (bench.record / "report.md").read_text()


def test_turns_are_not_watched_and_say_so(cluster: Cluster, bench: Bench, by_ssh: Sshd) -> None:
    (bench.folder / "thinking.sql").write_text(THINKING)
    dsn = f"postgresql://bench@{LOOPBACK}:{PORT}/postgres"
    load = ("--workload", "thinking.sql", "--scale", "1", "--duration", "2s", "--warm-up", "0s", "--minutes", "1")
    done = run(bench, "sweep", "clients=1,2", "--dsn", dsn, "--server-host", "db1", *load, "--allow", "busy")
    assert done.returncode == 0, done.stderr
    store = open_record(bench.record)
    for trial in store.read_trials():
        data = read_trial_data(store.trial_dir(trial.planned.number), trial)
        sources = [gap.source for gap in trial.gaps if gap.reason != LATE]
        # What each variant does alone is watched before its rounds.
        assert (data.os is None, "os sampler" in sources) == (not trial.planned.is_observed,) * 2
        assert sources.count("server log") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace")
def test_another_machine_with_a_clock_of_its_own(cluster: Cluster, bench: Bench, by_ssh: Sshd) -> None:
    folder = bench.folder
    (folder / "boot_id").write_text("11111111-2222-3333-4444-555555555555\n")
    (folder / "python-there").write_text(OTHER_MACHINE.format(folder=folder, python=sys.executable))
    (folder / "python-there").chmod(0o755)
    study = folder / "study.toml"
    # A role that may not know the folder of the data.
    study.write_text(STUDY.format(dsn=f"postgresql://plain@{LOOPBACK}:{PORT}/postgres", folder=folder))
    done = run(bench, "run", str(study), "--allow", "busy")
    assert done.returncode == 0, done.stderr
    record = open_record(bench.record).read_record()
    assert record.server_host is not None
    assert (record.server_host.name, record.server_host.is_load_host) == ("far", False)
    assert record.host is not None
    assert not record.host.data_disk.is_known
    (trial,) = open_record(bench.record).read_trials()
    trial_dir = bench.record / "trials/0001"
    raw = read_os_samples(trial_dir)
    data = read_trial_data(trial_dir, trial)
    assert data.server_clock is not None
    assert abs(data.server_clock.offset_s - 1000.0) <= data.server_clock.uncertainty_s
    assert data.os is not None
    assert trial.load_start_monotonic_s is not None
    # The record has the machine's own times; whoever reads them gets those of the load.
    assert raw.frame["t_s"][0] > trial.load_start_monotonic_s + 900.0
    assert data.mean_within_load(cpu_busy(data.os)) is not None
    assert not busy_threads(data.os)
    assert data.of_load is data.generator
    report = (bench.record / "report.md").read_text()
    assert format_offset(data.server_clock) in report
    # Whatever limits a load there, none of it is said of this machine.
    assert "other programs on this machine" not in report
    # Nothing is left to do, on the same machine.
    resumed = run(bench, "resume", str(bench.record), "--allow", "busy")
    assert resumed.returncode == 0, resumed.stderr


def test_data_that_do_not_fit_on_its_disk_are_refused(cluster: Cluster, bench: Bench, by_ssh: Sshd) -> None:
    dsn, scale = f"postgresql://bench@{LOOPBACK}:{PORT}/postgres", 1_000_000
    words = ("bench", "--dsn", dsn, "--server-host", "db1", "--scale", str(scale), "--allow", "data=1000TB")
    done = run(bench, *words, "--allow", "busy")
    assert (done.returncode, "do not fit on the server's disk" in done.stderr) == (3, True), done.stderr
    assert "and trials run in a copy of it" in done.stderr
    assert not bench.records


def test_a_machine_that_the_server_does_not_run_on_is_refused(cluster: Cluster, bench: Bench, by_ssh: Sshd) -> None:
    dsn = f"postgresql://bench@{LOOPBACK}:{PORT}/postgres"
    elsewhere = bench.folder / "python-there"
    # It sees processes of its own only.
    elsewhere.write_text(f'#!/bin/sh\nexec unshare --pid --mount-proc --fork --kill-child {sys.executable} "$@"\n')
    elsewhere.chmod(0o755)
    study = bench.folder / "study.toml"
    study.write_text(STUDY.format(dsn=dsn, folder=bench.folder))
    refusals = {("bench", "--dsn", dsn, "--server-host", "unknown", *SHORT): "the host key of unknown is not known"}
    if os.geteuid() == 0:
        refusals[("run", str(study), "--allow", "busy")] = "the server does not run on db1"
    for words, fact in refusals.items():
        done = run(bench, *words)
        assert (done.returncode, fact in done.stderr) == (3, True), done.stderr
    assert not bench.records
