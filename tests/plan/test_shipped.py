"""The studies in the tree and in the guide can be planned, and the server of pgdyno has what they set."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pgdyno.plan.experiment import identify_server
from pgdyno.plan.plan import StepKind, plan_study
from pgdyno.plan.types import Machine
from pgdyno.plan.variants import plan_experiment
from pgdyno.spec.read import make_study, read_study
from pgdyno.spec.setting import find_setting, read_setting
from pgdyno.spec.variant import DesignKind, show_value
from tests.rows import each_row

STUDIES = Path(__file__).parents[2] / "studies"
SHIPPED = sorted(path for path in STUDIES.rglob("*.toml") if path.parent.name not in {"hosts", "prices"})
# With room for the largest data of a case, on a disk as quick as the cases' are.
MACHINE = Machine(
    version_major=18,
    cpu_count=8,
    memory_bytes=16 << 30,
    disk_free_bytes=8 << 40,
    read_bytes_per_s=1e9,
    write_bytes_per_s=1e9,
)


def test_the_cases_are_there() -> None:
    cases = {path.name.partition("-")[0] for path in SHIPPED if path.parent.name == "cases"}
    assert cases == {"c7g", "ecs", "r8g", "vm4"}


@each_row(SHIPPED)
def test_shipped_studies_can_be_planned(path: Path) -> None:
    study = read_study(path)
    plan = plan_study(study, MACHINE)
    trials = [step for step in plan.steps if step.kind is StepKind.TRIAL]
    experiment = plan_experiment(study, version_major=18)
    # A verdict takes four pairs, of which a block has many; a study that compares nothing has one trial of each load in each round.
    least = 1 if experiment and experiment.design is DesignKind.SWITCHBACK else 4
    assert len(trials) >= (least if experiment else study.trials.rounds * len(study.workload)), plan.steps
    servers = [study.server] if experiment is None else [one.server for one in experiment.variants]
    for server in servers:
        assert identify_server(server) == identify_server(study.server)
        for name, value in server.settings.items():
            read_setting(find_setting(name, 18), name, show_value(value))


def test_the_studies_of_the_guide_can_be_planned() -> None:
    pages = sorted((STUDIES.parent / "docs" / "guide").glob("*.md"))
    blocks = [
        block
        for page in pages
        for block in re.findall(r"^```toml\n(.+?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    ]
    studies = [raw for raw in map(tomllib.loads, blocks) if "workload" in raw]
    assert len(studies) > 1
    for raw in studies:
        plan_study(make_study(raw, source="guide", folder=STUDIES), MACHINE)
