"""`tune --apply --dsn` and `restore --dsn`, as a user runs them: asked for, verified, put back, and killed at any instant."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgdyno.run.change.changes import ApplyCommand, SettingChange
from pgdyno.run.change.journal import Journal
from pgdyno.run.host.process_id import ProcessId, this_process
from tests.cli.test_compare_given import SECRET, VALUES, dsn, on_15, on_18, run, start
from tests.run.test_privileges import pooling
from tests.shared import make_folder
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
NAMES = ("max_wal_size", "checkpoint_timeout", "random_page_cost")
# With data of this size another checkpoint_timeout is derived than the one that is set.
HOST = ("--host", "r8g.2xlarge", "--dataset", "20GB")


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE chief LOGIN SUPERUSER; CREATE ROLE plain LOGIN")
        # One of another's that pgdyno does not derive, and two that it does, in an order of its own.
        for words in ("array_nulls = off", "random_page_cost = '3.5'", "checkpoint_timeout = '7min'"):
            made.sql(f"ALTER SYSTEM SET {words}")
        reload(made, "checkpoint_timeout", "7min")
        yield made


def reload(cluster: Cluster, name: str, value: str) -> None:
    """Reload, and wait until new sessions have this value."""
    cluster.sql("SELECT pg_reload_conf()")
    assert wait_until(lambda: cluster.sql(f"SHOW {name}") == value)


def conf(cluster: Cluster) -> bytes:
    return (cluster.data / "postgresql.auto.conf").read_bytes()


def values(cluster: Cluster) -> list[str]:
    return cluster.sql(
        "SELECT name, setting, source FROM pg_settings WHERE name NOT LIKE '%pid%' ORDER BY name"
    ).splitlines()


def tune(cluster: Cluster, *words: str, user: str = "chief") -> tuple[str, ...]:
    # Other tests' servers do not make this one busy, and its own workers may.
    return ("tune", "--dsn", dsn(cluster, user), *HOST, "--apply", "--allow", "busy", *words)


def note(server: str, *, dsn: str, owner: ProcessId) -> SettingChange:
    """Return what a study notes of a setting that it changes."""
    return SettingChange(
        what="work_mem",
        server=server,
        dsn=dsn,
        system_identifier="6",
        old_text=None,
        old_value="4MB",
        new_texts=("8MB",),
        at="2026-01-01T00:00:00+00:00",
        owner=owner,
    )


def journals(folder: Path) -> list[Path]:
    return list((folder / "state").rglob("changes.json"))


@on_15
def test_a_superuser_applies_and_restores_to_the_byte(cluster: Cluster, tmp_path: Path) -> None:
    before, shown = conf(cluster), values(cluster)
    code, _, said = run(tmp_path, *tune(cluster))
    assert (code, "nothing was changed" in said, "add --yes" in said) == (2, True, True), said
    assert (conf(cluster), journals(tmp_path)) == (before, [])
    code, out, said = run(tmp_path, *tune(cluster, "--yes", "--json"))
    assert code == 0, said
    done = json.loads(out)
    assert set(NAMES) <= done["settings"].keys()
    restarting = next(one for one in done["left_out"] if one["what"] == "takes a restart")
    assert "shared_buffers" in restarting["names"]
    assert "restore --dsn 'user=chief" in re.sub(r"\s+", " ", said)
    for name in done["settings"]:
        assert f"note: {name} of the whole server changes to " in said
    assert {cluster.sql(f"SELECT source FROM pg_settings WHERE name = '{name}'") for name in done["settings"]} == {
        "configuration file"
    }
    (journal,) = journals(tmp_path)
    assert SECRET not in journal.read_text()
    code, out, said = run(tmp_path, "restore")
    assert (code, "max_wal_size" in out, out.count("restore --dsn 'user=chief")) == (1, True, 2), out + said
    assert "in use" not in out
    again = run(tmp_path, *tune(cluster, "--yes"))
    assert (again[0], "takes a restart" in again[1]) == (0, True), again[2]
    code, out, said = run(tmp_path, "restore", "--dsn", dsn(cluster, "chief"))
    assert (code, "put back to 7min" in out) == (0, True), out + said
    assert (conf(cluster), values(cluster), journals(tmp_path)) == (before, shown, [])


@on_18
def test_what_takes_a_restart_is_kept_and_the_rest_fits_it(cluster: Cluster, tmp_path: Path) -> None:
    """A hundred sessions may come, whatever max_connections would be after a restart."""
    assert cluster.sql("SHOW max_connections") == "100"
    present, many = ("max_connections=100", "shared_buffers=128MB"), ("--set", "max_connections=5000")
    code, out, said = run(tmp_path, *tune(cluster, *many, "--yes", "--json"))
    assert code == 0, said
    done = json.loads(out)
    (restarting,) = (one for one in done["left_out"] if one["what"] == "takes a restart")
    assert {"max_connections", "shared_buffers"} <= set(restarting["names"])
    chief = dsn(cluster, "chief")
    words = [word for one in present for word in ("--set", one)]
    derived = []
    for more in (words, many):
        code, out, said = run(tmp_path, "tune", "--dsn", chief, *HOST, *more, "--form", "conf")
        assert code == 0, said
        derived += re.findall(r"^work_mem = '?(\w+)", out, re.MULTILINE)
    assert (done["settings"]["work_mem"], derived[0] != derived[1]) == (derived[0], True)
    assert run(tmp_path, "restore", "--dsn", chief)[0] == 0


@on_15
def test_a_server_with_large_wal_segments_starts_again(cluster: Cluster, tmp_path: Path) -> None:
    """A reload takes less than two segments, and the next start fails."""
    with running(cluster.version_major, initdb=("--wal-segsize=64",)) as large:
        few = ("--workload", "oltp-read", "--dataset", "100MB", "--yes")
        code, out, said = run(tmp_path, *tune(large, *few, "--set", "min_wal_size=80MB", user="postgres"))
        assert (code, "does not start" in said, "ask for 128MB" in said) == (2, True, True), out + said
        code, out, said = run(tmp_path, *tune(large, *few, user="postgres"))
        assert (code, large.sql("SHOW min_wal_size")) == (0, "128MB"), out + said
        large.stop()
        large.start()
        large.stop()
        # Its files say nothing of segments, and its program refuses less.
        code, out, said = run(tmp_path, "tune", "--pgdata", str(large.data), *few[:-1], "--set", "shared_buffers=64MB")
        assert (code, "min_wal_size" in out) == (0, True), out + said


def test_options_that_do_nothing_are_refused(tmp_path: Path) -> None:
    for words, said in (
        (("--allow", "wal=3GB"), "--allow wal=3GB is for a load"),
        (("--allow", "writes=mine"), "--allow writes=mine is for a load"),
        (("--form", "conf"), "--form conf does not go with --apply"),
    ):
        code, _, err = run(tmp_path, "tune", "--dsn", "host=/nowhere", *HOST, "--apply", *words)
        assert (code, said in err) == (2, True), err


@on_18
def test_a_role_with_exactly_the_printed_grants(cluster: Cluster, tmp_path: Path) -> None:
    before = conf(cluster)
    code, _, said = run(tmp_path, *tune(cluster, "--yes", user="plain"))
    hint = re.search(r"in database postgres, a superuser gives it by: (.*)", said)
    assert (code, hint is not None, conf(cluster)) == (2, True, before), said
    assert hint is not None
    for grant in hint[1].split("; "):
        code, _, said = run(tmp_path, *tune(cluster, "--yes", user="plain"))
        assert (code, grant in said) == (2, True), said
        cluster.sql(grant)
    code, out, said = run(tmp_path, *tune(cluster, "--yes", "--json", user="plain"))
    assert code == 0, said
    assert set(NAMES) <= json.loads(out)["settings"].keys()
    assert run(tmp_path, "restore", "--dsn", dsn(cluster, "plain"))[0] == 0
    assert conf(cluster) == before
    # Without one of them, the others are applied all the same.
    cluster.sql("REVOKE ALTER SYSTEM ON PARAMETER max_wal_size FROM plain")
    code, out, said = run(tmp_path, *tune(cluster, "--yes", "--json", user="plain"))
    done = json.loads(out)
    assert (code, "max_wal_size" in done["settings"], "checkpoint_timeout" in done["settings"]) == (0, False, True), (
        said
    )
    assert "GRANT ALTER SYSTEM ON PARAMETER max_wal_size TO plain" in said
    assert run(tmp_path, "restore", "--dsn", dsn(cluster, "plain"))[0] == 0
    assert conf(cluster) == before


@on_15
def test_what_somebody_else_sets_stays_and_is_told(cluster: Cluster, tmp_path: Path) -> None:
    before = conf(cluster)
    assert run(tmp_path, *tune(cluster, "--yes"))[0] == 0
    cluster.sql("ALTER SYSTEM SET checkpoint_timeout = '11min'")
    code, out, said = run(tmp_path, "restore", "--dsn", dsn(cluster, "chief"))
    assert (code, "somebody else has set it to 11min since" in out) == (0, True), out + said
    expected = before.replace(b"checkpoint_timeout = '7min'", b"checkpoint_timeout = '11min'")
    assert sorted(conf(cluster).splitlines()) == sorted(expected.splitlines())
    cluster.sql("ALTER SYSTEM SET checkpoint_timeout = '7min'")
    reload(cluster, "checkpoint_timeout", "7min")
    assert conf(cluster) == before


@on_18
def test_a_tuned_server_is_compared_and_still_goes_back(cluster: Cluster, tmp_path: Path) -> None:
    before, chief = conf(cluster), dsn(cluster, "chief")
    assert run(tmp_path, *tune(cluster, "--set", "commit_delay=30", "--yes"))[0] == 0
    tuned = conf(cluster)
    code, out, said = run(tmp_path, "check", "--dsn", chief)
    assert "journal of changes" not in out, said
    load = ("--workload", "select-only", "--scale", "1", "--clients", "1", "--warm-up", "0s", "--rate", "100")
    compare = ("compare", "--dsn", chief, *VALUES, *load, "--design", "switchback", "--minutes", "5", "--yes")
    child = start(tmp_path, *compare)
    assert wait_until(lambda: conf(cluster) != tuned or child.poll() is not None)
    assert child.poll() is None, child.communicate()
    code, _, said = run(tmp_path, *tune(cluster, "--yes"))
    assert (code, "at work in this server" in said or "changes settings of this server" in said) == (3, True), said
    child.kill()
    child.communicate()
    # The server's sessions of the killed study end by themselves.
    own = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgdyno%'"
    assert wait_until(lambda: cluster.sql(own) == "0")
    code, _, said = run(tmp_path, *tune(cluster, "--yes"))
    assert (code, "restore --dsn 'user=chief" in re.sub(r"\s+", " ", said)) == (3, True), said
    code, out, said = run(tmp_path, "restore", "--dsn", chief)
    assert (code, "put back to 0" in out) == (0, True), out + said
    assert (conf(cluster), journals(tmp_path)) == (before, [])
    assert run(tmp_path, "clean", "--dsn", chief, "--yes")[0] == 0


@on_15
def test_kill_9_between_two_changes(cluster: Cluster, tmp_path: Path) -> None:
    """At random instants: `tests/run/test_given_settings.py`."""
    before, shown = conf(cluster), values(cluster)
    for _ in range(20):
        with start(tmp_path, *tune(cluster, "--yes")) as child:
            assert wait_until(lambda child=child: conf(cluster) != before or child.poll() is not None, step_s=0)
            child.kill()
            _, said = child.communicate()
        if child.returncode != 0:
            break
        # All changes are made within a moment, in which this process may have slept.
        assert run(tmp_path, "restore", "--dsn", dsn(cluster, "chief"))[0] == 0
    assert child.returncode == -signal.SIGKILL, said
    code, out, said = run(tmp_path, "restore", "--dsn", dsn(cluster, "chief"))
    assert (code, "put back to" in out, "somebody else" in out) == (0, True, False), out + said
    assert (conf(cluster), values(cluster), journals(tmp_path)) == (before, shown, [])


@on_15
def test_others_at_work_and_a_pooler(cluster: Cluster, tmp_path: Path) -> None:
    before = conf(cluster)
    words = ("tune", "--dsn", dsn(cluster, "chief"), *HOST, "--apply", "--yes")
    psql = [str(cluster.bin_directory / "psql"), "-X", "-h", str(cluster.root), "-p", str(PORT), "-U", "postgres"]
    sleep = "SELECT pg_sleep(3600)"
    with subprocess.Popen([*psql, "-d", "postgres", "-c", sleep], stderr=subprocess.DEVNULL) as sleeper:
        query = f"SELECT count(*) FROM pg_stat_activity WHERE query = '{sleep}'"
        assert wait_until(lambda: cluster.sql(query) != "0" or sleeper.poll() is not None)
        assert sleeper.poll() is None
        code, _, said = run(tmp_path, *words)
        cluster.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = '{sleep}'")
    assert (code, "Others are at work" in said, "--allow busy" in said) == (3, True, True), said
    with pooling(cluster, mode="transaction", database="*") as folder:
        pooled = f"host={folder} port={PORT} user=plain dbname=postgres"
        code, _, said = run(tmp_path, "tune", "--dsn", pooled, *HOST, "--apply", "--yes")
    assert (code, "through a pooler" in said) == (2, True), said
    assert (conf(cluster), journals(tmp_path)) == (before, [])


@on_18
def test_a_standby(cluster: Cluster, tmp_path: Path) -> None:
    # A copy of a stopped server that waits for WAL is a standby of nobody.
    with running(cluster.version_major) as made:
        made.stop()
        (made.data / "standby.signal").touch()
        os.chown(made.data / "standby.signal", made.user.uid, made.user.gid)
        made.start()
        before = conf(made)
        code, _, said = run(tmp_path, *tune(made, "--yes", user="postgres"))
        assert (code, "is a standby" in said, conf(made)) == (3, True, before), said


@contextlib.contextmanager
def cloned(cluster: Cluster) -> Iterator[Cluster]:
    """A standby from a copy of a stopped server, which has its system identifier: at another address, and of nobody."""
    root = make_folder()
    clone = dataclasses.replace(cluster, root=root)
    cluster.stop()
    try:
        shutil.copytree(cluster.data, clone.data, symlinks=True)
        (clone.data / "standby.signal").touch()
        clone.data.chmod(0o700)
        root.chmod(0o755)
        for path in (root, clone.data, *clone.data.rglob("*")):
            os.lchown(path, cluster.user.uid, cluster.user.gid)
        cluster.start()
        clone.start()
        yield clone
    finally:
        clone.stop()
        shutil.rmtree(root)


@on_15
def test_a_standby_and_a_clone_keep_what_waits_at_the_primary(cluster: Cluster, tmp_path: Path) -> None:
    with running(cluster.version_major) as primary:
        before = conf(primary)
        assert run(tmp_path, *tune(primary, "--yes", user="postgres"))[0] == 0
        tuned = conf(primary)
        (journal,) = journals(tmp_path)
        noted = journal.read_bytes()
        with cloned(primary) as clone:
            restore_clone = ("restore", "--dsn", dsn(clone, "postgres"))
            code, _, said = run(tmp_path, *restore_clone, "--yes")
            assert (code, f"{clone.root}, port {PORT} is a standby" in said) == (3, True), said
            assert (conf(clone), journal.read_bytes()) == (tuned, noted)
            clone.run("pg_ctl", "-D", str(clone.data), "-w", "-s", "promote")
            code, out, said = run(tmp_path, *restore_clone)
            assert (code, "put back to" in out, "nothing to undo" in out) == (0, False, True), out + said
            assert f"were changed in {primary.root}, port {PORT}: another server" in said
            assert "pgdyno restore --dsn 'user=postgres" in said
            # The primary answers, so that a yes to everything does not take its copy for it.
            code, out, said = run(tmp_path, *restore_clone, "--yes")
            assert (code, "put back to" in out, "nothing to undo" in out) == (0, False, True), out + said
            assert (conf(clone), journal.read_bytes()) == (tuned, noted)
            # Its own tuning goes back to what it had, and leaves the primary's alone.
            other = ("--set", "max_wal_size=3GB", "--yes")
            assert run(tmp_path, *tune(clone, *other, user="postgres"))[0] == 0
            code, out, said = run(tmp_path, *restore_clone)
            assert (code, "put back to" in out) == (0, True), out + said
            assert sorted(conf(clone).splitlines()) == sorted(tuned.splitlines())
            assert journal.read_bytes() == noted
            code, out, said = run(tmp_path, "restore", "--dsn", dsn(primary, "postgres"))
            assert (code, "put back to" in out, conf(primary), journals(tmp_path)) == (0, True, before, []), out + said


@on_18
def test_a_server_that_has_moved_is_put_back_on_request(cluster: Cluster, tmp_path: Path) -> None:
    with running(cluster.version_major) as old:
        before = conf(old)
        assert run(tmp_path, *tune(old, "--yes", user="postgres"))[0] == 0
        with cloned(old) as moved:
            moved.run("pg_ctl", "-D", str(moved.data), "-w", "-s", "promote")
            old.stop()
            tuned = conf(moved)
            code, out, said = run(tmp_path, "restore", "--dsn", dsn(moved, "postgres"))
            assert (code, "max_wal_size" in out, conf(moved) == tuned) == (1, True, True), out + said
            assert f"what was changed in {old.root}, port {PORT} waits" in said
            code, out, said = run(tmp_path, "restore", "--dsn", dsn(moved, "postgres"), "--yes")
            assert (code, "put back to" in out, conf(moved), journals(tmp_path)) == (0, True, before, []), out + said
            assert f"were changed in {old.root}, port {PORT}; this is {moved.root}, port {PORT}" in said


@on_18
def test_another_address_of_the_server_that_was_tuned(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody is asked: the address that was tuned answers, and it is the same server."""
    with running(cluster.version_major) as tuned:
        tuned.listen()
        before = conf(tuned)
        assert run(tmp_path, *tune(tuned, "--yes", user="postgres"))[0] == 0
        other = f"host={LOOPBACK} port={PORT} user=postgres dbname=postgres"
        code, out, said = run(tmp_path, "restore", "--dsn", other)
        assert (code, "put back to" in out, conf(tuned), journals(tmp_path)) == (0, True, before, []), out + said


