"""`pgdyno price` as a user runs it: the newest record, JSON, and what is not understood."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert done.stdout.startswith("pgdyno-records/one\nc7g.large costs $52.9")
    assert "Your load is 30.0 % of full load on average over the month." in done.stdout
    unknown = run_price(cwd=folder)
    assert unknown.returncode == 0
    assert "What it costs is not known (it is no instance that pgdyno knows): name the machine" in unknown.stdout


def test_json(folder: Path) -> None:
    done = run_price("pgdyno-records/one", "--host", "c7g.large", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["format"] == "pgdyno-price"
    assert document["records"][0]["price"]["cost"]["name"] == "c7g.large"


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("--tps", "0"), "--tps 0: not above 0"),
        (("--tps", "nan"), "--tps nan: not above 0"),
        (("--utilisation", "300%"), "--utilisation 300% is not within 0.01% to 100%"),
        (("--utilisation", "0.3"), "--utilisation '0.3' is not a percentage"),
        (("--tps", "10", "--utilisation", "3%"), "--tps and --utilisation say the same thing twice"),
        (("--host", "c7g.2xlrge"), "no instance is known as c7g.2xlrge"),
        (("--prices", "none.toml"), "cannot read the prices none.toml"),
    ],
)
def test_what_is_not_understood(arguments: tuple[str, ...], fact: str, folder: Path) -> None:
    done = run_price(*arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {fact}" in done.stderr
    assert "hint: " in done.stderr


def test_no_record(tmp_path: Path) -> None:
    done = run_price(cwd=tmp_path)
    assert done.returncode == 2
    assert "there are no records in pgdyno-records" in done.stderr
