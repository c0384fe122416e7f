from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgdyno.analyse.estimate import Doubt, DoubtKind
from pgdyno.analyse.throughput import PgbenchClaim, measure_throughput
from pgdyno.errors import StepFailedError
from pgdyno.record.pgbench.output import PgbenchSummary
from pgdyno.record.transactions.pack import read_packed, read_summary
from pgdyno.record.transactions.parse import LogColumns
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.server import Server
from pgdyno.run.host import process
from pgdyno.run.host.freezer import await_stop
from pgdyno.run.host.process import find_server_user
from pgdyno.run.host.stale import name_of_this_process
from pgdyno.run.load import log_stream as logstream
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.log_stream import MEMORY_FOLDER, LogRequest, LogStream, start_log_streams
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.load.release import note_release
from pgdyno.run.postgres import sql
from pgdyno.spec.table import QueryMode
from tests.homes import initdb, installation_of, some_home
from tests.loops import needs_root
from tests.run.trees import is_alive
from tests.shared import name_of_process, reachable_folder
from tests.transactions import summarise_logs, summarise_packed
from tests.waiting import wait_until

DATA = Path(__file__).parent.parent / "data" / "txlog" / "18"
LINE = b"0 1 1342 0 1795231027 972349\n"


def own_logs() -> set[str]:
    return {path.name for path in MEMORY_FOLDER.glob(f"pgdyno-log-{os.getpid()}-*")}


@contextlib.contextmanager
def stream_to(
    folder: Path,
    asked: LogRequest | None = None,
    *,
    memory_folder: Path = MEMORY_FOLDER,
    is_framed: bool = False,
    is_held: bool = False,
) -> Iterator[LogStream]:
    asked = asked or LogRequest()
    (stream,) = start_log_streams(
        {folder: asked}, user=find_server_user(), memory_folder=memory_folder, is_framed=is_framed, is_held=is_held
    )
    try:
        yield stream
    finally:
        stream.close()


def test_growing_logs_are_read_packed_and_deleted(tmp_path: Path) -> None:
    sources = [DATA / "all.log", DATA / "all.log.1"]
    with stream_to(tmp_path / "t", LogRequest(columns=LogColumns.LAG_AND_RETRIES, latency_limit_us=5000)) as stream:
        folder = stream.log_prefix.parent
        assert folder.parent == MEMORY_FOLDER
        outs = [(folder / name).open("wb", buffering=0) for name in ("pgbench.77", "pgbench.77.1")]
        for out, source in zip(outs, sources, strict=True):
            text = source.read_bytes()
            out.write(text[:5003])
        assert stream.poll()
        time.sleep(1.2)
        for out, source in zip(outs, sources, strict=True):
            out.write(source.read_bytes()[5003:])
            out.close()
        outcome = stream.finish()
    expected = summarise_logs(sources, columns=LogColumns.LAG_AND_RETRIES, latency_limit_us=5000)
    assert outcome.summary == expected == read_summary(tmp_path / "t")
    assert outcome.packed is not None
    assert outcome.packed.transactions_count == 621
    assert outcome.reason is None
    assert outcome.notes == ()
    assert outcome.cpu_s is not None
    assert outcome.cpu_s > 0
    assert outcome.peak_memory_bytes is not None
    assert outcome.peak_memory_bytes < 300e6
    assert not folder.exists()


def test_one_reader_follows_the_logs_of_several_loads(tmp_path: Path) -> None:
    wanted = {tmp_path / "a": LogRequest(), tmp_path / "b": LogRequest(sampling_rate=0.5), tmp_path / "c": LogRequest()}
    streams = start_log_streams(wanted, user=find_server_user())
    with contextlib.ExitStack() as stack:
        for stream in streams:
            stack.enter_context(contextlib.closing(stream))
        assert len({stream.pid for stream in streams}) == 1
        assert len({stream.log_prefix for stream in streams}) == 3
        for stream, count in zip(streams, (3, 4, 0), strict=True):
            if count:
                stream.log_prefix.with_name("pgbench.1").write_bytes(LINE * count)
        outcomes = [stream.finish() for stream in streams]
    read = [read_summary(folder) for folder in wanted]
    assert [outcome.summary for outcome in outcomes] == read
    assert [(one.ok_count, one.sampling_rate) for one in read] == [(3, 1.0), (4, 0.5), (0, 1.0)]
    assert own_logs() == set()


