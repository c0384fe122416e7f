"""Settings applied to real servers and to this machine's kernel, seen to be in force, and undone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import HostError, PgdynoError, SpecError, StepFailedError
from pgdyno.flow.restore import restore_host
from pgdyno.run.change import prepare_apply as apply_look
from pgdyno.run.change import starter, sysctl, tuning_restore
from pgdyno.run.change.apply import Applied, apply_tuning
from pgdyno.run.change.changes import AppliedTuning, TuningState
from pgdyno.run.change.journal import Journal
from pgdyno.run.change.kernel import changed_sysctls, restore_left_overs
from pgdyno.run.change.prepare_apply import find_named_server, prepare_apply
from pgdyno.run.change.server_conf import read_conf
from pgdyno.run.change.sysfs import read_value
from pgdyno.run.change.tuning_restore import restore_tuning
from pgdyno.run.given.data_folder import find_strangers
from pgdyno.run.host import process
from pgdyno.run.host.process import find_server_user
from tests.applying import OLD_CONF, RELOADED, RESTARTED, SYSCTLS, SYSFS, Bench, kept_disk, some_bench
from tests.shared import reachable_folder
from tests.sysctls import SETTING, machine_settings, needs_proc_sys, read_sysctl, write
from tests.tools.pgcluster import PORT
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, needs_proc_sys]
THP = "kernel/mm/transparent_hugepage/enabled"


# What a server says of settings differs between the versions; how they are undone does not, and is tested on one of them.
@pytest.fixture(scope="module", params=[18, 15])
def whole_bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with some_bench(request.param, tmp_path_factory.mktemp("applying")) as made:
        yield made


@pytest.fixture
def bench(whole_bench: Bench) -> Iterator[Bench]:
    """Every test leaves everything as it was, by what it tests."""
    before = whole_bench.state()
    yield whole_bench
    assert whole_bench.state() == before
    assert whole_bench.is_forgotten()


def apply(bench: Bench, settings: dict[str, str], *, may_restart: bool = False, **kernel: dict[str, str]) -> Applied:
    return apply_tuning(bench.prepare(settings, **kernel), may_restart=may_restart, journal=bench.journal)


def restore(bench: Bench, *, may_restart: bool = False) -> dict[str, tuple[str, str]]:
    undone = restore_tuning(bench.journal, may_restart=may_restart)
    return {undo.change.what: (undo.outcome.value, undo.reason) for undo in undone}


def refusal(bench: Bench, settings: dict[str, str]) -> PgdynoError:
    with pytest.raises(PgdynoError) as caught:
        bench.prepare(settings)
    return caught.value


def change_tuning(journal: Journal, change: Callable[[AppliedTuning], AppliedTuning]) -> None:
    with journal.open() as page:
        assert page.tuning is not None
        page.write_tuning(change(page.tuning))


def killed(tuning: AppliedTuning) -> AppliedTuning:
    """As a pgdyno leaves it that was killed."""
    owner = msgspec.structs.replace(tuning.owner, start_ticks=1)
    return msgspec.structs.replace(tuning, state=TuningState.APPLYING, owner=owner)


class TestInForce:
    def test_all_of_it_and_back(self, bench: Bench) -> None:
        applied = apply(bench, {**RELOADED, **RESTARTED}, may_restart=True, sysctls=SYSCTLS, sysfs=SYSFS)
        assert applied.was_restarted
        assert (applied.waiting, applied.waiting_reason, applied.left_out) == ((), "", ())
        assert applied.settings == {**RELOADED, **RESTARTED}
        assert bench.show("shared_buffers", "max_connections", "work_mem") == ("48MB", "37", "12MB")
        assert bench.show("log_line_prefix") == ("it's %m",)
        assert {name: read_sysctl(name) for name in SYSCTLS} == SYSCTLS
        assert {name: read_value(name) for name in SYSFS} == SYSFS
        assert bench.sysctl_file.read_text().splitlines()[1:] == [
            f"{name} = {value}" for name, value in SYSCTLS.items()
        ]
        assert bench.conf.read_bytes().startswith(b"# by hand\nTimezone = 'UTC'\n\nwork_mem = '12MB'\n")

        # It stays: the next pgdyno does not take it for what a killed one has left.
        assert restore_left_overs(bench.journal) == ()
        assert bench.journal.read_tuning().state is TuningState.APPLIED
        assert read_sysctl(SETTING) == "1000"
        ended = restore(bench, may_restart=True)
        assert {outcome for outcome, _ in ended.values()} <= {"undone", "unneeded"}
        assert {reason for _, reason in ended.values()} == {""}

    def test_without_a_restart(self, bench: Bench) -> None:
        assert bench.prepare({**RELOADED, **RESTARTED, "max_wal_senders": "10"}).restarting == tuple(RESTARTED)
        applied = apply(bench, {**RELOADED, **RESTARTED})
        assert applied.waiting == tuple(RESTARTED)
        assert applied.waiting_reason == "none was asked for, which --restart does"
        assert applied.settings == RELOADED
        assert bench.show("work_mem", "max_connections") == ("12MB", "100")
        assert restore(bench) == {str(bench.cluster.data): ("undone", "")}

    def test_huge_pages_wait_as_long_as_the_server_holds_other_memory(self, bench: Bench) -> None:
        pool = "vm.nr_hugepages"
        with machine_settings(pool):
            wanted = str(int(read_sysctl(pool)) + 1)
            assert bench.prepare(RELOADED, sysctls={pool: wanted}).restarting == (pool,)
            applied = apply(bench, RESTARTED, sysctls={**SYSCTLS, pool: wanted})
            assert applied.waiting == (*RESTARTED, pool)
            assert applied.sysctls == SYSCTLS
            assert int(read_sysctl(pool)) == int(wanted) - 1
            # Its next boot begins with them.
            assert f"{pool} = {wanted}" in bench.sysctl_file.read_text().splitlines()
            assert f"sysctl -w {pool}={wanted}" in applied.remarks[0]
            assert restore(bench)[pool] == ("unneeded", "")

    def test_a_pool_alone_takes_a_restart_and_is_set_while_the_server_is_stopped(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A setting of a network of our own stands in for it: of this machine's memory nothing is taken.
        monkeypatch.setattr(sysctl, "_POOLS", {SETTING})
        doings: list[tuple[str, str]] = []
        prepared = bench.prepare({}, sysctls={SETTING: "1000"})
        applied = apply_tuning(
            prepared,
            may_restart=True,
            journal=bench.journal,
            on_activity=lambda activity: doings.append((activity, read_sysctl(SETTING))),
        )
        assert [one for one in doings if "server" in one[0]] == [
            ("stopping the server", "4096"),
            ("starting the server", "1000"),
        ]
        assert (applied.was_restarted, applied.waiting, applied.sysctls) == (True, (), {SETTING: "1000"})
        restore(bench)

    def test_a_pool_is_set_at_once_where_the_server_holds_its_memory_there(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sysctl, "_POOLS", {SETTING})
        monkeypatch.setattr(apply_look, "read_huge_pages", lambda pid: 2 * 1024**2)
        applied = apply(bench, RESTARTED, sysctls={SETTING: "1000"})
        assert (applied.waiting, applied.sysctls) == (tuple(RESTARTED), {SETTING: "1000"})
        restore(bench)

    def test_a_restart_for_nothing_is_none(self, bench: Bench) -> None:
        pid = bench.cluster.postmaster_pid
        assert not apply(bench, RELOADED, may_restart=True).was_restarted
        assert bench.cluster.postmaster_pid == pid
        restore(bench)

    def test_what_still_waits_after_its_undoing_is_kept_until_a_restart(self, bench: Bench) -> None:
        data = str(bench.cluster.data)
        apply(bench, {**RELOADED, **RESTARTED}, may_restart=True)
        owed = (
            "it runs with shared_buffers, max_connections as tuned until it is restarted,"
            " which `pgdyno restore --restart` does"
        )
        assert restore(bench) == {data: ("undone", owed)}
        # What it holds by now is another's to set.
        bench.cluster.sql("ALTER SYSTEM SET work_mem = '12MB'")
        assert restore(bench) == {data: ("unneeded", owed)}
        assert bench.show("max_connections") == ("37",)
        assert restore(bench, may_restart=True) == {data: ("undone", "by a restart")}
        assert bench.show("max_connections", "work_mem") == ("100", "12MB")
        assert bench.is_forgotten()
        bench.conf.write_bytes(OLD_CONF)
        bench.cluster.sql("SELECT pg_reload_conf()")

    @pytest.mark.parametrize("is_down", [False, True])
    def test_a_restart_by_others_pays_what_is_owed(self, bench: Bench, *, is_down: bool) -> None:
        apply(bench, RESTARTED, may_restart=True)
        restore(bench)
        bench.cluster.run("pg_ctl", "-D", str(bench.cluster.data), "-m", "fast", "-w", "-s", "stop")
        if not is_down:
            bench.cluster.start()
            bench.cluster.sql("ALTER SYSTEM SET max_connections = '37'")
        assert restore(bench, may_restart=True) == {str(bench.cluster.data): ("unneeded", "")}
        assert bench.cluster.is_ready is not is_down, "who has stopped it wants it stopped"
        if is_down:
            bench.cluster.start()
        bench.conf.write_bytes(OLD_CONF)
        bench.cluster.sql("SELECT pg_reload_conf()")

    def test_one_more_while_a_restart_is_owed(self, bench: Bench) -> None:
        apply(bench, RESTARTED, may_restart=True)
        restore(bench)
        bench.cluster.sql("ALTER SYSTEM SET work_mem = '11MB'")
        apply(bench, {"work_mem": "12MB"})
        assert restore(bench, may_restart=True)[str(bench.cluster.data)] == ("undone", "")
        assert bench.show("max_connections", "work_mem") == ("100", "11MB")
        bench.conf.write_bytes(OLD_CONF)
        bench.cluster.sql("SELECT pg_reload_conf()")

    def test_killed_while_it_restarts_what_is_owed(self, bench: Bench) -> None:
        apply(bench, RESTARTED, may_restart=True)
        restore(bench)

        def die(activity: str) -> None:
            # The server is stopped by then.
            if activity == "kernel settings":
                raise BrokenPipeError

        with pytest.raises(BrokenPipeError):
            restore_tuning(bench.journal, may_restart=True, on_activity=die)
        assert not bench.cluster.is_ready
        assert restore(bench) == {str(bench.cluster.data): ("undone", "by a restart")}
        assert bench.show("max_connections") == ("100",)

    def test_two_after_each_other(self, bench: Bench) -> None:
        apply(bench, {"work_mem": "12MB"}, sysctls=SYSCTLS)
        apply(bench, {"work_mem": "13MB", "random_page_cost": "2"}, sysctls={SETTING: "1200"})
        assert bench.show("work_mem", "random_page_cost") == ("13MB", "2")
        assert set(bench.sysctl_file.read_text().splitlines()[1:]) == {
            f"{SETTING} = 1200",
            "vm.overcommit_kbytes = 50000000",
        }
        restore(bench)

    def test_one_that_fails_after_one_that_did_not(self, bench: Bench) -> None:
        apply(bench, {"work_mem": "12MB"}, sysctls={SETTING: "1100"})
        conf, journal = bench.conf.read_bytes(), bench.journal.read_tuning()
        with pytest.raises(SpecError, match=f"refuses {SETTING} = 99999999999"):
            apply(bench, {"work_mem": "13MB"}, sysctls={SETTING: "99999999999"})
        assert (bench.conf.read_bytes(), bench.journal.read_tuning()) == (conf, journal)
        assert bench.show("work_mem") == ("12MB",)
        assert read_sysctl(SETTING) == "1100"
        restore(bench)

    def test_values_in_the_servers_units(self, bench: Bench) -> None:
        settings = {"WAL_buffers": "-1", "work_mem": "12288", "jit": "0", "checkpoint_timeout": "600s"}
        settings |= {"wal_compression": "pglz", "auto_explain.log_min_duration": "250ms", "random_page_cost": "1.10"}
        assert apply(bench, settings).settings == {name.lower(): value for name, value in settings.items()}
        restore(bench)

    def test_a_server_that_does_not_run(self, bench: Bench) -> None:
        bench.cluster.run("pg_ctl", "-D", str(bench.cluster.data), "-m", "fast", "-w", "-s", "stop")
        try:
            applied = apply(bench, {**RELOADED, **RESTARTED, "auto_explain.log_min_duration": "1s"}, may_restart=True)
            assert (applied.was_restarted, applied.waiting) == (False, ())
            assert read_conf(bench.conf.read_bytes())["shared_buffers"] == "48MB"
            assert restore(bench) == {str(bench.cluster.data): ("undone", "")}
            assert bench.conf.read_bytes() == OLD_CONF
            assert not (bench.cluster.data / "postmaster.pid").exists()
        finally:
            bench.cluster.start()

    def test_configuration_outside_of_the_data(self, bench: Bench) -> None:
        data, place = bench.cluster.data, bench.cluster.root / "etc"
        place.mkdir(exist_ok=True)
        for name in ("postgresql.conf", "pg_hba.conf", "pg_ident.conf"):
            shutil.copy2(data / name, place / name)
            shutil.chown(place / name, bench.cluster.user.uid)
        with (place / "postgresql.conf").open("a") as config:
            config.write(f"data_directory = '{data}'\n")
        (data / "postgresql.conf").rename(data / "away")
        bench.cluster.stop()
        try:
            error = refusal(bench, RESTARTED)
            assert isinstance(error, HostError)
            assert (error.detail, error.hint[:23]) == (f"there is no {data}/postgresql.conf", "start the server first:")
            bench.cluster.start(f"config_file={place / 'postgresql.conf'}")
            assert apply(bench, RESTARTED, may_restart=True).was_restarted
            assert bench.show("config_file", "max_connections") == (str(place / "postgresql.conf"), "37")
            restore(bench, may_restart=True)
            assert bench.show("max_connections") == ("100",)
        finally:
            (data / "away").rename(data / "postgresql.conf")
            bench.cluster.stop()
            bench.cluster.start()


def read_environment(bench: Bench) -> list[bytes]:
    """What the server was started with, without the one variable that pg_ctl makes of who called it."""
    variables = Path(f"/proc/{bench.cluster.postmaster_pid}/environ").read_bytes().split(b"\0")
    return sorted(one for one in variables if not one.startswith(b"PG_GRANDPARENT_PID="))


@pytest.mark.parametrize("whole_bench", [15], indirect=True)
class TestRollingBack:
    def test_a_server_that_does_not_come_back(self, bench: Bench) -> None:
        before = read_environment(bench)
        with pytest.raises(StepFailedError, match="does not start") as caught:
            apply(bench, {**RELOADED, "shared_buffers": "900GB"}, may_restart=True, sysctls=SYSCTLS, sysfs=SYSFS)
        assert "could not map anonymous shared memory" in caught.value.detail
        assert caught.value.detail.endswith("everything is as it was before")
        assert read_environment(bench) == before

    def test_with_a_log_collector_and_a_tmpdir_closed_to_the_servers_account(
        self, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        bench.cluster.stop()
        bench.cluster.start("logging_collector=on", "log_directory=collected")
        try:
            with pytest.raises(StepFailedError, match="does not start") as caught:
                apply(bench, {"shared_buffers": "900GB"}, may_restart=True)
            assert "could not map anonymous shared memory" in caught.value.detail
            assert bench.show("logging_collector") == ("on",)
        finally:
            bench.cluster.stop()
            bench.cluster.start()

    @pytest.mark.parametrize("word", ["writing", "stopping", "setting", "starting"])
    def test_ctrl_c(self, bench: Bench, word: str) -> None:
        def interrupt(activity: str) -> None:
            if activity.startswith(word):
                signal.raise_signal(signal.SIGINT)

        prepared = bench.prepare(RESTARTED, sysctls=SYSCTLS, sysfs=SYSFS)
        with pytest.raises(KeyboardInterrupt):
            apply_tuning(prepared, may_restart=True, journal=bench.journal, on_activity=interrupt)

    def test_what_has_changed_since_it_was_prepared(self, bench: Bench) -> None:
        prepared = bench.prepare(RELOADED)
        bench.conf.write_bytes(OLD_CONF + b"jit = off\n")
        with pytest.raises(HostError, match=r"changed .* meanwhile"):
            apply_tuning(prepared, may_restart=False, journal=bench.journal)
        bench.conf.write_bytes(OLD_CONF)

    def test_who_writes_the_file_at_the_last_moment_is_not_overwritten(self, bench: Bench) -> None:
        def alter(activity: str) -> None:
            if activity == f"writing {bench.conf}":
                bench.cluster.sql("ALTER SYSTEM SET jit = off")

        with pytest.raises(HostError, match=r"changed .* meanwhile"):
            apply_tuning(bench.prepare(RELOADED), may_restart=False, journal=bench.journal, on_activity=alter)
        assert read_conf(bench.conf.read_bytes()) == {**read_conf(OLD_CONF), "jit": "off"}
        TestRestoring.put_conf_back(bench)

    def test_a_server_that_was_restarted_since(self, bench: Bench) -> None:
        prepared = bench.prepare(RELOADED)
        bench.cluster.stop()
        for _ in range(2):
            with pytest.raises(HostError, match="started or stopped meanwhile"):
                apply_tuning(prepared, may_restart=False, journal=bench.journal)
            if not (bench.cluster.data / "postmaster.pid").exists():
                bench.cluster.start()

    def test_a_server_that_was_stopped_runs_again_though_its_file_cannot_be_put_back(self, bench: Bench) -> None:
        def spoil(activity: str) -> None:
            if activity == "starting the server":
                bench.conf.chmod(0o644)
                os.chown(bench.conf, 65534, -1)
                raise KeyboardInterrupt

        with pytest.raises(HostError, match="and not everything could be put back"):
            apply_tuning(bench.prepare(RESTARTED), may_restart=True, journal=bench.journal, on_activity=spoil)
        assert bench.show("jit") == ("on",)
        os.chown(bench.conf, bench.cluster.user.uid, -1)
        change_tuning(bench.journal, killed)
        assert restore(bench, may_restart=True) == {str(bench.cluster.data): ("undone", "")}


@pytest.mark.parametrize("whole_bench", [18], indirect=True)
class TestRestoring:
    def test_what_others_have_set_since_stays(self, bench: Bench) -> None:
        apply(bench, {"work_mem": "12MB", "random_page_cost": "2", "jit": "off"})
        bench.cluster.sql("ALTER SYSTEM SET random_page_cost = 3")
        bench.cluster.sql("ALTER SYSTEM SET seq_page_cost = 1.5")
        ended = restore(bench)
        assert ended[str(bench.cluster.data)] == (
            "undone",
            "another program has changed random_page_cost since, so pgdyno left that as it is",
        )
        expected = {"timezone": "UTC", "random_page_cost": "3", "seq_page_cost": "1.5", "work_mem": "9MB"}
        assert read_conf(bench.conf.read_bytes()) == expected
        assert wait_until(lambda: bench.show("work_mem", "random_page_cost") == ("9MB", "3"))
        self.put_conf_back(bench)

    def test_what_others_have_set_back(self, bench: Bench) -> None:
        apply(bench, {"work_mem": "12MB", "jit": "off"})
        bench.cluster.sql("ALTER SYSTEM RESET jit")
        assert restore(bench) == {str(bench.cluster.data): ("undone", "")}

    def test_a_file_that_others_have_changed(self, bench: Bench) -> None:
        apply(bench, RELOADED, sysctls={SETTING: "1100"})
        bench.sysctl_file.write_text("# mine\n")
        write(SETTING, "3300")
        left = ("left", "another program has changed it since, so pgdyno left it as it is")
        ended = restore(bench)
        assert (ended[str(bench.sysctl_file)], ended[SETTING]) == (left, left)
        bench.sysctl_file.unlink()
        write(SETTING, "4096")

    def test_after_a_reboot(self, bench: Bench) -> None:
        def reboot(tuning: AppliedTuning) -> AppliedTuning:
            boot = "00000000-0000-0000-0000-000000000000"
            content = msgspec.json.encode(tuning).replace(tuning.owner.boot_id.encode(), boot.encode())
            return msgspec.json.decode(content, type=AppliedTuning)

        # What it is already: this machine's own memory stays as it is.
        lasting = {THP: read_value(THP)}
        with kept_disk():
            applied = apply(bench, RELOADED, sysctls=SYSCTLS, sysfs={**SYSFS, **lasting})
            assert applied.at_boot == {str(bench.sysctl_file): tuple(SYSCTLS), str(bench.tmpfiles_file): (THP,)}
            assert bench.tmpfiles_file.read_text().splitlines()[1:] == [f"w /sys/{THP} - - - - {lasting[THP]}"]
            change_tuning(bench.journal, reboot)
            ended = restore(bench)
        assert ended[SETTING] == ("undone", "")
        assert ended[str(bench.tmpfiles_file)] == ("undone", "")
        assert ended[THP] == ("unneeded", ""), "a boot sets it again, which is to be undone"
        assert {ended[name] for name in SYSFS} <= {("gone", "a reboot has undone it")}

    def test_a_measurement_goes_on_top_and_is_not_disturbed(self, bench: Bench) -> None:
        apply(bench, RELOADED, sysctls={SETTING: "1100"})
        with changed_sysctls({SETTING: "7700"}, journal=bench.journal):
            with pytest.raises(HostError, match=f"a measurement holds {SETTING}"):
                restore(bench)
            with pytest.raises(HostError, match=f"another pgdyno is changing {SETTING}"):
                apply(bench, {"jit": "off"}, sysctls={SETTING: "1200"})
            assert read_sysctl(SETTING) == "7700"
        assert read_sysctl(SETTING) == "1100"
        restore(bench)

    def test_half_of_it_is_said_and_refused(self, bench: Bench) -> None:
        apply(bench, RELOADED)

        change_tuning(bench.journal, killed)
        (said,) = restore_left_overs(bench.journal)
        assert said.outcome.value == "failed"
        assert "`pgdyno restore` undoes all of that" in said.reason
        with pytest.raises(HostError, match="half applied"):
            apply(bench, {"jit": "off"})
        restored = restore_host(bench.journal)
        assert [undo.outcome.value for undo in restored.undone] == ["undone"]

    def test_data_that_are_gone(self, bench: Bench) -> None:
        apply(bench, RELOADED)
        conf = bench.conf.read_bytes()
        change_tuning(
            bench.journal,
            lambda tuning: msgspec.structs.replace(
                tuning, servers=(msgspec.structs.replace(tuning.servers[0], what="/nowhere/data"),)
            ),
        )
        assert restore(bench) == {
            "/nowhere/data": ("gone", "its data directory is gone; wherever it is now, its settings are as tuned")
        }
        assert bench.conf.read_bytes() == conf
        TestRestoring.put_conf_back(bench)

    def test_data_that_are_another_accounts_now(self, bench: Bench) -> None:
        """Else who owns a server could have root write into another's, and run programs of theirs as that account."""
        apply(bench, RELOADED)
        data = bench.cluster.data
        os.chown(data, 65534, -1)
        try:
            ((outcome, reason),) = restore(bench).values()
        finally:
            os.chown(data, bench.cluster.user.uid, -1)
        assert outcome == "failed"
        assert reason.startswith(f"{data} belongs to another account now")
        assert restore(bench) == {str(data): ("undone", "")}

    def test_data_on_a_volume_that_is_away_are_not_forgotten(self, bench: Bench) -> None:
        apply(bench, RELOADED)

        def move(tuning: AppliedTuning, what: Path, mount_point: Path) -> AppliedTuning:
            change = msgspec.structs.replace(tuning.servers[0], what=str(what), mount_point=str(mount_point))
            return msgspec.structs.replace(tuning, servers=(change,))

        change_tuning(bench.journal, lambda tuning: move(tuning, bench.folder / "volume/data", bench.folder / "volume"))
        assert [outcome for outcome, _ in restore(bench).values()] == ["failed"]
        change_tuning(bench.journal, lambda tuning: move(tuning, bench.cluster.data, Path("/")))
        assert restore(bench) == {str(bench.cluster.data): ("undone", "")}

    @staticmethod
    def put_conf_back(bench: Bench) -> None:
        bench.conf.write_bytes(OLD_CONF)
        shutil.chown(bench.conf, bench.cluster.user.uid, bench.cluster.user.gid)
        bench.cluster.sql("SELECT pg_reload_conf()")
        assert wait_until(lambda: bench.show("work_mem", "random_page_cost", "jit") == ("9MB", "4", "on"))


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"work_mem": "9 apples"}, 'invalid value for parameter "work_mem": "9 apples"'),
            ({"random_page_cost": "-3"}, "-3 is outside the valid range"),
            ({"shared_bufers": "1GB"}, 'unrecognized configuration parameter "shared_bufers"'),
            ({"port": "1234"}, "decides where the server is"),
            ({"work mem": "1GB"}, ""),
        ],
    )
    def test_in_the_servers_words(self, bench: Bench, settings: dict[str, str], words: str) -> None:
        error = refusal(bench, settings)
        assert isinstance(error, SpecError)
        assert words in error.detail

    def test_what_the_command_line_beats(self, bench: Bench) -> None:
        error = refusal(bench, {"work_mem": "12MB", "fsync": "on"})
        assert "override those of its files" in error.fact
        assert error.detail == "fsync: command line"

    def test_a_read_only_file(self, bench: Bench) -> None:
        mode = bench.conf.stat().st_mode
        bench.conf.chmod(0o400)
        assert "is read-only" in refusal(bench, RELOADED).fact
        bench.conf.chmod(mode)

    def test_a_link_to_somewhere_else(self, bench: Bench) -> None:
        bench.conf.rename(bench.conf.with_name("away"))
        bench.conf.symlink_to("/etc/hostname")
        assert "Too many levels of symbolic links" in refusal(bench, RELOADED).detail
        bench.conf.unlink()
        bench.conf.with_name("away").rename(bench.conf)

    # The setting came with 17.
    @pytest.mark.parametrize("whole_bench", [18], indirect=True)
    def test_alter_system_is_not_allowed(self, bench: Bench) -> None:
        bench.conf.write_bytes(OLD_CONF + b"allow_alter_system = off\n")
        bench.cluster.sql("SELECT pg_reload_conf()")
        assert wait_until(lambda: bench.show("allow_alter_system") == ("off",))
        assert refusal(bench, RELOADED).detail == "allow_alter_system = off"
        bench.cluster.stop()
        assert refusal(bench, RELOADED).detail == "allow_alter_system = off"
        bench.conf.write_bytes(OLD_CONF)
        bench.cluster.start()

    @pytest.fixture
    def stranger(self, bench: Bench) -> Iterator[subprocess.Popen[bytes]]:
        """As of another container: its postmaster.pid tells a number that is nobody's here."""
        bench.cluster.stop()
        (bench.folder / "postgres").symlink_to(shutil.which("sleep") or "")
        started = process.start([str(bench.folder / "postgres"), "3600"], cwd=bench.cluster.data)
        try:
            assert wait_until(lambda: started.pid == find_strangers(bench.cluster.data))
            yield started
        finally:
            process.stop(started)
            (bench.folder / "postgres").unlink()
            bench.cluster.start()

    def test_who_is_at_work_there_unseen(
        self, bench: Bench, stranger: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(apply_look, "_ENDING_PATIENCE_S", 0.2)
        assert self.try_to(bench).startswith("a server process works in")
        assert stranger.poll() is None

    def test_who_is_about_to_end_is_waited_for(
        self, bench: Bench, stranger: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        while_it_waits = types.SimpleNamespace(sleep=lambda _: process.stop(stranger))
        monkeypatch.setattr(apply_look, "time", while_it_waits)
        assert self.try_to(bench) == ""
        assert stranger.poll() is not None

    def test_a_standby(self, bench: Bench) -> None:
        mark = bench.cluster.data / "standby.signal"
        bench.cluster.run("pg_ctl", "-D", str(bench.cluster.data), "-m", "fast", "-w", "-s", "stop")
        mark.touch()
        shutil.chown(mark, bench.cluster.user.uid)
        assert "is a standby" in refusal(bench, RELOADED).fact
        bench.cluster.start()
        assert "is a standby" in refusal(bench, RELOADED).fact
        bench.cluster.stop()
        mark.unlink()
        bench.cluster.start()

    def test_who_is_not_let_in(self, bench: Bench) -> None:
        hba = bench.cluster.data / "pg_hba.conf"
        before = hba.read_text()
        hba.write_text("local all all reject\n")
        bench.cluster.run("pg_ctl", "-D", str(bench.cluster.data), "reload")
        assert wait_until(lambda: "pg_hba.conf rejects" in self.try_to(bench))
        hba.write_text(before)
        bench.cluster.run("pg_ctl", "-D", str(bench.cluster.data), "reload")
        assert wait_until(lambda: self.try_to(bench) == "")

    # From 16 on the first superuser remains one.
    @pytest.mark.parametrize("whole_bench", [15], indirect=True)
    def test_who_is_no_superuser(self, bench: Bench) -> None:
        bench.cluster.sql("CREATE ROLE boss SUPERUSER LOGIN")
        bench.cluster.sql("ALTER ROLE postgres NOSUPERUSER")
        assert "not as a superuser" in refusal(bench, RELOADED).fact
        argv = ("-h", str(bench.cluster.root), "-p", "54321", "-U", "boss", "-d", "postgres")
        bench.cluster.run("psql", *argv, "-c", "ALTER ROLE postgres SUPERUSER")
        bench.cluster.sql("DROP ROLE boss")

    @staticmethod
    def try_to(bench: Bench) -> str:
        try:
            bench.prepare({"jit": "off"})
        except HostError as error:
            return f"{error.fact}: {error.detail}"
        return ""

    def test_no_data_directory(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError, match="no data directory"):
            find_named_server(tmp_path)


def test_a_server_that_is_watched_over(bench: Bench) -> None:
    """A child of ours is not stopped: what can be reloaded is in force, the rest waits."""
    cluster = bench.cluster
    cluster.run("pg_ctl", "-D", str(cluster.data), "-m", "fast", "-w", "-s", "stop")
    words = ["-p", "54321", "-k", str(cluster.root), "-c", "listen_addresses=", "-c", "fsync=off"]
    argv = [str(cluster.bin_directory / "postgres"), "-D", str(cluster.data), *words]
    with (cluster.root / "server.log").open("ab") as log:
        watched = process.start(argv, user=cluster.user, death_signal="QUIT", stderr=log)
    try:
        assert wait_until(lambda: cluster.is_ready)
        applied = apply(bench, {**RELOADED, **RESTARTED}, may_restart=True)
        assert (applied.was_restarted, applied.waiting) == (False, tuple(RESTARTED))
        assert "which may take its end for a failure" in applied.waiting_reason
        assert watched.poll() is None
        assert bench.show("work_mem") == ("12MB",)
        restore(bench, may_restart=True)
        assert watched.poll() is None
        assert bench.is_forgotten(), "it never had what waited"
    finally:
        # Killed, it would leave children behind whose memory keeps the next server from starting.
        process.stop(watched, first=signal.SIGINT, patience_s=120)
        cluster.start()


@pytest.mark.parametrize(
    ("words", "path"),
    [(["-D", "data"], "data"), (["-D", "{data}", "-o", "-c config-file=data/postgresql.conf"], "data/postgresql.conf")],
)
def test_a_server_that_was_started_by_a_relative_path(bench: Bench, words: list[str], path: str) -> None:
    """pg_ctl would look for it elsewhere, and leave the server down."""
    cluster = bench.cluster
    cluster.run("pg_ctl", "-D", str(cluster.data), "-m", "fast", "-w", "-s", "stop")
    options = f"-p {PORT} -k {cluster.root} -c listen_addresses= -c fsync=off"
    argv = [
        str(cluster.bin_directory / "pg_ctl"),
        "-w",
        "-s",
        "-l",
        str(cluster.root / "server.log"),
        "start",
        "-o",
        options,
    ]
    argv += [word.format(data=cluster.data) for word in words]
    assert process.run(argv, user=cluster.user, cwd=cluster.root, timeout_s=600).exit_code == 0
    pid = cluster.postmaster_pid
    try:
        applied = apply(bench, RESTARTED, may_restart=True)
        assert (applied.was_restarted, applied.waiting) == (False, tuple(RESTARTED))
        assert applied.waiting_reason == f"it was started with a relative path, {path}"
        restore(bench, may_restart=True)
        assert cluster.postmaster_pid == pid
    finally:
        cluster.stop()
        cluster.start()


@pytest.mark.parametrize("asked", ["show_unit", "server.run"])
def test_a_program_that_hangs_keeps_no_server_from_being_put_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """As systemctl does where systemd does not answer; which cannot be had of a real one."""

    def hang(*_words: object, **_options: object) -> str:
        raise StepFailedError("systemctl did not end within 60 s")

    apply(bench, RELOADED)
    if asked == "show_unit":
        monkeypatch.setattr(starter, "show_unit", hang)
        monkeypatch.setattr(starter, "_UNIT", re.compile(r"/(?P<unit>)"))
    else:
        monkeypatch.setattr(tuning_restore, "find_origin", hang)
    assert restore(bench) == {str(bench.cluster.data): ("undone", "")}


def test_a_server_of_patronis(bench: Bench) -> None:
    mark = bench.cluster.data / "patroni.dynamic.json"
    mark.touch()
    applied = apply(bench, RESTARTED, may_restart=True)
    assert (applied.was_restarted, applied.waiting) == (False, tuple(RESTARTED))
    assert applied.waiting_reason.startswith("Patroni watches over it")
    restore(bench, may_restart=True)
    mark.unlink()


def test_who_is_not_root(bench: Bench) -> None:
    code = f"""
import encodings.ascii, os, pathlib, pwd, sys
import pgdyno.run.postgres.sql
from pgdyno.run.change.apply import apply_tuning
from pgdyno.run.change.prepare_apply import find_named_server, prepare_apply
from pgdyno.run.change.journal import own_journal
from pgdyno.flow.restore import restore_host
from pgdyno.facts.gucs import all_gucs
# Afterwards this account may not be able to read what Python loads late.
all_gucs({bench.cluster.version_major})
user = {find_server_user().uid}, {find_server_user().gid}
os.setgroups([]); os.setresgid(*[user[1]] * 3); os.setresuid(*[user[0]] * 3)
server = find_named_server(pathlib.Path({str(bench.cluster.data)!r}), bindir=pathlib.Path({str(bench.cluster.bin_directory)!r}))
prepared = prepare_apply(server, settings={{**{RELOADED!r}, **{RESTARTED!r}}}, sysctls={SYSCTLS!r}, sysfs={{}})
applied = apply_tuning(prepared, may_restart=True)
print(applied.was_restarted, len(applied.settings), [(left.names, left.reason) for left in applied.left_out])
# What this machine's own journal may hold takes root to undo.
print([undo.outcome.value for undo in restore_host(own_journal(), may_restart=True).undone])
"""
    with reachable_folder() as state_home:
        shutil.chown(state_home, find_server_user().uid)
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "XDG_STATE_HOME": str(state_home)},
        )
    assert done.stderr == ""
    reason = "changing kernel settings needs root"
    assert done.stdout.splitlines() == [f"True 5 [({tuple(SYSCTLS)!r}, {reason!r})]", "['undone']"]


