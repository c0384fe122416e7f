"""What real servers say to settings before they are started with them, and that it is what they do when they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.record.machine.preflight import ServerOrigin
from pgdyno.run.cluster import settings_check
from pgdyno.run.cluster.settings_check import count_huge_pages, shaping_settings, start_empty
from pgdyno.run.given.data_folder import find_data_folder
from pgdyno.run.given.state import read_server_state
from pgdyno.run.host.stale import name_of_this_process
from pgdyno.run.postgres.installation import Installation, read_server_facts
from tests.shared import name_of_process
from tests.tools.pgcluster import Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        yield made


def installation_of(cluster: Cluster) -> Installation:
    return Installation(bindir=cluster.bin_directory, facts=read_server_facts(cluster.bin_directory, user=cluster.user))


def count(cluster: Cluster, settings: dict[str, str], control_file: Path | None = None) -> int:
    pages = count_huge_pages(installation_of(cluster), settings, user=cluster.user, control_file=control_file)
    assert pages is not None
    return pages


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place in memory of this test's own: in the machine's own others try their settings, too, and are killed."""
    # Short enough for a socket in a home of pgdyno's own there.
    with tempfile.TemporaryDirectory(prefix="test-", dir="/dev/shm") as folder:
        place = Path(folder)
        place.chmod(0o711)
        for name in ("_IN_MEMORY", "_ON_DISK"):
            monkeypatch.setattr(settings_check, name, folder)
        yield place
        assert not list(place.iterdir()), "nothing is left of what was tried"


def test_no_link_is_followed_to_a_control_file(cluster: Cluster, tmp_path: Path) -> None:
    """Root reads it for the server's account, which may have put the link there."""
    link = tmp_path / "pg_control"
    link.symlink_to(cluster.data / "global/pg_control")
    with pytest.raises(HostError, match="cannot try the settings"):
        count(cluster, {}, link)
    assert count(cluster, {}, cluster.data / "global/pg_control") > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_are_given_away_from_below_and_never_through_a_link(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    chown, given = os.chown, list[Path]()

    def look(path: Path, uid: int, gid: int, **words: bool) -> None:
        assert not words["follow_symlinks"]
        assert not [one for one in given if one in path.parents], "its folder is the account's already"
        given.append(path)
        chown(path, uid, gid, **words)

    monkeypatch.setattr(os, "chown", look)
    count(cluster, {})
    assert given[-1].name == "data"


def test_the_count_is_what_a_server_with_these_settings_has(cluster: Cluster) -> None:
    wanted = {"shared_buffers": "300MB", "max_connections": "150"}
    current = read_server_state(find_data_folder(cluster.data, bindir=cluster.bin_directory)).look.settings
    shaping = shaping_settings(current, cluster.version_major)
    assert "wal_buffers" not in shaping, "the server has chosen it by its shared_buffers"
    assert "data_directory" not in shaping
    pages = count(cluster, {**shaping, **wanted}, cluster.data / "global/pg_control")
    cluster.stop()
    cluster.start(*(f"{name}={value}" for name, value in wanted.items()))
    assert int(cluster.sql("SHOW shared_memory_size_in_huge_pages")) == pages
    assert count(cluster, wanted) == pages, "a new cluster's control file makes no other server"
    cluster.stop()
    cluster.start()


def test_of_a_machine_that_is_not_here(cluster: Cluster) -> None:
    installation = installation_of(cluster)
    settings = {"shared_buffers": "200GB"}
    small = count_huge_pages(installation, settings, user=cluster.user, huge_page_bytes=2 * 1024**2)
    large = count_huge_pages(installation, settings, user=cluster.user, huge_page_bytes=1024**3)
    assert small is not None
    assert large is not None
    assert small > 100 * 1024
    assert 200 < large < 220


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"wal_compression": "zip"}, 'invalid value for parameter "wal_compression": "zip"'),
        ({"wal_compresion": "on"}, "wal_compresion"),
        ({"superuser_reserved_connections": "100"}, "must be less than"),
        ({"wal_level": "minimal"}, "max_wal_senders"),
        ({"shared_preload_libraries": "no_such_library"}, "no_such_library"),
    ],
)
def test_what_it_refuses(cluster: Cluster, settings: dict[str, str], words: str) -> None:
    with pytest.raises(SpecError, match="refuses the settings") as error:
        count(cluster, settings)
    assert words in error.value.detail
    assert "GMT" not in error.value.detail, "its words, without what its log puts before them"


