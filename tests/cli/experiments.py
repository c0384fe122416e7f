"""Small comparisons, as users write them, for tests that run them."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec

from pgdyno.record.types import ErrorFact, TrialRecord
from tests.cli.program import Bench

# Short slices, no pilot: a large difference is decided within seconds.
HEAD = """
question = "A small one"
[data]
scale = 2
[trials]
warm_up = "{warm_up}"
duration = "{duration}"
[[workload]]
name = "tpcb-like"
clients = 2
{load}
[experiment]
minutes = {minutes}
confidence = "{confidence}"
slice = "0.3s"
"""
# For tests in which nothing is to be faster: a transaction takes a millisecond of CPU time, and ever more of it.
GENTLE = "rate_tps = 100"
# Commits sleep for that long: the difference shows on a busy machine too, and leaves the CPUs to the tests beside it.
SLOW_COMMITS = "commit_siblings = 0, commit_delay = 20000"
QUICK_COMMITS = "commit_siblings = 0, commit_delay = 5000"
# A client that thinks for most of the time leaves them the CPUs as well.
THINKING = "SELECT abalance FROM pgbench_accounts WHERE aid = 1;\n\\sleep 20 ms\n"


def write_study(
    bench: Bench,
    *variants: str,
    server: str = "",
    minutes: float = 3,
    confidence: str = "95%",
    experiment: str = "",
    warm_up: str = "1s",
    duration: str = "3s",
    load: str = "",
) -> str:
    """A study file in the bench's folder, with a line of TOML for each variant; gives its name."""
    head = HEAD.format(minutes=minutes, confidence=confidence, warm_up=warm_up, duration=duration, load=load)
    parts = [head + experiment, server]
    parts += [f"[[variant]]\n{variant}" for variant in variants]
    (bench.folder / "study.toml").write_text("\n".join(parts) + "\n")
    return "study.toml"


def read_report(record: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((record / "report.json").read_text())
    return report


def verdict_of(report: dict[str, Any], variant: str, metric: str = "tps") -> dict[str, Any]:
    """The verdict on a variant."""
    (comparison,) = report["experiment"]["comparisons"]
    (verdict,) = [q["verdict"] for q in comparison["questions"] if (q["arm"], q["metric"]) == (variant, metric)]
    assert isinstance(verdict, dict)
    return verdict


def count_slices(record: Path, trial: str = "0001") -> int:
    path = record / "trials" / trial / "slices.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def finished_trials(record: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(record.glob("trials/[0-9][0-9][0-9][0-9]/trial.json")):
        # One that failed is put aside, whether or not somebody is just about to read it.
        with contextlib.suppress(FileNotFoundError):
            found.append(json.loads(path.read_text()))
    return [trial for trial in found if trial["status"] == "finished"]


LATE = "came too late for its samples"
"""Why a sampler missed some: how often one does is the machine's affair."""


def list_unseen(trial: dict[str, Any]) -> list[str]:
    """What was not to be seen of a trial at all."""
    return [gap["source"] for gap in trial["gaps"] if gap["reason"] != LATE]


def read_failed_tries(record: Path) -> list[tuple[int, ErrorFact | None]]:
    """Tries that another one of the same trial has replaced, by its number; without an error where they were cut short."""
    tries = []
    for path in record.glob("trials/*.cut-*"):
        number, _, cut = path.name.partition(".cut-")
        file = path / "trial.json"
        error = msgspec.json.decode(file.read_bytes(), type=TrialRecord).error if file.exists() else None
        tries.append((int(number), int(cut), error))
    return [(number, error) for number, _, error in sorted(tries, key=lambda one: one[:2])]
