"""The load generator on real servers of 18 and 15, and its replaying twin on captures and on what the real one left."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.record.pgbench.output import Progress, parse_summary
from pgdyno.record.transactions.pack import TRANSACTIONS_DIR, read_packed, read_summary
from pgdyno.record.types import ServerFacts
from pgdyno.run.cluster.server import Server
from pgdyno.run.host.process import find_server_user
from pgdyno.run.load.argv import InitRun, LoadRun
from pgdyno.run.load.generator import run_logged_load
from pgdyno.run.load.parts import PgbenchParts
from pgdyno.run.load.parts_load import PartMember, PartRun
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.load.process import Invocation, poll_until_done, running_pgbench
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.installation import Installation
from pgdyno.spec.study import GenerateAt, PartitionMethod
from pgdyno.spec.table import QueryMode
from tests.homes import initdb, installation_of, some_home
from tests.run.replay import ReplayedPgbench
from tests.run.trees import is_alive
from tests.shared import reachable_folder
from tests.waiting import wait_until

CAPTURES = Path(__file__).parent.parent / "data" / "pgbench"
SCRATCH = "scratch"
# Beyond the time that a test may take: a load that is not ended fails it.
WITHOUT_END_S = 3600.0


def start(server: Server) -> None:
    server.start({"fsync": False, "max_connections": 20})


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[int], Server]]:
    """One loaded server of each version, made when first asked for."""
    made: dict[int, Server] = {}
    with contextlib.ExitStack() as stack:

        def get(major: int) -> Server:
            if major not in made:
                home = stack.enter_context(some_home())
                log_path = stack.enter_context(reachable_folder()) / "server.log"
                server = Server(installation=installation_of(major, home), home=home, log_path=log_path)
                stack.callback(server.abandon)
                initdb(server)
                start(server)
                with server.connect(database="postgres") as connection:
                    sql.create_database(connection, server.address.dbname)
                    sql.create_database(connection, SCRATCH)
                pgbench_of(server).run_init(
                    InitRun(address=server.address, scale=1), directory=log_path.parent / "init"
                )
                made[major] = server
            return made[major]

        yield get


@pytest.fixture(params=[18, 15])
def server(request: pytest.FixtureRequest, servers: Callable[[int], Server]) -> Iterator[Server]:
    server = servers(request.param)
    yield server
    if server.find_failure() is not None:
        server.abandon()
        start(server)


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as made:
        yield made


def pgbench_of(server: Server) -> Pgbench:
    return Pgbench(installation=server.installation, user=server.home.user)


def load(server: Server, *scripts: tuple[str, int], duration_s: float = 2.0, **more: object) -> LoadRun:
    run = LoadRun(
        address=server.address,
        scripts=scripts or (("tpcb-like", 1),),
        mode=QueryMode.SIMPLE,
        clients=3,
        threads=2,
        duration_s=duration_s,
        # It leaves the CPUs to the tests beside it.
        rate_tps=200.0,
    )
    return msgspec.structs.replace(run, **more)


def script(folder: Path, name: str, text: str) -> tuple[str, int]:
    path = folder / name
    path.write_text(text)
    return str(path), 1


@pytest.mark.cluster
def test_two_loads_run_at_once_and_end_when_they_are_told_to(server: Server, folder: Path) -> None:
    seen: list[list[Progress]] = [[], []]
    with contextlib.ExitStack() as stack:
        loads = [
            stack.enter_context(
                pgbench_of(server).start_load(
                    load(server, duration_s=WITHOUT_END_S), directory=folder / f"{number}", on_progress=lines.append
                )
            )
            for number, lines in enumerate(seen)
        ]
        # Live: both are heard of while they still run.
        while not all(seen):
            assert [each.poll() for each in loads] == [None, None]
            time.sleep(0.05)
        loads[0].end()
        while (first := loads[0].poll()) is None:
            assert loads[1].poll() is None
            time.sleep(0.05)
        assert is_alive(loads[1].pid)
        assert first.exit_code == 0
        assert first.summary.is_complete
        assert loads[0].poll() == first
    # What nothing has ended does not outlive the block.
    assert not is_alive(loads[1].pid)
    left = msgspec.json.decode((folder / "1" / "pgbench.json").read_bytes(), type=Invocation)
    assert left.exit_code != 0
    assert left.cpu_s is None


def test_a_pgbench_may_end_by_itself_just_before_it_is_told_to(folder: Path) -> None:
    with running_pgbench(("/bin/sleep", "3600"), find_server_user(), folder, on_line=lambda _: None) as running:

        def should_end() -> bool:
            os.kill(running.pid, signal.SIGTERM)
            while is_alive(running.pid):
                time.sleep(0.01)
            return True

        done = poll_until_done(running, should_abort=lambda: None, should_end=should_end)
        assert done.exit_code == -signal.SIGTERM
        assert done.cpu_s is not None
        running.end()


@pytest.mark.cluster
def test_what_begins_before_all_parts_are_let_go_is_left_out(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_connected = PartMember.is_connected

    def has_run(member: PartMember) -> bool:
        """Whether it has run so many transactions that a part of its log is in the file."""
        prefix = member.run.log_prefix
        assert prefix is not None
        return is_connected(member) and all(path.stat().st_size for path in prefix.parent.glob(f"{prefix.name}.*"))

    monkeypatch.setattr(PartMember, "is_connected", has_run)
    nap = script(folder, "nap.sql", "\\sleep 5 ms\nSELECT;\n")
    parts = [
        PartRun(
            name=name,
            endpoint="primary",
            address=server.address,
            scripts=(nap,),
            mode=QueryMode.SIMPLE,
            clients=2,
            threads=1,
            rate_tps=None,
        )
        for name in ("one", "two")
    ]
    generator = PgbenchParts(pgbench_of(server), parts)
    outcome, log = run_logged_load(generator, load(server, nap, reports_statements=False), directory=folder / "out")
    assert log.reason is None
    for part, printed in zip(outcome.parts, outcome.stdouts, strict=True):
        place = folder / "out/loads" / part.host / TRANSACTIONS_DIR
        summary = read_summary(place)
        # A block of the log has as many lines.
        assert summary.early_count > 50
        assert summary.ok_count > 0
        assert parse_summary(printed.decode()).transaction_count == summary.ok_count + summary.early_count
        begin_us = min(int((batch.stamp_us - batch.latency_us).min()) for batch in read_packed(place))
        assert part.release_near_s is not None
        assert begin_us / 1e6 - part.epoch_offset_s > part.release_near_s - 0.01


@pytest.mark.cluster
def test_a_load_runs_as_the_unprivileged_user_and_all_of_it_is_kept(server: Server, folder: Path) -> None:
    pids: list[int] = []
    seen: list[Progress] = []
    owners: set[int] = set()

    def on_progress(progress: Progress) -> None:
        if not seen:
            owners.add(Path(f"/proc/{pids[0]}").stat().st_uid)
            assert Path(f"/proc/{pids[0]}/comm").read_text() == "pgbench\n"
        seen.append(progress)

    # It runs until it has been looked at, however late that is.
    outcome = pgbench_of(server).run_load(
        load(server, duration_s=WITHOUT_END_S, random_seed=7, rate_tps=None),
        directory=folder,
        on_progress=on_progress,
        on_start=pids.append,
        should_end=lambda: bool(seen),
    )
    assert owners == {server.home.user.uid}
    assert pids == [outcome.pid]
    assert not is_alive(outcome.pid)
    # The first progress comes after a second.
    assert outcome.end_monotonic_s - outcome.start_monotonic_s > 0.9
    assert outcome.cpu_s is not None
    assert 0 < outcome.cpu_s < 2 * (outcome.end_monotonic_s - outcome.start_monotonic_s)
    assert outcome.stdout == (folder / "pgbench.stdout").read_bytes()
    assert b"progress: " in (folder / "pgbench.stderr").read_bytes()
    kept = msgspec.json.decode((folder / "pgbench.json").read_bytes(), type=Invocation)
    assert msgspec.structs.asdict(kept).items() <= msgspec.structs.asdict(outcome).items()
    summary = outcome.summary
    assert summary.is_complete
    assert summary.unknown_lines == ()
    assert (summary.client_count, summary.thread_count, summary.duration_s) == (3, 2, WITHOUT_END_S)
    assert (summary.transaction_count or 0) > 0
    assert len(summary.statements) == 11


@pytest.mark.cluster
def test_options_reach_pgbench(server: Server, folder: Path) -> None:
    nap = script(folder, "nap.sql", "SELECT pg_sleep(0.02), :scale;\n")
    run = load(
        server,
        nap,
        duration_s=1.0,
        mode=QueryMode.PREPARED,
        rate_tps=300.0,
        latency_limit_ms=30.0,
        max_tries=2,
        scale=7,
        log_prefix=folder / "log",
        sampling_rate=1.0,
        reports_statements=False,
    )
    (folder / "out").mkdir()
    folder.chmod(0o777)  # the log is written by pgbench itself
    summary = pgbench_of(server).run_load(run, directory=folder / "out").summary
    assert summary.query_mode == "prepared"
    assert summary.scale == 7
    assert summary.latency_limit_ms == 30.0
    assert (summary.skipped_count or 0) > 0
    assert summary.retry_count == 0
    assert summary.statements == ()
    lines = b"".join(path.read_bytes() for path in folder.glob("log.*")).splitlines()
    assert len(lines) == (summary.transaction_count or 0) + (summary.skipped_count or 0)


@pytest.mark.cluster
def test_scripts_are_copied_byte_for_byte_from_where_only_pgdyno_can_read(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    name, _ = script(closed, "half@2.sql", "-- Zürich\nSELECT 1;\n")
    Path(name).chmod(0o600)
    outcome = pgbench_of(server).run_load(
        load(server, (name, 3), ("select-only", 1), duration_s=1.0), directory=folder / "record"
    )
    copy = folder / "record" / "script-1-half@2.sql"
    assert copy.read_bytes() == Path(name).read_bytes()
    scripts = outcome.summary.scripts
    assert [(script.name, script.weight) for script in scripts] == [(str(copy), 3), ("<builtin: select only>", 1)]


@pytest.mark.cluster
def test_a_record_that_pgbench_cannot_enter_needs_another_place_for_scripts(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    run = load(server, script(tmp_path, "one.sql", "SELECT 1;\n"), duration_s=1.0)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    if server.home.user.is_self:  # without root, pgbench runs as the caller and reads all that the caller can
        assert pgbench_of(server).run_load(run, directory=closed).summary.is_complete
        return
    with pytest.raises(HostError, match="cannot read a script file") as refused:
        pgbench_of(server).run_load(run, directory=closed)
    assert refused.value.hint
    copies = folder / "copies"
    generator = msgspec.structs.replace(pgbench_of(server), script_directory=copies)
    assert generator.run_load(run, directory=closed).summary.is_complete
    assert (closed / "script-1-one.sql").read_bytes() == (tmp_path / "one.sql").read_bytes()
    assert not copies.exists()


def test_a_missing_script_is_the_studys_fault(tmp_path: Path) -> None:
    run = LoadRun(
        address=Address(host="/nowhere", port=1, user="nobody"),
        scripts=((str(tmp_path / "gone.sql"), 1),),
        mode=QueryMode.SIMPLE,
        clients=1,
        threads=1,
        duration_s=1.0,
    )
    facts = ServerFacts(version="18.6", version_num=180006, bindir="/nowhere")
    generator = Pgbench(installation=Installation(bindir=Path("/nowhere"), facts=facts), user=find_server_user())
    with pytest.raises(SpecError, match=r"cannot read script file .*gone\.sql") as missing:
        generator.run_load(run, directory=tmp_path / "out")
    assert "No such file" in missing.value.detail
    assert missing.value.exit_code == 2


@pytest.mark.cluster
def test_one_client_that_fails_ends_the_load_at_once_in_pgbenchs_own_words(server: Server, folder: Path) -> None:
    good = script(folder, "good.sql", "SELECT pg_sleep(0.05);\n")
    bad = script(folder, "bad.sql", "\\if :client_id = 1\nSELECT 1 / 0;\n\\endif\nSELECT pg_sleep(0.05);\n")
    pids: list[int] = []
    with pytest.raises(StepFailedError, match=r"pgbench failed in script .*/bad\.sql") as failed:
        pgbench_of(server).run_load(
            load(server, good, bad, duration_s=WITHOUT_END_S), directory=folder / "out", on_start=pids.append
        )
    assert "ERROR:  division by zero" in failed.value.detail
    assert (
        failed.value.hint
        == "pgbench goes on after serialization failures and deadlocks only; correct the script, and begin anew:"
        " `pgdyno resume` runs the copy that the record keeps"
    )
    assert failed.value.exit_code == 4
    assert not is_alive(pids[0])
    assert b"division by zero" in (folder / "out" / "pgbench.stderr").read_bytes()
    assert msgspec.json.decode((folder / "out" / "pgbench.json").read_bytes(), type=Invocation).exit_code != 0


@pytest.mark.cluster
def test_a_script_that_pgbench_cannot_parse(server: Server, folder: Path) -> None:
    with pytest.raises(StepFailedError, match="pgbench failed") as failed:
        pgbench_of(server).run_load(load(server, script(folder, "bad.sql", "\\frobnicate\n")), directory=folder / "out")
    assert 'script-1-bad.sql:1: invalid command in command "frobnicate"' in failed.value.detail
    assert "correct the script" in failed.value.hint


@pytest.mark.cluster
def test_more_clients_than_connections(server: Server, folder: Path) -> None:
    with pytest.raises(StepFailedError) as failed:
        pgbench_of(server).run_load(load(server, clients=30), directory=folder)
    assert "could not create connection for client" in failed.value.detail
    assert "max_connections" in failed.value.hint

    def is_free() -> bool:
        with contextlib.suppress(StepFailedError), server.connect(database="postgres") as connection:
            sessions = "SELECT count(*) AS n FROM pg_stat_activity WHERE backend_type = 'client backend'"
            return connection.execute(sessions).fetchall() == [{"n": 1}]
        return False

    # The server has the sessions for a moment longer than pgbench, and the next load needs some.
    assert wait_until(is_free)


@pytest.mark.cluster
def test_a_killed_server_ends_the_load_with_the_servers_own_error(server: Server, folder: Path) -> None:
    pids: list[int] = []
    killed: list[int] = []

    def kill_server(_: Progress) -> None:
        if not killed:
            killed.append(server.pid)
            os.kill(server.pid, signal.SIGKILL)

    with pytest.raises(StepFailedError, match="the server was killed by SIGKILL"):
        pgbench_of(server).run_load(
            load(server, duration_s=WITHOUT_END_S),
            directory=folder,
            on_start=pids.append,
            on_progress=kill_server,
            should_abort=server.find_failure,
        )
    assert not is_alive(pids[0])


@pytest.mark.cluster
def test_a_killed_pgbench_is_a_failed_step(server: Server, folder: Path) -> None:
    pids: list[int] = []
    seen: list[Progress] = []

    def kill(progress: Progress) -> None:
        # What it said before its end may be heard after that.
        if not seen:
            os.kill(pids[0], signal.SIGKILL)
        seen.append(progress)

    with pytest.raises(StepFailedError, match="pgbench failed: it was ended by SIGKILL") as failed:
        pgbench_of(server).run_load(
            load(server, duration_s=WITHOUT_END_S), directory=folder, on_start=pids.append, on_progress=kill
        )
    assert "out of memory" in failed.value.hint
    assert b"progress: " in (folder / "pgbench.stderr").read_bytes()


@pytest.mark.cluster
def test_ctrl_c_leaves_the_outputs_and_no_process(server: Server, folder: Path) -> None:
    pids: list[int] = []
    interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))

    def interrupt_soon(_: Progress) -> None:
        if interrupt.ident is None:
            interrupt.start()

    with pytest.raises(KeyboardInterrupt):
        pgbench_of(server).run_load(
            load(server, duration_s=WITHOUT_END_S), directory=folder, on_start=pids.append, on_progress=interrupt_soon
        )
    interrupt.join()
    assert not is_alive(pids[0])
    assert b"progress: " in (folder / "pgbench.stderr").read_bytes()
    kept = msgspec.json.decode((folder / "pgbench.json").read_bytes(), type=Invocation)
    assert kept.exit_code == -signal.SIGTERM
    assert kept.cpu_s is None


_RUN_AND_TELL = """
import sys
import msgspec
from pathlib import Path
from pgdyno.run.postgres.installation import read_server_facts, Installation
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.host.process import find_server_user
run, bindir, directory = msgspec.json.decode(sys.argv[1], type=LoadRun), Path(sys.argv[2]), Path(sys.argv[3])
generator = Pgbench(installation=Installation(bindir=bindir, facts=read_server_facts(bindir)), user=find_server_user())
generator.run_load(run, directory=directory, on_start=lambda pid: print(pid, flush=True))
"""


@pytest.mark.cluster
def test_pgbench_does_not_outlive_a_pgdyno_killed_by_sigkill(server: Server, folder: Path) -> None:
    run = msgspec.json.encode(load(server, duration_s=WITHOUT_END_S)).decode()
    argv = [sys.executable, "-c", _RUN_AND_TELL, run, str(server.installation.bindir), str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as pgdyno:
        assert pgdyno.stdout is not None
        pid = int(pgdyno.stdout.readline())
        while b"pgbench (" not in (folder / "pgbench.stdout").read_bytes():
            time.sleep(0.02)
        assert is_alive(pid)
        pgdyno.kill()
    assert wait_until(lambda: not is_alive(pid))


@pytest.mark.cluster
@pytest.mark.parametrize("generate", list(GenerateAt))
def test_loading_makes_the_tables_asked_for_and_times_each_step(
    server: Server, folder: Path, generate: GenerateAt
) -> None:
    address = msgspec.structs.replace(server.address, dbname=SCRATCH)
    run = InitRun(
        address=address,
        scale=1,
        fillfactor=70,
        partitions=3,
        partition_method=PartitionMethod.HASH,
        foreign_keys=True,
        generate=generate,
    )
    said: list[str] = []
    done = pgbench_of(server).run_init(run, directory=folder, on_activity=said.append)
    step = f"{generate.value}-side generate"
    assert list(done.steps_s) == ["drop tables", "create tables", step, "vacuum", "primary keys", "foreign keys"]
    assert 0 < sum(done.steps_s.values()) == pytest.approx(done.total_s, abs=0.04)
    assert step in said
    assert ("client-side generate 100 %" in said) == (generate is GenerateAt.CLIENT)
    with sql.connect(address) as connection:
        parts = connection.execute(
            "SELECT c.relname, c.reloptions::text AS options FROM pg_class c JOIN pg_inherits ON inhrelid = c.oid"
            " WHERE c.relkind = 'r' ORDER BY 1"
        ).fetchall()
        keys = connection.execute("SELECT count(*) AS n FROM pg_constraint WHERE contype = 'f' AND conparentid = 0")
        rows = connection.execute("SELECT count(*) AS n FROM pgbench_accounts")
        assert [part["relname"] for part in parts] == [f"pgbench_accounts_{number}" for number in (1, 2, 3)]
        assert {part["options"] for part in parts} == {"{fillfactor=70}"}
        assert [row["n"] for row in keys] == [5]
        assert [row["n"] for row in rows] == [100_000]


@pytest.mark.cluster
def test_a_full_disk_while_loading_is_told_in_the_servers_words(server: Server, folder: Path) -> None:
    # A limit on file sizes meets the server as a full disk would: 17 MB hold its WAL segments, not scale 2's accounts.
    server.stop()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (17 * 1024**2, limits[1]))
    try:
        start(server)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    run = InitRun(address=msgspec.structs.replace(server.address, dbname=SCRATCH), scale=2)
    with pytest.raises(StepFailedError, match="loading scale 2 failed") as failed:
        pgbench_of(server).run_init(run, directory=folder)
    server.abandon()
    start(server)
    assert "could not extend file" in failed.value.detail
    assert "tuples (" not in failed.value.detail


@pytest.mark.cluster
def test_loading_stops_when_it_should(server: Server, folder: Path) -> None:
    address = msgspec.structs.replace(server.address, dbname=SCRATCH)
    reason = StepFailedError("enough of it")
    said: list[str] = []
    with pytest.raises(StepFailedError, match="enough of it"):
        pgbench_of(server).run_init(
            InitRun(address=address, scale=200),
            directory=folder,
            on_activity=said.append,
            should_abort=lambda: reason if said else None,
        )
    done = msgspec.json.decode((folder / "pgbench.json").read_bytes(), type=Invocation)
    assert not is_alive(done.pid)


@pytest.mark.cluster
def test_a_replay_says_what_the_real_one_said(server: Server, folder: Path) -> None:
    real: list[Progress] = []
    again: list[Progress] = []
    run = load(server, duration_s=1.0)
    outcome = pgbench_of(server).run_load(run, directory=folder / "real", on_progress=real.append)
    replay = ReplayedPgbench(source=folder / "real")
    assert replay.run_load(run, directory=folder / "again", on_progress=again.append) == outcome
    assert again == real
    for path in (folder / "real").iterdir():
        assert (folder / "again" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("major", [15, 16, 18])
def test_a_replayed_capture_fails_as_it_failed(major: int, tmp_path: Path) -> None:
    run = LoadRun(
        address=Address(host="/nowhere", port=1, user="nobody"),
        scripts=(("nap.sql", 0), ("no-table.sql", 1)),
        mode=QueryMode.SIMPLE,
        clients=4,
        threads=2,
        duration_s=2.0,
    )
    replay = ReplayedPgbench(source=CAPTURES / str(major) / "no-table")
    with pytest.raises(StepFailedError, match=r"pgbench failed in script no-table\.sql") as failed:
        replay.run_load(run, directory=tmp_path)
    assert 'relation "no_such_table" does not exist' in failed.value.detail
    with pytest.raises(StepFailedError, match="the server is gone"):
        replay.run_load(run, directory=tmp_path, should_abort=lambda: StepFailedError("the server is gone"))
