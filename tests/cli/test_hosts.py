from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import run_here
from tests.hosts import Sshd

pytestmark = pytest.mark.cluster


def test_reached_machines_are_shown_and_the_others_explained(by_ssh: Sshd, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.toml"
    hosts.write_text("".join(f'[hosts.{name}]\nrole = "server"\nssh = "{name}"\n' for name in ("db2", "unknown")))
    done = run_here(["hosts", str(hosts)], NO_COLOR="1", TERM="dumb")
    assert done.returncode == 1
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[1][:2] == ["db2", "server"]
    assert rows[1][-4:-1] == ["s", "±", rows[1][-2]]
    assert rows[2] == ["unknown", "server", "no", "link"]
    assert "unknown: the host key of unknown is not known" in done.stdout
    assert "`ssh unknown`" in done.stdout
    one = run_here(["hosts", "db1", "--json"])
    (seen,) = json.loads(one.stdout)["hosts"]
    assert (one.returncode, one.stderr) == (0, "")
    assert seen["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert abs(seen["clock"]["offset_s"]) <= seen["clock"]["uncertainty_s"]
    assert run_here(["hosts", "studies-of-nobody.toml"]).returncode == 2


def test_the_way_to_a_server_that_does_not_run_yet_is_not_tried(by_ssh: Sshd, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        '[hosts.load]\nrole = "load"\nssh = "db1"\n[[workload]]\nname = "read"\nscripts = ["select-only"]\n'
    )
    done = run_here(["hosts", str(study)], NO_COLOR="1", TERM="dumb", COLUMNS="300")
    assert done.returncode == 0, done.stderr
    assert "not tried" in done.stdout.splitlines()[1]
    assert "note: The way to the server was not tried" in done.stdout
