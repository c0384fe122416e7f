"""Looks at real servers that somebody else made: running, stopped, standing by, closed, and not the one that is meant."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.conduct.planned_server import describe_planned_server
from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.explain.finding import Finding
from pgdyno.explain.preflight.rules import find_obstacles
from pgdyno.flow.check import check_data, check_study, make_default_study
from pgdyno.flow.tune import Form, TuneRequest, tune
from pgdyno.record.machine.preflight import PreflightFacts, ServerOrigin, ServerSnapshot, Unseen
from pgdyno.run.cluster.settings_check import HUGE_PAGES_COUNT
from pgdyno.run.given.data_folder import find_data_folder
from pgdyno.run.given.state import SNAPSHOT_SETTINGS, read_server_snapshot
from pgdyno.run.host.facts import read_host_facts
from pgdyno.run.host.state import read_memory
from pgdyno.run.host.tree import Tree
from pgdyno.run.postgres.installation import installed_majors, read_server_facts
from pgdyno.spec.study import ServerKind, ServerSpec
from pgdyno.tune.subject import LoadHints
from tests.sysctls import machine_settings, needs_proc_sys
from tests.tools.pgcluster import Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
SETTINGS = ("fsync=on", "shared_buffers=64MB")


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        restart(made)
        yield made


def restart(cluster: Cluster) -> None:
    cluster.stop()
    cluster.start(*SETTINGS)


def look(cluster: Cluster) -> tuple[ServerSnapshot, tuple[Unseen, ...]]:
    folder = find_data_folder(cluster.data, bindir=None if cluster.version_major == 15 else cluster.bin_directory)
    return read_server_snapshot(folder)


def findings(server: ServerSnapshot) -> dict[str, Finding]:
    """What the rules about servers say, on this machine's memory."""
    facts = PreflightFacts(server=server, memory=read_memory(Tree()))
    about_server = {
        "durability",
        "given-up",
        "wrong-server",
        "sessions-at-work",
        "assertions",
        "logging",
        "huge-pages",
        "no-start",
        "configuration-errors",
    }
    found = find_obstacles(read_host_facts(Path("/var/tmp")), facts)
    return {finding.rule: finding for finding in found if finding.rule in about_server}


def test_a_running_server(cluster: Cluster) -> None:
    server, unseen = look(cluster)
    assert server.origin is ServerOrigin.RUNNING
    assert unseen == ()
    assert server.settings["data_directory"] == str(cluster.data)
    assert server.settings["shared_buffers"] == "8192"
    assert set(SNAPSHOT_SETTINGS) - set(server.settings) <= (
        {"huge_pages_status"} if cluster.version_major < 17 else set()
    )
    assert (server.major, server.is_in_recovery, server.active_sessions) == (cluster.version_major, False, 0)
    assert not {"durability", "wrong-server", "sessions-at-work", "assertions", "logging"} & set(findings(server))


def test_the_programs_of_a_running_server_are_found(cluster: Cluster) -> None:
    folder = find_data_folder(cluster.data, bindir=None)
    assert folder.pid == cluster.postmaster_pid
    assert folder.bindir.resolve() == cluster.bin_directory.resolve()
    assert read_server_facts(folder.bindir, user=folder.asker).major == cluster.version_major


def test_what_is_given_up(cluster: Cluster) -> None:
    cluster.sql("ALTER SYSTEM SET full_page_writes = off")
    cluster.sql("ALTER SYSTEM SET log_min_duration_statement = 0")
    cluster.sql("SELECT pg_reload_conf()")
    try:
        assert wait_until(lambda: cluster.sql("SHOW full_page_writes") == "off")
        found = findings(look(cluster)[0])
    finally:
        cluster.sql("ALTER SYSTEM RESET ALL")
        cluster.sql("SELECT pg_reload_conf()")
    assert found["durability"].evidence == "full_page_writes = off (in force)"
    assert found["logging"].evidence == "log_min_duration_statement = 0"


def test_whether_it_archives_is_seen_and_not_how(cluster: Cluster) -> None:
    cluster.stop()
    cluster.start(*SETTINGS, "archive_mode=on", "archive_command=/geheim/%p")
    try:
        archiving = look(cluster)[0]
        cluster.sql("ALTER SYSTEM SET archive_command = '/bin/date'")
        cluster.stop()
        pretending = look(cluster)[0]
    finally:
        restart(cluster)
        cluster.sql("ALTER SYSTEM RESET ALL")
    assert archiving.origin is ServerOrigin.RUNNING
    assert archiving.settings["archive_command"] == "%p"
    assert "geheim" not in repr(archiving)
    assert (pretending.origin, pretending.settings["archive_command"]) == (ServerOrigin.FILES, "/bin/date")


def test_a_server_that_is_not_the_one_meant(cluster: Cluster) -> None:
    other = {15: 18, 18: 15}[cluster.version_major]
    with pytest.raises(SpecError, match=f"are of PostgreSQL {cluster.version_major}, but {other} was asked for"):
        check_data(cluster.data, named=ServerSpec(kind=ServerKind.LOCAL, version=other))


