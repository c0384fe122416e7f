"""`pgdyno price` as a user runs it: the newest record, JSON, and what is not understood."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pgdyno.cli.price import _read_load
from pgdyno.errors import SpecError
from pgdyno.price.worth import Load
from tests.cli.program import run_here
from tests.rows import check_rows

RECORD = Path(__file__).parents[1] / "data" / "records" / "v1-pg18"


def run_price(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_here(("price", *arguments), cwd=cwd)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(RECORD, tmp_path / "pgdyno-records" / "one")
    return tmp_path


def test_the_newest_record(folder: Path) -> None:
    done = run_price("--host", "c7g.large", "--utilisation", "30%", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pgdyno-records/one\n  c7g.large costs $52.9")
    assert "Your load is 30.0 % of full load on average over the month." in done.stdout


def test_a_topology(folder: Path) -> None:
    done = run_price("--host", "c7g.large", "--standbys", "1", "--pooler-host", "c7g.medium", cwd=folder)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "c7g.large with 1 standby and a pooler (c7g.medium) costs $" in shown
    assert "measured with no standby, and priced with 1" in shown
    wrong = run_price("--host", "c7g.large", "--standby-host", "c7g.medium", cwd=folder)
    assert (wrong.returncode, "add --standbys N" in wrong.stderr) == (2, True)
    for count in ("-1", "1000000"):
        wrong = run_price("--host", "c7g.large", "--standbys", count, cwd=folder)
        said = f"--standbys {count}: not within 0 to 100" in wrong.stderr, "0 prices the server alone" in wrong.stderr
        assert (wrong.returncode, said) == (2, (True, True))


def test_json(folder: Path) -> None:
    done = run_price("pgdyno-records/one", "--host", "c7g.large", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["format"] == "pgdyno-price"
    assert document["records"][0]["price"]["cost"]["name"] == "c7g.large"


def test_machines_without_a_record(folder: Path) -> None:
    hosts = ("--host", "c7g.2xlarge", "--host", "c7i.2xlarge")
    done = run_price(*hosts, "--tps", "c7g.2xlarge=15000", "--utilisation", "30%", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    one, other = json.loads(done.stdout)["records"]
    assert (one["record_dir"], one["name"], other["name"]) == ("", "c7g.2xlarge", "c7i.2xlarge")
    (workload,) = one["price"]["workloads"]
    assert workload["tps"]["value"] == 15000
    assert workload["worths"][0]["per_million"]["value"] == pytest.approx(211.7 / (15000 * 2.628))
    assert workload["worths"][0]["per_million_at_load"]["value"] == pytest.approx(211.7 / (15000 * 0.3 * 2.628))
    assert other["price"]["workloads"] == []
    assert "TPS per $ against c7g.2xlarge" in run_price(*hosts, "--tps", "c7i.2xlarge=9", cwd=folder).stdout
    # One machine is that of the newest record, unless there is none.
    alone = run_price("--host", "c7g.2xlarge", cwd=folder / "pgdyno-records")
    assert (alone.returncode, alone.stdout.splitlines()[0]) == (0, "c7g.2xlarge")
    assert "c7g.4xlarge (16 CPUs" in alone.stdout


def test_an_average_load_without_a_record(tmp_path: Path) -> None:
    host = tmp_path / "host.toml"
    host.write_text('name = "ours"\ninstance = "c7g.2xlarge"\n[disk]\nvolume = "gp3"\nsize = "500GB"\n')
    done = run_price("--host", str(host), "--tps", "300", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\n  your load +\$\d", done.stdout)
    assert "full load cost" not in done.stdout
    assert "Whether this machine can carry it is not known" in done.stdout
    two = ("--host", str(host), "--host", "c7i.2xlarge", "--tps", "300")
    assert re.search(r"\n  your load\n  per million +\$\d\S+ +\$\d", run_price(*two, cwd=tmp_path).stdout)
    for one in json.loads(run_price(*two, "--json", cwd=tmp_path).stdout)["records"]:
        (workload,) = one["price"]["workloads"]
        month = one["price"]["cost"]["costs"][0]["per_month"]
        assert workload["tps"]["value"] is None
        assert workload["worths"][0]["per_million_at_load"]["value"] == pytest.approx(month / (300 * 2.628))


MISUSED = [
    (("--host", "c7g.large", "--tps", "c7g.larg=5"), "no --host is c7g.larg"),
    (("--tps", "c7g.large=5"), "no --host is c7g.large"),
    (("--host", "c7g.large", "--tps", "c7g.large=0"), "not one number above 0 for c7g.large"),
    (("--host", "c7g.large", "--tps", "c7g.large=5", "--tps", "c7g.large=6"), "not one number above 0"),
    (("--tps", "many"), "--tps many: not a number"),
    (("--tps", "5", "--tps", "6"), "--tps is given twice"),
    (("--host", "c7g.large", "--host", "c7i.large", "--utilisation", "30%"), "--utilisation 30%: of how many TPS?"),
    (("pgdyno-records/one", "--host", "c7g.large", "--tps", "c7g.large=5"), "a record has TPS of its own"),
]


def test_misused_machines(folder: Path) -> None:
    def check(row: tuple[tuple[str, ...], str]) -> None:
        arguments, words = row
        done = run_price(*arguments, cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
        assert "hint: " in done.stderr

    check_rows(MISUSED, check)


@pytest.mark.parametrize(
    ("tps", "utilisation", "fact"),
    [
        (0.0, None, "--tps 0: not above 0"),
        (-1.0, None, "--tps -1: not above 0"),
        (math.nan, None, "--tps nan: not above 0"),
        (math.inf, None, "--tps inf: not above 0"),
        (None, "300%", "--utilisation 300% is not within 0.01% to 100%"),
        (None, "0%", "--utilisation 0% is not within 0.01% to 100%"),
        (None, "0.3", "--utilisation '0.3' is not a percentage"),
        (10.0, "3%", "--tps and --utilisation exclude each other"),
    ],
)
def test_loads_that_are_none(tps: float | None, utilisation: str | None, fact: str) -> None:
    with pytest.raises(SpecError) as caught:
        _read_load(tps, utilisation)
    assert caught.value.fact.startswith(fact)
    assert caught.value.hint


def test_loads() -> None:
    assert _read_load(None, None) is None
    assert _read_load(0.5, None) == Load(tps=0.5)
    assert _read_load(None, "30%") == Load(utilisation_ratio=0.3)


def test_what_is_not_understood(folder: Path) -> None:
    done = run_price("--host", "c7g.2xlrge", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: no instance is known as c7g.2xlrge" in done.stderr
    assert "hint: did you mean c7g.2xlarge" in done.stderr