def test_what_is_read_later_at_a_boot(bench: Bench) -> None:
    later = bench.sysctl_file.with_name("99-other.conf")
    later.write_text("-net/core/somaxconn = 1\nvm.overcommit_ratio=3\nvm.overcommit_memory = 2\n")
    applied = apply(bench, {}, sysctls=SYSCTLS)
    ours = [remark for remark in applied.remarks if str(later) in remark]
    assert [remark.rpartition(" ")[2] for remark in ours] == [SETTING, "vm.overcommit_ratio"]
    later.unlink()
    with contextlib.suppress(HostError):
        restore(bench)


def test_what_is_read_earlier_at_a_boot_of_what_is_below_sys(bench: Bench) -> None:
    others = [bench.tmpfiles_file.with_name(name) for name in ("10-thp.conf", "90-thp.conf")]
    for other in others:
        other.write_text(f"# mine\nw\nw /sys/{THP} - - - - never\n")
    applied = apply(bench, {}, sysfs={THP: read_value(THP)})
    assert applied.remarks == (f"at the next boot {others[0]} overrides {THP}",)
    for other in others:
        other.unlink()
    restore(bench)


def test_only_the_kernel(bench: Bench) -> None:
    prepared = prepare_apply(None, settings={}, sysctls=SYSCTLS, sysfs=SYSFS, etc=bench.folder)
    assert apply_tuning(prepared, may_restart=False, journal=bench.journal).settings == {}
    assert read_sysctl(SETTING) == "1000"
    restore(bench)
