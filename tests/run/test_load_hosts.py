"""Loads from load hosts: real pgbench through a real sshd, on real servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest

from pgdyno.cli.terminal.display import Display
from pgdyno.conduct.load.hosts import ReadyLoad, check_pooler_ways
from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.record.generators.merge import merge_transactions
from pgdyno.record.generators.parts import find_clock_offset_s, find_part_folders, read_part, read_part_clock
from pgdyno.record.pgbench.output import Progress, parse_summary
from pgdyno.record.transactions.pack import TRANSACTIONS_DIR, read_packed, read_summary
from pgdyno.record.transactions.parse import LogColumns
from pgdyno.record.transactions.tally import TransactionTally
from pgdyno.run.host.process import ServerUser
from pgdyno.run.link import far_load, far_program
from pgdyno.run.link.boot import end_program
from pgdyno.run.link.ssh import open_link
from pgdyno.run.load import host_run
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.generator import run_logged_load
from pgdyno.run.load.group import PgbenchGroup
from pgdyno.run.load.host_run import LoadHost, ask_pgbench
from pgdyno.run.load.joined import JoinedLog
from pgdyno.run.load.log_stream import LogOutcome, LogStream
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.installation import find_installation
from pgdyno.spec.hosts import HostEntry, HostRole
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.table import QueryMode
from tests.hosts import Sshd
from tests.run.test_privileges import pooling
from tests.run.trees import is_alive
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
Happens = Callable[[PgbenchGroup, Mapping[str, int]], None]
# pgdyno with a load that lasts, in a process of its own, so that it can be killed.
CONDUCTOR = """
    import os, sys
    from pathlib import Path
    from pgdyno.run.link.ssh import open_link
    from pgdyno.run.load.host_run import LoadHost, ask_pgbench
    from pgdyno.run.load.group import PgbenchGroup
    from tests.run.test_load_hosts import empty_run, local_pgbench
    from pgdyno.run.postgres.address import Address
    from pgdyno.spec.hosts import HostEntry, HostRole

    secret = os.memfd_create("secret")
    os.write(secret, b"*:*:*:*:canary-7f3b")
    address = Address(
        host="{host}", port={port}, user="bench", parameters={{"passfile": "here"}}, inherited=(secret,)
    )
    folder = Path(sys.argv[1])
    folder.mkdir()
    with open_link(HostEntry(role=HostRole.LOAD, ssh="db1", pgbench="{pgbench}")) as link:
        host = LoadHost(name="db1", link=link, pgbench=ask_pgbench(link, "db1"))
        local = local_pgbench()
        PgbenchGroup([host], local, local.user).run_load(empty_run(address, folder, duration_s=300), directory=folder)
