"""`pgdyno check` as a user runs it: beside real loads, for real servers, as root and as others."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pgdyno.flow.check import check_data, check_study, make_default_study
from pgdyno.run.host.facts import read_host_facts
from pgdyno.run.host.process import wrap
from tests.cli.program import run_here
from tests.ready_program import run_program
from tests.rows import check_rows
from tests.tools.pgcluster import PORT, Cluster, running
from tests.waiting import wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class Said:
    """What a check printed as JSON."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        assert done.returncode in {0, 1}, done.stderr
        self.exit_code = done.returncode
        self.document: dict[str, Any] = json.loads(done.stdout)
        self.findings = {finding["rule"]: finding for finding in self.document["findings"]}

    @property
    def busiest(self) -> dict[int, float]:
        """CPUs by process id."""
        return {one["pid"]: one["cpu_count"] for one in self.document["facts"]["activity"]["busiest"]}

    def seen(self, rule: str) -> str:
        return "; ".join(one["seen"] for one in self.document["findings"] if one["rule"] == rule)


def run_check(*arguments: str, prefix: Sequence[str] = (), cwd: Path | str = "/") -> subprocess.CompletedProcess[str]:
    return run_program(
        ("check", *arguments), prefix=prefix, cwd=cwd, env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    )


def check(*arguments: str, prefix: Sequence[str] = ()) -> Said:
    return Said(run_check(*arguments, "--json", prefix=prefix))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(18) as made:
        made.stop()
        made.start("fsync=on", "shared_buffers=64MB")
        yield made


def test_what_it_prints_and_how_it_exits(tmp_path: Path) -> None:
    said = check("--home", str(tmp_path / "not/yet"), "--set", "synchronous_commit=off")
    assert said.exit_code == 1
    assert said.document["would_spoil"] is True
    assert said.document["format"] == "pgdyno-check"
    durability = said.findings["durability"]
    assert durability["severity"] == "spoils"
    assert durability["seen"] == "synchronous_commit = off (as asked for)"
    assert said.document["host"]["data_disk"]["path"] == str(tmp_path)
    assert not (tmp_path / "not").exists(), "it makes nothing"
    assert said.document["facts"]["clock"]["read_ns"] > 1
    # Most of it is pg_test_timing's second.
    assert said.document["facts"]["took_s"] > 1

    told = run_check("--home", str(tmp_path), "--set", "fsync=off", "--scale", "3", "--clients", "7")
    assert told.returncode == 1
    assert "problem: Gives up durability" in told.stdout
    assert "  observed: fsync = off" in told.stdout
    assert "  fix: Leave `--set fsync=...` out" in told.stdout
    assert "  observed: Scale 3, 7 clients" in told.stdout
    assert all(line == line.rstrip() for line in told.stdout.splitlines())
    # A busy machine has others.
    assert re.match(r"[1-9]\d* problems?, ", told.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "arguments", [["check"], ["tune", "--host", "r8g.2xlarge", "--standbys", "2", "--pooler"]], ids=["check", "tune"]
)
def test_it_waits_for_no_analysis(arguments: list[str]) -> None:
    """Libraries of tables and statistics take a third of a second to load, and it has two."""
    heavy = "print({'numpy', 'polars', 'psycopg', 'scipy'} & set(sys.modules), file=sys.stderr)"
    whole = f"import atexit, sys, pgdyno.__main__ as program; atexit.register(lambda: {heavy}); program.main()"
    argv = [sys.executable, "-c", whole, *arguments, "--home", "/var/tmp"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1:] == ["set()"], done.stderr


def test_a_file_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for home in (tmp_path / "file", tmp_path / "file" / "home"):
        seen = check("--home", str(home)).seen("cannot-run")
        assert seen == f"{tmp_path / 'file'} is no folder"
        planned = run_here(["plan", "tpcb-like", "--home", str(home)], cwd=tmp_path)
        assert (planned.returncode, f"cannot use {home} as pgdyno's home" in planned.stderr) == (3, True)


def test_a_study(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        '[data]\nscale = 2\n[server.settings]\nfull_page_writes = false\n[[workload]]\nname = "tpcb-like"\nclients = 5\n'
    )
    said = check(str(study), "--home", str(tmp_path))
    assert said.seen("durability") == "full_page_writes = off (as asked for)"
    assert said.seen("scale-below-clients") == "Scale 2, 5 clients"
    # The sweep that follows has more.
    study.write_text(f"{study.read_text()}[scaling]\nclients = [1, 2, 9]\n")
    assert check(str(study), "--home", str(tmp_path)).seen("scale-below-clients").endswith("; Scale 2, 9 clients")


