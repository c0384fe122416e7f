"""Every example of `compare` and `sweep` in the help and in the guide is a study that can be planned."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from pgdyno.cli.experiments import COMPARE_EXAMPLES, SWEEP_EXAMPLES
from pgdyno.cli.main import run_program
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.plan.types import PoolerProgram
from pgdyno.spec.study import Study

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"(?:\./|(?<=`))pgdyno ((?:compare|sweep) [^`\n]*)")
MACHINE = Machine(
    version_major=18,
    cpu_count=2,
    memory_bytes=24 << 30,
    disk_free_bytes=10**13,
    pooler=PoolerProgram(path="/x", version=(1, 25, 0)),
)
SCRIPTS = ("join.sql", "lateral.sql", "pay.sql", "schema.sql")
SERVERS = ("base/bin", "change/bin", "pr/bin", "A", "B")


class Asked(BaseException):
    """What a command line asks for."""

    def __init__(self, study: Study) -> None:
        super().__init__()
        self.study = study


def list_examples() -> list[str]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
    guide = (page.read_text(encoding="utf-8").replace("\\\n", " ").replace("`pgdyno", "") for page in pages)
    found = {words.strip() for text in (COMPARE_EXAMPLES, SWEEP_EXAMPLES, *guide) for words in EXAMPLE.findall(text)}
    # Words such as `compare … --apply-with` are no whole command.
    return sorted(words for words in found if "…" not in words)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What examples name, in the present folder."""
    for name in SCRIPTS:
        (tmp_path / name).write_text("SELECT 1;\n")
    for name in SERVERS:
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tuned.conf").write_text("work_mem = 8MB\n")
    (tmp_path / "apply.sh").write_text("#!/bin/sh\n")
    (tmp_path / "apply.sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("words", list_examples())
def test_an_example_can_be_planned(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(study: Study, **_: object) -> None:
        raise Asked(study)

    monkeypatch.setattr("pgdyno.flow.run.run_study", ask)
    monkeypatch.setattr(sys, "argv", ["pgdyno", *shlex.split(words.replace("CONNINFO", "host=db1"))])
    monkeypatch.delenv("PGDYNO_PROGRAM", raising=False)
    with pytest.raises(Asked) as asked:
        run_program()
    plan = plan_study(asked.value.study, MACHINE)
    assert (plan.experiment is None) is (plan.search is not None)