def test_a_server_that_does_not_run_and_one_that_stands_by(cluster: Cluster) -> None:
    cluster.sql("ALTER SYSTEM SET fsync = off")
    cluster.run("pg_ctl", "-D", str(cluster.data), "-m", "fast", "-w", "-s", "stop")
    signal = cluster.data / "standby.signal"
    try:
        server, unseen = look(cluster)
        assert server.origin is ServerOrigin.FILES
        assert unseen == ()
        assert server.is_in_recovery is None
        assert findings(server)["durability"].evidence == "fsync = off (in its configuration files)"
        assert int(server.settings["shared_memory_size_in_huge_pages"]) > 60

        # A standby without a primary: it replays what it has and waits.
        signal.touch()
        shutil.chown(signal, cluster.user.uid, cluster.user.gid)
        cluster.start(*SETTINGS)
        assert "pg_is_in_recovery() is true" in findings(look(cluster)[0])["wrong-server"].evidence
    finally:
        signal.unlink(missing_ok=True)
        (cluster.data / "postgresql.auto.conf").write_text("")
        restart(cluster)


def test_a_server_that_will_not_start_again(cluster: Cluster) -> None:
    host = read_host_facts(Path("/var/tmp"))
    too_large = f"{(host.memory_bytes + host.swap_bytes) // 2**20 + 1024}MB"
    assert "no-start" not in findings(look(cluster)[0])
    # Not loaded, so that the server itself does not know of it.
    with (cluster.data / "postgresql.auto.conf").open("a") as conf:
        conf.write(f"shared_buffers = {too_large}\nhuge_pages = off\nmax_connections = 77\n")
    try:
        assert "shared_buffers" not in look(cluster)[0].waiting, "its command line wins"
        cluster.stop()
        server, _ = look(cluster)
        assert server.origin is ServerOrigin.FILES
        if read_memory(Tree()).overcommit_memory != 1:
            assert "would not start:" in findings(server)["no-start"].claim
            with pytest.raises(AssertionError, match="could not map anonymous shared memory"):
                cluster.start()
        (cluster.data / "postgresql.auto.conf").write_text("")
        cluster.start()
        cluster.sql(f"ALTER SYSTEM SET shared_buffers = '{too_large}'")
        cluster.sql("ALTER SYSTEM SET huge_pages = off")
        server, _ = look(cluster)
        assert set(server.waiting) == {"shared_buffers", "huge_pages"}
        if read_memory(Tree()).overcommit_memory != 1:
            assert "would not start again" in findings(server)["no-start"].claim
    finally:
        (cluster.data / "postgresql.auto.conf").write_text("")
        restart(cluster)


def tune_errors(cluster: Cluster) -> tuple[str, ...]:
    asked = TuneRequest(
        server=ServerSpec(kind=ServerKind.LOCAL, bindir=str(cluster.bin_directory)),
        data_dir=cluster.data,
        host=None,
        record=None,
        wishes=LoadHints(),
        fixed={},
        home=Path("/var/tmp"),
        run_as=None,
    )
    return tune(asked, form=Form.DIFF).view.file_errors


@pytest.mark.parametrize(
    ("line", "in_files", "at_start"),
    [
        ("work_mem = 12xyz", "work_mem = 12xyz: setting could not be applied", '"work_mem": "12xyz"'),
        ("shared_buffers = lots", "shared_buffers = lots: setting could not be applied", '"shared_buffers": "lots"'),
        ("wrok_mem = 12MB", "wrok_mem: unrecognized configuration parameter", '"wrok_mem"'),
    ],
)
def test_errors_in_its_files(cluster: Cluster, line: str, in_files: str, at_start: str) -> None:
    conf = cluster.data / "postgresql.conf"
    before = conf.read_text()
    # What waits for a restart is none.
    waiting = "max_connections = 77\n"
    conf.write_text(f"{before}{waiting}")
    assert look(cluster)[0].file_errors == ()
    conf.write_text(f"{before}{waiting}{line}\n")
    number = len(before.splitlines()) + 2
    try:
        server, unseen = look(cluster)
        assert server.file_errors == (f"{conf}, line {number}: {in_files}",)
        assert unseen == ()
        assert "a restart would fail" in findings(server)["configuration-errors"].claim
        assert tune_errors(cluster) == server.file_errors

        cluster.stop()
        with pytest.raises(AssertionError, match="contains errors"):
            cluster.start()
        server, unseen = look(cluster)
        assert server.origin is ServerOrigin.FILES
        assert at_start in server.file_errors[0]
        assert [one.what for one in unseen] == ["the server's settings"]
        assert set(findings(server)) == {"configuration-errors"}
        assert tune_errors(cluster) == server.file_errors
    finally:
        conf.write_text(before)
        restart(cluster)
    assert look(cluster)[0].file_errors == ()


