"""Settings of a real server that a command of the user's changes, with a restart: in force, put back, and after kills."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.plan.experiment import Variant
from pgdyno.record.machine.given_server import write_address
from pgdyno.run.change.changes import ApplyCommand, UndoOutcome
from pgdyno.run.change.given import command_run
from pgdyno.run.change.given.command import changing_by_command, check_command_switch, restore_by_command
from pgdyno.run.change.given.command_run import await_shown
from pgdyno.run.change.given.target import GivenSwitch
from pgdyno.run.change.journal import Journal
from pgdyno.run.given.access import open_access
from pgdyno.run.host.session import find_session, note_session
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.spec.study import ServerKind, ServerSpec
from tests.rows import check_rows
from tests.run.trees import is_alive
from tests.sysctls import started_child
from tests.tools.pgcluster import PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
# One that takes a restart, and one that a reload changes.
SMALL = {"shared_buffers": "16MB", "commit_delay": 10}
LARGE = {"shared_buffers": "24MB", "commit_delay": 20}
# pg_settings shows the first in pages.
SHOWN = {"SMALL": ("2048", "10"), "LARGE": ("3072", "20"), "before": ("4096", "0")}


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE plain LOGIN")
        write_command(made)
        run_command_of(made, "shared_buffers=4096\ncommit_delay=0\n")
        yield made


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def address(cluster: Cluster) -> Iterator[Address]:
    (cluster.root / "calls").unlink(missing_ok=True)
    with open_access(dsn(cluster)) as made:
        yield made


def dsn(cluster: Cluster) -> str:
    return f"host={cluster.root} port={PORT} user=plain dbname=postgres"


def write_command(cluster: Cluster) -> None:
    """A script that sets what it gets, and restarts the server; it starts one that is down, too."""
    account = "" if os.geteuid() else f"setpriv --reuid={cluster.user.uid} --regid={cluster.user.gid} --clear-groups"
    bindir, data, root = (shlex.quote(str(path)) for path in (cluster.bin_directory, cluster.data, cluster.root))
    restart = f"{account} {bindir}/pg_ctl -D {data} -w -t 600 -s -m fast -l {root}/server.log restart"
    script = f"""#!/bin/sh
