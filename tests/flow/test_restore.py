"""`pgdyno restore` as a user runs it, with a /var/lib and a network of its own: neither the machine nor its journal is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.run.change.journal import Journal
from pgdyno.run.change.kernel import changed_sysctls
from tests.shared import reachable_folder
from tests.sysctls import OTHER, SETTING, needs_proc_sys, own_network, read_sysctl, started_child, write

pytestmark = needs_proc_sys


@pytest.fixture
def var_lib() -> Iterator[Path]:
    with own_network(), reachable_folder() as folder:
        yield folder


def journal_of(var_lib: Path) -> Journal:
    return Journal(var_lib / "pgdyno-journal")


def run(var_lib: Path, *arguments: str, before: str = "true") -> subprocess.CompletedProcess[str]:
    script = f'mount --bind {var_lib} /var/lib && {before} && exec "$@"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "pgdyno", "restore", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


def leave_changed(var_lib: Path, values: dict[str, str]) -> int:
    code = f"with changed_sysctls({values!r}, journal=journal): print('ready', flush=True); time.sleep(600)"
    with started_child(code, journal=journal_of(var_lib).folder) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.kill()
        return child.pid


def test_nothing_to_undo(var_lib: Path) -> None:
    done = run(var_lib)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "nothing to undo: this account's pgdyno has left nothing changed here\n"
    assert json.loads(run(var_lib, "--json").stdout) == {"undone": [], "in_use": [], "others": [], "waiting": []}
    assert list(var_lib.iterdir()) == []


def test_what_others_have_tuned_is_told_and_not_touched(var_lib: Path) -> None:
    """An account of our own, in whose home lies a journal that only it may open."""
    folder = var_lib / "clerk/.local/state/pgdyno-journal"
    folder.mkdir(parents=True)
    (folder / "changes.json").write_text("its own")
    os.chown(folder / "changes.json", 4242, 4242)
    accounts = var_lib / "passwd"
    clerk = "clerk:x:4242:4242::/var/lib/clerk:/bin/sh\nmate:x:4243:4243::/var/lib/clerk:/bin/sh\n"
    accounts.write_text(Path("/etc/passwd").read_text() + clerk)
    done = run(var_lib, before=f"mount --bind {accounts} /etc/passwd")
    assert (done.returncode, done.stderr) == (0, "")
    assert [" ".join(line.split()) for line in done.stdout.splitlines()][1:] == [
        "what /var/lib/clerk/.local/state/pgdyno-journal tells – nothing: clerk has tuned it, and clerk can undo it"
    ]
    assert (folder / "changes.json").read_text() == "its own"


def test_after_kill_9(var_lib: Path) -> None:
    before = read_sysctl(SETTING), read_sysctl(OTHER)
    leave_changed(var_lib, {SETTING: "100", OTHER: "77"})
    write(OTHER, "55")
    done = run(var_lib)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines == [
        "what found what was done",
        f"{SETTING} 100 put back to {before[0]}",
        f"{OTHER} 55 nothing: another program has changed it since, so pgdyno left it as it is; before pgdyno it was {before[1]}",
    ]
    assert (read_sysctl(SETTING), read_sysctl(OTHER)) == (before[0], "55")
    assert "nothing to undo" in run(var_lib).stdout


def test_as_json(var_lib: Path) -> None:
    before = read_sysctl(SETTING)
    pid = leave_changed(var_lib, {SETTING: "100"})
    done = run(var_lib, "--json")
    assert done.returncode == 0, done.stderr
    (undo,) = json.loads(done.stdout)["undone"]
    assert (undo["outcome"], undo["found_value"]) == ("undone", "100")
    change = undo["change"]
    assert (change["kind"], change["what"], change["owner"]["pid"]) == ("sysctl", SETTING, pid)
    assert (change["old_value"], change["new_values"]) == (before, ["100"])
    assert read_sysctl(SETTING) == before


def test_a_running_pgdyno_keeps_its_own(var_lib: Path) -> None:
    with changed_sysctls({SETTING: "100"}, journal=journal_of(var_lib)):
        done = run(var_lib)
        assert done.returncode == 0
        assert f"in use by the pgdyno with pid {os.getpid()}" in done.stdout
        assert read_sysctl(SETTING) == "100"
        assert json.loads(run(var_lib, "--json").stdout)["in_use"][0]["what"] == SETTING


def test_what_cannot_be_undone_is_an_error_and_kept(var_lib: Path) -> None:
    before = read_sysctl(SETTING)
    leave_changed(var_lib, {SETTING: "100"})
    # The parent's /proc/sys stays as it is: the namespace of mounts is the program's own.
    done = run(var_lib, before="mount -o bind,ro /proc/sys /proc/sys")
    assert done.returncode == 3
    assert "1 of 1 changes to this host could not be undone" in done.stderr
    assert f"not put back to {before}: cannot set {SETTING} to {before}" in done.stderr
    assert read_sysctl(SETTING) == "100"
    assert run(var_lib).returncode == 0
    assert read_sysctl(SETTING) == before


def test_an_ordinary_user_may_look_but_not_undo(var_lib: Path) -> None:
    code = """
try: print(restore_host(journal).to_json().decode())
except HostError as error: print(error.fact, "|", error.hint)
"""

    def look() -> str:
        folder = journal_of(var_lib).folder
        imports = "from pgdyno.flow.restore import restore_host"
        with started_child(code, journal=folder, as_user=True, imports=imports) as child:
            said, complaints = child.communicate()
        assert not complaints
        return said

    assert look() == '{"undone":[],"in_use":[],"others":[],"waiting":[]}\n'
    leave_changed(var_lib, {SETTING: "100"})
    assert look() == ("1 of 1 changes to this host could not be undone | run `pgdyno restore` as root of this host\n")
    assert read_sysctl(SETTING) == "100"
    assert run(var_lib).returncode == 0
