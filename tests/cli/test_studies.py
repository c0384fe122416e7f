"""`pgdyno studies`: what pgdyno ships can be listed, and printed to be changed."""

from __future__ import annotations

import json
from pathlib import Path

from pgdyno.spec.shipped import list_shipped
from tests.cli.program import run_here


def test_list(tmp_path: Path) -> None:
    files = json.loads(run_here(["studies", "--json"], cwd=tmp_path).stdout)["files"]
    assert {file["name"]: Path(file["path"]) for file in files} == list_shipped()
    assert all(file["about"] for file in files)
    shown = run_here(["studies"], cwd=tmp_path).stdout
    assert "How many reads by key can it serve from memory?" in shown
    assert "hosts/c7g.2xlarge-gp3-raid10  " in shown


def test_one_file_is_printed_as_it_is(tmp_path: Path) -> None:
    done = run_here(["studies", "hosts/template"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, list_shipped()["hosts/template"].read_text(encoding="utf-8"))


def test_what_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    rows = (
        (["studies", "tpcb"], "no study or host file tpcb", "did you mean tpcb-like?"),
        (["studies", "../pyproject"], "no study or host file ../pyproject", "`pgdyno studies` lists"),
        (["studies", "tpcb-like", "--json"], "printed as TOML", "leave --json out"),
        (["run", "tpcb"], "cannot read the study tpcb", "did you mean tpcb-like?"),
        (["run", "xyzzy"], "cannot read the study xyzzy", "`pgdyno studies` lists those that pgdyno ships"),
        (["tune", "--host", "hosts/vm-5"], "cannot read the host file hosts/vm-5", "did you mean hosts/vm-4vcpu?"),
    )
    for arguments, fact, hint in rows:
        done = run_here(arguments, cwd=tmp_path)
        assert done.returncode == 2, arguments
        assert fact in done.stderr, arguments
        assert hint in done.stderr, arguments