def test_what_was_read_is_freed_while_the_log_grows(tmp_path: Path) -> None:
    with stream_to(tmp_path / "t") as stream:
        path = stream.log_prefix.with_name("pgbench.1")
        with path.open("wb", buffering=0) as out:
            # Else it may have read, and freed, some of it before one looks.
            os.kill(stream.pid, signal.SIGSTOP)
            await_stop(stream.pid)
            out.write(LINE * 200_000)
            assert path.stat().st_blocks * 512 >= 200_000 * len(LINE)
            os.kill(stream.pid, signal.SIGCONT)
            assert wait_until(lambda: path.stat().st_blocks * 512 <= 4096)
            assert path.stat().st_size == 200_000 * len(LINE)
            out.write(LINE * 10)
        outcome = stream.finish()
    assert outcome.summary is not None
    assert outcome.summary.ok_count == 200_010
    assert outcome.summary.malformed_lines_count == 0


RELEASE_S = 1795231027
EARLY = (
    # Ended before the clients were let go; began before, and was frozen meanwhile; failed before.
    b"0 1 1342 0 1795231023 500000\n1 1 4000000 0 1795231027 250000\n0 2 failed 0 1795231023 600000\n"
)
LATER = b"0 3 1342 0 1795231027 1342\n1 2 900000 0 1795231028 200000\n1 3 failed 0 1795231028 300000\n"


@pytest.mark.parametrize("is_framed", [False, True])
def test_what_began_before_the_clients_were_let_go_is_left_out(tmp_path: Path, *, is_framed: bool) -> None:
    with stream_to(tmp_path / "t", is_framed=is_framed, is_held=True) as stream:
        path = stream.log_prefix.with_name("framed" if is_framed else "pgbench.1")
        head = b"0 %d\n" % len(EARLY + LATER) if is_framed else b""
        with path.open("wb", buffering=0) as out:
            out.write(head + EARLY)
            # It does not know yet which of them count.
            time.sleep(1.2)
            assert path.stat().st_blocks > 0
            note_release(path.parent, RELEASE_S)
            out.write(LATER)
        outcome = stream.finish()
    summary = outcome.summary
    assert summary is not None
    assert summary == read_summary(tmp_path / "t")
    assert (summary.ok_count, summary.failed_count, summary.early_count) == (2, 1, 2)
    assert summary.latency().max_us == 900_000
    assert [second.epoch_s for second in summary.seconds] == [RELEASE_S, RELEASE_S + 1]
    (batch,) = read_packed(tmp_path / "t")
    assert batch.latency_us.tolist() == [1342, 900_000, 0]


def test_cut_line_of_a_killed_pgbench_is_counted(tmp_path: Path) -> None:
    with stream_to(tmp_path / "t") as stream:
        stream.log_prefix.with_name("pgbench.1").write_bytes(LINE * 3 + LINE[:12])
        outcome = stream.finish()
    assert outcome.summary is not None
    assert (outcome.summary.ok_count, outcome.summary.cut_lines_count) == (3, 1)


