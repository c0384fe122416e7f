"""`pgdyno price` as a user runs it: the newest record, JSON, and what is not understood."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pgdyno.cli.price import _read_load
from pgdyno.errors import SpecError
from pgdyno.price.worth import Load

RECORD = Path(__file__).parents[1] / "data" / "records" / "v1-pg18"


def run_price(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pgdyno", "price", *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(RECORD, tmp_path / "pgdyno-records" / "one")
    return tmp_path


def test_the_newest_record(folder: Path) -> None:
    done = run_price("--host", "c7g.large", "--utilisation", "30%", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pgdyno-records/one\n  c7g.large costs $52.9")
    assert "Your load is 30.0 % of full load on average over the month." in done.stdout


def test_json(folder: Path) -> None:
    done = run_price("pgdyno-records/one", "--host", "c7g.large", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["format"] == "pgdyno-price"
    assert document["records"][0]["price"]["cost"]["name"] == "c7g.large"


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