"""


FAR_LOAD = Path(far_load.__file__).read_text()


def change_far_load(patch: pytest.MonkeyPatch, folder: Path, old: str, new: str) -> None:
    """Have load hosts run a program in which a piece of its text is another."""
    assert FAR_LOAD.count(old) == 1
    source = folder / "far_load.py"
    source.write_text(FAR_LOAD.replace(old, new))
    patch.setattr(far_load, "__file__", str(source))


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def left_overs() -> set[str]:
    """What programs on load hosts have left in memory there; those that run, of other tests, have theirs until they end."""
    names = (path.name for path in Path("/dev/shm").glob(f"{far_load.MARK}*"))
    return {name for name in names if not is_alive(int(name.removeprefix(far_load.MARK).split("-")[0]))}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(18) as made:
        made.listen("scram-sha-256", trusted="bench")
        made.sql("CREATE ROLE bench LOGIN SUPERUSER")
        yield made


@pytest.fixture
def address(cluster: Cluster) -> Address:
    return Address(host=LOOPBACK, port=PORT, user="bench", dbname="postgres", parameters={"connect_timeout": "10"})


def local_pgbench() -> Pgbench:
    me = ServerUser(name=str(os.geteuid()), uid=os.geteuid(), gid=os.getegid())
    return Pgbench(installation=find_installation(ServerSpec(), user=me, software_dir=Path("/nonexistent")), user=me)


@contextmanager
def reaching(names: Sequence[str], pgbench: str | None = None, python: str | None = None) -> Iterator[PgbenchGroup]:
    local = local_pgbench()
    program = pgbench or local.installation.program("pgbench")
    with ExitStack() as stack:
        hosts = []
        for name in names:
            link = stack.enter_context(
                open_link(HostEntry(role=HostRole.LOAD, ssh=name, pgbench=program, python=python))
            )
            hosts.append(LoadHost(name=name, link=link, pgbench=ask_pgbench(link, name)))
        yield PgbenchGroup(hosts, local, local.user)


def wrap_python(path: Path, first: str, *, shell: str = "sh") -> str:
    """Write a Python that does something first."""
    path.write_text(f'#!/bin/sh\nexec {shell} -c \'{first}; exec {sys.executable} "$@"\' sh "$@"\n')
    path.chmod(0o755)
    return str(path)


def empty_run(address: Address, folder: Path, *, clients: int = 4, duration_s: float = 3) -> LoadRun:
    script = folder / "empty.sql"
    # Clients that think leave the CPUs to the tests beside them.
    script.write_text("\\sleep 5 ms\nSELECT;\n")
    return LoadRun(
        address=address,
        scripts=((str(script), 1),),
        mode=QueryMode.SIMPLE,
        clients=clients,
        threads=2,
        duration_s=duration_s,
        reports_statements=False,
        random_seed=1,
    )


def test_two_hosts_make_one_load(by_ssh: Sshd, address: Address, tmp_path: Path) -> None:
    before = left_overs()
    with reaching(["db1", "db2"]) as group:
        outcome, log = run_logged_load(group, empty_run(address, tmp_path, clients=5), directory=tmp_path)
        assert not group.far_pids
    assert (log.reason, log.notes) == (None, ())
    assert wait_until(lambda: left_overs() <= before)
    folders = find_part_folders(tmp_path)
    assert [folder.name for folder in folders] == ["db1", "db2"]
    # Together they counted and logged the same, and so does one tally of both logs.
    summaries = [read_summary(folder / TRANSACTIONS_DIR) for folder in folders]
    parts = [read_part(folder) for folder in folders]
    assert [part.clients for part in parts] == [3, 2]
    merged = merge_transactions([(one, 0.0) for one in summaries])
    tally = TransactionTally(columns=LogColumns.PLAIN)
    for folder in folders:
        for batch in read_packed(folder / TRANSACTIONS_DIR):
            tally.add(batch)
    whole = tally.summary()
    assert merged.ok_count == whole.ok_count > 0
    assert outcome.summary.transaction_count == merged.ok_count + merged.early_count
    assert merged.latency() == whole.latency()
    assert outcome.summary.client_count == 5
    # All were released at one instant.
    releases = [part.release_near_s for part in parts]
    assert releases[0] == releases[1] == outcome.start_monotonic_s
    assert outcome.clock_offset_s is not None
    # Each draws numbers of its own.
    seeds = {word for part in parts for word in part.argv if word.startswith("--random-seed")}
    assert len(seeds) == 2


def test_what_begins_before_all_are_let_go_is_left_out(
    by_ssh: Sshd, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pgbench is frozen when it has run so many transactions that a part of its log is in the file.
    held = "        if is_ready:\n            self.send(signal.SIGSTOP)\n"
    late = "        while is_ready and not all(map(os.path.getsize, names)):\n            time.sleep(0.01)\n"
    change_far_load(monkeypatch, tmp_path, held, late + held)
    with reaching(["db1", "db2"]) as group:
        outcome, log = run_logged_load(group, empty_run(address, tmp_path), directory=tmp_path)
    assert log.reason is None
    for part, printed in zip(outcome.parts, outcome.stdouts, strict=True):
        place = tmp_path / "loads" / part.host
        summary = read_summary(place / TRANSACTIONS_DIR)
        # A block of the log has as many lines.
        assert summary.early_count > 50
        assert summary.ok_count > 0
        assert parse_summary(printed.decode()).transaction_count == summary.ok_count + summary.early_count
        clock = read_part_clock(place, part)
        offset_s = find_clock_offset_s(part, clock)
        for batch in read_packed(place / TRANSACTIONS_DIR):
            begin_s = int((batch.stamp_us - batch.latency_us).min()) / 1e6 - offset_s
            assert part.release_near_s is not None
            assert begin_s > part.release_near_s - 2 * clock.uncertainty_s - 1e-3


def test_a_load_of_fewer_clients_than_hosts_comes_from_as_many(by_ssh: Sshd, address: Address, tmp_path: Path) -> None:
    with reaching(["db1", "db2"]) as group:
        outcome, _ = run_logged_load(group, empty_run(address, tmp_path, clients=1, duration_s=1), directory=tmp_path)
    assert [part.host for part in outcome.parts] == ["db1"]
    assert [folder.name for folder in find_part_folders(tmp_path)] == ["db1"]


def test_what_a_load_host_lacks_is_said(by_ssh: Sshd, address: Address, tmp_path: Path) -> None:
    old = tmp_path / "pgbench-old"
    old.write_text("#!/bin/sh\necho 'pgbench (PostgreSQL) 14.9'\n")
    old.chmod(0o755)
    # A machine whose memory folder and temporary folder have no room.
    mounts = "mount -t tmpfs -o size=1m none /dev/shm; mount -t tmpfs -o size=1m none /tmp"
    full = wrap_python(tmp_path / "python-full", mounts, shell="unshare --mount sh")
    for program, words in {
        "/nowhere/pgbench": "db1: there is no pgbench that runs: [Errno 2]",
        "/bin/true": "db1: there is no pgbench that runs",
        str(old): "db1: its pgbench is 14.9, and pgdyno needs 15 or later",
    }.items():
        with pytest.raises(HostError) as caught, reaching(["db1"], program):
            pass
        assert caught.value.reason.startswith(words)
        assert caught.value.hint, words
    if os.geteuid() == 0:
        with pytest.raises(HostError, match="no room for pgbench's log"), reaching(["db1"], python=full) as group:
            run_logged_load(group, empty_run(address, tmp_path), directory=tmp_path / "full")
    wrong = msgspec.structs.replace(address, user="nobody_there")
    with reaching(["db1"]) as group, pytest.raises(StepFailedError) as refused:
        group.run_load(empty_run(wrong, tmp_path), directory=tmp_path / "refused")
    assert refused.value.fact == "db1: pgbench failed"
    assert "no password supplied" in refused.value.detail


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts file systems")
def test_a_load_host_that_does_not_say_which_pgbench_it_has_is_given_up(
    by_ssh: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its clock is answered all the same.
    silent = 'load.is_over.wait() and sys.exit(0) or find_pgbench(request["pgbench"])'
    change_far_load(monkeypatch, tmp_path, 'find_pgbench(request["pgbench"])', silent)
    monkeypatch.setattr(host_run, "ANSWERS_WITHIN_S", 0.0)
    with pytest.raises(StepFailedError, match="db1 has not said within 0 s which pgbench it has"), reaching(["db1"]):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a file system that fills up")
def test_a_log_that_is_not_written_to_memory_there_is_noted(by_ssh: Sshd, address: Address, tmp_path: Path) -> None:
    full = "echo words of a shell >&2; mount -t tmpfs -o size=1m none /dev/shm"
    python = wrap_python(tmp_path / "python-full", full, shell="unshare --mount sh")
    with reaching(["db1"], python=python) as group:
        outcome, log = run_logged_load(group, empty_run(address, tmp_path, duration_s=1), directory=tmp_path)
    note = f"the transaction log was written to {tempfile.gettempdir()}: /dev/shm has no room"
    assert outcome.parts[0].notes == (note,)
    assert (log.reason, log.notes) == (None, (f"db1: {note}",))


def test_scripts_are_copied_byte_for_byte(by_ssh: Sshd, address: Address, tmp_path: Path) -> None:
    run = empty_run(address, tmp_path, duration_s=1)
    script = Path(run.scripts[0][0])
    script.write_bytes(b"-- gr\xfc\xdfe\r\nSELECT;\n")
    with reaching(["db1"]) as group:
        assert group.run_load(run, directory=tmp_path / "right").summary.transaction_count
        (copy,) = (tmp_path / "right/loads/db1").glob("script-*")
        assert copy.read_bytes() == script.read_bytes()
        script.write_bytes(b"SELECT 'gr\xfc\xdfe';\n")
        with pytest.raises(StepFailedError) as caught:
            group.run_load(run, directory=tmp_path / "refused")
        assert 'invalid byte sequence for encoding "UTF8": 0xfc' in caught.value.detail
        script.unlink()
        with pytest.raises(SpecError, match="cannot read script file"):
            group.run_load(run, directory=tmp_path / "gone")


def test_a_load_runs_the_pgbench_that_was_found_and_asks_no_other(
    by_ssh: Sshd, address: Address, tmp_path: Path
) -> None:
    real, ran = local_pgbench().installation.program("pgbench"), tmp_path / "ran"
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\necho >> {ran}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    with reaching(["db1"]) as group:
        (host,) = group.hosts.values()
        found = msgspec.structs.replace(host.pgbench, program=str(wrapper))
        alone = PgbenchGroup([msgspec.structs.replace(host, pgbench=found)], local_pgbench(), local_pgbench().user)
        alone.run_load(empty_run(address, tmp_path, clients=1, duration_s=1), directory=tmp_path / "run")
    # For its version, and for the load.
    assert len(ran.read_text().splitlines()) == 2


def test_a_script_that_becomes_pgbench_may_have_sockets_before(by_ssh: Sshd, address: Address, tmp_path: Path) -> None:
    real = local_pgbench().installation.program("pgbench")
    wrapper = tmp_path / "wrapper"
    code = f"""\
        #!{sys.executable}
        import os, socket, sys, time
        if sys.argv[1:] != ["--version"]:
            one = socket.socket()
            time.sleep(1)
        os.execv({str(real)!r}, [{str(real)!r}, *sys.argv[1:]])
    """
    wrapper.write_text(textwrap.dedent(code))
    wrapper.chmod(0o755)
    run = empty_run(address, tmp_path, clients=1, duration_s=1)
    with reaching(["db1"], str(wrapper)) as group:
        assert group.run_load(run, directory=tmp_path / "run").summary.transaction_count


def test_each_host_must_reach_the_server_through_each_pooler(
    by_ssh: Sshd, cluster: Cluster, address: Address, tmp_path: Path
) -> None:
    # Where the time zone of a session differs from that of another one, the server is the same.
    cluster.sql("CREATE DATABASE far_away")
    cluster.sql("ALTER DATABASE far_away SET timezone = 'Asia/Tokyo'")
    with pooling(cluster, mode="transaction", database="*") as folder, running(15) as other, reaching(["db1"]) as group:
        other.sql("CREATE ROLE plain LOGIN")
        cluster.sql("CREATE ROLE plain LOGIN")
        load = ReadyLoad(hosts=(), links={}, generator=group)
        pooled = msgspec.structs.replace(address, host=str(folder), user="plain", dbname="far_away")

        def check(**ways: Address) -> None:
            check_pooler_ways(load, ways, server=address, ui=Display(quiet=True))

        check(pool=pooled)
        elsewhere = msgspec.structs.replace(address, host=str(other.root), user="plain")
        with pytest.raises(HostError, match="db1 reaches another server through the pooler two"):
            check(one=pooled, two=elsewhere)
        with pytest.raises(HostError, match="db1 does not reach the server through the pooler pool") as caught:
            check(pool=msgspec.structs.replace(pooled, host=str(tmp_path)))
        assert "a socket is on one machine only" in caught.value.hint


def cut(group: PgbenchGroup, _: Mapping[str, int]) -> None:
    master = group.hosts["db2"].link._master
    assert master is not None
    master.kill()


def hang(group: PgbenchGroup, _: Mapping[str, int]) -> None:
    master = group.hosts["db2"].link._master
    assert master is not None
    os.kill(master.pid, signal.SIGSTOP)


def kill_pgbench(_: PgbenchGroup, pids: Mapping[str, int]) -> None:
    os.kill(pids["db2"], signal.SIGKILL)


def kill_program(_: PgbenchGroup, pids: Mapping[str, int]) -> None:
    os.kill(parent_of(pids["db2"]), signal.SIGKILL)


def stop_program(_: PgbenchGroup, pids: Mapping[str, int]) -> None:
    os.kill(parent_of(pids["db2"]), signal.SIGSTOP)


def test_bad_luck_ends_the_load_on_all_hosts(
    by_ssh: Sshd, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_run, "SILENCE_S", 8)
    before = left_overs()

    def run_into(group: PgbenchGroup, luck: Mapping[Happens, str]) -> None:
        for happens, words in luck.items():
            run = empty_run(address, tmp_path, duration_s=120)
            pids: dict[str, int] = {}

            def abort(group: PgbenchGroup = group, happens: Happens = happens, pids: dict[str, int] = pids) -> None:
                if not pids and group.far_pids:
                    pids |= {name: pid for name, (pid,) in group.far_pids.items()}
                    happens(group, pids)

            with pytest.raises(StepFailedError) as caught:
                group.run_load(run, directory=tmp_path / happens.__name__, should_abort=abort)
            assert caught.value.reason.startswith(words), words
            assert len(pids) == 2, words
            assert (caught.value.hint == "`ssh db2` must stay connected") == ("link" in words), words
            assert wait_until(lambda pids=pids: not any(map(is_alive, pids.values())))  # type: ignore[misc]
            for host in group.hosts.values():
                if host.link._master is not None:
                    os.kill(host.link._master.pid, signal.SIGCONT)

    with reaching(["db1", "db2"]) as group:
        # The links outlive these. It is the last of them that stops one, for a while.
        run_into(
            group,
            {
                kill_pgbench: "db2: pgbench failed: it was ended by SIGKILL",
                kill_program: "the load from db2 is lost: the link to db2 was lost",
                stop_program: "the load from db2 is lost: nothing has come from there for 8 s",
                hang: "the load from db2 is lost: nothing has come from there for 8 s",
            },
        )
    with reaching(["db1", "db2"]) as group:
        run_into(group, {cut: "the load from db2 is lost: the link to db2 was lost"})
    assert wait_until(lambda: left_overs() <= before)


def test_load_hosts_that_hang_are_waited_for_at_the_same_time(
    by_ssh: Sshd, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgdyno.run.load.group._ENDS_WITHIN_S", 6.0)
    waits_s: list[float] = []

    def end(child: subprocess.Popen[bytes], *, within_s: float) -> bool:
        waits_s.append(within_s)
        return end_program(child, within_s=within_s)

    with reaching(["db1", "db2"]) as group:

        def hang_all() -> None:
            if group.far_pids:
                monkeypatch.setattr(far_program, "end_program", end)
                for host in group.hosts.values():
                    assert host.link._master is not None
                    os.kill(host.link._master.pid, signal.SIGSTOP)
                raise StepFailedError("enough")

        pids: dict[str, int] = {}
        with pytest.raises(StepFailedError, match="enough"):
            group.run_load(
                empty_run(address, tmp_path, duration_s=120),
                directory=tmp_path / "load",
                on_start=lambda _: pids.update({name: pid for name, (pid,) in group.far_pids.items()}),
                should_abort=hang_all,
            )
    assert (len(pids), len(waits_s)) == (2, 2)
    assert waits_s[1] == 0.0
    assert wait_until(lambda: not any(map(is_alive, pids.values())))


def test_a_stopped_pgbench_is_named(
    by_ssh: Sshd, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_far_load(monkeypatch, tmp_path, "STOPPED_S = 10.0", "STOPPED_S = 1.0")
    with reaching(["db1"]) as group:
        pids: dict[str, int] = {}

        def stop(_: Progress) -> None:
            if not pids:
                pids.update({name: pid for name, (pid,) in group.far_pids.items()})
                os.kill(pids["db1"], signal.SIGSTOP)

        run = empty_run(address, tmp_path, duration_s=120)
        with pytest.raises(StepFailedError, match="db1: pgbench was stopped by a signal for more than 1 s"):
            group.run_load(run, directory=tmp_path / "stopped", on_progress=stop)
        assert wait_until(lambda: not is_alive(pids["db1"]))


def test_a_program_that_fails_there_says_why(
    by_ssh: Sshd, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_far_load(monkeypatch, tmp_path, "import contextlib\n", "import not_installed\n")
    with pytest.raises(StepFailedError, match="the load from db1 is lost") as caught, reaching(["db1"]):
        pass
    first, *_, last = caught.value.detail.split("\n")
    assert first == "the program on db1 ended with exit code 1"
    assert last == "ModuleNotFoundError: No module named 'not_installed'"
    assert not caught.value.hint
    # After it has found pgbench.
    change_far_load(monkeypatch, tmp_path, "self.may_begin.wait()", "self.no_such_thing")
    python = wrap_python(tmp_path / "python-loud", "echo words of a shell >&2")
    with reaching(["db1"], python=python) as group, pytest.raises(StepFailedError, match="the load from db1") as later:
        group.run_load(empty_run(address, tmp_path), directory=tmp_path / "later")
    assert later.value.detail.endswith("AttributeError: 'Load' object has no attribute 'no_such_thing'")
    assert "words of a shell" not in later.value.detail


def test_nothing_is_left_there_after_a_killed_pgdyno(by_ssh: Sshd, address: Address, tmp_path: Path) -> None:
    before = left_overs()
    code = textwrap.dedent(CONDUCTOR).format(
        host=address.host, port=address.port, pgbench=local_pgbench().installation.program("pgbench")
    )
    environment = {**os.environ, "PATH": by_ssh.path}
    folder = tmp_path / "killed"
    conductor = subprocess.Popen([sys.executable, "-c", code, folder], env=environment, stdin=subprocess.PIPE)
    part = folder / "loads/db1/load.json"
    assert wait_until(part.exists)
    pid = msgspec.json.decode(part.read_bytes())["pid"]
    processes = (pid, parent_of(pid))
    assert all(map(is_alive, processes))
    for process in processes:
        for file in ("cmdline", "environ"):
            assert b"canary-7f3b" not in Path(f"/proc/{process}/{file}").read_bytes()
    conductor.kill()
    conductor.communicate()
    assert wait_until(lambda: not any(map(is_alive, processes)))
    assert wait_until(lambda: left_overs() <= before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a time namespace")
def test_clocks_of_load_hosts_are_converted_once(by_ssh: Sshd, address: Address, tmp_path: Path) -> None:
    ahead = tmp_path / "python-ahead"
    ahead.write_text(f'#!/bin/sh\nexec unshare --time --monotonic 1000 --fork --kill-child {sys.executable} "$@"\n')
    ahead.chmod(0o755)
    with reaching(["db1", "db2"], python=str(ahead)) as group:
        began_s = time.monotonic()
        outcome, log = run_logged_load(group, empty_run(address, tmp_path, duration_s=2), directory=tmp_path)
        ended_s = time.monotonic()
    assert log.reason is None
    assert began_s < outcome.start_monotonic_s < outcome.end_monotonic_s < ended_s
    for part in outcome.parts:
        clock = read_part_clock(tmp_path / "loads" / part.host, part)
        assert abs(clock.offset_s - 1000.0) <= clock.uncertainty_s
        assert part.start_far_s > began_s + 990.0
        stamp_us = read_summary(tmp_path / "loads" / part.host / TRANSACTIONS_DIR).first_stamp_us or 0
        near_s = stamp_us / 1e6 - find_clock_offset_s(part, clock)
        assert outcome.start_monotonic_s - 0.01 - clock.uncertainty_s < near_s < outcome.end_monotonic_s


def test_a_log_that_fails_is_called_by_its_part_and_its_host() -> None:
    class Failed:
        def finish(self) -> LogOutcome:
            return LogOutcome(reason="the log reader died")

    def explain(name: str) -> str | None:
        return JoinedLog(cast("Mapping[str, LogStream]", {name: Failed()})).finish().reason

    assert explain("reads+load1") == "reads on load1: the log reader died"
    assert explain("load1") == "load1: the log reader died"