@on_18
def test_a_server_that_is_gone_is_forgotten(cluster: Cluster, tmp_path: Path) -> None:
    with running(cluster.version_major) as gone:
        chosen = dsn(gone, "postgres")
        assert run(tmp_path, *tune(gone, "--set", "max_wal_size=3GB", "--yes", user="postgres"))[0] == 0
    (journal,) = journals(tmp_path)
    noted = journal.read_bytes()
    forget = f"restore --dsn 'user=postgres dbname=postgres host={gone.root} port={PORT}' --forget"
    code, out, said = run(tmp_path, "restore")
    assert (code, "or, if that server is" in out, "--forget" in out) == (1, True, True), out + said
    code, _, said = run(tmp_path, "restore", "--dsn", chosen)
    assert (code, "; or, if that server is gone, `" in said, forget in said) == (4, True, True), said
    code, _, said = run(tmp_path, "restore", "--dsn", chosen, "--forget")
    assert (code, "nothing was forgotten" in said, "max_wal_size" in said) == (2, True, True), said
    code, _, said = run(tmp_path, "restore", "--dsn", dsn(cluster, "chief"), "--forget", "--yes")
    assert (code, f"it has some of {gone.root}, port {PORT}: `" in said, forget in said) == (2, True, True), said
    assert journal.read_bytes() == noted
    # By another role's connection string.
    code, out, said = run(tmp_path, "restore", "--dsn", f"host={gone.root} port={PORT}", "--forget", "--yes")
    assert (code, said, journals(tmp_path)) == (0, "", []), out + said
    assert re.search(r"max_wal_size .* forgotten: it would have been put back to 1GB in", out), out
    code, out, _ = run(tmp_path, "restore")
    assert (code, "nothing to undo" in out) == (0, True), out
    code, _, said = run(tmp_path, "restore", "--dsn", chosen, "--forget")
    assert (code, "it has none of any server" in said) == (2, True), said


