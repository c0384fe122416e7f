"""What bad luck does to a comparison: crashes, Ctrl-C and kill -9 within a pair, a block and a change of the kernel."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.record.store import open_record
from pgdyno.record.transactions.slices import SliceWriter
from pgdyno.run.measured_load import _Observers
from tests.cli.experiments import (
    GENTLE,
    QUICK_COMMITS,
    SLOW_COMMITS,
    count_slices,
    finished_trials,
    read_failed_tries,
    read_report,
    verdict_of,
    write_study,
)
from tests.cli.program import Bench, some_bench
from tests.sysctls import OTHER, needs_proc_sys, own_network, read_sysctl
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

SLOW = f'name = "slow"\nsettings = {{ {SLOW_COMMITS}, work_mem = "4MB" }}'
TWIN = f'name = "twin"\nsettings = {{ {SLOW_COMMITS}, work_mem = "4096kB" }}'
QUICK = f'name = "quick"\nsettings = {{ {QUICK_COMMITS}, work_mem = "4MB" }}'


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """One home for all, so that data are loaded once."""
    with some_bench(is_empty=False) as made:
        yield made


def kill_backend(bench: Bench) -> bool:
    """Kill a process of the server that serves a client; return whether there was one."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                cwd = (entry / "cwd").readlink()
                if command.startswith("postgres: pgdyno pgdyno") and cwd.is_relative_to(bench.home):
                    os.kill(int(entry.name), signal.SIGKILL)
                    return True
            except OSError:
                continue
    return False


def kill_server(bench: Bench) -> bool:
    """Kill the server; return whether there was one."""
    pid = bench.find_process("bin/postgres -D")
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def test_a_server_that_crashes_in_a_block(bench: Bench) -> None:
    record = bench.folder / "crashed"
    study = write_study(bench, SLOW, QUICK)
    with bench.started("run", study, "--out", "crashed", stops_at=SliceWriter.add) as process:
        assert process.stands_still(lambda: count_slices(record) > 2), process.communicate()
        assert kill_backend(bench)
        process.go_on()
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    assert "repeating trial 1" in stderr
    # The block that came through has the verdict, and what became of the other stands in the record.
    assert verdict_of(read_report(record), "quick")["kind"] == "faster"
    ((number, error),) = read_failed_tries(record)
    assert number == 1
    assert error is not None
    assert "server" in error.fact or "pgbench" in error.fact
    assert count_slices(record, "0001.cut-1") > 2
    bench.assert_nothing_runs()


def test_a_server_that_is_killed_whenever_it_is_loaded(bench: Bench) -> None:
    record = bench.folder / "killed"
    aside = record / "trials" / "0001.cut-1"
    study = write_study(bench, SLOW, QUICK)
    with bench.started("run", study, "--out", "killed", stops_at=SliceWriter.add) as process:
        for tries in (False, True):
            assert process.stands_still(lambda tries=tries: aside.exists() == tries), process.communicate()
            assert kill_server(bench)
            if not tries:
                process.send_signal(signal.SIGCONT)
        process.go_on()
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 4, stderr
    assert "the server was killed by SIGKILL" in stderr
    for error in (read_failed_tries(record)[0][1], open_record(record).read_trials()[0].error):
        assert error is not None
        assert error.fact == "the server was killed by SIGKILL"
    bench.assert_nothing_runs()


def test_a_variant_that_breaks_the_load_is_given_up_and_the_others_go_on(bench: Bench) -> None:
    record = bench.folder / "broken"
    bad = f'name = "bad"\nsettings = {{ {SLOW_COMMITS}, default_transaction_read_only = true, work_mem = "4MB" }}'
    done = bench.run("run", write_study(bench, SLOW, bad, QUICK), "--out", "broken")
    assert done.returncode == 0, done.stderr
    assert "bad is given up, the others go on" in done.stderr
    report = read_report(record)
    assert verdict_of(report, "quick")["kind"] == "faster"
    dropped = {variant["name"]: variant["dropped_out"] for variant in report["experiment"]["arms"]}
    assert "cannot execute UPDATE in a read-only transaction" in dropped["bad"]["detail"]
    assert (dropped["slow"], dropped["quick"]) == (None, None)
    tries = read_failed_tries(record)
    assert [number for number, _ in tries] == [1, 1]
    assert all(error is not None and "pgbench failed" in error.fact for _, error in tries)
    bench.assert_nothing_runs()


def test_ctrl_c_in_a_block_keeps_its_rounds_and_the_rest_is_run_later(bench: Bench) -> None:
    record = bench.folder / "stopped"
    study = write_study(bench, SLOW, TWIN, minutes=1)
    with bench.started("run", study, "--out", "stopped", stops_at=SliceWriter.add) as process:
        assert process.stands_still(lambda: count_slices(record) >= 7), process.communicate()
        process.send_signal(signal.SIGINT)
        process.go_on()
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130, stderr
    assert "slow and twin do the same" in stderr
    assert "A/A" in stderr
    assert "stopped after 1 of 2 trials" in stderr
    assert "pgdyno resume stopped" in stderr
    bench.assert_nothing_runs()
    (first,) = finished_trials(record)
    kept = count_slices(record)
    assert kept >= 9
    assert kept % 3 == 0
    # The user may have stopped it because of what was seen: the final look is left for the planned end.
    assert open_record(record).read_record().final_looks is msgspec.UNSET
    # Broken off a second time, at once and without ceremony: that block is lost, the first is not.
    with bench.started("resume", "stopped", stops_at=SliceWriter.add) as process:
        assert process.stands_still(lambda: count_slices(record, "0002") >= 4), process.communicate()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.go_on()
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130, stderr
    bench.assert_nothing_runs()
    assert finished_trials(record) == [first]
    assert bench.read("report", "stopped").returncode == 0
    assert verdict_of(read_report(record), "twin")["n"] == kept // 3
    rest = open_record(record).read_record().plan.trials[1]
    spent_s = first["load_end_monotonic_s"] - first["load_start_monotonic_s"]
    assert rest.duration_s == pytest.approx(first["planned"]["duration_s"] - spent_s, abs=1)
    assert rest.seed != first["planned"]["seed"]


