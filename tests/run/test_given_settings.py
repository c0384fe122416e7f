"""Settings of a whole real server that a study changes: in force, put back, and never changed where they could not be."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgdyno.errors import HostError, PgdynoError, SpecError, StepFailedError
from pgdyno.facts.gucs import is_quoted_list
from pgdyno.plan.experiment import Variant
from pgdyno.record.machine.given_server import write_address
from pgdyno.run.change.changes import TuningState, UndoOutcome
from pgdyno.run.change.given import writer
from pgdyno.run.change.given.check import check_switch
from pgdyno.run.change.given.command import check_command_switch
from pgdyno.run.change.given.settings import HeldSettings, changing_settings
from pgdyno.run.change.given.target import GivenSwitch
from pgdyno.run.change.given.tuning import apply_given_tuning, prepare_tuning
from pgdyno.run.change.given.undo import restore_settings
from pgdyno.run.change.given.writer import connect_writer, name_writer
from pgdyno.run.change.journal import Journal
from pgdyno.run.change.server_conf import read_conf
from pgdyno.run.given.access import open_access
from pgdyno.run.host.process import find_server_user
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.spec.study import ServerKind, ServerSpec
from tests.rows import check_rows
from tests.shared import reachable_folder
from tests.sysctls import started_child
from tests.tools.pgcluster import PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
# One that sessions of superusers choose, too, and one that belongs to the server alone.
FAST = {"commit_delay": 1000, "bgwriter_delay": "20ms"}
SLOW = {"commit_delay": 2000, "bgwriter_delay": "30ms"}
GRANTS = """
GRANT ALTER SYSTEM ON PARAMETER commit_delay, bgwriter_delay TO plain;
GRANT SELECT ON pg_catalog.pg_file_settings TO plain;
GRANT EXECUTE ON FUNCTION pg_catalog.pg_show_all_file_settings() TO plain;
GRANT EXECUTE ON FUNCTION pg_catalog.pg_reload_conf() TO plain"""


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE plain LOGIN; CREATE ROLE poor LOGIN;" + GRANTS)
        yield made


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def address(cluster: Cluster) -> Iterator[Address]:
    """Of a server in whose postgresql.auto.conf somebody has set one of the two."""
    alter(cluster, "SET commit_delay = '7'")
    with reached(cluster) as made:
        yield made
    alter(cluster, "RESET commit_delay")


@contextlib.contextmanager
def reached(cluster: Cluster, user: str = "plain") -> Iterator[Address]:
    with open_access(f"host={cluster.root} port={PORT} user={user} dbname=postgres") as address:
        yield address


def alter(cluster: Cluster, words: str) -> None:
    cluster.sql(f"ALTER SYSTEM {words}")
    cluster.sql("SELECT pg_reload_conf()")
    # The postmaster reads the files first, and a session that it starts later begins with what it has read.
    name = words.split()[1]
    expected = words.partition("'")[2].rstrip("'")
    assert not expected or wait_until(lambda: cluster.sql(f"SHOW {name}") == expected)


def make_switch(address: Address, *settings: dict[str, str | int]) -> GivenSwitch:
    asked = settings or (FAST, SLOW)
    specs = [ServerSpec(kind=ServerKind.GIVEN, dsn="", settings={**one}) for one in asked]
    with sql.connect(address) as connection:
        identifier = str(sql.read_system_identifier(connection))
    return GivenSwitch(
        address=address,
        server=write_address(address.host, address.port),
        dsn="service=it",
        system_identifier=identifier,
        major=18,
        names=tuple(dict.fromkeys(name for one in asked for name in one)),
        variants=tuple(Variant(name=str(number), server=spec) for number, spec in enumerate(specs)),
    )


def change_and(act: Callable[[], None], address: Address, journal: Journal) -> None:
    with changing_settings(make_switch(address), journal=journal) as held:
        held.apply(FAST)
        act()


def raise_error(error: type[BaseException]) -> None:
    raise error


def conf(cluster: Cluster) -> dict[str, str]:
    return read_conf((cluster.data / "postgresql.auto.conf").read_bytes())


def shown(cluster: Cluster) -> tuple[str, ...]:
    return tuple(cluster.sql(f"SHOW {name}") for name in FAST)


def test_a_change_is_in_force_when_it_returns_and_all_is_put_back(
    cluster: Cluster, address: Address, journal: Journal
) -> None:
    switch = make_switch(address, FAST, SLOW, {"commit_delay": 3000})
    before = (cluster.data / "postgresql.auto.conf").read_bytes()
    with changing_settings(switch, journal=journal) as held, sql.connect(address) as connection:
        changer = held.open(connection)
        seen = []
        for number in (0, 1, 1, 2, 0):
            changer.change(switch.variants[number])
            seen.append(tuple(sql.read_setting(connection, name) for name in FAST))
        assert seen == [("1000", "20ms"), ("2000", "30ms"), ("2000", "30ms"), ("3000", "200ms"), ("1000", "20ms")]
        assert [(one.what, one.old_text, one.old_value) for one in journal.read_settings()] == [
            ("commit_delay", "7", "7"),
            ("bgwriter_delay", None, "200ms"),
        ]
        held.apply({"commit_delay": 2000})
        assert shown(cluster) == ("2000", "200ms")
        assert held.common({**FAST, "work_mem": "5MB"}) == {"work_mem": "5MB"}
    assert (cluster.data / "postgresql.auto.conf").read_bytes() == before
    assert shown(cluster) == ("7", "200ms")
    assert journal.read_settings() == ()


@pytest.fixture
def timed(cluster: Cluster) -> Iterator[str]:
    """The name of an extension's setting in ms, with which the role's sessions begin, and which somebody has set."""
    name = "auto_explain.log_min_duration"
    # Only sessions that have it may set it in version 15.
    cluster.sql(
        f"ALTER ROLE ALL SET session_preload_libraries = 'auto_explain'; GRANT ALTER SYSTEM ON PARAMETER {name} TO plain"
    )
    cluster.sql(f"ALTER SYSTEM SET {name} = '60000'")
    cluster.sql("SELECT pg_reload_conf()")
    assert wait_until(lambda: cluster.sql(f"SHOW {name}") == "1min")
    yield name
    alter(cluster, f"RESET {name}")
    cluster.sql(f"ALTER ROLE ALL RESET ALL; REVOKE ALTER SYSTEM ON PARAMETER {name} FROM plain")


def test_values_of_an_extension_in_other_units(cluster: Cluster, timed: str, journal: Journal) -> None:
    before = conf(cluster)
    with reached(cluster) as address:
        with changing_settings(make_switch(address, {timed: 1000}, {timed: "2000ms"}), journal=journal) as held:
            held.apply({timed: 1000})
            assert conf(cluster)[timed] == "1000"
            held.apply({timed: "2000ms"})
        assert conf(cluster) == before
        apply_given_tuning(prepare_tuning(make_switch(address), {timed: "3000"}), journal=journal)
        assert conf(cluster)[timed] == "3000"
        with sql.connect(address) as connection:
            restore_settings(connection, journal)
    assert conf(cluster) == before


def test_an_error_and_ctrl_c_put_back_too(cluster: Cluster, address: Address, journal: Journal) -> None:
    def end(error: type[BaseException]) -> None:
        before = conf(cluster)
        with pytest.raises(error):
            change_and(lambda: raise_error(error), address, journal)
        assert (conf(cluster), shown(cluster), journal.read_settings()) == (before, ("7", "200ms"), ())

    check_rows([KeyboardInterrupt, ValueError], end)


def test_nothing_is_changed_after_it_was_put_back(cluster: Cluster, address: Address, journal: Journal) -> None:
    """As a thread would that nobody waited for."""
    switch = make_switch(address)
    with sql.connect(address) as connection:
        with changing_settings(switch, journal=journal) as held:
            changer = held.open(connection)
        with pytest.raises(StepFailedError, match="put back already"):
            changer.change(switch.variants[0])
    assert shown(cluster) == ("7", "200ms")


def test_what_somebody_else_sets_meanwhile_stays(cluster: Cluster, address: Address, journal: Journal) -> None:
    said: list[str] = []
    with changing_settings(make_switch(address), journal=journal, say=said.append) as held:
        held.apply(FAST)
        cluster.sql("ALTER SYSTEM SET bgwriter_delay = '55ms'")
    assert shown(cluster) == ("7", "55ms")
    (words,) = said
    assert f"bgwriter_delay of {cluster.root}, port {PORT}: somebody else has set it to 55ms since" in words
    assert journal.read_settings() == ()
    alter(cluster, "SET bgwriter_delay = '200ms'")
    cluster.sql("ALTER SYSTEM RESET bgwriter_delay")


def test_a_server_that_is_gone_at_the_end_is_put_back_later(cluster: Cluster, journal: Journal) -> None:
    with reached(cluster) as address:
        before = conf(cluster)
        with pytest.raises(StepFailedError):
            change_and(cluster.stop, address, journal)
        cluster.start()
        assert shown(cluster) == ("1000", "20ms")
        with pytest.raises(HostError, match="another pgdyno changes commit_delay, bgwriter_delay"):
            changing_settings(make_switch(address), journal=journal).__enter__()
        with sql.connect(address) as connection, pytest.raises(HostError, match="a measurement holds"):
            restore_settings(connection, journal)
        with journal.open() as page:
            # As if this process had been killed.
            gone = [replace(one, owner=replace(one.owner, pid=1)) for one in page.settings]
            page.write_settings(gone)
        with sql.connect(address) as connection:
            undone = restore_settings(connection, journal)
        assert {one.outcome for one in undone} == {UndoOutcome.UNDONE}
        assert (conf(cluster), shown(cluster)) == (before, ("0", "200ms"))
        assert journal.read_settings() == ()


def test_restoring_waits_for_the_session_of_a_killed_pgdyno(
    cluster: Cluster, address: Address, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldSettings(make_switch(address), journal, print)
    held.begin()
    with journal.open() as page:
        # As if this process had been killed.
        gone = [replace(one, owner=replace(one.owner, pid=1)) for one in page.settings]
        page.write_settings(gone)
    monkeypatch.setattr(writer, "ENDS_WITHIN_S", 0.2)
    with sql.connect(address) as connection:
        with sql.connect(address, application_name=name_writer(gone[0].owner)) as last:
            with pytest.raises(StepFailedError, match="could change settings once more") as caught:
                restore_settings(connection, journal)
            assert journal.read_settings() == tuple(gone)
            # What the error advises; this role may do it.
            connection.execute(caught.value.hint.split("`")[1])
            with pytest.raises(psycopg.OperationalError):
                last.execute("SELECT")
        monkeypatch.undo()
        assert {one.outcome for one in restore_settings(connection, journal)} == {UndoOutcome.UNNEEDED}
    assert shown(cluster) == ("7", "200ms")


@pytest.mark.parametrize("is_tuning", [False, True])
def test_what_ctrl_c_left_at_the_server_is_waited_for(
    cluster: Cluster, address: Address, journal: Journal, monkeypatch: pytest.MonkeyPatch, *, is_tuning: bool
) -> None:
    """A session of this process stands for the statement that the server still executes."""
    said: list[str] = []

    def act() -> None:
        if not is_tuning:
            change_and(lambda: None, address, journal)
            return
        prepared = prepare_tuning(make_switch(address), tuned(FAST))
        broken = replace(prepared.changes[1], new_texts=("never",))
        prepared = replace(prepared, changes=(prepared.changes[0], broken))
        apply_given_tuning(prepared, journal=journal, say=said.append)

    monkeypatch.setattr(writer, "ENDS_WITHIN_S", 0.2)
    with connect_writer(address), pytest.raises(StepFailedError) as caught:
        act()
    assert "could change settings once more" in (said[0] if is_tuning else caught.value.fact)
    assert shown(cluster)[0] == ("7" if is_tuning else "1000")
    assert len(journal.read_settings()) == 2
    monkeypatch.undo()
    with journal.open() as page:
        page.write_settings([replace(one, owner=replace(one.owner, pid=1)) for one in page.settings])
    with sql.connect(address) as connection:
        restore_settings(connection, journal)
    assert shown(cluster) == ("7", "200ms")


_CHANGER = """
import random, signal
random.seed({seed})
os.environ["XDG_STATE_HOME"] = {folder!r}
with open_access({dsn!r}) as address:
    for number in range({kills}):
        child = os.fork()
        if child == 0:
            switch = make_switch(address)
            with changing_settings(switch) as held, sql.connect(address) as connection:
                changer = held.open(connection)
                while True:
                    for variant in switch.variants:
                        changer.change(variant)
        wait_to_kill(address, 0.3, is_last=number == {kills} - 1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with sql.connect(address) as connection:
            held = len(own_journal().read_settings())
            outcomes = [one.outcome.value for one in restore_settings(connection, own_journal())]
            texts = sql.read_auto_conf(connection, ["commit_delay", "bgwriter_delay"])
            values = [sql.read_setting(connection, name) for name in ("commit_delay", "bgwriter_delay")]
        print(held, *outcomes, texts, values, sep=" | ", flush=True)
"""


def wait_to_kill(address: Address, most_s: float, *, is_last: bool) -> None:
    """Wait for a random time; the last of many kills, until something is changed: on a busy machine none may be otherwise."""
    if not is_last:
        time.sleep(random.uniform(0.0, most_s))
        return
    with sql.connect(address) as connection:
        assert wait_until(lambda: sql.read_auto_conf(connection, ["commit_delay"]) != {"commit_delay": "7"})


def kill_and_restore(cluster: Cluster, code: str, *, kills: int) -> None:
    """Run one of the programs that are killed, as an ordinary account with a journal of its own."""
    user = find_server_user()
    before = (cluster.data / "postgresql.auto.conf").read_bytes()
    imports = """
from pgdyno.run.given.access import open_access
from pgdyno.facts.gucs import same_value
from tests.run.test_given_settings import *
same_value("commit_delay", "1", "1", 18)
"""
    with reachable_folder() as folder:
        os.chown(folder, user.uid, user.gid)
        dsn = f"host={cluster.root} port={PORT} user=plain dbname=postgres"
        code = code.format(folder=str(folder), dsn=dsn, kills=kills, seed=cluster.version_major)
        with started_child(code, journal=folder, as_user=True, imports=imports) as child:
            out, err = child.communicate()
        assert child.returncode == 0, err
        lines = out.splitlines()
        assert len(lines) == kills, err
        for line in lines:
            assert line.endswith("{'commit_delay': '7'} | ['7', '200ms']"), line
            assert "left" not in line
        assert any("undone" in line for line in lines)
        assert not (folder / "pgdyno-journal/changes.json").exists()
    assert (cluster.data / "postgresql.auto.conf").read_bytes() == before


@pytest.mark.usefixtures("address")
def test_an_ordinary_account_that_is_killed_puts_back_by_its_own_journal(cluster: Cluster) -> None:
    kill_and_restore(cluster, _CHANGER, kills=12)


_TUNER = """
import random, signal
random.seed({seed})
os.environ["XDG_STATE_HOME"] = {folder!r}
with open_access({dsn!r}) as address:
    target = make_switch(address)
    for number in range({kills}):
        child = os.fork()
        if child == 0:
            while True:
                for settings in (FAST, SLOW):
                    apply_given_tuning(prepare_tuning(target, {{name: str(text) for name, text in settings.items()}}))
        wait_to_kill(address, 0.2, is_last=number == {kills} - 1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with sql.connect(address) as connection:
            states = [one.tuning.value for one in own_journal().read_settings()]
            outcomes = [one.outcome.value for one in restore_settings(connection, own_journal())]
            texts = sql.read_auto_conf(connection, ["commit_delay", "bgwriter_delay"])
            values = [sql.read_setting(connection, name) for name in ("commit_delay", "bgwriter_delay")]
        print(*states, *outcomes, texts, values, sep=" | ", flush=True)
"""


@pytest.mark.usefixtures("address")
def test_tunings_one_after_another_that_are_killed_go_back_to_before_the_first(cluster: Cluster) -> None:
    kill_and_restore(cluster, _TUNER, kills=16)


def tuned(settings: dict[str, str | int]) -> dict[str, str]:
    return {name: str(text) for name, text in settings.items()}


def test_a_second_tuning_and_a_study_on_top_of_it(cluster: Cluster, address: Address, journal: Journal) -> None:
    before, target = (cluster.data / "postgresql.auto.conf").read_bytes(), make_switch(address)
    apply_given_tuning(prepare_tuning(target, tuned(SLOW)), journal=journal)
    apply_given_tuning(prepare_tuning(target, {"commit_delay": "60"}), journal=journal)
    assert {(one.what, one.old_text, one.new_texts, one.tuning) for one in journal.read_settings()} == {
        ("commit_delay", "7", ("2000", "60"), TuningState.APPLIED),
        ("bgwriter_delay", None, ("30ms",), TuningState.APPLIED),
    }
    change_and(lambda: None, address, journal)
    assert shown(cluster) == ("60", "30ms")
    assert len(journal.read_settings()) == 2
    with pytest.raises(StepFailedError):
        change_and(cluster.stop, address, journal)
    cluster.start()
    with pytest.raises(HostError, match="changes commit_delay, bgwriter_delay of this server, or left it changed"):
        apply_given_tuning(prepare_tuning(target, {"commit_delay": "61"}), journal=journal)
    with journal.open() as page:
        page.write_settings([replace(one, owner=replace(one.owner, pid=1)) for one in page.settings])
    with sql.connect(address) as connection:
        undone = restore_settings(connection, journal)
    assert [(one.change.what, one.outcome) for one in undone] == [
        (name, UndoOutcome.UNDONE) for name in ("commit_delay", "bgwriter_delay") * 2
    ]
    assert ((cluster.data / "postgresql.auto.conf").read_bytes(), shown(cluster)) == (before, ("7", "200ms"))
    assert journal.read_settings() == ()


def test_what_somebody_else_has_set_between_two_tunings_is_what_the_second_goes_back_to(
    cluster: Cluster, address: Address, journal: Journal
) -> None:
    target = make_switch(address)
    apply_given_tuning(prepare_tuning(target, tuned(FAST)), journal=journal)
    alter(cluster, "SET commit_delay = '8'")
    apply_given_tuning(prepare_tuning(target, {"commit_delay": "60"}), journal=journal)
    with sql.connect(address) as connection:
        restore_settings(connection, journal)
    assert (conf(cluster), shown(cluster)) == ({"commit_delay": "8"}, ("8", "200ms"))


def test_a_tuning_that_fails_leaves_everything_as_it_was(cluster: Cluster, address: Address, journal: Journal) -> None:
    before, target = (cluster.data / "postgresql.auto.conf").read_bytes(), make_switch(address)
    said: list[str] = []
    prepared = prepare_tuning(target, tuned(FAST))
    broken = replace(prepared.changes[1], new_texts=("never",))
    with pytest.raises(StepFailedError):
        apply_given_tuning(replace(prepared, changes=(prepared.changes[0], broken)), journal=journal, say=said.append)
    assert said == ["everything is as it was before"]
    alter(cluster, "SET commit_delay = '9'")
    with pytest.raises(HostError, match="have changed since you were asked"):
        apply_given_tuning(prepared, journal=journal, say=said.append)
    alter(cluster, "SET commit_delay = '7'")
    assert len(said) == 1
    assert ((cluster.data / "postgresql.auto.conf").read_bytes(), journal.read_settings()) == (before, ())


def test_what_a_tuning_leaves_out(cluster: Cluster, address: Address) -> None:
    asked = {"shared_buffers": "1GB", "fsync": "on", "nothing.such": "1", "work_mem": "5MB", "commit_delay": "60"}
    cluster.sql("ALTER SYSTEM SET bgwriter_delay = '50ms'")
    prepared = prepare_tuning(make_switch(address), {**asked, "bgwriter_delay": "20ms"})
    cluster.sql("ALTER SYSTEM RESET bgwriter_delay")
    assert prepared.settings == {"commit_delay": "60"}
    left_out = {name: (one.what, one.reason) for one in prepared.left_out for name in one.names}
    assert left_out["shared_buffers"][0] == "takes a restart"
    assert "command line" in left_out["fsync"][1]
    assert "does not see it" in left_out["nothing.such"][1]
    assert "GRANT ALTER SYSTEM ON PARAMETER work_mem TO plain" in left_out["work_mem"][1]
    assert "waits for a reload" in left_out["bgwriter_delay"][1]
    with reached(cluster, "poor") as poor, pytest.raises(SpecError, match="may not change") as caught:
        prepare_tuning(replace(make_switch(address), address=poor), asked)
    assert "GRANT ALTER SYSTEM ON PARAMETER work_mem, commit_delay TO poor" in caught.value.hint


def test_the_lists_are_those_that_the_server_quotes(cluster: Cluster) -> None:
    query = "SELECT name FROM pg_settings WHERE vartype = 'string' AND context <> 'internal'"
    with reached(cluster, "postgres") as chief, sql.connect(chief) as connection:
        names = [row["name"] for row in connection.execute(query)]
        for name in names:
            # Some take no such value.
            with contextlib.suppress(StepFailedError):
                sql.alter_system(connection, name, "a, b")
        quoted = {name for name, text in conf(cluster).items() if text == '"a, b"'}
        connection.execute("ALTER SYSTEM RESET ALL")
    assert quoted == {name for name in names if is_quoted_list(name)}


def test_what_cannot_be_put_back_is_not_changed(cluster: Cluster, address: Address, journal: Journal) -> None:
    def refuse(row: tuple[dict[str, str | int], str, str, str]) -> None:
        settings, before, after, words = row
        if before:
            cluster.sql(before)
        try:
            with reached(cluster) as fresh, pytest.raises(PgdynoError) as caught:
                check_switch(make_switch(fresh, settings))
            assert words in f"{caught.value.fact} {caught.value.detail} {caught.value.hint}"
        finally:
            if after:
                cluster.sql(after)

    rows = [
        ({"shared_buffers": "1GB"}, "", "", "takes a restart, which pgdyno does not do"),
        ({"fsync": "on"}, "", "", "command line"),
        ({"archive_command": "true"}, "", "", "may hold a password"),
        ({"restore_command": "true"}, "", "", "may hold a password"),
        ({"search_path": "a, b"}, "", "", "--design paired"),
        ({"local_preload_libraries": ""}, "", "", "is a list that ALTER SYSTEM does not write as it was"),
        (FAST, "ALTER ROLE plain SET commit_delay = 5", "ALTER ROLE plain RESET ALL", "its source is: user"),
        (FAST, "ALTER SYSTEM SET commit_delay = 9", "ALTER SYSTEM SET commit_delay = '7'", "waits for a reload"),
        ({"wal_compression": "on"}, "", "", "GRANT ALTER SYSTEM ON PARAMETER wal_compression TO plain"),
        ({"wal_compression": "on"}, "", "", "GRANT SET ON PARAMETER wal_compression TO plain"),
        ({"bgwriter_lru_maxpages": 5}, "", "", "GRANT ALTER SYSTEM ON PARAMETER bgwriter_lru_maxpages TO plain"),
    ]
    check_rows(rows, refuse)
    with pytest.raises(SpecError, match="may not change") as caught:
        check_switch(make_switch(address), lacking=["GRANT one", "GRANT two"])
    assert "by: GRANT one; GRANT two" in caught.value.hint
    unknown = replace(make_switch(address), system_identifier="")
    for check in (check_switch, check_command_switch, lambda switch: prepare_tuning(switch, tuned(FAST))):
        with pytest.raises(SpecError, match="does not see which server it is"):
            check(unknown)
    assert not journal.folder.exists()