def test_what_a_killed_pgdyno_has_left_is_removed(cluster: Cluster, places: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    kept = places / f"{name_of_this_process('pgdyno-tune-')}aa"
    removed = places / f"{name_of_process('pgdyno-tune-', gone.pid)}aa"
    for folder in (kept, removed):
        (folder / "data").mkdir(parents=True)
    count(cluster, {})
    assert list(places.iterdir()) == [kept]
    shutil.rmtree(kept)


def test_a_start_on_an_empty_cluster(cluster: Cluster) -> None:
    assert start_empty(installation_of(cluster), {"shared_buffers": "64MB", "huge_pages": "on"}, user=cluster.user)
    with pytest.raises(SpecError, match="the server refuses a setting"):
        start_empty(installation_of(cluster), {"max_wal_size": "1kB"}, user=cluster.user)


def test_a_start_where_the_memory_is_in_use(cluster: Cluster) -> None:
    # No machine of ours has as much.
    large = {"shared_buffers": "900GB"}
    assert not start_empty(installation_of(cluster), {**large, "work_mem": "9MB"}, user=cluster.user)
    with pytest.raises(SpecError, match="the server refuses a setting"):
        start_empty(installation_of(cluster), {**large, "max_wal_size": "1kB"}, user=cluster.user)
    # Few buffers are not all that it may want memory for.
    with pytest.raises(StepFailedError, match="does not start"):
        start_empty(installation_of(cluster), {**large, "min_dynamic_shared_memory": "900GB"}, user=cluster.user)


def test_settings_of_a_server_that_runs_and_of_one_that_does_not(cluster: Cluster) -> None:
    extra = cluster.data / "extra.conf"
    extra.write_text("Work_Mem = '7MB' # mine\n", encoding="utf-8")
    shutil.chown(extra, cluster.user.uid, cluster.user.gid)
    with (cluster.data / "postgresql.conf").open("a", encoding="utf-8") as config:
        config.write("include 'extra.conf'\nrandom_page_cost = 2\n")
    cluster.sql("ALTER SYSTEM SET random_page_cost = 1.5")
    cluster.stop()
    cluster.start()
    folder = find_data_folder(cluster.data, bindir=cluster.bin_directory)
    asked = read_server_state(folder)
    assert asked.look.origin is ServerOrigin.RUNNING
    assert (asked.look.settings["work_mem"], asked.look.settings["random_page_cost"]) == ("7168", "1.5")
    assert 15 * 1024**2 < asked.data_bytes < 200 * 1024**2
    cluster.run("pg_ctl", "-D", str(cluster.data), "-m", "fast", "-w", "-s", "stop")
    try:
        told = read_server_state(find_data_folder(cluster.data, bindir=cluster.bin_directory))
    finally:
        cluster.start()
        cluster.sql("ALTER SYSTEM RESET ALL")
    assert told.look.origin is ServerOrigin.FILES
    assert told.unseen == ()
    assert (told.look.settings["work_mem"], told.look.settings["random_page_cost"]) == ("7168", "1.5")
    # What stands in no file is as it is built in, and not asked for one by one.
    assert "maintenance_work_mem" not in told.look.settings
    assert told.data_bytes == pytest.approx(asked.data_bytes, rel=0.2)
    assert told.wal_bytes >= 16 * 1024**2
    assert {"work_mem", "random_page_cost"} <= asked.set_names & told.set_names
    assert not {"maintenance_work_mem", "wal_buffers"} & (asked.set_names | told.set_names)


def test_what_waits_for_a_restart_is_not_what_the_server_keeps(cluster: Cluster) -> None:
    folder = find_data_folder(cluster.data, bindir=cluster.bin_directory)
    assert read_server_state(folder).waiting_names == frozenset()
    cluster.sql("ALTER SYSTEM SET max_connections = 77")
    cluster.sql("SELECT pg_reload_conf()")
    try:
        assert wait_until(lambda: read_server_state(folder).waiting_names == {"max_connections"})
    finally:
        cluster.sql("ALTER SYSTEM RESET max_connections")
        cluster.sql("SELECT pg_reload_conf()")