def test_disks_of_variants_are_looked_at_as_well(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        '[data]\nscale = 2\n[[workload]]\nname = "tpcb-like"\nclients = 2\n[[variant]]\nname = "here"\n'
        '[[variant]]\nname = "ram"\nhome = "/dev/shm/pgdyno-none"\n'
        '[[variant]]\nname = "ram, too"\nhome = "/dev/shm/pgdyno-none"\nsettings = { work_mem = "5MB" }\n'
    )
    found = check(str(study), "--home", str(tmp_path))
    (in_memory,) = [one for one in found.document["findings"] if one["rule"] == "data-in-memory"]
    assert in_memory["claim"].startswith("The data of variants ram, ram, too lie in memory")
    assert in_memory["severity"] == "spoils"
    assert not Path("/dev/shm/pgdyno-none").exists()


def skip_where_any_memory_is_granted() -> None:
    if Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1":
        pytest.skip("this kernel grants any memory: vm.overcommit_memory = 1")


def test_servers_that_do_not_fit_together(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    half_mb = read_host_facts(tmp_path).usable_memory_bytes // 2**21
    settings = f'shared_buffers = "{half_mb}MB"'
    study.write_text(
        f'[data]\nscale = 2\n[server.settings]\n{settings}\n[experiment]\ndesign = "live"\n[[workload]]\n'
        'name = "select-only"\n[[variant]]\nname = "a"\n[[variant]]\nname = "b"\nsettings = { work_mem = "5MB" }\n'
    )
    said = check(str(study), "--home", str(tmp_path))
    claims = [one["claim"] for one in said.document["findings"] if one["rule"] == "too-much-shared-memory"]
    assert claims == ["The servers of a live round have more shared memory than this machine has memory."]
    study.write_text(study.read_text().replace('"live"', '"paired"'))
    assert "too-much-shared-memory" not in check(str(study), "--home", str(tmp_path)).findings


def test_a_server_that_would_not_start(tmp_path: Path) -> None:
    skip_where_any_memory_is_granted()
    study = tmp_path / "study.toml"
    study.write_text(
        '[data]\nscale = 2\n[[workload]]\nname = "select-only"\n[[variant]]\nname = "as it is"\n'
        '[[variant]]\nname = "too large"\nsettings = { shared_buffers = "8000GB", huge_pages = "off" }\n'
        '[[variant]]\nname = "no pool"\nsysctl = { "vm.nr_hugepages" = "0" }\nsettings = { huge_pages = "on" }\n'
    )
    said = check(str(study), "--home", str(tmp_path))
    claims = [one["claim"] for one in said.document["findings"] if one["rule"] == "no-start"]
    assert [claim.split(": ")[0] for claim in claims] == ["too large", "no pool"]
    alone = check("--home", str(tmp_path), "--set", "shared_buffers=8000GB")
    assert alone.exit_code == 1
    assert alone.findings["no-start"]["claim"].startswith("The server would not start: the kernel refuses")


def test_what_does_not_fit_here_is_a_finding_among_others(tmp_path: Path) -> None:
    said = check("--home", str(tmp_path), "--scale", "1000000", "--set", "fsync=off")
    assert said.exit_code == 1
    assert {"cannot-run", "durability"} <= set(said.findings)


TOLD_CPUS = 0.1
"""What uses less is not advised to be stopped."""
REFUSED = [
    (("two.toml",), "variant two: '5XB' has a unit"),
    (("mine.toml", "--scale", "3"), "a study already determines these options: leave out scale"),
    (("--pgdata", "/x", "--set", "fsync=off"), "--pgdata already determines these options: leave out set"),
    (("--pgdata", "/nowhere"), "/nowhere is no data directory"),
    (("--pgdata", "/etc"), "/etc is no data directory"),
    (("--set", "fsync"), "not of the form NAME=VALUE"),
    (("--clients", "0"), "clients"),
    (("--scale", "0"), "`pgdyno check --help` explains every option"),
    (("--set", "foo=1"), "PostgreSQL 18 has no setting foo"),
    (("--set", "work_mem=12xyz"), "work_mem cannot be 12xyz"),
    (("--set", "wal_level=minimal"), "refuses the settings"),
    (("--set", "shared_preload_libraries=no_such_library"), "refuses the settings"),
]


def test_what_it_does_not_take(tmp_path: Path) -> None:
    variants = '[[variant]]\nname = "one"\n[[variant]]\nname = "two"\nsettings = { commit_delay = "5XB" }\n'
    (tmp_path / "two.toml").write_text(f'[[workload]]\nname = "select-only"\n{variants}')

    def check(row: tuple[tuple[str, ...], str]) -> None:
        arguments, words = row
        done = run_here(["check", *arguments, "--json"], cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert words in json.loads(done.stdout)["error"]["fact"] + done.stderr

    check_rows(REFUSED, check)


def test_a_busy_machine(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loop:
        checks: list[Said] = []

        def is_seen() -> bool:
            checks.append(check("--home", str(tmp_path)))
            busiest = checks[-1].busiest
            # Where others do the same there may be busier ones to name: only five are named.
            is_told = busiest[loop.pid] > TOLD_CPUS if loop.pid in busiest else len(busiest) == 5
            return is_told and "busy-machine" in checks[-1].findings

        try:
            # It may have stood still for as long as a check looked.
            assert wait_until(is_seen)
            name = Path(f"/proc/{loop.pid}/comm").read_text().strip()
        finally:
            loop.kill()
    assert checks[-1].exit_code == 1
    finding = checks[-1].findings["busy-machine"]
    if loop.pid in checks[-1].busiest:
        assert f"(pid {loop.pid}" in finding["seen"]
        assert f"{name} of " in finding["mend"]
    assert str(loop.pid) not in finding["mend"]


@needs_root
def test_a_narrow_place(tmp_path: Path) -> None:
    """A small /dev/shm in a mount namespace of its own, few files, and one of the CPUs."""
    inside = f'mount -t tmpfs -o size=64m tmpfs /dev/shm && ulimit -n 66 && exec taskset -c {min(os.sched_getaffinity(0))} "$@"'
    try:
        subprocess.run(["unshare", "-m", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        pytest.skip(f"no mount namespace here: {exc}")
    said = check("--home", str(tmp_path), "--clients", "4", prefix=["unshare", "-m", "sh", "-c", inside, "sh"])
    assert said.seen("small-shm") == "/dev/shm is limited to 64 MB"
    assert said.seen("process-limits").startswith("66, needed are about")
    if len(os.sched_getaffinity(0)) > 1:
        assert said.seen("cpu-affinity").startswith("1 of ")
    assert "scale-below-clients" not in said.findings


@pytest.mark.cluster
def test_a_running_load(cluster: Cluster, tmp_path: Path) -> None:
    work = tmp_path / "work.sql"
    # One statement that does not end: between two, a session is idle for as long as a busy machine keeps pgbench waiting.
    work.write_text(f"SELECT count(*) FROM {', '.join(f'generate_series(1, 1000) AS n{n}' for n in range(4))};\n")
    tmp_path.chmod(0o755)
    pgbench = [str(cluster.bin_directory / "pgbench"), "-n", "-f", "/dev/stdin", "-c", "1", "-T", "3600"]
    argv = wrap([*pgbench, "-h", str(cluster.root), "-p", str(PORT), "-U", "postgres", "postgres"], user=cluster.user)
    with work.open() as script, subprocess.Popen(argv, stdin=script, stdout=subprocess.DEVNULL, cwd="/") as load:
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench' AND state = 'active'"
        assert wait_until(lambda: cluster.sql(sessions) == "1")
        said = check("--home", str(tmp_path))
        of_server = check("--pgdata", str(cluster.data))
        load.kill()
        cluster.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench'")
    # Its session counts to the end, and other tests look at this server.
    assert wait_until(lambda: cluster.sql(sessions) == "0")
    assert f"pgbench (pid {load.pid})" in said.seen("load-running")
    assert f"pid {cluster.postmaster_pid} in {cluster.data}" in said.seen("other-servers")
    assert said.findings["other-servers"]["severity"] == "spoils"
    assert "sessions that are not idle" in of_server.seen("sessions-at-work")
    # A pid may begin like another server's.
    assert f" in {cluster.data}" not in of_server.seen("other-servers"), "the one that is meant is no other"
    assert of_server.document["facts"]["server"]["origin"] == "running"
    assert of_server.exit_code == 1


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        study = tmp_path / "study.toml"
        study.write_text(f'[server]\nport = {port}\n[[workload]]\nname = "select-only"\n')
        said = check(str(study), "--home", str(tmp_path))
    assert said.exit_code == 1
    assert f"port {port} is in use" in said.findings["cannot-run"]["claim"]


@pytest.fixture
def wal_in_memory() -> Iterator[Cluster]:
    """A running server whose pg_wal points to a tmpfs."""
    with running(15) as made:
        made.stop()
        place = made.root / "wal"
        place.mkdir()
        try:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], check=True)
        except (OSError, subprocess.CalledProcessError) as exc:
            pytest.skip(f"no file system of our own here: {exc}")
        try:
            shutil.copytree(made.data / "pg_wal", place / "pg_wal")
            shutil.rmtree(made.data / "pg_wal")
            (made.data / "pg_wal").symlink_to(place / "pg_wal")
            subprocess.run(["chown", "-R", made.user.name, str(place)], check=True)
            made.start("fsync=on")
            yield made
        finally:
            made.stop()
            subprocess.run(["umount", str(place)], check=True)


@needs_root
@pytest.mark.cluster
def test_wal_in_memory(wal_in_memory: Cluster) -> None:
    said = check("--pgdata", str(wal_in_memory.data))
    assert said.exit_code == 1
    found = said.findings["wal-in-memory"]
    assert found["severity"] == "spoils"
    assert found["seen"] == f"File system tmpfs at {wal_in_memory.root}/wal/pg_wal"
    assert f"ln -sfn /OTHER/DISK/pg_wal {wal_in_memory.data}/pg_wal" in found["mend"]


def as_nobody(work: Callable[[], bytes]) -> bytes:
    """What an account without rights gets; in a child, since there is no way back."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            content = work()
        except BaseException as exc:  # noqa: BLE001 - it must end here whatever happens
            content = repr(exc).encode()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(content)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    return content


@needs_root
@pytest.mark.cluster
def test_without_rights(cluster: Cluster, tmp_path: Path) -> None:
    study = make_default_study({}, scale=None, clients=None)
    # Once as ourselves: modules that are loaded late may lie where nobody else may look.
    whole = check_study(study, home=tmp_path, is_planned=False)
    said = json.loads(as_nobody(lambda: check_study(study, home=Path("/var/lib/pgdyno"), is_planned=False).to_json()))
    assert said["facts"]["activity"]["window_s"] > 0
    assert said["host"]["memory_bytes"] == whole.host.memory_bytes
    # Where a server works is not for strangers' eyes, but its command line is.
    server = next(one for one in said["facts"]["servers"] if one["pid"] == cluster.postmaster_pid)
    assert server["data_dir"] == str(cluster.data)
    assert b"may not look into" in as_nobody(lambda: check_data(cluster.data, named=None).to_json())


def test_a_server_by_its_connection_string(cluster: Cluster) -> None:
    if not cluster.is_ready:
        cluster.start()
    cluster.sql("CREATE ROLE plain LOGIN")
    text = f"postgresql://plain@/postgres?host={cluster.root}&port={PORT}"
    said = check("--dsn", text)
    assert said.exit_code == 1
    assert said.document["format"] == "pgdyno-check-server"
    # Tests that run beside this one may keep the machine busy, which then answers late.
    assert set(said.findings) - {"busy-load-machine", "far"} == {"no-database"}
    refused = [one for one in said.document["server"]["capabilities"] if one["refusal"]]
    grants = {grant for one in refused for grant in one["grants"]}
    shown = run_check("--dsn", text).stdout
    assert {f"{grant};" for grant in grants} <= set(shown.splitlines())
    assert len(re.findall(r"^  \S.*\S +refused  ", shown, re.MULTILINE)) == len(refused)
    plain = run_check("--dsn", "", prefix=("env", f"PGHOST={cluster.root}", f"PGPORT={PORT}", "PGUSER=postgres"))
    assert (plain.returncode, "as superuser postgres" in plain.stdout) == (0, True)
    both = run_check("--dsn", text, "--scale", "3")
    assert (both.returncode, "leave out scale" in both.stderr) == (2, True)
    nowhere = run_check("--dsn", "host=/nonexistent")
    assert (nowhere.returncode, "no server listens on that socket" in nowhere.stderr) == (4, True)
