"""The whole job on a real PostgreSQL that is newer than all that the program was tried with.

The program is a copy whose facts lack version 18; the server is the real 18.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pgdyno.report.documents.report import make_schema
from tests.cli.experiments import QUICK_COMMITS, SLOW_COMMITS, verdict_of, write_study
from tests.cli.program import Bench, some_bench
from tests.older_facts import LEFT, UNKNOWN, copy_with_older_facts
from tests.shared import reachable_folder

pytestmark = pytest.mark.cluster

NEWER = f"PostgreSQL {UNKNOWN} is newer than the versions that this pgdyno was tried with ({LEFT[0]} to {LEFT[-1]})"
# Moved from pg_stat_wal to pg_stat_io, and pages became bytes there.
LOST = {"wal_write_count", "wal_sync_count", "wal_write_ms", "wal_sync_ms"}
LOST_OF_IO = {"io_read_bytes", "io_write_bytes", "io_extend_bytes"}
# Of version 18 alone: it is neither known nor guessed at.
SERVER = "[server]\nsettings = { io_workers = 2 }"
SLOW = f'name = "slow"\nsettings = {{ {SLOW_COMMITS} }}'
QUICK = f'name = "quick"\nsettings = {{ {QUICK_COMMITS} }}'


@dataclass(frozen=True)
class Copy:
    """The copy of the program, beside the folder that it works in."""

    bench: Bench
    program: Path

    def run(self, *arguments: str, codes: Collection[int] = (0,)) -> subprocess.CompletedProcess[str]:
        done = self.bench.run(*arguments, python_path=self.program)
        assert done.returncode in codes, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str, codes: Collection[int] = (0,)) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.run(*arguments, "--json", codes=codes).stdout)
        return document


@pytest.fixture(scope="module")
def copy() -> Iterator[Copy]:
    with reachable_folder() as program, some_bench(is_empty=False) as bench:
        yield Copy(bench=bench, program=copy_with_older_facts(program))


def test_a_comparison_and_its_report(copy: Copy) -> None:
    study = write_study(copy.bench, SLOW, QUICK, server=SERVER, warm_up="0s", duration="2s")
    done = copy.run("run", study, "--out", "out", "--json")
    assert NEWER in done.stderr
    # Once, though every trial lacks them.
    assert done.stderr.count("statistics views: ") == 1
    report = json.loads(done.stdout)
    jsonschema.validate(report, make_schema())
    assert_figures_and_absences(copy.bench.folder / "out")
    assert verdict_of(report, "quick")["kind"] in {"faster", "inconclusive"}
    (doubt,) = [one for one in report["findings"] if NEWER in one["claim"]]
    assert doubt["severity"] == "warning"
    assert all(name in doubt["evidence"] for name in (*LOST, *LOST_OF_IO, "io_method", "pg_stat_wal.wal_write"))
    again = copy.run("report", "out").stdout
    assert NEWER in " ".join(again.split())
    assert copy.run("explain", "out").stdout


def assert_figures_and_absences(record: Path) -> None:
    trials = [json.loads(path.read_text()) for path in sorted(record.glob("trials/*/trial.json"))]
    finished = [trial for trial in trials if trial["status"] == "finished"]
    assert finished
    for trial in finished:
        before, after = trial["counters_before"], trial["counters_after"]
        # Absent, and not 0, is what is no longer where the newest known version has it; all else moves as ever.
        assert {name for name in LOST if before[name] is None and after[name] is None} == LOST
        assert after["xact_commit_count"] > before["xact_commit_count"]
        assert after["wal_insert_lsn_bytes"] > before["wal_insert_lsn_bytes"]
        (gap,) = [gap for gap in trial["gaps"] if gap["source"] == "statistics views"]
        assert all(name in gap["reason"] for name in LOST | LOST_OF_IO)
        assert [fact["value"] for fact in trial["settings"] if fact["name"] == "io_workers"] == ["2"]


def test_check_warns_and_passes_unknown_settings_to_the_server(copy: Copy) -> None:
    # 1: something else is at work on this machine.
    document = copy.json("check", "--set", "io_method=sync", codes=(0, 1))
    (finding,) = [one for one in document["findings"] if one["rule"] == "untried-version"]
    assert finding["severity"] == "not tried"
    assert NEWER in finding["claim"]
    assert "io_method" in finding["seen"]
    refused = copy.run("check", "--set", "io_method=telepathy", codes=(2,))
    # In the server's own words.
    assert 'invalid value for parameter "io_method": "telepathy"' in refused.stderr
    misspelt = copy.run("check", "--set", "io_metod=sync", codes=(2,))
    assert 'unrecognized configuration parameter "io_metod"' in misspelt.stderr


def test_tune_derives_what_the_server_confirms(copy: Copy) -> None:
    home = ("--home", str(copy.bench.home))
    document = copy.json("tune", "--set", "io_workers=7", *home)
    changes = {one["name"]: one for one in document["changes"]}
    assert changes["io_workers"]["value"] == "7"
    assert any(note.startswith(NEWER) for note in document["tuning"]["notes"])
    # What is built in the program itself says, of 18 as of 17.
    assert changes["shared_buffers"]["now"] == "128MB"
    assert not changes["shared_buffers"]["is_same"]
    assert changes["effective_io_concurrency"]["now"] == "16"
    assert changes["io_workers"]["now"] == "3"
    refused = copy.run("tune", "--set", "io_workers=1000", *home, codes=(2,))
    assert '1000 is outside the valid range for parameter "io_workers" (1 .. 32)' in refused.stderr