def list_whole(record: Path) -> list[int]:
    """The rounds whose trials, of the reference twice and of the other variant that starts, are finished."""
    rounds: dict[int, list[str]] = {}
    for trial in finished_trials(record):
        rounds.setdefault(trial["planned"]["round"], []).extend(trial["planned"]["arms"])
    return [number for number, arms in rounds.items() if sorted(arms) == ["here", "here", "there"]]


def test_ctrl_c_in_a_pair_and_a_variant_that_does_not_start(bench: Bench) -> None:
    """The variants differ in version, mode and a setting that takes a restart."""
    record = bench.folder / "paired"
    study = write_study(
        bench,
        'name = "here"\nsettings = { shared_buffers = "64MB" }',
        'name = "there"\nserver = 15\nmode = "prepared"\nsettings = { shared_buffers = "16MB" }',
        'name = "nowhere"\nsettings = { shared_buffers = "64MB", wal_level = "minimal" }',
        minutes=8,
        warm_up="0s",
        load=GENTLE,
    )
    kept: list[dict[str, Any]] = []
    for command in (("run", study, "--out", "paired"), ("resume", "paired")):
        with bench.started(*command, stops_at=_Observers.follow) as process:
            # In the second trial; then after the three of the next round, as what was interrupted is set aside.
            is_there = (lambda: 2 in list_whole(record)) if kept else (lambda: bool(finished_trials(record)))
            assert process.stands_still(is_there), process.communicate()
            process.send_signal(signal.SIGINT)
            process.go_on()
            _, stderr = process.communicate(timeout=600)
        assert process.returncode == 130, stderr
        assert 'nowhere: the server does not start: WAL streaming ("max_wal_senders" > 0) requires' in stderr
        bench.assert_nothing_runs()
        assert finished_trials(record)[: len(kept)] == kept
        kept = finished_trials(record)
    # The round that was interrupted is left out, and the next one is whole, with its pair.
    whole = list_whole(record)
    assert (kept[0]["planned"]["round"], whole) == (1, [2])
    assert "there inconclusive (1 pair)" in stderr
    # What Ctrl-C interrupted is set aside; none failed.
    assert all(error is None for _, error in read_failed_tries(record))
    assert bench.read("report", "paired").returncode == 0
    report = read_report(record)
    assert verdict_of(report, "there")["n"] == 1
    dropped = {variant["name"]: variant["dropped_out"] for variant in report["experiment"]["arms"]}
    assert "WAL streaming" in dropped["nowhere"]["detail"]
    assert dropped["there"] is None


def stands_still_at(process: subprocess.Popen[bytes], value: str) -> bool:
    """Stop a process while the setting has a value, or let it go on: between a look and a kill it would change the setting."""
    if read_sysctl(OTHER) != value:
        return False
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    if read_sysctl(OTHER) == value:
        return True
    process.send_signal(signal.SIGCONT)
    return False


@needs_proc_sys
def test_kill_9_while_a_kernel_setting_alternates(bench: Bench) -> None:
    study = write_study(
        bench,
        'name = "before"',
        f'name = "after"\nsysctl = {{ "{OTHER}" = 77 }}',
        experiment='design = "switchback"\n',
        load=GENTLE,
    )
    # A /var/lib of its own has its own journal, a network of its own its own settings: the machine keeps both.
    var_lib = bench.folder / "var-lib"
    var_lib.mkdir()

    def in_there(*arguments: str) -> list[str]:
        bind = f'mount --bind {var_lib} /var/lib && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", bind, "sh", *bench.argv(*arguments)]

    record = bench.folder / "kernel"
    with own_network():
        before = read_sysctl(OTHER)
        with subprocess.Popen(
            in_there("run", study, "--out", "kernel"), cwd=bench.folder, stderr=subprocess.DEVNULL
        ) as process:
            try:
                assert wait_until(lambda: count_slices(record) > 3 and stands_still_at(process, "77"))
            finally:
                process.kill()
        assert read_sysctl(OTHER) == "77"
        bench.assert_nothing_runs()
        with subprocess.Popen(
            in_there("resume", "kernel"), cwd=bench.folder, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            assert process.stderr is not None
            words = f"a killed pgdyno had left {OTHER} changed: put back to {before}"
            assert any(words in line for line in process.stderr)
            assert read_sysctl(OTHER) == before
            # It goes on, and Ctrl-C puts back what it has changed, too.
            assert wait_until(lambda: read_sysctl(OTHER) == "77")
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=600)
        assert process.returncode == 130
        bench.assert_nothing_runs()
        assert read_sysctl(OTHER) == before