def test_more_turns_of_a_load_than_the_usual_limit_allows_files_are_read(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with stream_to(tmp_path / "t") as stream:
            for turn in range(400):
                stream.log_prefix.with_name(f"pgbench.{turn}").write_bytes(LINE)
            outcome = stream.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert outcome.summary is not None, outcome.reason
    assert outcome.summary.ok_count == 400


def test_run_without_a_transaction_gives_an_empty_summary(tmp_path: Path) -> None:
    with stream_to(tmp_path / "t") as stream:
        outcome = stream.finish()
    assert outcome.summary is not None
    assert outcome.summary.ok_count == 0
    assert outcome.packed is not None
    assert outcome.packed.size_bytes == 0


def test_dead_reader_is_a_gap_and_its_log_cannot_grow_into_the_memory(tmp_path: Path) -> None:
    with stream_to(tmp_path / "t") as stream:
        path = stream.log_prefix.with_name("pgbench.1")
        with path.open("wb", buffering=0) as out:
            out.write(LINE)
            os.kill(stream.pid, signal.SIGKILL)
            assert wait_until(lambda: not stream.poll())
            out.write(LINE * 100_000)
            stream.poll()
            assert path.stat().st_blocks == 0
        outcome = stream.finish()
    assert outcome.summary is None
    assert outcome.reason == "the log reader ended with exit code -9: it said nothing"
    assert own_logs() == set()


def end_by_signal(stream: LogStream) -> None:
    os.kill(stream.pid, signal.SIGTERM)


def end_by_exception(stream: LogStream) -> None:
    nothing = stream.log_prefix.with_name("pgbench.1.1")
    nothing.symlink_to("missing")
    assert wait_until(lambda: not is_alive(stream.pid))
    nothing.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("end", "reason"),
    [(end_by_signal, "was told to stop before the load had ended"), (end_by_exception, "No such file or directory")],
)
def test_reader_that_ends_early_leaves_the_log_to_its_parent(
    tmp_path: Path, end: Callable[[LogStream], None], reason: str
) -> None:
    with stream_to(tmp_path / "t") as stream:
        path = stream.log_prefix.with_name("pgbench.1")
        with path.open("wb", buffering=0) as out:
            out.write(LINE * 10)
            end(stream)
            assert wait_until(lambda: not stream.poll())
            out.write(LINE * 100_000)
            assert not stream.poll()
            # An unlinked file would keep its blocks until pgbench ends.
            assert os.fstat(out.fileno()).st_nlink == 1
            assert os.fstat(out.fileno()).st_blocks == 0
        outcome = stream.finish()
    assert outcome.reason is not None
    assert reason in outcome.reason
    assert own_logs() == set()


def test_log_is_deleted_after_an_error_of_the_caller(tmp_path: Path) -> None:
    streams = []

    def work() -> None:
        with stream_to(tmp_path / "t") as stream:
            streams.append(stream)
            stream.log_prefix.with_name("pgbench.1").write_bytes(LINE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert own_logs() == set()
    assert not Path("/proc", str(streams[0].pid)).exists()


def test_reader_that_cannot_write_the_record_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "part-00000.parquet").touch()
    with pytest.raises(StepFailedError) as caught, stream_to(tmp_path / "t"):
        pass
    assert "already holds packed transactions" in caught.value.detail
    assert own_logs() == set()


def test_full_disk_of_the_record_costs_the_packed_form_and_not_the_summary(tmp_path: Path) -> None:
    with stream_to(tmp_path / "t") as stream:
        stream.log_prefix.with_name("pgbench.1").write_bytes(LINE * 1000)
        time.sleep(1.5)
        (tmp_path / "t").rmdir()
        (tmp_path / "t").write_text("a file where the folder was")
        outcome = stream.finish()
    assert outcome.packed is None
    assert outcome.reason is not None
    assert outcome.reason.startswith("the packed transactions could not be written: ")
    assert outcome.summary is not None
    assert outcome.summary.ok_count == 1000