def test_a_server_that_lets_nobody_in(cluster: Cluster) -> None:
    hba = cluster.data / "pg_hba.conf"
    before = hba.read_text()
    hba.write_text("local all all reject\n")
    cluster.run("pg_ctl", "-D", str(cluster.data), "reload")
    try:
        assert wait_until(lambda: look(cluster)[0].origin is ServerOrigin.FILES)
        server, unseen = look(cluster)
    finally:
        hba.write_text(before)
        cluster.run("pg_ctl", "-D", str(cluster.data), "reload")
    assert server.settings["fsync"] == "on"
    assert ["pg_hba.conf rejects" in one.reason for one in unseen] == [True]


def test_huge_pages_of_a_server_to_be_started_are_its_own_count(cluster: Cluster, tmp_path: Path) -> None:
    server = {"kind": "local", "bindir": str(cluster.bin_directory), "settings": {"shared_buffers": "64MB"}}
    facts = check_study(make_default_study(server, scale=None, clients=None), home=tmp_path, is_planned=False).facts
    assert facts.server is not None
    assert facts.server.settings[HUGE_PAGES_COUNT] == cluster.sql(f"SHOW {HUGE_PAGES_COUNT}")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_programs_that_the_servers_account_may_not_run_count_nothing(cluster: Cluster, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "bin").symlink_to(cluster.bin_directory)
    programs = read_server_facts(tmp_path / "bin")
    server, refusal = describe_planned_server(
        ServerSpec(settings={"shared_buffers": "64MB"}), programs, user=cluster.user
    )
    assert isinstance(refusal, StepFailedError)
    assert HUGE_PAGES_COUNT not in server.settings
    if "huge-pages" in (found := findings(server)):
        assert found["huge-pages"].evidence.startswith("about ")


def start_with_huge_pages(cluster: Cluster, pool: Path) -> ServerSnapshot | None:
    """Tried some times: whichever server starts first takes them."""
    for _ in range(4):
        pool.write_text(str(int(pool.read_text()) + 80))
        restart(cluster)
        server, _ = look(cluster)
        if server.huge_pages_bytes:
            return server
    return None


@needs_proc_sys
def test_huge_pages_that_are_there_and_not(cluster: Cluster) -> None:
    with machine_settings("vm.nr_hugepages"):
        pool = Path("/proc/sys/vm/nr_hugepages")
        # Those that another server holds stay.
        pool.write_text("0")
        restart(cluster)
        without = findings(look(cluster)[0])["huge-pages"]
        assert without.claim == "huge_pages = try, and the server got none."
        try:
            server = start_with_huge_pages(cluster, pool)
        finally:
            cluster.stop()
    cluster.start(*SETTINGS)
    if server is None:
        pytest.skip("this machine has no 160 MB in one piece, or other servers take them")
    assert "huge-pages" not in findings(server)
    assert server.huge_pages_bytes
    # Before 17 there is no other way to know.
    blind = msgspec.structs.replace(server, settings={**server.settings, "huge_pages_status": "unknown"})
    assert "huge-pages" not in findings(blind)


def test_what_is_no_data_directory(tmp_path: Path, cluster: Cluster) -> None:
    with pytest.raises(SpecError, match="no data directory"):
        find_data_folder(tmp_path, bindir=None)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SpecError, match="no data directory"):
        find_data_folder(tmp_path / "loop", bindir=None)
    (tmp_path / "PG_VERSION").write_bytes(b"\xff\n")
    with pytest.raises(SpecError, match="of PostgreSQL"):
        find_data_folder(tmp_path, bindir=None)
    (tmp_path / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(SpecError, match=r"of PostgreSQL 9\.6"):
        find_data_folder(tmp_path, bindir=None)
    (tmp_path / "PG_VERSION").write_text("16\n")
    with pytest.raises(HostError, match="no programs of PostgreSQL 16") as missing:
        find_data_folder(tmp_path, bindir=None)
    assert missing.value.hint == "name their folder with --pg-bindir"
    if cluster.version_major == 18 and 18 not in installed_majors():
        (tmp_path / "PG_VERSION").write_text("18\n")
        with pytest.raises(HostError, match="no programs of PostgreSQL 18") as missing:
            find_data_folder(tmp_path, bindir=None)
        assert missing.value.hint.startswith("--server embedded takes pgdyno's own")
    # What a crash has left points to a process that is gone, or to somebody else's.
    (tmp_path / "PG_VERSION").write_text(f"{cluster.version_major}\n")
    # A server knows its folder by its real path.
    (tmp_path / "link").symlink_to(tmp_path)
    assert find_data_folder(tmp_path / "link", bindir=cluster.bin_directory).path == tmp_path.resolve()
    (tmp_path / "postmaster.pid").write_text(f"1\n{tmp_path}\n1\n5432\n/tmp\n\n")
    assert find_data_folder(tmp_path, bindir=cluster.bin_directory).pid is None
