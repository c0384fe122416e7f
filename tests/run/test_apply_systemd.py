"""Settings applied to a real server that a real systemd runs: it is systemd that stops and starts it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pgdyno
from tests.shared import reachable_folder
from tests.systemd import Systemd, booted, needs_systemd
from tests.tools.pgcluster import PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.systemd, needs_systemd]

UNIT = "postgresql@18-main.service"
RESTARTED = {"max_connections": "37", "work_mem": "12MB"}
CODE = """
import json, pathlib, sys
from pgdyno.errors import PgdynoError
from pgdyno.run.change.apply import apply_tuning
from pgdyno.run.change.prepare_apply import find_named_server, prepare_apply
from pgdyno.run.change.journal import Journal
from pgdyno.run.change.tuning_restore import restore_tuning
what, data, bindir, folder, settings = sys.argv[1:]
journal, folder = Journal(pathlib.Path(folder, "journal")), pathlib.Path(folder)
if what == "apply":
    server = find_named_server(pathlib.Path(data), bindir=pathlib.Path(bindir))
    prepared = prepare_apply(
        server, settings=json.loads(settings), sysctls={}, sysfs={}, etc=folder
    )
    try:
        applied = apply_tuning(prepared, may_restart=True, journal=journal)
        said = [applied.was_restarted, list(applied.waiting), applied.waiting_reason]
    except PgdynoError as error:
        said = [type(error).__name__, error.fact, error.detail]
else:
    said = [undo.outcome.value for undo in restore_tuning(journal, may_restart=True)]
print(json.dumps(said))
"""


class Unit:
    """A server that is a unit of systemd's."""

    def __init__(self, systemd: Systemd, cluster: Cluster, folder: Path) -> None:
        self.systemd, self.cluster, self._folder = systemd, cluster, folder

    @property
    def pid(self) -> int:
        return self.systemd.main_pid(UNIT)

    def write(self, extra: str = "", *, shell: str = "") -> None:
        options = f"-D {self.cluster.data} -p {PORT} -k {self.cluster.root} -c listen_addresses= -c fsync=off"
        command = f"{self.cluster.bin_directory}/postgres {options}"
        start = f"/bin/sh -c '{shell} {command} & wait'" if shell else command
        user = self.cluster.user
        self.systemd.write_unit(
            UNIT, f"User={user.name}\nKillSignal=SIGINT\nTimeoutSec=120\nExecStart={start}\n{extra}"
        )

    def start(self) -> None:
        self.systemd.control("start", UNIT)
        assert wait_until(lambda: self.cluster.is_ready)

    def ask(self, what: str, settings: dict[str, str] | None = None) -> list[object]:
        words = (what, str(self.cluster.data), str(self.cluster.bin_directory), str(self._folder))
        path = f"PYTHONPATH={Path(pgdyno.__file__).parents[1]}"
        done = self.systemd.run("env", path, sys.executable, "-c", CODE, *words, json.dumps(settings or {}))
        assert done.returncode == 0, done.stderr
        said: list[object] = json.loads(done.stdout)
        return said

    def show(self, name: str) -> str:
        return self.cluster.sql(f"SHOW {name}")


@pytest.fixture(scope="module")
def systemd() -> Iterator[Systemd]:
    with reachable_folder() as units, booted(units) as systemd:
        yield systemd


@pytest.fixture
def unit(systemd: Systemd, tmp_path: Path) -> Iterator[Unit]:
    with running(18) as cluster:
        cluster.stop()
        made = Unit(systemd, cluster, tmp_path)
        made.write()
        made.start()
        yield made
        systemd.control("stop", UNIT)
        shutil.rmtree(tmp_path / "journal", ignore_errors=True)


def test_it_is_restarted_by_its_unit(unit: Unit) -> None:
    before = unit.pid
    assert unit.ask("apply", RESTARTED) == [True, [], ""]
    between = unit.pid
    assert between not in {0, before}
    assert (unit.show("max_connections"), unit.show("work_mem")) == ("37", "12MB")
    assert unit.ask("restore") == ["undone"]
    assert unit.pid not in {0, between}
    assert (unit.show("max_connections"), unit.show("work_mem")) == ("100", "4MB")


def test_units_that_are_stopped_with_it_are_started_again(unit: Unit) -> None:
    needs = {
        "pooler": f"BindsTo={UNIT}",
        "part": f"PartOf={UNIT}",
        "web": "Requires=pooler.service",
        "off": f"Requires={UNIT}",
    }
    for name, words in needs.items():
        after = f"After={words.partition('=')[2]}"
        unit.systemd.write_unit(f"{name}.service", f"ExecStart=/bin/sleep infinity\n[Unit]\n{words}\n{after}\n")
    running = [name for name in needs if name != "off"]
    for name in running:
        unit.systemd.control("start", f"{name}.service")
    try:
        before = {name: unit.systemd.main_pid(f"{name}.service") for name in needs}
        assert unit.ask("apply", RESTARTED) == [True, [], ""]
        between = {name: unit.systemd.main_pid(f"{name}.service") for name in needs}
        assert unit.ask("restore") == ["undone"]
        afterwards = {name: unit.systemd.main_pid(f"{name}.service") for name in needs}
        assert [name for name in needs if between[name]] == running
        assert [name for name in needs if afterwards[name]] == running
        assert all(len({before[name], between[name], afterwards[name]}) == 3 for name in running)
    finally:
        for name in running:
            unit.systemd.control("stop", f"{name}.service")


@pytest.mark.parametrize("extra", ["", "Restart=on-failure\nRestartSec=100ms\nStartLimitIntervalSec=0\n"])
def test_it_does_not_come_back(unit: Unit, extra: str) -> None:
    # What systemd starts from now on may have less memory than is set.
    unit.write(f"LimitAS=500M\n{extra}")
    before = (unit.cluster.data / "postgresql.auto.conf").read_bytes()
    kind, fact, detail = unit.ask("apply", {"shared_buffers": "600MB"})
    # No journal is kept here that would have the server's own words.
    assert (kind, detail.splitlines()[-1]) == ("StepFailedError", "everything is as it was before")
    assert fact.startswith(f"{UNIT} does not start")
    assert (unit.cluster.data / "postgresql.auto.conf").read_bytes() == before
    assert unit.pid
    assert unit.show("shared_buffers") == "128MB"


def test_who_is_a_child_of_a_units_shell_is_left_running(unit: Unit) -> None:
    unit.systemd.control("stop", UNIT)
    unit.write(shell=":;")
    unit.start()
    was_restarted, waiting, reason = unit.ask("apply", RESTARTED)
    assert (was_restarted, waiting) == (False, ["max_connections"])
    assert reason == f"it runs inside {UNIT}, which watches over it"
    assert unit.show("work_mem") == "12MB"
    assert unit.ask("restore") == ["undone"]