def test_killed_pgdyno_leaves_a_whole_record_and_no_log(tmp_path: Path) -> None:
    program = f"""
import os, signal, sys, time
from pathlib import Path
from pgdyno.run.load.log_stream import LogRequest, start_log_streams
from pgdyno.run.host.process import find_server_user
(stream,) = start_log_streams({{Path({str(tmp_path / "t")!r}): LogRequest()}}, user=find_server_user())
stream.log_prefix.with_name("pgbench.1").write_bytes({LINE!r} * 5000)
print(stream.log_prefix.parent, stream.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder, pid = done.stdout.split()
    assert wait_until(lambda: not Path(folder).exists())
    assert wait_until((tmp_path / "t" / "summary.json").exists)
    assert read_summary(tmp_path / "t").ok_count == 5000
    assert sum(len(batch) for batch in read_packed(tmp_path / "t")) == 5000
    assert wait_until(lambda: not is_alive(int(pid)))


def test_no_room_in_memory_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    user = find_server_user()
    with stream_to(tmp_path / "t", memory_folder=tmp_path / "missing") as stream:
        # Root's is closed to the account of pgbench, as `tmp_path` is.
        assert process.run(["touch", f"{stream.log_prefix}.1"], user=user).exit_code == 0
        assert (stream.log_prefix.parent.parent == tmp_path) is user.is_self
        (note,) = stream.finish().notes
    assert "missing cannot be used (No such file or directory)" in note
    monkeypatch.setattr(logstream, "ROOM_BYTES", 1 << 60)
    with stream_to(tmp_path / "u") as stream:
        (note,) = stream.finish().notes
    assert "/dev/shm has" in note


def test_logs_of_a_pgdyno_that_is_gone_are_deleted_and_others_kept(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    of_this = name_of_this_process("pgdyno-log-")
    kept = {f"{of_this}bb", "pgdyno-log-x", f"pgdyno-log-{gone.pid}", "other"}
    for name in (f"{name_of_process('pgdyno-log-', gone.pid)}aa", *kept):
        (tmp_path / name).mkdir()
    with stream_to(tmp_path / "t", memory_folder=tmp_path):
        own = {path.name for path in tmp_path.glob(f"pgdyno-log-{os.getpid()}-*")} - kept
        assert len(own) == 1
    assert {path.name for path in tmp_path.iterdir()} - {"t"} == kept


@needs_root
def test_the_log_of_a_pgdyno_whose_process_id_means_nothing_here_is_kept(tmp_path: Path) -> None:
    """As of another container that shares /dev/shm."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from pgdyno.run.host.stale import remove_stale_folders\n"
        "remove_stale_folders(Path(sys.argv[1]), 'pgdyno-log-')\n"
    )
    elsewhere = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", program]
    with stream_to(tmp_path / "t", memory_folder=tmp_path) as stream:
        subprocess.run([*elsewhere, str(tmp_path)], check=True)
        assert stream.log_prefix.parent.is_dir()


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home() as made:
        yield made


@pytest.mark.cluster
@pytest.mark.parametrize("major", [18, 15])
def test_log_of_a_real_run_holds_what_pgbench_counted(major: int, home: Home, tmp_path: Path) -> None:
    shutil.rmtree(home.data, ignore_errors=True)
    installation = installation_of(major, home)
    server = Server(installation=installation, home=home, log_path=tmp_path / "server.log")
    initdb(server)
    with reachable_folder() as folder, contextlib.ExitStack() as stack:
        stack.callback(server.abandon)
        server.start({})
        with server.connect(database="postgres") as connection:
            sql.create_database(connection, server.address.dbname)
        script = folder / "one.sql"
        script.write_text("select 1;\n")
        # A busy machine that halts pgbench at either end of so short a load parts the clocks by more than they may differ
        # otherwise: in one of some it does not.
        for turn in range(5):
            place = tmp_path / f"{turn}"
            with stream_to(place) as stream:
                run = LoadRun(
                    address=server.address,
                    scripts=((str(script), 1),),
                    mode=QueryMode.SIMPLE,
                    clients=4,
                    threads=2,
                    duration_s=3.0,
                    log_prefix=stream.log_prefix,
                )
                pgbench = Pgbench(installation=installation, user=home.user)
                said = pgbench.run_load(run, directory=folder / f"{turn}").summary
                summary = stream.finish().summary
            assert summary is not None
            assert summary.ok_count == said.transaction_count
            assert summarise_packed(place, columns=LogColumns.PLAIN) == summary
            doubts = find_doubts(summary, said)
            if not doubts:
                break
    assert doubts == []


def find_doubts(summary: TransactionSummary, said: PgbenchSummary) -> list[Doubt]:
    """Counts and clocks agree; a script without \\set is what pgbench's own clock is stale for."""
    claim = PgbenchClaim(clients=4, is_closed_loop=False, tps=said.tps, transactions_count=said.transaction_count)
    seconds = [second.epoch_s for second in summary.seconds]
    found = measure_throughput(summary, claim, range(seconds[0] + 1, seconds[-1])).doubts
    return [
        doubt
        for doubt in found
        if doubt.kind is not DoubtKind.STALE_CLOCK
        and not (doubt.kind is DoubtKind.TPS_MISMATCH and doubt.observed == pytest.approx(doubt.expected, rel=0.2))
    ]