set -eu
echo called >> {root}/calls
while IFS= read -r line; do
    echo "$line" >> {root}/calls
    name=${{line%%=*}} value=${{line#*=}}
    if [ "$value" = 13 ]; then echo 'the service refuses 13' >&2; exit 3; fi
    {bindir}/psql -X -q -h {root} -p {PORT} -U postgres -d postgres -c "ALTER SYSTEM SET $name = '$value'" ||
        echo "$name = '$value'" >> {data}/postgresql.auto.conf
done
{restart} > /dev/null
"""
    path = cluster.root / "apply.sh"
    path.write_text(script)
    path.chmod(0o755)


def run_command_of(cluster: Cluster, lines: str) -> None:
    path = cluster.root / "lines"
    path.write_text(lines)
    with path.open() as stdin:
        subprocess.run([cluster.root / "apply.sh"], stdin=stdin, check=True)


def make_switch(
    cluster: Cluster, address: Address, *settings: dict[str, str | int], program: str = "apply.sh"
) -> GivenSwitch:
    asked = settings or (SMALL, LARGE)
    specs = [ServerSpec(kind=ServerKind.GIVEN, dsn="", settings={**one}) for one in asked]
    with sql.connect(address) as connection:
        identifier = str(sql.read_system_identifier(connection))
    return GivenSwitch(
        address=address,
        server=write_address(address.host, address.port),
        dsn="service=it",
        system_identifier=identifier,
        major=cluster.version_major,
        names=tuple(dict.fromkeys(name for one in asked for name in one)),
        variants=tuple(Variant(name=str(number), server=spec) for number, spec in enumerate(specs)),
        command=ApplyCommand(argv=(shutil.which(program) or str(cluster.root / program),), folder=str(cluster.root)),
    )


def shown(cluster: Cluster) -> tuple[str, ...]:
    return tuple(cluster.sql(f"SELECT setting FROM pg_settings WHERE name = '{name}'") for name in SMALL)


def calls(cluster: Cluster) -> list[str]:
    return (cluster.root / "calls").read_text().splitlines()


def change(switch: GivenSwitch, settings: dict[str, str | int], journal: Journal) -> None:
    with changing_by_command(switch, journal=journal, shown_within_s=0.0) as held:
        held.apply(settings)


def test_a_command_that_restarts_the_server(cluster: Cluster, address: Address, journal: Journal) -> None:
    said: list[str] = []
    switch = make_switch(cluster, address, SMALL, LARGE, {"commit_delay": 30})
    with changing_by_command(switch, journal=journal, on_activity=said.append) as held:
        assert [(one.what, one.old_text, one.old_value, one.new_texts) for one in journal.read_settings()] == [
            ("shared_buffers", None, "4096", ("2048", "3072")),
            ("commit_delay", None, "0", ("10", "20", "30")),
        ]
        held.apply(SMALL)
        assert shown(cluster) == SHOWN["SMALL"]
        with sql.connect(address) as connection:
            held.open(connection).change(switch.variants[1])
        assert shown(cluster) == SHOWN["LARGE"]
        held.apply({"commit_delay": 30})
        assert shown(cluster) == ("4096", "30")
        assert held.common({**SMALL, "work_mem": "5MB"}) == {"work_mem": "5MB"}
    assert (shown(cluster), journal.read_settings()) == (SHOWN["before"], ())
    assert calls(cluster) == [
        *("called", "shared_buffers=2048", "commit_delay=10", "called", "shared_buffers=3072", "commit_delay=20"),
        *("called", "shared_buffers=4096", "commit_delay=30", "called", "shared_buffers=4096", "commit_delay=0"),
    ]
    assert any("apply.sh: shared_buffers=2048 commit_delay=10" in words for words in said)
    with pytest.raises(StepFailedError, match="put back already"):
        held.apply(SMALL)


def test_a_value_of_an_extension_in_another_unit(cluster: Cluster, journal: Journal) -> None:
    name = "auto_explain.log_min_duration"
    cluster.sql("ALTER ROLE plain SET session_preload_libraries = 'auto_explain'")
    try:
        with open_access(dsn(cluster)) as address:
            switch = make_switch(cluster, address, {name: "1s"}, {})
            with changing_by_command(switch, journal=journal) as held:
                held.apply({name: "1s"})
                with sql.connect(address) as connection:
                    assert sql.read_setting(connection, name) == "1s"
    finally:
        cluster.sql("ALTER ROLE plain RESET ALL")
    assert calls(cluster)[-4:] == ["called", f"{name}=1000", "called", f"{name}=-1"]


def test_a_command_that_fails(cluster: Cluster, address: Address, journal: Journal) -> None:
    switch = make_switch(cluster, address, {"commit_delay": 13}, {})
    with pytest.raises(StepFailedError, match="ended with exit code 3") as caught:
        change(switch, {"commit_delay": 13}, journal)
    assert "apply.sh, with commit_delay=13\nthe service refuses 13" in caught.value.detail
    assert (shown(cluster), journal.read_settings()) == (SHOWN["before"], ())


def test_values_that_the_server_does_not_show(cluster: Cluster, address: Address, journal: Journal) -> None:
    switch = make_switch(cluster, address, program="true")
    with pytest.raises(StepFailedError, match="does not show what the command was to set") as caught:
        change(switch, SMALL, journal)
    assert caught.value.detail == "shared_buffers: set 2048, seen 4096; commit_delay: set 10, seen 0"
    assert (shown(cluster), journal.read_settings()) == (SHOWN["before"], ())
    said: list[str] = []
    is_told = threading.Event()

    def hear(words: str) -> None:
        said.append(words)
        is_told.set()

    # The server has the value in its files, and nobody restarts it.
    cluster.sql("ALTER SYSTEM SET shared_buffers = '2048'")
    cluster.sql("SELECT pg_reload_conf()")
    while cluster.sql("SELECT pending_restart FROM pg_settings WHERE name = 'shared_buffers'") != "t":
        pass
    with pytest.raises(StepFailedError) as caught:
        await_shown(
            lambda: sql.connect(address), {"shared_buffers": "2048"}, within_s=900.0, on_activity=hear, is_ended=is_told
        )
    assert "shared_buffers: set 2048, which waits for a restart, seen 4096" in caught.value.detail
    (words,) = said
    assert "waiting for the server" in words
    assert "of at most 900 s" in words
    run_command_of(cluster, "shared_buffers=4096\n")


def test_what_somebody_else_sets_meanwhile_stays(cluster: Cluster, address: Address, journal: Journal) -> None:
    said: list[str] = []
    with changing_by_command(make_switch(cluster, address), journal=journal, say=said.append) as held:
        held.apply(SMALL)
        run_command_of(cluster, "commit_delay=55\n")
    assert shown(cluster) == ("4096", "55")
    assert said == [
        f"commit_delay of {cluster.root}, port {PORT}: somebody else has set it to 55 since, so pgdyno left it as it is"
    ]
    run_command_of(cluster, "commit_delay=0\n")


def test_what_is_not_changed(cluster: Cluster, address: Address) -> None:
    def refuse(row: tuple[dict[str, str | int], str, str, str]) -> None:
        settings, before, after, words = row
        cluster.sql(before)
        try:
            with open_access(dsn(cluster)) as fresh, pytest.raises(SpecError) as caught:
                check_command_switch(make_switch(cluster, fresh, settings, {}))
            assert words in f"{caught.value.fact} {caught.value.detail} {caught.value.hint}"
        finally:
            cluster.sql(after)

    nothing = "SELECT 1"
    check_rows(
        [
            ({"nothing.such": "1"}, nothing, nothing, "does not see it"),
            ({"archive_command": "true"}, nothing, nothing, "may hold a password"),
            ({"block_size": "1"}, nothing, nothing, "block_size cannot be changed"),
            ({"commit_delay": "many"}, nothing, nothing, "commit_delay: 'many'"),
            (SMALL, "ALTER ROLE plain SET commit_delay = 5", "ALTER ROLE plain RESET ALL", "its source is: user"),
        ],
        refuse,
    )


def test_a_server_that_is_down_is_put_back_by_its_connection_string(
    cluster: Cluster, address: Address, journal: Journal
) -> None:
    switch = make_switch(cluster, address)
    with journal.open() as page:
        page.write_settings(replace(one, owner=replace(one.owner, pid=1)) for one in check_command_switch(switch))
    run_command_of(cluster, "shared_buffers=2048\ncommit_delay=10\n")
    cluster.stop()

    def connect() -> sql.Connection:
        return sql.connect(address)

    with pytest.raises(StepFailedError, match="cannot connect"):
        restore_by_command(connect, journal, dsn="service=other", on_activity=str)
    undone = restore_by_command(connect, journal, dsn="service=it", on_activity=str)
    assert {one.outcome for one in undone} == {UndoOutcome.UNDONE}
    assert (shown(cluster), journal.read_settings()) == (SHOWN["before"], ())


def test_what_a_running_study_holds_is_left_to_it(cluster: Cluster, address: Address, journal: Journal) -> None:
    switch = make_switch(cluster, address)
    with journal.open() as page:
        page.write_settings(check_command_switch(switch))
    with pytest.raises(HostError, match="a measurement holds shared_buffers"):
        restore_by_command(lambda: sql.connect(address), journal, dsn="", on_activity=str)
    with pytest.raises(HostError, match="or left it changed"):
        changing_by_command(switch, journal=journal).__enter__()


def make_script(folder: Path, text: str) -> ApplyCommand:
    path = folder / "script"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return ApplyCommand(argv=(str(path),), folder=str(folder))


def test_a_daemon_that_a_command_starts_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_run, "ENDS_WITHIN_S", 120.0)
    command_run.run_command(
        make_script(tmp_path, "setsid sleep 3600 & echo $! >daemon"), {"a": "1"}, session=tmp_path / "session"
    )
    daemon = int((tmp_path / "daemon").read_text())
    assert is_alive(daemon)
    os.kill(daemon, signal.SIGKILL)


def test_nothing_of_a_command_outlives_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_run, "ENDS_WITHIN_S", 1.0)
    command = make_script(tmp_path, "sleep 3600 & echo $! >child; wait")
    with pytest.raises(StepFailedError, match="did not end within 1 s"):
        command_run.run_command(command, {"a": "1"}, session=tmp_path / "session")
    if (child := tmp_path / "child").exists() and (text := child.read_text()):
        assert not is_alive(int(text))


def test_a_command_of_a_killed_study_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "session"
    with subprocess.Popen(note_session(["sleep", "3600"], path), start_new_session=True) as command:
        assert wait_until(lambda: find_session(path) == (command.pid,))
        monkeypatch.setattr(command_run, "ENDS_WITHIN_S", 0.0)
        with pytest.raises(StepFailedError, match="still runs") as caught:
            command_run.await_end(path, str)
        assert f"pid {command.pid}" in caught.value.detail
        command.kill()
    command_run.await_end(path, str)


_KILLED = """
import random, signal, types
random.seed({seed})
cluster = types.SimpleNamespace(version_major={seed}, root=pathlib.Path({root!r}))
with open_access({dsn!r}) as address:
    switch = make_switch(cluster, address)
    for number in range({kills}):
        child = os.fork()
        if child == 0:
            with changing_by_command(switch, journal=journal) as held:
                while True:
                    for settings in (SMALL, LARGE):
                        held.apply(settings)
        time.sleep(random.uniform(0.0, 1.5))
        # On a busy machine all of them may be killed before they have changed anything, but for the last.
        assert number + 1 < {kills} or wait_until(lambda: journal.read_settings() != ())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        held = len(journal.read_settings())
        undone = restore_by_command(lambda: sql.connect(address), journal, dsn="service=it", on_activity=str)
        with sql.connect(address) as connection:
            found = sql.read_server_settings(connection, ["shared_buffers", "commit_delay"])
        values = [found[name]["setting"] for name in ("shared_buffers", "commit_delay")]
        print(held, len(undone), len(journal.read_settings()), *values, sep=" | ", flush=True)
"""


def test_what_was_killed_at_any_instant_is_put_back(cluster: Cluster, tmp_path: Path) -> None:
    kills = 8
    imports = "from pgdyno.run.given.access import open_access\nfrom tests.run.test_given_command import *"
    code = _KILLED.format(seed=cluster.version_major, root=str(cluster.root), dsn=dsn(cluster), kills=kills)
    with started_child(code, journal=tmp_path / "journal", imports=imports) as child:
        out, err = child.communicate()
    assert child.returncode == 0, err
    lines = out.splitlines()
    assert len(lines) == kills, err
    # Where it was killed before it wrote to the journal, nothing was changed either.
    assert set(lines) <= {"2 | 2 | 0 | 4096 | 0", "0 | 0 | 0 | 4096 | 0"}
    assert "2 | 2 | 0 | 4096 | 0" in lines
    assert shown(cluster) == SHOWN["before"]