def test_what_a_running_pgdyno_holds_is_not_forgotten(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state/pgdyno-journal")
    held = note("db1:5432", dsn="host=db1", owner=this_process())
    # One that a command changes: without a server, it fails.
    other = note("/nowhere, port 5432", dsn="host=/nowhere", owner=replace(this_process(), pid=1))
    other = replace(other, system_identifier="7", command=ApplyCommand(argv=("false",), folder="/"))
    with journal.open() as page:
        page.write_settings((held, other))
    code, _, said = run(tmp_path, "restore", "--forget", "--yes")
    assert (code, "--forget goes with a given server" in said) == (2, True), said
    code, _, said = run(tmp_path, "restore", "--dsn", "host=db1", "--forget", "--yes")
    assert (code, "a measurement holds work_mem" in said) == (3, True), said
    assert journal.read_settings() == (held, other)
    code, _, said = run(tmp_path, "restore", "--dsn", "host=/nowhere")
    assert (code, "; or, if that server is gone, `" in said) == (4, True), said
    code, out, said = run(tmp_path, "restore", "--dsn", "host=/nowhere user=me", "--forget", "--yes", "--json")
    assert (code, journal.read_settings()) == (0, (held,)), said
    (undone,) = json.loads(out)["undone"]
    assert (undone["outcome"], undone["change"]["old_value"]) == ("forgotten", "4MB")


@on_15
def test_a_bound_that_gives_up_a_slot_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    cluster.sql("SELECT pg_create_physical_replication_slot('away', true)")
    try:
        cluster.sql("SELECT pg_logical_emit_message(false, 'x', repeat('x', 3000000))")
        before = conf(cluster)
        bound = ("--standbys", "1", "--set", "max_slot_wal_keep_size=1MB", "--no-kernel")
        local = ("tune", "--pgdata", str(cluster.data), *bound)
        words = re.compile(
            r"max_slot_wal_keep_size = 1MB gives up the replication slot away \([2-9](\.\d+)? MB behind, nothing is\s+connected to it\)"
        )
        for asked in (local, ("tune", "--dsn", dsn(cluster, "chief"), *HOST, *bound[:-1])):
            code, said, err = run(tmp_path, *asked)
            assert (code, bool(words.search(said))) == (0, True), said + err
            code, _, said = run(
                tmp_path, *asked, "--apply", "--yes", *(("--allow", "busy") if "--dsn" in asked else ())
            )
            assert (code, bool(words.search(said)), "pg_drop_replication_slot('away')" in said) == (3, True, True), said
            assert (conf(cluster), journals(tmp_path)) == (before, [])
        # What keeps more than the slot is behind gives nothing up.
        code, said, _ = run(tmp_path, *local[:-2], "max_slot_wal_keep_size=64MB", "--no-kernel")
        assert (code, "gives up the replication" in said) == (0, False), said
    finally:
        cluster.sql("SELECT pg_drop_replication_slot('away')")
